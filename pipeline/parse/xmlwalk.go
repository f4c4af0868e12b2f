package parse

import (
	"encoding/xml"
	"io"
	"regexp"
	"strings"

	"golang.org/x/text/encoding"
)

// walkXML calls fn with each token of a document. Entities are those of HTML;
// a document's own are left as they are, so that none can grow.
func (b *budget) walkXML(content []byte, fn func(xml.Token) error) error {
	// one slip costs a letter, not the document
	text := strings.ToValidUTF8(decodeText(content, declaredInXML(content)), "\uFFFD")
	d := xml.NewDecoder(b.passing(strings.NewReader(text)))
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
		ended := err == io.EOF //nolint:errorlint // the very value
		if ended || err != nil && depth == 1 && isCutEndTag(text[before:]) {
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

var xmlEncoding = regexp.MustCompile(`^\s*<\?xml[^>]*\sencoding\s*=\s*["']([A-Za-z0-9._:-]+)["']`)

// declaredInXML is the encoding in the XML declaration, or nil.
func declaredInXML(content []byte) encoding.Encoding {
	m := xmlEncoding.FindSubmatch(content[:min(256, len(content))])
	if m == nil {
		return nil
	}
	return namedEncoding(string(m[1]))
}
