package pipeline

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/source"
)

// Parts and groups are bounded by chunks, bytes and documents, whichever comes
// first. 512 rows of 256 dimensions are about a megabyte, and at 200 ms for a
// Milvus read at Strong consistency they cost less than half a millisecond each
// in reads.
const (
	partChunks = 256
	partBytes  = 1 << 20
)

// document is one document on its way.
type document struct {
	id       string
	location string // where it can be read again
	sha      string // of the content
	version  string // what the source says of the content, an ETag for one
	policy   string
	plain    string // the policy without enrichment
	rich     string // and with that of this run
	parser   string // its name
	stage    string
	recorded bool   // the journal calls it complete, in this version or another
	before   string // the policy by which the journal knows this content, but for its enrichment; empty for none
	unlisted bool   // its failure is reported and not kept in the journal
	found    bool   // a deletion has found something of it

	chunks, tokens, embedded, removed int

	enriching  bool      // it is to be enriched in this run
	more       *enriched // its enrichment; nil for none
	unenriched bool      // the budget was spent before it
	adopted    bool      // the store holds it complete and enriched, and it stays so
	pending    bool      // as adopted, with enrichment still to come

	// What the parts of a document tell each other.
	mu       sync.Mutex
	failed   error
	existing map[hash]bool  // rows that the vector store held before; false: this version has them too
	byText   map[hash]hash  // the same by the hash of their text
	listed   chan struct{}  // closed when existing is known
	written  sync.WaitGroup // parts that are not written yet
	verified sync.WaitGroup // parts that are not read back yet
}

func newDocument(id, location string) *document {
	return &document{
		id: id, location: location,
		existing: map[hash]bool{}, byText: map[hash]hash{}, listed: make(chan struct{}),
	}
}

// hash is a hash of pipeline/rows in half the memory: a document may have
// millions of rows.
type hash [sha256.Size]byte

// hashed reads a hash in hex. What is none gives the zero hash, which no row
// has.
func hashed(text string) (h hash) {
	if len(text) == 2*len(h) {
		if _, err := hex.Decode(h[:], []byte(text)); err != nil {
			return hash{}
		}
	}
	return h
}

func (h hash) String() string { return hex.EncodeToString(h[:]) }

func (d *document) report(result Result) Document {
	report := Document{
		ID: d.id, Result: result, Chunks: d.chunks, Tokens: d.tokens,
		Embedded: d.embedded, Removed: d.removed, Unenriched: d.unenriched,
	}
	d.reportEnrichment(&report)
	return report
}

// fail keeps the first failure of a document and says what it is.
func (d *document) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed == nil {
		d.failed = err
	}
}

func (d *document) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

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

	before, after string    // of the chunks around it
	untitled      bool      // its document has no title that is its own
	asked         *question // for its context; nil for none
	context       string
}

// prepare reads a document and sends its parts on, or settles it at once.
func (r *run) prepare(item source.Item, parts chan<- *part) {
	d := newDocument(item.ID, item.Location)
	sent, err := r.read(d, item, parts)
	switch {
	case errors.Is(err, errUnchanged):
		r.settled <- d.report(Unchanged)
	case errors.Is(err, errKnown):
		r.settled <- d.report(KnownDeadLetter)
	case err == nil && r.DryRun:
		r.settled <- d.report(WouldIngest)
	case err != nil && !sent:
		r.settle(d, err)
	case err != nil: // committers hold parts of it: the last of them settles it
		d.fail(err)
		r.send(parts, &part{doc: d, last: true})
	}
}

// send hands a part to the committers.
func (r *run) send(parts chan<- *part, p *part) {
	p.doc.written.Add(1)
	p.doc.verified.Add(1)
	if p.doc.enriching {
		p.doc.more.parts.Add(1)
	}
	r.Metrics.Queue("upsert", 1)
	parts <- p
}

var (
	errUnchanged = errors.New("unchanged")
	errKnown     = errors.New("a dead letter that has not changed")
)

// read takes a document from its bytes to its parts; sent says whether a part
// is on its way.
func (r *run) read(d *document, item source.Item, parts chan<- *part) (sent bool, err error) {
	d.stage = "read"
	if err := r.sameVersion(d, item); err != nil {
		return false, err
	}
	content, in, err := r.open(d, item)
	if err != nil {
		return false, err
	}
	defer content.Close()
	if err := r.known(d, in); err != nil {
		return false, err
	}
	if !r.DryRun {
		if err := r.check.upstreams(); err != nil {
			return false, err
		}
		if err := r.keepOriginal(d, in); err != nil {
			return false, err
		}
	}
	return r.cut(d, in, parts)
}

// sameVersion answers errUnchanged, without reading it, for a document whose
// source says that it has not changed since.
func (r *run) sameVersion(d *document, item source.Item) error {
	if item.Version == nil || r.Journal == nil {
		return nil
	}
	done, ok, err := r.Journal.Document(r.ctx, r.Destination, d.id)
	switch {
	case err != nil:
		return r.journalFault(err)
	case !ok || done.Version == "":
		return nil
	}
	r.enrichable(d, parse.Format{Parser: done.Parser, Version: r.parsers[done.Parser]})
	switch {
	case !r.upToDate(d, done):
		return nil
	case item.Version(r.ctx) != done.Version:
		return nil
	}
	d.chunks = done.Chunks
	return errUnchanged
}

// open reads and hashes a document.
func (r *run) open(d *document, item source.Item) (source.Content, parse.Input, error) {
	defer r.timed("read")()
	content, err := r.fetch(item)
	if err != nil {
		return nil, parse.Input{}, r.unreadable(d, err)
	}
	in, err := hold(parse.Input{Name: d.id, Content: whole{content, content.Size()}, Size: content.Size()})
	if err == nil {
		d.sha, err = r.hashOf(in)
	}
	if err != nil {
		return nil, in, r.unreadable(d, errors.Join(err, content.Close()))
	}
	if versioned, ok := content.(interface{ Version() string }); ok {
		d.version = versioned.Version()
	}
	return content, in, nil
}

// fetch opens a document; one in an object store counts as a call to that.
func (r *run) fetch(item source.Item) (content source.Content, err error) {
	if item.Upstream == "" {
		return item.Open(r.ctx)
	}
	err = r.objects.do(r.ctx, "get_object", func() error {
		content, err = item.Open(r.ctx)
		return err
	})
	return content, err
}

// heldBytes is the size up to which a document is read once, into memory.
const heldBytes = 4 << 20

// hold takes a small document into memory, so that hash, original and chunks
// are of the same bytes. A larger one is hashed again at its end (unmoved).
func hold(in parse.Input) (parse.Input, error) {
	if in.Size > heldBytes {
		return in, nil
	}
	content := make([]byte, in.Size)
	if _, err := io.ReadFull(io.NewSectionReader(in.Content, 0, in.Size), content); err != nil {
		return in, err
	}
	return parse.FromBytes(in.Name, content), nil
}

// whole is content whose end is io.EOF itself, at its size. What is read of
// another is the document's failure, at every reader.
type whole struct {
	io.ReaderAt
	size int64
}

func (w whole) ReadAt(p []byte, off int64) (int, error) {
	n, err := w.ReaderAt.ReadAt(p, off)
	ended := err == io.EOF
	switch {
	case err == nil, ended && off+int64(n) >= w.size:
		return n, err
	case ended:
		return n, deferral("read", "changed", errMoving)
	}
	return n, deadLetter("read", "unreadable", err)
}

var errMoving = errors.New("the content changed while it was read; run again when it is at rest")

// unreadable is a failure to read the bytes: the end of the run, or a fault of
// the file.
func (r *run) unreadable(d *document, err error) error {
	if f, ok := errors.AsType[*failure](err); ok {
		if f.status == journal.Deferred {
			return f
		}
		err = f.err
	}
	_, ofStore := errors.AsType[*source.StoreError](err)
	away, ok := errors.AsType[*source.AwayError](err)
	_, large := errors.AsType[*source.TooLargeError](err)
	switch {
	case r.ctx.Err() != nil || errors.Is(err, errStopped):
		return errStopped
	case ofStore:
		return r.blame(upstreamS3, "read", err)
	case ok:
		return deferral("read", "source is away", away)
	case large:
		return deadLetter("read", "too large", err)
	}
	return cmp.Or(r.unreadableBefore(d, err), deadLetter("read", "unreadable", err))
}

// unreadableBefore answers errKnown for a file that could not be read for the
// same reason before: it is no news.
func (r *run) unreadableBefore(d *document, cause error) error {
	if r.Journal == nil || r.RetryDeadLetters {
		return nil
	}
	p, ok, err := r.Journal.Problem(r.ctx, r.Destination, d.id)
	switch {
	case err != nil:
		return r.journalFault(err)
	case ok && p.Kind == "unreadable" && p.Reason == reasonOf(d, cause):
		return errKnown
	}
	return nil
}

// hashOf gives up at the end of the run: a file may be larger than its grace.
func (r *run) hashOf(in parse.Input) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, whileRunning{r, io.NewSectionReader(in.Content, 0, in.Size)}); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// whileRunning reads until the run ends.
type whileRunning struct {
	run  *run
	from io.Reader
}

func (w whileRunning) Read(p []byte) (int, error) {
	if w.run.end.over() {
		return 0, errStopped
	}
	return w.from.Read(p)
}

// unmoved checks that a document that was read more than once was the same
// each time.
func (r *run) unmoved(in parse.Input, sha string) error {
	if in.Size <= heldBytes {
		return nil
	}
	again, err := r.hashOf(in)
	switch {
	case errors.Is(err, errStopped):
		return err
	case err != nil:
		return r.unparsed(err)
	case again != sha:
		return deferral("read", "changed", errMoving)
	}
	return nil
}

// known answers from the journal: errUnchanged, errKnown, or nil for a document
// that there is work for. It sets the document's policy.
func (r *run) known(d *document, in parse.Input) error {
	d.stage = "parse"
	format, err := r.Parsers.Detect(in)
	r.enrichable(d, format)
	if err != nil {
		return cmp.Or(r.deadBefore(d), r.unparsed(err))
	}
	d.parser = format.Parser
	if r.Journal == nil {
		return nil
	}
	done, ok, err := r.Journal.Document(r.ctx, r.Destination, d.id)
	switch {
	case err != nil:
		return r.journalFault(err)
	case ok && done.SHA == d.sha && r.upToDate(d, done):
		d.chunks = done.Chunks
		r.moved(d, done.Location)
		return errUnchanged
	}
	d.recorded = ok
	if ok && done.SHA == d.sha && cmp.Or(done.Plain, done.Policy) == d.plain {
		d.before, d.pending = done.Policy, done.Pending
	}
	return r.deadBefore(d)
}

func (r *run) deadBefore(d *document) error {
	if r.Journal == nil || r.RetryDeadLetters {
		return nil
	}
	p, ok, err := r.Journal.Problem(r.ctx, r.Destination, d.id)
	switch {
	case err != nil:
		return r.journalFault(err)
	case ok && p.Status == journal.DeadLetter && p.SHA == d.sha && p.Policy == d.plain:
		return errKnown
	}
	return nil
}

func (r *run) journalFault(err error) error {
	r.fault(err)
	return errStopped
}

// unparsed tells a document that cannot be parsed, or read, from the end of the
// run.
func (r *run) unparsed(err error) error {
	refused, ok := errors.AsType[*parse.Error](err)
	f, own := errors.AsType[*failure](err)
	switch {
	case ok:
		return deadLetter("parse", refused.Kind, err)
	case r.ctx.Err() != nil || errors.Is(err, context.Canceled):
		return errStopped
	case own:
		return f
	}
	return deadLetter("read", "unreadable", err)
}

// cut parses and chunks a document and sends its parts on. The last chunk is
// known only when there is no other, so one is always held back.
func (r *run) cut(d *document, in parse.Input, parts chan<- *part) (sent bool, err error) {
	d.stage = "parse"
	r.parsing <- struct{}{}
	defer func() { <-r.parsing }()
	defer r.timed("parse")()
	c := &cutter{run: r, doc: d, parts: parts, part: &part{doc: d, first: true}}
	for piece, err := range r.chunker.Chunks(r.Parsers.Blocks(r.ctx, in)) {
		if err != nil {
			return c.sent, r.unparsed(err)
		}
		if r.end.over() {
			return c.sent, errStopped
		}
		if err := c.add(piece); err != nil {
			return c.sent, err
		}
	}
	if err := r.unmoved(in, d.sha); err != nil {
		return c.sent, err
	}
	return c.sent, c.close()
}

// cutter turns the chunks of one document into parts.
type cutter struct {
	run   *run
	doc   *document
	parts chan<- *part
	part  *part
	held  *pending
	sent  bool

	beginning beginning // of a document to be enriched
	before    string    // the end of the chunk before
}

func (c *cutter) add(piece chunk.Chunk) error {
	if c.held != nil && c.doc.enriching {
		c.held.after = front(piece.Text[piece.Repeated:], afterBytes)
	}
	if err := c.release(false); err != nil {
		return err
	}
	c.doc.chunks++
	c.doc.tokens += piece.Tokens
	if c.run.DryRun {
		return nil
	}
	meta, err := c.run.meta(piece)
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
		c.beginning.add(piece)
	}
	c.held.before, c.held.untitled = c.before, piece.Title == ""
	c.before = back(piece.Text, beforeBytes)
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
		return deadLetter("chunk", "too large", err)
	}
	c.part.rows = append(c.part.rows, p)
	c.part.bytes += len(p.Text) + len(p.embed)
	if !last && (len(c.part.rows) >= partChunks || c.part.bytes >= partBytes) {
		c.send()
	}
	return nil
}

func (c *cutter) send() {
	if c.doc.enriching && c.part.first {
		c.doc.more.head, c.doc.more.titled = strings.TrimSpace(c.beginning.text.String()), c.beginning.titled
	}
	c.run.send(c.parts, c.part)
	c.sent = true
	c.part = &part{doc: c.doc}
}

// close sends the last part, with the commit mark.
func (c *cutter) close() error {
	if err := c.release(true); err != nil || c.run.DryRun {
		return err
	}
	if c.doc.chunks == 0 {
		return deadLetter("parse", "no text", errors.New("there is no text in it"))
	}
	c.part.last = true
	c.send()
	return nil
}

// reservedMeta are the keys of rowMeta.
var reservedMeta = map[string]bool{
	"title": true, "page": true, "section": true, "row": true, "lang": true, "start": true, "end": true,
}

// enrichmentMeta are the keys that enrichment adds.
var enrichmentMeta = map[string]bool{metaSummary: true, metaContext: true, metaEnrichment: true}

// meta is the JSON object that is kept on a row; json sorts its keys.
func (r *run) meta(c chunk.Chunk) (json.RawMessage, error) {
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
	for key, text := range r.Meta {
		fields[key] = text
	}
	encoded, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("metadata of chunk %d: %w", c.Ordinal, err)
	}
	return encoded, nil
}
