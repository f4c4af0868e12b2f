package vectorstore

import (
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
	Method    string // of the protocol, for example "Upsert"
	Code      int32  // Milvus's code, for example 100; see Classify
	Reason    string // the server's words
	Retriable bool   // the server's opinion
}

// Error gives the server's words and its code.
func (e *ServerError) Error() string {
	return fmt.Sprintf("milvus: %s: %s (code %d)", e.Method, e.Reason, e.Code)
}

// GRPCStatus makes status.Code give the kind of fault.
func (e *ServerError) GRPCStatus() *status.Status { return status.New(meaning(e).code, e.Error()) }
