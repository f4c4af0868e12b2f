package llm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/resilience"
)

// Classify says what an error of the SDK's client, or of this package, means
// for the breaker:
//
//   - the caller cancelled its own context: ignored
//   - the request was never sent (refused by the SDK or by net/http), or the refusal came from another breaker:
//     ignored
//   - 401, 402, 403, and 429 for a spent quota or an unpaid bill: denied
//   - 429 otherwise: throttled
//   - 503 and 529 that name a time to wait, longer than none: throttled and
//     unavailable, which is waited out and counts towards opening the breaker
//   - 501 and 505, which say that the request is not one for this server: ignored
//   - 408 and other 5xx: failure; any other 4xx: ignored
//   - connections, deadlines of any origin, answers that cannot be read, *[ContractError] without a word of the
//     server's, and all else: failure
//
// An error in a stream or an answer under status 200 has no status; its type
// and code are read as if it had the one that they stand for. The doors know
// the server's Retry-After too, and the status of an answer whose body broke
// off; Classify alone, given an error, does not, and leaves RetryAfter zero.
func Classify(callerCtx context.Context, err error) resilience.Verdict {
	return new(wait).verdict(callerCtx, err)
}

// verdict is Classify for an answer whose headers w has read.
func (w *wait) verdict(callerCtx context.Context, err error) resilience.Verdict {
	answer, answered := w.answerOf(err)
	if neverLeft(err) || !answered && door.Unsent(err) {
		return resilience.Verdict{Outcome: resilience.Ignored}
	}
	v := resilience.Verdict{Outcome: resilience.Failure}
	if answered {
		v = answer.verdict(w.get())
	}
	return door.For(callerCtx, v)
}

// answerOf is what the server says in err or, where its error broke off, with
// its status.
func (w *wait) answerOf(err error) (answer, bool) {
	if a, ok := answerOf(err); ok {
		return a, true
	}
	status := int(w.status.Load())
	return answer{status: status}, status >= http.StatusBadRequest
}

// wrongRequests are the SDK's refusals to send.
var wrongRequests = []error{
	openai.ErrChatCompletionInvalidModel, openai.ErrChatCompletionStreamNotSupported, openai.ErrContentFieldsMisused,
	openai.ErrReasoningEffortUnsupported, openai.ErrReasoningToolsRequireResponses,
	openai.ErrReasoningSamplingUnsupported,
	openai.ErrReasoningModelMaxTokensDeprecated, openai.ErrReasoningModelLimitationsLogprobs,
	openai.ErrReasoningModelLimitationsOther,
}

// neverLeft is true for errors from before the request was made: the SDK's
// checks, values that JSON cannot hold, and the refusal of a breaker further
// in.
func neverLeft(err error) bool {
	for _, target := range wrongRequests {
		if errors.Is(err, target) {
			return true
		}
	}
	var marshal *json.MarshalerError
	var value *json.UnsupportedValueError
	var kind *json.UnsupportedTypeError
	var denied *resilience.DeniedError
	return errors.As(err, &marshal) || errors.As(err, &value) || errors.As(err, &kind) ||
		errors.Is(err, resilience.ErrOpen) || errors.As(err, &denied)
}

// answer is what an error says that came from the server.
type answer struct {
	status int
	words  []string // code and type
}

// answerOf looks for a RequestError first: a body {"error":"text"} gives one
// that wraps an APIError without a status.
func answerOf(err error) (answer, bool) {
	var request *openai.RequestError
	var api *openai.APIError
	isRequest, isAPI := errors.As(err, &request), errors.As(err, &api)
	switch {
	case isRequest:
		return answer{status: request.HTTPStatusCode}, true
	case isAPI:
		words := []string{code(api.Code), strings.ToLower(api.Type)}
		return answer{status: api.HTTPStatusCode, words: words}.guessed(), true
	}
	return answer{}, false
}

func code(c any) string {
	if c == nil {
		return ""
	}
	return strings.ToLower(fmt.Sprint(c))
}

// meanings are the statuses that codes and types of error events stand for.
var meanings = []struct {
	status int
	words  []string
}{
	{http.StatusTooManyRequests, append(quota, "rate_limit_exceeded", "rate_limit_error", "tokens", "requests")},
	{http.StatusUnauthorized, []string{"invalid_api_key", "authentication_error", "permission_error"}},
	{http.StatusBadRequest, []string{
		"invalid_request_error", "context_length_exceeded", "content_filter", "not_found_error", "request_too_large",
	}},
}

// guessed gives an error event its status; what it does not know is the
// server's fault.
func (a answer) guessed() answer {
	for _, word := range a.words {
		a.status = cmp.Or(a.status, statusNamed(word))
	}
	if a.status != 0 {
		return a
	}
	a.status = http.StatusInternalServerError
	for _, m := range meanings {
		if a.says(m.words) {
			a.status = m.status
			break
		}
	}
	return a
}

// quota are the codes of a 429 that no waiting cures.
var quota = []string{
	"insufficient_quota", "billing_not_active", "billing_hard_limit_reached", "access_terminated",
	"credit_balance_too_low", "payment_required", "billing_error",
}

func (a answer) says(words []string) bool {
	for _, word := range a.words {
		if slices.Contains(words, word) {
			return true
		}
	}
	return false
}

// overloaded is not in net/http and sent by some providers.
const overloaded = 529

// verdict is what the server means, who named a time to wait or, with zero,
// none.
func (a answer) verdict(wait time.Duration) resilience.Verdict {
	v := resilience.Verdict{Outcome: a.outcome()}
	if wait > 0 && (a.status == http.StatusServiceUnavailable || a.status == overloaded) {
		v = resilience.Verdict{Outcome: resilience.Throttled, Unavailable: true}
	}
	if v.Outcome == resilience.Throttled {
		v.RetryAfter = wait
	}
	return v
}

// outcome is the table of Classify for an answer that names no time to wait.
func (a answer) outcome() resilience.Outcome {
	switch {
	case a.status == http.StatusUnauthorized, a.status == http.StatusPaymentRequired, a.status == http.StatusForbidden:
		return resilience.Denied
	case a.status == http.StatusTooManyRequests && a.says(quota):
		return resilience.Denied
	case a.status == http.StatusTooManyRequests:
		return resilience.Throttled
	case a.status == http.StatusNotImplemented, a.status == http.StatusHTTPVersionNotSupported:
		return resilience.Ignored
	case a.status == http.StatusRequestTimeout,
		a.status < http.StatusBadRequest, a.status >= http.StatusInternalServerError:
		return resilience.Failure
	}
	return resilience.Ignored
}

// errorType names an error for traces: the status where there is one.
func (w *wait) errorType(err error) string {
	if a, ok := w.answerOf(err); ok {
		return strconv.Itoa(a.status)
	}
	var contract *ContractError
	switch {
	case errors.As(err, &contract):
		return "contract"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return ""
}

// RetryAfter reads the headers that name a time to wait: Retry-After in seconds
// or as an HTTP date, which is compared with the server's own clock where the
// answer has one and else with now, or retry-after-ms. The second result says
// whether they name one. The SDK keeps an answer's headers beside an error for
// chat and float embeddings: response.Header().
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	if d, ok := number(h.Get("Retry-After-Ms"), time.Millisecond); ok && d > 0 {
		return d, true
	}
	value := strings.TrimSpace(h.Get("Retry-After"))
	if d, ok := number(value, time.Second); ok {
		return d, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), longestWait), true
}
