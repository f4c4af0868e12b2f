package parse

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/klippa-app/go-pdfium"
	pdferrors "github.com/klippa-app/go-pdfium/errors"
	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"
	"github.com/klippa-app/go-pdfium/webassembly"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/penstock-go/penstock/pipeline/block"
)

// pdfParser reads PDF with PDFium, compiled to WebAssembly: a fault in it
// cannot reach the memory, files or network of this process. The machine code
// is kept in the user's cache folder, since compiling takes seconds.
//
// The memory of each engine is bounded by Limits.MaxMemory: a few hundred bytes
// of PDF can ask for all that there is.
type pdfParser struct {
	maxMemory int64
	making    chan struct{} // held while an engine is made
	memories  pdfMemories

	mu     sync.Mutex
	pool   pdfium.Pool
	cache  wazero.CompilationCache
	closed bool
}

func newPDFParser(l Limits) *pdfParser {
	return &pdfParser{maxMemory: l.MaxMemory, making: make(chan struct{}, 1)}
}

func (p *pdfParser) parse(ctx context.Context, in Input, emit func(block.Block) error) error {
	content, err := readAll(in)
	if err != nil {
		return err
	}
	pool, err := p.start()
	if err != nil {
		return err
	}
	memory, err := newPDFMemory(int64(len(content)), p.maxMemory)
	if err != nil {
		return err
	}
	defer memory.release()
	within := func(b block.Block) error {
		if err := memory.explain(nil); err != nil {
			return err
		}
		return emit(b)
	}
	return memory.explain(p.parseWithin(ctx, pool, memory, content, in.budget, within))
}

// parseWithin reads a document with an engine that has the memory.
func (p *pdfParser) parseWithin(ctx context.Context, pool pdfium.Pool, memory *pdfMemory, content []byte, b *budget,
	emit func(block.Block) error,
) error {
	engine, err := p.engine(ctx, pool, memory)
	if err != nil {
		return err
	}
	unwatch := context.AfterFunc(ctx, func() { _ = engine.Kill() }) // ends an endless loop
	defer func() {
		if unwatch() {
			_ = engine.Close()
		}
	}()
	return readPDF(engine, content, b, emit)
}

// engine makes an engine that has the memory.
func (p *pdfParser) engine(ctx context.Context, pool pdfium.Pool, memory *pdfMemory) (pdfium.Pdfium, error) {
	select {
	case p.making <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-p.making }()
	p.memories.next = memory
	return pool.GetInstanceWithContext(ctx)
}

// start makes the engines when the first PDF comes.
func (p *pdfParser) start() (pdfium.Pool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.New("the registry is closed")
	}
	if p.pool != nil {
		return p.pool, nil
	}
	p.cache = compilationCache()
	config := wazero.NewRuntimeConfig().
		WithCoreFeatures(api.CoreFeaturesV2 | experimental.CoreFeaturesExceptionHandling).
		WithCompilationCache(p.cache).
		WithCloseOnContextDone(true)
	pool, err := webassembly.Init(webassembly.Config{
		Context: p.memories.context(),
		MaxIdle: 1, MaxTotal: max(1, runtime.GOMAXPROCS(0)),
		FSConfig: wazero.NewFSConfig(), RuntimeConfig: config,
		Stdout: io.Discard, Stderr: io.Discard,
	})
	if err != nil {
		return nil, err
	}
	p.pool = pool
	return pool, nil
}

// compilationCache is on disk if there is a place for it.
func compilationCache() wazero.CompilationCache {
	if dir, err := os.UserCacheDir(); err == nil {
		if cache, err := wazero.NewCompilationCacheWithDir(filepath.Join(dir, "penstock", "wazero")); err == nil {
			return cache
		}
	}
	return wazero.NewCompilationCache()
}

func (p *pdfParser) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.pool == nil {
		p.closed = true
		return nil
	}
	p.closed = true
	return errors.Join(p.pool.Close(), p.cache.Close(context.Background()))
}

func readPDF(engine pdfium.Pdfium, content []byte, b *budget, emit func(block.Block) error) error {
	opened, err := engine.OpenDocument(&requests.OpenDocument{File: &content})
	if err != nil {
		return pdfRefusal(err)
	}
	document := opened.Document
	if title := pdfTitle(engine, document); title != "" {
		if err := emit(block.Block{Kind: block.Title, Text: title}); err != nil {
			return err
		}
	}
	count, err := engine.FPDF_GetPageCount(&requests.FPDF_GetPageCount{Document: document})
	if err != nil {
		return err
	}
	return readPDFPages(engine, document, count.PageCount, b, emit)
}

func readPDFPages(engine pdfium.Pdfium, document references.FPDF_DOCUMENT, count int, b *budget,
	emit func(block.Block) error,
) error {
	found := false
	var broken error
	for i := range count {
		if err := b.step(); err != nil {
			return err
		}
		text, err := pdfPage(engine, document, i)
		if err != nil {
			broken = err
			note := block.Block{Kind: block.Note, Text: "the page cannot be read: " + withoutStack(err), Page: i + 1}
			if err := emit(note); err != nil {
				return err
			}
			continue
		}
		for _, paragraph := range pdfParagraphs(text) {
			found = true
			if err := emit(block.Block{Kind: block.Paragraph, Text: paragraph, Page: i + 1}); err != nil {
				return err
			}
		}
	}
	switch {
	case found:
		return nil
	case broken != nil:
		return broken
	}
	return refuse(noTextLayer, nil)
}

func pdfRefusal(err error) error {
	switch {
	case errors.Is(err, pdferrors.ErrPassword), errors.Is(err, pdferrors.ErrSecurity):
		return refuse(passwordProtected, err)
	}
	return refuse(malformed, err)
}

// pdfTitle is the title in the metadata, unless a program put it there.
func pdfTitle(engine pdfium.Pdfium, document references.FPDF_DOCUMENT) string {
	meta, err := engine.GetMetaData(&requests.GetMetaData{Document: document, Tags: &[]string{"Title"}})
	if err != nil || len(meta.Tags) == 0 {
		return ""
	}
	title := squeeze(meta.Tags[0].Value)
	lower := strings.ToLower(title)
	if strings.HasPrefix(lower, "microsoft ") || strings.HasPrefix(lower, "untitled") || isFileName(lower) {
		return ""
	}
	return title
}

func isFileName(s string) bool {
	ext := filepath.Ext(s)
	return len(ext) > 1 && len(ext) <= 5 && !strings.Contains(ext, " ")
}

// pdfPage is the text of a page, what is filled into its form included.
func pdfPage(engine pdfium.Pdfium, document references.FPDF_DOCUMENT, index int) (string, error) {
	page := requests.Page{ByIndex: &requests.PageByIndex{Document: document, Index: index}}
	fields := openPDFForm(engine, page)
	loaded, err := engine.FPDFText_LoadPage(&requests.FPDFText_LoadPage{Page: page})
	if err != nil {
		return "", err
	}
	defer func() { _, _ = engine.FPDFText_ClosePage(&requests.FPDFText_ClosePage{TextPage: loaded.TextPage}) }()
	count, err := engine.FPDFText_CountChars(&requests.FPDFText_CountChars{TextPage: loaded.TextPage})
	if err != nil || count.Count <= 0 {
		return withPDFFields("", fields), err
	}
	text, err := engine.FPDFText_GetText(&requests.FPDFText_GetText{TextPage: loaded.TextPage, Count: count.Count})
	if err != nil {
		return "", err
	}
	return withPDFFields(text.Text, fields), nil
}

// A page has lines and no paragraphs. A line that ends a sentence and is well
// short of the longest ones ends a paragraph.
const shortLine = 0.8

func pdfParagraphs(page string) []string {
	lines := pdfLines(page)
	widest := 0
	for _, line := range lines {
		widest = max(widest, len(line))
	}
	var paragraphs []string
	start := 0
	for i, line := range lines {
		ends := line == "" || strings.ContainsAny(line[len(line)-1:], ".!?:") &&
			float64(len(line)) < shortLine*float64(widest)
		if ends || i == len(lines)-1 {
			if text := strings.TrimSpace(strings.Join(lines[start:i+1], "\n")); text != "" {
				paragraphs = append(paragraphs, text)
			}
			start = i + 1
		}
	}
	return paragraphs
}

// pdfLines splits a page into lines, with words that were hyphenated at a
// line's end made whole; PDFium marks those hyphens with U+FFFE or U+0002.
func pdfLines(page string) []string {
	for _, mark := range []string{"\uFFFE", "\x02"} {
		page = strings.ReplaceAll(page, mark+"\r\n", "")
		page = strings.ReplaceAll(page, mark+"\n", "")
		page = strings.ReplaceAll(page, mark, "-")
	}
	lines := strings.Split(clean(page), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return lines
}
