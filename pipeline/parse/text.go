package parse

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/pipeline/block"
)

// maxBlock is where a paragraph of a text that streams is cut, so that a file
// without line breaks does not end up in memory.
const maxBlock = 64 << 10

// parseText reads plain text: paragraphs are what blank lines divide.
func parseText(_ context.Context, in Input, emit func(block.Block) error) error {
	r, err := textReader(in)
	if err != nil {
		return err
	}
	paragraph := new(strings.Builder)
	flush := func() error {
		text := paragraph.String()
		paragraph.Reset()
		return emit(block.Block{Kind: block.Paragraph, Text: text})
	}
	err = eachLine(r, func(line string) error {
		if strings.TrimSpace(line) == "" || paragraph.Len()+len(line) > maxBlock {
			if err := flush(); err != nil {
				return err
			}
		}
		paragraph.WriteString(line)
		return nil
	})
	return errors.Join(err, flush())
}

// eachLine calls fn with each line and its line ending, any of "\n", "\r\n" and
// "\r". A line of more than maxBlock bytes comes in pieces, cut at a space
// where there is one and never inside a rune.
func eachLine(r io.Reader, fn func(line string) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 4096), maxBlock+utf8.UTFMax)
	lines.Split(splitLines)
	for lines.Scan() {
		if err := fn(lines.Text()); err != nil {
			return err
		}
	}
	return lines.Err()
}

func splitLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	for i, c := range data {
		switch {
		case c == '\n':
			return i + 1, data[:i+1], nil
		case c == '\r' && i+1 == len(data) && !atEOF:
			return 0, nil, nil // the "\n" may follow
		case c == '\r' && i+1 < len(data) && data[i+1] == '\n':
			return i + 2, data[:i+2], nil
		case c == '\r':
			return i + 1, data[:i+1], nil
		}
	}
	switch {
	case len(data) >= maxBlock:
		n := cutBefore(data, maxBlock)
		return n, data[:n], nil
	case atEOF && len(data) > 0:
		return len(data), data, nil
	}
	return 0, nil, nil
}

// cutBefore finds where to cut data at or before limit: after a space in its
// second half, or between runes.
func cutBefore(data []byte, limit int) int {
	for i := limit; i > limit/2; i-- {
		if data[i-1] == ' ' || data[i-1] == '\t' {
			return i
		}
	}
	return cmp.Or(len(plain.Front(data, limit)), limit)
}
