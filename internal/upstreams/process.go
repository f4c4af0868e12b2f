package upstreams

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// startLimit is how long a server may take to answer its first request; the
// slowest needs ten seconds on an idle machine of two cores.
const startLimit = 2 * time.Minute

// Spec says how to run a server.
type Spec struct {
	// Name for messages.
	Name string
	// Ports is how many free ports the server needs, at least 1; the first of
	// them becomes Process.Addr.
	Ports int
	// Command builds the command for a start. It is called for each start with
	// the same folder and ports. The process must be the server itself or lead
	// the process group of it.
	Command func(dir string, ports []int) *exec.Cmd
	// Ready makes one real request and returns nil once it was served.
	Ready func(ctx context.Context, addr string) error
	// Litter names the files that a killed server leaves outside its folder. It
	// may be nil.
	Litter func(ports []int) []string
}

// Process is a server that a test may take down and bring back. Its methods end
// the test if they fail. They are not meant for concurrent use.
type Process struct {
	Name string // for messages
	Addr string // host:port on the loopback address, the same for its whole life
	Dir  string // its data, removed at the end

	spec  Spec
	ports []int
	life  *lifeline

	mu   sync.Mutex
	pid  int // 0 while it is down
	logs *os.File
}

// Start starts a server that ends with the test.
func Start(t testing.TB, spec Spec) *Process {
	t.Helper()
	p, err := launch(t.Context(), spec)
	check(t, err)
	t.Cleanup(func() {
		p.showLog(t)
		p.end()
	})
	return p
}

// launch tries a few times: between the choice of a port and its use another
// process can take it.
func launch(ctx context.Context, spec Spec) (*Process, error) {
	var errs []error
	for range 3 {
		p, err := launchOnce(ctx, spec)
		if err == nil {
			return p, nil
		}
		errs = append(errs, err)
		if !errors.Is(err, errExited) {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func launchOnce(ctx context.Context, spec Spec) (*Process, error) {
	ports, err := freePorts(spec.Ports)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "penstock-"+spec.Name+"-")
	if err != nil {
		return nil, err
	}
	files := []string{dir}
	if spec.Litter != nil {
		files = append(files, spec.Litter(ports)...)
	}
	life, err := newLifeline(files...)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p := &Process{
		Name: spec.Name, Dir: dir, spec: spec, ports: ports, life: life,
		Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])),
	}
	if err := p.start(ctx); err != nil {
		p.end()
		return nil, err
	}
	return p, nil
}

// Start starts the server again after Stop or Kill and returns once it serves.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	if err := p.start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Stop asks the server to end, as an operator would, and waits until it has.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	p.down(sigTerm)
}

// Kill ends the server and its children at once, without a word, as a crash
// does.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	p.down(sigKill)
}

// Restart is Kill and Start.
func (p *Process) Restart(t testing.TB) {
	t.Helper()
	p.Kill(t)
	p.Start(t)
}

// Pause freezes the server: its sockets stay open and nothing answers.
func (p *Process) Pause(t testing.TB) {
	t.Helper()
	p.signal(t, sigStop)
	awaitStop(p.pid) // the signal only asks
}

// Resume ends a Pause.
func (p *Process) Resume(t testing.TB) {
	t.Helper()
	p.signal(t, sigCont)
}

func (p *Process) signal(t testing.TB, s signal) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 {
		t.Fatalf("%s is down", p.Name)
	}
	if err := signalGroup(p.pid, s); err != nil {
		t.Fatalf("%s: %v", p.Name, err)
	}
}

func (p *Process) start(ctx context.Context) error {
	if err := p.spawn(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	if err := p.awaitReady(ctx); err != nil {
		return fmt.Errorf("start %s: %w\n%s", p.Name, err, p.lastWords())
	}
	return nil
}

func (p *Process) spawn() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid != 0 {
		return errors.New("it runs already")
	}
	logs, err := os.OpenFile(filepath.Join(p.Dir, "server.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	cmd := p.spec.Command(p.Dir, p.ports)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = p.Dir, logs, logs, ownGroup()
	if err := cmd.Start(); err != nil {
		return errors.Join(err, logs.Close())
	}
	p.pid, p.logs = cmd.Process.Pid, logs
	return errors.Join(p.life.guard(p.pid), cmd.Process.Release())
}

var errExited = errors.New("it ended by itself")

func (p *Process) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.askReady(ctx)
		switch {
		case err == nil:
			return nil
		case hasExited(p.pid):
			p.gone()
			return errExited
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, last answer: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

func (p *Process) askReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return p.spec.Ready(ctx, p.Addr)
}

// down ends the process group and reaps the server. A server that ignores a
// polite request is killed.
func (p *Process) down(s signal) {
	p.mu.Lock()
	pid := p.pid
	p.mu.Unlock()
	if pid == 0 {
		return
	}
	if s == sigTerm && signalGroup(pid, sigTerm) == nil {
		awaitExit(pid, 10*time.Second)
	}
	_ = signalGroup(pid, sigKill) // fails only when all of it has ended
	reap(pid)
	p.gone()
}

// crashed reports whether the server has ended though nobody made it.
func (p *Process) crashed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid != 0 && hasExited(p.pid)
}

func (p *Process) gone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid = 0
	_ = p.life.guard(0)
	_ = p.logs.Close()
}

func (p *Process) end() {
	p.down(sigKill)
	p.life.end()
}

// showLog puts the end of the server's log into the output of a failed test.
func (p *Process) showLog(t testing.TB) {
	if !t.Failed() {
		return
	}
	t.Logf("the log of %s at %s ends with:\n%s", p.Name, p.Addr, p.lastWords())
}

// lastWords is the end of the server's log, and before it what it died of.
func (p *Process) lastWords() []byte {
	text, err := os.ReadFile(filepath.Join(p.Dir, "server.log"))
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return slices.Concat(crash(text), bytes.Join(lines[max(0, len(lines)-30):], []byte("\n")))
}

var dying = regexp.MustCompile(`(?m)^(panic: |fatal error: |SIG[A-Z]+: |terminate called|.*\[FATAL\])`)

// crash is the beginning of what a server says when it dies of a fault of its
// own; nil if it says nothing of that.
func crash(log []byte) []byte {
	at := dying.FindIndex(log)
	if at == nil {
		return nil
	}
	lines := bytes.SplitN(log[at[0]:], []byte("\n"), 31)
	return append(bytes.Join(lines[:min(30, len(lines))], []byte("\n")), "\n…\n"...)
}

// freePorts picks ports below the range from which the kernel takes the ports
// of clients: a client that reconnects to a server that is down could otherwise
// be given the server's port, and reach itself.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range 1000 {
		port := 15000 + rand.IntN(17000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		defer l.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("no free port")
}
