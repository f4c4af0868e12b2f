package objectstore

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/penstock-go/penstock/internal/door"
)

// PutObject is PutObject of the S3 client. A body that cannot seek, such as a
// pipe, a socket or a device, is copied first, to memory up to 1 MiB and to a
// temporary file beyond. The copy ends with ctx. A reader that has no read
// deadline and says nothing then, such as os.Stdin, is left behind: it is used
// until its Read returns. A body ends with io.EOF itself: an error that wraps
// it is a failure of the reader, and nothing is stored. A ContentLength that is
// not the body's is an *InputError. Where the store answers with the MD5 of
// what it got as its ETag, in quotes as S3 writes it, that is compared with
// what was sent, and a difference is a *ContractError.
//
// A value that no header can carry is an *InputError.
//
// Some stores make a folder of a key that ends in a slash, and keep nothing of
// its body though they say so. Under such a key, and one that ends in a
// backslash, HeadObject is asked whether the bytes are there, in the same call,
// if the client has it and the caller may; if not, it is a *ContractError.
//
// For an idempotent create set IfNoneMatch to "*": an object that is there
// already is a PreconditionFailed.
func (g Guard) PutObject(
	ctx context.Context, client Writer, in *s3.PutObjectInput, optFns ...func(*s3.Options),
) (*s3.PutObjectOutput, error) {
	t, wrong := subject("PutObject", in)
	if wrong != nil {
		return refuse[*s3.PutObjectOutput](ctx, g, t, wrong)
	}
	if err := checkMetadata(t.op, in.Metadata); err != nil {
		return nil, err
	}
	body := in.Body
	if g.through().Breaker.Ready() { // else it refuses, most likely, and nothing need be copied
		copied, cleanup, err := seekable(ctx, body)
		if err != nil {
			return nil, err
		}
		defer cleanup()
		body = copied
	}
	return open(ctx, g, t, func(h *door.Handle) (*s3.PutObjectOutput, error) {
		body, cleanup, err := seekable(h.Context(), body)
		if err != nil {
			return nil, err
		}
		defer cleanup()
		return putChecked(h.Context(), h, client, in, body, once(optFns))
	})
}

func putChecked(
	ctx context.Context, h *door.Handle, client Writer, in *s3.PutObjectInput, body io.Reader,
	optFns []func(*s3.Options),
) (*s3.PutObjectOutput, error) {
	copied := *in // the caller's input stays as it is
	var sent *sentBody
	if rs, ok := body.(io.ReadSeeker); ok {
		var err error
		if sent, err = newSentBody(h, rs); err != nil {
			return nil, err
		}
		if err = sent.announced(in.ContentLength); err != nil {
			return nil, err
		}
		copied.Body = sent
	}
	out, err := client.PutObject(ctx, &copied, optFns...)
	if err = sent.blame(err); err != nil {
		return out, err
	}
	t := about("PutObject", in.Bucket, in.Key)
	if err := t.broken(noETag(out.ETag)); err != nil || sent == nil {
		return out, err
	}
	differs := sent.compare(t.bucket, out.ETag, out.ServerSideEncryption, out.SSECustomerAlgorithm)
	if err := t.broken(differs); err != nil {
		return out, err
	}
	return out, written{t, out.ETag, sent.end - sent.base}.kept(ctx, client, s3.HeadObjectInput{
		VersionId: out.VersionId, ExpectedBucketOwner: in.ExpectedBucketOwner, RequestPayer: in.RequestPayer,
		SSECustomerAlgorithm: in.SSECustomerAlgorithm, SSECustomerKey: in.SSECustomerKey,
		SSECustomerKeyMD5: in.SSECustomerKeyMD5,
	}, optFns)
}

// PutObject is [Guard.PutObject] through [resilience.S3].
func PutObject(
	ctx context.Context, client Writer, in *s3.PutObjectInput, optFns ...func(*s3.Options),
) (*s3.PutObjectOutput, error) {
	return Guard{}.PutObject(ctx, client, in, optFns...)
}

// sentBody is a caller's body on its way to the store: it renews the lease,
// keeps the reader's own error apart, and hashes what the last pass sent. The
// SDK may read it more than once, to sign it.
type sentBody struct {
	h         *door.Handle
	body      io.ReadSeeker
	base, end int64

	mu   sync.Mutex
	sum  hash.Hash
	at   int64
	skew bool  // this pass did not begin at base
	err  error // what the caller's reader said in this pass
}

func newSentBody(h *door.Handle, body io.ReadSeeker) (*sentBody, error) {
	base, err := body.Seek(0, io.SeekCurrent)
	end := base
	if err == nil {
		end, err = body.Seek(0, io.SeekEnd)
	}
	if err == nil {
		_, err = body.Seek(base, io.SeekStart)
	}
	if err != nil {
		return nil, &localError{fmt.Errorf("objectstore: cannot seek in the body: %w", err)}
	}
	return &sentBody{h: h, body: body, base: base, end: end, at: base, sum: md5.New()}, nil
}

// announced refuses a length that is not the body's: the SDK would send so many
// bytes, and of a body of 0 none.
func (b *sentBody) announced(length *int64) error {
	if n := b.end - b.base; length != nil && *length >= 0 && *length != n {
		problem := fmt.Sprintf("ContentLength is %d and the body has %d bytes; leave it out", *length, n)
		return &InputError{"PutObject", problem}
	}
	return nil
}

func (b *sentBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.body.Read(p)
	if n > 0 {
		b.h.Renew()
		b.sum.Write(p[:n])
		b.at += int64(n)
	}
	switch {
	case err == nil:
	case err != io.EOF: //nolint:errorlint // io.Reader's own contract
		b.err = err
	case b.at < b.end:
		err = fmt.Errorf("objectstore: the body ended %d bytes before its end: %w", b.end-b.at, io.ErrUnexpectedEOF)
		b.err = err
	}
	return n, err
}

func (b *sentBody) Seek(offset int64, whence int) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, err := b.body.Seek(offset, whence)
	switch {
	case err != nil:
		b.err = err
		return at, err
	case at == b.base:
		b.sum.Reset()
		b.skew, b.err = false, nil
	case at != b.at:
		b.skew = true
	}
	b.at = at
	return at, nil
}

// blame says that an error came from the caller's reader, if it did. A store
// that answered well to a body that broke off cannot have it.
func (b *sentBody) blame(err error) error {
	if b == nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.err == nil:
		return err
	case err == nil:
		err = b.err
	case !errors.Is(err, b.err):
		return err
	}
	return &localError{err}
}

// compare holds the store's ETag against what was sent. An empty problem is a
// match, or an ETag that is no MD5 by S3's own rules.
func (b *sentBody) compare(
	bucket string, etag *string, sse types.ServerSideEncryption, customerKey *string,
) (problem string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	want, ok := md5Of(etag)
	if !ok || b.skew || !plain(sse, customerKey) || strings.HasSuffix(bucket, "--x-s3") {
		return ""
	}
	if got := hex.EncodeToString(b.sum.Sum(nil)); got != want {
		return fmt.Sprintf("%d bytes with the MD5 %s were sent, the store has %s", b.at-b.base, got, want)
	}
	return ""
}

// plain reports whether an object's encryption leaves the ETag an MD5.
func plain(sse types.ServerSideEncryption, customerKey *string) bool {
	return customerKey == nil && (sse == "" || sse == types.ServerSideEncryptionAes256)
}

// md5Of is the MD5 in an ETag: 32 hex digits, no "-" and a number of parts, in
// the quotes that S3 writes. Stores that leave these out have other ETags too.
func md5Of(etag *string) (string, bool) {
	text := strings.ToLower(aws.ToString(etag))
	if len(text) != hex.EncodedLen(md5.Size)+2 || text[0] != '"' || text[len(text)-1] != '"' {
		return "", false
	}
	text = text[1 : len(text)-1]
	_, err := hex.DecodeString(text)
	return text, err == nil
}

// GetObject is GetObject of the S3 client. The call ends with the body: its
// end is a success, its error counts by [Classify], an early Close counts as
// nothing. A body that ends before its ContentLength ends with a
// *ContractError. Where the caller's context is cancelled the slot comes back
// even if nobody closes the body.
func (g Guard) GetObject(
	ctx context.Context, client Reader, in *s3.GetObjectInput, optFns ...func(*s3.Options),
) (*s3.GetObjectOutput, error) {
	t, wrong := subject("GetObject", in)
	if wrong != nil {
		return refuse[*s3.GetObjectOutput](ctx, g, t, wrong)
	}
	return open(ctx, g, t, func(h *door.Handle) (*s3.GetObjectOutput, error) {
		out, err := openObject(h.Context(), client, in, once(optFns))
		if err == nil {
			out.Body = t.received(h, out.Body, out.ContentLength)
		}
		return out, err
	})
}

// openObject gets an object whose answer names its ETag.
func openObject(
	ctx context.Context, client Reader, in *s3.GetObjectInput, optFns []func(*s3.Options),
) (*s3.GetObjectOutput, error) {
	out, err := client.GetObject(ctx, in, optFns...)
	if err != nil {
		return out, err
	}
	t := about("GetObject", in.Bucket, in.Key)
	if err = t.broken(noETag(out.ETag)); err != nil && out.Body != nil {
		_ = out.Body.Close()
	}
	return out, err
}

// GetObject is [Guard.GetObject] through [resilience.S3].
func GetObject(
	ctx context.Context, client Reader, in *s3.GetObjectInput, optFns ...func(*s3.Options),
) (*s3.GetObjectOutput, error) {
	return Guard{}.GetObject(ctx, client, in, optFns...)
}

// receivedBody decides a GetObject's outcome.
type receivedBody struct {
	h    *door.Handle
	t    target
	body io.ReadCloser
	left atomic.Int64 // announced and not read yet; negative where nothing was announced
}

// received leaves the outcome of the call to the body of its answer, of which
// length bytes are announced.
func (t target) received(h *door.Handle, body io.ReadCloser, length *int64) io.ReadCloser {
	if body == nil {
		return nil
	}
	b := &receivedBody{h: h, t: t, body: body}
	b.left.Store(-1)
	if length != nil {
		b.left.Store(*length)
	}
	h.Keep()
	return b
}

func (b *receivedBody) Read(p []byte) (n int, err error) {
	b.h.Use(func() {
		n, err = b.body.Read(p)
		err = b.received(n, err)
	})
	return n, err
}

// received counts n bytes and decides the outcome at the end of the body.
func (b *receivedBody) received(n int, err error) error {
	if n > 0 {
		b.h.Renew()
		b.left.Add(-int64(n))
	}
	if n := b.left.Load(); err == io.EOF && n > 0 { //nolint:errorlint // io.Reader's own contract
		err = b.t.broken(fmt.Sprintf("the body ended %d bytes before its announced end", n))
	}
	err = left(b.h.Context(), err)
	if err != nil {
		b.h.End(err)
	}
	return err
}

// Close ends the call: as a success if all that was announced has been read.
// The outcome is decided first, since a Read in another goroutine fails as soon
// as the body is closed under it.
func (b *receivedBody) Close() error {
	if b.left.Load() == 0 {
		b.h.End(nil)
	} else {
		b.h.Abandon()
	}
	return b.body.Close()
}
