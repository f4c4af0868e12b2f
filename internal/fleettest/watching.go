package fleettest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
)

// Watching is a watch that has been told all there was.
type Watching struct {
	told  chan string
	ended chan error
}

// Watch begins a watch of a store, which ends with the test. It tries again, as
// a fleet does, until the store can be reached.
func Watch(t *testing.T, store resilience.Store) *Watching {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		w, err := begin(t, store)
		if err == nil {
			return w
		}
		require.True(t, time.Now().Before(end), "%v", err)
	}
}

// begin returns the error of a watch that ends before it has been told all.
func begin(t *testing.T, store resilience.Store) (*Watching, error) {
	t.Helper()
	w := &Watching{told: make(chan string, 1000), ended: make(chan error, 1)}
	present := make(chan struct{})
	go func() {
		w.ended <- store.Watch(t.Context(), func() { close(present) },
			func(key string, r resilience.Record) { w.told <- key + "=" + string(r.Value) })
	}()
	select {
	case <-present:
	case err := <-w.ended:
		return nil, err
	case <-time.After(patience):
		require.Fail(t, "the watch does not begin")
	}
	return w, nil
}

// Await waits until the watch is told KEY=VALUE.
func (w *Watching) Await(t *testing.T, want string) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case told := <-w.told:
			if told == want {
				return
			}
		case err := <-w.ended:
			require.Fail(t, "the watch has ended", "%v", err)
		case <-limit:
			require.Fail(t, "the watch was not told "+want)
		}
	}
}

// End waits until the watch has found out that its link is dead, and returns
// its error.
func (w *Watching) End(t *testing.T) error {
	t.Helper()
	began := time.Now()
	select {
	case err := <-w.ended:
		require.Error(t, err)
		t.Logf("after %v: %v", time.Since(began).Round(time.Millisecond), err)
		return err
	case <-time.After(patience):
		require.Fail(t, "the watch does not end")
	}
	return nil
}
