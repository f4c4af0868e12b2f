package filestore

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

// A key becomes a path, one folder for each of its segments, in a form that
// every file system keeps apart: capitals as ^x, everything but lower-case
// letters, digits, "-", "_" and inner dots as %hh, an empty segment as "%".
// A file that holds an object ends in "@", a piece of a long segment in "+";
// neither sign is ever written for itself, so the three kinds never collide.
const (
	objectMark = "@"
	pieceMark  = "+"
	emptyName  = "%"

	maxKey = 1024
	// A piece ends with the first byte that brings its name to pieceLen, so
	// where a segment is cut depends on what stands before the cut alone, and
	// the order of keys can be read off one folder at a time.
	pieceLen = 192
)

func checkKey(op, key string) error {
	switch {
	case key == "":
		return failure(op, 400, "InvalidArgument", "the key is empty")
	case len(key) > maxKey:
		return failure(op, 400, "KeyTooLongError",
			fmt.Sprintf("the key has %d bytes, the most is %d", len(key), maxKey))
	case !utf8.ValidString(key):
		return failure(op, 400, "InvalidArgument", "the key is not valid UTF-8")
	case strings.ContainsRune(key, 0):
		return failure(op, 400, "InvalidArgument", "the key contains a NUL byte")
	}
	return nil
}

// objectPath is the slash path of key's file below its bucket.
func objectPath(key string) string {
	var parts []string
	for seg := range strings.SplitSeq(key, "/") {
		parts = append(parts, encode(seg)...)
	}
	return path.Join(parts...) + objectMark
}

// encode returns the names for one segment: pieces first, then the last name.
func encode(seg string) []string {
	var names []string
	var b strings.Builder
	for i := range len(seg) {
		writeByte(&b, seg, i)
		if b.Len() >= pieceLen {
			names = append(names, b.String()+pieceMark)
			b.Reset()
		}
	}
	if b.Len() == 0 {
		b.WriteString(emptyName)
	}
	return append(names, b.String())
}

func writeByte(b *strings.Builder, seg string, i int) {
	c := seg[i]
	switch {
	case i == 0 && isDevice(seg), c == '.' && (i == 0 || i == len(seg)-1):
		fmt.Fprintf(b, "%%%02x", c)
	case plain(c):
		b.WriteByte(c)
	case 'A' <= c && c <= 'Z':
		b.WriteByte('^')
		b.WriteByte(c + 'a' - 'A')
	default:
		fmt.Fprintf(b, "%%%02x", c)
	}
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
}

// isDevice reports the names that Windows keeps for devices, with any ending.
func isDevice(seg string) bool {
	base, _, _ := strings.Cut(strings.ToLower(seg), ".")
	switch base {
	case "con", "prn", "aux", "nul":
		return true
	}
	return len(base) == 4 && (strings.HasPrefix(base, "com") || strings.HasPrefix(base, "lpt")) &&
		'0' <= base[3] && base[3] <= '9'
}

// node is what a name in a folder stands for.
type node struct {
	name   string // on disk
	prefix string // the key of an object, or what all keys below a folder begin with
	object bool
}

// decode reads a name below the folder whose keys begin with parent. Names
// that this package does not write are not ok.
func decode(parent, name string, dir bool) (n node, ok bool) {
	n = node{name: name, object: !dir}
	body, end := name, ""
	switch {
	case !dir:
		body, ok = strings.CutSuffix(name, objectMark)
	case strings.HasSuffix(name, pieceMark):
		body, ok = strings.TrimSuffix(name, pieceMark), true
	default:
		end, ok = "/", true
	}
	text, good := unescape(body)
	n.prefix = parent + text + end
	return n, ok && good
}

func unescape(s string) (string, bool) {
	if s == emptyName {
		return "", true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c, width := unescapeAt(s[i:])
		if width == 0 {
			return "", false
		}
		b.WriteByte(c)
		i += width - 1
	}
	return b.String(), true
}

func unescapeAt(s string) (c byte, width int) {
	switch {
	case plain(s[0]):
		return s[0], 1
	case s[0] == '^' && len(s) > 1 && 'a' <= s[1] && s[1] <= 'z':
		return s[1] - ('a' - 'A'), 2
	case s[0] == '%' && len(s) > 2:
		hi, lo := strings.IndexByte(hexDigits, s[1]), strings.IndexByte(hexDigits, s[2])
		if hi >= 0 && lo >= 0 {
			return byte(hi<<4 | lo), 3
		}
	}
	return 0, 0
}

const hexDigits = "0123456789abcdef"
