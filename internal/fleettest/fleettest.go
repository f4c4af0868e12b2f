// Package fleettest drills fleets of real processes: eight workers with one
// breaker for one upstream, the server of their store, and what can happen to
// each of them.
//
//	func TestMain(m *testing.M) {
//		fleettest.Main(open)
//		os.Exit(m.Run())
//	}
//
//	func TestFleet(t *testing.T) { fleettest.Run(t, backend) }
//
// A worker is the test binary again, which Main makes one. It calls the
// upstream, an HTTP server of the test that counts what it is asked, and is
// told what to do over HTTP. The drills count events and wait for them. What
// takes time is logged, and bounded only by how long a drill waits for what
// must happen.
package fleettest

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/door/doortest"
	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/resilience"
)

// Open connects a process to the records called name in the store at addr. It
// neither fails nor waits while that is down.
type Open func(addr, name string) (store resilience.Store, shut func(), err error)

// Backend is a kind of store with a server.
type Backend struct {
	// Open connects the test, as Main's does a worker.
	Open Open
	// Start starts a server for one drill.
	Start func(t *testing.T) *upstreams.Process
	// Save keeps what the server has now, and Restore starts it again with
	// that after a Kill.
	Save, Restore func(t *testing.T, server *upstreams.Process)
	// Empty removes all the server has, as the drills call it.
	Empty func(t *testing.T, server *upstreams.Process)
}

// Records is the name of the records in each drill.
const Records = "drill"

// Run runs all drills.
func Run(t *testing.T, backend Backend) {
	t.Run("nothing is left of a closed fleet", func(t *testing.T) { nothingIsLeft(t, backend) })
	for _, d := range []struct {
		name string
		run  func(*drill)
	}{
		{"five failures of anybody", (*drill).fiveFailures},
		{"an opening under way", (*drill).openingUnderWay},
		{"openings elsewhere", (*drill).openingsElsewhere},
		{"the prober is killed", (*drill).proberKilled},
		{"the prober is stopped", (*drill).proberStopped},
		{"an operator", (*drill).operator},
		{"another policy", (*drill).otherPolicy},
		{"the store is emptied", (*drill).storeEmptied},
		{"the store is killed and returns with old data", (*drill).storeRestored},
		{"the store is killed and returns with an old outage", (*drill).storeRestoredOpen},
		{"the store stands still", (*drill).storeFrozen},
		{"the store is cut off from half of them", (*drill).storeCutOff},
		{"the store is slow", (*drill).storeSlow},
	} {
		t.Run(d.name, func(t *testing.T) { d.run(newDrill(t, backend)) })
	}
}

// nothingIsLeft closes fleets that are at work: with a probe under way, and
// with a store that does not answer.
func nothingIsLeft(t *testing.T, backend Backend) {
	server := backend.Start(t)
	doortest.LeakFree(t)
	store, shut, err := backend.Open(server.Addr, Records)
	require.NoError(t, err)
	defer shut()
	quiet := slog.New(slog.DiscardHandler)
	var fleets []*resilience.Fleet
	for _, name := range []string{"one", "other"} {
		f := resilience.NewFleet(store, resilience.FleetConfig{Logger: quiet})
		fleets = append(fleets, f)
		b, err := resilience.New(name, resilience.Config{
			Shared: f, ResetTimeout: time.Millisecond, ProbeTimeout: time.Minute, Logger: quiet,
		})
		require.NoError(t, err)
		require.Eventually(t, f.Up, patience, time.Millisecond)
		b.Trip("drill")
		admitted := func() bool { _, err := b.Allow(t.Context()); return err == nil }
		require.Eventually(t, admitted, patience, time.Millisecond)
	}
	require.NoError(t, fleets[0].Close())
	server.Pause(t)
	require.NoError(t, fleets[1].Close())
	server.Resume(t)
}
