package filestore

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

const (
	defaultType = "application/octet-stream"
	maxMetadata = 2 << 10 // bytes of names and values together, as in S3
)

// CreateBucket creates the bucket's folder. It returns
// *types.BucketAlreadyOwnedByYou (409) for an existing bucket.
func (s *Store) CreateBucket(
	ctx context.Context, in *s3.CreateBucketInput, _ ...func(*s3.Options),
) (*s3.CreateBucketOutput, error) {
	const op = "CreateBucket"
	if err := ctxDone(ctx, op); err != nil {
		return nil, err
	}
	name := aws.ToString(in.Bucket)
	if !bucketName.MatchString(name) {
		return nil, s.bucket(op, name)
	}
	err := s.root.Mkdir(name, 0o755)
	if err == nil {
		err = s.syncFolder(".")
	}
	if errors.Is(err, fs.ErrExist) {
		return nil, answered(op, 409, &types.BucketAlreadyOwnedByYou{Message: aws.String("the bucket exists already")})
	}
	if err != nil {
		return nil, diskFailure(op, err)
	}
	return &s3.CreateBucketOutput{Location: aws.String("/" + name)}, nil
}

// HeadBucket reports a bucket that does not exist as *types.NotFound (404).
func (s *Store) HeadBucket(
	ctx context.Context, in *s3.HeadBucketInput, _ ...func(*s3.Options),
) (*s3.HeadBucketOutput, error) {
	const op = "HeadBucket"
	if err := ctxDone(ctx, op); err != nil {
		return nil, err
	}
	if err := s.bucket(op, aws.ToString(in.Bucket)); err != nil {
		return nil, err
	}
	return &s3.HeadBucketOutput{}, nil
}

// PutObject stores the whole body or nothing. IfNoneMatch accepts only "*"; a
// failed condition is 412 PreconditionFailed.
func (s *Store) PutObject(
	ctx context.Context, in *s3.PutObjectInput, _ ...func(*s3.Options),
) (*s3.PutObjectOutput, error) {
	const op = "PutObject"
	if err := ctxDone(ctx, op); err != nil {
		return nil, err
	}
	final, err := s.object(op, aws.ToString(in.Bucket), aws.ToString(in.Key))
	if err != nil {
		return nil, err
	}
	if err := checkWrite(op, in.Metadata, in.IfNoneMatch); err != nil {
		return nil, err
	}
	d, err := s.newDraft()
	if err != nil {
		return nil, diskFailure(op, err)
	}
	defer d.discard()
	if err := fillFrom(ctx, op, d, in); err != nil {
		return nil, err
	}
	r := recordOf(in, d)
	if err := s.commit(op, d, r, final, condition{in.IfMatch, in.IfNoneMatch}); err != nil {
		return nil, err
	}
	return &s3.PutObjectOutput{ETag: aws.String(r.ETag), Size: aws.Int64(r.Size)}, nil
}

func fillFrom(ctx context.Context, op string, d *draft, in *s3.PutObjectInput) error {
	if err := fill(ctx, op, d, in.Body); err != nil {
		return err
	}
	if in.ContentLength != nil && *in.ContentLength != d.size {
		return failure(op, 400, "IncompleteBody",
			fmt.Sprintf("the body has %d bytes where %d were announced", d.size, *in.ContentLength))
	}
	return checkMD5(op, d, in.ContentMD5)
}

func fill(ctx context.Context, op string, d *draft, body io.Reader) error {
	err := d.fill(ctx, body)
	if own := (*bodyError)(nil); errors.As(err, &own) {
		return local(op, own.err)
	}
	if err != nil {
		return diskFailure(op, err)
	}
	return nil
}

func checkMD5(op string, d *draft, want *string) error {
	if want == nil {
		return nil
	}
	sum, err := base64.StdEncoding.DecodeString(*want)
	if err != nil || len(sum) != md5.Size {
		return failure(op, 400, "InvalidDigest", "Content-MD5 is not the base64 of 16 bytes")
	}
	if string(sum) != string(d.sum.Sum(nil)) {
		return failure(op, 400, "BadDigest", "the body does not have the Content-MD5 that was given")
	}
	return nil
}

func checkWrite(op string, metadata map[string]string, ifNoneMatch *string) error {
	if ifNoneMatch != nil && *ifNoneMatch != "*" {
		return failure(op, 501, "NotImplemented", `If-None-Match takes "*" alone on a write`)
	}
	total := 0
	for k, v := range metadata {
		total += len(k) + len(v)
		if !headerText(k) || !headerText(v) {
			return failure(op, 400, "InvalidArgument",
				fmt.Sprintf("the metadata %q is not printable ASCII; percent-encode it", k))
		}
	}
	if total > maxMetadata {
		return failure(op, 400, "MetadataTooLarge",
			fmt.Sprintf("the metadata has %d bytes, the most is %d", total, maxMetadata))
	}
	return nil
}

func headerText(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

func recordOf(in *s3.PutObjectInput, d *draft) record {
	return record{
		Key:                aws.ToString(in.Key),
		Size:               d.size,
		ETag:               `"` + d.md5() + `"`,
		ContentType:        orDefault(in.ContentType),
		ContentEncoding:    aws.ToString(in.ContentEncoding),
		ContentDisposition: aws.ToString(in.ContentDisposition),
		ContentLanguage:    aws.ToString(in.ContentLanguage),
		CacheControl:       aws.ToString(in.CacheControl),
		Metadata:           lowerKeys(in.Metadata),
	}
}

func orDefault(contentType *string) string {
	if t := aws.ToString(contentType); t != "" {
		return t
	}
	return defaultType
}

// lowerKeys changes metadata names as HTTP headers do.
func lowerKeys(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[strings.ToLower(k)] = strings.TrimSpace(v)
	}
	return out
}

// openObject opens the object's file, or returns op's error for a missing key.
func (s *Store) openObject(op, final, key string) (*os.File, record, error) {
	f, err := s.root.Open(final)
	if errors.Is(err, fs.ErrNotExist) {
		if op == "HeadObject" { // a HEAD has no body to say more
			return nil, record{}, answered(op, 404, &types.NotFound{Message: aws.String("Not Found")})
		}
		return nil, record{}, noSuchKey(op, key)
	}
	if err != nil {
		return nil, record{}, diskFailure(op, err)
	}
	r, err := readRecord(f)
	if err != nil {
		_ = f.Close()
		return nil, record{}, diskFailure(op, err)
	}
	return f, r, nil
}

// read is the request of HeadObject, GetObject and CopyObject for an object.
type read struct {
	op, bucket, key             string
	ifMatch, ifNoneMatch        *string
	modifiedSince, unmodifSince *time.Time
	byteRange                   *string
}

// open returns the object and the requested bytes.
func (s *Store) open(ctx context.Context, q read) (*os.File, record, span, error) {
	if err := ctxDone(ctx, q.op); err != nil {
		return nil, record{}, span{}, err
	}
	final, err := s.object(q.op, q.bucket, q.key)
	if err != nil {
		return nil, record{}, span{}, err
	}
	f, r, err := s.openObject(q.op, final, q.key)
	if err != nil {
		return nil, record{}, span{}, err
	}
	if err = q.check(r); err == nil {
		var b span
		if b, err = parseRange(q.op, aws.ToString(q.byteRange), r.Size); err == nil {
			return f, r, b, nil
		}
	}
	_ = f.Close()
	return nil, record{}, span{}, err
}

// check applies the conditions in the order of RFC 9110.
func (q read) check(r record) error {
	switch {
	case q.ifMatch != nil && !matches(*q.ifMatch, r.ETag),
		q.ifMatch == nil && q.unmodifSince != nil && r.modified.After(*q.unmodifSince):
		return preconditionFailed(q.op)
	case q.ifNoneMatch != nil && matches(*q.ifNoneMatch, r.ETag),
		q.ifNoneMatch == nil && q.modifiedSince != nil && !r.modified.After(*q.modifiedSince):
		return notModified(q.op)
	}
	return nil
}

// matches reports whether a list of ETags, quoted or not, or "*" covers etag.
func matches(list, etag string) bool {
	for one := range strings.SplitSeq(list, ",") {
		one = strings.TrimPrefix(strings.TrimSpace(one), "W/")
		if one == "*" || strings.Trim(one, `"`) == strings.Trim(etag, `"`) {
			return true
		}
	}
	return false
}

// HeadObject reports a missing key as *types.NotFound (404), as S3 does: an
// answer to a HEAD has no body that could say more.
func (s *Store) HeadObject(
	ctx context.Context, in *s3.HeadObjectInput, _ ...func(*s3.Options),
) (*s3.HeadObjectOutput, error) {
	out, err := s.get(ctx, "HeadObject", &s3.GetObjectInput{
		Bucket: in.Bucket, Key: in.Key, IfMatch: in.IfMatch, IfNoneMatch: in.IfNoneMatch,
		IfModifiedSince: in.IfModifiedSince, IfUnmodifiedSince: in.IfUnmodifiedSince, Range: in.Range,
	})
	if err != nil {
		return nil, err
	}
	_ = out.Body.Close()
	return &s3.HeadObjectOutput{
		AcceptRanges: out.AcceptRanges, ContentLength: out.ContentLength, ContentRange: out.ContentRange,
		ContentType: out.ContentType, ContentEncoding: out.ContentEncoding,
		ContentDisposition: out.ContentDisposition, ContentLanguage: out.ContentLanguage,
		CacheControl: out.CacheControl, ETag: out.ETag, LastModified: out.LastModified, Metadata: out.Metadata,
	}, nil
}

// GetObject returns the object's bytes, or those of in.Range. The body keeps a
// file open until it is closed, and keeps reading the version it was opened on.
func (s *Store) GetObject(
	ctx context.Context, in *s3.GetObjectInput, _ ...func(*s3.Options),
) (*s3.GetObjectOutput, error) {
	return s.get(ctx, "GetObject", in)
}

func (s *Store) get(ctx context.Context, op string, in *s3.GetObjectInput) (*s3.GetObjectOutput, error) {
	f, r, b, err := s.open(ctx, read{
		op: op, bucket: aws.ToString(in.Bucket), key: aws.ToString(in.Key),
		ifMatch: in.IfMatch, ifNoneMatch: in.IfNoneMatch,
		modifiedSince: in.IfModifiedSince, unmodifSince: in.IfUnmodifiedSince, byteRange: in.Range,
	})
	if err != nil {
		return nil, err
	}
	return &s3.GetObjectOutput{
		Body:               &objectBody{ctx: ctx, SectionReader: io.NewSectionReader(f, b.start, b.length), file: f},
		AcceptRanges:       aws.String("bytes"),
		ContentLength:      aws.Int64(b.length),
		ContentRange:       b.header(r.Size),
		ContentType:        aws.String(r.ContentType),
		ContentEncoding:    optional(r.ContentEncoding),
		ContentDisposition: optional(r.ContentDisposition),
		ContentLanguage:    optional(r.ContentLanguage),
		CacheControl:       optional(r.CacheControl),
		ETag:               aws.String(r.ETag),
		LastModified:       aws.Time(r.modified),
		Metadata:           r.Metadata,
	}, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// objectBody fails once the call's context is done, as a body from the network
// does.
type objectBody struct {
	ctx context.Context
	*io.SectionReader
	file *os.File
}

func (b *objectBody) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.SectionReader.Read(p)
}

func (b *objectBody) Close() error { return b.file.Close() }

// DeleteObject succeeds for a missing key, as in S3.
func (s *Store) DeleteObject(
	ctx context.Context, in *s3.DeleteObjectInput, _ ...func(*s3.Options),
) (*s3.DeleteObjectOutput, error) {
	const op = "DeleteObject"
	if err := ctxDone(ctx, op); err != nil {
		return nil, err
	}
	if err := s.remove(op, aws.ToString(in.Bucket), aws.ToString(in.Key), in.IfMatch); err != nil {
		return nil, err
	}
	return &s3.DeleteObjectOutput{}, nil
}

func (s *Store) remove(op, bucket, key string, ifMatch *string) error {
	final, err := s.object(op, bucket, key)
	if err != nil {
		return err
	}
	mu := s.lock(final)
	mu.Lock()
	defer mu.Unlock()
	if err := s.checkMatch(op, final, key, ifMatch); err != nil {
		return err
	}
	err = s.root.Remove(final)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = s.syncFolder(path.Dir(final))
	}
	if err != nil {
		return diskFailure(op, err)
	}
	s.prune(path.Dir(final), bucket)
	return nil
}

// prune removes the folders that a deleted object left empty, up to its bucket.
func (s *Store) prune(dir, bucket string) {
	for dir != bucket && s.root.Remove(dir) == nil {
		dir = path.Dir(dir)
	}
}

// DeleteObjects deletes up to 1,000 keys. Keys that could not be deleted are in
// the output's Errors.
func (s *Store) DeleteObjects(
	ctx context.Context, in *s3.DeleteObjectsInput, _ ...func(*s3.Options),
) (*s3.DeleteObjectsOutput, error) {
	const op = "DeleteObjects"
	if err := ctxDone(ctx, op); err != nil {
		return nil, err
	}
	if err := s.bucket(op, aws.ToString(in.Bucket)); err != nil {
		return nil, err
	}
	if in.Delete == nil || len(in.Delete.Objects) == 0 || len(in.Delete.Objects) > maxPage {
		return nil, failure(op, 400, "MalformedXML", "a call deletes 1 to 1,000 keys")
	}
	out := &s3.DeleteObjectsOutput{}
	for _, o := range in.Delete.Objects {
		if err := ctxDone(ctx, op); err != nil {
			return nil, err
		}
		err := s.remove(op, aws.ToString(in.Bucket), aws.ToString(o.Key), o.ETag)
		report(out, o.Key, err, aws.ToBool(in.Delete.Quiet))
	}
	return out, nil
}

func report(out *s3.DeleteObjectsOutput, key *string, err error, quiet bool) {
	if err != nil {
		code, message := apiError(err)
		out.Errors = append(out.Errors, types.Error{Key: key, Code: aws.String(code), Message: aws.String(message)})
		return
	}
	if !quiet {
		out.Deleted = append(out.Deleted, types.DeletedObject{Key: key})
	}
}

// CopyObject copies within this store. CopySource is "bucket/key",
// percent-encoded.
func (s *Store) CopyObject(
	ctx context.Context, in *s3.CopyObjectInput, _ ...func(*s3.Options),
) (*s3.CopyObjectOutput, error) {
	const op = "CopyObject"
	from, err := copySource(op, in)
	if err != nil {
		return nil, err
	}
	final, err := s.object(op, aws.ToString(in.Bucket), aws.ToString(in.Key))
	if err != nil {
		return nil, err
	}
	replace := in.MetadataDirective == types.MetadataDirectiveReplace
	if !replace && from.bucket == aws.ToString(in.Bucket) && from.key == aws.ToString(in.Key) {
		return nil, failure(op, 400, "InvalidRequest", "an object copied to itself must change its metadata")
	}
	if err := checkWrite(op, in.Metadata, in.IfNoneMatch); err != nil {
		return nil, err
	}
	f, r, _, err := s.open(ctx, from)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d, err := s.newDraft()
	if err != nil {
		return nil, diskFailure(op, err)
	}
	defer d.discard()
	if err := fill(ctx, op, d, io.NewSectionReader(f, 0, r.Size)); err != nil {
		return nil, err
	}
	to := copied(in, r, d, replace)
	if err := s.commit(op, d, to, final, condition{in.IfMatch, in.IfNoneMatch}); err != nil {
		return nil, err
	}
	return &s3.CopyObjectOutput{CopyObjectResult: &types.CopyObjectResult{
		ETag: aws.String(to.ETag), LastModified: aws.Time(time.Now().UTC().Truncate(time.Second)),
	}}, nil
}

func copySource(op string, in *s3.CopyObjectInput) (read, error) {
	source, _, _ := strings.Cut(aws.ToString(in.CopySource), "?")
	text, err := url.PathUnescape(strings.TrimPrefix(source, "/"))
	bucket, key, ok := strings.Cut(text, "/")
	if err != nil || !ok {
		return read{}, failure(op, 400, "InvalidArgument",
			fmt.Sprintf("the copy source %q is not bucket/key, percent-encoded", aws.ToString(in.CopySource)))
	}
	return read{
		op: op, bucket: bucket, key: key,
		ifMatch: in.CopySourceIfMatch, ifNoneMatch: in.CopySourceIfNoneMatch,
		modifiedSince: in.CopySourceIfModifiedSince, unmodifSince: in.CopySourceIfUnmodifiedSince,
	}, nil
}

func copied(in *s3.CopyObjectInput, from record, d *draft, replace bool) record {
	to := from
	if replace {
		to = recordOf(&s3.PutObjectInput{
			ContentType: in.ContentType, ContentEncoding: in.ContentEncoding,
			ContentDisposition: in.ContentDisposition, ContentLanguage: in.ContentLanguage,
			CacheControl: in.CacheControl, Metadata: in.Metadata,
		}, d)
	}
	to.Key, to.Size, to.ETag = aws.ToString(in.Key), d.size, `"`+d.md5()+`"`
	return to
}
