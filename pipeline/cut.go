package pipeline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/pipeline/enrich"
	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// cutting parses documents, cuts them into chunks and sends these on in parts.
type cutting struct {
	*reader
	chunker *chunk.Chunker
	parsing chan struct{} // as many as there are cores parse at a time
	parts   chan<- *part
}

// cut sends the parts of a document; sent says whether one is on its way. The
// last chunk is known only when there is no other, so one is always held back.
func (c *cutting) cut(d *document, in parse.Input) (sent bool, err error) {
	d.stage = "parse"
	c.parsing <- struct{}{}
	defer func() { <-c.parsing }()
	defer c.timed("parse")()
	w := &cutter{cutting: c, doc: d, part: &part{doc: d, first: true}}
	for piece, err := range c.pieces(d, in) {
		if err != nil {
			return w.sent, c.unparsed(err)
		}
		if c.end.Over() {
			return w.sent, stop.ErrEnded
		}
		if err := w.add(piece); err != nil {
			return w.sent, err
		}
	}
	if err := c.unmoved(in, d.sha); err != nil {
		return w.sent, err
	}
	return w.sent, w.close()
}

// pieces are the chunks of a document. Where chunks are paid for, none comes
// before the document has been read to its end: it may be over a limit, or
// broken. One of several parts is read twice, unless it streams.
func (c *cutting) pieces(d *document, in parse.Input) iter.Seq2[chunk.Chunk, error] {
	all := c.chunker.Chunks(c.Parsers.Blocks(c.ctx, in))
	if c.DryRun || d.streams || !c.KeepVectors && !d.enriching {
		return all
	}
	return func(yield func(chunk.Chunk, error) bool) {
		kept, err := c.readWhole(all)
		if err != nil {
			yield(chunk.Chunk{}, err)
			return
		}
		if kept == nil {
			all(yield)
			return
		}
		for _, piece := range kept {
			if !yield(piece, nil) {
				return
			}
		}
	}
}

// readWhole reads the chunks of a document, and returns them if they are those
// of one part.
func (c *cutting) readWhole(all iter.Seq2[chunk.Chunk, error]) (kept []chunk.Chunk, err error) {
	size, few := 0, true
	for piece, err := range all {
		if err != nil || c.end.Over() {
			return nil, cmp.Or(err, stop.ErrEnded)
		}
		size += len(piece.Text)
		if few = few && size < partBytes && len(kept) < partChunks; !few {
			kept = nil
			continue
		}
		kept = append(kept, piece)
	}
	return kept, nil
}

// send hands a part to the committers.
func (c *cutting) send(p *part) {
	p.doc.written.Add(1)
	p.doc.verified.Add(1)
	if p.doc.enriching {
		p.doc.more.parts.Add(1)
	}
	c.Metrics.Queue("upsert", 1)
	c.parts <- p
}

// cutter turns the chunks of one document into parts.
type cutter struct {
	*cutting
	doc  *document
	part *part
	held *pending
	sent bool

	beginning enrich.Beginning // of a document to be enriched
	before    string           // the end of the chunk before
}

func (c *cutter) add(piece chunk.Chunk) error {
	if c.held != nil && c.doc.enriching {
		c.held.after = piece.Text[piece.Repeated:]
	}
	if err := c.release(false); err != nil {
		return err
	}
	c.doc.chunks++
	c.doc.tokens += piece.Tokens
	if c.DryRun {
		return nil
	}
	meta, err := rowMeta(piece, c.Meta)
	if err != nil {
		return err
	}
	c.held = &pending{embed: piece.EmbedText(), tokens: piece.Tokens, Row: rows.Row{
		Source: c.doc.id, Ordinal: piece.Ordinal, Policy: c.doc.plain,
		Heading: piece.Heading, Text: piece.Text, Meta: meta,
	}}
	if c.doc.enriching {
		c.surround(piece)
	}
	return nil
}

// surround keeps what the chat model is shown around a chunk.
func (c *cutter) surround(piece chunk.Chunk) {
	if !c.sent {
		c.beginning.Add(piece)
	}
	c.held.before, c.held.untitled = c.before, piece.Title == ""
	c.before = piece.Text
}

// release seals the chunk that was held back and puts it into the part.
func (c *cutter) release(last bool) error {
	if c.held == nil {
		return nil
	}
	p := c.held
	c.held = nil
	if last {
		p.Mark(c.doc.sha, c.doc.chunks)
	}
	if !c.doc.enriching { // else the committer seals it, with what it adds
		p.Seal(p.embed)
	}
	if err := p.Check(); err != nil {
		return stop.DeadLetter("chunk", parse.TooLarge, err)
	}
	c.part.rows = append(c.part.rows, p)
	c.part.bytes += len(p.Text) + len(p.embed)
	if !last && (len(c.part.rows) >= partChunks || c.part.bytes >= partBytes) {
		c.forward()
	}
	return nil
}

// forward sends the part and begins the next.
func (c *cutter) forward() {
	if c.doc.enriching && c.part.first {
		c.doc.more.head, c.doc.more.titled = c.beginning.Head(), c.beginning.Titled()
	}
	c.send(c.part)
	c.sent = true
	c.part = &part{doc: c.doc}
}

// close sends the last part, with the commit mark.
func (c *cutter) close() error {
	if err := c.release(true); err != nil || c.DryRun {
		return err
	}
	if c.doc.chunks == 0 {
		return stop.DeadLetter("parse", "no text", errors.New("no text found"))
	}
	c.part.last = true
	c.forward()
	return nil
}

// rowMeta is the JSON object that is kept on a row; json sorts its keys. own
// are the fields of the pipeline's user.
func rowMeta(c chunk.Chunk, own map[string]string) (json.RawMessage, error) {
	fields := map[string]any{"start": c.Start, "end": c.End}
	for key, text := range map[string]string{"title": c.Title, "section": c.Section, "lang": c.Lang} {
		if text != "" {
			fields[key] = text
		}
	}
	for key, n := range map[string]int{"page": c.Page, "row": c.Row} {
		if n != 0 {
			fields[key] = n
		}
	}
	for key, text := range own {
		fields[key] = text
	}
	encoded, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("metadata of chunk %d: %w", c.Ordinal, err)
	}
	return encoded, nil
}
