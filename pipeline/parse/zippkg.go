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
		return nil, in.budget.tooManyEntries()
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
	return p.budget.walkXML(content, fn)
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
			found[attr(start, "Id")] = relation{
				kind:   path.Base(attr(start, "Type")),
				target: strings.TrimPrefix(target, "/"),
			}
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
