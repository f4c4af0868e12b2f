package staticmodel

import (
	"strings"
	"unicode/utf8"
)

// Classes of characters, as model.bin numbers them.
const (
	classKeep    = iota // stays as it is
	classDrop           // vanishes: control characters, combining accents
	classSpace          // ends a word
	classPunct          // is a word of its own
	classAlone          // is a word of its own: CJK ideographs
	classHangul         // a syllable, which becomes its letters
	classMapping        // this and above: becomes another text, such as a lower-case letter without its accent
)

// maxWord is the longest word, in characters, that is looked up; longer words
// are unknown.
const maxWord = 100

// specials are texts that are tokens wherever they occur, before any other
// step.
var specials = [...]struct {
	text string
	id   int32
}{{"[PAD]", padID}, {"[UNK]", unknownID}, {"[CLS]", clsID}, {"[SEP]", sepID}, {"[MASK]", maskID}}

// tokenizer turns one text into token IDs. Words are collected in word, and
// passed to emit as IDs.
type tokenizer struct {
	*data
	emit  func(id int32, word []byte) // word is set for unknown words, valid during the call
	word  []byte
	chars int
	ids   []int32
}

// text emits the tokens of s.
func (t *tokenizer) text(s string) {
	for {
		at, id, size := nextSpecial(s)
		if at < 0 {
			t.plain(s)
			return
		}
		t.plain(s[:at])
		t.emit(id, nil)
		s = s[at+size:]
	}
}

func nextSpecial(s string) (at int, id int32, size int) {
	for from := 0; ; from++ {
		i := strings.IndexByte(s[from:], '[')
		if i < 0 {
			return -1, 0, 0
		}
		from += i
		for _, sp := range specials {
			if strings.HasPrefix(s[from:], sp.text) {
				return from, sp.id, len(sp.text)
			}
		}
	}
}

func (t *tokenizer) plain(s string) {
	for _, r := range s {
		if 'a' <= r && r <= 'z' {
			t.keep(r)
			continue
		}
		t.char(r)
	}
	t.flush()
}

func (t *tokenizer) char(r rune) {
	switch class := t.class(r); class {
	case classKeep:
		t.keep(r)
	case classDrop:
	case classSpace:
		t.flush()
	case classPunct, classAlone:
		t.flush()
		t.keep(r)
		t.flush()
	case classHangul:
		t.hangul(r)
	default:
		for _, m := range t.texts[class-classMapping] {
			t.char(m)
		}
	}
}

// hangul decomposes a syllable into leading consonant, vowel and, if present,
// trailing consonant.
func (t *tokenizer) hangul(r rune) {
	const first, lead, vowel, trail, vowels, trails = 0xAC00, 0x1100, 0x1161, 0x11A7, 21, 28
	i := r - first
	t.keep(lead + i/(vowels*trails))
	t.keep(vowel + i%(vowels*trails)/trails)
	if i%trails != 0 {
		t.keep(trail + i%trails)
	}
}

func (t *tokenizer) keep(r rune) {
	t.chars++
	if t.chars <= maxWord { // a longer word is unknown whatever it holds
		t.word = utf8.AppendRune(t.word, r)
	}
}

// flush looks up the collected word: the longest token that it begins with,
// then the longest that continues it, to its end. A word that cannot be split
// completely is unknown as a whole.
func (t *tokenizer) flush() {
	if t.chars == 0 {
		return
	}
	if t.chars <= maxWord && t.pieces() {
		for _, id := range t.ids {
			t.emit(id, nil)
		}
	} else {
		t.emit(unknownID, t.word)
	}
	t.word, t.chars = t.word[:0], 0
}

func (t *tokenizer) pieces() bool {
	t.ids = t.ids[:0]
	tokens, longest := t.starts, t.longS
	for rest := t.word; len(rest) > 0; tokens, longest = t.inner, t.longI {
		id, n := longestToken(tokens, rest[:min(longest, len(rest))])
		if n == 0 {
			return false
		}
		t.ids, rest = append(t.ids, id), rest[n:]
	}
	return true
}

func longestToken(tokens map[string]int32, word []byte) (id int32, n int) {
	for n = len(word); n > 0; n-- {
		if id, ok := tokens[string(word[:n])]; ok {
			return id, n
		}
	}
	return 0, 0
}
