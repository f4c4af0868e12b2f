// Command fleet shows one breaker in four processes: an upstream dies, and
// recovers after some probes. It prints who failed, who opened the breaker, who
// probed, and when each worker closed it.
//
//	go run ./examples/fleet
//	go run ./examples/fleet -store redis://127.0.0.1:6379
//	go run ./examples/fleet -store nats://127.0.0.1:4222
//
// Without a store the workers share a file. What a worker of your own needs is
// in worker.go and store.go.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	workers = 4
	failMax = 5
)

// config is what the flags say.
type config struct {
	store   string        // a URL or a file; empty for a temporary file
	timeout time.Duration // of what the store is asked
	reset   time.Duration // from an opening to a probe
	pace    time.Duration // from one call of a worker to its next
	probes  int           // how many fail before the upstream recovers
}

func main() {
	if text := os.Getenv(asWorker); text != "" {
		exit(work(context.Background(), text, os.Stdin, os.Stdout))
	}
	var c config
	flag.StringVar(&c.store, "store", "", "redis://, rediss://, nats:// or tls:// `URL`, or a file; a temporary file by default")
	flag.DurationVar(&c.timeout, "timeout", time.Second, "how long a call waits for the store at most")
	flag.DurationVar(&c.reset, "reset", 3*time.Second, "how long the breaker stays open")
	flag.DurationVar(&c.pace, "pace", 200*time.Millisecond, "from one call of a worker to its next")
	flag.IntVar(&c.probes, "probes", 2, "how many probes fail before the upstream recovers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exit(run(ctx, c, os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run starts the workers, and tells what happens until all have recovered.
func run(ctx context.Context, c config, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	folder, err := os.MkdirTemp("", "fleet-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if c.store == "" {
		c.store = filepath.Join(folder, "breakers.json")
	}
	_, shut, err := open(c.store, "check") // one error, and not one a worker
	if err != nil {
		return fmt.Errorf("-store: %w", err)
	}
	shut()
	u, err := serve()
	if err != nil {
		return err
	}
	defer u.Close()
	story := &story{out: out, began: time.Now()}
	team, err := start(ctx, c, u.url)
	if err != nil {
		return err
	}
	story.tell("", fmt.Sprintf("%d workers call the upstream each %v", workers, c.pace))
	if err := outage(ctx, c, u, team.events, story); err != nil {
		return err
	}
	return team.end(u, story)
}

// outage lasts until enough probes have failed, and is over for a worker when
// it has closed.
func outage(ctx context.Context, c config, u *upstream, events <-chan event, story *story) error {
	good, closed, failed := 0, 0, 0
	for closed < workers {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, more := <-events:
			if !more {
				return errors.New("the workers have ended")
			}
			if e.Kind != called {
				story.tell(e.Worker, e.What)
			}
			switch e.Kind {
			case called:
				if good++; good == 5*workers {
					u.down.Store(true)
					story.tell("", "THE UPSTREAM DIES")
				}
			case probeFailed:
				if failed++; failed == c.probes {
					u.down.Store(false)
					story.tell("", "THE UPSTREAM RECOVERS")
				}
			case closedAgain:
				closed++
			default: // it is told, and that is all
			}
		}
	}
	return nil
}

// upstream is the service that the workers call.
type upstream struct {
	*http.Server

	url  string
	down atomic.Bool
	met  atomic.Int64 // calls that met the outage
}

func serve() (*upstream, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &upstream{url: "http://" + listener.Addr().String()}
	u.Server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(u.answer)}
	go func() { _ = u.Serve(listener) }()
	return u, nil
}

func (u *upstream) answer(w http.ResponseWriter, _ *http.Request) {
	if u.down.Load() {
		u.met.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// team is the worker processes.
type team struct {
	events chan event
	stop   []io.Closer // their input, which they live as long as
	all    []*exec.Cmd
}

func start(ctx context.Context, c config, upstream string) (*team, error) {
	t := &team{events: make(chan event)}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	fleet := "fleet-" + strconv.Itoa(os.Getpid())
	var readers sync.WaitGroup
	for i := range workers {
		text, _ := json.Marshal(settings{
			Name: fmt.Sprintf("worker-%d", i+1), Store: c.store, Fleet: fleet,
			Upstream: upstream, Timeout: c.timeout, Reset: c.reset, Pace: c.pace,
		})
		cmd := exec.CommandContext(ctx, program)
		cmd.Env, cmd.Stderr = append(os.Environ(), asWorker+"="+string(text)), os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		t.stop, t.all = append(t.stop, in), append(t.all, cmd)
		readers.Go(func() { t.listen(ctx, out) })
	}
	go func() { readers.Wait(); close(t.events) }()
	return t, nil
}

// listen passes on what a worker tells until it ends.
func (t *team) listen(ctx context.Context, out io.Reader) {
	for lines := json.NewDecoder(out); ; {
		var e event
		if lines.Decode(&e) != nil {
			return
		}
		select {
		case t.events <- e:
		case <-ctx.Done():
			return
		}
	}
}

// end ends the workers and sums up.
func (t *team) end(u *upstream, story *story) error {
	for _, in := range t.stop {
		_ = in.Close()
	}
	var calls, refused uint64
	for e := range t.events {
		calls, refused = calls+e.Calls, refused+e.Refused
	}
	for _, cmd := range t.all {
		if err := cmd.Wait(); err != nil {
			return err
		}
	}
	story.tell("", fmt.Sprintf("%d calls were sent, %d of them met the outage; %d were refused and not sent",
		calls, u.met.Load(), refused))
	return nil
}

// story is what is printed.
type story struct {
	out   io.Writer
	began time.Time
}

func (s *story) tell(who, what string) {
	fmt.Fprintf(s.out, "%6.2f s  %-8s  %s\n", time.Since(s.began).Seconds(), who, what)
}
