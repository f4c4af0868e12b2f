package objectstore

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/internal/secret"
)

// maxAnswer is the most bytes of an answer that is not an object. The SDK reads
// errors and lists into memory, however long they are.
const maxAnswer = 8 << 20

// answers bounds what is read of them, and masks the secrets of a request that
// its answer repeats. It has the transport's CloseIdleConnections.
type answers struct {
	*http.Transport
	signed *signers
}

// RoundTrip is the transport's, with a bound on every answer but an object.
// What moves renews the lease of a probe.
func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	secrets := append(secretsOf(r.Header), a.signed.secrets()...)
	h := door.HandleOf(r.Context())
	resp, err := a.Transport.RoundTrip(sending(r, h))
	if err != nil {
		return nil, maskedErr(err, secrets)
	}
	op := awsmiddleware.GetOperationName(r.Context())
	object, failed := op == "GetObject" || op == "SelectObjectContent", resp.StatusCode >= http.StatusMultipleChoices
	if !object || failed {
		resp.Body = &boundedBody{resp.Body, op, maxAnswer}
	}
	if h != nil {
		resp.Body = moving{resp.Body, h}
	}
	if len(secrets) > 0 && (failed || patient[op]) {
		masked(resp, secrets)
	}
	return resp, nil
}

// sending is r with a body that renews the lease of its call.
func sending(r *http.Request, h *door.Handle) *http.Request {
	if h == nil || r.Body == nil || r.Body == http.NoBody {
		return r
	}
	sent := *r // a RoundTripper must not change its request
	sent.Body = moving{r.Body, h}
	return &sent
}

// moving renews the lease of a call with each read. It has no WriteTo, which
// flow says more of.
type moving struct {
	io.ReadCloser
	h *door.Handle
}

func (m moving) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if n > 0 {
		m.h.Renew()
	}
	return n, err
}

// secretHeaders are those of a request that nobody but the store may see.
var secretHeaders = []string{
	"X-Amz-Security-Token", "X-Amz-S3session-Token",
	"X-Amz-Server-Side-Encryption-Customer-Key", "X-Amz-Copy-Source-Server-Side-Encryption-Customer-Key",
}

func secretsOf(h http.Header) (secrets []string) {
	for _, name := range secretHeaders {
		value := h.Get(name)
		if value == "" {
			continue
		}
		secrets = append(secrets, value)
		if raw, err := base64.StdEncoding.DecodeString(value); err == nil {
			secrets = append(secrets, string(raw))
		}
	}
	return secrets
}

// masked takes secrets out of an answer that is an error, or may have one in
// its body.
func masked(resp *http.Response, secrets []string) {
	for _, values := range resp.Header {
		for i := range values {
			values[i] = secret.Mask(values[i], secrets...)
		}
	}
	resp.Body = &maskedBody{ReadCloser: resp.Body, secrets: secrets}
	resp.ContentLength = -1 // of the body that came, not of the one that is read
	resp.Header.Del("Content-Length")
}

// maskedBody passes on white space, which a store sends while it works, and
// then reads the rest as a whole.
type maskedBody struct {
	io.ReadCloser
	secrets []string
	rest    *bytes.Reader // what is left to read, once something has come
	err     error         // that ends the rest
}

func (b *maskedBody) Read(p []byte) (int, error) {
	if b.rest == nil {
		n, err := b.ReadCloser.Read(p)
		if len(bytes.TrimSpace(p[:n])) == 0 {
			return n, err
		}
		head := bytes.Clone(p[:n])
		if err == nil {
			var tail []byte
			tail, err = io.ReadAll(b.ReadCloser)
			head = append(head, tail...)
		}
		b.rest, b.err = bytes.NewReader(maskXML(secret.Mask(head, b.secrets...), b.secrets)), cmp.Or(err, io.EOF)
	}
	if b.rest.Len() == 0 {
		return 0, b.err
	}
	return b.rest.Read(p)
}

// maskXML masks what is a secret once the XML is read: escapes, CDATA sections,
// comments and elements may stand between its bytes. An answer without one
// stays as it is. Of what cannot be read, the SDK's error has no text.
func maskXML(text []byte, secrets []string) []byte {
	found := false
	open := []*element{{}} // the last one is innermost
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.RawToken()
		inner := open[len(open)-1]
		switch token := token.(type) {
		case xml.CharData:
			inner.text = append(inner.text, token...)
		case xml.StartElement:
			open = append(open, &element{name: token.Name.Local})
		case xml.EndElement:
			if len(open) == 1 {
				return text // it is not XML
			}
			open = open[:len(open)-1]
			masked := secret.Mask(inner.text, secrets...)
			found = found || !bytes.Equal(masked, inner.text)
			open[len(open)-1].add(inner.name, masked, inner.inside)
		}
		if err == nil {
			continue
		}
		if !found {
			return text
		}
		return open[0].inside
	}
}

// element is one that has not ended.
type element struct {
	name         string
	text, inside []byte // its own text without that of others, and those in it
}

// add puts an element that has ended into e.
func (e *element) add(name string, text, inside []byte) {
	b := bytes.NewBuffer(e.inside)
	fmt.Fprintf(b, "<%s>", name)
	_ = xml.EscapeText(b, text)
	b.Write(inside)
	fmt.Fprintf(b, "</%s>", name)
	e.inside = b.Bytes()
}

// maskedError is an error of the transport without the secrets that were in its
// text.
type maskedError struct {
	error
	text string
}

func (e *maskedError) Error() string { return e.text }
func (e *maskedError) Unwrap() error { return e.error }

func maskedErr(err error, secrets []string) error {
	if text := secret.Mask(err.Error(), secrets...); text != err.Error() {
		return &maskedError{err, text}
	}
	return err
}

type boundedBody struct {
	io.ReadCloser
	op   string
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, &ContractError{Op: b.op, Problem: fmt.Sprintf("the answer is larger than %d bytes", maxAnswer)}
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
