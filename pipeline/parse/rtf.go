package parse

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"

	"github.com/penstock-go/penstock/pipeline/block"
)

// parseRTF reads Rich Text Format: paragraphs, headings by outline level, and
// tables.
func parseRTF(_ context.Context, in Input, emit func(block.Block) error) error {
	content, err := readAll(in)
	if err != nil {
		return err
	}
	start := strings.Index(string(content[:min(64, len(content))]), `{\rtf`)
	if start < 0 {
		return errors.New(`it does not begin with {\rtf`)
	}
	w := &rtfWalker{
		emit: emit, src: string(content[start:]), codepage: charmap.Windows1252,
		state: rtfState{unicodeSkip: 1},
	}
	w.table.emit = emit
	return w.walk()
}

// rtfState is what a group may change for itself.
type rtfState struct {
	skip        bool // the group is not text
	title       bool
	unicodeSkip int // how many characters stand in for a Unicode one
}

const maxRTFDepth = 4096

// rtfWalker reads the text of a document.
type rtfWalker struct {
	emit     func(block.Block) error
	src      string
	at       int
	codepage encoding.Encoding
	state    rtfState
	stack    []rtfState

	text     strings.Builder
	bytes    []byte // in the code page, not decoded yet
	title    strings.Builder
	drop     int // characters to pass over after a Unicode one
	high     rune
	outline  int // level of the paragraph, from 0; -1 if it is no heading
	inTable  bool
	cells    []string
	table    tableWriter
	starting bool // a group has just begun
}

// skippedGroups hold no text of the document.
var skippedGroups = map[string]bool{
	"fonttbl": true, "colortbl": true, "stylesheet": true, "info": true, "pict": true, "object": true, "header": true,
	"headerl": true, "headerr": true, "headerf": true, "footer": true, "footerl": true,
	"footerr": true, "footerf": true,
	"themedata": true, "colorschememapping": true, "datastore": true, "latentstyles": true, "listtable": true,
	"listoverridetable": true, "rsidtbl": true, "generator": true, "xmlnstbl": true, "fldinst": true, "pntext": true,
	"filetbl": true, "revtbl": true, "annotation": true, "atnid": true, "atnauthor": true,
	"bkmkstart": true, "bkmkend": true,
}

func (w *rtfWalker) walk() error {
	w.outline = -1
	for w.at < len(w.src) {
		c := w.src[w.at]
		w.at++
		if err := w.char(c); err != nil {
			return err
		}
	}
	if err := w.paragraph(); err != nil {
		return err
	}
	return w.closeTable()
}

func (w *rtfWalker) char(c byte) error {
	switch c {
	case '{':
		if len(w.stack) > maxRTFDepth {
			return fmt.Errorf("groups are nested more than %d deep", maxRTFDepth)
		}
		w.stack = append(w.stack, w.state)
		w.starting = true
		return nil
	case '}':
		w.flushBytes()
		if n := len(w.stack); n > 0 {
			w.state, w.stack = w.stack[n-1], w.stack[:n-1]
		}
	case '\\':
		return w.control()
	case '\r', '\n':
		return nil
	default:
		w.literal(c)
	}
	w.starting = false
	return nil
}

// literal adds a byte in the code page.
func (w *rtfWalker) literal(c byte) {
	if w.drop > 0 {
		w.drop--
		return
	}
	w.bytes = append(w.bytes, c)
}

// flushBytes decodes what has come in the code page.
func (w *rtfWalker) flushBytes() {
	if len(w.bytes) == 0 {
		return
	}
	decoded, err := w.codepage.NewDecoder().Bytes(w.bytes)
	if err == nil {
		w.write(string(decoded))
	}
	w.bytes = w.bytes[:0]
}

func (w *rtfWalker) write(s string) {
	switch {
	case w.state.title:
		w.title.WriteString(s)
	case !w.state.skip:
		w.text.WriteString(s)
	}
}

// control reads a control word or symbol.
func (w *rtfWalker) control() error {
	if w.at >= len(w.src) {
		return nil
	}
	c := w.src[w.at]
	if !isLetter(c) {
		w.at++
		w.symbol(c)
		return nil
	}
	start := w.at
	for w.at < len(w.src) && isLetter(w.src[w.at]) {
		w.at++
	}
	word, value := w.src[start:w.at], w.number()
	if w.at < len(w.src) && w.src[w.at] == ' ' {
		w.at++
	}
	if word != "u" {
		w.flushBytes()
	}
	starting := w.starting
	w.starting = false
	if starting && skippedGroups[word] {
		w.state.skip = true
		return nil
	}
	return w.word(word, value)
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// number reads the parameter of a control word; 0 if it has none.
func (w *rtfWalker) number() int {
	start := w.at
	for w.at < len(w.src) && (w.src[w.at] >= '0' && w.src[w.at] <= '9' || w.src[w.at] == '-' && w.at == start) {
		w.at++
	}
	n, _ := strconv.Atoi(w.src[start:w.at])
	return n
}

func (w *rtfWalker) symbol(c byte) {
	switch c {
	case '\'':
		if w.at+2 <= len(w.src) {
			if n, err := strconv.ParseUint(w.src[w.at:w.at+2], 16, 8); err == nil {
				w.literal(byte(n))
			}
			w.at += 2
		}
	case '*':
		w.state.skip = w.state.skip || w.starting
	case '~':
		w.literal(' ')
	case '_':
		w.literal('-')
	case '\\', '{', '}':
		w.literal(c)
	case '\r', '\n':
		w.flushBytes()
		w.write("\n")
	}
	w.starting = false
}

func (w *rtfWalker) word(word string, value int) error {
	switch word {
	case "par", "sect", "page":
		return w.paragraph()
	case "line", "lbr":
		w.write("\n")
	case "tab":
		w.write("\t")
	case "u":
		w.unicode(value)
	case "uc":
		w.state.unicodeSkip = max(0, value)
	case "ansicpg":
		if enc := namedEncoding("windows-" + strconv.Itoa(value)); enc != nil {
			w.codepage = enc
		} else if enc := namedEncoding(map[int]string{
			932: "shift_jis", 936: "gbk", 949: "euc-kr",
			950: "big5",
		}[value]); enc != nil {
			w.codepage = enc
		}
	case "title":
		w.state.title = w.state.skip
	case "bin":
		w.at = min(len(w.src), w.at+max(0, value))
	default:
		return w.structure(word, value)
	}
	return nil
}

// structure handles the words for headings and tables, and for signs.
func (w *rtfWalker) structure(word string, value int) error {
	switch word {
	case "pard":
		w.outline, w.inTable = -1, false
	case "outlinelevel":
		w.outline = value
	case "intbl":
		w.inTable = true
	case "cell", "nestcell":
		w.cells = append(w.cells, w.text.String())
		w.text.Reset()
	case "row", "nestrow":
		cells := w.cells
		w.cells = nil
		return w.table.row(cells)
	default:
		w.write(rtfSigns[word])
	}
	return nil
}

var rtfSigns = map[string]string{
	"emdash": "—", "endash": "–", "lquote": "‘", "rquote": "’", "ldblquote": "“", "rdblquote": "”", "bullet": "•",
	"emspace": " ", "enspace": " ",
}

// unicode adds a UTF-16 unit, given as a signed 16-bit number.
func (w *rtfWalker) unicode(value int) {
	w.flushBytes()
	unit := rune(uint16(value))
	w.drop = w.state.unicodeSkip
	switch {
	case unit >= 0xD800 && unit < 0xDC00:
		w.high = unit
	case unit >= 0xDC00 && unit < 0xE000 && w.high != 0:
		w.write(string((w.high-0xD800)<<10 + unit - 0xDC00 + 0x10000))
		w.high = 0
	default:
		w.write(string(unit))
	}
}

func (w *rtfWalker) closeTable() error {
	if len(w.cells) > 0 {
		cells := w.cells
		w.cells = nil
		if err := w.table.row(cells); err != nil {
			return err
		}
	}
	err := w.table.close()
	w.table = tableWriter{emit: w.emit}
	return err
}

func (w *rtfWalker) paragraph() error {
	w.flushBytes()
	if w.state.skip {
		return nil
	}
	if w.inTable {
		w.write("\n")
		return nil
	}
	if err := w.closeTable(); err != nil {
		return err
	}
	text := w.text.String()
	w.text.Reset()
	if title := w.title.String(); title != "" {
		w.title.Reset()
		if err := w.emit(block.Block{Kind: block.Title, Text: squeeze(title)}); err != nil {
			return err
		}
	}
	if strings.TrimSpace(text) == "" {
		return nil
	}
	if w.outline >= 0 && w.outline < 9 {
		return w.emit(block.Block{Kind: block.Heading, Level: w.outline + 1, Text: squeeze(text)})
	}
	return w.emit(block.Block{Kind: block.Paragraph, Text: text})
}
