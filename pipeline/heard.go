package pipeline

import (
	"slices"
	"sync"
)

// heard remembers what the last run of a pipeline reported: a service runs
// every minute.
type heard struct {
	mu   sync.Mutex
	last []string
}

// news returns what the last call did not name.
func (h *heard) news(all []string) (news []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range all {
		if !slices.Contains(h.last, one) {
			news = append(news, one)
		}
	}
	h.last = all
	return news
}
