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
	"fmt"
	"iter"

	"github.com/penstock-go/penstock/pipeline/block"
)

// Version rises when the same blocks and Config would give other chunks.
const Version = 1

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
