package pipeline_test

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

// minutes reads the minutes of meetings, in which a line "== x" opens a topic.
type minutes struct{}

func (minutes) Name() string { return "minutes" }
func (minutes) Version() int { return 1 }

func (minutes) Parse(ctx context.Context, in parse.Input, emit func(block.Block) error) error {
	lines := bufio.NewScanner(io.NewSectionReader(in.Content, 0, in.Size))
	for lines.Scan() {
		b := block.Block{Kind: block.Paragraph, Text: lines.Text()}
		if topic, ok := strings.CutPrefix(b.Text, "== "); ok {
			b = block.Block{Kind: block.Heading, Level: 1, Text: topic}
		}
		if b.Text == "" {
			continue
		}
		if err := emit(b); err != nil {
			return err
		}
	}
	return lines.Err()
}

// A task of its own: embedded stores, and a parser for files that nobody else
// knows.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "board.min")
	text := "== Pumps\nPump seven is to be replaced in May.\n== Valves\nNo news.\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		panic(err)
	}

	objects, err := filestore.Open(filepath.Join(dir, "objects"))
	if err != nil {
		panic(err)
	}
	defer objects.Close()
	vectors, err := sqlitestore.Open(filepath.Join(dir, "vectors.db"))
	if err != nil {
		panic(err)
	}
	defer vectors.Close()
	books, err := journal.Open(ctx, filepath.Join(dir, "state"))
	if err != nil {
		panic(err)
	}
	defer books.Close()
	parsers := parse.New(parse.Limits{})
	defer parsers.Close()
	parsers.Register(minutes{}, ".min")

	p, err := pipeline.New(pipeline.Config{
		Objects: objects, Bucket: "minutes", CreateBucket: true,
		Vectors: vectors, Collection: "minutes",
		Embeddings: staticmodel.New(), Model: staticmodel.Name,
		Journal: books, Destination: "example", Parsers: parsers,
	})
	if err != nil {
		panic(err)
	}
	inputs, err := source.Find([]string{file}, source.Options{Prefix: "board"})
	if err != nil {
		panic(err)
	}
	summary, err := p.Run(ctx, inputs.All(ctx))
	if err != nil {
		panic(err) // a *pipeline.StopError says whether to run again, and when
	}
	fmt.Println(summary.Ingested, "ingested,", summary.Chunks, "chunks")

	hits, err := p.Search(ctx, "which pump will be replaced?", pipeline.SearchOptions{Limit: 1})
	if err != nil {
		panic(err)
	}
	fmt.Println(hits[0].Heading+":", hits[0].Text)
	// Output:
	// 1 ingested, 2 chunks
	// Pumps: Pump seven is to be replaced in May.
}
