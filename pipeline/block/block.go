// Package block is what a document consists of once it has been parsed: blocks
// of text in reading order. Parsers make them, and chunks are cut from them.
package block

import (
	"fmt"
	"slices"
	"strings"
)

// Kind says what part of a document a Block is. The zero value is a Paragraph.
type Kind uint8

// The kinds of blocks.
const (
	// Paragraph is running text.
	Paragraph Kind = iota
	// Title is the document's own name for itself (an HTML title, a mail
	// subject, a PDF's metadata). It is not part of the text.
	Title
	// Heading opens a section of depth Level, 1 being the outermost.
	Heading
	// ListItem is one item of a list nested Level deep, starting at 1.
	ListItem
	// Table is some rows of a table, one a line, with " | " between cells.
	// A long table comes in several blocks with the same Header.
	Table
	// Code is text whose line breaks and indentation matter.
	Code
	// Record is one object of a JSON document, as lines of "key: value".
	Record
	// Note names a part of the document that was not read, and why: an
	// attachment that is a picture, a member of an archive that is broken. It
	// is not part of the text.
	Note
)

var kindNames = [...]string{"paragraph", "title", "heading", "list item", "table", "code", "record", "note"}

// String returns the kind in lower case.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// MarshalText writes the kind as String does.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText writes for one of the kinds, and nothing
// else.
func (k *Kind) UnmarshalText(text []byte) error {
	i := slices.Index(kindNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("block: %q is not a kind of block; the kinds are %s", text, strings.Join(kindNames[:], ", "))
	}
	*k = Kind(i)
	return nil
}

// Block is a piece of a document that belongs together.
type Block struct {
	Kind Kind `json:"kind"`
	// Level is the depth of a Heading or ListItem, from 1.
	Level int `json:"level,omitempty"`
	// Text is never empty.
	Text string `json:"text"`
	// Header is the head row of a Table, in the same form as its rows.
	Header string `json:"header,omitempty"`
	// Lang is the programming language of Code, or the language a Title
	// declares for the document; empty where the document does not say.
	Lang string `json:"lang,omitempty"`
	// Page is the page or slide, from 1; 0 where the format has none.
	Page int `json:"page,omitempty"`
	// Section is the sheet, attachment or archive member it came from.
	Section string `json:"section,omitempty"`
	// Row is the number of the first row of a Table (without the header), of a
	// Record, or of the first line of a source file's Code, from 1; 0 where
	// they are not counted.
	Row int `json:"row,omitempty"`
	// Offset is where Text starts in the extracted text of the document: the
	// Text of all blocks but titles and notes, each followed by one newline.
	// Package parse sets it; a parser leaves it 0.
	Offset int64 `json:"offset"`
}
