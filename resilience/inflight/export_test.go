package inflight

// Lanes is how many operations the limiter remembers.
func (l *Limiter) Lanes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lanes)
}
