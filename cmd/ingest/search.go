package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/pipeline"
	upstream "github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
)

type searchCmd struct {
	Question string `arg:"" help:"Text to search for."`
	Limit    int    `short:"n" default:"5" min:"1" help:"Number of chunks (${default})."`
	Where    string `env:"PENSTOCK_WHERE" placeholder:"FILTER" help:"Only chunks that match, for example 'meta[\"team\"] == \"search\"'."`
	Full     bool   `help:"Print whole chunks."`
}

// Run searches with the model whose vectors the collection holds.
func (c *searchCmd) Run(ctx context.Context, a *app) error {
	if c.Question == "" {
		return usage(errors.New("the question is empty"))
	}
	config, err := a.searched(ctx)
	if err != nil {
		return err
	}
	if err := a.share(ctx); err != nil {
		return err
	}
	record, err := pipeline.CollectionRecord(ctx, config.VectorGuard, config.Vectors, config.Collection)
	if err != nil {
		return stopped(ctx, a, err)
	}
	if record.Model == staticmodel.Name {
		config.Embeddings, config.Model, config.Dimensions = staticmodel.New(), record.Model, 0
	} else {
		a.sayRedirected()
	}
	p, err := newPipeline(config)
	if err != nil {
		return err
	}
	hits, err := p.Search(ctx, c.Question, pipeline.SearchOptions{Limit: c.Limit, Where: c.Where})
	if c.Where != "" && status.Code(err) == codes.InvalidArgument {
		return usage(fmt.Errorf("--where: %w", err))
	}
	if err != nil {
		return stopped(ctx, a, err)
	}
	for i, hit := range hits {
		if a.settings.JSON {
			a.printJSON(hit)
			continue
		}
		c.print(a, i+1, hit)
	}
	if len(hits) == 0 && !a.settings.JSON {
		fmt.Fprintln(a.stdout, "nothing found")
	}
	return nil
}

// searched configures what a search needs, which are the model and the vector
// store. An embedded store that does not exist is not made.
func (a *app) searched(ctx context.Context) (pipeline.Config, error) {
	config, err := a.clients(ctx)
	if err != nil || config.Vectors != nil {
		return config, err
	}
	if !a.hasStore() {
		return config, stopped(ctx, a, &stop.Error{
			Kind: stop.Configuration, Upstream: upstream.VectorStore,
			Err: fmt.Errorf("collection %q: not found; ingest something first, or set --state", config.Collection),
		})
	}
	return config, a.openVectors(&config)
}

// stopped says why a verb that has no summary stopped, as a summary does.
func stopped(ctx context.Context, a *app, err error) error {
	ended, ok := errors.AsType[*pipeline.StopError](err)
	if !ok {
		return err
	}
	s := pipeline.Summary{Stopped: ended.Report(a.places())}
	s.SetBreakers(ended, snapshots()...)
	s.Recall(a.lastSummary(ctx), ended)
	if a.settings.JSON {
		a.printJSON(map[string]*pipeline.Stop{"stopped": s.Stopped})
	}
	return &stoppedError{stopLine(s) + after("; ", a.settings.advice(s.Stopped)), err}
}

// stoppedError is a stop in the words of a summary.
type stoppedError struct {
	text string
	error
}

func (e *stoppedError) Error() string { return e.text }
func (e *stoppedError) Unwrap() error { return e.error }

// excerptLines is how much of a chunk is shown without --full.
const excerptLines = 6

func (c *searchCmd) print(a *app, rank int, hit pipeline.Hit) {
	place := hit.Source
	if hit.Page > 0 {
		place += fmt.Sprintf(", page %d", hit.Page)
	}
	fmt.Fprintf(a.stdout, "%d. %s  (score %.3f, similarity %.2f)\n", rank, plain.Name(place), hit.Score, hit.Similarity)
	if hit.Heading != "" {
		fmt.Fprintf(a.stdout, "   %s\n", plain.Name(hit.Heading))
	}
	lines := strings.Split(strings.TrimSpace(plain.Text(hit.Text)), "\n")
	if !c.Full && len(lines) > excerptLines {
		lines = append(lines[:excerptLines], "…")
	}
	for _, line := range lines {
		fmt.Fprintf(a.stdout, "   | %s\n", line)
	}
	fmt.Fprintln(a.stdout)
}
