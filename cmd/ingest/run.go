package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/pipeline/stop"
)

type runCmd struct {
	Paths []string `arg:"" name:"path" help:"Files, folders, globs (quote them; ** matches across folders), @FILE with a list of paths, http(s):// and s3://bucket/prefix URLs, - for standard input."`

	IngestFlags

	IDPrefix   string `name:"id-prefix" env:"PENSTOCK_ID_PREFIX" placeholder:"PREFIX" help:"Prefix for every document ID, followed by a slash."`
	StdinName  string `env:"PENSTOCK_STDIN_NAME" placeholder:"NAME" filled:"" help:"Document ID for standard input; its extension selects the format (${default})." default:"stdin"`
	DryRun     bool   `help:"List documents, chunks and tokens without calling any upstream or writing anything."`
	Prune      bool   `env:"PENSTOCK_PRUNE" help:"Delete documents that no longer exist in the given folders, globs and prefixes, or have no text any more."`
	PruneLimit int    `env:"PENSTOCK_PRUNE_LIMIT" placeholder:"N" min:"-1" help:"Prune nothing if more than N documents are gone; -1 for no limit (${default})." default:"20"`
}

// IngestFlags are those of every verb that ingests.
type IngestFlags struct {
	Meta         map[string]string `env:"PENSTOCK_META" placeholder:"KEY=VALUE" help:"Metadata to store with each chunk; 'search --where' can filter by it."`
	ChunkFlags   `embed:""`
	MaxPause     time.Duration `env:"PENSTOCK_MAX_PAUSE" help:"Longest Retry-After to wait out (${default})." default:"30s"`
	Rate         float64       `env:"PENSTOCK_RATE" placeholder:"N" min:"0" help:"Maximum requests per second to the models. Default: no limit."`
	WebFlags     `embed:""`
	Strict       bool `env:"PENSTOCK_STRICT" help:"Exit with 65 for known dead letters too, and for folders and prefixes with nothing to ingest."`
	SkipExitCode int  `env:"PENSTOCK_SKIP_EXIT_CODE" placeholder:"CODE" min:"0" max:"255" help:"Exit code for a run with nothing to do, for example 99 for Airflow. Default: 0."`
}

// WebFlags say how documents are read from URLs.
type WebFlags struct {
	AllowPrivate bool  `env:"PENSTOCK_ALLOW_PRIVATE" help:"Allow http(s):// URLs on private networks and on this machine."`
	MaxDownload  int64 `env:"PENSTOCK_MAX_DOWNLOAD" placeholder:"BYTES" min:"0" help:"Largest document to download from an http(s):// URL. Default: 1 GB."`
}

// ChunkFlags say how a document is split.
type ChunkFlags struct {
	ChunkTokens  int `env:"PENSTOCK_CHUNK_TOKENS" placeholder:"N" min:"0" help:"Maximum tokens per chunk. Default: 256."`
	ChunkOverlap int `env:"PENSTOCK_CHUNK_OVERLAP" placeholder:"N" min:"-1" help:"Tokens that a chunk shares with the previous one; -1 for none. Default: one eighth of --chunk-tokens."`
	LimitFlags   `embed:""`
}

// Run ingests.
func (c *runCmd) Run(ctx context.Context, a *app) error {
	if a.implicit(c.Paths) {
		if err := mistypedVerb(a.parsed.Model.Node, c.Paths[0]); err != nil {
			return err
		}
	}
	inputs, err := c.inputs(a)
	if err != nil {
		return usage(err)
	}
	census := inputs.Census()
	p, show, err := c.open(ctx, a, c.DryRun, leavingOut(census))
	if err != nil {
		return err
	}
	show.expect(ctx, c.Paths, func() (*source.Inputs, error) { return c.inputs(a) })
	run := stop.WithEnd(ctx)
	summary, err := p.Run(run, census.All(run))
	show.summary(summary)
	if err = c.verdict(summary, err); c.Prune && !c.DryRun && summary.Stopped == nil {
		err = worse(err, c.prune(ctx, p, show, census))
	}
	return err
}

// leavingOut keeps documents that are skipped out of a census: --prune deletes
// what was ingested of them before.
func leavingOut(census *source.Census) func(*pipeline.Config) {
	return func(config *pipeline.Config) {
		config.Gone, config.Emptied = census.Missing, census.Emptied
		report := config.Report
		config.Report = func(d pipeline.Document) {
			if d.Result == pipeline.Skipped {
				census.Skip(d.ID)
			}
			report(d)
		}
	}
}

// pipeline is what a run is made of.
func (c *runCmd) pipeline(ctx context.Context, a *app) (pipeline.Config, error) {
	return c.config(ctx, a, c.DryRun)
}

// inputs prepares the named paths for listing.
func (c *runCmd) inputs(a *app) (*source.Inputs, error) {
	options := c.sources(a)
	options.Prefix, options.StdinName = c.IDPrefix, c.StdinName
	return source.Find(c.Paths, options)
}

// sources returns the options for reading documents.
func (c *WebFlags) sources(a *app) source.Options {
	s := a.settings
	return source.Options{
		Exclude: []string{a.folder()}, Stdin: a.stdin,
		Objects: a.sourceObjects, ExcludeObjects: append(a.stateObjects(), s.S3Bucket+"/"+s.S3Prefix+"originals/"),
		AllowPrivate: c.AllowPrivate, MaxDownload: c.MaxDownload, Timeout: s.Timeout,
	}
}

// prune deletes documents that are gone. A refusal is exit code 65.
func (c *runCmd) prune(ctx context.Context, p *pipeline.Pipeline, show *display, census *source.Census) error {
	summary, err := p.Prune(ctx, census, c.PruneLimit)
	if refused, ok := errors.AsType[*pipeline.PruneError](err); ok {
		return &codedError{code: exitData, err: refused}
	}
	if summary.Documents > 0 {
		show.summary(summary)
	}
	return c.verdict(summary, err)
}

// open creates the pipeline, and a display of its progress.
func (c *IngestFlags) open(
	ctx context.Context, a *app, dry bool, change ...func(*pipeline.Config),
) (*pipeline.Pipeline, *display, error) {
	show := newDisplay(a)
	config, err := c.config(ctx, a, dry)
	if err != nil {
		return nil, nil, show.unopened(ctx, err)
	}
	config.Report, config.ShowsSummary = show.document, a.oneScreen()
	for _, f := range change {
		f(&config)
	}
	p, err := newPipeline(config)
	if err != nil {
		return nil, nil, err
	}
	a.opened = config.Journal
	return p, show, nil
}

func (c *IngestFlags) config(ctx context.Context, a *app, dry bool) (pipeline.Config, error) {
	if err := cmp.Or(c.check(), a.settings.checkAddresses()); err != nil {
		return pipeline.Config{}, err
	}
	config, err := c.plan(ctx, a, dry)
	if err != nil {
		return config, err
	}
	a.sayRedirected()
	if !dry {
		err = a.makeFolder()
	}
	if err == nil && !dry {
		err = a.share(ctx) // a journal in an object store is read through a breaker
	}
	if err == nil {
		config.Journal, err = a.journal(ctx, dry)
	}
	if err == nil && !dry {
		err = a.openStores(&config)
	}
	config.Parsers = c.parsers(a)
	return config, err
}

// plan is a configuration without what is kept in the state folder. One that no
// pipeline can be made of is refused here, before that folder is made.
func (c *IngestFlags) plan(ctx context.Context, a *app, dry bool) (config pipeline.Config, err error) {
	if dry {
		err = a.openModel(&config)
		config.Collection, config.Destination = a.settings.Collection, a.destination()
	} else {
		config, err = a.clients(ctx)
	}
	if err == nil {
		err = a.enrichment(&config)
	}
	if err != nil {
		return config, err
	}
	config.Meta, config.MaxPause, config.Rate = c.Meta, c.MaxPause, c.Rate
	config.Chunks = c.chunks(config.Chunks.Count)
	config.DryRun = true // it needs no stores
	_, err = newPipeline(config)
	config.DryRun = dry
	return config, err
}

func (c *ChunkFlags) parsers(a *app) *parse.Registry {
	parsers := parse.New(c.limits())
	a.later(parsers.Close)
	return parsers
}

func (c *ChunkFlags) chunks(count func(string) int) chunk.Config {
	return chunk.Config{Tokens: c.ChunkTokens, Overlap: c.ChunkOverlap, Count: count}
}

// verdict turns the outcome of a run into an error with its exit code.
func (c *IngestFlags) verdict(summary pipeline.Summary, err error) error {
	if stop, ok := errors.AsType[*pipeline.StopError](err); ok {
		return &codedError{code: stopCode(stop)} // the summary has said why
	}
	dead := summary.DeadLetters
	if c.Strict {
		dead += summary.KnownDeadLetters
	}
	switch {
	case err != nil:
		return err
	case dead > 0 || c.Strict && len(summary.EmptyInputs) > 0:
		return &codedError{code: exitData}
	case c.SkipExitCode != 0 && summary.Documents ==
		summary.Unchanged+summary.KnownDeadLetters+summary.Skipped+summary.Gone:
		return &codedError{code: c.SkipExitCode, skip: true}
	}
	return nil
}

// worse returns the more severe of two errors of one command, by exit code: 1,
// then 78, 77, 75, 65. A skip remains only if neither step had anything to do.
func worse(one, other error) error {
	rank := func(err error) int { return severity(exitCode(context.Background(), err)) }
	switch {
	case isSkip(one):
		return other
	case other == nil || isSkip(other) || one != nil && rank(one) > rank(other):
		return one
	}
	return other
}

func isSkip(err error) bool {
	coded, ok := errors.AsType[*codedError](err)
	return ok && coded.skip
}
