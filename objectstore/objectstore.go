// Package objectstore is the door to S3: the operations of the AWS SDK, with
// the SDK's own names, arguments and results, behind a circuit breaker.
//
//	out, err := client.PutObject(ctx, in)                  // before
//	out, err := objectstore.PutObject(ctx, client, in)     // after
//
// The client is an interface of the methods that an operation needs, so
// *s3.Client fits, and so do package filestore and a test double. [NewClient]
// builds a well-set *s3.Client.
//
// # What a call does
//
// The package's functions go through the breaker [resilience.S3]; a [Guard]
// with another breaker has the same operations as methods. While the breaker
// is open a call returns *resilience.OpenError and nothing is sent. Otherwise
// the call is made once: [aws.NopRetryer] is added after the caller's own
// options, for any client. The error is the SDK's own, the same value.
//
// [Classify] says what an error means to the breaker. A missing key or a
// failed condition is an answer and proves that S3 works; a bad request and a
// caller who left say nothing; 5xx, connection failures and timeouts count.
//
// # Bodies
//
// GetObject's body decides the outcome: at its end, at its error, or at
// Close. Reading renews a probe's lease. A body that is closed early, or whose
// context is cancelled, gives its slot back and counts as nothing. Close every
// body.
//
// A body for PutObject that cannot seek is copied first, to memory up to 1 MiB
// and to a temporary file beyond, since the SDK refuses it over plain HTTP and
// S3 wants to know its length. What a caller's own reader says is returned and
// never counted.
//
// # What is never sent
//
// A request that cannot be right is an *[InputError] which names the field, is
// not sent and counts as nothing: text in a header that is not valid UTF-8 or
// has a control character, keys that are not valid UTF-8, keys in DeleteObjects
// that XML cannot carry. So is an input that names no bucket or no key, or one
// that a store takes for something else: a bucket with a slash, a key of
// slashes alone or with a segment "." or "..", a CopySource that is not
// "bucket/key".
//
// # Files
//
// [DownloadFile] and [UploadFile] move files of any size in bounded memory and
// check size and hash. A downloaded file appears under its name whole or not
// at all.
//
// Importing this package registers the breakers' gauge with Prometheus.
//
// All functions are safe for concurrent use.
package objectstore

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
)

// Reader asks what a store has. *s3.Client fits.
type Reader interface {
	HeadBucket(ctx context.Context, in *s3.HeadBucketInput, optFns ...func(*s3.Options)) (*s3.HeadBucketOutput, error)
	HeadObject(ctx context.Context, in *s3.HeadObjectInput, optFns ...func(*s3.Options)) (*s3.HeadObjectOutput, error)
	GetObject(ctx context.Context, in *s3.GetObjectInput, optFns ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	ListObjectsV2(
		ctx context.Context, in *s3.ListObjectsV2Input, optFns ...func(*s3.Options),
	) (*s3.ListObjectsV2Output, error)
}

// Writer changes what a store has. *s3.Client fits.
type Writer interface {
	CreateBucket(
		ctx context.Context, in *s3.CreateBucketInput, optFns ...func(*s3.Options),
	) (*s3.CreateBucketOutput, error)
	PutObject(ctx context.Context, in *s3.PutObjectInput, optFns ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	CopyObject(ctx context.Context, in *s3.CopyObjectInput, optFns ...func(*s3.Options)) (*s3.CopyObjectOutput, error)
	DeleteObject(
		ctx context.Context, in *s3.DeleteObjectInput, optFns ...func(*s3.Options),
	) (*s3.DeleteObjectOutput, error)
	DeleteObjects(
		ctx context.Context, in *s3.DeleteObjectsInput, optFns ...func(*s3.Options),
	) (*s3.DeleteObjectsOutput, error)
}

// Guard is the door over a breaker of your own: one for each bucket owner,
// region or provider. A nil Breaker is [resilience.S3]. Its methods are the
// package's functions.
type Guard struct {
	// Breaker is shared by all operations; nil means resilience.S3.
	Breaker *resilience.Breaker
	// Settled, where set, is told the verdict of each call that was admitted, a
	// success included: once, in the goroutine that ends the call, after the
	// breaker has counted it and before the call returns; for a body, when its
	// outcome is decided. It is not told of a refused call, nor of one that
	// panicked.
	Settled func(resilience.Verdict)
	// InFlight, where set, is entered by each call first, so that no more calls
	// are in flight than its breaker still tolerates failures; a call waits
	// there for its turn. Its breaker is then the guard's: with another one in
	// Breaker each call returns an error that says so, and nothing is sent.
	InFlight *inflight.Limiter
}

// simple is an operation whose answer is there when the method returns.
func simple[In, Out any](
	ctx context.Context, g Guard, op string, in In, optFns []func(*s3.Options),
	method func(context.Context, In, ...func(*s3.Options)) (Out, error),
) (Out, error) {
	return checked(ctx, g, op, in, optFns, method, func(Out) string { return "" })
}

// checked is simple with a look at the answer: what no S3 would say, such as
// the page of a proxy under status 200, is a *ContractError. wrong says what
// is wrong with an answer, or "".
func checked[In, Out any](
	ctx context.Context, g Guard, op string, in In, optFns []func(*s3.Options),
	method func(context.Context, In, ...func(*s3.Options)) (Out, error), wrong func(Out) string,
) (Out, error) {
	t, wrongInput := subject(op, in)
	if wrongInput != nil {
		return refuse[Out](ctx, g, t, wrongInput)
	}
	return call(ctx, g, t, func(ctx context.Context) (Out, error) {
		out, err := method(ctx, in, once(optFns)...)
		if err == nil {
			err = t.broken(wrong(out))
		}
		return out, err
	})
}

// broken is a ContractError, or nil where there is no problem.
func (t target) broken(problem string) error {
	if problem == "" {
		return nil
	}
	return &ContractError{t.op, t.bucket, t.key, problem}
}

// noETag is what is wrong with an answer about an object that does not name
// its ETag. S3 names it always.
func noETag(etag *string) string {
	if aws.ToString(etag) == "" {
		return "the answer is not one of S3: it names no ETag"
	}
	return ""
}

func noCopy(out *s3.CopyObjectOutput) string {
	if out.CopyObjectResult == nil {
		return noETag(nil)
	}
	return noETag(out.CopyObjectResult.ETag)
}

// noReport is what is wrong with an answer that tells of no key, deleted or
// not, although it was asked to.
func noReport(in *s3.DeleteObjectsInput) func(*s3.DeleteObjectsOutput) string {
	return func(out *s3.DeleteObjectsOutput) string {
		asked := in.Delete != nil && !aws.ToBool(in.Delete.Quiet) && len(in.Delete.Objects) > 0
		if !asked || len(out.Deleted)+len(out.Errors) > 0 {
			return ""
		}
		return "the answer is not one of S3: it tells of no key"
	}
}

// HeadObject is HeadObject of the S3 client. A missing key is *types.NotFound.
// A 403 may mean a missing key too, where listing is not allowed, and counts
// as nothing.
func (g Guard) HeadObject(
	ctx context.Context, client Reader, in *s3.HeadObjectInput, optFns ...func(*s3.Options),
) (*s3.HeadObjectOutput, error) {
	return checked(ctx, g, "HeadObject", in, optFns, client.HeadObject,
		func(out *s3.HeadObjectOutput) string { return noETag(out.ETag) })
}

// DeleteObject is DeleteObject of the S3 client.
func (g Guard) DeleteObject(
	ctx context.Context, client Writer, in *s3.DeleteObjectInput, optFns ...func(*s3.Options),
) (*s3.DeleteObjectOutput, error) {
	return simple(ctx, g, "DeleteObject", in, optFns, client.DeleteObject)
}

// DeleteObjects is DeleteObjects of the S3 client: up to 1,000 keys. Look at
// the output's Errors: keys that could not be deleted are there, not in err. A
// key that XML cannot carry, such as one with the character U+0001, is an
// *InputError: delete it with DeleteObject.
// With Quiet, an answer of another server cannot be told from success.
func (g Guard) DeleteObjects(
	ctx context.Context, client Writer, in *s3.DeleteObjectsInput, optFns ...func(*s3.Options),
) (*s3.DeleteObjectsOutput, error) {
	return checked(ctx, g, "DeleteObjects", in, optFns, client.DeleteObjects, noReport(in))
}

// CopyObject is CopyObject of the S3 client. CopySource is "bucket/key" or the
// ARN of an access point's object, percent-encoded; another one is an
// *InputError. S3 may say 200 and send an error in the body; the SDK makes an
// error of it and it counts by its code. The white space before it renews a
// probe's lease. A key that ends in a slash is looked at as by PutObject: an
// object that has lost its bytes is a *ContractError.
func (g Guard) CopyObject(
	ctx context.Context, client Writer, in *s3.CopyObjectInput, optFns ...func(*s3.Options),
) (*s3.CopyObjectOutput, error) {
	t, wrong := subject("CopyObject", in)
	if wrong != nil {
		return refuse[*s3.CopyObjectOutput](ctx, g, t, wrong)
	}
	if err := checkMetadata(t.op, in.Metadata); err != nil {
		return nil, err
	}
	return open(ctx, g, t, func(h *door.Handle) (*s3.CopyObjectOutput, error) {
		return copyChecked(h, client, t, in, once(optFns))
	})
}

func copyChecked(
	h *door.Handle, client Writer, t target, in *s3.CopyObjectInput, optFns []func(*s3.Options),
) (*s3.CopyObjectOutput, error) {
	out, err := client.CopyObject(h.Context(), in, flowing(h, optFns)...)
	if err == nil {
		err = t.broken(noCopy(out))
	}
	if err != nil {
		return out, err
	}
	return out, written{t, out.CopyObjectResult.ETag, -1}.kept(h.Context(), client, s3.HeadObjectInput{
		VersionId: out.VersionId, ExpectedBucketOwner: in.ExpectedBucketOwner, RequestPayer: in.RequestPayer,
		SSECustomerAlgorithm: in.SSECustomerAlgorithm, SSECustomerKey: in.SSECustomerKey,
		SSECustomerKeyMD5: in.SSECustomerKeyMD5,
	}, optFns)
}

// HeadBucket is HeadBucket of the S3 client. Ask it before the first put: some
// stores create a missing bucket on a put.
func (g Guard) HeadBucket(
	ctx context.Context, client Reader, in *s3.HeadBucketInput, optFns ...func(*s3.Options),
) (*s3.HeadBucketOutput, error) {
	return simple(ctx, g, "HeadBucket", in, optFns, client.HeadBucket)
}

// CreateBucket is CreateBucket of the S3 client.
func (g Guard) CreateBucket(
	ctx context.Context, client Writer, in *s3.CreateBucketInput, optFns ...func(*s3.Options),
) (*s3.CreateBucketOutput, error) {
	return simple(ctx, g, "CreateBucket", in, optFns, client.CreateBucket)
}

// HeadObject is [Guard.HeadObject] through [resilience.S3].
func HeadObject(
	ctx context.Context, client Reader, in *s3.HeadObjectInput, optFns ...func(*s3.Options),
) (*s3.HeadObjectOutput, error) {
	return Guard{}.HeadObject(ctx, client, in, optFns...)
}

// DeleteObject is [Guard.DeleteObject] through [resilience.S3].
func DeleteObject(
	ctx context.Context, client Writer, in *s3.DeleteObjectInput, optFns ...func(*s3.Options),
) (*s3.DeleteObjectOutput, error) {
	return Guard{}.DeleteObject(ctx, client, in, optFns...)
}

// DeleteObjects is [Guard.DeleteObjects] through [resilience.S3].
func DeleteObjects(
	ctx context.Context, client Writer, in *s3.DeleteObjectsInput, optFns ...func(*s3.Options),
) (*s3.DeleteObjectsOutput, error) {
	return Guard{}.DeleteObjects(ctx, client, in, optFns...)
}

// CopyObject is [Guard.CopyObject] through [resilience.S3].
func CopyObject(
	ctx context.Context, client Writer, in *s3.CopyObjectInput, optFns ...func(*s3.Options),
) (*s3.CopyObjectOutput, error) {
	return Guard{}.CopyObject(ctx, client, in, optFns...)
}

// HeadBucket is [Guard.HeadBucket] through [resilience.S3].
func HeadBucket(
	ctx context.Context, client Reader, in *s3.HeadBucketInput, optFns ...func(*s3.Options),
) (*s3.HeadBucketOutput, error) {
	return Guard{}.HeadBucket(ctx, client, in, optFns...)
}

// CreateBucket is [Guard.CreateBucket] through [resilience.S3].
func CreateBucket(
	ctx context.Context, client Writer, in *s3.CreateBucketInput, optFns ...func(*s3.Options),
) (*s3.CreateBucketOutput, error) {
	return Guard{}.CreateBucket(ctx, client, in, optFns...)
}
