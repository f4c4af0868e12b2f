package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/penstock-go/penstock/resilience"
)

// asWorker is the environment variable that makes a process a worker. It holds
// its settings.
const asWorker = "FLEET_WORKER"

type settings struct {
	Name, Store, Fleet, Upstream string
	Timeout, Reset, Pace         time.Duration
}

// work is a worker: it calls the upstream until its input ends, and tells what
// happens.
func work(ctx context.Context, text string, in io.Reader, out io.Writer) error {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	store, shut, err := open(s.Store, s.Fleet)
	if err != nil {
		return err
	}
	defer shut()
	cfg := resilience.FleetConfig{
		Origin: s.Name, Timeout: s.Timeout,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	fleet := resilience.NewFleet(store, cfg)
	defer fleet.Close()
	resilience.Default.Join(fleet)

	w := &worker{settings: s, out: json.NewEncoder(out)}
	w.breaker, err = resilience.Default.Register("crm", resilience.Config{
		FailMax: failMax, ResetTimeout: s.Reset, ProbeTimeout: 10 * time.Second,
		Logger:       slog.New(slog.DiscardHandler), // the timeline is the log
		OnTransition: w.moved,
	})
	if err != nil {
		return err
	}
	w.breaker.Locate(s.Upstream)

	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	w.run(ctx)
	total := w.breaker.Snapshot()
	w.tell(event{Kind: ended, Calls: total.Calls, Refused: total.Rejected})
	return nil
}

type worker struct {
	settings

	breaker *resilience.Breaker
	client  http.Client

	mu  sync.Mutex
	out *json.Encoder
}

func (w *worker) run(ctx context.Context) {
	for tick := time.Tick(w.Pace); ctx.Err() == nil; {
		_ = w.breaker.Do(ctx, w.call)
		select {
		case <-tick:
		case <-ctx.Done():
		}
	}
}

func (w *worker) call(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.Upstream, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		w.tell(event{Kind: failed, What: w.failure()})
		return errors.New(resp.Status)
	}
	w.tell(event{Kind: called})
	return nil
}

// failure says that a call was let through before the breaker opened.
func (w *worker) failure() string {
	if w.breaker.State() == resilience.Open {
		return "a call that was in flight fails"
	}
	return "a call fails"
}

// event is what a worker tells.
type event struct {
	Kind           kind
	Worker, What   string
	Calls, Refused uint64 // of ended
}

type kind string

const (
	called      kind = "called"
	failed      kind = "failed"
	opened      kind = "opened"
	probing     kind = "probing"
	probeFailed kind = "probe failed"
	closedAgain kind = "closed"
	ended       kind = "ended"
)

func (w *worker) tell(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.Worker = w.Name
	_ = w.out.Encode(e) // the reader may have ended
}

// moved tells the moves of this worker's breaker. What others do with their
// probes is told by them.
func (w *worker) moved(t resilience.Transition) {
	own := t.Origin == ""
	switch {
	case t.To == resilience.Closed && own:
		w.tell(event{Kind: closedAgain, What: "closes the breaker: " + t.Reason})
	case t.To == resilience.Closed:
		w.tell(event{Kind: closedAgain, What: "closed, by the probe of " + t.Origin})
	case t.From == resilience.Closed && own:
		w.tell(event{Kind: opened, What: "opens the breaker: " + t.Reason})
	case t.From == resilience.Closed:
		w.tell(event{Kind: opened, What: "open, by " + t.Origin})
	case t.To == resilience.HalfOpen && own:
		w.tell(event{Kind: probing, What: "probes"})
	case t.To == resilience.Open && own:
		w.tell(event{Kind: probeFailed, What: fmt.Sprintf("opens it again, for %v", w.Reset)})
	}
}
