package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/pipeline/block"
	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/source"
)

type parseCmd struct {
	File string `arg:"" help:"File to read."`
	ChunkFlags
}

// Run shows the blocks that a file is parsed into.
func (c *parseCmd) Run(ctx context.Context, a *app) error {
	return c.read(a, c.File, func(parsers *parse.Registry, in parse.Input) error {
		for b, err := range parsers.Blocks(ctx, in) {
			if err != nil {
				return err
			}
			a.printBlock(b)
		}
		return nil
	})
}

// read opens a file and passes it to show.
func (c *ChunkFlags) read(a *app, name string, show func(*parse.Registry, parse.Input) error) error {
	file, err := source.OpenFile(name)
	if err != nil {
		return usage(err)
	}
	defer file.Close()
	err = show(c.parsers(a), parse.Input{Name: name, Content: file, Size: file.Size()})
	if refused, ok := errors.AsType[*parse.Error](err); ok && refused.Later {
		return &codedError{code: exitTemporary, err: err}
	}
	if err != nil {
		return &codedError{code: exitData, err: err}
	}
	return nil
}

func (a *app) printBlock(b block.Block) {
	if a.settings.JSON {
		a.printJSON(b)
		return
	}
	about := []string{b.Kind.String()}
	if b.Level > 0 {
		about[0] += fmt.Sprintf(" %d", b.Level)
	}
	if b.Page > 0 {
		about = append(about, fmt.Sprintf("page %d", b.Page))
	}
	if b.Row > 0 {
		about = append(about, fmt.Sprintf("row %d", b.Row))
	}
	for _, label := range []string{b.Section, b.Lang} {
		if label != "" {
			about = append(about, label)
		}
	}
	fmt.Fprintf(a.stdout, "[%s]\n", plain.Name(strings.Join(about, ", ")))
	if b.Header != "" {
		fmt.Fprintf(a.stdout, "  %s\n", plain.Text(b.Header))
	}
	a.printIndented(b.Text)
}

func (a *app) printIndented(text string) {
	for line := range strings.SplitSeq(strings.TrimRight(plain.Text(text), "\n"), "\n") {
		fmt.Fprintf(a.stdout, "  %s\n", line)
	}
}

type chunkCmd struct {
	File string `arg:"" help:"File to read."`
	ChunkFlags
}

// Run shows the chunks that a file is split into.
func (c *chunkCmd) Run(ctx context.Context, a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	chunker, err := chunk.New(c.chunks(staticmodel.New().Tokens))
	if err != nil {
		return configuration(err)
	}
	return c.read(a, c.File, func(parsers *parse.Registry, in parse.Input) error {
		for piece, err := range chunker.Chunks(parsers.Blocks(ctx, in)) {
			if err != nil {
				return err
			}
			a.printChunk(piece)
		}
		return nil
	})
}

func (a *app) printChunk(c chunk.Chunk) {
	if a.settings.JSON {
		a.printJSON(c)
		return
	}
	place := ""
	if c.Page > 0 {
		place = fmt.Sprintf(", page %d", c.Page)
	}
	fmt.Fprintf(a.stdout, "%d  (%s%s)  %s\n", c.Ordinal, numberOf(c.Tokens, "token"), place, plain.Name(c.Heading))
	a.printIndented(c.Text)
}
