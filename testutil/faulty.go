package testutil

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Behaviour is what a FaultyServer does with a request: Status, Delay, Hang,
// Reset, Garbage, or any handler. next is the healthy handler.
type Behaviour func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Status answers with code and an empty JSON object. Header fields come in
// pairs, such as "Retry-After", "5".
func Status(code int, header ...string) Behaviour {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "{}")
	}
}

// Delay answers like a healthy server, after d.
func Delay(d time.Duration) Behaviour {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			next.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}
}

// Hang never answers. It ends when the client gives up or the server closes.
func Hang() Behaviour {
	return func(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }
}

// Reset drops the connection without an answer; the client sees a reset.
func Reset() Behaviour {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { hangUp(w, "") }
}

// Garbage answers 200 with a body that is neither JSON nor XML.
func Garbage() Behaviour {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		_, _ = io.WriteString(w, "\x00\xff<<{not an answer")
	}
}

// Truncate sends headers that announce more than the few bytes of body that
// follow, and resets the connection: a stream that breaks in the middle.
func Truncate() Behaviour {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		hangUp(w, "HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n{\"half\":")
	}
}

func hangUp(w http.ResponseWriter, first string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = io.WriteString(conn, first)
	if tcp, ok := conn.(*net.TCPConn); ok && first == "" {
		_ = tcp.SetLinger(0) // a reset, not a polite end
	}
	_ = conn.Close()
}

// Request is a request that reached a FaultyServer.
type Request struct {
	Method, Path string
	Header       http.Header
	Body         []byte
}

// FaultyServer is an HTTP server that fails on demand. Its methods are safe for
// concurrent use.
type FaultyServer struct {
	t       testing.TB
	healthy http.Handler
	addr    string

	mu       sync.Mutex
	server   *httptest.Server // nil while connections are refused
	script   []Behaviour
	standing []rule
	log      []Request
}

type rule struct {
	prefix string
	do     Behaviour
}

// NewFaultyServer starts a server on a free port of 127.0.0.1 and stops it when
// the test ends. healthy answers requests that no behaviour is set for; nil
// answers 200 with an empty JSON object.
func NewFaultyServer(t testing.TB, healthy http.Handler) *FaultyServer {
	if healthy == nil {
		healthy = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Status(http.StatusOK)(w, r, nil) })
	}
	u := &FaultyServer{t: t, healthy: healthy, addr: "127.0.0.1:0"}
	u.Accept()
	t.Cleanup(u.Refuse)
	return u
}

// URL returns http://127.0.0.1:PORT, which does not change.
func (u *FaultyServer) URL() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return "http://" + u.addr
}

// Next queues behaviours for the next requests, one each.
func (u *FaultyServer) Next(script ...Behaviour) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.script = append(u.script, script...)
}

// Always sets the behaviour of every request for which the queue has none.
func (u *FaultyServer) Always(b Behaviour) { u.AlwaysFor("", b) }

// AlwaysFor is Always for paths that begin with prefix. The latest matching
// rule applies.
func (u *FaultyServer) AlwaysFor(prefix string, b Behaviour) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.standing = append(u.standing, rule{prefix, b})
}

// Recover makes the server healthy: it drops the queue and all rules, and
// accepts connections.
func (u *FaultyServer) Recover() {
	u.mu.Lock()
	u.script, u.standing = nil, nil
	u.mu.Unlock()
	u.Accept()
}

// Refuse stops listening: new connections are refused, and open ones are
// closed.
func (u *FaultyServer) Refuse() {
	u.mu.Lock()
	server := u.server
	u.server = nil
	u.mu.Unlock()
	if server != nil {
		server.CloseClientConnections()
		server.Close()
	}
}

// Accept listens again, on the same address.
func (u *FaultyServer) Accept() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.server != nil {
		return
	}
	l, err := net.Listen("tcp", u.addr)
	if err != nil {
		u.t.Errorf("server cannot listen on %s: %v", u.addr, err)
		return
	}
	u.addr = l.Addr().String()
	u.server = &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(u.serve)}}
	u.server.Start()
}

func (u *FaultyServer) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	u.behaviour(Request{r.Method, r.URL.Path, r.Header.Clone(), body})(w, r, u.healthy)
}

// behaviour logs a request and returns its behaviour.
func (u *FaultyServer) behaviour(req Request) Behaviour {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.log = append(u.log, req)
	if len(u.script) > 0 {
		next := u.script[0]
		u.script = u.script[1:]
		return next
	}
	for _, rule := range slices.Backward(u.standing) {
		if strings.HasPrefix(req.Path, rule.prefix) {
			return rule.do
		}
	}
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) }
}

// Requests returns the requests that reached the server, earliest first. A
// refused connection is not a request.
func (u *FaultyServer) Requests() []Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]Request(nil), u.log...)
}

// Count returns the number of requests to paths that begin with prefix.
func (u *FaultyServer) Count(prefix string) (n int) {
	for _, r := range u.Requests() {
		if strings.HasPrefix(r.Path, prefix) {
			n++
		}
	}
	return n
}

// WantRequests fails the test unless exactly n requests reached the server.
func (u *FaultyServer) WantRequests(n int) {
	u.t.Helper()
	if got := u.Count(""); got != n {
		u.t.Errorf("%d requests reached the server, want %d", got, n)
	}
}
