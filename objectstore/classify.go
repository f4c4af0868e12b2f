package objectstore

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/penstock-go/penstock/httpdoor"
	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/resilience"
)

// byCode reads the service's error codes, which say more than the status:
// S3 sends RequestTimeout with 400 and InternalError inside a 200.
var byCode = map[string]resilience.Outcome{
	"NoSuchKey":                  resilience.Success,
	"NoSuchBucket":               resilience.Success,
	"NoSuchUpload":               resilience.Success,
	"NoSuchVersion":              resilience.Success,
	"NotFound":                   resilience.Success,
	"NotModified":                resilience.Success,
	"PreconditionFailed":         resilience.Success,
	"ConditionalRequestConflict": resilience.Success,
	"BucketAlreadyExists":        resilience.Success,
	"BucketAlreadyOwnedByYou":    resilience.Success,
	"BucketNotEmpty":             resilience.Success,

	"InvalidObjectState": resilience.Ignored, // it is archived
	"NotImplemented":     resilience.Ignored,

	"AccessDenied":          resilience.Denied,
	"AccountProblem":        resilience.Denied,
	"AllAccessDisabled":     resilience.Denied,
	"ExpiredToken":          resilience.Denied,
	"InvalidAccessKeyId":    resilience.Denied,
	"InvalidSecurity":       resilience.Denied,
	"InvalidToken":          resilience.Denied,
	"NotSignedUp":           resilience.Denied,
	"RequestTimeTooSkewed":  resilience.Denied,
	"SignatureDoesNotMatch": resilience.Denied,
	"TokenRefreshRequired":  resilience.Denied,

	"BandwidthLimitExceeded": resilience.Throttled,
	"RequestLimitExceeded":   resilience.Throttled,
	"RequestThrottled":       resilience.Throttled,
	"SlowDown":               resilience.Throttled,
	"SlowDownRead":           resilience.Throttled,
	"SlowDownWrite":          resilience.Throttled,
	"Throttling":             resilience.Throttled,
	"ThrottlingException":    resilience.Throttled,
	"TooManyRequests":        resilience.Throttled,

	"InternalError":  resilience.Failure,
	"RequestTimeout": resilience.Failure,
}

// Classify says what the error of an S3 call means to a breaker.
//
//	Success    404, 304, 409, 410, 412: an answer that proves S3 works
//	Denied     bad or missing credentials, also those for a proxy; no permission
//	Throttled  SlowDown, 429, and 503 and 529 with a positive Retry-After, which
//	           are Unavailable too. The time to wait is carried on, as
//	           httpdoor.RetryAfter reads it.
//	Failure    other 5xx, connection failures, timeouts, *ContractError, a redirect
//	           to another place
//	Ignored    other 4xx, 501, 505, a quota, an archived object, what never left,
//	           the caller's cancellation
//
// A 403 for HeadObject is Ignored, since it may be a missing key.
func Classify(callerCtx context.Context, err error) resilience.Verdict {
	if err == nil {
		return resilience.Verdict{Outcome: resilience.Success}
	}
	return door.For(callerCtx, verdict(err))
}

func verdict(err error) resilience.Verdict {
	if out, ok := own(err); ok {
		return resilience.Verdict{Outcome: out}
	}
	if s, code := answer(err); s != 0 || code != "" {
		return answered(err, s, code)
	}
	return resilience.Verdict{Outcome: unanswered(err)}
}

// own reads the errors that this package makes, and those of other services
// that the SDK asked for credentials.
func own(err error) (resilience.Outcome, bool) {
	var (
		contract    *ContractError
		input       *InputError
		local       *localError
		credentials *CredentialsError
	)
	switch {
	case errors.As(err, &contract):
		return resilience.Failure, true
	case errors.As(err, &input), errors.As(err, &local):
		return resilience.Ignored, true
	case errors.As(err, &credentials) && !errors.Is(err, context.Canceled):
		return resilience.Denied, true
	}
	return 0, false
}

// answer is the status and the code of S3's answer, or zeros.
func answer(err error) (int, string) {
	code := ""
	if e := smithy.APIError(nil); errors.As(err, &e) {
		code = e.ErrorCode()
	}
	return StatusCode(err), code
}

func answered(err error, s int, code string) resilience.Verdict {
	v := ofStatus(err, s)
	out, known := byCode[code]
	switch {
	case s == http.StatusForbidden && operation(err) == "HeadObject", full(s, code):
		return resilience.Verdict{Outcome: resilience.Ignored}
	case !known, v.Unavailable && out != resilience.Throttled:
		return v
	}
	v = resilience.Verdict{Outcome: out}
	if out == resilience.Throttled {
		v.RetryAfter, _ = httpdoor.RetryAfter(headers(err), time.Now())
	}
	return v
}

// proof are the statuses by which a store shows that it has looked.
var proof = map[int]bool{
	http.StatusNotModified: true, http.StatusNotFound: true, http.StatusConflict: true, http.StatusGone: true,
	http.StatusPreconditionFailed: true,
}

// ofStatus reads a status whose code is unknown or, after a HEAD, absent: by
// httpdoor's table, but for what is special to S3. An answer that the request
// is wrong may be that of something before the store.
func ofStatus(err error, s int) resilience.Verdict {
	switch {
	case s == http.StatusForbidden:
		return resilience.Verdict{Outcome: resilience.Denied}
	case s < http.StatusMultipleChoices, s < http.StatusBadRequest && elsewhere(err):
		return resilience.Verdict{Outcome: resilience.Failure}
	}
	v := httpdoor.Classify(context.Background(), &http.Response{StatusCode: s, Header: headers(err)}, nil)
	if v.Outcome == resilience.Success && !proof[s] {
		v.Outcome = resilience.Ignored
	}
	return v
}

// full reports whether a bucket or its owner has reached a quota, which no
// waiting and no other key changes: QuotaExceeded with 403 is the code of Ceph
// and versitygw, XMinioAdminBucketQuotaExceeded with 400 that of MinIO.
func full(s int, code string) bool {
	return strings.HasSuffix(code, "QuotaExceeded") && s < 500 && s != http.StatusTooManyRequests
}

func operation(err error) string {
	if e := (*smithy.OperationError)(nil); errors.As(err, &e) && e.ServiceID == s3.ServiceID {
		return e.OperationName
	}
	return ""
}

// unanswered reads errors without an answer. Of those, an error of the SDK's
// operation that carries no trace of a transport was made before sending, and
// net/http says of some requests that it does not send them.
func unanswered(err error) resilience.Outcome {
	if door.Unsent(err) || operation(err) != "" && !sent(err) {
		return resilience.Ignored
	}
	return resilience.Failure
}

// sent reports whether err comes from sending or from what came back. A
// deadline is both, since a call that hangs is an outage.
func sent(err error) bool {
	var (
		send   *smithyhttp.RequestSendError
		decode *smithy.DeserializationError
		resp   *awshttp.ResponseError
		wire   net.Error
	)
	return errors.As(err, &send) || errors.As(err, &decode) || errors.As(err, &resp) || errors.As(err, &wire) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// elsewhere reports whether an answer sends the caller to another place, which
// is a proxy's way. S3 names none to a caller with the wrong region; the SDK's
// own HTTP client then names one that does not exist.
func elsewhere(err error) bool {
	to := headers(err).Get("Location")
	return to != "" && to != "https://amazonaws.com/badhttpredirectlocation"
}

// headers are those of the answer in err, or nil.
func headers(err error) http.Header {
	if e := (*awshttp.ResponseError)(nil); errors.As(err, &e) && e.Response != nil && e.Response.Response != nil {
		return e.Response.Header
	}
	return nil
}
