package parse

import (
	"context"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/penstock-go/penstock/pipeline/block"
)

// markdownParser reads CommonMark with tables, task lists, footnotes and
// definition lists. Marks of emphasis and the targets of links are dropped.
type markdownParser struct{ parser parser.Parser }

func newMarkdownParser() markdownParser {
	return markdownParser{goldmark.New(goldmark.WithExtensions(extension.GFM, extension.Footnote,
		extension.DefinitionList)).Parser()}
}

func (p markdownParser) parse(_ context.Context, in Input, emit func(block.Block) error) error {
	content, err := readText(in, nil)
	if err != nil {
		return err
	}
	body, err := frontMatter(clean(content), emit)
	if err != nil {
		return err
	}
	source := []byte(body)
	w := &markdownWalker{source: source, budget: in.budget, emit: emit}
	return w.blocks(p.parser.Parse(text.NewReader(source)), 0)
}

// frontMatter emits the YAML or TOML at the head of a page as a record, its
// title as the title, and returns the rest.
func frontMatter(content string, emit func(block.Block) error) (string, error) {
	for _, fence := range []string{"---\n", "+++\n"} {
		rest, ok := strings.CutPrefix(content, fence)
		if !ok {
			continue
		}
		meta, body, ok := strings.Cut("\n"+rest, "\n"+fence)
		if !ok || !strings.ContainsAny(meta, ":=") {
			continue
		}
		for line := range strings.SplitSeq(meta, "\n") {
			key, value, _ := strings.Cut(strings.Replace(line, "=", ":", 1), ":")
			if strings.TrimSpace(key) == "title" {
				if err := emit(block.Block{
					Kind: block.Title,
					Text: strings.Trim(strings.TrimSpace(value), `"'`),
				}); err != nil {
					return "", err
				}
			}
		}
		return body, emit(block.Block{Kind: block.Record, Text: meta})
	}
	return content, nil
}

// markdownWalker turns the tree of a page into blocks.
type markdownWalker struct {
	source []byte
	budget *budget
	emit   func(block.Block) error
	item   bool // the next paragraph is the first of a list item
}

// blocks emits the children of a block that holds blocks.
func (w *markdownWalker) blocks(parent ast.Node, depth int) error {
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		if err := w.block(n, depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *markdownWalker) block(n ast.Node, depth int) error {
	switch n := n.(type) {
	case *ast.Heading:
		return w.emit(block.Block{Kind: block.Heading, Level: n.Level, Text: squeeze(w.inline(n))})
	case *ast.FencedCodeBlock:
		return w.emit(block.Block{Kind: block.Code, Text: w.lines(n), Lang: string(n.Language(w.source))})
	case *ast.CodeBlock:
		return w.emit(block.Block{Kind: block.Code, Text: w.lines(n)})
	case *ast.HTMLBlock:
		return w.budget.walkHTML(w.html(n), w.emit)
	case *ast.List:
		return w.blocks(n, depth+1)
	case *ast.ListItem:
		w.item = true
		return w.blocks(n, depth)
	case *extast.Table:
		return w.table(n)
	case *ast.ThematicBreak:
		return nil
	}
	if n.Type() == ast.TypeBlock && n.FirstChild() != nil && n.FirstChild().Type() == ast.TypeBlock {
		return w.blocks(n, depth)
	}
	return w.paragraph(n, depth)
}

// paragraph emits a block of inline text.
func (w *markdownWalker) paragraph(n ast.Node, depth int) error {
	b := block.Block{Kind: block.Paragraph, Text: w.inline(n)}
	if w.item && depth > 0 {
		b.Kind, b.Level = block.ListItem, depth
	}
	w.item = false
	return w.emit(b)
}

func (w *markdownWalker) html(n *ast.HTMLBlock) string {
	s := w.lines(n)
	if n.HasClosure() {
		s += string(n.ClosureLine.Value(w.source))
	}
	return s
}

// lines is the text of a block as it stands.
func (w *markdownWalker) lines(n ast.Node) string {
	var b strings.Builder
	for i := range n.Lines().Len() {
		segment := n.Lines().At(i)
		b.Write(segment.Value(w.source))
	}
	return b.String()
}

func (w *markdownWalker) table(n *extast.Table) error {
	t := tableWriter{emit: w.emit}
	for row := n.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			cells = append(cells, w.inline(cell))
		}
		if _, ok := row.(*extast.TableHeader); ok {
			t.header = tableLine(cells)
			continue
		}
		if err := t.row(cells); err != nil {
			return err
		}
	}
	return t.close()
}

// inline is the text of the inline nodes in a block.
func (w *markdownWalker) inline(n ast.Node) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		w.writeInline(&b, c)
	}
	return b.String()
}

func (w *markdownWalker) writeInline(b *strings.Builder, n ast.Node) {
	switch n := n.(type) {
	case *ast.Text:
		b.Write(literal(n.Segment.Value(w.source), n.IsRaw()))
		if n.SoftLineBreak() || n.HardLineBreak() {
			b.WriteByte('\n')
		}
	case *ast.String:
		b.Write(literal(n.Value, n.IsRaw() || n.IsCode()))
	case *ast.AutoLink:
		b.Write(n.Label(w.source))
	case *ast.RawHTML:
		b.WriteString(w.rawText(string(n.Segments.Value(w.source))))
	default:
		b.WriteString(w.inline(n))
	}
}

// rawText is what a tag in the midst of a text says.
func (w *markdownWalker) rawText(tag string) string {
	lower := strings.ToLower(tag)
	switch {
	case slices.Contains([]string{"<br>", "<br/>", "<br />"}, lower):
		return "\n"
	case strings.HasPrefix(lower, "<img"):
		alt := ""
		_ = w.budget.walkHTML(tag, func(b block.Block) error { alt = strings.TrimSpace(b.Text); return nil })
		return alt
	}
	return ""
}

// literal resolves backslash escapes and entities in a text that is not raw.
func literal(segment []byte, raw bool) []byte {
	if raw {
		return segment
	}
	return util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations(segment)))
}
