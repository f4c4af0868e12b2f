package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/filestate"
	"github.com/penstock-go/penstock/resilience/natsstore"
	"github.com/penstock-go/penstock/resilience/redisstore"
)

// Sharing holds the flags for breakers that outlive a process.
type Sharing struct {
	Shared string `group:"monitoring" env:"PENSTOCK_SHARED" placeholder:"URL" help:"Share the circuit breakers with the processes of other machines through redis://, rediss://, nats:// or tls://. Default: with those that use the same state folder."`
	Now    bool   `group:"monitoring" help:"Close the circuit breakers first, for all that share them: call the upstreams although an earlier run found them down."`
}

const (
	// breakersFile is the breakers of the runs of one machine, in the state
	// folder.
	breakersFile = "breakers.json"
	// sharedAs is the prefix of the keys in Redis, and the bucket in NATS.
	sharedAs = "penstock"

	// fileTimeout is how long a call waits for the file: a disk may be busy.
	fileTimeout = 2 * time.Second
	// serverTimeout is how long a call waits for a server that breakers are
	// shared through.
	serverTimeout = 250 * time.Millisecond
)

// share makes the breakers of this process those of others: of a fleet, or of
// the runs before and after this one.
func (a *app) share(ctx context.Context) error {
	store, config, err := a.sharedStore()
	if err != nil || store == nil {
		return err
	}
	a.locate()
	if a.shared = publicAddress(a.settings.Shared); a.settings.Shared == "" {
		a.shared = filepath.Join(a.folder(), breakersFile)
	}
	a.store, config.Logger = store, a.log
	fleet := resilience.NewFleet(store, config)
	a.later(fleet.Close)
	resilience.Default.Join(fleet)
	if !a.settings.Now {
		return nil
	}
	for _, b := range breakers() {
		lift(ctx, b)
	}
	return nil
}

// lift closes a breaker that refuses calls, ends its failures in a row, and
// replaces a record of it that cannot be read. It reports whether calls were
// refused.
func lift(ctx context.Context, b *resilience.Breaker) (refused bool) {
	refused = b.Check(ctx) != nil // it waits for the store
	if s := b.Snapshot(); refused || s.Streak > 0 || s.Alone && s.StoreUp {
		b.Reset()
	}
	return refused
}

// examineBreakers closes those of the upstreams that were found to be well, and
// says which others refuse calls.
func (a *app) examineBreakers(
	ctx context.Context, wait time.Duration, well map[string]bool, show func(pipeline.Finding, int),
) error {
	if a.instead != "" && a.settings.Shared == "" {
		return nil // the folder cannot be written
	}
	if err := a.share(ctx); err != nil {
		return err
	}
	if a.settings.Shared != "" {
		a.examineShared(ctx, wait, show)
	}
	for _, b := range breakers() {
		name := b.Name()
		isWell, examined := well[name]
		switch {
		case isWell && lift(ctx, b):
			show(pipeline.Finding{
				Upstream: name, OK: true, Detail: "its circuit breaker was open, and is closed now",
			}, exitOK)
		case examined && !isWell && b.Check(ctx) != nil:
			show(pipeline.Finding{
				Upstream: name, Detail: b.Check(ctx).Error(),
				Hint: "runs call it again after that time, or with --now; once it is well, doctor closes the breaker",
			}, exitOK)
		}
	}
	return nil
}

// examineShared asks the server of --shared. Runs do without one that does not
// answer, each with breakers of its own.
func (a *app) examineShared(ctx context.Context, wait time.Duration, show func(pipeline.Finding, int)) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, &pipeline.SilenceError{Waited: wait})
	defer cancel()
	finding := pipeline.Finding{
		Upstream: "shared", OK: true, Address: a.shared, Detail: "the server of the circuit breakers answers",
	}
	code := exitOK
	if _, err := a.store.Load(ctx, "doctor"); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		finding.OK, finding.Detail, code = false, err.Error(), exitTemporary
		finding.Hint = "check --shared; until it answers, each process has circuit breakers of its own"
	}
	show(finding, code)
}

func breakers() []*resilience.Breaker {
	return []*resilience.Breaker{resilience.LLM, resilience.Milvus, resilience.S3}
}

func snapshots() (all []resilience.Snapshot) {
	for _, b := range breakers() {
		all = append(all, b.Snapshot())
	}
	return all
}

func (a *app) sharedStore() (resilience.Store, resilience.FleetConfig, error) {
	server := resilience.FleetConfig{Timeout: serverTimeout}
	u, err := url.Parse(a.settings.Shared) // as checkShared has it
	if err != nil {
		return nil, server, err
	}
	switch u.Scheme {
	case "redis", "rediss":
		store, err := a.redisStore()
		return store, server, err
	case "nats", "tls":
		store, err := a.natsStore()
		return store, server, err
	}
	store, err := a.breakersOfRuns()
	return store, resilience.FleetConfig{Timeout: fileTimeout, Stagger: -1}, err
}

// checkShared checks the address of --shared. Its errors do not show it: it may
// hold a password.
func (s *Sharing) checkShared() error {
	if s.Shared == "" {
		return nil
	}
	u, err := url.Parse(s.Shared)
	if err == nil && u.Port() != "" {
		_, err = strconv.ParseUint(u.Port(), 10, 16)
	}
	if err != nil || u.Hostname() == "" {
		return errors.New("--shared: must be a URL such as redis://host:6379/0, rediss://… for TLS, or nats://host:4222")
	}
	switch u.Scheme {
	case "redis", "rediss":
		_, err = redis.ParseURL(s.Shared)
	case "nats", "tls":
	default:
		err = fmt.Errorf("%q is not redis, rediss, nats or tls", u.Scheme)
	}
	if err != nil {
		return fmt.Errorf("--shared: %w", err)
	}
	return nil
}

// breakersOfRuns are in a file of the state folder, if there is one.
func (a *app) breakersOfRuns() (resilience.Store, error) {
	folder := a.folder()
	if _, err := os.Stat(folder); err != nil {
		return nil, nil //nolint:nilerr,nilnil // nothing is kept on this machine
	}
	store, err := filestate.New(filepath.Join(folder, breakersFile), filestate.Config{Log: a.log})
	if err != nil {
		a.log.Warn("the breakers of earlier runs are not known, and those of this one are not kept", "error", err)
		return nil, nil //nolint:nilnil // a run does without
	}
	return store, nil
}

func (a *app) redisStore() (resilience.Store, error) {
	options, err := redis.ParseURL(a.settings.Shared)
	if err != nil {
		return nil, err
	}
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	a.later(client.Close)
	return redisstore.New(client, sharedAs), nil
}

func (a *app) natsStore() (resilience.Store, error) {
	conn, err := nats.Connect(a.settings.Shared, nats.Name("ingest"), nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1), nats.PingInterval(2*time.Second), nats.Timeout(2*serverTimeout))
	if err != nil {
		return nil, err
	}
	a.later(func() error { conn.Close(); return nil })
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	return natsstore.New(js, sharedAs, natsstore.Config{}), nil
}

// locate says where the embedded upstreams are. Those of another machine, or in
// another folder, are others.
func (a *app) locate() {
	host, _ := os.Hostname()
	folder, err := filepath.Abs(a.folder())
	if err != nil {
		folder = a.folder()
	}
	place := (&url.URL{Scheme: "file", Host: host, Path: filepath.ToSlash(folder)}).String()
	s := a.settings
	if s.S3Endpoint == "" {
		resilience.S3.Locate(place)
	}
	if s.Milvus == "" {
		resilience.Milvus.Locate(place)
	}
	if s.LLMBaseURL == "" {
		resilience.LLM.Locate(place)
	}
}
