package httpdoor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/internal/inband"
	"github.com/penstock-go/penstock/resilience"
)

// JSON is [Do] for an answer that is one JSON value: it reads the response to
// its end and decodes it. A response that is not what was asked for counts as a
// failure of the service and is a *[ContractError]: another media type than
// JSON, its kin and text/plain, such as the page of a proxy; text that is not
// one JSON value of the type T; null, unless T is a pointer or an interface;
// nothing at all (use Do where no body is expected); an object with an error or
// errors in it, unless T has a field for it; a body of more than
// Config.MaxBody. A status other than 2xx is a *[StatusError], which counts as
// its status does.
//
// Fields that T does not have are passed over. Where the request has no Accept
// header, application/json is asked for.
func JSON[T any](ctx context.Context, client *http.Client, request *http.Request) (v T, err error) {
	t, err := guarded(client, request)
	if err != nil {
		return v, err
	}
	request = request.WithContext(ctx)
	if request.Header.Get("Accept") == "" {
		request.Header = request.Header.Clone()
		if request.Header == nil {
			request.Header = http.Header{}
		}
		request.Header.Set("Accept", "application/json")
	}
	h, err := t.begin(request)
	if err != nil {
		return v, err
	}
	u := h.Using()
	defer u.Done()
	err = t.json(h, request, client, &v)
	h.End(err)
	u.Returned = true
	return v, unmarked(err)
}

// json sends a request and reads its answer into v.
func (t *transport) json(h *door.Handle, r *http.Request, client *http.Client, v any) error {
	resp, verdict, err := t.send(h, r, client.Do)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if !good(resp) {
		return refusal(r, resp, verdict)
	}
	text, err := t.whole(h, resp)
	if err == nil {
		err = decode(text, v)
	}
	if wrong, ok := errors.AsType[*ContractError](err); ok {
		wrong.Method, wrong.URL = r.Method, shown(r.URL)
	}
	return err
}

func problem(err error, format string, args ...any) error {
	return &ContractError{Problem: fmt.Sprintf(format, args...), Err: err}
}

// mostQuoted is how many bytes of a body an error repeats.
const mostQuoted = 1000

// refusal is the error for a status other than 2xx.
func refusal(r *http.Request, resp *http.Response, v resilience.Verdict) error {
	e := statusError(r, resp, v)
	text, err := io.ReadAll(io.LimitReader(resp.Body, mostQuoted))
	if err != nil && v.Outcome == resilience.Success { // it was not answered to the end
		return err
	}
	e.Body = strings.ToValidUTF8(strings.Join(strings.Fields(string(text)), " "), "\ufffd")
	return e
}

// whole reads a body that may be JSON.
func (t *transport) whole(h *door.Handle, resp *http.Response) ([]byte, error) {
	kind := resp.Header.Get("Content-Type")
	media, _, _ := strings.Cut(kind, ";") // whose parameters some servers write wrong
	if kind != "" && !mayBeJSON(strings.ToLower(strings.TrimSpace(media))) {
		return nil, problem(nil, "JSON was asked for, and %q came", kind)
	}
	var text bytes.Buffer
	n, err := io.Copy(&text, io.LimitReader(renewing{resp.Body, h}, t.config.MaxBody+1))
	switch {
	case err != nil:
		return nil, err
	case n > t.config.MaxBody:
		return nil, problem(nil, "the body has more than %d bytes", t.config.MaxBody)
	}
	return text.Bytes(), nil
}

// mayBeJSON holds for JSON and its kin, and for text/plain, as which some
// servers send it.
func mayBeJSON(media string) bool {
	return media == "application/json" || media == "text/json" || media == "text/plain" ||
		strings.HasSuffix(media, "+json")
}

func decode(text []byte, into any) error {
	text = bytes.TrimSpace(text)
	kind := reflect.TypeOf(into).Elem()
	switch {
	case len(text) == 0:
		return problem(nil, "the body is empty")
	case text[0] == '<':
		return problem(nil, "JSON was asked for, and a page came")
	case string(text) == "null" && kind.Kind() != reflect.Pointer && kind.Kind() != reflect.Interface:
		return problem(nil, "the body is null")
	}
	if name := errorIn(text, kind); name != "" {
		return problem(nil, "status 200 and an %q: %s", name, quoted(text))
	}
	if err := json.Unmarshal(text, into); err != nil {
		return problem(err, "the body is not the JSON that was asked for")
	}
	return nil
}

// errorIn is the name of the field in which an object says that it is an error,
// or "".
func errorIn(text []byte, kind reflect.Type) string {
	var object map[string]any
	if text[0] != '{' || json.Unmarshal(text, &object) != nil {
		return ""
	}
	for name, value := range object {
		says := strings.EqualFold(name, "error") || strings.EqualFold(name, "errors")
		if says && !inband.Empty(value) && !hasField(kind, name) {
			return name
		}
	}
	return ""
}

// hasField reports whether values of a type keep the field of an object.
func hasField(kind reflect.Type, name string) bool {
	for kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	if kind.Kind() != reflect.Struct {
		return true // a map, or a type that decodes itself
	}
	if reflect.PointerTo(kind).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return true
	}
	for _, f := range reflect.VisibleFields(kind) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && (strings.EqualFold(tag, name) || tag == "" && strings.EqualFold(f.Name, name)) {
			return true
		}
	}
	return false
}

func quoted(text []byte) string {
	if len(text) > mostQuoted {
		text = append(text[:mostQuoted:mostQuoted], "…"...)
	}
	return strings.ToValidUTF8(string(text), "\ufffd")
}

// renewing renews a probe's lease with each read.
type renewing struct {
	r io.Reader
	h *door.Handle
}

func (r renewing) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > 0 {
		r.h.Renew()
	}
	return n, err
}
