package httpdoor

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
)

// Config says which breaker a request is a call of, and how its outcome is
// read. One of Breaker, Pick and InFlight is needed.
type Config struct {
	// Breaker is that of all requests.
	Breaker *resilience.Breaker
	// Pick, where set, chooses the breaker of each request, such as one of a
	// family by r.URL.Host. It must not change r. Nil is an error: nothing is
	// sent without a breaker.
	Pick func(r *http.Request) *resilience.Breaker
	// Classify replaces the package's Classify. It must not read the body.
	Classify func(caller context.Context, r *http.Response, err error) resilience.Verdict
	// Validate, where set, looks at a response of status 2xx that is a success
	// by Classify before its caller gets it, and says what is wrong with it.
	// That is a *ContractError for the caller and a failure for the breaker. It
	// must not read the body.
	Validate func(*http.Response) error
	// Settled, where set, is told the verdict of each call that was admitted,
	// once, in the goroutine that ends the call.
	Settled func(resilience.Verdict)
	// InFlight, where set, is entered by each call first, so that no more calls
	// are in flight than its breaker still tolerates failures. Its breaker is
	// then that of all requests.
	InFlight *inflight.Limiter
	// MaxBody bounds what JSON reads of a response, in bytes. Default 10 MiB.
	MaxBody int64
}

// check finds a Config that names no breaker, or two.
func (c *Config) check() error {
	switch {
	case c.Breaker == nil && c.Pick == nil && c.InFlight == nil:
		return &ConfigError{"the Config has no Breaker, Pick or InFlight"}
	case c.Pick != nil && (c.Breaker != nil || c.InFlight != nil):
		return &ConfigError{"the Config has Pick and a Breaker or InFlight; leave one out"}
	}
	return nil
}

// Transport puts a breaker above base, http.DefaultTransport if nil. Each
// request through it is a call, one of a redirect included. A request within a
// call that another door of this module has admitted, such as [Do], is part of
// that call.
//
// It keeps the contract of http.RoundTripper: the request is not changed, its
// body is closed, also where the call is refused; it is safe for concurrent
// use. Responses that can be written to (101 Switching Protocols) still can.
func Transport(base http.RoundTripper, c Config) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	c.MaxBody = cmp.Or(c.MaxBody, 10<<20)
	t := &transport{base: base, config: c}
	t.op = door.Op{Name: "http", Classify: t.read} // neither tracer nor metrics are known here
	return t
}

type transport struct {
	base   http.RoundTripper
	config Config
	op     door.Op
}

// RoundTrip is one request, and a call of the breaker unless it is part of one.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if door.Counted(r.Context()) {
		return t.base.RoundTrip(r)
	}
	return t.call(r, t.base.RoundTrip)
}

// CloseIdleConnections is what http.Client.CloseIdleConnections calls.
func (t *transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// call sends a request under its breaker. The call lasts until the body of the
// response ends.
func (t *transport) call(r *http.Request, send sender) (*http.Response, error) {
	h, err := t.begin(r)
	if err != nil {
		return nil, err
	}
	u := h.Using()
	defer u.Done()
	resp, _, err := t.send(h, r, send)
	switch {
	case err != nil || resp == nil:
		h.End(cmp.Or(err, errNothing))
	case h.Over(): // its status has ended it
	case resp.Body == nil || resp.Body == http.NoBody:
		h.End(nil)
	default:
		h.Keep()
		resp.Body = follow(h, resp.Body)
	}
	u.Returned = true
	return resp, unmarked(err)
}

// errNothing is a base that breaks the rules of http.RoundTripper; net/http
// says so to the caller.
var errNothing = errors.New("httpdoor: neither a response nor an error")

// begin admits r as a call. The body of a request that is not admitted is
// closed.
func (t *transport) begin(r *http.Request) (h *door.Handle, err error) {
	defer func() {
		if h == nil {
			closeBody(r)
		}
	}()
	guard, err := t.guard(r)
	if err != nil {
		return nil, err
	}
	return door.Begin(r.Context(), guard, t.op)
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

func (t *transport) guard(r *http.Request) (door.Guard, error) {
	if err := t.config.check(); err != nil {
		return door.Guard{}, err
	}
	g := door.Guard{Breaker: t.config.Breaker, Settled: t.config.Settled, InFlight: t.config.InFlight}
	if t.config.Pick != nil {
		if g.Breaker = t.config.Pick(r); g.Breaker == nil {
			return g, &ConfigError{"Pick names no breaker for " + shown(r.URL)}
		}
	}
	return g.Or(nil), nil
}

// read gives the verdict of a call by its error. That of an answer is read
// before.
func (t *transport) read(caller context.Context, err error) resilience.Verdict {
	switch e := err.(type) { //nolint:errorlint // the very values that this package ends a call with
	case *StatusError:
		return e.verdict
	case *ContractError:
		return resilience.Verdict{Outcome: resilience.Failure}
	case *callersError:
		return resilience.Verdict{Outcome: resilience.Ignored}
	}
	return t.classify(caller, nil, err)
}

func (t *transport) classify(caller context.Context, r *http.Response, err error) resilience.Verdict {
	if t.config.Classify != nil {
		return t.config.Classify(caller, r, err)
	}
	return Classify(caller, r, err)
}

// sender is a RoundTrip, or the Do of a client.
type sender func(*http.Request) (*http.Response, error)

// send sends r and reads what came back. Where the response's status is not a
// success, that ends the call, whatever becomes of the body. What the caller's
// own code says, its body's reader or its CheckRedirect, is a *callersError.
func (t *transport) send(
	h *door.Handle, r *http.Request, send sender,
) (resp *http.Response, v resilience.Verdict, err error) {
	sent, body := withBody(r, h)
	resp, err = send(sent)
	switch {
	case err != nil && (resp != nil || body.failed()): // the former where CheckRedirect fails
		return resp, v, &callersError{err}
	case err != nil || resp == nil:
		return resp, v, err
	}
	returned := false
	defer func() { // a classifier may panic
		if resp != nil && (!returned || err != nil) {
			closeResponse(resp)
			resp = nil
		}
	}()
	restore(resp, r, sent)
	v = t.classify(r.Context(), resp, nil)
	if v.Outcome != resilience.Success {
		h.End(statusError(r, resp, v))
	} else if t.config.Validate != nil && good(resp) {
		if wrong := t.config.Validate(resp); wrong != nil {
			err = &ContractError{r.Method, shown(r.URL), "the response is not valid", wrong}
		}
	}
	returned = true
	return resp, v, err
}

// restore gives a response the caller's own request: the one that was sent has
// the context of the call.
func restore(resp *http.Response, r, sent *http.Request) {
	switch resp.Request {
	case nil:
	case sent:
		resp.Request = r
	default: // of another hop
		resp.Request = resp.Request.WithContext(r.Context())
	}
}

func good(r *http.Response) bool {
	return r.StatusCode >= http.StatusOK && r.StatusCode < http.StatusMultipleChoices
}

func closeResponse(r *http.Response) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}
