package parse

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/textproto"
	"strings"

	"golang.org/x/text/transform"

	"github.com/penstock-go/penstock/pipeline/block"
)

// parseEML reads a mail: its headers, its text (the plain version where there
// are several), and its attachments, each by its own parser.
func (r *Registry) parseEML(ctx context.Context, in Input, emit func(block.Block) error) error {
	content, err := readAll(in)
	if err != nil {
		return err
	}
	message, err := mail.ReadMessage(bytes.NewReader(content))
	if err != nil {
		return err
	}
	inner, err := in.budget.inside()
	if err != nil {
		return err
	}
	m := &mailReader{registry: r, ctx: ctx, budget: inner, emit: emit}
	if err := m.headers(message.Header); err != nil {
		return err
	}
	if err := m.part(textproto.MIMEHeader(message.Header), message.Body, 0); err != nil {
		return err
	}
	return m.attach()
}

// mailReader reads one mail.
type mailReader struct {
	registry *Registry
	ctx      context.Context
	budget   *budget
	emit     func(block.Block) error
	attached []Input // read after the text
}

var headerWords = mime.WordDecoder{CharsetReader: func(charset string, r io.Reader) (io.Reader, error) {
	if enc := namedEncoding(charset); enc != nil {
		return transform.NewReader(r, enc.NewDecoder()), nil
	}
	return r, nil
}}

func decodeHeader(value string) string {
	if decoded, err := headerWords.DecodeHeader(value); err == nil {
		return decoded
	}
	return value
}

func (m *mailReader) headers(h mail.Header) error {
	var lines []string
	for _, name := range []string{"From", "To", "Cc", "Date", "Subject"} {
		if value := squeeze(decodeHeader(h.Get(name))); value != "" {
			lines = append(lines, name+": "+value)
		}
	}
	if err := m.emit(block.Block{Kind: block.Title, Text: squeeze(decodeHeader(h.Get("Subject")))}); err != nil {
		return err
	}
	return m.emit(block.Block{Kind: block.Record, Text: strings.Join(lines, "\n")})
}

const maxParts = 64 // how deep multiparts may be nested

// part reads a part and what is inside it.
func (m *mailReader) part(h textproto.MIMEHeader, body io.Reader, depth int) error {
	media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || media == "" {
		media = mimeText
	}
	if depth > maxParts {
		return refuse(malformed, fmt.Errorf("parts are nested more than %d deep", maxParts))
	}
	if strings.HasPrefix(media, "multipart/") && params["boundary"] != "" {
		return m.multipart(media, multipart.NewReader(body, params["boundary"]), depth)
	}
	content, err := io.ReadAll(m.budget.reader(transferDecoded(h, body), 0))
	if _, ok := errors.AsType[*Error](err); ok {
		return err // what is read of a broken encoding is used
	}
	if name := attachmentName(h, params); name != "" || !isMailText(media) {
		if name == "" {
			name = unnamed(media)
		}
		in := FromBytes(name, content)
		in.budget = m.budget
		m.attached = append(m.attached, in)
		return nil
	}
	return m.text(media, decodeText(content, namedEncoding(params["charset"])))
}

func isMailText(media string) bool { return media == mimeText || media == mimeHTML }

func unnamed(media string) string {
	if media == "message/rfc822" {
		return "message.eml"
	}
	return "attachment"
}

func attachmentName(h textproto.MIMEHeader, params map[string]string) string {
	disposition, dparams, _ := mime.ParseMediaType(h.Get("Content-Disposition"))
	name := decodeHeader(dparams["filename"])
	if name == "" {
		name = decodeHeader(params["name"])
	}
	if name == "" && disposition == "attachment" {
		return "attachment"
	}
	return name
}

// transferDecoded undoes the transfer encoding, leniently.
func transferDecoded(h textproto.MIMEHeader, body io.Reader) io.Reader {
	switch strings.ToLower(strings.TrimSpace(h.Get("Content-Transfer-Encoding"))) {
	case "base64":
		return base64.NewDecoder(base64.StdEncoding, body)
	case "quoted-printable":
		return quotedprintable.NewReader(body)
	}
	return body
}

// mailPart is a part of a multipart, unread.
type mailPart struct {
	header textproto.MIMEHeader
	body   []byte
}

func (m *mailReader) multipart(media string, r *multipart.Reader, depth int) error {
	var parts []mailPart
	for {
		part, err := r.NextRawPart()
		if err != nil {
			break // the end, or a mail that was cut short
		}
		if err := m.budget.entry(); err != nil {
			return err
		}
		body, _ := io.ReadAll(part)
		parts = append(parts, mailPart{part.Header, body})
	}
	if media == "multipart/alternative" {
		parts = plainest(parts)
	}
	for _, part := range parts {
		if err := m.part(part.header, bytes.NewReader(part.body), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// plainest chooses among versions of a text: the plain one if it says anything,
// else the last, which the sender prefers.
func plainest(parts []mailPart) []mailPart {
	for _, part := range parts {
		media, _, _ := mime.ParseMediaType(part.header.Get("Content-Type"))
		if media == mimeText && len(bytes.TrimSpace(part.body)) > 0 {
			return []mailPart{part}
		}
	}
	return parts[max(0, len(parts)-1):]
}

func (m *mailReader) text(media, text string) error {
	if media == mimeHTML {
		return m.budget.walkHTML(text, m.emit)
	}
	for paragraph := range strings.SplitSeq(clean(text), "\n\n") {
		if err := m.emit(block.Block{Kind: block.Paragraph, Text: paragraph}); err != nil {
			return err
		}
	}
	return nil
}

func (m *mailReader) attach() error {
	for _, in := range m.attached {
		if err := m.registry.member(m.ctx, in, m.emit); err != nil {
			return err
		}
	}
	return nil
}
