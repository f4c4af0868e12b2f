package objectstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/penstock-go/penstock/internal/door"
)

// abortTimeout bounds the clean-up of a failed multipart upload, which
// continues where the caller's context has ended.
const abortTimeout = 30 * time.Second

// Uploader is a Writer that takes an object in parts as well. *s3.Client fits.
type Uploader interface {
	Writer
	CreateMultipartUpload(
		ctx context.Context, in *s3.CreateMultipartUploadInput, optFns ...func(*s3.Options),
	) (*s3.CreateMultipartUploadOutput, error)
	UploadPart(ctx context.Context, in *s3.UploadPartInput, optFns ...func(*s3.Options)) (*s3.UploadPartOutput, error)
	CompleteMultipartUpload(
		ctx context.Context, in *s3.CompleteMultipartUploadInput, optFns ...func(*s3.Options),
	) (*s3.CompleteMultipartUploadOutput, error)
	AbortMultipartUpload(
		ctx context.Context, in *s3.AbortMultipartUploadInput, optFns ...func(*s3.Options),
	) (*s3.AbortMultipartUploadOutput, error)
}

// UploadFile puts the file at path as one object: below 16 MiB in one request,
// above that in parts of 8 MiB, five at a time, in about 64 MiB of memory. A
// failed part fails the upload, is not sent again, and removes the parts that
// arrived. The whole is one call at the breaker.
//
// in is the SDK's input without Body and ContentLength. The file's SHA-256 is
// added to the metadata as "sha256", unless in has one; DownloadFile checks it.
// Each part's MD5 is compared with the store's answer, and a key that ends in a
// slash is looked at as by PutObject. A file that changes while it is read does
// not become an object. What is not a regular file, such as a named pipe or
// /dev/stdin, is copied to a temporary file first, until its end or that of
// ctx.
//
// An upload in parts that fails is removed, also where ctx has ended. If that
// fails too, the error says so and names the upload, whose parts take room
// until somebody removes them. The error of such an upload has the method
// UploadID() string.
func (g Guard) UploadFile(
	ctx context.Context, client Uploader, in *transfermanager.UploadObjectInput, path string,
	optFns ...func(*transfermanager.Options),
) (*transfermanager.UploadObjectOutput, error) {
	const op = "UploadFile"
	if _, err := subject(op, in); err != nil {
		return nil, err
	}
	if in.Body != nil {
		return nil, &InputError{op, "leave Body out, the file is the body"}
	}
	if err := checkMetadata(op, in.Metadata); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, &localError{fmt.Errorf("objectstore: cannot upload: %w", err)}
	}
	if info.IsDir() {
		return nil, &InputError{op, fmt.Sprintf("%q is a folder", path)}
	}
	u := &upload{
		api: client, bucket: aws.ToString(in.Bucket), key: aws.ToString(in.Key), path: path, mode: info.Mode(),
		close: func() {}, read: sha256.New(),
	}
	defer func() { u.close() }()
	if g.through().Breaker.Ready() { // else it refuses, most likely, and a pipe can be read once
		if err := u.open(ctx); err != nil {
			return nil, err
		}
	}
	return open(ctx, g, target{op, u.bucket, u.key}, func(h *door.Handle) (*transfermanager.UploadObjectOutput, error) {
		if err := u.open(h.Context()); err != nil {
			return nil, err
		}
		return u.send(h, *in, optFns)
	})
}

// open opens the file, or a copy of what cannot be read twice.
func (u *upload) open(ctx context.Context) error {
	if u.file != nil {
		return nil
	}
	file, err := openWithin(ctx, u.path, u.mode)
	if err != nil {
		return &localError{fmt.Errorf("objectstore: cannot upload: %w", err)}
	}
	if seeks(file) {
		u.file, u.close = file, func() { _ = file.Close() }
		return nil
	}
	defer file.Close()
	s, err := within(ctx, file, toFile)
	if err != nil {
		return err
	}
	u.file, u.close = s.Reader.(*os.File), s.remove
	return nil
}

// UploadFile is [Guard.UploadFile] through [resilience.S3].
func UploadFile(
	ctx context.Context, client Uploader, in *transfermanager.UploadObjectInput, path string,
	optFns ...func(*transfermanager.Options),
) (*transfermanager.UploadObjectOutput, error) {
	return Guard{}.UploadFile(ctx, client, in, path, optFns...)
}

// upload is the S3 client and the body that the transfer manager sees.
type upload struct {
	transfermanager.S3APIClient // nil: an upload calls none of the other methods

	api         Uploader
	h           *door.Handle
	bucket, key string
	path        string
	mode        fs.FileMode
	file        *os.File // nil until it is open
	close       func()
	size        int64
	sum         string    // the file's SHA-256 before it was sent
	read        hash.Hash // of what was sent

	abortTimeout time.Duration

	mu    sync.Mutex
	first error
	ended *uploadError // what the manager does not know of its failure
}

func (u *upload) hash() error {
	h := sha256.New()
	size, err := io.Copy(h, renewing{u.file, u.h})
	if err == nil {
		_, err = u.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return &localError{fmt.Errorf("objectstore: cannot read the file to upload: %w", err)}
	}
	u.size = size
	u.sum = hex.EncodeToString(h.Sum(nil))
	return nil
}

func (u *upload) send(
	h *door.Handle, in transfermanager.UploadObjectInput, optFns []func(*transfermanager.Options),
) (*transfermanager.UploadObjectOutput, error) {
	u.h = h
	if err := u.hash(); err != nil {
		return nil, err
	}
	in.Body, in.ContentLength = u, nil
	in.Metadata = maps.Clone(in.Metadata)
	if in.Metadata == nil {
		in.Metadata = map[string]string{}
	}
	if in.Metadata[hashKey] == "" {
		in.Metadata[hashKey] = u.sum
	}
	optFns = append(append([]func(*transfermanager.Options){u.options}, optFns...), u.settings)
	out, err := transfermanager.New(u, optFns...).UploadObject(h.Context(), &in)
	failed := u.failed()
	if err = cmp.Or(err, failed); err == nil {
		return out, nil
	}
	if failed != nil { // the manager prefers others that came later
		h.End(left(h.Context(), failed))
	}
	return nil, u.whole(err)
}

// failed is the first error of the upload, which decides its outcome.
func (u *upload) failed() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.first
}

// whole is err, which the manager has or has not, with what else is known.
func (u *upload) whole(err error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended == nil {
		return err
	}
	u.ended.err = err
	return u.ended
}

// uploadError is the error of an upload in parts that the manager was not told
// of, or whose parts are still in the store.
type uploadError struct {
	id    string
	err   error // why it failed
	abort error // why its parts are still there; nil if they are not
}

func (e *uploadError) Error() string {
	text := fmt.Sprintf("objectstore: UploadFile: upload ID %s: %v", e.id, e.err)
	if e.abort == nil {
		return text
	}
	const advice = "its parts are still in the store; remove them with AbortMultipartUpload or a lifecycle rule"
	return fmt.Sprintf("%s; %s: %v", text, advice, e.abort)
}

// Unwrap returns why the upload failed, and not why the clean-up did.
func (e *uploadError) Unwrap() error { return e.err }

// UploadID is a method of the transfer manager's errors too.
func (e *uploadError) UploadID() string { return e.id }

// options gives the manager the client's own choice of checksums; it would
// override it with its own default.
func (u *upload) options(o *transfermanager.Options) {
	o.FailTimeout = abortTimeout
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	if c, ok := u.api.(interface{ Options() s3.Options }); ok {
		o.RequestChecksumCalculation = c.Options().RequestChecksumCalculation
	}
}

// settings come after the caller's.
func (u *upload) settings(o *transfermanager.Options) {
	u.abortTimeout = cmp.Or(max(o.FailTimeout, 0), abortTimeout)
	if l := &o.ObjectProgressListeners; len(l.ObjectTransferComplete)+len(l.ObjectTransferFailed) > 0 {
		l.ObjectTransferComplete = []transfermanager.ObjectTransferCompleteListener{&lastWord{u, l.Copy()}}
	}
}

// lastWord tells the caller's listeners how an upload ended that the manager
// takes for complete; see CompleteMultipartUpload.
type lastWord struct {
	u      *upload
	caller transfermanager.ObjectProgressListeners
}

// OnObjectTransferComplete is part of the manager's interface.
func (w *lastWord) OnObjectTransferComplete(
	ctx context.Context, e *transfermanager.ObjectTransferCompleteEvent,
) {
	err := w.u.failed()
	if err == nil {
		for _, l := range w.caller.ObjectTransferComplete {
			l.OnObjectTransferComplete(ctx, e)
		}
		return
	}
	for _, l := range w.caller.ObjectTransferFailed {
		l.OnObjectTransferFailed(ctx, &transfermanager.ObjectTransferFailedEvent{
			Input: e.Input, Error: err, BytesTransferred: e.BytesTransferred, TotalBytes: e.TotalBytes,
		})
	}
}

// Read is the file's, with its errors told apart from the store's.
func (u *upload) Read(p []byte) (int, error) {
	n, err := u.file.Read(p)
	u.read.Write(p[:n])
	if err != nil && err != io.EOF {
		err = &localError{err}
	}
	return n, err
}

// Seek lets the manager learn the size.
func (u *upload) Seek(offset int64, whence int) (int64, error) { return u.file.Seek(offset, whence) }

// unchanged says whether what was read is what was hashed before.
func (u *upload) unchanged() error {
	if hex.EncodeToString(u.read.Sum(nil)) != u.sum {
		return &localError{fmt.Errorf("objectstore: the file %q changed while it was uploaded", u.path)}
	}
	return nil
}

func (u *upload) note(err error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil && u.first == nil {
		u.first = err
	}
	return err
}

func (u *upload) PutObject(
	ctx context.Context, in *s3.PutObjectInput, optFns ...func(*s3.Options),
) (*s3.PutObjectOutput, error) {
	if err := u.unchanged(); err != nil {
		return nil, u.note(err)
	}
	out, err := putChecked(ctx, u.h, u.api, in, in.Body, once(optFns))
	return out, u.note(err)
}

func (u *upload) CreateMultipartUpload(
	ctx context.Context, in *s3.CreateMultipartUploadInput, optFns ...func(*s3.Options),
) (*s3.CreateMultipartUploadOutput, error) {
	out, err := u.api.CreateMultipartUpload(ctx, in, once(optFns)...)
	if err == nil && aws.ToString(out.UploadId) == "" { // the manager would panic
		err = u.broken("CreateMultipartUpload", "the answer is not one of S3: it names no upload")
	}
	return out, u.note(err)
}

func (u *upload) UploadPart(
	ctx context.Context, in *s3.UploadPartInput, optFns ...func(*s3.Options),
) (*s3.UploadPartOutput, error) {
	rs, ok := in.Body.(io.ReadSeeker)
	if !ok {
		out, err := u.api.UploadPart(ctx, in, once(optFns)...)
		return out, u.note(err)
	}
	sent, err := newSentBody(u.h, rs)
	if err != nil {
		return nil, u.note(err)
	}
	in.Body = sent
	out, err := u.api.UploadPart(ctx, in, once(optFns)...)
	if err != nil {
		return nil, u.note(err)
	}
	err = u.broken("UploadPart", noETag(out.ETag))
	if err == nil {
		differs := sent.compare(u.bucket, out.ETag, out.ServerSideEncryption, out.SSECustomerAlgorithm)
		err = u.broken("UploadPart", differs)
	}
	return out, u.note(err)
}

func (u *upload) broken(op, problem string) error { return target{op, u.bucket, u.key}.broken(problem) }

// CompleteMultipartUpload says of a failure too that it went well, since the
// manager writes of it to the standard logger. What went wrong is noted, and
// the parts are removed here.
func (u *upload) CompleteMultipartUpload(
	ctx context.Context, in *s3.CompleteMultipartUploadInput, optFns ...func(*s3.Options),
) (*s3.CompleteMultipartUploadOutput, error) {
	out, err := u.complete(ctx, in, optFns)
	if u.note(err) == nil {
		return out, nil
	}
	u.end(in.UploadId, nil)
	_, _ = u.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
		Bucket: in.Bucket, Key: in.Key, UploadId: in.UploadId,
		ExpectedBucketOwner: in.ExpectedBucketOwner, RequestPayer: in.RequestPayer,
	}, optFns...)
	return &s3.CompleteMultipartUploadOutput{}, nil
}

func (u *upload) end(id *string, abort error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = &uploadError{id: aws.ToString(id), abort: abort}
}

func (u *upload) complete(
	ctx context.Context, in *s3.CompleteMultipartUploadInput, optFns []func(*s3.Options),
) (*s3.CompleteMultipartUploadOutput, error) {
	if err := u.unchanged(); err != nil {
		return nil, err
	}
	out, err := u.api.CompleteMultipartUpload(ctx, in, flowing(u.h, once(optFns))...)
	if err == nil {
		err = u.broken("CompleteMultipartUpload", noETag(out.ETag))
	}
	if err != nil {
		return out, err
	}
	whole := written{target{"CompleteMultipartUpload", u.bucket, u.key}, out.ETag, u.size}
	return out, whole.kept(ctx, u.api, s3.HeadObjectInput{
		VersionId: out.VersionId, ExpectedBucketOwner: in.ExpectedBucketOwner, RequestPayer: in.RequestPayer,
		SSECustomerAlgorithm: in.SSECustomerAlgorithm, SSECustomerKey: in.SSECustomerKey,
		SSECustomerKeyMD5: in.SSECustomerKeyMD5,
	}, once(optFns))
}

// AbortMultipartUpload says that it went well, since the manager would replace
// the upload's error by the text of both. It is a part of the call, which the
// manager's context for it does not know.
func (u *upload) AbortMultipartUpload(
	_ context.Context, in *s3.AbortMultipartUploadInput, optFns ...func(*s3.Options),
) (*s3.AbortMultipartUploadOutput, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.h.Context()), u.abortTimeout)
	defer cancel()
	out, err := u.api.AbortMultipartUpload(ctx, in, once(optFns)...)
	if err == nil || StatusCode(err) == http.StatusNotFound { // nothing is left of it
		return out, nil
	}
	u.end(in.UploadId, err)
	return &s3.AbortMultipartUploadOutput{}, nil
}
