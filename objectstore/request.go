package objectstore

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"golang.org/x/net/http/httpguts"

	"github.com/penstock-go/penstock/internal/door"
)

// once adds to the caller's options what makes a call one request, or none if
// the request cannot be right.
func once(optFns []func(*s3.Options)) []func(*s3.Options) {
	return append(slices.Clip(optFns), func(o *s3.Options) {
		o.Retryer = aws.NopRetryer{}
		o.RetryMaxAttempts = 0 // a number here would wrap the retryer
		looked(o)
	})
}

// looked has each request looked at as the caller's input has made it, before
// it is signed, and before it is sent.
func looked(o *s3.Options) {
	o.APIOptions = append(slices.Clip(o.APIOptions), func(stack *middleware.Stack) error {
		if err := stack.Serialize.Add(look{}, middleware.After); err != nil {
			return err
		}
		if err := stack.Build.Add(look{}, middleware.After); err != nil {
			return err
		}
		return stack.Finalize.Add(look{}, middleware.After)
	})
}

// look is the middleware that ends a request with an *InputError which
// net/http would not send, or which a store would take for another one.
type look struct{}

// ID is part of the middleware's interface.
func (look) ID() string { return "PenstockLook" }

// HandleSerialize looks at what the caller's input has become. Some of it is
// removed where a URL is signed.
func (look) HandleSerialize(
	ctx context.Context, in middleware.SerializeInput, next middleware.SerializeHandler,
) (out middleware.SerializeOutput, metadata middleware.Metadata, err error) {
	if err = sendable(ctx, in.Request); err != nil {
		return out, metadata, err
	}
	return next.HandleSerialize(ctx, in)
}

// HandleBuild looks at what the caller's own options have added. The signing of
// a URL ends after it.
func (look) HandleBuild(
	ctx context.Context, in middleware.BuildInput, next middleware.BuildHandler,
) (out middleware.BuildOutput, metadata middleware.Metadata, err error) {
	if err = sendable(ctx, in.Request); err != nil {
		return out, metadata, err
	}
	return next.HandleBuild(ctx, in)
}

// HandleFinalize looks at the signature too.
func (look) HandleFinalize(
	ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
) (out middleware.FinalizeOutput, metadata middleware.Metadata, err error) {
	if err = sendable(ctx, in.Request); err != nil {
		return out, metadata, err
	}
	return next.HandleFinalize(ctx, in)
}

// sendable says what is wrong with a request.
func sendable(ctx context.Context, request any) error {
	r, ok := request.(*smithyhttp.Request)
	if !ok {
		return nil
	}
	op := awsmiddleware.GetOperationName(ctx)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if !httpguts.ValidHeaderFieldName(name) {
			return &InputError{op, fmt.Sprintf("%q cannot be the name of a header", name)}
		}
		for _, value := range r.Header[name] {
			if problem := unfit(value); problem != "" {
				return &InputError{op, fmt.Sprintf("the header %s %s; remove it or percent-encode it", name, problem)}
			}
		}
	}
	if !httpguts.ValidHostHeader(r.URL.Host) || !httpguts.ValidHostHeader(r.Host) {
		return &InputError{op, fmt.Sprintf("%q cannot be the name of a host; look at the bucket and the endpoint", r.URL.Host)}
	}
	query, err := url.QueryUnescape(r.URL.RawQuery)
	if err != nil || !utf8.ValidString(query) || !utf8.ValidString(r.URL.Path) {
		return &InputError{op, "bucket, key or parameters are not valid UTF-8, which S3's are"}
	}
	return nil
}

// unfit is what is wrong with a header's value, or "". Text in UTF-8 survives.
// Bytes that are none do not, and a tab makes some stores find the signature
// wrong, which looks like a bad key.
func unfit(value string) string {
	if !utf8.ValidString(value) {
		return "is not valid UTF-8"
	}
	if i := strings.IndexFunc(value, unicode.IsControl); i >= 0 {
		r, _ := utf8.DecodeRuneInString(value[i:])
		return fmt.Sprintf("has the control character %U", r)
	}
	return ""
}

// flowing renews a probe's lease with each read of the answer. S3 sends white
// space while it puts an object together.
func flowing(h *door.Handle, optFns []func(*s3.Options)) []func(*s3.Options) {
	return append(slices.Clip(optFns), func(o *s3.Options) {
		o.APIOptions = append(slices.Clip(o.APIOptions), func(stack *middleware.Stack) error {
			return stack.Deserialize.Add(flow{h}, middleware.After)
		})
	})
}

type flow struct{ h *door.Handle }

// ID is part of the middleware's interface.
func (flow) ID() string { return "PenstockFlow" }

// HandleDeserialize is next to the transport. The SDK closes a request's body
// when the headers of the answer come, and its WriteTo then returns io.EOF,
// which net/http takes for a failed write: it closes the connection while the
// white space flows. Without WriteTo the end is an end.
func (f flow) HandleDeserialize(
	ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
) (middleware.DeserializeOutput, middleware.Metadata, error) {
	if r, ok := in.Request.(*smithyhttp.Request); ok {
		if body, ok := r.GetStream().(io.ReadSeeker); ok {
			if changed, err := r.SetStream(struct{ io.ReadSeeker }{body}); err == nil {
				in.Request = changed
			}
		}
	}
	out, metadata, err := next.HandleDeserialize(ctx, in)
	if resp, ok := out.RawResponse.(*smithyhttp.Response); ok && resp != nil && resp.Body != nil {
		resp.Body = flowingBody{renewing{resp.Body, f.h}, resp.Body}
	}
	return out, metadata, err
}

type flowingBody struct {
	io.Reader
	io.Closer
}
