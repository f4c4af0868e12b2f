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

	"github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/httpdoor"
	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/resilience"
)

// Classify says what an error of the SDK's client, or of this package, means
// for the breaker:
//
//   - the caller cancelled its own context: ignored
//   - the request was never sent (refused by the SDK or by net/http), or was
//     refused by another breaker: ignored
//   - 401, 402, 403, and 429 for a spent quota or an unpaid bill: denied
//   - 429 otherwise: throttled
//   - 503 and 529 that name a time to wait, longer than none: throttled and
//     unavailable, which is waited out and counts towards opening the breaker
//   - 501 and 505, which say that the request is not one for this server:
//     ignored
//   - 408 and other 5xx: failure; any other 4xx: ignored
//   - connections, deadlines of any origin, answers that cannot be read,
//     *[ContractError] without a word of the server's, and all else: failure
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
		v = answer.verdict(w.header())
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
	return errors.As(err, &marshal) || errors.As(err, &value) || errors.As(err, &kind) || door.Refused(err)
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

// verdict is what the server means, by httpdoor's table with what is special to
// models. h may be nil.
func (a answer) verdict(h http.Header) resilience.Verdict {
	switch {
	case a.status == http.StatusUnauthorized, a.status == http.StatusPaymentRequired, a.status == http.StatusForbidden,
		a.status == http.StatusTooManyRequests && a.says(quota):
		return resilience.Verdict{Outcome: resilience.Denied}
	case a.status < http.StatusBadRequest:
		return resilience.Verdict{Outcome: resilience.Failure}
	}
	v := httpdoor.Classify(context.Background(), &http.Response{StatusCode: a.status, Header: h}, nil)
	if v.Outcome == resilience.Success { // a model that is not there says nothing of those that are
		v.Outcome = resilience.Ignored
	}
	return v
}

// ofResponse is the verdict on a request that no door has counted. The body is
// not read, so that a spent quota is a throttle.
func ofResponse(caller context.Context, r *http.Response, err error) resilience.Verdict {
	switch {
	case err != nil:
		return Classify(caller, err)
	case r.StatusCode < http.StatusBadRequest:
		return resilience.Verdict{Outcome: resilience.Success}
	}
	return answer{status: r.StatusCode}.verdict(r.Header)
}

// errorType names an error for traces: the status where there is one.
func (w *wait) errorType(err error) string {
	if a, ok := w.answerOf(err); ok {
		return strconv.Itoa(a.status)
	}
	if _, ok := errors.AsType[*ContractError](err); ok {
		return "contract"
	}
	return httpdoor.Reason(nil, err)
}
