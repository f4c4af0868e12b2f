package parse

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"mime"
	"path"
	"slices"
	"strings"

	"github.com/gabriel-vasile/mimetype"

	"github.com/penstock-go/penstock/pipeline/block"
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
	texts := func(b builtin, types ...string) { r.register(entry{parser: b}, types...) }
	texts(builtin{"text", 1, true, parseText},
		mimeText, ".txt", ".text", ".log", ".rst", ".org", ".adoc", ".asciidoc", ".tex")
	texts(builtin{"markdown", 2, false, newMarkdownParser().parse},
		"text/markdown", ".md", ".markdown", ".mdown", ".mkd", ".mdx")
	texts(builtin{"html", 1, false, parseHTML}, mimeHTML, "application/xhtml+xml", ".html", ".htm", ".xhtml")
	texts(builtin{"csv", 1, true, parseCSV}, "text/csv", "text/tab-separated-values", ".csv", ".tsv", ".tab", ".psv")
	texts(builtin{"json", 1, true, parseJSON}, "application/json", "application/geo+json", ".json", ".geojson")
	texts(builtin{"jsonl", 1, true, parseJSON}, "application/x-ndjson", ".jsonl", ".ndjson")
	texts(builtin{"xml", 2, false, parseXML},
		mimeXML, "application/xml", ".xml", ".rss", ".atom", ".dbk", ".docbook", ".dita", ".svg")
	texts(builtin{"eml", 1, false, r.parseEML}, "message/rfc822", ".eml")
	texts(builtin{"rtf", 1, false, parseRTF}, "text/rtf", "application/rtf", ".rtf")
	texts(builtin{"code", 1, true, parseCode}, slices.Collect(maps.Keys(codeLanguages))...)

	binaries := func(b builtin, types ...string) { r.register(entry{parser: b, binary: true}, types...) }
	binaries(builtin{"pdf", 2, false, r.pdf.parse}, mimePDF, ".pdf")
	binaries(builtin{"docx", 2, false, parseDOCX}, mimeDOCX, ".docx", ".docm", ".dotx")
	binaries(builtin{"pptx", 2, false, parsePPTX}, mimePPTX, ".pptx", ".pptm", ".ppsx")
	binaries(builtin{"xlsx", 1, false, parseXLSX}, mimeXLSX, ".xlsx", ".xlsm")
	binaries(builtin{"epub", 1, false, parseEPUB}, mimeEPUB, ".epub")
	binaries(builtin{"odt", 2, false, parseODT},
		mimeODT, mimeODS, mimeODP, mimeODT+"-template", ".odt", ".ods", ".odp")
	binaries(builtin{"zip", 1, false, r.parseZip}, mimeZip, ".zip")
	binaries(builtin{"tar", 1, false, r.parseTar}, "application/x-tar", ".tar")
	binaries(builtin{"compressed", 1, false, r.parsePacked},
		"application/gzip", "application/x-bzip2", ".gz", ".tgz", ".bz2")
}

// builtin is a parser of this package. Its version rises whenever the same
// bytes give other blocks.
type builtin struct {
	name    string
	version int
	streams bool
	parse   func(ctx context.Context, in Input, emit func(block.Block) error) error
}

func (b builtin) Name() string  { return b.name }
func (b builtin) Version() int  { return b.version }
func (b builtin) Streams() bool { return b.streams }

func (b builtin) Parse(ctx context.Context, in Input, emit func(block.Block) error) error {
	return b.parse(ctx, in, emit)
}

// choose finds the parser for a document.
func (r *Registry) choose(in Input) (Parser, Format, error) {
	head, err := readHead(in)
	if err != nil {
		return nil, Format{}, err
	}
	if int64(len(head)) == in.Size && isBlank(head) {
		return nil, Format{}, &Error{Kind: empty, NotText: blankFile}
	}
	media, isText, err := sniff(in, head)
	if err != nil {
		return nil, Format{}, err
	}
	ext := extensionOf(in.Name)
	found, ok := r.byContent(media, ext, isText)
	if !ok {
		return nil, Format{MIME: media}, &Error{
			Kind: unsupported, NotText: notText(media, in.Name), Err: errors.New("the content is " + media),
		}
	}
	return found.parser, Format{
		Parser: found.parser.Name(), Version: found.parser.Version(), MIME: media, Streams: streams(found.parser),
	}, nil
}

// streams reports whether a parser takes documents of any size.
func streams(p Parser) bool {
	s, ok := p.(Streamer)
	return ok && s.Streams()
}

// notText says which kind of content that never is text this is; "" if it may
// be text. Thumbs.db is a file of thumbnails that Windows leaves in folders.
func notText(media, name string) string {
	switch {
	case media == mimeAny:
		return notTextNames[extensionOf(name)]
	case media == mimeOLE && strings.EqualFold(path.Base(name), "thumbs.db"):
		return imageFile
	}
	return notTextType(media)
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
