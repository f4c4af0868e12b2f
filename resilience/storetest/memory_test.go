package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/fleettest"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/storetest"
)

var errDown = errors.New("the store is down")

// told is what a watch was told, as words.
type told struct {
	events []string
	ended  chan error
}

// watch watches until the test ends. It is for a bubble: what it was told is
// read after synctest.Wait.
func watch(t *testing.T, store resilience.Store) *told {
	t.Helper()
	w := &told{ended: make(chan error, 1)}
	go func() {
		w.ended <- store.Watch(t.Context(), func() { w.events = append(w.events, "present") },
			func(key string, r resilience.Record) {
				w.events = append(w.events, fmt.Sprintf("%s=%s", key, r.Value))
			})
	}()
	synctest.Wait()
	return w
}

func TestDownFailsCallsAndEndsWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		one, other := m.Client(), m.Client()
		fleettest.Put(t, m, "a", "1")
		w := watch(t, one)

		one.Down(errDown)
		_, err := one.Load(t.Context(), "a")
		require.ErrorIs(t, err, errDown)
		_, err = one.Swap(t.Context(), "a", 0, []byte("2"), 0)
		require.ErrorIs(t, err, errDown)
		require.ErrorIs(t, <-w.ended, errDown)
		require.ErrorIs(t, one.Watch(t.Context(), nil, nil), errDown)
		fleettest.Put(t, other, "a", "3") // it is the trouble of one client

		one.Up()
		r, err := one.Load(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, "3", string(r.Value))

		m.Down(errDown) // now of all
		_, err = other.Load(t.Context(), "a")
		require.ErrorIs(t, err, errDown)
	})
}

func TestFrozenCallsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		w := watch(t, m)
		m.Freeze()
		late := watch(t, m)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.Swap(ctx, "a", 0, []byte("left"), 0)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		answers := make(chan resilience.Record)
		go func() {
			r, _ := m.Swap(t.Context(), "a", 0, []byte("waits"), 0) // a conflict with the first
			answers <- r
		}()
		synctest.Wait()
		assert.Empty(t, late.events)
		assert.Empty(t, m.Records())

		m.Thaw()
		assert.Equal(t, "left", string((<-answers).Value), "calls are done in their order")
		synctest.Wait()
		assert.Equal(t, []string{"present", "a=left"}, w.events)
		assert.Equal(t, []string{"a=left", "present"}, late.events)
	})
}

func TestDownEndsWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		m.Freeze()
		ended := make(chan error)
		go func() {
			_, err := m.Swap(t.Context(), "a", 0, []byte("1"), 0)
			ended <- err
		}()
		synctest.Wait()
		m.Down(errDown)
		require.ErrorIs(t, <-ended, errDown)
		m.Up()
		m.Thaw()
		assert.Empty(t, m.Records(), "it was not done")
	})
}

func TestLostAnswersWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		m.LoseAnswers(1, errDown)
		_, err := m.Swap(t.Context(), "a", 0, []byte("1"), 0)
		require.ErrorIs(t, err, errDown)
		assert.Equal(t, "1", string(m.Records()["a"].Value))

		m.LoseAnswers(1, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = m.Swap(ctx, "b", 0, []byte("1"), 0)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, "1", string(m.Records()["b"].Value))

		fleettest.Put(t, m, "a", "2") // one answer each time
	})
}

func TestPushesComeLateAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		slow, quick := m.Client(), m.Client()
		behind, w := watch(t, slow), watch(t, quick)
		slow.HoldPushes()
		late := watch(t, slow)
		fleettest.Put(t, m, "a", "1")
		fleettest.Put(t, m, "a", "2")
		fleettest.Put(t, m, "a", "")
		synctest.Wait()
		assert.Equal(t, []string{"present", "a=1", "a=2", "a="}, w.events)
		assert.Equal(t, []string{"present"}, behind.events)
		assert.Equal(t, []string{"present"}, late.events)

		slow.ReleasePushes()
		synctest.Wait()
		assert.Equal(t, w.events, behind.events)
		assert.Equal(t, w.events, late.events)
	})
}

func TestCutWatchesLosesWhatWasNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		w := watch(t, m)
		m.HoldPushes()
		fleettest.Put(t, m, "a", "1")
		m.CutWatches(errDown)
		require.ErrorIs(t, <-w.ended, errDown)
		assert.Equal(t, []string{"present"}, w.events)
		assert.Equal(t, []string{"a=1", "present"}, watch(t, m).events, "the store is up")
	})
}

func TestRollback(t *testing.T) {
	m := &storetest.Memory{}
	old := fleettest.Put(t, m, "a", "old")
	rollback := m.Save()
	lost := fleettest.Put(t, m, "a", "new")
	fleettest.Put(t, m, "b", "new")
	rollback()
	assert.Equal(t, old.Version, m.Records()["a"].Version)
	assert.NotContains(t, m.Records(), "b")
	assert.Greater(t, fleettest.Put(t, m, "a", "again").Version, lost.Version, "versions do not return")
}

func TestTraces(t *testing.T) {
	m := &storetest.Memory{Traces: true}
	fleettest.Put(t, m, "a", "1")
	gone := fleettest.Put(t, m, "a", "")
	r, err := m.Load(t.Context(), "a")
	require.NoError(t, err)
	assert.Empty(t, r.Value)
	assert.Equal(t, gone.Version, r.Version)
	assert.Empty(t, m.Records())
	_, err = m.Swap(t.Context(), "a", 0, []byte("2"), 0)
	require.NoError(t, err, "there is no record to be in the way")
}

func TestCallsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		one, other := m.Client(), m.Client()
		watch(t, one)
		fleettest.Put(t, one, "a", "1")
		_, err := other.Swap(t.Context(), "a", 0, []byte("2"), 0)
		require.ErrorIs(t, err, resilience.ErrConflict)
		assert.Equal(t, storetest.Calls{Loads: 1, Swaps: 1, Watches: 1, Pushes: 1}, one.Calls())
		assert.Equal(t, storetest.Calls{Swaps: 1, Conflicts: 1}, other.Calls())
		assert.Equal(t, storetest.Calls{Loads: 1, Swaps: 2, Watches: 1, Conflicts: 1, Pushes: 1}, m.Calls())
	})
}
