package filestate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/penstock-go/penstock/resilience"
)

// format is the number of the file's format. A file of another one is not read.
const format = 1

// about tells a reader of the file what it is.
const about = "circuit breakers shared by the processes of this machine; instants in nanoseconds since 1970"

// state is the file.
type state struct {
	About  string `json:"about"`
	Format int    `json:"format"`
	// Version is the last that was assigned, to whichever key.
	Version uint64 `json:"version"`
	// Records are by key, as keyText writes it.
	Records map[string]entry `json:"records"`
}

// entry is a record. Its value is JSON if that says all of it.
type entry struct {
	Version uint64          `json:"version"`
	Until   time.Time       `json:"until,omitzero"`
	JSON    json.RawMessage `json:"value,omitempty"`
	Bytes   []byte          `json:"bytes,omitempty"`
}

func decode(text []byte) (state, error) {
	s := state{}
	if err := json.Unmarshal(text, &s); err != nil {
		return state{}, err
	}
	if s.Format != format {
		return state{}, fmt.Errorf("its format is %d, this program knows %d", s.Format, format)
	}
	for key, e := range s.Records {
		if e.Version == 0 || e.Version > s.Version || len(e.value()) == 0 {
			return state{}, fmt.Errorf("the record of %q has no version or no value", key)
		}
		if _, err := url.PathUnescape(key); err != nil {
			return state{}, err
		}
	}
	return s, nil
}

func (s state) encode() ([]byte, error) {
	s.About, s.Format = about, format
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "\t")
	err := e.Encode(s)
	return text.Bytes(), err
}

func (e entry) value() []byte {
	var text bytes.Buffer
	if json.Compact(&text, e.JSON) == nil {
		return text.Bytes()
	}
	return bytes.Clone(e.Bytes)
}

func (e entry) passed(now time.Time) bool { return !e.Until.IsZero() && !now.Before(e.Until) }

func (s state) record(key string, now time.Time) resilience.Record {
	e, ok := s.Records[keyText(key)]
	if !ok || e.passed(now) {
		return resilience.Record{Now: now}
	}
	return resilience.Record{Value: e.value(), Version: e.Version, Now: now}
}

// with is the state after one more write. It leaves out the records whose time
// has passed.
func (s state) with(key string, value []byte, keep time.Duration, now time.Time) state {
	next := state{Version: max(s.Version+1, uint64(max(now.UnixMicro(), 0))), Records: map[string]entry{}}
	for key, e := range s.Records {
		if !e.passed(now) {
			next.Records[key] = e
		}
	}
	delete(next.Records, keyText(key))
	if len(value) > 0 {
		next.Records[keyText(key)] = newEntry(value, next.Version, keep, now)
	}
	return next
}

func newEntry(value []byte, version uint64, keep time.Duration, now time.Time) entry {
	e := entry{Version: version}
	if keep > 0 {
		e.Until = now.Add(keep).UTC().Round(0)
	}
	if e.JSON = value; !bytes.Equal(e.value(), value) || !utf8.Valid(value) {
		e.JSON, e.Bytes = nil, value
	}
	return e
}

// keyText writes a key as JSON can hold it and a person can read it: bytes that
// are not text, and the percent sign, are escaped as in an address.
func keyText(key string) string {
	var text strings.Builder
	for len(key) > 0 {
		r, size := utf8.DecodeRuneInString(key)
		if r == utf8.RuneError && size == 1 || r == '%' || !unicode.IsPrint(r) {
			for _, b := range []byte(key[:size]) {
				fmt.Fprintf(&text, "%%%02X", b)
			}
		} else {
			text.WriteString(key[:size])
		}
		key = key[size:]
	}
	return text.String()
}

// keyOf is the key that keyText wrote; decode has checked that it can be read.
func keyOf(text string) string {
	key, err := url.PathUnescape(text)
	if err != nil {
		return text
	}
	return key
}

// errTooLarge is that of a file that is certainly something else.
var errTooLarge = errors.New("it is larger than any state of breakers")
