package parse

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"maps"
	"mime"
	"path"
	"slices"
	"strings"

	"github.com/gabriel-vasile/mimetype"
)

const sniffBytes = 4096

// Media types that decide something here.
const (
	mimeText = "text/plain"
	mimeHTML = "text/html"
	mimeXML  = "text/xml"
	mimePDF  = "application/pdf"
	mimeZip  = "application/zip"
	mimeOLE  = "application/x-ole-storage"
	mimeAny  = "application/octet-stream"
)

func (r *Registry) registerBuiltin() {
	r.register(entry{parser: textParser{}}, mimeText, ".txt", ".text", ".log", ".rst", ".org", ".adoc", ".asciidoc",
		".tex")
	r.register(entry{parser: newMarkdownParser()}, "text/markdown", ".md", ".markdown", ".mdown", ".mkd", ".mdx")
	r.register(entry{parser: htmlParser{}}, mimeHTML, "application/xhtml+xml", ".html", ".htm", ".xhtml")
	r.register(entry{parser: csvParser{}}, "text/csv", "text/tab-separated-values", ".csv", ".tsv", ".tab", ".psv")
	r.register(entry{parser: jsonParser{}}, "application/json", "application/geo+json", ".json", ".geojson")
	r.register(entry{parser: jsonParser{lines: true}}, "application/x-ndjson", ".jsonl", ".ndjson")
	r.register(entry{parser: xmlParser{}}, mimeXML, "application/xml", ".xml", ".rss", ".atom", ".dbk", ".docbook",
		".dita", ".svg")
	r.register(entry{parser: emlParser{r}}, "message/rfc822", ".eml")
	r.register(entry{parser: rtfParser{}}, "text/rtf", "application/rtf", ".rtf")
	r.register(entry{parser: codeParser{}}, slices.Collect(maps.Keys(codeLanguages))...)
	r.register(entry{parser: r.pdf, binary: true}, mimePDF, ".pdf")
	r.register(entry{parser: docxParser{}, binary: true}, mimeDOCX, ".docx", ".docm", ".dotx")
	r.register(entry{parser: pptxParser{}, binary: true}, mimePPTX, ".pptx", ".pptm", ".ppsx")
	r.register(entry{parser: xlsxParser{}, binary: true}, mimeXLSX, ".xlsx", ".xlsm")
	r.register(entry{parser: epubParser{}, binary: true}, mimeEPUB, ".epub")
	r.register(entry{parser: odtParser{}, binary: true}, mimeODT, mimeODS, mimeODP, mimeODT+"-template", ".odt", ".ods",
		".odp")
	r.register(entry{parser: zipParser{r}, binary: true}, mimeZip, ".zip")
	r.register(entry{parser: tarParser{r}, binary: true}, "application/x-tar", ".tar")
	r.register(entry{parser: packedParser{r}, binary: true}, "application/gzip", "application/x-bzip2", ".gz", ".tgz",
		".bz2")
}

// choose finds the parser for a document.
func (r *Registry) choose(in Input) (Parser, Format, error) {
	if in.Size == 0 {
		return nil, Format{}, refuse(empty, nil)
	}
	head, err := readHead(in)
	if err != nil {
		return nil, Format{}, err
	}
	media, isText, err := sniff(in, head)
	if err != nil {
		return nil, Format{}, err
	}
	ext := extensionOf(in.Name)
	found, ok := r.byContent(media, ext, isText)
	if !ok {
		return nil, Format{MIME: media}, &Error{Kind: unsupported, Err: errors.New("the content is " + media)}
	}
	return found.parser, Format{Parser: found.parser.Name(), Version: found.parser.Version(), MIME: media}, nil
}

func readHead(in Input) ([]byte, error) {
	head := make([]byte, min(sniffBytes, in.Size))
	n, err := in.Content.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return head[:n], nil
}

// byContent weighs the type of the content against the name.
func (r *Registry) byContent(media, ext string, isText bool) (entry, bool) {
	named, hasName := r.types[ext]
	sniffed, hasType := r.types[media]
	switch {
	case isText && hasName && (!named.binary || !isBuiltin(named)) && !contradicts(ext, media):
		return named, true
	case isText && hasType:
		return sniffed, true
	case isText && strings.HasSuffix(media, "+xml"):
		return r.types[mimeXML], true
	case isText:
		return r.types[mimeText], true
	case hasType && !(media == mimeZip && hasName && named.binary):
		return sniffed, true
	case hasName && named.binary && media == mimeZip:
		return named, true
	case hasName && named.binary && media == mimeAny:
		return named, true
	}
	return entry{}, false
}

func isBuiltin(e entry) bool {
	_, ok := e.parser.(builtin)
	return ok
}

// builtin marks the parsers of this package.
type builtin interface{ builtin() }

// contradicts reports whether a text's content shows that its extension is
// wrong. Markdown and source code may begin like anything.
func contradicts(ext, media string) bool {
	plain := ext == ".txt" || ext == ".text" || ext == ".log"
	return plain && (media == mimeHTML || media == "text/rtf")
}

// extensionOf is the lower-case extension of a path or URL, with its dot, or
// the whole base name in lower case if there is no dot in it ("makefile").
func extensionOf(name string) string {
	if i := strings.Index(name, "://"); i >= 0 {
		name, _, _ = strings.Cut(name[i+3:], "?")
		name, _, _ = strings.Cut(name, "#")
	}
	base := strings.ToLower(path.Base(name))
	if ext := path.Ext(base); ext != "" {
		return ext
	}
	return base
}

// sniff finds the media type of the content and whether it is text.
func sniff(in Input, head []byte) (media string, isText bool, err error) {
	media, _, _ = mime.ParseMediaType(mimetype.Detect(head).String())
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), bytes.HasPrefix(head, []byte("PK\x05\x06")):
		return sniffZip(in), false, nil
	case bytes.HasPrefix(head, []byte("\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1")):
		return mimeOLE, false, sniffOLE(in)
	case bytes.Contains(head[:min(1024, len(head))], []byte("%PDF-")) &&
		(media == mimeAny || media == mimeText || media == mimePDF):
		return mimePDF, false, nil
	case strings.HasPrefix(media, "text/"), isTextual(media):
		return media, true, nil
	case media == mimeAny && looksLikeText(head):
		return mimeText, true, nil
	}
	return media, false, nil
}

// isTextual reports whether a media type outside text/ is text all the same.
func isTextual(media string) bool {
	for m := mimetype.Lookup(media); m != nil; m = m.Parent() {
		if m.Is(mimeText) {
			return true
		}
	}
	return false
}

// looksLikeText accepts text in UTF-16 or UTF-32 without a mark, and text with
// a few control characters in it.
func looksLikeText(head []byte) bool {
	if guessUTF(head) != nil {
		return true
	}
	odd := 0
	for _, c := range head {
		if c < 0x20 && !strings.ContainsRune("\t\n\r\f\v\b\x1b", rune(c)) {
			odd++
		}
	}
	return odd*50 < len(head)+50 // one is allowed in the shortest
}

// sniffZip names the office or book format by the files in a zip.
func sniffZip(in Input) string {
	z, err := zip.NewReader(in.Content, in.Size)
	if err != nil {
		return mimeZip
	}
	for _, f := range z.File {
		if media := officeMember(f); media != "" {
			return media
		}
	}
	return mimeZip
}

const (
	mimeDOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
	mimePPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
	mimeXLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
	mimeEPUB = "application/epub+zip"
	mimeODT  = "application/vnd.oasis.opendocument.text"
	mimeODS  = "application/vnd.oasis.opendocument.spreadsheet"
	mimeODP  = "application/vnd.oasis.opendocument.presentation"
)

func officeMember(f *zip.File) string {
	switch f.Name {
	case "word/document.xml":
		return mimeDOCX
	case "ppt/presentation.xml":
		return mimePPTX
	case "xl/workbook.xml":
		return mimeXLSX
	case "META-INF/container.xml":
		return mimeEPUB
	case "mimetype":
		return mimeMember(f)
	}
	return ""
}

// mimeMember reads the member in which EPUB and OpenDocument say what they are.
func mimeMember(f *zip.File) string {
	r, err := f.Open()
	if err != nil {
		return ""
	}
	defer r.Close()
	content, err := io.ReadAll(io.LimitReader(r, 128))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// sniffOLE refuses an Office file that is encrypted: its package is a stream in
// the container that old Office formats use.
func sniffOLE(in Input) error {
	const window = 1 << 20
	name := []byte("E\x00n\x00c\x00r\x00y\x00p\x00t\x00e\x00d\x00P\x00a\x00c\x00k\x00a\x00g\x00e\x00")
	buf := make([]byte, window+len(name))
	for off := int64(0); off < in.Size; off += window {
		n, err := in.Content.ReadAt(buf, off)
		if err != nil && err != io.EOF {
			return err
		}
		if bytes.Contains(buf[:n], name) {
			return refuse(passwordProtected, nil)
		}
	}
	return nil
}
