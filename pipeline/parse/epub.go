package parse

import (
	"context"
	"encoding/xml"
	"errors"
	"net/url"
	"path"
	"strings"

	"github.com/penstock-go/penstock/pipeline/block"
)

// parseEPUB reads the chapters of a book in their order.
func parseEPUB(ctx context.Context, in Input, emit func(block.Block) error) error {
	p, err := openPackage(in)
	if err != nil {
		return err
	}
	if _, ok := p.files["META-INF/rights.xml"]; ok {
		return refuse(passwordProtected, errors.New("the book has digital rights management"))
	}
	book, err := readOPF(p)
	if err != nil {
		return err
	}
	if err := p.title(book.path, emit); err != nil {
		return err
	}
	for _, chapter := range book.chapters() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := readChapter(p, chapter, emit); err != nil {
			return err
		}
	}
	return nil
}

func readChapter(p *zipPackage, chapter string, emit func(block.Block) error) error {
	content, err := p.read(chapter)
	if errors.Is(err, errNoMember) {
		return emit(block.Block{Kind: block.Note, Text: "the chapter is not in the book", Section: chapter})
	}
	if err != nil {
		return err
	}
	return p.budget.walkHTML(decodeText(content, declaredInXML(content)), func(b block.Block) error {
		if b.Kind == block.Title {
			return nil // of the chapter: the book has one
		}
		return emit(b)
	})
}

// opf is the package document of a book.
type opf struct {
	path  string
	items map[string]opfItem
	spine []string
}

type opfItem struct{ path, media, properties string }

func readOPF(p *zipPackage) (*opf, error) {
	book := &opf{items: map[string]opfItem{}}
	err := p.walk("META-INF/container.xml", false, func(t xml.Token) error {
		if start, ok := t.(xml.StartElement); ok && start.Name.Local == "rootfile" && book.path == "" {
			book.path = attr(start, "full-path")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return book, p.walk(book.path, false, func(t xml.Token) error {
		if start, ok := t.(xml.StartElement); ok {
			book.element(start)
		}
		return nil
	})
}

func (b *opf) element(e xml.StartElement) {
	switch e.Name.Local {
	case "item":
		href := attr(e, "href")
		if decoded, err := url.PathUnescape(href); err == nil {
			href = decoded
		}
		b.items[attr(e, "id")] = opfItem{
			path.Join(path.Dir(b.path), href), attr(e, "media-type"),
			attr(e, "properties"),
		}
	case "itemref":
		b.spine = append(b.spine, attr(e, "idref"))
	}
}

// chapters are the pages of the book, without the table of contents.
func (b *opf) chapters() []string {
	var paths []string
	for _, id := range b.spine {
		item, ok := b.items[id]
		if ok && strings.Contains(item.media, "html") && !strings.Contains(item.properties, "nav") {
			paths = append(paths, item.path)
		}
	}
	return paths
}
