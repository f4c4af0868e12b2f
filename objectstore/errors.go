package objectstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
)

// ContractError is an answer over a healthy transport that is not what was
// asked for: other bytes, or fewer, than were sent or announced. It counts as
// a failure.
type ContractError struct {
	Op, Bucket, Key string
	Problem         string // what is wrong, with the values that differ
}

// Error says which object is affected and what is wrong with it.
func (e *ContractError) Error() string {
	return fmt.Sprintf("objectstore: %s %s/%s: the store broke its word: %s", e.Op, e.Bucket, e.Key, e.Problem)
}

// InputError is a request that cannot be right. It was not sent and counts as
// nothing.
type InputError struct {
	Op      string
	Problem string // what is wrong and how to fix it
}

// Error names the operation and the problem.
func (e *InputError) Error() string { return fmt.Sprintf("objectstore: %s: %s", e.Op, e.Problem) }

// CredentialsError says that no credentials could be had, or none that a header
// can carry, so that nothing was sent. Clients of [NewClient] return it; it is
// Denied, not an outage.
type CredentialsError struct{ Err error }

// Error names the places where credentials are looked for.
func (e *CredentialsError) Error() string {
	const advice = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
	return fmt.Sprintf("objectstore: no credentials for S3; %s: %v", advice, e.Err)
}

// Unwrap returns the SDK's error.
func (e *CredentialsError) Unwrap() error { return e.Err }

// localError is a failure on this side of the wire: the caller's reader or
// the local disk. It reads as its cause.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }
func (e *localError) Unwrap() error { return e.err }

// endedError is an error that came with the end of a context, and does not say
// so. It reads as its cause.
type endedError struct {
	err  error
	ends []error // the context's error, or its cause, or both
}

func (e *endedError) Error() string   { return e.err.Error() }
func (e *endedError) Unwrap() []error { return append([]error{e.err}, e.ends...) }

// checkMetadata refuses what does not survive HTTP headers; some stores
// answer it with a signature error, which looks like a bad key.
func checkMetadata(op string, metadata map[string]string) error {
	for k, v := range metadata {
		if k == "" || strings.ContainsFunc(k, notToken) || strings.ContainsFunc(v, notText) {
			problem := fmt.Sprintf("the metadata %q is not printable ASCII; percent-encode it", k)
			return &InputError{Op: op, Problem: problem}
		}
	}
	return nil
}

func notText(r rune) bool { return r < ' ' || r > '~' }

func notToken(r rune) bool {
	return notText(r) || strings.ContainsRune(" \"(),/:;<=>?@[\\]{}", r)
}

// errorType names an error in spans: the service's code, else the status.
func errorType(err error) string {
	if e := smithy.APIError(nil); errors.As(err, &e) && e.ErrorCode() != "" {
		return e.ErrorCode()
	}
	if s := StatusCode(err); s != 0 {
		return strconv.Itoa(s)
	}
	return ""
}

// StatusCode is the HTTP status of the answer in err, or 0 without an answer.
// The SDK wraps connection errors in a response without a status as well.
func StatusCode(err error) int {
	if e := (*awshttp.ResponseError)(nil); errors.As(err, &e) && e.Response != nil && e.Response.Response != nil {
		return e.HTTPStatusCode()
	}
	return 0
}
