package fleettest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/resilience"
)

const (
	size    = 8 // of a fleet
	failMax = 5
	reset   = time.Second

	// patience is how long a drill waits for what must happen, on any machine.
	patience = time.Minute
)

// drill is a fleet, its upstream and its store.
type drill struct {
	*testing.T

	backend  Backend
	server   *upstreams.Process
	upstream *upstream
	workers  []*handle
	settings settings // of the workers to be started
}

// handle is a worker process.
type handle struct {
	*upstreams.Process

	origin string
}

func newDrill(t *testing.T, backend Backend) *drill {
	t.Helper()
	t.Parallel()
	d := &drill{T: t, backend: backend, server: backend.Start(t), upstream: newUpstream(t)}
	d.settings = settings{
		Addr: d.server.Addr, Records: Records, Upstream: d.upstream.URL, FailMax: failMax,
		Reset: reset, Probe: patience, Lease: patience, // a worker that is slow has not died
		Timeout: 5 * time.Second, Pace: 10 * time.Millisecond,
	}
	return d
}

// start starts n workers, and waits until the store has answered them.
func (d *drill) start(n int) {
	d.Helper()
	for range n {
		d.startOne()
	}
	d.await("the store answers all", func() bool { return d.every(func(s status) bool { return s.StoreUp }) })
}

func (d *drill) startOne() *handle {
	d.Helper()
	origin := fmt.Sprintf("host-%d", len(d.workers))
	h := &handle{origin: origin, Process: d.launch(origin)}
	d.workers = append(d.workers, h)
	return h
}

func (d *drill) launch(origin string) *upstreams.Process {
	d.Helper()
	program, err := os.Executable()
	require.NoError(d, err)
	s := d.settings
	s.Origin = origin
	return upstreams.Start(d, upstreams.Spec{
		Name: "worker", Ports: 1,
		Command: func(_ string, ports []int) *exec.Cmd {
			s.Port = ports[0]
			text, _ := json.Marshal(s)
			c := exec.Command(program)
			c.Env = append(os.Environ(), asWorker+"="+string(text))
			return c
		},
		Ready: func(ctx context.Context, addr string) error {
			_, err := request(ctx, http.MethodGet, addr, "/")
			return err
		},
	})
}

// request asks a worker.
func request(ctx context.Context, method, addr, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return text, err
}

// tell has a worker do something, and returns what it says once that is done.
func (d *drill) tell(h *handle, what string) string {
	d.Helper()
	text, err := request(d.Context(), http.MethodPost, h.Addr, "/"+what)
	require.NoError(d, err, "%s %s", h.origin, what)
	return string(text)
}

func (d *drill) tellAll(what string) {
	d.Helper()
	for _, h := range d.workers {
		d.tell(h, what)
	}
}

// status asks a worker what it is.
func (d *drill) status(h *handle) (s status) {
	d.Helper()
	text, err := request(d.Context(), http.MethodGet, h.Addr, "/")
	require.NoError(d, err, h.origin)
	require.NoError(d, json.Unmarshal(text, &s))
	return s
}

func (d *drill) all() (all []status) {
	d.Helper()
	for _, h := range d.workers {
		all = append(all, d.status(h))
	}
	return all
}

func (d *drill) every(holds func(status) bool) bool {
	d.Helper()
	return !slices.ContainsFunc(d.all(), func(s status) bool { return !holds(s) })
}

// await waits until something holds.
func (d *drill) await(what string, holds func() bool) {
	d.Helper()
	limit := time.After(patience)
	for tick := time.Tick(10 * time.Millisecond); !holds(); {
		select {
		case <-tick:
		case <-limit:
			require.Fail(d, "it has not happened that "+what, d.picture())
		}
	}
}

// picture is what the workers are, for a drill that has failed.
func (d *drill) picture() string {
	var text strings.Builder
	for i, s := range d.all() {
		fmt.Fprintf(&text, "%s: %s %s, store up %v, %v\n", d.workers[i].origin, s.State, s.Held, s.StoreUp, s.Calls)
		for _, m := range s.Moves {
			fmt.Fprintf(&text, "  %s %s, %s, by %q\n", m.At.Format("05.000"), m.To, m.Reason, m.Origin)
		}
		for _, line := range s.Logs {
			text.WriteString("  " + line)
		}
	}
	for _, a := range d.upstream.since(0) {
		fmt.Fprintf(&text, "%s called by %s, answer %d\n", a.at.Format("05.000"), a.origin, a.mode)
	}
	return text.String()
}

func (d *drill) awaitAll(state string) {
	d.Helper()
	d.await("all are "+state, func() bool { return d.every(func(s status) bool { return s.State == state }) })
}

// notClosed waits until no worker is closed.
func (d *drill) notClosed() {
	d.Helper()
	d.await("none is closed", func() bool { return d.every(func(s status) bool { return s.State != "closed" }) })
}

// open opens the breaker of all by five failures of one worker.
func (d *drill) open() {
	d.Helper()
	d.upstream.become(down)
	for range failMax {
		require.Equal(d, failed, d.tell(d.workers[0], "call"))
	}
	d.notClosed()
}

// recovers heals the upstream and waits until the calls of all closed it again.
func (d *drill) recovers() {
	d.Helper()
	began := time.Now()
	d.upstream.become(up)
	d.tellAll("run")
	d.awaitAll("closed")
	d.Logf("all are closed %v after the upstream recovered", time.Since(began).Round(time.Millisecond))
	for _, h := range d.workers {
		before := d.status(h).Calls[good]
		d.await("a call of "+h.origin+" is good", func() bool { return d.status(h).Calls[good] > before })
	}
	d.tellAll("halt")
}

// closings are how often workers have closed.
func (d *drill) closings() (n int) {
	d.Helper()
	for _, s := range d.all() {
		for _, m := range s.Moves {
			if m.To == "closed" {
				n++
			}
		}
	}
	return n
}

// longest is the longest time that calls with an outcome took for the breaker.
func (d *drill) longest(outcome string) (most time.Duration) {
	d.Helper()
	for _, s := range d.all() {
		most = max(most, s.Longest[outcome])
	}
	return most.Round(10 * time.Microsecond)
}

// logged is how many lines of a worker's log have a text.
func (s status) logged(text string) (n int) {
	for _, line := range s.Logs {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// store is the drill's own way to the records.
func (d *drill) store() resilience.Store {
	d.Helper()
	store, shut, err := d.backend.Open(d.server.Addr, Records)
	require.NoError(d, err)
	d.Cleanup(shut)
	return store
}

// record is what the store has of the breaker.
func (d *drill) record(store resilience.Store) string {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), 5*time.Second)
	defer cancel()
	r, err := store.Load(ctx, "1/upstream")
	if err != nil {
		d.Log(err)
	}
	return string(r.Value)
}
