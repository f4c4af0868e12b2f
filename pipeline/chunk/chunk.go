// Package chunk cuts the blocks of a document into chunks that fit an
// embedding model.
//
// Most programs need two calls:
//
//	chunker, err := chunk.New(chunk.Config{Count: model.CountTokens})
//	…
//	for c, err := range chunker.Chunks(registry.Blocks(ctx, input)) {
//		embed(c.EmbedText())
//		store(c.Heading, c.Text, c.Page)
//	}
//
// The rules, for every [Mode]:
//
//   - A chunk is valid UTF-8, and neither its EmbedText is over Config.Tokens
//     nor its Text or Heading over Config.MaxBytes. The one exception is a
//     single rune that alone counts more tokens than that.
//   - Every chunk but those of an empty document says something new: Text
//     without its first Repeated bytes is not blank.
//   - No text is lost: the new parts of all chunks, in order, are the text of
//     the blocks, white space and repeated table headers aside. A heading is in
//     Heading of the chunks of its section, and in the Text of a chunk of its
//     own if its section has no text.
//   - The same blocks give the same chunks.
//
// Chunks are made while the blocks arrive, and no more than about one chunk and
// one block is held in memory.
package chunk

import (
	"cmp"
	"errors"
	"fmt"
	"iter"

	"github.com/penstock-go/penstock/pipeline/block"
)

// Version rises when the same blocks and Config would give other chunks.
const Version = 1

// Mode is a way to cut.
type Mode uint8

const (
	// Structure keeps together what the document keeps together: a chunk stays
	// within its section, and is cut between blocks before paragraphs, lines,
	// sentences, words and grapheme clusters, in this order.
	Structure Mode = iota
	// Fixed fills each chunk with words up to the budget, across blocks and
	// sections.
	Fixed
	// Rows makes each table row and each record a chunk of its own; everything
	// else is cut as Structure does.
	Rows
)

var modeNames = [...]string{"structure", "fixed", "rows"}

// String returns the mode in lower case.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return "unknown"
}

// Config says how to cut. A zero field means its default.
type Config struct {
	// Mode is the way to cut: Structure.
	Mode Mode
	// Tokens is the budget for the embedded text of a chunk, its heading path
	// included: 256. Small models are trained on passages of about that length
	// and the mean of more token vectors says less about each.
	Tokens int
	// Overlap is how many tokens of a chunk the next one of the same section
	// may begin with: an eighth of Tokens. It must be less than Tokens; a
	// negative value means none.
	Overlap int
	// MaxBytes is the hard limit for the Text and the Heading of a chunk, in
	// bytes: 8,192. It is at least 64.
	MaxBytes int
	// Count counts the tokens of a text as the embedding model does. It is
	// called about once for each sentence and once for each chunk. Nil means
	// EstimateTokens.
	Count func(text string) int
}

// ErrConfig is what New's errors wrap.
var ErrConfig = errors.New("chunk: bad configuration")

const (
	defaultTokens = 256
	minTokens     = 8
	minBytes      = 64
	defaultBytes  = 8192
)

func (c Config) withDefaults() (Config, error) {
	c.Tokens = cmp.Or(c.Tokens, defaultTokens)
	c.MaxBytes = cmp.Or(c.MaxBytes, defaultBytes)
	c.Overlap = max(0, cmp.Or(c.Overlap, c.Tokens/8))
	if c.Count == nil {
		c.Count = EstimateTokens
	}
	switch {
	case int(c.Mode) >= len(modeNames):
		return c, fmt.Errorf("%w: mode %d is unknown", ErrConfig, c.Mode)
	case c.Tokens < minTokens:
		return c, fmt.Errorf("%w: %d tokens a chunk are too few, the least is %d", ErrConfig, c.Tokens, minTokens)
	case c.MaxBytes < minBytes:
		return c, fmt.Errorf("%w: %d bytes a chunk are too few, the least is %d", ErrConfig, c.MaxBytes, minBytes)
	case c.Overlap >= c.Tokens:
		return c, fmt.Errorf("%w: an overlap of %d tokens must be less than the %d of a chunk", ErrConfig, c.Overlap,
			c.Tokens)
	}
	return c, nil
}

// Chunk is a passage of a document.
type Chunk struct {
	// Ordinal counts the chunks of a document from 0.
	Ordinal int `json:"ordinal"`
	// Text is the passage: never blank, no heading path in it.
	Text string `json:"text"`
	// Heading is the path of headings that leads to the passage, as
	// "Guide > Setup > Windows"; its outer parts are left out where it would
	// take more than a quarter of the budget. It starts with Title if the
	// document has one and no outermost heading.
	Heading string `json:"heading,omitempty"`
	// Title is the document's title, or else its first heading.
	Title string `json:"title,omitempty"`
	// Page is the page or slide where Text starts, from 1; 0 without pages.
	Page int `json:"page,omitempty"`
	// Section is the sheet, attachment or archive member.
	Section string `json:"section,omitempty"`
	// Row is the first row, record or line of source code in Text, from 1; 0 if
	// they are not counted.
	Row int `json:"row,omitempty"`
	// Start and End are where the passage begins and ends in the extracted
	// text; see [block.Block]. The part that Repeated counts lies before Start.
	Start int64 `json:"start"`
	End   int64 `json:"end"`
	// Lang is the language of the code in Text, or the language that the
	// document declares.
	Lang string `json:"lang,omitempty"`
	// Tokens is Config.Count of EmbedText.
	Tokens int `json:"tokens"`
	// Repeated is how many bytes at the start of Text were in an earlier chunk
	// or are a repeated table header.
	Repeated int `json:"repeated,omitempty"`
}

// EmbedText is what the embedding model should see: the heading path and the
// passage.
func (c Chunk) EmbedText() string { return embedText(c.Heading, c.Text) }

func embedText(heading, text string) string {
	if heading == "" {
		return text
	}
	return heading + "\n\n" + text
}

// Chunker cuts documents. It is safe for concurrent use if Config.Count is.
type Chunker struct{ cfg Config }

// New returns a Chunker, or an error that wraps ErrConfig.
func New(cfg Config) (*Chunker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Chunker{cfg: cfg}, nil
}

// Policy names everything that decides what the chunks are, apart from the
// counter, as "structure/1 256+32 8192".
func (c *Chunker) Policy() string {
	return fmt.Sprintf("%s/%d %d+%d %d", c.cfg.Mode, Version, c.cfg.Tokens, c.cfg.Overlap, c.cfg.MaxBytes)
}

// Chunks cuts the blocks of one document. An error among the blocks is handed
// on, and ends the chunks.
func (c *Chunker) Chunks(blocks iter.Seq2[block.Block, error]) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		p := newPacker(c.cfg, func(chunk Chunk) bool { return yield(chunk, nil) })
		for b, err := range blocks {
			if err != nil {
				yield(Chunk{}, err)
				return
			}
			if !p.add(b) {
				return
			}
		}
		p.finish()
	}
}
