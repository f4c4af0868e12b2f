package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/lease"
	"github.com/penstock-go/penstock/pipeline/state"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// stateEnd bounds how long a run takes to write its state back at its end. It
// is shorter than the time orchestrators leave between SIGTERM and SIGKILL.
const stateEnd = 12 * time.Second

// remoteState returns the bucket and prefix of a --state in an object store.
func (s *Settings) remoteState() (bucket, prefix string, ok bool) {
	rest, ok := strings.CutPrefix(s.State, "s3://")
	bucket, prefix, _ = strings.Cut(rest, "/")
	return bucket, strings.Trim(prefix, "/"), ok
}

func (a *app) checkState() error {
	bucket, prefix, remote := a.settings.remoteState()
	switch {
	case !remote && strings.Contains(a.settings.State, "://"):
		return errors.New("--state: must be a folder or s3://bucket/prefix")
	case remote && (bucket == "" || prefix == ""):
		return errors.New("--state: must name a bucket and a prefix used for nothing else: s3://bucket/prefix")
	case remote && a.settings.StateLease < lease.MinTTL:
		return fmt.Errorf("--state-lease: %s is too short; the minimum is %s", a.settings.StateLease, lease.MinTTL)
	}
	return nil
}

// folder returns the folder of the embedded stores, and of the journal unless
// that is in an object store.
func (a *app) folder() string {
	if a.instead != "" {
		return a.instead
	}
	if _, _, remote := a.settings.remoteState(); remote {
		return defaultState
	}
	return a.settings.State
}

// needsFolder reports whether anything is kept in the state folder.
func (s *Settings) needsFolder() bool {
	_, _, remote := s.remoteState()
	return !remote || s.S3Endpoint == "" || s.Milvus == ""
}

// makeFolder makes the state folder if anything is kept in it.
func (a *app) makeFolder() error {
	if !a.settings.needsFolder() {
		return nil
	}
	if err := os.MkdirAll(a.folder(), 0o750); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	return nil
}

// stateObjects lists the object prefixes that hold state, not documents.
func (a *app) stateObjects() []string {
	if bucket, prefix, remote := a.settings.remoteState(); remote {
		return []string{bucket + "/" + prefix + "/"}
	}
	return nil
}

// journal opens the journal, read-only if look is set. A read-only journal that
// does not exist is nil.
func (a *app) journal(ctx context.Context, look bool) (*journal.Journal, error) {
	open := a.localJournal
	if _, _, remote := a.settings.remoteState(); remote {
		open = a.remoteJournal
	}
	j, err := open(ctx, look)
	if look && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return j, err
}

// hasJournal reports whether the state folder has a journal, damaged or not. A
// state in an object store may have one.
func (a *app) hasJournal() bool {
	_, _, remote := a.settings.remoteState()
	return remote || journal.Exists(a.settings.State)
}

// hasStore reports whether there may be a vector store.
func (a *app) hasStore() bool {
	if a.settings.Milvus != "" {
		return true
	}
	_, err := os.Stat(filepath.Join(a.folder(), vectorsFile))
	return !errors.Is(err, fs.ErrNotExist)
}

// nothingHere refuses a verb that works on what was ingested, where nothing
// was: --state or the working directory may be another.
func (a *app) nothingHere() error {
	return usage(fmt.Errorf("no journal in %s; ingest something first, or set --state", a.settings.State))
}

func (a *app) localJournal(ctx context.Context, look bool) (*journal.Journal, error) {
	open := journal.Open
	if look {
		open = journal.OpenReadOnly
	}
	j, err := open(ctx, a.settings.State)
	if _, unwritable := errors.AsType[*journal.ReadOnlyError](err); unwritable && a.onlyLooks {
		j, err = journal.OpenReadOnly(ctx, a.settings.State)
	}
	if held, ok := errors.AsType[*journal.HeldError](err); ok {
		return nil, stop.Later("", time.Time{}, held)
	}
	if err != nil {
		return nil, err
	}
	a.later(j.Close)
	return j, nil
}

func (a *app) remoteJournal(ctx context.Context, look bool) (*journal.Journal, error) {
	config, err := a.stateConfig(ctx)
	if err != nil {
		return nil, err
	}
	open := state.Open
	if look {
		open = state.Read
	}
	s, err := open(ctx, config)
	if err != nil {
		return nil, err
	}
	a.state = s
	a.later(func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stateEnd)
		defer cancel()
		return s.Close(ctx)
	})
	return s.Journal, nil
}

// stateConfig returns where the state is: in the object store of s3:// inputs.
func (a *app) stateConfig(ctx context.Context) (state.Config, error) {
	s := a.settings
	bucket, prefix, _ := s.remoteState()
	if err := a.checkCACert(); err != nil {
		return state.Config{}, err
	}
	client, err := a.newS3(ctx)
	return state.Config{
		Objects: client, Bucket: bucket, Prefix: prefix, CreateBucket: s.CreateBucket, TTL: s.StateLease, Logger: a.log,
	}, err
}

// stateTaken returns an error if another run has taken over the state.
func (a *app) stateTaken() error {
	if a.state == nil {
		return nil
	}
	err := a.state.Lost()
	lost, ok := errors.AsType[*lease.LostError](err)
	if !ok || lost.Holder == "" {
		return nil
	}
	return err
}

// examineRemote checks that a state in an object store is usable.
func (a *app) examineRemote(ctx context.Context) (pipeline.Finding, int) {
	config, err := a.stateConfig(ctx)
	var held *lease.HeldError
	if err == nil {
		held, err = state.Examine(ctx, config)
	}
	finding := pipeline.Finding{
		Upstream: "state",
		OK:       err == nil,
		Detail:   a.settings.State + " is writable and allows one run at a time",
	}
	switch {
	case err != nil:
		finding.Detail, finding.Hint = err.Error(), "check the bucket of --state, the AWS_* settings and --s3-endpoint"
		return finding, exitCode(ctx, err)
	case held != nil:
		finding.Detail = "in use: " + held.Error()
	}
	return finding, exitOK
}
