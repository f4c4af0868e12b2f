package chunk

import (
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
	"github.com/clipperhouse/uax29/v2/sentences"
	"github.com/clipperhouse/uax29/v2/words"

	"github.com/penstock-go/penstock/pipeline/block"
)

// level is a way to cut a text into pieces that together are the text.
type level func(text string) iter.Seq[string]

// The levels for each kind of block, from coarse to fine. A piece that fits is
// not cut any further.
var (
	proseLevels = []level{bySentence, byField, byWord, byGrapheme, byRune}
	codeLevels  = []level{byStanza, byLine, byField, byWord, byGrapheme, byRune}
	rowLevels   = []level{byLine, byField, byWord, byGrapheme, byRune}
	fixedLevels = []level{byField, byWord, byGrapheme, byRune}
)

func levelsOf(kind block.Kind) []level {
	switch kind {
	case block.Code:
		return codeLevels
	case block.Table, block.Record:
		return rowLevels
	default:
		return proseLevels
	}
}

// bySentence cuts after sentences. A line that does not end one is kept with
// the next line: texts are often wrapped by hand.
func bySentence(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start, end := 0, 0
		for it := sentences.FromString(text); it.Next(); {
			end += len(it.Value())
			if isWrapped(it.Value()) && end < len(text) && text[end] != '\n' {
				continue
			}
			if !yield(text[start:end]) {
				return
			}
			start = end
		}
		if start < len(text) {
			yield(text[start:])
		}
	}
}

// isWrapped reports whether a piece ends with a line and not with a sentence.
func isWrapped(piece string) bool {
	if !strings.HasSuffix(piece, "\n") {
		return false
	}
	trimmed := strings.TrimRight(piece, " \t\n\"')]”’»")
	last, _ := utf8.DecodeLastRuneInString(trimmed)
	return !strings.ContainsRune(".!?:;…。！？", last)
}

// byStanza cuts before each line that follows a blank one and is not indented:
// where a function or a paragraph of code begins.
func byStanza(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start := 0
		for i := 2; i < len(text); i++ {
			if text[i-1] == '\n' && text[i-2] == '\n' && !strings.ContainsRune(" \t\n", rune(text[i])) {
				if !yield(text[start:i]) {
					return
				}
				start = i
			}
		}
		yield(text[start:])
	}
}

func byLine(text string) iter.Seq[string] { return strings.SplitAfterSeq(text, "\n") }

// byField cuts after white space.
func byField(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start, inSpace := 0, false
		for i, r := range text {
			space := isSpace(r)
			if inSpace && !space && i > start {
				if !yield(text[start:i]) {
					return
				}
				start = i
			}
			inSpace = space
		}
		yield(text[start:])
	}
}

func byWord(text string) iter.Seq[string]     { return values(words.FromString(text)) }
func byGrapheme(text string) iter.Seq[string] { return values(graphemes.FromString(text)) }

// values reads one of the iterators of uax29.
func values(it interface {
	Next() bool
	Value() string
},
) iter.Seq[string] {
	return func(yield func(string) bool) {
		for it.Next() {
			if !yield(it.Value()) {
				return
			}
		}
	}
}

func byRune(text string) iter.Seq[string] { return strings.SplitSeq(text, "") }
