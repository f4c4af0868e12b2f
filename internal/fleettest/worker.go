package fleettest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/resilience"
)

// asWorker is the environment variable that makes the test binary a worker. It
// holds its settings.
const asWorker = "FLEETTEST_WORKER"

// settings are what a worker is started with.
type settings struct {
	Port          int    // it is told what to do here, on the loopback address
	Addr, Records string // of the store
	Origin        string
	Upstream      string // its URL
	FailMax       int
	Reset, Probe  time.Duration // ResetTimeout and ProbeTimeout
	Lease         time.Duration
	Timeout       time.Duration
	Stagger       time.Duration
	Pace          time.Duration // from one call to the next
}

// status is what a worker tells of itself.
type status struct {
	State   string
	Held    string
	StoreUp bool
	Moves   []move
	Logs    []string
	Calls   map[string]int           // by outcome
	Longest map[string]time.Duration // a call took for the breaker alone, by outcome
}

// move is a transition, and when its observer was told.
type move struct {
	To, Held, Origin, Reason string
	Generation               uint64
	At                       time.Time
}

// The outcomes of a call.
const (
	good    = "good"
	failed  = "failed"
	refused = "refused"
)

type worker struct {
	settings
	breaker *resilience.Breaker
	fleet   *resilience.Fleet
	client  http.Client
	running atomic.Bool
	turn    sync.Mutex // of calls

	mu sync.Mutex
	status
}

// Main runs a worker and does not return if this process is one.
func Main(open Open) {
	text := os.Getenv(asWorker)
	if text == "" {
		return
	}
	if err := work(text, open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func work(text string, open Open) error {
	w := &worker{status: status{Calls: map[string]int{}, Longest: map[string]time.Duration{}}}
	if err := json.Unmarshal([]byte(text), &w.settings); err != nil {
		return err
	}
	store, shut, err := open(w.Addr, w.Records)
	if err != nil {
		return err
	}
	defer shut()
	logger := slog.New(slog.NewTextHandler(w, nil))
	w.fleet = resilience.NewFleet(store, resilience.FleetConfig{
		Origin: w.Origin, Lease: w.Lease, Timeout: w.Timeout, Stagger: w.Stagger, Logger: logger,
	})
	w.breaker, err = resilience.New("upstream", resilience.Config{
		FailMax: w.FailMax, ResetTimeout: w.Reset, ProbeTimeout: w.Probe,
		Shared: w.fleet, Logger: logger, OnTransition: w.moved,
	})
	if err != nil {
		return err
	}
	go w.run()
	return w.serve()
}

// serve is told what to do.
func (w *worker) serve() error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(rw http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(rw).Encode(w.told()) })
	for path, act := range map[string]func(){
		"/run":   func() { w.running.Store(true) },
		"/halt":  w.halt,
		"/trip":  func() { w.breaker.Trip("drill") },
		"/force": func() { w.breaker.ForceOpen("maintenance") },
		"/reset": w.breaker.Reset,
	} {
		mux.HandleFunc("POST "+path, func(http.ResponseWriter, *http.Request) { act() })
	}
	mux.HandleFunc("POST /call", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, w.call()) })
	return http.ListenAndServe(net.JoinHostPort("127.0.0.1", strconv.Itoa(w.Port)), mux)
}

// run calls the upstream again and again while it is told to.
func (w *worker) run() {
	for range time.Tick(w.Pace) {
		if w.running.Load() {
			w.call()
		}
	}
}

// halt returns once no call is under way.
func (w *worker) halt() {
	w.running.Store(false)
	w.turn.Lock()
	defer w.turn.Unlock()
}

// call calls the upstream, one call at a time, and notes what the breaker added
// to it.
func (w *worker) call() (outcome string) {
	w.turn.Lock()
	defer w.turn.Unlock()
	began, inside := time.Now(), time.Duration(0)
	err := w.breaker.Do(context.Background(), func(ctx context.Context) error {
		sent := time.Now()
		defer func() { inside = time.Since(sent) }()
		return w.ask(ctx)
	})
	took := time.Since(began) - inside
	switch {
	case err == nil:
		outcome = good
	case errors.Is(err, resilience.ErrOpen):
		outcome = refused
	default:
		outcome = failed
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Calls[outcome]++
	w.Longest[outcome] = max(w.Longest[outcome], took)
	return outcome
}

func (w *worker) ask(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.Upstream, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Origin", w.Origin)
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

func (w *worker) moved(t resilience.Transition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Moves = append(w.Moves, move{t.To.String(), t.Held, t.Origin, t.Reason, t.Generation, time.Now()})
}

// Write takes a line of the log.
func (w *worker) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Logs = append(w.Logs, string(line))
	return len(line), nil
}

func (w *worker) told() status {
	s := w.breaker.Snapshot()
	up := w.fleet.Up()
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.status
	told.State, told.Held, told.StoreUp = s.State.String(), s.Held, up
	told.Moves, told.Logs = slices.Clone(w.Moves), slices.Clone(w.Logs) // read without the lock
	told.Calls, told.Longest = maps.Clone(w.Calls), maps.Clone(w.Longest)
	return told
}
