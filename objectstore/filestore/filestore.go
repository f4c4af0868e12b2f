// Package filestore keeps objects in a folder. It has the methods of the S3
// client, so it can be used wherever a door of package objectstore accepts a
// client.
//
//	store, err := filestore.Open(".penstock/objects")
//	defer store.Close()
//	_, err = store.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("docs")})
//	_, err = objectstore.PutObject(ctx, store, &s3.PutObjectInput{…})
//
// # Guarantees
//
//   - An object is one file: its bytes, unchanged, then a trailer with its
//     key, ETag, content type and metadata. It is written to a temporary file,
//     synced, and renamed. A process that is killed leaves the old object or
//     the new one, never a mixture and never half of one.
//   - IfNoneMatch "*" is a hard link, so of several writers, in one process or
//     in many, exactly one creates the object; the others get 412
//     PreconditionFailed.
//   - A reader keeps reading the version it opened, even if the key is written.
//   - Errors have the shape that the SDK gives them: errors.As finds
//     *smithy.OperationError, *awshttp.ResponseError with its status, and
//     *types.NoSuchKey, *types.NotFound, or a smithy.APIError with its code.
//   - ETags are the MD5 of the content, and for multipart uploads the MD5 of
//     the parts' MD5s with the number of parts, as in S3.
//   - Keys are any valid UTF-8 of 1 to 1,024 bytes without NUL: "..", "a//b",
//     a trailing slash and keys that differ only in case are all different
//     objects, on any file system. No key reaches outside the folder; access
//     goes through [os.Root], so a symbolic link does not either. The cost of
//     an operation grows with the square of the number of slashes in its key.
//
// All methods are safe for concurrent use, also by several processes over one
// folder on a local disk. IfMatch on a write is atomic within one process only.
//
// Versions, access lists, tags, encryption and storage classes are not kept:
// those fields of an input are ignored. Options for the SDK's client
// (optFns) have no meaning here and are ignored too.
package filestore

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"path"
	"regexp"
	"sync"
	"sync/atomic"
	"time"
)

// gocloud.dev/blob/fileblob was considered for this package and rejected. It
// renames without a sync, keeps the attributes in a second file that is
// written before the object (a kill between the two leaves new attributes
// over old bytes), tests for existence and renames afterwards (two writers
// may both "create"), makes ETags from time and size, and brings grpc and
// OpenTelemetry's SDK into every program that links it.

const (
	tempDir    = ".tmp"
	uploadsDir = ".uploads"

	staleTemp   = 24 * time.Hour
	staleUpload = 7 * 24 * time.Hour
)

// Store is an object store in a folder. Create one with [Open].
type Store struct {
	root  *os.Root
	seed  maphash.Seed
	locks [64]sync.Mutex // one of them orders the writes to a key
	last  atomic.Pointer[folder]
}

// Open opens the store in dir, which is created if missing. It removes
// temporary files that a killed process left at least a day ago, and multipart
// uploads abandoned for a week.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("filestore: cannot make the folder %q: %w", dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("filestore: cannot open the folder %q: %w", dir, err)
	}
	s := &Store{root: root, seed: maphash.MakeSeed()}
	for _, d := range []string{tempDir, uploadsDir} {
		if err := root.MkdirAll(d, 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("filestore: cannot write in the folder %q: %w", dir, err), root.Close())
		}
	}
	s.sweep(tempDir, staleTemp)
	s.sweep(uploadsDir, staleUpload)
	return s, nil
}

// Close closes the folder. Bodies that are still open stay readable.
func (s *Store) Close() error { return s.root.Close() }

// sweep removes abandoned files. Files that cannot be removed are left for the
// next sweep.
func (s *Store) sweep(dir string, age time.Duration) {
	entries, err := fs.ReadDir(s.root.FS(), dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > age {
			_ = s.root.RemoveAll(path.Join(dir, e.Name()))
		}
	}
}

func (s *Store) lock(name string) *sync.Mutex {
	return &s.locks[maphash.String(s.seed, name)%uint64(len(s.locks))]
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// bucket returns op's error if the bucket does not exist.
func (s *Store) bucket(op, name string) error {
	if !bucketName.MatchString(name) {
		return failure(op, 400, "InvalidBucketName",
			fmt.Sprintf("the bucket name %q is not 3 to 63 lower-case letters, digits, dots and hyphens", name))
	}
	info, err := s.root.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return noSuchBucket(op, name)
	case err != nil:
		return diskFailure(op, err)
	case !info.IsDir():
		return noSuchBucket(op, name)
	}
	return nil
}

// object checks bucket and key, and returns the object's file name.
func (s *Store) object(op, bucket, key string) (string, error) {
	if err := checkKey(op, key); err != nil {
		return "", err
	}
	if err := s.bucket(op, bucket); err != nil {
		return "", err
	}
	return path.Join(bucket, objectPath(key)), nil
}
