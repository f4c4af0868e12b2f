package statuspage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/storetest"
)

// shared has the page show a breaker of a fleet.
func (f *fixture) shared(t *testing.T, store resilience.Store, origin string) *resilience.Breaker {
	t.Helper()
	f.config.Shared = "redis://10.0.3.4:6379/0"
	return f.own(t, fleetOf(t, store, origin))
}

// fleetOf is the policy of a breaker that a process shares.
func fleetOf(t *testing.T, store resilience.Store, origin string) resilience.Config {
	t.Helper()
	fleet := resilience.NewFleet(store, resilience.FleetConfig{Origin: origin, Logger: quiet})
	t.Cleanup(func() { require.NoError(t, fleet.Close()) })
	return resilience.Config{Shared: fleet, FailMax: 2, ResetTimeout: time.Minute, Logger: quiet}
}

func another(t *testing.T, store resilience.Store, origin string) *resilience.Breaker {
	t.Helper()
	b, err := resilience.New("own", fleetOf(t, store, origin))
	require.NoError(t, err)
	return b
}

// The page names the process that has opened a breaker. A name is text.
func TestPageNamesTheProcessThatOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		f := newFixture(t, nil)
		f.shared(t, store, "here")
		other := another(t, store, "<b>worker</b>-3\n\x1b[31m")
		synctest.Wait()
		assert.Contains(t, f.get("/").Body.String(),
			"Their circuit breakers are shared: <bdi>redis://10.0.3.4:6379/0</bdi>")
		for range 2 {
			fail(other, "the GPU node is on fire")
		}
		time.Sleep(time.Second)
		body := f.get("/").Body.String()
		const name = "another process on &lt;b&gt;worker&lt;/b&gt;-3"
		assert.Contains(t, body, "Opened by <bdi>"+name)
		assert.Contains(t, body, "Its breaker was opened by "+name)
		assert.Contains(t, body, ", by <bdi>"+name, "among the changes")
		assert.NotContains(t, body, "\x1b")
		assert.NotContains(t, body, "said", "this process has no answer of the upstream")
		assert.Contains(t, f.get("/changes").Body.String(), ", by <bdi>"+name)

		time.Sleep(time.Minute + 5*time.Second)
		require.NoError(t, other.Do(t.Context(), func(context.Context) error { return nil }))
		time.Sleep(10 * time.Second)
		assert.NotContains(t, f.get("/").Body.String(), "Opened by")
		assert.NotContains(t, f.sentence(), "worker")
	})
}

// A lost store is said, with what it means; what the breakers themselves say
// comes first.
func TestPageShowsThatTheSharedStateIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		f := newFixture(t, nil)
		own := f.shared(t, store, "here")
		synctest.Wait()
		store.Down(errors.New("connection refused"))
		time.Sleep(time.Second)
		assert.Contains(t, f.get("/").Body.String(), "Not shared now: <bdi>redis://10.0.3.4:6379/0</bdi>")
		lost := "The shared state of the circuit breakers cannot be reached"
		assert.True(t, strings.HasPrefix(f.sentence(), lost+
			". It is in redis://10.0.3.4:6379/0. Until it is back, each process counts failures"), f.sentence())
		for range 2 {
			fail(own, "connection refused")
		}
		assert.True(t, strings.HasPrefix(f.sentence(), "own has been failing"), f.sentence())
		assert.Contains(t, f.sentence(), lost)
		assert.NotContains(t, f.sentence(), "Calls from other processes succeed", "which is not known")
		store.Up()
		time.Sleep(10 * time.Second)
		assert.NotContains(t, f.get("/").Body.String(), "Not shared now")
		assert.NotContains(t, f.sentence(), lost)
	})
}

// A breaker that is open here alone points at this machine.
func TestPageShowsABreakerThatIsOpenHereAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		f := newFixture(t, nil)
		own := f.shared(t, store, "here")
		other := another(t, store, "there")
		synctest.Wait()
		for i := range 2 {
			require.NoError(t, other.Do(t.Context(), func(context.Context) error { return nil }))
			fail(own, fmt.Sprintf("no route to host, %d", i))
			synctest.Wait()
			require.NoError(t, other.Do(t.Context(), func(context.Context) error { return nil }))
			time.Sleep(time.Second)
		}
		require.Equal(t, resilience.Open, own.State())
		require.Equal(t, resilience.Closed, other.State())
		assert.Contains(t, f.sentence(), "Calls from other processes succeed: look at the network and the settings of this machine.")
		assert.Contains(t, f.get("/").Body.String(), "Open in this process only")
	})
}

// A hold is of all processes, and does not end with one of them.
func TestPageShowsASharedHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		f := newFixture(t, nil)
		f.shared(t, store, "here")
		other := another(t, store, "there")
		synctest.Wait()
		other.ForceOpen("maintenance")
		time.Sleep(time.Second)
		assert.Contains(t, f.sentence(), "An operator has held the breaker of own open")
		assert.Contains(t, f.sentence(), "Reset the breaker when that reason is gone, in any process that shares it.")
	})
}
