package parse

import (
	"archive/zip"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/penstock-go/penstock/pipeline/block"
)

// zipPackage is an office document or book: a zip with files of known names.
type zipPackage struct {
	files  map[string]*zip.File
	order  []*zip.File
	budget *budget
}

func openPackage(in Input) (*zipPackage, error) {
	z, err := zip.NewReader(in.Content, in.Size)
	if err != nil {
		return nil, err
	}
	if len(z.File) > in.budget.limits.MaxEntries {
		return nil, refuse(tooLarge, fmt.Errorf("more than %d members (MaxEntries)", in.budget.limits.MaxEntries))
	}
	p := &zipPackage{files: map[string]*zip.File{}, order: z.File, budget: in.budget}
	for _, f := range z.File {
		p.files[strings.TrimPrefix(f.Name, "/")] = f
	}
	return p, nil
}

var errNoMember = errors.New("a part is missing")

// read unpacks a member within the budget.
func (p *zipPackage) read(name string) ([]byte, error) {
	f, ok := p.files[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s", errNoMember, name)
	}
	return readZipFile(f, p.budget)
}

func readZipFile(f *zip.File, b *budget) ([]byte, error) {
	if f.Flags&1 != 0 {
		return nil, refuse(passwordProtected, nil)
	}
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(b.reader(r, int64(f.CompressedSize64)))
}

// walk reads a member as XML. A member that is not there is no error if it is
// optional.
func (p *zipPackage) walk(name string, optional bool, fn func(xml.Token) error) error {
	content, err := p.read(name)
	if errors.Is(err, errNoMember) && optional {
		return nil
	}
	if err != nil {
		return err
	}
	return walkXML(content, fn)
}

// relations maps the ids of a part's relationships to the parts they name.
func (p *zipPackage) relations(part string) (map[string]relation, error) {
	found := map[string]relation{}
	rels := path.Join(path.Dir(part), "_rels", path.Base(part)+".rels")
	err := p.walk(rels, true, func(t xml.Token) error {
		if start, ok := t.(xml.StartElement); ok && start.Name.Local == "Relationship" {
			target := attr(start, "Target")
			if !strings.HasPrefix(target, "/") {
				target = path.Join(path.Dir(part), target)
			}
			found[attr(start, "Id")] = relation{kind: path.Base(attr(start, "Type")),
				target: strings.TrimPrefix(target, "/")}
		}
		return nil
	})
	return found, err
}

type relation struct{ kind, target string }

// title emits the title in a metadata part.
func (p *zipPackage) title(name string, emit func(block.Block) error) error {
	var title strings.Builder
	inTitle := false
	err := p.walk(name, true, func(t xml.Token) error {
		switch t := t.(type) {
		case xml.StartElement:
			inTitle = t.Name.Local == "title" && title.Len() == 0
		case xml.EndElement:
			inTitle = false
		case xml.CharData:
			if inTitle {
				title.Write(t)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return emit(block.Block{Kind: block.Title, Text: squeeze(title.String())})
}

// walkXML calls fn with each token of a document. Entities are those of HTML;
// a document's own are left as they are, so that none can grow.
func walkXML(content []byte, fn func(xml.Token) error) error {
	// one slip costs a letter, not the document
	text := strings.ToValidUTF8(decodeText(content, declaredInXML(content)), "\uFFFD")
	d := xml.NewDecoder(strings.NewReader(text))
	d.Strict = false
	d.Entity = xml.HTMLEntity
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil } // it is decoded
	for depth := 0; ; {
		before := d.InputOffset()
		t, err := d.Token()
		switch t.(type) {
		case xml.StartElement:
			depth++
		case xml.EndElement:
			depth--
		}
		// nolint:errorlint // the very value
		if err == io.EOF || err != nil && depth == 1 && isCutEndTag(text[before:]) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := fn(t); err != nil {
			return err
		}
	}
}

// isCutEndTag holds for what is left of a document of which the very end was
// cut off: no text is lost.
func isCutEndTag(rest string) bool {
	return strings.HasPrefix(rest, "</") && !strings.ContainsAny(rest[2:], "<>")
}

// attr is the value of an attribute, in whatever namespace.
func attr(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// attrIn is the value of an attribute in the namespace that ends so.
func attrIn(e xml.StartElement, space, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name && strings.HasSuffix(a.Name.Space, space) {
			return a.Value
		}
	}
	return ""
}

// isOn reads the on/off attributes of office formats.
func isOn(value string) bool { return value == "1" || value == "true" || value == "on" }
