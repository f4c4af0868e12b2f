package httpdoor

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/penstock-go/penstock/resilience"
)

// StatusError is a response whose status is not what was asked for. [JSON]
// returns it; to the breaker it is the cause of a failure.
type StatusError struct {
	// Method and URL are the request's; the URL is without user and query,
	// which may hold secrets.
	Method, URL string
	// StatusCode is the response's, such as 503.
	StatusCode int
	// Header is the response's.
	Header http.Header
	// Body is the beginning of the response's body, at most 1,000 bytes; only
	// JSON reads it.
	Body string

	verdict resilience.Verdict
}

func statusError(r *http.Request, resp *http.Response, v resilience.Verdict) *StatusError {
	return &StatusError{
		Method: r.Method, URL: shown(r.URL), StatusCode: resp.StatusCode, Header: resp.Header, verdict: v,
	}
}

// Error names the request and the status, and quotes the body.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s %s: %d %s", e.Method, e.URL, e.StatusCode, http.StatusText(e.StatusCode))
	if e.Body != "" {
		text += ": " + e.Body
	}
	return text
}

// ContractError is a response over a healthy transport that is not what was
// asked for. It counts as a failure.
type ContractError struct {
	Method, URL string // as in StatusError
	Problem     string // what is wrong with the response
	Err         error  // from decoding or Validate, or nil
}

// Error names the request and the problem.
func (e *ContractError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s %s: %s: %v", e.Method, e.URL, e.Problem, e.Err)
	}
	return fmt.Sprintf("%s %s: %s", e.Method, e.URL, e.Problem)
}

// Unwrap returns Err.
func (e *ContractError) Unwrap() error { return e.Err }

// ConfigError is a use of the package that cannot work. Nothing was sent and
// nothing is counted.
type ConfigError struct{ Problem string }

// Error says what is wrong.
func (e *ConfigError) Error() string { return "httpdoor: " + e.Problem }

// callersError marks, within the package, an error of the caller's own code.
type callersError struct{ error }

// unmarked is err as its caller gets it.
func unmarked(err error) error {
	if own, ok := err.(*callersError); ok { //nolint:errorlint // the very value
		return own.error
	}
	return err
}

// shown is a URL without what may be secret.
func shown(u *url.URL) string {
	if u == nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
