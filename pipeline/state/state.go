// Package state keeps a journal in an object store, so that the next run finds
// it on any machine: a pod starts with an empty disk.
//
//	s, err := state.Open(ctx, state.Config{Objects: client, Bucket: "b", Prefix: "nightly"})
//	p, err := pipeline.New(pipeline.Config{Journal: s.Journal, …})
//	summary, err := p.Run(ctx, …)
//	err = s.Close(ctx)
//
// [Open] takes a lease, loads the objects below the prefix into a journal in a
// temporary folder, and then writes changes back every few seconds and at
// [State.Close]. SQLite itself never works on the object store. [Read] reads
// the state without a lease.
//
// # Format
//
// Below the prefix, lease/ holds the lease (package lease) and journal/ the
// journal, as gzipped lines of JSON: occasionally a complete copy, and after
// that the changes since, in numbered objects. An object is created once, with
// If-None-Match, under the epoch of the lease, and never changed; objects that
// a complete copy replaces are deleted. A process that is killed at any moment
// therefore leaves a readable state that is at most a few seconds old, and a
// process that has lost its lease without noticing cannot overwrite another's
// state.
//
// The journal holds complete and incomplete documents, about 100 bytes each,
// and vectors that were paid for and are not in a vector store yet. It names
// its collection, and applies to that collection only.
//
// # When the lease is lost
//
// Another process may have taken the lease, or the store did not answer in time
// to renew it. The journal is then revoked, a pipeline that uses it stops with
// a deferral, and nothing more is written. While the State is open, it keeps
// trying to renew a lease that has only lapsed.
//
// A *State is safe for concurrent use.
package state

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/lease"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// DefaultEvery is how often changes are written back.
const DefaultEvery = 5 * time.Second

// releaseLimit bounds the release of the lease; if it fails, the lease expires.
const releaseLimit = 3 * time.Second

// ObjectStore is the part of an object store that a state and its lease need.
// *s3.Client and the embedded filestore implement it.
type ObjectStore = lease.ObjectStore

// Config says where a state is. Objects, Bucket and Prefix are required.
type Config struct {
	Objects ObjectStore
	Guard   objectstore.Guard // zero: through resilience.S3
	Bucket  string
	Prefix  string // a folder of its own; nothing else may be below it
	// CreateBucket creates the bucket if it is missing.
	CreateBucket bool

	// Holder identifies the holder to others. Default: process and machine.
	Holder string
	// TTL is how long the lease outlives a killed process. Default:
	// lease.DefaultTTL.
	TTL time.Duration
	// Every is how often changes are written back. Default: DefaultEvery.
	Every time.Duration
	// Logger receives errors of background work. Default: slog.Default().
	Logger *slog.Logger
}

// place is the state's name.
func (c Config) place() string { return "s3://" + c.Bucket + "/" + strings.Trim(c.Prefix, "/") }

func (c Config) under(folder string) string { return strings.Trim(c.Prefix, "/") + "/" + folder + "/" }

func (c Config) lease() lease.Config {
	return lease.Config{
		Objects: c.Objects, Guard: c.Guard, Bucket: c.Bucket, Prefix: c.under("lease"),
		Holder: c.Holder, TTL: c.TTL,
	}
}

// BucketError reports that the bucket does not exist.
type BucketError struct {
	Bucket string
	Err    error
}

func (e *BucketError) Error() string {
	return fmt.Sprintf("bucket %q of the state does not exist; create it, or use --create-bucket", e.Bucket)
}

// Unwrap returns the SDK's own error.
func (e *BucketError) Unwrap() error { return e.Err }

// StoreError is a failure of the object store.
type StoreError struct {
	Place string // s3://bucket/prefix
	Err   error
}

func (e *StoreError) Error() string { return "state " + e.Place + ": " + e.Err.Error() }

// Unwrap returns the SDK's own error, or the breaker's.
func (e *StoreError) Unwrap() error { return e.Err }

// failed is what the error of a call to the store means: a stop where that is
// unavailable or refuses, else a [*StoreError].
func (c Config) failed(err error) error {
	if err == nil {
		return nil
	}
	return stop.OrError(&StoreError{Place: c.place(), Err: err})
}

// call is one call of the object store.
func (c Config) call(ctx context.Context, operation string, fn func(objectstore.Guard) error) error {
	return service.Objects(c.Guard).CallObjects(ctx, operation, fn)
}

// CorruptError reports that an object of the state is damaged.
type CorruptError struct {
	Place string // s3://bucket/key
	Err   error
}

func (e *CorruptError) Error() string {
	advice := "move the objects below its folder away and run again: complete documents are found in the vector store and not embedded again"
	if copied, ok := errors.AsType[*journal.CopyError](e.Err); ok && copied.Newer {
		advice = "use that version, or another state"
	}
	return fmt.Sprintf("%s: %v; %s", e.Place, e.Err, advice)
}

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// State is a journal and where it is kept.
type State struct {
	// Journal is on the local disk; the State closes it.
	Journal *journal.Journal

	config Config
	folder string // of the journal, temporary
	lease  *lease.Lease
	log    segments

	stop   context.CancelFunc
	work   sync.WaitGroup
	turn   chan struct{} // its holder writes back
	failed bool          // the last time of writing back; belongs to its loop
}

// Open takes the lease and reads the state; Close releases it. The error is a
// [*stop.Error] where another run has the lease ([*lease.HeldError] in it), the
// store is unavailable or refuses ([*StoreError]), or does not fit
// ([*BucketError], [*lease.UnsafeError]); a [*CorruptError], another
// [*StoreError], or the local disk's own. Calls are made with ctx; what is done
// later is not.
func Open(ctx context.Context, config Config) (*State, error) {
	if err := config.bucket(ctx); err != nil {
		return nil, err
	}
	held, err := config.acquire(ctx)
	if err != nil {
		return nil, err
	}
	s, err := read(ctx, config)
	if err == nil {
		s.lease = held
		if err = s.begin(ctx); err == nil {
			return s, nil
		}
		err = errors.Join(err, s.discard())
	}
	giveBack(ctx, held)
	return nil, err
}

// Read reads the state as last written, without a lease. Nothing is written
// back. If there is no state, errors.Is(err, fs.ErrNotExist) is true.
func Read(ctx context.Context, config Config) (*State, error) {
	config.CreateBucket = false
	if err := config.bucket(ctx); err != nil {
		return nil, err
	}
	s, err := read(ctx, config)
	if err != nil {
		return nil, err
	}
	if len(s.log.names) == 0 {
		return nil, errors.Join(fmt.Errorf("%s: %w", config.place(), fs.ErrNotExist), s.discard())
	}
	return s, nil
}

func (c Config) acquire(ctx context.Context) (*lease.Lease, error) {
	l, err := lease.Acquire(ctx, c.lease())
	if _, ended := errors.AsType[*stop.Error](err); ended {
		return nil, err
	}
	return l, c.failed(err)
}

// bucket checks that the bucket exists: some stores create a missing one on a
// put.
func (c Config) bucket(ctx context.Context) error {
	err := c.call(ctx, "head_bucket", func(guard objectstore.Guard) error {
		_, err := guard.HeadBucket(ctx, c.Objects, &s3.HeadBucketInput{Bucket: aws.String(c.Bucket)})
		return err
	})
	switch {
	case objectstore.StatusCode(err) != http.StatusNotFound:
		return c.failed(err)
	case !c.CreateBucket:
		missing := &BucketError{Bucket: c.Bucket, Err: err}
		return &stop.Error{Kind: stop.Configuration, Upstream: service.ObjectStore, Err: missing}
	}
	return c.failed(c.call(ctx, "create_bucket", func(guard objectstore.Guard) error {
		_, err := guard.CreateBucket(ctx, c.Objects, &s3.CreateBucketInput{Bucket: aws.String(c.Bucket)})
		return err
	}))
}

// Examine checks that a state can be kept here: it creates an object, tries to
// create it again, and deletes it. It returns the current holder of the state,
// or nil if it is free. The errors are those of Open.
func Examine(ctx context.Context, config Config) (*lease.HeldError, error) {
	config.CreateBucket = false
	if err := config.bucket(ctx); err != nil {
		return nil, err
	}
	probe := config.lease()
	probe.Prefix = config.under("doctor-" + rand.Text())
	l, err := lease.Acquire(ctx, probe)
	if _, ended := errors.AsType[*stop.Error](err); ended {
		return nil, err
	}
	if err == nil {
		err = l.Remove(ctx)
	}
	if err != nil {
		return nil, config.failed(err)
	}
	held, err := lease.Look(ctx, config.lease())
	return held, config.failed(err)
}

// read loads the state into a journal in a temporary folder.
func read(ctx context.Context, config Config) (*State, error) {
	config.Every = cmp.Or(config.Every, DefaultEvery)
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	sweepFolders()
	folder, err := os.MkdirTemp("", folderPattern)
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	s := &State{config: config, folder: folder, turn: make(chan struct{}, 1)}
	if s.Journal, err = journal.Open(ctx, folder); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	if err := s.load(ctx); err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return s, nil
}

const (
	folderPattern = "penstock-state-*"
	folderAge     = 24 * time.Hour
)

// sweepFolders removes folders that killed processes left behind at least a day
// ago. Errors do not matter.
func sweepFolders() {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPattern))
	for _, folder := range left {
		if info, err := os.Stat(folder); err == nil && time.Since(info.ModTime()) > folderAge && !journal.Held(folder) {
			_ = os.RemoveAll(folder)
		}
	}
}

// begin starts the background work. If the previous holder did not release its
// lease, a complete copy is written first, so that its late writes do not
// count.
func (s *State) begin(ctx context.Context) error {
	if err := s.stillHeld(ctx); err != nil {
		return err
	}
	if err := s.Journal.Track(ctx); err != nil {
		return err
	}
	s.log.begin(s.lease.Epoch())
	if !s.lease.Clean() && len(s.log.names) > 0 {
		if err := s.compact(ctx); err != nil {
			return err
		}
	}
	ctx, s.stop = context.WithCancel(context.Background())
	s.work.Go(func() { s.lease.Keep(ctx, s.leaseChanged) })
	s.work.Go(func() { s.writeBack(ctx) })
	return nil
}

// stillHeld renews a lease that has not been renewed for some time.
func (s *State) stillHeld(ctx context.Context) error {
	if s.lease.Lost() == nil {
		return nil
	}
	err := s.lease.Renew(ctx)
	if _, ended := errors.AsType[*stop.Error](err); ended {
		return err
	}
	return s.config.failed(err)
}

// leaseChanged is called by Lease.Keep.
func (s *State) leaseChanged(err error) {
	if err == nil {
		s.config.Logger.Info("the lease of the state has been renewed", "state", s.config.place())
		s.Journal.Restore()
		return
	}
	s.config.Logger.Warn("the lease of the state is lost", "state", s.config.place(), "error", err)
	s.Journal.Revoke(err)
}

// Lost returns a [*lease.LostError] if the lease is lost: permanently if it
// names a holder.
func (s *State) Lost() error {
	if s.lease == nil {
		return nil
	}
	if lost := s.lease.Lost(); lost != nil {
		return lost.Stop()
	}
	return nil
}

// writeBack writes changes back until ctx is done. A failure is logged once.
func (s *State) writeBack(ctx context.Context) {
	ticker := time.NewTicker(s.config.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := s.Flush(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !s.failed && s.Lost() == nil {
			s.config.Logger.Warn("cannot write the state back; trying again", "state", s.config.place(), "error", err)
		}
		s.failed = err != nil
	}
}

// Flush writes changes back now, except vectors that are about to be stored. It
// does not block users of the journal. The error is a [*lease.LostError], with
// nothing written, a [*StoreError], or the local disk's own.
func (s *State) Flush(ctx context.Context) error { return s.flush(ctx, false) }

func (s *State) flush(ctx context.Context, end bool) error {
	if s.lease == nil {
		return nil
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := s.Journal.NoteVectors(ctx, end); err != nil {
		return err
	}
	for again := true; again; {
		var err error
		if again, err = s.writeChanges(ctx); err != nil {
			return err
		}
	}
	if !s.log.due() {
		return nil
	}
	if err := s.compact(ctx); err != nil { // what counts is written
		s.config.Logger.Info("cannot write a complete copy of the state; trying again", "state",
			s.config.place(), "error", err)
	}
	return nil
}

// Close writes changes back and releases the lease. If the state cannot be
// written, the error is that of Flush; the results of the run are in the stores
// nevertheless.
func (s *State) Close(ctx context.Context) error {
	if s.lease == nil {
		return s.discard()
	}
	s.stop()
	s.work.Wait()
	err := s.stillHeld(ctx)
	if err == nil {
		err = s.flush(ctx, true)
	}
	if err != nil {
		err = unwritten(s.config.place(), err)
	}
	giveBack(ctx, s.lease)
	return errors.Join(err, s.discard())
}

// unwritten names the state that could not be written. A stop stays a stop.
func unwritten(place string, err error) error {
	if ended, ok := errors.AsType[*stop.Error](err); ok {
		named := *ended
		named.Err = unwritten(place, ended.Err)
		return &named
	}
	return fmt.Errorf("cannot write the state to %s: %w", place, err)
}

// giveBack releases the lease. If that fails, the lease expires.
func giveBack(ctx context.Context, held *lease.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	_ = held.Release(ctx)
}

func (s *State) discard() error {
	return errors.Join(s.Journal.Close(), os.RemoveAll(s.folder))
}
