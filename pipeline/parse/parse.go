// Package parse turns files of many formats into one stream of text blocks.
//
// Most programs need two calls:
//
//	reg := parse.New(parse.Limits{})
//	defer reg.Close()
//	for block, err := range reg.Blocks(ctx, parse.FromBytes("guide.html", content)) {
//		…
//	}
//
// The rules:
//
//   - The format is chosen by content and name together. A file that is not
//     what its name says is read as what it is, or refused with a typed error.
//   - Every string in a [block.Block] is valid UTF-8 without control characters
//     other than tab and newline, whatever the encoding and line endings of the
//     file. It is not normalised to NFC.
//   - Blocks arrive while the file is being read. Text, CSV and JSON Lines use
//     the same memory for a file of any size; other formats are read whole and
//     refused above [Limits.MaxSize].
//   - A parser that panics or never ends costs its own document only: it comes
//     back as an [*Error].
//   - A document that cannot be read is an [*Error], whose Kind says why. A
//     failure to read the bytes, or the end of the caller's context, is handed
//     on as it is: it says nothing about the document.
//   - The same bytes and name give the same blocks. [Format] names the parser
//     and its version, so that a change of a parser can be noticed.
//
// A [Registry] is safe for concurrent use once the last Register has returned.
package parse

import (
	"bytes"
	"context"
	"io"

	"github.com/penstock-go/penstock/pipeline/block"
)

// Input is one document to be read.
type Input struct {
	// Name is a slash path or URL. It helps to choose the format, and errors
	// name it.
	Name string
	// Content is read only while Blocks or Detect runs.
	Content io.ReaderAt
	// Size is the length of Content in bytes.
	Size int64

	budget *budget // shared by a container and everything inside it
}

// FromBytes is an Input of bytes in memory.
func FromBytes(name string, content []byte) Input {
	return Input{Name: name, Content: bytes.NewReader(content), Size: int64(len(content))}
}

// Parser reads one format.
//
// Parse calls emit for each block in reading order, and returns what emit
// returned if that is not nil. It must not keep in.Content after it returns,
// and should return soon after ctx is done; if it does not, it is abandoned.
// Text need not be cleaned: Blocks does that. An error that is no *Error is
// taken to mean that the document is malformed. Where a read of in.Content has
// failed, or ended before in.Size, the document has, whatever Parse returns.
//
// Name and Version are recorded with what was read. A parser that would now
// give other blocks for the same bytes has a higher Version.
type Parser interface {
	Name() string
	Version() int
	Parse(ctx context.Context, in Input, emit func(block.Block) error) error
}

// Streamer is a Parser whose memory does not grow with the size of a document,
// so that Limits.MaxSize does not apply to it.
type Streamer interface {
	Parser
	Streams() bool
}

// Format is what Detect found out about a document.
type Format struct {
	// Parser and Version are those of the parser that will read it.
	Parser  string `json:"parser"`
	Version int    `json:"version"`
	// MIME is the media type of the content, without parameters.
	MIME string `json:"mime"`
	// Streams says that the parser is a [Streamer].
	Streams bool `json:"-"`
}
