package pipeline

import (
	"github.com/penstock-go/penstock/pipeline/enrich"
	"github.com/penstock-go/penstock/pipeline/rows"
)

// Parts and groups are bounded by chunks, bytes and documents, whichever comes
// first. 512 rows of 256 dimensions are about a megabyte, and at 200 ms for a
// Milvus read at Strong consistency they cost less than half a millisecond each
// in reads.
const (
	partChunks = 256
	partBytes  = 1 << 20
)

// part is a run of rows of one document.
type part struct {
	doc         *document
	rows        []*pending
	bytes       int
	first, last bool
}

// pending is a row that may have to be embedded and written.
type pending struct {
	rows.Row
	embed  string // the text to embed, without context
	tokens int

	before, after string           // of the chunks around it
	untitled      bool             // its document has no title of its own
	asked         *enrich.Question // for its context; nil for none
	context       string
}

// embedText is the text of the row's vector: its context, heading and text.
func (p *pending) embedText() string {
	if p.context == "" {
		return p.embed
	}
	return p.context + "\n\n" + p.embed
}

// writing is a row on its way into the store.
type writing struct {
	doc *document
	row *pending
}
