package parse

import (
	"bufio"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"strings"

	"github.com/penstock-go/penstock/pipeline/block"
)

// maxRow is how long a row of a table may be: more is a quote that never ends.
const maxRow = 4 << 20

// parseCSV reads comma-separated values and their kin; the first row is the
// header. The separator is the one that is commonest there.
func parseCSV(_ context.Context, in Input, emit func(block.Block) error) error {
	text, err := textReader(in)
	if err != nil {
		return err
	}
	bounded := &rowReader{r: text}
	buffered := bufio.NewReaderSize(bounded, 64<<10)
	first, err := buffered.Peek(16 << 10)
	short := err == io.EOF || err == bufio.ErrBufferFull //nolint:errorlint // what wraps them is the reader's
	if err != nil && !short {
		return err
	}
	r := csv.NewReader(buffered)
	r.Comma = csvSeparator(string(first))
	r.LazyQuotes, r.FieldsPerRecord, r.ReuseRecord = true, -1, true
	t := tableWriter{emit: emit}
	for {
		cells, err := r.Read()
		bounded.sinceRow = 0
		switch {
		case err == io.EOF:
			return t.close()
		case err != nil:
			return err
		case t.header == "" && len(t.rows) == 0 && t.first == 0:
			t.header = tableLine(cells)
			continue
		}
		if err := t.row(cells); err != nil {
			return err
		}
	}
}

// csvSeparator counts the candidates in the first line.
func csvSeparator(text string) rune {
	if i := strings.IndexAny(text, "\r\n"); i >= 0 {
		text = text[:i]
	}
	best, most := ',', 0
	for _, c := range ",\t;|" {
		if n := strings.Count(text, string(c)); n > most {
			best, most = c, n
		}
	}
	return best
}

// rowReader ends a row that never ends, and makes a lone "\r" a line ending.
type rowReader struct {
	r        io.Reader
	sinceRow int
	held     bool // a "\r" whose successor is not known yet
}

func (r *rowReader) Read(p []byte) (int, error) {
	if len(p) < 2 {
		return 0, io.ErrShortBuffer
	}
	at := 0
	if r.held {
		p[0], at = '\r', 1
	}
	n, err := r.r.Read(p[at:])
	n += at
	r.held = n > 0 && p[n-1] == '\r' && err == nil
	if r.held {
		n--
	}
	for i := range n {
		if p[i] == '\r' && (i+1 == n || p[i+1] != '\n') {
			p[i] = '\n'
		}
	}
	if r.sinceRow += n; r.sinceRow > maxRow {
		return 0, refuse(malformed, fmt.Errorf("a row is longer than %d bytes: is a quote never closed?", maxRow))
	}
	return n, err
}
