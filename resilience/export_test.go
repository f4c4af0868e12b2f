package resilience

// Locked runs fn while the breaker's lock is held, to show what takes none.
func (b *Breaker) Locked(fn func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fn()
}
