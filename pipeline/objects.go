package pipeline

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

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
	shelf   shelf       // of this destination; set once its collection is known
	fresh   func() bool // the collection was made by this run
	lost    func() (bool, error)
	old     func() (bool, error)
}

func newObjects(s *scope, objectStore *service.Service, fresh func() bool) *objects {
	o := &objects{scope: s, service: objectStore, fresh: fresh}
	o.lost, o.old = sync.OnceValues(o.journalLost), sync.OnceValues(o.hasOld)
	return o
}

// use says which collection, by ID, the originals belong to.
func (o *objects) use(collection string) { o.shelf = newShelf(o.Prefix, o.Destination, collection) }

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

// keepOriginal puts the content of a document where it stays, unless it is
// there.
func (o *objects) keepOriginal(id, sha string, in parse.Input) error {
	defer o.timed("original")()
	return o.keep(id, sha, in)
}

func (o *objects) keep(id, sha string, in parse.Input) error {
	key := o.shelf.original(id, sha)
	ask, err := o.mayHave(id, sha)
	if err != nil {
		return err
	}
	size := int64(absent)
	if ask {
		if size, err = o.size(key); err != nil || size == in.Size {
			return err
		}
	}
	if err := o.putName(id); err != nil {
		return err
	}
	return o.put(original(key, id, in), size == absent)
}

// mayHave reports whether an original may be there already, so that asking
// costs less than sending it: the journal names this content, of a run that
// failed or had another policy, or the journal was lost. New content is not
// asked about.
func (o *objects) mayHave(id, sha string) (bool, error) {
	if o.fresh() {
		return false, nil
	}
	done, ok, err := o.Journal.Document(o.ctx, o.Destination, id)
	if err != nil {
		return false, o.end.Fault(err)
	}
	if ok && done.SHA == sha {
		return true, nil
	}
	problem, ok, err := o.Journal.Problem(o.ctx, o.Destination, id)
	if err != nil {
		return false, o.end.Fault(err)
	}
	if ok && problem.SHA == sha {
		return true, nil
	}
	return o.lost()
}

// journalLost reports whether the journal knows no document of a collection
// that exists. It is asked before the first document is complete.
func (o *objects) journalLost() (bool, error) {
	totals, err := o.Journal.Totals(o.ctx, o.Destination)
	if err != nil {
		return false, o.end.Fault(err)
	}
	return totals.Documents == 0, nil
}

// absent is the size of an object that is not there.
const absent = -1

// size asks for the size of an object, by a listing of one key. HeadObject was
// tried and dropped: its answer has no body, so a store that fails could not
// say why.
func (o *objects) size(key string) (int64, error) {
	page, err := o.list(&s3.ListObjectsV2Input{
		Bucket: aws.String(o.Bucket), Prefix: aws.String(key), MaxKeys: aws.Int32(1),
	})
	if err != nil {
		return absent, o.end.Blame("original", err)
	}
	for _, found := range page.Contents {
		if aws.ToString(found.Key) == key {
			return aws.ToInt64(found.Size), nil
		}
	}
	return absent, nil
}

// putName keeps a name that is too long for metadata.
func (o *objects) putName(id string) error {
	if _, fits := nameMetadata(id); fits {
		return nil
	}
	return o.put(&s3.PutObjectInput{Key: aws.String(o.shelf.name(id)), Body: strings.NewReader(id)}, true)
}

// nameMetadata is the metadata that names a document, where it fits.
func nameMetadata(id string) (metadata map[string]string, fits bool) {
	encoded := url.PathEscape(id)
	if len(encoded) > metadataBytes {
		return nil, false
	}
	return map[string]string{sourceMeta: encoded}, true
}

// original is what is put for the content of a document.
func original(key, id string, in parse.Input) *s3.PutObjectInput {
	metadata, _ := nameMetadata(id)
	return &s3.PutObjectInput{
		Key: aws.String(key), Body: io.NewSectionReader(in.Content, 0, in.Size), Metadata: metadata,
	}
}

// put writes an object. With create one that exists stays as it is: its key
// says what is in it.
func (o *objects) put(in *s3.PutObjectInput, create bool) error {
	in.Bucket = aws.String(o.Bucket)
	if create {
		in.IfNoneMatch = aws.String("*")
	}
	err := o.call("put_object", func(guard objectstore.Guard) error {
		_, err := guard.PutObject(o.ctx, o.Objects, in)
		return err
	})
	if create && objectstore.StatusCode(err) == http.StatusPreconditionFailed {
		return nil
	}
	return o.end.Blame("original", err)
}

// deleteOriginals removes every version of a document's content that belongs to
// this destination and reports whether there was one.
func (o *objects) deleteOriginals(id string) (found bool, err error) {
	return o.deleteFolder(o.shelf.folder(id))
}

// deleteFolder removes the objects whose keys begin with folder and reports
// whether there was one.
func (o *objects) deleteFolder(folder string) (found bool, err error) {
	in := &s3.ListObjectsV2Input{Prefix: aws.String(folder)}
	err = o.pages("delete", in, func(page *s3.ListObjectsV2Output) error {
		if len(page.Contents) == 0 {
			return nil
		}
		found = true
		return o.end.Blame("delete", o.delete(page.Contents))
	})
	return found, err
}

// adopt copies an original of a document from the old shelf to that of this
// destination, and reports whether it was still there.
func (o *objects) adopt(id, sha string) (found bool, err error) {
	if err := o.putName(id); err != nil {
		return false, err
	}
	from := url.URL{Path: o.Bucket + "/" + oldShelf(o.Prefix).original(id, sha)}
	err = o.call("copy_object", func(guard objectstore.Guard) error {
		_, err := guard.CopyObject(o.ctx, o.Objects, &s3.CopyObjectInput{
			Bucket: aws.String(o.Bucket), Key: aws.String(o.shelf.original(id, sha)),
			CopySource: aws.String(from.EscapedPath()),
		})
		return err
	})
	if objectstore.StatusCode(err) == http.StatusNotFound {
		return false, nil
	}
	return err == nil, o.end.Blame("original", err)
}

// hashOf reads an object and gives the SHA-256 of its content in hex; empty for
// one that is not there.
func (o *objects) hashOf(key string) (sha string, err error) {
	h := sha256.New()
	err = o.read(key, func(body io.Reader, _ map[string]string) error {
		_, err := io.Copy(h, whileRunning{o.end, body})
		return err
	})
	if objectstore.StatusCode(err) == http.StatusNotFound {
		return "", nil
	}
	return hex.EncodeToString(h.Sum(nil)), o.end.Blame("verify", err)
}

// read gives the content and the metadata of an object to take.
func (o *objects) read(key string, take func(io.Reader, map[string]string) error) error {
	return o.call("get_object", func(guard objectstore.Guard) error {
		found, err := guard.GetObject(o.ctx, o.Objects, &s3.GetObjectInput{
			Bucket: aws.String(o.Bucket), Key: aws.String(key),
		})
		if err != nil {
			return err
		}
		err = take(found.Body, found.Metadata)
		return cmp.Or(err, found.Body.Close())
	})
}

// nameIn finds the document whose originals are in a folder; empty if they do
// not say.
func (o *objects) nameIn(folder string) (id string, err error) {
	page, err := o.list(&s3.ListObjectsV2Input{Bucket: aws.String(o.Bucket), Prefix: aws.String(folder)})
	if err != nil {
		return "", o.end.Blame("verify", err)
	}
	for _, object := range page.Contents {
		if aws.ToInt64(object.Size) == 0 { // damaged: no original is empty
			continue
		}
		key := aws.ToString(object.Key)
		err := o.read(key, func(body io.Reader, metadata map[string]string) (err error) {
			if id, err = url.PathUnescape(metadata[sourceMeta]); err == nil && key == folder+nameObject {
				id, err = readName(body)
			}
			return err
		})
		if err != nil || id != "" {
			return id, o.end.Blame("verify", err)
		}
	}
	return "", nil
}

// readName reads an object that holds a name.
func readName(body io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(body, 1<<16))
	return string(text), err
}

// countOld counts the originals of a document that belong to nobody, in the
// layout that did not name the destination.
func (o *objects) countOld(id string) (left int, err error) {
	if there, err := o.old(); err != nil || !there {
		return 0, err
	}
	in := &s3.ListObjectsV2Input{Prefix: aws.String(oldShelf(o.Prefix).folder(id))}
	err = o.pages("delete", in, func(page *s3.ListObjectsV2Output) error {
		left += len(page.Contents)
		return nil
	})
	return left, err
}

// hasOld reports whether the bucket holds any original of the earlier layout.
// It lists folders, and the first page nearly always tells.
func (o *objects) hasOld() (found bool, err error) {
	shelf := string(oldShelf(o.Prefix))
	in := &s3.ListObjectsV2Input{Prefix: aws.String(shelf), Delimiter: aws.String("/")}
	err = o.pages("list", in, func(page *s3.ListObjectsV2Output) error {
		for _, folder := range page.CommonPrefixes {
			name := strings.TrimSuffix(strings.TrimPrefix(aws.ToString(folder.Prefix), shelf), "/")
			if found = hashed(name) != (hash{}); found {
				return errEnough
			}
		}
		return nil
	})
	return found, err
}

// errEnough ends a listing whose rest does not matter.
var errEnough = errors.New("enough")

// pages lists the bucket page by page. A bucket that does not exist is empty.
func (o *objects) pages(stage string, in *s3.ListObjectsV2Input, take func(*s3.ListObjectsV2Output) error) error {
	in.Bucket = aws.String(o.Bucket)
	for {
		page, err := o.list(in)
		if objectstore.StatusCode(err) == http.StatusNotFound {
			return nil
		}
		if err != nil {
			return o.end.Blame(stage, err)
		}
		if err := take(page); err != nil {
			if errors.Is(err, errEnough) {
				return nil
			}
			return err
		}
		if !aws.ToBool(page.IsTruncated) {
			return nil
		}
		in.ContinuationToken = page.NextContinuationToken
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
