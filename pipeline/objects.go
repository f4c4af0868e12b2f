package pipeline

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/service"
)

const (
	// sourceMeta is the user metadata that names the document of an original,
	// percent-encoded: S3 takes ASCII only.
	sourceMeta = "penstock-source"
	// metadataBytes is how much of S3's 2 KB for user metadata is used; a
	// longer name goes into an object of its own.
	metadataBytes = 1536
)

// objects is the bucket that holds the originals, as one run calls it.
type objects struct {
	*scope
	service *service.Service
}

func (o *objects) call(operation string, fn func(objectstore.Guard) error) error {
	return o.service.CallObjects(o.ctx, operation, fn)
}

func (o *objects) headBucket() error {
	return o.call("head_bucket", func(guard objectstore.Guard) error {
		_, err := guard.HeadBucket(o.ctx, o.Objects, &s3.HeadBucketInput{Bucket: aws.String(o.Bucket)})
		return err
	})
}

func (o *objects) createBucket() error {
	return o.call("create_bucket", func(guard objectstore.Guard) error {
		_, err := guard.CreateBucket(o.ctx, o.Objects, &s3.CreateBucketInput{Bucket: aws.String(o.Bucket)})
		return err
	})
}

// keepOriginal puts the content of a document where it stays.
func (o *objects) keepOriginal(id, sha string, in parse.Input) error {
	defer o.timed("original")()
	metadata := map[string]string{}
	encoded := url.PathEscape(id)
	if len(encoded) <= metadataBytes {
		metadata[sourceMeta] = encoded
	} else if err := o.put(sourceKey(o.Prefix, id), strings.NewReader(id), nil); err != nil {
		return err
	}
	return o.put(originalKey(o.Prefix, id, sha), io.NewSectionReader(in.Content, 0, in.Size), metadata)
}

// put creates an object unless it is there: its key says what is in it.
func (o *objects) put(key string, body io.Reader, metadata map[string]string) error {
	err := o.call("put_object", func(guard objectstore.Guard) error {
		_, err := guard.PutObject(o.ctx, o.Objects, &s3.PutObjectInput{
			Bucket: aws.String(o.Bucket), Key: aws.String(key), Body: body,
			IfNoneMatch: aws.String("*"), Metadata: metadata,
		})
		return err
	})
	if err == nil || objectstore.StatusCode(err) == http.StatusPreconditionFailed {
		return nil
	}
	return o.end.Blame("original", err)
}

// deleteOriginals removes every version of a document's content and reports
// whether there was one.
func (o *objects) deleteOriginals(id string) (found bool, err error) {
	in := &s3.ListObjectsV2Input{Bucket: aws.String(o.Bucket), Prefix: aws.String(originalKey(o.Prefix, id, ""))}
	for {
		listing, err := o.list(in)
		if objectstore.StatusCode(err) == http.StatusNotFound {
			return found, nil // no bucket, so no original
		}
		if err == nil && len(listing.Contents) > 0 {
			found = true
			err = o.delete(listing.Contents)
		}
		if err != nil || !aws.ToBool(listing.IsTruncated) {
			return found, o.end.Blame("delete", err)
		}
		in.ContinuationToken = listing.NextContinuationToken
	}
}

func (o *objects) list(in *s3.ListObjectsV2Input) (listing *s3.ListObjectsV2Output, err error) {
	err = o.call("list_objects_v2", func(guard objectstore.Guard) (err error) {
		listing, err = guard.ListObjectsV2(o.ctx, o.Objects, in)
		return err
	})
	return listing, err
}

func (o *objects) delete(list []types.Object) error {
	ids := make([]types.ObjectIdentifier, len(list))
	for i, object := range list {
		ids[i].Key = object.Key
	}
	return o.call("delete_objects", func(guard objectstore.Guard) error {
		answer, err := guard.DeleteObjects(o.ctx, o.Objects, &s3.DeleteObjectsInput{
			Bucket: aws.String(o.Bucket), Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
		})
		if err == nil && len(answer.Errors) > 0 {
			one := answer.Errors[0]
			err = fmt.Errorf("%d originals could not be deleted, for example %s: %s",
				len(answer.Errors), aws.ToString(one.Key), aws.ToString(one.Message))
		}
		return err
	})
}
