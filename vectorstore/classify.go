package vectorstore

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/resilience"
)

// milvusCode is what one of Milvus's codes means.
type milvusCode struct {
	code    codes.Code
	outcome resilience.Outcome
}

// milvusCodes are the codes that a reply's status can carry. A code that is
// not here is a failure.
var milvusCodes = map[int32]milvusCode{
	1:    {codes.Unavailable, resilience.Failure},         // not ready yet
	2:    {codes.Unavailable, resilience.Failure},         // unavailable
	3:    {codes.ResourceExhausted, resilience.Failure},   // out of memory
	4:    {codes.ResourceExhausted, resilience.Throttled}, // request queue full
	7:    {codes.ResourceExhausted, resilience.Failure},   // out of disk
	8:    {codes.ResourceExhausted, resilience.Throttled}, // rate limit
	9:    {codes.ResourceExhausted, resilience.Throttled}, // denied by quota
	10:   {codes.Unimplemented, resilience.Ignored},       //
	100:  {codes.NotFound, resilience.Success},            // collection
	101:  {codes.FailedPrecondition, resilience.Ignored},  // collection not loaded
	102:  {codes.FailedPrecondition, resilience.Ignored},  // too many collections
	103:  {codes.Unavailable, resilience.Failure},         // collection not fully loaded
	200:  {codes.NotFound, resilience.Success},            // partition
	201:  {codes.FailedPrecondition, resilience.Ignored},  // partition not loaded
	202:  {codes.Unavailable, resilience.Failure},         // partition not fully loaded
	300:  {codes.NotFound, resilience.Success},            // resource group
	700:  {codes.NotFound, resilience.Success},            // index
	701:  {codes.InvalidArgument, resilience.Ignored},     // index type
	702:  {codes.AlreadyExists, resilience.Success},       // index
	800:  {codes.NotFound, resilience.Success},            // database
	801:  {codes.FailedPrecondition, resilience.Ignored},  // too many databases
	802:  {codes.InvalidArgument, resilience.Ignored},     // database name
	1100: {codes.InvalidArgument, resilience.Ignored},     // parameter
	1400: {codes.Unauthenticated, resilience.Denied},      //
	1401: {codes.PermissionDenied, resilience.Denied},     //
	1600: {codes.NotFound, resilience.Success},            // alias
	1601: {codes.AlreadyExists, resilience.Success},       // alias like a collection
	1602: {codes.AlreadyExists, resilience.Success},       // alias
	1700: {codes.NotFound, resilience.Success},            // field
	1701: {codes.InvalidArgument, resilience.Ignored},     // field name
	1800: {codes.Unauthenticated, resilience.Denied},      //
	1804: {codes.InvalidArgument, resilience.Ignored},     // rows
	1806: {codes.InvalidArgument, resilience.Ignored},     // primary key
}

// unexpected is the code that Milvus 2.3 gives to most mistakes of a caller and
// to its own failures alike, and ioFailed the one that it gives to its own
// failures and to JSON that it does not take.
const (
	unexpected = 65535
	ioFailed   = 1001
)

// mistakes are the words by which the caller's mistakes are told from the
// server's failures under those codes, where no other sign exists.
var mistakes = []struct {
	words *regexp.Regexp
	code  codes.Code
}{
	{regexp.MustCompile(`cannot parse expression|failed to create (query|expr) plan`), codes.InvalidArgument},
	{regexp.MustCompile(`invalid parameter\[`), codes.InvalidArgument},
	{regexp.MustCompile(`^field \S+ not exist`), codes.InvalidArgument},
	{regexp.MustCompile(`^partition name .* not found`), codes.NotFound},
	{regexp.MustCompile(`^topk \[.*\] is invalid`), codes.InvalidArgument},
	{regexp.MustCompile(`^empty expression should be used with limit`), codes.InvalidArgument},
	{regexp.MustCompile(`with pagination is not allowed`), codes.InvalidArgument},
	{regexp.MustCompile(`^Invalid (collection|partition|field) name`), codes.InvalidArgument},
	{regexp.MustCompile(`^metric type not found or not supported`), codes.InvalidArgument},
	{regexp.MustCompile(`^invalid dimension: |vector dimension mismatch`), codes.InvalidArgument},
	{regexp.MustCompile(`vector type must be the same`), codes.InvalidArgument},
	{regexp.MustCompile(`^(IO failed: )?(json: cannot unmarshal|invalid character)`), codes.InvalidArgument},
	{regexp.MustCompile(`^(IO failed: )?unexpected end of JSON|cannot set json key to`), codes.InvalidArgument},
	{regexp.MustCompile(`create duplicate collection with different parameters`), codes.AlreadyExists},
	{regexp.MustCompile(`collection is loaded, please release it first`), codes.FailedPrecondition},
}

func meaning(e *ServerError) milvusCode {
	if m, ok := milvusCodes[e.Code]; ok {
		return m
	}
	if e.Code == unexpected || e.Code == ioFailed {
		for _, m := range mistakes {
			if m.words.MatchString(e.Reason) {
				return milvusCode{m.code, grpcCodes[m.code]}
			}
		}
	}
	return milvusCode{codes.Internal, resilience.Failure}
}

// grpcCodes are the statuses of the transport and of the embedded store.
var grpcCodes = map[codes.Code]resilience.Outcome{
	codes.Unavailable:        resilience.Failure,
	codes.Aborted:            resilience.Failure,
	codes.Unknown:            resilience.Failure,
	codes.Internal:           resilience.Failure,
	codes.DataLoss:           resilience.Failure,
	codes.DeadlineExceeded:   resilience.Failure,
	codes.ResourceExhausted:  resilience.Throttled,
	codes.Canceled:           resilience.Ignored, // by the caller, by a caller who shared the request, or by Close
	codes.InvalidArgument:    resilience.Ignored,
	codes.NotFound:           resilience.Success,
	codes.AlreadyExists:      resilience.Success,
	codes.FailedPrecondition: resilience.Ignored,
	codes.OutOfRange:         resilience.Ignored,
	codes.Unimplemented:      resilience.Ignored,
	codes.Unauthenticated:    resilience.Denied,
	codes.PermissionDenied:   resilience.Denied,
}

// Classify is what the breaker makes of an error of this package's calls. "No
// such collection" and "there is one already" are answers, and prove that the
// server works. The caller's cancellation, a wrong argument and a collection
// that is not loaded leave the breaker as it is; a timeout of any origin, a
// broken connection, a server that is not ready or out of resources and an
// answer that makes no sense are failures; queue, rate and quota limits are
// throttles; a bad credential is a denial. An error that says nothing of itself
// is a failure.
func Classify(caller context.Context, err error) resilience.Verdict {
	return door.For(caller, resilience.Verdict{Outcome: outcome(err)})
}

func outcome(err error) resilience.Outcome {
	if err == nil {
		return resilience.Success
	}
	if server, ok := errors.AsType[*ServerError](err); ok {
		return meaning(server).outcome
	}
	if st, ok := status.FromError(err); ok {
		return transport(st)
	}
	if errors.Is(err, client.ErrClientNotReady) {
		return resilience.Ignored
	}
	return resilience.Failure
}

// transport reads a gRPC status. Two of them tell the caller's mistakes from
// the upstream's by their text alone, since gRPC has no code for those.
func transport(st *status.Status) resilience.Outcome {
	switch {
	case st.Code() == codes.ResourceExhausted && strings.Contains(st.Message(), "larger than max"),
		st.Code() == codes.Internal && strings.Contains(st.Message(), "invalid UTF-8"):
		return resilience.Ignored
	}
	if o, ok := grpcCodes[st.Code()]; ok {
		return o
	}
	return resilience.Failure
}

// errorType names an error for a span.
func errorType(err error) string {
	if st, ok := status.FromError(err); ok {
		return st.Code().String()
	}
	return ""
}
