// Command parser ingests a format of its own: it registers a parser for .todo
// files and runs the pipeline as a library, on embedded stores.
//
//	parser STATE-FOLDER FOLDER
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/objectstore/filestore"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/block"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

// todo parses lines such as "[x] repair the pump".
type todo struct{}

func (todo) Name() string { return "todo" }

// Version grows when the same bytes would give other blocks.
func (todo) Version() int { return 1 }

func (todo) Parse(_ context.Context, in parse.Input, emit func(block.Block) error) error {
	lines := bufio.NewScanner(io.NewSectionReader(in.Content, 0, in.Size))
	for lines.Scan() {
		mark, task, ok := strings.Cut(lines.Text(), "] ")
		if !ok {
			continue
		}
		state := "open"
		if mark == "[x" {
			state = "done"
		}
		if err := emit(block.Block{Kind: block.ListItem, Level: 1, Text: task + " (" + state + ")"}); err != nil {
			return err
		}
	}
	return lines.Err()
}

// ingest runs the pipeline over a folder and answers a question.
func ingest(ctx context.Context, state, folder, question string) (hits []pipeline.Hit, err error) {
	objects, err := filestore.Open(filepath.Join(state, "objects"))
	if err != nil {
		return nil, err
	}
	defer objects.Close()
	vectors, err := sqlitestore.Open(filepath.Join(state, "vectors.db"))
	if err != nil {
		return nil, err
	}
	defer vectors.Close()
	remember, err := journal.Open(ctx, state)
	if err != nil {
		return nil, err
	}
	defer remember.Close()

	parsers := parse.New(parse.Limits{})
	parsers.Register(todo{}, ".todo")
	p, err := pipeline.New(pipeline.Config{
		Objects: objects, Bucket: "originals", CreateBucket: true,
		Vectors: vectors, Collection: "todos",
		Embeddings: staticmodel.New(), Model: staticmodel.Name,
		Journal: remember, Destination: "embedded",
		Parsers: parsers,
	})
	if err != nil {
		return nil, err
	}
	inputs, err := source.Files([]string{folder}, source.Options{})
	if err != nil {
		return nil, err
	}
	summary, err := p.Run(ctx, inputs.All(ctx))
	if err != nil {
		return nil, err // *pipeline.StopError says when to come again
	}
	fmt.Printf("%d ingested, %d unchanged\n", summary.Ingested, summary.Unchanged)
	return p.Search(ctx, question, pipeline.SearchOptions{Limit: 1})
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: parser STATE-FOLDER FOLDER")
		os.Exit(64)
	}
	hits, err := ingest(context.Background(), os.Args[1], os.Args[2], "what about the pump?")
	if err != nil {
		fmt.Fprintln(os.Stderr, "parser:", err)
		os.Exit(1)
	}
	for _, hit := range hits {
		fmt.Printf("%s: %s\n", hit.Source, hit.Text)
	}
}
