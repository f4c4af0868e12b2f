package parse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/penstock-go/penstock/pipeline/block"
)

// Registry chooses the parser for a document and runs it within limits.
type Registry struct {
	limits Limits
	types  map[string]entry // by extension (".html") and by media type
	pdf    *pdfParser
	crew   crew
}

// entry is a parser for one extension or media type.
type entry struct {
	parser Parser
	// binary: content that is not text may be given to the parser because of
	// the name alone.
	binary bool
}

// New returns a Registry of every format that this package reads.
func New(limits Limits) *Registry {
	limits = limits.withDefaults()
	r := &Registry{limits: limits, types: map[string]entry{}, pdf: newPDFParser(limits)}
	r.registerBuiltin()
	return r
}

// Register adds a parser for file name extensions (".adoc") and media types
// ("text/x-adoc"); it goes before whatever was registered for them. A media
// type is matched against the content, and an extension chooses among texts and
// among binary files without a signature that is known.
func (r *Registry) Register(p Parser, types ...string) {
	r.register(entry{parser: p, binary: true}, types...)
}

func (r *Registry) register(e entry, types ...string) {
	for _, t := range types {
		r.types[strings.ToLower(t)] = e
	}
}

// Parsers lists the parsers by name, with their versions.
func (r *Registry) Parsers() map[string]int {
	versions := map[string]int{}
	for e := range maps.Values(r.types) {
		versions[e.parser.Name()] = e.parser.Version()
	}
	return versions
}

// Types lists the extensions and media types that are read, sorted.
func (r *Registry) Types() []string { return slices.Sorted(maps.Keys(r.types)) }

// Limits are the limits in force.
func (r *Registry) Limits() Limits { return r.limits }

// LikelyText says, by name and size in bytes alone, whether a file is likely to
// be text: it is not empty, and not named as images, programs and the like are.
// A size below zero is not known.
func (r *Registry) LikelyText(name string, size int64) bool {
	ext := extensionOf(name)
	_, read := r.types[ext]
	return size != 0 && (read || notTextNames[ext] == "")
}

// Close frees what the parsers hold. Blocks must not be in use.
func (r *Registry) Close() error { return r.pdf.close() }

// Detect says which parser will read the document. It reads the beginning of
// the content, and the directory of a zip file. The error is an *Error of kind
// "unsupported format", "no text" or "password protected", or a failure to
// read.
func (r *Registry) Detect(in Input) (Format, error) {
	in, source := guard(in)
	_, format, err := r.choose(in)
	return format, source.explain(in.Name, "", err)
}

// Blocks reads the document. The blocks come in reading order; an error ends
// them, and what came before it is incomplete and should be thrown away. A
// document without text ends with an error of kind "no text".
func (r *Registry) Blocks(ctx context.Context, in Input) iter.Seq2[block.Block, error] {
	return func(yield func(block.Block, error) bool) {
		in, source := guard(in)
		parser, _, err := r.choose(in)
		if err := source.explain(in.Name, "", err); err != nil {
			yield(block.Block{}, err)
			return
		}
		in.budget = newBudget(r.limits, in.Size)
		source.work = in.budget.work
		if err := r.crew.wait(ctx, r.limits.Timeout); err != nil {
			yield(block.Block{}, source.explain(in.Name, parser.Name(), err))
			return
		}
		run := startRun(ctx, parser, in, source, &r.crew)
		defer run.stop()
		if err := run.deliver(ctx, yield); err != nil {
			yield(block.Block{}, source.explain(in.Name, parser.Name(), err))
		}
	}
}

// member reads one member of a container. A member that cannot be read becomes
// a Note, unless the container's budget is spent.
func (r *Registry) member(ctx context.Context, in Input, emit func(block.Block) error) error {
	if err := in.budget.entry(); err != nil {
		return err
	}
	err := r.parseMember(ctx, in, func(b block.Block) error {
		b.Section = joinSection(in.Name, b.Section)
		return emit(b)
	})
	var refused *Error
	if !errors.As(err, &refused) || refused.Kind == TooLarge {
		return err
	}
	if refused.Kind == empty {
		return nil
	}
	note := refused.Kind
	if refused.Err != nil {
		note += ": " + refused.Err.Error()
	}
	return emit(block.Block{Kind: block.Note, Text: note, Section: in.Name})
}

func (r *Registry) parseMember(ctx context.Context, in Input, emit func(block.Block) error) error {
	parser, _, err := r.choose(in)
	if err != nil {
		return err
	}
	var emitted error // the reader's own error is not the member's
	err = parser.Parse(ctx, in, func(b block.Block) error {
		emitted = emit(b)
		return emitted
	})
	var refused *Error
	if err == nil || emitted != nil || errors.As(err, &refused) || ctx.Err() != nil {
		return err
	}
	return refuse(malformed, err)
}

func joinSection(outer, inner string) string {
	if inner == "" {
		return outer
	}
	return outer + "!" + inner
}

// guardedSource remembers a failure to read, which says nothing about the
// document and must be taken neither for a malformed one nor for its end: that
// is io.EOF itself, and not before the size.
type guardedSource struct {
	io.ReaderAt
	size int64
	work *meter // nil while the format is detected

	mu     sync.Mutex
	failed error // first
}

func guard(in Input) (Input, *guardedSource) {
	source := &guardedSource{ReaderAt: in.Content, size: in.Size}
	in.Content = source
	return in, source
}

var errNegativeOffset = errors.New("the file points outside itself")

func (g *guardedSource) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errNegativeOffset
	}
	n, err := g.ReaderAt.ReadAt(p, off)
	if g.work != nil {
		if over := g.work.spend(int64(n)); over != nil {
			return 0, over
		}
	}
	ended := err == io.EOF //nolint:errorlint // io.ReaderAt's own contract
	switch {
	case err == nil, ended && off+int64(n) >= g.size:
		return n, err
	case ended:
		err = fmt.Errorf("the content ends before its %d bytes: %w", g.size, io.ErrUnexpectedEOF)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failed == nil {
		g.failed = err
	}
	return n, err
}

func (g *guardedSource) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed
}

// explain turns the error of a parser into what the caller is told. A parser
// that made do with what it could read has failed too.
func (g *guardedSource) explain(name, parser string, err error) error {
	var refused *Error
	failed := g.failure()
	switch isError := errors.As(err, &refused); {
	case isError && (refused.Kind == TimedOut || refused.Kind == crashed):
	case failed != nil:
		return fmt.Errorf("reading %s: %w", name, failed)
	case err == nil:
		return nil
	case errors.Is(err, errCallerLeft):
		return errors.Unwrap(err)
	case !isError:
		refused = refuse(malformed, err)
	}
	told := *refused
	if told.Name == "" {
		told.Name = name
	}
	if told.Parser == "" {
		told.Parser = parser
	}
	if told.Hint == "" {
		told.Hint = hints[told.Kind]
	}
	return &told
}
