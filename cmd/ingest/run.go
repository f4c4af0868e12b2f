package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/source"
)

type runCmd struct {
	Paths []string `arg:"" name:"path" help:"Files, folders and globs (quote them; ** crosses folders)."`

	IDPrefix     string            `name:"id-prefix" env:"PENSTOCK_ID_PREFIX" placeholder:"PREFIX" help:"Put before each document's id, with a slash between."`
	Meta         map[string]string `env:"PENSTOCK_META" placeholder:"KEY=VALUE" help:"Keep on each chunk; 'search --where' can ask for it."`
	ChunkTokens  int               `env:"PENSTOCK_CHUNK_TOKENS" placeholder:"N" help:"Largest chunk in tokens. Default: 256."`
	ChunkOverlap int               `env:"PENSTOCK_CHUNK_OVERLAP" placeholder:"N" help:"Tokens that a chunk shares with the one before; -1 for none. Default: an eighth of the chunk."`
	MaxSize      int64             `env:"PENSTOCK_MAX_SIZE" placeholder:"BYTES" help:"Largest document that is read whole. Default: 100 MB."`
	MaxPause     time.Duration     `default:"30s" env:"PENSTOCK_MAX_PAUSE" help:"Longest rate limit to wait out (${default})."`
	DryRun       bool              `help:"List documents, chunks and tokens; call nothing, write nothing."`
	Strict       bool              `env:"PENSTOCK_STRICT" help:"Exit with 65 for old dead letters as well."`
}

// Run ingests.
func (c *runCmd) Run(ctx context.Context, a *app) error {
	inputs, err := source.Files(c.Paths, source.Options{Prefix: c.IDPrefix, Exclude: []string{a.settings.State}})
	if err != nil {
		return usage(err)
	}
	config, err := c.pipeline(ctx, a)
	if err != nil {
		return err
	}
	show := newDisplay(a)
	config.Report = show.document
	p, err := pipeline.New(config)
	if err != nil {
		return configuration(err)
	}
	summary, err := p.Run(ctx, inputs.All(ctx))
	show.summary(summary)
	return c.verdict(summary, err)
}

func (c *runCmd) pipeline(ctx context.Context, a *app) (pipeline.Config, error) {
	var config pipeline.Config
	j, err := c.journal(ctx, a)
	if err != nil {
		return config, err
	}
	if c.DryRun {
		err = a.openModel(&config)
		config.Collection, config.Destination = a.settings.Collection, a.destination()
	} else {
		config, err = a.upstreams(ctx)
	}
	if err != nil {
		return config, err
	}
	parsers := parse.New(parse.Limits{MaxSize: c.MaxSize})
	a.later(parsers.Close)
	config.Journal, config.Parsers = j, parsers
	config.Meta, config.MaxPause, config.DryRun = c.Meta, c.MaxPause, c.DryRun
	config.Chunks = chunk.Config{Tokens: c.ChunkTokens, Overlap: c.ChunkOverlap, Count: config.Chunks.Count}
	return config, nil
}

// journal opens the journal; a dry run only looks at one that exists.
func (c *runCmd) journal(ctx context.Context, a *app) (*journal.Journal, error) {
	open := journal.Open
	if c.DryRun {
		open = journal.OpenReadOnly
	}
	j, err := open(ctx, a.settings.State)
	if c.DryRun && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	a.later(j.Close)
	return j, nil
}

// verdict turns the outcome of a run into the error that the exit code needs.
func (c *runCmd) verdict(summary pipeline.Summary, err error) error {
	if stop, ok := errors.AsType[*pipeline.StopError](err); ok {
		return &codedError{code: stopCode(stop)} // the summary has said it
	}
	dead := summary.DeadLetters
	if c.Strict {
		dead += summary.KnownDeadLetters
	}
	if err == nil && dead > 0 {
		return &codedError{code: exitData}
	}
	return err
}

// display shows a run as it goes: a bar on a terminal, lines for what failed,
// or JSON.
type display struct {
	app *app
	bar *progressbar.ProgressBar // nil when nobody watches
}

func newDisplay(a *app) *display {
	d := &display{app: a}
	if onTerminal(a.stderr) && !a.settings.JSON {
		d.bar = progressbar.NewOptions(-1, progressbar.OptionSetWriter(a.stderr), progressbar.OptionShowCount(),
			progressbar.OptionShowIts(), progressbar.OptionSetItsString("documents"), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetElapsedTime(true), progressbar.OptionThrottle(100*time.Millisecond))
	}
	return d
}

func (d *display) document(doc pipeline.Document) {
	if d.app.settings.JSON {
		d.app.printJSON(doc)
		return
	}
	d.step(func(bar *progressbar.ProgressBar) error { return bar.Add(1) })
	switch doc.Result {
	case pipeline.DeadLetter, pipeline.Deferred:
		d.step((*progressbar.ProgressBar).Clear)
		fmt.Fprintf(d.app.stdout, "%s  %s: %s (%s)\n", strings.ReplaceAll(string(doc.Result), "_", " "), plain(doc.ID), plain(oneLine(doc.Reason)), doc.Stage)
	case pipeline.WouldIngest:
		fmt.Fprintf(d.app.stdout, "%s  %d chunks, %d tokens\n", plain(doc.ID), doc.Chunks, doc.Tokens)
	case pipeline.Ingested, pipeline.Unchanged, pipeline.KnownDeadLetter:
	}
}

// step moves the bar, where there is one. A terminal that cannot be drawn on is
// no reason to stop.
func (d *display) step(move func(*progressbar.ProgressBar) error) {
	if d.bar == nil {
		return
	}
	if err := move(d.bar); err != nil {
		d.app.log.Debug("progress bar", "error", err)
	}
}

func (d *display) summary(s pipeline.Summary) {
	d.step((*progressbar.ProgressBar).Finish)
	if d.app.settings.JSON {
		d.app.printJSON(map[string]pipeline.Summary{"summary": s})
		return
	}
	writeSummary(d.app.stdout, "", s)
}

// writeSummary writes a summary for people, each line after the indent.
func writeSummary(w io.Writer, indent string, s pipeline.Summary) {
	line := func(format string, args ...any) { fmt.Fprintf(w, indent+format+"\n", args...) }
	if s.WouldIngest > 0 {
		line("would ingest %d documents: %d chunks, %d tokens", s.WouldIngest, s.Chunks, s.Tokens)
	}
	line("%d documents in %s: %d ingested (%d chunks, %d embedded), %d unchanged, %d dead letters, %d deferred",
		s.Documents, s.Elapsed.Round(time.Millisecond), s.Ingested, s.Chunks, s.Embedded, s.Unchanged, s.DeadLetters, s.Deferred)
	if s.KnownDeadLetters > 0 {
		line("%d dead letters from before have not changed; 'ingest status' lists them", s.KnownDeadLetters)
	}
	if s.Stopped != nil {
		line("%s", plain(oneLine(stopLine(s.Stopped))))
	}
}

func stopLine(stop *pipeline.Stop) string {
	line := "stopped (" + string(stop.Kind)
	if stop.Upstream != "" {
		line += ", " + stop.Upstream
	}
	line += "): " + stop.Reason
	if stop.RetryAt != nil {
		line += "; run again after " + stop.RetryAt.Local().Format(time.DateTime)
	}
	return line
}

// oneLine folds white space, so that a message stays on its line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
