// Package bucket is an object store for tests: a folder of this machine that
// fails, or is slow, on command.
package bucket

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/objectstore/filestore"
	"github.com/penstock-go/penstock/resilience"
)

type options = func(*s3.Options)

// Hook is told of an operation ("put", "get", "list" or "delete") and the key
// or prefix that it names, "" for "delete". Its error becomes the operation's.
// It may wait. It is called for several operations at the same time.
type Hook func(op, key string) error

// Fail is a hook that fails the operations named, or all where none is, with
// err.
func Fail(err error, ops ...string) Hook {
	return func(op, _ string) error {
		if len(ops) == 0 || slices.Contains(ops, op) {
			return err
		}
		return nil
	}
}

// Store is a filestore whose objects are as old as the test's clock says, that
// of a testing/synctest bubble included. It is safe for concurrent use.
type Store struct {
	*filestore.Store

	mu            sync.Mutex
	made          map[string]time.Time
	before, after Hook
}

// Open makes a store with these buckets, and closes it when the test ends.
func Open(t testing.TB, buckets ...string) *Store {
	t.Helper()
	store, err := filestore.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range buckets {
		if _, err := store.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(name)}); err != nil {
			t.Fatal(err)
		}
	}
	return &Store{Store: store, made: map[string]time.Time{}}
}

// On has before called before each operation, instead of it where it returns an
// error, and after when it has succeeded. Either may be nil.
func (s *Store) On(before, after Hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.after = before, after
}

// Heal forgets the hooks.
func (s *Store) Heal() { s.On(nil, nil) }

// between runs an operation between the hooks that hold at its begin and at its
// end; done is told of what it gave.
func between[T any](s *Store, op string, key *string, run func() (*T, error), done func(*T)) (*T, error) {
	if before, _ := s.hooks(); before != nil {
		if err := before(op, aws.ToString(key)); err != nil {
			return nil, err
		}
	}
	out, err := run()
	if err != nil {
		return nil, err
	}
	done(out)
	if _, after := s.hooks(); after != nil {
		err = after(op, aws.ToString(key))
	}
	return out, err
}

func (s *Store) hooks() (before, after Hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.before, s.after
}

// PutObject is filestore's, between the hooks of "put".
func (s *Store) PutObject(
	ctx context.Context, in *s3.PutObjectInput, o ...options,
) (*s3.PutObjectOutput, error) {
	put := func() (*s3.PutObjectOutput, error) { return s.Store.PutObject(ctx, in, o...) }
	return between(s, "put", in.Key, put, func(*s3.PutObjectOutput) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.made[*in.Key] = time.Now()
	})
}

// GetObject is filestore's, between the hooks of "get".
func (s *Store) GetObject(
	ctx context.Context, in *s3.GetObjectInput, o ...options,
) (*s3.GetObjectOutput, error) {
	get := func() (*s3.GetObjectOutput, error) { return s.Store.GetObject(ctx, in, o...) }
	return between(s, "get", in.Key, get, func(*s3.GetObjectOutput) {})
}

// DeleteObjects is filestore's, between the hooks of "delete".
func (s *Store) DeleteObjects(
	ctx context.Context, in *s3.DeleteObjectsInput, o ...options,
) (*s3.DeleteObjectsOutput, error) {
	remove := func() (*s3.DeleteObjectsOutput, error) { return s.Store.DeleteObjects(ctx, in, o...) }
	return between(s, "delete", nil, remove, func(*s3.DeleteObjectsOutput) {})
}

// ListObjectsV2 is filestore's, between the hooks of "list". What it lists was
// made at the times that the test's clock showed.
func (s *Store) ListObjectsV2(
	ctx context.Context, in *s3.ListObjectsV2Input, o ...options,
) (*s3.ListObjectsV2Output, error) {
	list := func() (*s3.ListObjectsV2Output, error) { return s.Store.ListObjectsV2(ctx, in, o...) }
	return between(s, "list", in.Prefix, list, s.age)
}

func (s *Store) age(page *s3.ListObjectsV2Output) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range page.Contents {
		made, ok := s.made[*page.Contents[i].Key]
		if !ok { // it was created this instant
			made = time.Now()
		}
		page.Contents[i].LastModified = aws.Time(made)
	}
}

// Put stores a text.
func Put(t testing.TB, store objectstore.Writer, bucket, key, text string) {
	t.Helper()
	in := &s3.PutObjectInput{Bucket: aws.String(bucket), Key: aws.String(key), Body: strings.NewReader(text)}
	if _, err := store.PutObject(t.Context(), in); err != nil {
		t.Fatalf("s3://%s/%s: %v", bucket, key, err)
	}
}

// Keys lists the keys of a bucket that begin with prefix, at most a page of
// them.
func Keys(t testing.TB, store objectstore.Reader, bucket, prefix string) (keys []string) {
	t.Helper()
	in := &s3.ListObjectsV2Input{Bucket: aws.String(bucket), Prefix: aws.String(prefix)}
	page, err := store.ListObjectsV2(t.Context(), in)
	if err != nil {
		t.Fatalf("s3://%s/%s: %v", bucket, prefix, err)
	}
	for _, object := range page.Contents {
		keys = append(keys, *object.Key)
	}
	return keys
}

// Client is a client of a real object store, with a breaker of the test's own
// for what goes through no door.
func Client(t testing.TB, at upstreams.S3) *s3.Client {
	t.Helper()
	client, err := objectstore.NewClient(t.Context(), objectstore.Config{
		Endpoint: at.Endpoint, Region: at.Region, AccessKeyID: at.AccessKey, SecretAccessKey: at.SecretKey,
		Breaker: Guard(t).Breaker,
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Guard has a breaker of the test's own, which opens after a thousand failures.
func Guard(t testing.TB) objectstore.Guard {
	t.Helper()
	b, err := resilience.New(t.Name(), resilience.Config{FailMax: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return objectstore.Guard{Breaker: b}
}
