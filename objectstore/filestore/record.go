package filestore

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// record is the content of the trailer of an object's file.
type record struct {
	Key                string            `json:"key"`
	Size               int64             `json:"size"`
	ETag               string            `json:"etag"` // with its quotes
	ContentType        string            `json:"type,omitempty"`
	ContentEncoding    string            `json:"encoding,omitempty"`
	ContentDisposition string            `json:"disposition,omitempty"`
	ContentLanguage    string            `json:"language,omitempty"`
	CacheControl       string            `json:"cache,omitempty"`
	Metadata           map[string]string `json:"metadata,omitempty"`

	modified time.Time // the file's own
}

// The trailer is the record as JSON, its length in eight bytes, and the magic.
const (
	magic     = "penstok1"
	footerLen = 8 + len(magic)
)

var errForeign = errors.New("the file does not end in an object's trailer")

func (r record) trailer() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("cannot write the trailer of %q: %w", r.Key, err)
	}
	text = binary.BigEndian.AppendUint64(text, uint64(len(text)))
	return append(text, magic...), nil
}

// readRecord reads the trailer of f. Of a damaged file, which is errForeign,
// only the time is known.
func readRecord(f *os.File) (record, error) {
	info, err := f.Stat()
	if err != nil {
		return record{}, err
	}
	modified := info.ModTime().UTC().Truncate(time.Second)
	r, err := parseTrailer(f, info.Size())
	if err != nil {
		return record{modified: modified}, &fs.PathError{Op: "read", Path: f.Name(), Err: err}
	}
	r.modified = modified
	return r, nil
}

func parseTrailer(f io.ReaderAt, total int64) (r record, err error) {
	var footer [footerLen]byte
	if total < int64(footerLen) {
		return r, errForeign
	}
	if _, err := f.ReadAt(footer[:], total-int64(footerLen)); err != nil {
		return r, err
	}
	length := binary.BigEndian.Uint64(footer[:8])
	if string(footer[8:]) != magic || length > uint64(total)-uint64(footerLen) {
		return r, errForeign
	}
	text := make([]byte, length)
	if _, err := f.ReadAt(text, total-int64(footerLen)-int64(length)); err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%w: %w", errForeign, err)
	}
	if r.Size != total-int64(footerLen)-int64(length) {
		return r, errForeign
	}
	return r, nil
}
