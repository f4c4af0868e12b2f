package vectorstore

import (
	"cmp"
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ArgumentError is a call that was wrong and therefore not sent.
type ArgumentError struct {
	Op     string // the operation, for example "Upsert"
	Reason string // what is wrong, and where
}

// Error says which operation was refused and why.
func (e *ArgumentError) Error() string {
	return fmt.Sprintf("vectorstore: %s was not sent: %s", e.Op, e.Reason)
}

// GRPCStatus makes status.Code give InvalidArgument.
func (e *ArgumentError) GRPCStatus() *status.Status {
	return status.New(codes.InvalidArgument, e.Error())
}

// ContractError is an answer that breaks the rules of the protocol.
type ContractError struct {
	Op     string // the operation or the method of the protocol
	Reason string // what is wrong with the answer
}

// Error says which answer is wrong and how.
func (e *ContractError) Error() string {
	return fmt.Sprintf("vectorstore: the answer to %s is wrong: %s", e.Op, e.Reason)
}

// GRPCStatus makes status.Code give Internal.
func (e *ContractError) GRPCStatus() *status.Status { return status.New(codes.Internal, e.Error()) }

// ServerError is a reply in which Milvus refuses or fails.
type ServerError struct {
	Method     string // of the protocol, for example "Upsert"
	Code       int32  // Milvus's code, for example 100; see Classify
	Reason     string // the server's words
	Retriable  bool   // the server's opinion
	InputError bool   // the server blames the request, as releases from 2.4 on can say

	older int32 // what a code of Milvus 2.2 beside Code stands for, or 0
}

// Error gives the server's words and its code.
func (e *ServerError) Error() string {
	return fmt.Sprintf("milvus: %s: %s (code %d)", e.Method, e.Reason, e.Code)
}

// GRPCStatus makes status.Code give the kind of fault.
func (e *ServerError) GRPCStatus() *status.Status { return status.New(meaning(e).code, e.Error()) }

// endedError is the status with which gRPC reports the end of a context: to
// errors.Is it is the end itself, and its cause.
type endedError struct {
	error

	end, cause error
}

func (e *endedError) GRPCStatus() *status.Status { return status.Convert(e.error) }
func (e *endedError) Unwrap() []error            { return []error{e.error, e.end, e.cause} }

// ended is err, told apart as the end of ctx if it is that. A server that is
// told of the deadline may see it first.
func ended(ctx context.Context, err error) error {
	end := ctx.Err()
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		end = cmp.Or[error](end, context.DeadlineExceeded)
	case codes.Canceled:
	default:
		return err
	}
	if end == nil {
		return err
	}
	return &endedError{err, end, cmp.Or(context.Cause(ctx), end)}
}

// endOf is the error for the end of ctx, with gRPC's status for it.
func endOf(ctx context.Context) error {
	return ended(ctx, status.FromContextError(ctx.Err()).Err())
}
