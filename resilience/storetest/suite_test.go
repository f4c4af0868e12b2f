package storetest_test

import (
	"testing"
	"time"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/storetest"
)

func TestMemoryConforms(t *testing.T) {
	for name, traces := range map[string]bool{"without a trace": false, "traces": true} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(*testing.T) storetest.Opened {
				m := &storetest.Memory{Traces: traces}
				return storetest.Opened{
					Stores: []resilience.Store{m, m.Client()},
					Keep:   time.Millisecond,
					Flush:  func(*testing.T) { m.Flush() },
					Cut:    func(*testing.T) { m.Down(errDown) },
				}
			})
		})
	}
}
