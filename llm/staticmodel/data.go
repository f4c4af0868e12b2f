package staticmodel

import (
	_ "embed"
	"encoding/binary"
	"math"
	"strings"
	"sync"
)

// modelFile is written by scripts/staticmodel/generate.py, which describes its
// layout. The table of vectors, 95 % of it, is read where it lies; only the
// small sections are decoded, once.
//
//go:embed model.bin
var modelFile []byte

// IDs of special tokens. They have rows in the table, but do not count in a
// vector.
const (
	padID     = 0
	unknownID = 100
	clsID     = 101
	sepID     = 102
	maskID    = 103
)

// data is the decoded model: the normalization of characters, the tokens, and
// their vectors.
type data struct {
	scale  []float32
	table  []byte // int8, one row of dimensions a token
	index  []uint16
	blocks []uint16
	texts  []string         // what mapped characters become
	starts map[string]int32 // tokens that begin a word
	inner  map[string]int32 // tokens that continue a word, without their "##"
	longS  int              // bytes of the longest token in starts
	longI  int              // and in inner
}

var load = sync.OnceValue(func() *data { return decode(modelFile) })

// section cuts the file into its parts.
type section []byte

func (s *section) take(n int) []byte {
	part := (*s)[:n]
	*s = (*s)[n:]
	return part
}

func (s *section) uint32() int { return int(binary.LittleEndian.Uint32(s.take(4))) }

func (s *section) uint16s(n int) []uint16 {
	raw, out := s.take(2*n), make([]uint16, n)
	for i := range out {
		out[i] = binary.LittleEndian.Uint16(raw[2*i:])
	}
	return out
}

func (s *section) floats(n int) []float32 {
	raw, out := s.take(4*n), make([]float32, n)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

func (s *section) strings(n, size int) []string {
	ends := make([]int, n+1)
	for i := range ends {
		ends[i] = s.uint32()
	}
	text, out := string(s.take(size)), make([]string, n)
	for i := range out {
		out[i] = text[ends[i]:ends[i+1]]
	}
	return out
}

func decode(file []byte) *data {
	s := section(file)
	s.take(len("PNSTSM1\n"))
	tokens, dims, blocks := s.uint32(), s.uint32(), s.uint32()
	mappings, mappingBytes, vocabularyBytes := s.uint32(), s.uint32(), s.uint32()
	d := &data{scale: s.floats(tokens)}
	d.index = s.uint16s(0x1100)
	d.blocks = s.uint16s(blocks * 256)
	d.texts = s.strings(mappings, mappingBytes)
	d.vocabulary(string(s.take(vocabularyBytes)), tokens)
	d.table = s.take(tokens * dims)
	return d
}

func (d *data) vocabulary(lines string, tokens int) {
	d.starts, d.inner = make(map[string]int32, tokens), make(map[string]int32, tokens/4)
	id := int32(0)
	for token := range strings.SplitSeq(lines, "\n") {
		// "##" and "##…" are whole tokens too, but a word never begins with
		// them: '#' is a word of its own.
		if piece, ok := strings.CutPrefix(token, "##"); ok && piece != "" {
			d.inner[piece] = id
			d.longI = max(d.longI, len(piece))
		} else {
			d.starts[token] = id
			d.longS = max(d.longS, len(token))
		}
		id++
	}
}

// class returns how the normaliser treats r, see the class constants.
func (d *data) class(r rune) uint16 {
	return d.blocks[int(d.index[r>>8])<<8|int(r&0xff)]
}

// sum adds up the rows of tokens. It is wider than the vectors, so that long
// texts lose no precision.
type sum [dimensions]float64

// add adds the row of token id, scaled.
func (s *sum) add(d *data, id int32) {
	row, scale := (*[dimensions]byte)(d.table[int(id)*dimensions:]), float64(d.scale[id])
	for i, b := range row {
		// The conversion keeps a processor from fusing the two operations: the
		// same vector everywhere.
		s[i] += float64(scale * float64(int8(b)))
	}
}

// unit returns the vector of length one in the sum's direction, or nil for a
// zero sum.
func (s *sum) unit() []float32 {
	var squares float64
	for _, x := range s {
		squares += float64(x * x)
	}
	if squares == 0 {
		return nil
	}
	inverse, v := 1/math.Sqrt(squares), make([]float32, dimensions)
	for i, x := range s {
		v[i] = float32(x * inverse)
	}
	return v
}
