package objectstore

import (
	"context"
	"reflect"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/penstock-go/penstock/internal/door"
)

// below is the breaker below a client: the middleware that makes a call of each
// request which no door has counted. It is inside the retryer's loop, so that
// each attempt is one, and outside of what makes the request: nothing is signed
// and no credentials are asked for while it refuses.
type below struct{ guard Guard }

// option puts it into each operation of a client.
func (b below) option(o *s3.Options) { o.APIOptions = append(o.APIOptions, b.into) }

// into puts it into an operation. One that reads no answer signs a URL, which
// is no call.
func (b below) into(stack *middleware.Stack) error {
	if _, ok := stack.Deserialize.Get("OperationDeserializer"); !ok {
		return nil
	}
	if err := stack.Initialize.Add(b, middleware.After); err != nil {
		return err
	}
	if err := stack.Deserialize.Add(b, middleware.After); err != nil {
		return err
	}
	if _, ok := stack.Finalize.Get("Retry"); ok {
		return stack.Finalize.Insert(b, "Retry", middleware.After)
	}
	return stack.Finalize.Add(b, middleware.Before)
}

// ID is part of the middleware's interface.
func (below) ID() string { return "PenstockBreaker" }

type (
	inputKey struct{} // the operation's input
	callKey  struct{} // the handle of a call that below has made
)

// HandleInitialize keeps the input for the span.
func (b below) HandleInitialize(
	ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
) (middleware.InitializeOutput, middleware.Metadata, error) {
	return next.HandleInitialize(middleware.WithStackValue(ctx, inputKey{}, in.Parameters), in)
}

// HandleFinalize makes one attempt at an operation, and a call of the breaker
// unless it is part of one.
func (b below) HandleFinalize(
	ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
) (out middleware.FinalizeOutput, metadata middleware.Metadata, err error) {
	if door.Counted(ctx) {
		return next.HandleFinalize(ctx, in)
	}
	t := asked(ctx)
	out, err = open(ctx, b.guard, t, func(h *door.Handle) (middleware.FinalizeOutput, error) {
		inner := middleware.WithStackValue(h.Context(), callKey{}, h)
		var out middleware.FinalizeOutput
		var err error
		if out, metadata, err = next.HandleFinalize(inner, in); err != nil {
			// as the caller gets it, and as Classify wants it
			h.End(&smithy.OperationError{ServiceID: s3.ServiceID, OperationName: t.op, Err: left(ctx, err)})
			return out, err
		}
		t.follow(h, out.Result)
		return out, nil
	})
	return out, metadata, err
}

// HandleDeserialize leaves the outcome of SelectObjectContent to the bytes of
// its answer: the SDK reads its events as soon as it has the headers.
func (b below) HandleDeserialize(
	ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
) (middleware.DeserializeOutput, middleware.Metadata, error) {
	out, metadata, err := next.HandleDeserialize(ctx, in)
	h, ok := middleware.GetStackValue(ctx, callKey{}).(*door.Handle)
	if !ok || err != nil || awsmiddleware.GetOperationName(ctx) != "SelectObjectContent" {
		return out, metadata, err
	}
	if resp, ok := out.RawResponse.(*smithyhttp.Response); ok && resp.StatusCode < 300 {
		resp.Body = asked(ctx).received(h, resp.Body, nil)
	}
	return out, metadata, err
}

// follow leaves the outcome of a call to the body of its answer, if it has one.
func (t target) follow(h *door.Handle, result any) {
	switch out := result.(type) {
	case *s3.GetObjectOutput:
		out.Body = t.received(h, out.Body, out.ContentLength)
	case *s3.GetObjectAnnotationOutput:
		out.AnnotationPayload = t.received(h, out.AnnotationPayload, nil)
	case *s3.GetObjectTorrentOutput:
		out.Body = t.received(h, out.Body, nil)
	}
}

// asked is what an operation is about, as its input says.
func asked(ctx context.Context) target {
	in := reflect.Indirect(reflect.ValueOf(middleware.GetStackValue(ctx, inputKey{})))
	return about(awsmiddleware.GetOperationName(ctx), member(in, "Bucket"), member(in, "Key"))
}

// member is a field of an input, or nil.
func member(in reflect.Value, field string) *string {
	if in.Kind() != reflect.Struct || !in.FieldByName(field).IsValid() {
		return nil
	}
	value, _ := reflect.TypeAssert[*string](in.FieldByName(field))
	return value
}
