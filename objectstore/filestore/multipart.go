package filestore

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// An upload is a folder with its record and one file per part. A part is stored
// like any object, so it has its ETag in its trailer.
const uploadRecord = "upload.json"

const maxParts = 10_000

var uploadID = regexp.MustCompile(`^[A-Z2-7]{26}$`)

type openUpload struct {
	Bucket string `json:"bucket"`
	Record record `json:"record"`
}

// CreateMultipartUpload begins an upload in parts.
func (s *Store) CreateMultipartUpload(
	ctx context.Context, in *s3.CreateMultipartUploadInput, _ ...func(*s3.Options),
) (*s3.CreateMultipartUploadOutput, error) {
	const op = "CreateMultipartUpload"
	if err := ctxDone(ctx, op); err != nil {
		return nil, err
	}
	if _, err := s.object(op, aws.ToString(in.Bucket), aws.ToString(in.Key)); err != nil {
		return nil, err
	}
	if err := checkWrite(op, in.Metadata, nil); err != nil {
		return nil, err
	}
	text, err := json.Marshal(openUpload{aws.ToString(in.Bucket), record{
		Key: aws.ToString(in.Key), ContentType: orDefault(in.ContentType),
		ContentEncoding: aws.ToString(in.ContentEncoding), ContentDisposition: aws.ToString(in.ContentDisposition),
		ContentLanguage: aws.ToString(in.ContentLanguage), CacheControl: aws.ToString(in.CacheControl),
		Metadata: lowerKeys(in.Metadata),
	}})
	id := rand.Text()
	if err == nil {
		err = s.root.Mkdir(path.Join(uploadsDir, id), 0o755)
	}
	if err == nil {
		err = s.root.WriteFile(path.Join(uploadsDir, id, uploadRecord), text, 0o644)
	}
	if err != nil {
		return nil, diskFailure(op, err)
	}
	return &s3.CreateMultipartUploadOutput{Bucket: in.Bucket, Key: in.Key, UploadId: aws.String(id)}, nil
}

// upload reads an upload's record. It must be one of that bucket and key.
func (s *Store) upload(ctx context.Context, op string, id, bucket, key *string) (openUpload, error) {
	var u openUpload
	if err := ctxDone(ctx, op); err != nil {
		return u, err
	}
	missing := answered(op, 404,
		&types.NoSuchUpload{Message: aws.String("the upload does not exist; it may have been aborted or completed")})
	if !uploadID.MatchString(aws.ToString(id)) {
		return u, missing
	}
	text, err := s.root.ReadFile(path.Join(uploadsDir, *id, uploadRecord))
	if errors.Is(err, fs.ErrNotExist) {
		return u, missing
	}
	if err == nil {
		err = json.Unmarshal(text, &u)
	}
	if err != nil {
		return u, diskFailure(op, err)
	}
	if u.Bucket != aws.ToString(bucket) || u.Record.Key != aws.ToString(key) {
		return u, missing
	}
	return u, nil
}

func partFile(id string, number int32) string {
	return path.Join(uploadsDir, id, fmt.Sprintf("%05d", number))
}

// UploadPart stores one part; one with the same number is replaced.
func (s *Store) UploadPart(
	ctx context.Context, in *s3.UploadPartInput, _ ...func(*s3.Options),
) (*s3.UploadPartOutput, error) {
	const op = "UploadPart"
	if _, err := s.upload(ctx, op, in.UploadId, in.Bucket, in.Key); err != nil {
		return nil, err
	}
	if n := aws.ToInt32(in.PartNumber); n < 1 || n > maxParts {
		return nil, failure(op, 400, "InvalidArgument",
			fmt.Sprintf("the part number %d is not between 1 and %d", n, maxParts))
	}
	d, err := s.newDraft()
	if err != nil {
		return nil, diskFailure(op, err)
	}
	defer d.discard()
	if err := fill(ctx, op, d, in.Body); err != nil {
		return nil, err
	}
	if err := checkMD5(op, d, in.ContentMD5); err != nil {
		return nil, err
	}
	r := record{Key: aws.ToString(in.Key), Size: d.size, ETag: `"` + d.md5() + `"`}
	if err := d.seal(r); err != nil {
		return nil, diskFailure(op, err)
	}
	if err := s.root.Rename(d.name, partFile(*in.UploadId, *in.PartNumber)); err != nil {
		return nil, diskFailure(op, err)
	}
	return &s3.UploadPartOutput{ETag: aws.String(r.ETag)}, nil
}

// CompleteMultipartUpload creates the object from the parts, which the input
// must list in order. Parts have no minimum size.
func (s *Store) CompleteMultipartUpload(
	ctx context.Context, in *s3.CompleteMultipartUploadInput, _ ...func(*s3.Options),
) (*s3.CompleteMultipartUploadOutput, error) {
	const op = "CompleteMultipartUpload"
	u, err := s.upload(ctx, op, in.UploadId, in.Bucket, in.Key)
	if err != nil {
		return nil, err
	}
	if err := checkWrite(op, nil, in.IfNoneMatch); err != nil {
		return nil, err
	}
	final, err := s.object(op, u.Bucket, u.Record.Key)
	if err != nil {
		return nil, err
	}
	d, err := s.newDraft()
	if err != nil {
		return nil, diskFailure(op, err)
	}
	defer d.discard()
	r := u.Record
	if r.ETag, err = s.join(ctx, op, d, in); err != nil {
		return nil, err
	}
	r.Size = d.size
	if err := s.commit(op, d, r, final, condition{in.IfMatch, in.IfNoneMatch}); err != nil {
		return nil, err
	}
	_ = s.root.RemoveAll(path.Join(uploadsDir, *in.UploadId)) // what stays is swept later
	return &s3.CompleteMultipartUploadOutput{Bucket: in.Bucket, Key: in.Key, ETag: aws.String(r.ETag)}, nil
}

// join copies the parts into d and returns their common ETag.
func (s *Store) join(ctx context.Context, op string, d *draft, in *s3.CompleteMultipartUploadInput) (string, error) {
	if in.MultipartUpload == nil || len(in.MultipartUpload.Parts) == 0 {
		return "", failure(op, 400, "MalformedXML", "an upload is completed with at least one part")
	}
	sums, last := md5.New(), int32(0)
	for _, p := range in.MultipartUpload.Parts {
		if aws.ToInt32(p.PartNumber) <= last {
			return "", failure(op, 400, "InvalidPartOrder", "the parts must be listed in ascending order")
		}
		last = *p.PartNumber
		if err := s.joinPart(ctx, op, d, *in.UploadId, p, sums); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%q", fmt.Sprintf("%x-%d", sums.Sum(nil), len(in.MultipartUpload.Parts))), nil
}

func (s *Store) joinPart(
	ctx context.Context, op string, d *draft, id string, p types.CompletedPart, sums io.Writer,
) error {
	invalid := failure(op, 400, "InvalidPart",
		fmt.Sprintf("the part %d was not uploaded, or has another ETag", *p.PartNumber))
	f, err := s.root.OpenFile(partFile(id, *p.PartNumber), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return invalid
	}
	if err != nil {
		return diskFailure(op, err)
	}
	defer f.Close()
	r, err := readRecord(f)
	if err != nil {
		return diskFailure(op, err)
	}
	if strings.Trim(aws.ToString(p.ETag), `"`) != strings.Trim(r.ETag, `"`) {
		return invalid
	}
	sum, err := hex.DecodeString(strings.Trim(r.ETag, `"`))
	if err != nil {
		return diskFailure(op, err)
	}
	_, _ = sums.Write(sum) // a hash takes everything
	return fill(ctx, op, d, io.NewSectionReader(f, 0, r.Size))
}

// AbortMultipartUpload deletes the parts.
func (s *Store) AbortMultipartUpload(
	ctx context.Context, in *s3.AbortMultipartUploadInput, _ ...func(*s3.Options),
) (*s3.AbortMultipartUploadOutput, error) {
	const op = "AbortMultipartUpload"
	if _, err := s.upload(ctx, op, in.UploadId, in.Bucket, in.Key); err != nil {
		return nil, err
	}
	if err := s.root.RemoveAll(path.Join(uploadsDir, *in.UploadId)); err != nil {
		return nil, diskFailure(op, err)
	}
	return &s3.AbortMultipartUploadOutput{}, nil
}
