package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// answered wraps err as the SDK wraps an error answer with that status.
func answered(op string, status int, err error) error {
	resp := &http.Response{
		StatusCode: status,
		Status:     fmt.Sprintf("%d %s", status, http.StatusText(status)),
		Header:     http.Header{},
		Body:       http.NoBody,
	}
	return local(op, &awshttp.ResponseError{
		ResponseError: &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: resp}, Err: err},
	})
}

// local wraps err as the SDK wraps an error without an answer.
func local(op string, err error) error {
	return &smithy.OperationError{ServiceID: s3.ServiceID, OperationName: op, Err: err}
}

func failure(op string, status int, code, message string) error {
	return answered(op, status, &smithy.GenericAPIError{Code: code, Message: message, Fault: smithy.FaultClient})
}

func noSuchKey(op, key string) error {
	return answered(op, http.StatusNotFound,
		&types.NoSuchKey{Message: aws.String(fmt.Sprintf("the key %q does not exist", key))})
}

func noSuchBucket(op, bucket string) error {
	message := fmt.Sprintf("the bucket %q does not exist", bucket)
	switch op {
	case "HeadBucket", "HeadObject": // a HEAD has no body to say more
		return answered(op, http.StatusNotFound, &types.NotFound{Message: aws.String(message)})
	case "ListObjectsV2":
		return answered(op, http.StatusNotFound, &types.NoSuchBucket{Message: aws.String(message)})
	}
	return failure(op, http.StatusNotFound, "NoSuchBucket", message)
}

func preconditionFailed(op string) error {
	return failure(op, http.StatusPreconditionFailed, "PreconditionFailed",
		"at least one of the preconditions did not hold")
}

func notModified(op string) error {
	return failure(op, http.StatusNotModified, "NotModified", "Not Modified")
}

// diskError is an error of the store caused by the file system.
type diskError struct {
	smithy.GenericAPIError
	cause error
}

func (e *diskError) Error() string { return e.GenericAPIError.Error() + ": " + e.cause.Error() }
func (e *diskError) Unwrap() error { return e.cause }

// diskFailure returns 403 AccessDenied if the file system refuses access, which
// an operator can fix, and 500 InternalError for any other error.
func diskFailure(op string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return local(op, &smithy.CanceledError{Err: err})
	}
	status, code, fault := http.StatusInternalServerError, "InternalError", smithy.FaultServer
	if errors.Is(err, fs.ErrPermission) {
		status, code, fault = http.StatusForbidden, "AccessDenied", smithy.FaultClient
	}
	return answered(op, status, &diskError{
		GenericAPIError: smithy.GenericAPIError{Code: code, Message: "the object folder cannot be used", Fault: fault},
		cause:           err,
	})
}

// ctxDone returns the error that the SDK returns for a context that is done, or
// nil.
func ctxDone(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return local(op, &smithy.CanceledError{Err: err})
	}
	return nil
}
