package state

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/lease"
	"github.com/penstock-go/penstock/pipeline/stop"
)

const (
	// segmentBytes bounds one segment, before compression.
	segmentBytes = 8 << 20
	// A complete copy is written when there are more segments since the last
	// one than this, or when they are larger than it and this.
	mostSegments  = 16
	smallSegments = 1 << 20
	// listTries is how often a state that changes meanwhile is listed.
	listTries = 5

	kindAll, kindMore = "all", "more" // kinds of segments
	ending            = ".jsonl.gz"
)

// segments are the objects that hold a journal. Their names sort in the order
// of writing: epoch, number, kind.
type segments struct {
	names []string // those that are there and count, oldest first
	old   []string // those that are there and do not
	epoch int64
	last  int64 // number of the last one that was tried

	whole, since int64 // bytes of the last whole copy, and of what came after it
}

// begin starts an epoch that is greater than any before.
func (s *segments) begin(epoch int64) {
	if n := len(s.names); n > 0 {
		before, _, _ := strings.Cut(s.names[n-1], "-")
		last, _ := strconv.ParseInt(before, 10, 64)
		epoch = max(epoch, last+1)
	}
	s.epoch = epoch
}

// next returns an unused name. The name of a failed write is not used again,
// since that write may still arrive.
func (s *segments) next(kind string) string {
	s.last++
	return fmt.Sprintf("%019d-%08d.%s%s", s.epoch, s.last, kind, ending)
}

func isWhole(name string) bool { return strings.HasSuffix(name, "."+kindAll+ending) }

// found records a listing: segments before the last complete copy are old.
func (s *segments) found(names []string) {
	slices.Sort(names)
	first := 0
	for i, name := range names {
		if isWhole(name) {
			first = i
		}
	}
	s.old, s.names = names[:first:first], names[first:]
}

// added records a segment that was written or read.
func (s *segments) added(name string, size int64) {
	if isWhole(name) {
		s.old = append(s.old, s.names...)
		s.names, s.whole, s.since = nil, size, 0
	} else {
		s.since += size
	}
	s.names = append(s.names, name)
}

// due reports whether a complete copy is worthwhile.
func (s *segments) due() bool {
	return len(s.names) > mostSegments || s.since > max(s.whole, smallSegments)
}

func (s *State) key(name string) *string { return aws.String(s.config.under("journal") + name) }

// load reads the segments into the journal. All are downloaded before the first
// is applied, since the holder of the lease may replace them meanwhile.
func (s *State) load(ctx context.Context) error {
	for range listTries {
		names, err := s.list(ctx)
		if err != nil {
			return err
		}
		s.log.found(names)
		err = s.download(ctx)
		if objectstore.StatusCode(err) == http.StatusNotFound {
			continue
		}
		if err != nil {
			return err
		}
		return s.apply(ctx)
	}
	busy := errors.New(s.config.place() + ": the state changes faster than it can be read")
	return stop.Later("", time.Now().Add(lease.DefaultTTL), busy)
}

func (s *State) list(ctx context.Context) (names []string, err error) {
	prefix := s.config.under("journal")
	in := &s3.ListObjectsV2Input{Bucket: aws.String(s.config.Bucket), Prefix: aws.String(prefix)}
	for {
		var page *s3.ListObjectsV2Output
		err := s.config.call(ctx, "list_objects_v2", func(guard objectstore.Guard) (err error) {
			page, err = guard.ListObjectsV2(ctx, s.config.Objects, in)
			return err
		})
		if err != nil {
			return nil, s.config.failed(err)
		}
		for _, object := range page.Contents {
			if name := strings.TrimPrefix(aws.ToString(object.Key), prefix); strings.HasSuffix(name, ending) {
				names = append(names, name)
			}
		}
		if !aws.ToBool(page.IsTruncated) {
			return names, nil
		}
		in.ContinuationToken = page.NextContinuationToken
	}
}

func (s *State) file(name string) string { return filepath.Join(s.folder, path.Base(name)) }

func (s *State) download(ctx context.Context) error {
	for _, name := range s.log.names {
		err := s.config.call(ctx, "download_file", func(guard objectstore.Guard) error {
			in := &s3.GetObjectInput{Bucket: aws.String(s.config.Bucket), Key: s.key(name)}
			_, err := guard.DownloadFile(ctx, s.config.Objects, in, s.file(name))
			return err
		})
		if err != nil {
			return s.config.failed(err)
		}
	}
	return nil
}

func (s *State) apply(ctx context.Context) error {
	names := s.log.names
	s.log.names = nil
	for _, name := range names {
		size, err := s.applyFile(ctx, s.file(name))
		place := "s3://" + s.config.Bucket + "/" + aws.ToString(s.key(name))
		if _, damaged := errors.AsType[*journal.CopyError](err); damaged {
			return &CorruptError{Place: place, Err: err}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", place, err)
		}
		s.log.added(name, size)
	}
	return nil
}

func (s *State) applyFile(ctx context.Context, name string) (size int64, err error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(name)) }()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	plain, err := gzip.NewReader(file)
	if err == io.EOF { //nolint:errorlint // of an empty file, as it is
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return 0, asDamage(err)
	}
	if err := s.Journal.Apply(ctx, unpacked{plain}); err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// unpacked distinguishes a damaged segment from an error of the disk.
type unpacked struct{ from io.Reader }

func (u unpacked) Read(p []byte) (int, error) {
	n, err := u.from.Read(p)
	return n, asDamage(err)
}

func asDamage(err error) error {
	if _, disk := errors.AsType[*fs.PathError](err); err == nil || disk {
		return err
	}
	if err == io.EOF { //nolint:errorlint // io.Reader's own contract
		return err
	}
	return &journal.CopyError{Err: err}
}

// writeChanges writes one segment of changes; again is false when nothing is
// left.
func (s *State) writeChanges(ctx context.Context) (again bool, err error) {
	var content bytes.Buffer
	packed := gzip.NewWriter(&content)
	mark, err := s.Journal.WriteChanges(ctx, packed, segmentBytes)
	if err = errors.Join(err, packed.Close()); err != nil || mark == 0 {
		return false, err
	}
	size := int64(content.Len())
	if err := s.put(ctx, s.log.next(kindMore), bytes.NewReader(content.Bytes()), size); err != nil {
		return false, err
	}
	return true, s.Journal.Copied(ctx, mark)
}

// put creates an object, if the lease is held.
func (s *State) put(ctx context.Context, name string, body io.ReadSeeker, size int64) error {
	if err := s.Lost(); err != nil {
		return err
	}
	err := s.config.call(ctx, "put_object", func(guard objectstore.Guard) error {
		_, err := guard.PutObject(ctx, s.config.Objects, &s3.PutObjectInput{
			Bucket: aws.String(s.config.Bucket), Key: s.key(name), Body: body, IfNoneMatch: aws.String("*"),
		})
		return err
	})
	if err == nil {
		s.log.added(name, size)
	}
	return s.config.failed(err)
}

// compact replaces all segments by one.
func (s *State) compact(ctx context.Context) (err error) {
	file, err := os.CreateTemp(s.folder, "all-*")
	if err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	packed := gzip.NewWriter(file)
	mark, err := s.Journal.WriteAll(ctx, packed)
	if err = errors.Join(err, packed.Close()); err != nil {
		return err
	}
	size, err := file.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = s.put(ctx, s.log.next(kindAll), file, size)
	}
	if err != nil {
		return err
	}
	s.sweep(ctx)
	return s.Journal.Copied(ctx, mark)
}

// deleteAtOnce is how many objects one call deletes.
const deleteAtOnce = 1000

// sweep deletes segments that a complete copy has replaced. Anything left
// behind is deleted by the next sweep.
func (s *State) sweep(ctx context.Context) {
	var kept []string
	for batch := range slices.Chunk(s.log.old, deleteAtOnce) {
		objects := make([]types.ObjectIdentifier, len(batch))
		for i, name := range batch {
			objects[i].Key = s.key(name)
		}
		err := s.config.call(ctx, "delete_objects", func(guard objectstore.Guard) error {
			in := &s3.DeleteObjectsInput{Bucket: aws.String(s.config.Bucket), Delete: &types.Delete{Objects: objects}}
			_, err := guard.DeleteObjects(ctx, s.config.Objects, in)
			return err
		})
		if err != nil {
			kept = append(kept, batch...)
		}
	}
	s.log.old = kept
}
