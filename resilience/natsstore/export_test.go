package natsstore

import "time"

// SetClock has the store believe that it learned the server's time at a time of
// its own.
func (s *Store) SetClock(at, server time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = &known{at: at, server: server}
}
