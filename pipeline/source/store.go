package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// store is the object store that s3 addresses are read from.
type store struct {
	options Options

	mu     sync.Mutex
	reader ObjectReader // once it is open
}

func (s *store) open(ctx context.Context) (ObjectReader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader != nil {
		return s.reader, nil
	}
	if s.options.Objects == nil {
		return nil, unusable(errors.New("no object store is configured"))
	}
	reader, err := s.options.Objects(ctx)
	if err != nil {
		return nil, unusable(err)
	}
	s.reader = reader
	return reader, nil
}

// unusable is the stop of a run for a store that cannot be called as it is
// configured.
func unusable(err error) error {
	return &stop.Error{Kind: stop.Configuration, Upstream: service.ObjectStore, Err: err}
}

// root prepares an s3 address; rest is the part after the scheme.
func (s *store) root(input, rest string) root {
	bucket, prefix, _ := strings.Cut(rest, "/")
	if bucket == "" {
		return root{input: input, err: errors.New("an s3 address has the form s3://bucket/prefix")}
	}
	return root{input: input, remote: &objects{store: s, bucket: bucket, prefix: prefix}}
}

// objects are the documents of a bucket that are at a key or below it.
type objects struct {
	store          *store
	bucket, prefix string
}

func (o *objects) key() string { return o.location(strings.TrimSuffix(o.prefix, "/")) }

func (o *objects) location(key string) string { return "s3://" + o.bucket + "/" + key }

// below reports whether a key is the input itself or below it: docs-old is not
// below docs.
func (o *objects) below(key string) bool {
	folder := strings.TrimSuffix(o.prefix, "/")
	return folder == "" || key == o.prefix || strings.HasPrefix(key, folder+"/")
}

func (o *objects) covers(location string) bool {
	key, ok := strings.CutPrefix(location, o.location(""))
	return ok && o.below(key)
}

func (o *objects) excluded(key string) bool {
	if strings.HasSuffix(key, "/") {
		return true
	}
	for _, place := range o.store.options.ExcludeObjects {
		if strings.HasPrefix(o.bucket+"/"+key, place) {
			return true
		}
	}
	return false
}

// list reads the listing page by page. A page that cannot be read ends it.
func (o *objects) list(w *walker) (more bool) {
	reader, err := o.store.open(w.ctx)
	if err != nil {
		return w.yield(Item{}, err)
	}
	in := &s3.ListObjectsV2Input{Bucket: aws.String(o.bucket), Prefix: aws.String(o.prefix)}
	for before := w.matches; ; {
		page, err := o.store.listPage(w.ctx, reader, in)
		if err != nil {
			return w.yield(Item{}, fmt.Errorf("cannot list %s: %w", o.key(), err))
		}
		if !o.page(w, page.Contents) {
			return false
		}
		if !aws.ToBool(page.IsTruncated) {
			return w.matches > before || w.yield(Item{}, &EmptyError{Input: o.location(o.prefix)})
		}
		in.ContinuationToken = page.NextContinuationToken
	}
}

func (s *store) listPage(
	ctx context.Context, reader ObjectReader, in *s3.ListObjectsV2Input,
) (page *s3.ListObjectsV2Output, err error) {
	err = s.call(ctx, "list_objects_v2", func(guard objectstore.Guard) (err error) {
		page, err = guard.ListObjectsV2(ctx, reader, in)
		return err
	})
	return page, err
}

// call is one call of the object store; its error is a *stop.CallError. A run
// that the store has stopped makes no more.
func (s *store) call(ctx context.Context, operation string, fn func(objectstore.Guard) error) error {
	if ended := stop.EndOf(ctx); ended != nil && ended.Upstream == service.ObjectStore {
		return ended
	}
	return service.Objects(s.options.ObjectGuard).CallObjects(ctx, operation, fn)
}

func (o *objects) page(w *walker, list []types.Object) (more bool) {
	for _, object := range list {
		key := aws.ToString(object.Key)
		if !o.below(key) || o.excluded(key) {
			continue
		}
		item := o.item(identity(o.store.options.Prefix, o.location(key)), key)
		w.matches++
		if key != o.prefix {
			item.Input = o.location(o.prefix)
		}
		item.Size = aws.ToInt64(object.Size)
		version := versionOf(aws.ToString(object.ETag), item.Size)
		item.Version = func(context.Context) string { return version }
		item.Listed, item.Modified = version, aws.ToTime(object.LastModified)
		if !o.emit(w, item) {
			return false
		}
	}
	return true
}

// emit yields a document unless the name of one before it was another form of
// its own.
func (o *objects) emit(w *walker, item Item) (more bool) {
	if ascii(item.Location) {
		return w.emit(item)
	}
	item.Alias = identity(o.store.options.Prefix, alias(item.Location))
	if twin := w.form(item); twin != "" {
		return w.yield(Item{}, &CollisionError{ID: item.ID, First: twin, Second: item.Location, Alias: item.Alias})
	}
	return w.emit(item)
}

func (o *objects) again(id, location string) Item {
	return o.item(id, strings.TrimPrefix(location, o.location("")))
}

func (o *objects) item(id, key string) Item {
	open := func(ctx context.Context) (Content, error) { return o.read(ctx, key) }
	return Item{ID: id, Location: o.location(key), Size: -1, Upstream: "s3", Open: open}
}

func (o *objects) read(ctx context.Context, key string) (Content, error) {
	reader, err := o.store.open(ctx)
	if err != nil {
		return nil, err
	}
	var content *spooled
	var etag string
	var local error // of this machine's disk, which is no verdict on the store
	var gone error
	err = o.store.call(ctx, "get_object", func(guard objectstore.Guard) error {
		in := &s3.GetObjectInput{Bucket: aws.String(o.bucket), Key: aws.String(key)}
		answer, err := guard.GetObject(ctx, reader, in)
		if missing, ok := errors.AsType[*types.NoSuchKey](err); ok {
			gone = fmt.Errorf("%w: %w", fs.ErrNotExist, missing)
			return nil
		}
		if err != nil {
			return err
		}
		etag = aws.ToString(answer.ETag)
		content, err = spool(answer.Body, 0)
		if closing := answer.Body.Close(); err == nil {
			err = closing
		}
		if _, disk := errors.AsType[*diskError](err); disk {
			local = err
			return nil
		}
		return err
	})
	if err := cmp.Or(gone, local, err); err != nil {
		return nil, err
	}
	content.version = versionOf(etag, content.size)
	content.current = func(ctx context.Context) (string, error) { return o.version(ctx, reader, key) }
	return content, nil
}

// version asks which content an object has now.
func (o *objects) version(ctx context.Context, reader ObjectReader, key string) (version string, err error) {
	err = o.store.call(ctx, "head_object", func(guard objectstore.Guard) error {
		in := &s3.HeadObjectInput{Bucket: aws.String(o.bucket), Key: aws.String(key)}
		answer, err := guard.HeadObject(ctx, reader, in)
		if err == nil {
			version = versionOf(aws.ToString(answer.ETag), aws.ToInt64(answer.ContentLength))
		}
		return err
	})
	if objectstore.StatusCode(err) == http.StatusNotFound {
		return "", fs.ErrNotExist
	}
	return version, err
}

// versionOf returns a version made of ETag and size, or "" without an ETag.
func versionOf(etag string, size int64) string {
	if etag == "" {
		return ""
	}
	return fmt.Sprintf("%s/%d", etag, size)
}
