package parse

import (
	"context"
	"encoding/xml"
	"strings"

	"github.com/penstock-go/penstock/pipeline/block"
)

// parseXML reads XML of any vocabulary: an element that holds text is a
// paragraph, with what is inside it, and one named title, head or heading is a
// heading. If there is no text at all, attributes are.
func parseXML(_ context.Context, in Input, emit func(block.Block) error) error {
	content, err := readAll(in)
	if err != nil {
		return err
	}
	w := &xmlWalker{emit: emit}
	if err := in.budget.walkXML(content, w.token); err != nil {
		return err
	}
	if err := w.flush(block.Paragraph); err != nil || w.emitted {
		return err
	}
	return in.budget.walkXML(content, w.attributes)
}

// xmlWalker turns elements into blocks.
type xmlWalker struct {
	emit    func(block.Block) error
	emitted bool
	text    strings.Builder
	depth   int
	inside  int // how many elements we are in, within running text
}

func (w *xmlWalker) token(t xml.Token) error {
	switch t := t.(type) {
	case xml.CharData:
		w.text.Write(t)
	case xml.StartElement:
		w.depth++
		if strings.TrimSpace(w.text.String()) != "" {
			w.inside++
		}
	case xml.EndElement:
		w.depth--
		if w.inside > 0 {
			w.inside--
			return nil
		}
		return w.flush(xmlKind(t.Name.Local))
	}
	return nil
}

func xmlKind(name string) block.Kind {
	switch strings.ToLower(name) {
	case "title", "head", "heading":
		return block.Heading
	}
	return block.Paragraph
}

func (w *xmlWalker) flush(kind block.Kind) error {
	text := strings.TrimSpace(w.text.String())
	w.text.Reset()
	if text == "" {
		return nil
	}
	w.emitted = true
	b := block.Block{Kind: kind, Text: text}
	if kind == block.Heading {
		b.Level, b.Text = min(6, max(1, w.depth-1)), squeeze(text)
	}
	return w.emit(b)
}

// attributes emits the attributes of an element.
func (w *xmlWalker) attributes(t xml.Token) error {
	start, ok := t.(xml.StartElement)
	if !ok || len(start.Attr) == 0 {
		return nil
	}
	var lines []string
	for _, a := range start.Attr {
		if a.Name.Space != "xmlns" && a.Name.Local != "xmlns" && strings.TrimSpace(a.Value) != "" {
			lines = append(lines, start.Name.Local+"."+a.Name.Local+": "+squeeze(a.Value))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return w.emit(block.Block{Kind: block.Record, Text: strings.Join(lines, "\n")})
}
