// Package filestore keeps objects in a folder and speaks the S3 client's own
// methods, so that it stands wherever a door of package objectstore takes a
// client.
//
//	store, err := filestore.Open(".penstock/objects")
//	defer store.Close()
//	_, err = store.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("docs")})
//	_, err = objectstore.PutObject(ctx, store, &s3.PutObjectInput{…})
//
// # What may be relied on
//
//   - An object is one file: its bytes as they came, then a trailer with its
//     key, ETag, content type and metadata. It is written to a temporary file,
//     synced, and renamed. A process that is killed leaves the old object or
//     the new one, never a mixture and never half of one.
//   - IfNoneMatch "*" is a hard link, so of several writers, in one process or
//     in many, exactly one creates the object; the others get 412
//     PreconditionFailed.
//   - A reader keeps the version it opened, whatever is written meanwhile.
//   - Errors have the shape that the SDK gives them: errors.As finds
//     *smithy.OperationError, *awshttp.ResponseError with its status, and
//     *types.NoSuchKey, *types.NotFound, or a smithy.APIError with its code.
//   - ETags are the MD5 of the content, and for multipart uploads the MD5 of
//     the parts' MD5s with the number of parts, as in S3.
//   - Keys are any valid UTF-8 of 1 to 1,024 bytes without NUL: "..", "a//b",
//     a trailing slash and keys that differ in case alone are all different
//     objects, on any file system. No key reaches outside the folder; access
//     goes through [os.Root], so a symbolic link does not either. The cost of
//     an operation grows with the square of the number of slashes in its key.
//
// All methods are safe for concurrent use, also by several processes over one
// folder on a local disk. IfMatch on a write is atomic within one process.
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
	"time"
)

// gocloud.dev/blob/fileblob was weighed for this package and left out. It
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

// Store is an object store in a folder. Make one with [Open].
type Store struct {
	root  *os.Root
	seed  maphash.Seed
	locks [64]sync.Mutex // one of them orders the writes to a key
}

// Open returns the store that lives in dir, which is made if it is missing.
// Temporary files that a killed process left behind a day ago, and multipart
// uploads that were given up a week ago, are removed.
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

// Close gives the folder's handle back. Bodies that are still being read stay
// readable.
func (s *Store) Close() error { return s.root.Close() }

// sweep removes what nobody can be writing any more. It is housekeeping: what
// cannot be removed stays for the next time.
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

// bucket says whether the bucket is there, as nil or the error for op.
func (s *Store) bucket(op, name string) error {
	if !bucketName.MatchString(name) {
		return failure(op, 400, "InvalidBucketName", fmt.Sprintf("the bucket name %q is not 3 to 63 lower-case letters, digits, dots and hyphens", name))
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

// object checks bucket and key and returns the object's file name.
func (s *Store) object(op, bucket, key string) (string, error) {
	if err := checkKey(op, key); err != nil {
		return "", err
	}
	if err := s.bucket(op, bucket); err != nil {
		return "", err
	}
	return path.Join(bucket, objectPath(key)), nil
}
