package objectstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
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
// not become an object.
func (g Guard) UploadFile(
	ctx context.Context, client Uploader, in *transfermanager.UploadObjectInput, path string,
	optFns ...func(*transfermanager.Options),
) (*transfermanager.UploadObjectOutput, error) {
	const op = "UploadFile"
	if in.Body != nil {
		return nil, &InputError{op, "leave Body out, the file is the body"}
	}
	if err := checkMetadata(op, in.Metadata); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("objectstore: cannot upload: %w", err)
	}
	defer file.Close()
	u := &upload{
		api: client, bucket: aws.ToString(in.Bucket), key: aws.ToString(in.Key), file: file, read: sha256.New(),
	}
	return open(ctx, g, target{op, u.bucket, u.key}, func(h *door.Handle) (*transfermanager.UploadObjectOutput, error) {
		return u.send(h, *in, optFns)
	})
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
	file        *os.File
	size        int64
	sum         string    // the file's SHA-256 before it was sent
	read        hash.Hash // of what was sent

	mu    sync.Mutex
	first error
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
	manager := transfermanager.New(u, append([]func(*transfermanager.Options){u.options}, optFns...)...)
	out, err := manager.UploadObject(h.Context(), &in)
	if err == nil {
		return out, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.first != nil { // the manager keeps only its text if the clean-up fails too
		h.End(u.first)
	}
	return nil, err
}

// options gives the manager the client's own choice of checksums; it would
// override it with its own default.
func (u *upload) options(o *transfermanager.Options) {
	o.FailTimeout = abortTimeout
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	if c, ok := u.api.(interface{ Options() s3.Options }); ok {
		o.RequestChecksumCalculation = c.Options().RequestChecksumCalculation
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
		return &localError{fmt.Errorf("objectstore: the file %q changed while it was uploaded", u.file.Name())}
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

func (u *upload) CompleteMultipartUpload(
	ctx context.Context, in *s3.CompleteMultipartUploadInput, optFns ...func(*s3.Options),
) (*s3.CompleteMultipartUploadOutput, error) {
	if err := u.unchanged(); err != nil {
		return nil, u.note(err)
	}
	out, err := u.api.CompleteMultipartUpload(ctx, in, once(optFns)...)
	if err == nil {
		err = u.broken("CompleteMultipartUpload", noETag(out.ETag))
	}
	if err == nil {
		whole := written{target{"CompleteMultipartUpload", u.bucket, u.key}, out.ETag, u.size}
		err = whole.kept(ctx, u.api, s3.HeadObjectInput{
			VersionId: out.VersionId, ExpectedBucketOwner: in.ExpectedBucketOwner, RequestPayer: in.RequestPayer,
			SSECustomerAlgorithm: in.SSECustomerAlgorithm, SSECustomerKey: in.SSECustomerKey,
			SSECustomerKeyMD5: in.SSECustomerKeyMD5,
		}, once(optFns))
	}
	return out, u.note(err)
}

func (u *upload) AbortMultipartUpload(
	ctx context.Context, in *s3.AbortMultipartUploadInput, optFns ...func(*s3.Options),
) (*s3.AbortMultipartUploadOutput, error) {
	return u.api.AbortMultipartUpload(ctx, in, once(optFns)...)
}
