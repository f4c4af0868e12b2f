package parse

import (
	"bytes"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/wlynxg/chardet"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	textunicode "golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
	"golang.org/x/text/transform"
)

const (
	// sampleBytes is how much the detector looks at.
	sampleBytes = 64 << 10
	// sampleReach is how far into a file we look for bytes beyond ASCII.
	sampleReach = 8 << 20
	// sureEnough is the detector's confidence below which Windows-1252 is
	// assumed, the commonest encoding of texts that do not say.
	sureEnough = 0.5
)

// readText reads a document whole and decodes it. declared is the encoding
// that the document itself names, if any.
func readText(in Input, declared encoding.Encoding) (string, error) {
	content, err := readAll(in)
	if err != nil {
		return "", err
	}
	return decodeText(content, declared), nil
}

// readAll reads a document whole.
func readAll(in Input) ([]byte, error) {
	content := make([]byte, in.Size)
	if _, err := io.ReadFull(io.NewSectionReader(in.Content, 0, in.Size), content); err != nil {
		return nil, err
	}
	return content, nil
}

func decodeText(content []byte, declared encoding.Encoding) string {
	enc := encodingOf(content, declared)
	if enc == nil {
		return string(bytes.TrimPrefix(content, []byte("\xEF\xBB\xBF")))
	}
	decoded, err := enc.NewDecoder().Bytes(content)
	if err != nil { // the decoders replace what is wrong; none stops
		return strings.ToValidUTF8(string(content), "\uFFFD")
	}
	return string(decoded)
}

// textReader decodes a document as it is read.
func textReader(in Input) (io.Reader, error) {
	sample, err := sampleOf(in)
	if err != nil {
		return nil, err
	}
	body := io.NewSectionReader(in.Content, 0, in.Size)
	enc := encodingOf(sample, nil)
	if enc == nil {
		if bytes.HasPrefix(sample, []byte("\xEF\xBB\xBF")) {
			return io.NewSectionReader(in.Content, 3, in.Size-3), nil
		}
		return body, nil
	}
	return transform.NewReader(body, enc.NewDecoder()), nil
}

// sampleOf is the part of a document that shows its encoding: its beginning,
// or the first part that is not ASCII.
func sampleOf(in Input) ([]byte, error) {
	buf := make([]byte, min(sampleBytes, in.Size))
	var first []byte
	for off := int64(0); off < min(in.Size, sampleReach); off += sampleBytes {
		n, err := in.Content.ReadAt(buf, off)
		if err != nil && err != io.EOF {
			return nil, err
		}
		if off == 0 {
			first = bytes.Clone(buf[:n])
		}
		if bytes.ContainsFunc(buf[:n], beyondASCII) || off == 0 && hasEscapes(buf[:n]) {
			return buf[:n], nil
		}
	}
	return first, nil
}

// encodingOf finds the encoding of a text; nil means UTF-8.
func encodingOf(sample []byte, declared encoding.Encoding) encoding.Encoding {
	if enc, ok := markedEncoding(sample); ok {
		return enc
	}
	if enc := guessUTF(sample[:min(len(sample), sampleBytes)]); enc != nil {
		return enc
	}
	if mostlyUTF8(sample) && !hasEscapes(sample) {
		return nil
	}
	if declared != nil {
		return declared
	}
	return detectEncoding(sample)
}

// markedEncoding goes by the byte order mark.
func markedEncoding(sample []byte) (encoding.Encoding, bool) {
	switch {
	case bytes.HasPrefix(sample, []byte("\xEF\xBB\xBF")):
		return nil, true
	case bytes.HasPrefix(sample, []byte("\xFF\xFE\x00\x00")):
		return utf32.UTF32(utf32.LittleEndian, utf32.UseBOM), true
	case bytes.HasPrefix(sample, []byte("\x00\x00\xFE\xFF")):
		return utf32.UTF32(utf32.BigEndian, utf32.UseBOM), true
	case bytes.HasPrefix(sample, []byte("\xFF\xFE")):
		return textunicode.UTF16(textunicode.LittleEndian, textunicode.UseBOM), true
	case bytes.HasPrefix(sample, []byte("\xFE\xFF")):
		return textunicode.UTF16(textunicode.BigEndian, textunicode.UseBOM), true
	}
	return nil, false
}

// guessUTF recognises UTF-16 and UTF-32 without a mark. Nil means it is
// neither.
func guessUTF(sample []byte) encoding.Encoding {
	if enc := guessUTF32(sample); enc != nil {
		return enc
	}
	return guessUTF16(sample)
}

// guessUTF32 recognises UTF-32 without a mark: one byte of every four is zero,
// and the one beside it is nearly always.
func guessUTF32(sample []byte) encoding.Encoding {
	quads := len(sample) / 4
	var zeros [4]int
	for i, c := range sample[:quads*4] {
		if c == 0 {
			zeros[i&3]++
		}
	}
	many := func(n int) bool { return n*5 >= quads*4 }
	switch {
	case quads == 0:
	case zeros[3] == quads && many(zeros[2]) && zeros[0]*20 <= quads:
		return utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM)
	case zeros[0] == quads && many(zeros[1]) && zeros[3]*20 <= quads:
		return utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM)
	}
	return nil
}

// guessUTF16 recognises UTF-16 without a mark: nearly all the zero bytes of a
// text with some Latin in it are on one side of the pairs. Nil means it is not.
func guessUTF16(sample []byte) encoding.Encoding {
	var zeros [2]int
	for i, c := range sample {
		if c == 0 {
			zeros[i&1]++
		}
	}
	pairs := len(sample) / 2
	few := func(n int) bool { return n*20 <= pairs }
	many := func(n int) bool { return n*5 >= pairs && n > 1 }
	var enc encoding.Encoding
	switch {
	case many(zeros[1]) && few(zeros[0]):
		enc = textunicode.UTF16(textunicode.LittleEndian, textunicode.IgnoreBOM)
	case many(zeros[0]) && few(zeros[1]):
		enc = textunicode.UTF16(textunicode.BigEndian, textunicode.IgnoreBOM)
	default:
		return nil
	}
	decoded, err := enc.NewDecoder().Bytes(sample[:pairs*2])
	if err != nil || bytes.ContainsFunc(decoded, func(r rune) bool { return r < '\t' }) {
		return nil
	}
	return enc
}

// mostlyUTF8 holds for valid UTF-8, for a sample of it that is cut in the
// middle of a rune, and for a text with one slip in a hundred runes that are
// not ASCII.
func mostlyUTF8(sample []byte) bool {
	if utf8.Valid(sample) {
		return true
	}
	good, bad := 0, 0
	for i := 0; i < len(sample); {
		r, size := utf8.DecodeRune(sample[i:])
		switch {
		case r == utf8.RuneError && size == 1 && len(sample)-i >= utf8.UTFMax && i >= utf8.UTFMax:
			bad++
		case size > 1:
			good++
		}
		i += size
	}
	return good > 0 && bad*100 <= good
}

// hasEscapes recognises ISO-2022 encodings, which are ASCII with escapes.
func hasEscapes(sample []byte) bool {
	return bytes.Contains(sample, []byte("\x1b$")) && !bytes.ContainsFunc(sample, beyondASCII)
}

func beyondASCII(r rune) bool { return r >= utf8.RuneSelf }

func detectEncoding(sample []byte) encoding.Encoding {
	found := chardet.Detect(sample[:min(len(sample), sampleBytes)])
	if found.Confidence >= sureEnough {
		if found.Charset == "x-mac-cyrillic" { // the detector takes the commoner one for it
			return charmap.Windows1251
		}
		if enc := namedEncoding(found.Charset); enc != nil {
			return enc
		}
	}
	return charmap.Windows1252
}

// namedEncoding finds an encoding by one of its names; nil if it is unknown
// or UTF-8, which is recognised without a name.
func namedEncoding(name string) encoding.Encoding {
	enc, err := htmlindex.Get(strings.ToLower(strings.TrimSpace(name)))
	if err != nil || enc == textunicode.UTF8 {
		return nil
	}
	return enc
}

// clean makes a text valid UTF-8 with "\n" for every line ending and without
// control characters other than tab and newline.
func clean(s string) string {
	if i := firstUnclean(s); i < len(s) {
		return cleanFrom(s, i)
	}
	return s
}

// firstUnclean is the index of the first byte that may need a change.
func firstUnclean(s string) int {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c < 0x7F || c == '\n' || c == '\t' {
			continue
		}
		if c < utf8.RuneSelf {
			return i
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size <= 1 || isDropped(r) || r == '\u2028' || r == '\u2029' {
			return i
		}
		i += size - 1
	}
	return len(s)
}

func cleanFrom(s string, i int) string {
	var b strings.Builder
	b.Grow(len(s))
	b.WriteString(s[:i])
	prev := rune(0)
	for _, r := range s[i:] { // a wrong byte comes as U+FFFD
		switch {
		case r == '\n' && prev == '\r': // written at the '\r'
		case r == '\r', r == '\f', r == '\v', r == '\u0085', r == '\u2028', r == '\u2029':
			b.WriteByte('\n')
		case !isDropped(r):
			b.WriteRune(r)
		}
		prev = r
	}
	return b.String()
}

// isDropped holds for control characters and marks that are no text.
func isDropped(r rune) bool {
	if r < utf8.RuneSelf {
		return (r < 0x20 && r != '\n' && r != '\t') || r == 0x7F
	}
	return r == '\uFEFF' || r == '\u00AD' || r >= 0x80 && r < 0xA0 || unicode.Is(unicode.Noncharacter_Code_Point, r)
}

// squeeze turns every run of white space into one space.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }
