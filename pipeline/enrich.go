package pipeline

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/vectorstore"
)

// Enrichment has a chat model add to what documents say. The zero value asks for
// nothing.
//
// What the model answers is kept in the metadata of the rows: "title" where a
// document has none, "summary" and "context". A context is also put before the
// embedded text, never into the stored one. An answer that is of no use leaves
// its field out, and so does a text that the model refuses; neither fails a
// document.
//
// An answer is asked for once: it is found again, by model and prompt, in the
// journal and in the rows that are stored.
type Enrichment struct {
	// Client is asked through the pipeline's LLMGuard, so that it shares the
	// breaker, and Model is the chat model it is asked for. Both are required
	// when something is to be asked.
	Client llm.ChatClient
	Model  string
	// Title asks for a title of each document that has none, Summary for two or
	// three sentences about each document, both from its first 6,000 bytes and in
	// one request. Context asks for a sentence about each of its first 4,096
	// chunks that says where in the document it stands.
	Title, Summary, Context bool
	// Budget is how many tokens, prompts and answers together, one run may spend
	// on this, as the server counts them. Zero is no limit. Documents that come
	// when it is spent are ingested without, and a run that has a budget again
	// completes them.
	Budget int
}

// on reports whether anything is asked for.
func (e Enrichment) on() bool { return e.Title || e.Summary || e.Context }

func (c Config) checkEnrichment() error {
	if !c.Enrich.on() {
		return nil
	}
	if c.Enrich.Budget < 0 {
		return &ConfigError{Field: "Enrich.Budget", Err: errors.New("is negative")}
	}
	return firstMissing(
		required{"Enrich.Client", c.Enrich.Client == nil && !c.DryRun},
		required{"Enrich.Model", c.Enrich.Model == ""},
	)
}

// policy names what Enrichment makes of a document.
func (e Enrichment) policy() []string {
	parts := []string{"enrich", promptVersion, e.Model}
	for _, kind := range []struct {
		on   bool
		name string
	}{{e.Title, metaTitle}, {e.Summary, metaSummary}, {e.Context, metaContext}} {
		if kind.on {
			parts = append(parts, kind.name)
		}
	}
	return parts
}

// contextChunks is how many chunks of a document get a context, and how many
// answers are read back from its rows: memory does not grow with the document.
const contextChunks = 4096

// Keys of the metadata that enrichment fills.
const (
	metaTitle      = "title"
	metaSummary    = "summary"
	metaContext    = "context"
	metaEnrichment = "enrichment"
)

// receipt is what a row says of its own enrichment: under which keys the answers
// were asked for, so that they are found again without a journal. The commit mark
// says how the document stands as well.
type receipt struct {
	Document string `json:"document,omitempty"` // of title and summary, on the first row
	Context  string `json:"context,omitempty"`
	Plain    string `json:"plain,omitempty"` // the policy without enrichment
	Pending  bool   `json:"pending,omitempty"`
}

// enrichedMeta is what enrichment reads of a row's metadata.
type enrichedMeta struct {
	Title, Summary, Context string
	Enrichment              receipt
}

// enriched is the enrichment of one document.
type enriched struct {
	head   string // the beginning of its text; set before the first part is sent
	titled bool   // the document has a title of its own

	begun       chan struct{} // closed when the group of the first part has its answers
	about       question      // title and summary; set by then
	asPlain     bool          // the budget was spent before it got anything; set by then
	parts       sync.WaitGroup
	seeding     chan struct{} // closed when the answers in its rows are in the journal; nil before
	paid        []hash        // rows that hold answers
	stored      *versions     // what the store holds of a document that the journal does not know
	pending     bool          // something is still to be asked
	tokens      int
	unanswered  int
	description description
}

func newEnriched() *enriched { return &enriched{begun: make(chan struct{})} }

// enricher asks the chat model for all groups of a run.
type enricher struct {
	run    *run
	budget *budget
	chat   *chatter
}

func newEnricher(r *run) *enricher {
	b := newBudget(r.Enrich.Budget)
	return &enricher{run: r, budget: b, chat: newChatter(r, b)}
}

// open reports whether documents are still to be enriched.
func (e *enricher) open() bool { return e.run.Enrich.on() && !e.budget.spentUp() }

// enrich completes the rows of a group: the chat model is asked, and each row is
// sealed with what it answered. A question that the end of the run came before
// fails its document.
func (e *enricher) enrich(group []*part) {
	var mine []*part
	for _, p := range group {
		if p.doc.enriching {
			mine = append(mine, p)
		}
	}
	if len(mine) == 0 {
		return
	}
	defer e.run.timed("enrich")()
	questions := e.questions(mine)
	e.seed(mine, questions)
	questions = slices.DeleteFunc(questions, func(q *question) bool { return q.doc.failure() != nil })
	e.chat.all(questions)
	for _, q := range questions {
		q.doc.answered(q)
	}
	e.begin(mine, questions)
	for _, p := range mine {
		e.complete(p)
	}
}

// questions lists what is to be asked about the parts. The order is that of the
// documents, so that a budget completes some before it begins others.
func (e *enricher) questions(parts []*part) []*question {
	var list []*question
	for _, p := range parts {
		if p.doc.failure() != nil {
			continue
		}
		if p.first {
			p.doc.more.about = e.aboutDocument(p.doc)
			if p.doc.more.about.prompt != "" {
				list = append(list, &p.doc.more.about)
			}
		}
		for _, row := range p.rows {
			if e.run.Enrich.Context && row.Ordinal < contextChunks {
				row.asked = e.aboutChunk(p.doc, row)
				list = append(list, row.asked)
			}
		}
	}
	return list
}

// seed takes the answers that the stored rows of documents hold into the
// journal, if that lacks any.
func (e *enricher) seed(parts []*part, questions []*question) {
	lacking := map[*document]bool{}
	for _, q := range questions {
		if len(q.doc.more.paid) > 0 && !lacking[q.doc] {
			known, err := e.run.Journal.Answers(e.run.ctx, q.key)
			if err != nil {
				e.run.fault(err)
				return
			}
			lacking[q.doc] = len(known) == 0
		}
	}
	var claimed []*document
	for d, lacks := range lacking {
		if lacks && d.claimSeeds() {
			claimed = append(claimed, d)
		}
	}
	e.readBack(claimed)
	for _, d := range claimed {
		close(d.more.seeding)
	}
	for _, p := range parts {
		p.doc.awaitSeeds()
	}
}

// claimSeeds makes the caller responsible for reading the document's answers
// back.
func (d *document) claimSeeds() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.more.seeding != nil {
		return false
	}
	d.more.seeding = make(chan struct{})
	return true
}

func (d *document) awaitSeeds() {
	d.mu.Lock()
	seeding := d.more.seeding
	d.mu.Unlock()
	if seeding != nil {
		<-seeding
	}
}

// readBack copies the answers in the rows of documents into the journal. A read
// that fails fails the documents: going on would pay again.
func (e *enricher) readBack(documents []*document) {
	var ids []string
	for _, d := range documents {
		for _, id := range d.more.paid {
			ids = append(ids, id.String())
		}
	}
	for len(ids) > 0 {
		n := min(len(ids), writeRows)
		found, err := e.run.query(vectorstore.In(rows.Field.ID, ids[:n]), []string{rows.Field.ID, rows.Field.Meta})
		if err != nil {
			failAll(documents, err)
			return
		}
		e.keepFound(found)
		ids = ids[n:]
	}
}

func (e *enricher) keepFound(found []rows.Row) {
	answers := map[string]string{}
	for _, row := range found {
		meta := readMeta(row.Meta)
		if key := meta.Enrichment.Document; key != "" {
			answers[key] = description{Title: meta.Title, Summary: meta.Summary}.encode()
		}
		if key := meta.Enrichment.Context; key != "" {
			answers[key] = meta.Context
		}
	}
	if err := e.run.Journal.KeepAnswers(context.WithoutCancel(e.run.ctx), answers); err != nil {
		e.run.fault(err)
	}
}

// readMeta reads what it can: fields of the user's own may have these names and
// other types.
func readMeta(encoded json.RawMessage) (meta enrichedMeta) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(encoded, &fields) != nil {
		return meta
	}
	for key, field := range map[string]any{
		metaTitle: &meta.Title, metaSummary: &meta.Summary, metaContext: &meta.Context, metaEnrichment: &meta.Enrichment,
	} {
		if len(fields[key]) > 0 {
			_ = json.Unmarshal(fields[key], field)
		}
	}
	return meta
}

// answered notes what became of a question about the document.
func (d *document) answered(q *question) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.more.tokens += q.spent
	switch {
	case errors.Is(q.err, errBudget) || errors.Is(q.err, errLater):
		d.more.pending = true
	case q.err != nil:
		if d.failed == nil {
			d.failed = q.err
		}
	case q.text == "":
		d.more.unanswered++
	}
}

// begin decides how the documents that begin in these parts are enriched. One
// that got nothing, since the budget is spent, stays as it is, or else is as it
// would be without enrichment.
func (e *enricher) begin(parts []*part, questions []*question) {
	spent := e.budget.spentUp()
	unknown := map[*document]*versions{} // that the store may hold with enrichment of another kind
	for _, p := range parts {
		if !p.first {
			continue
		}
		p.doc.decide(questions, spent)
		if p.doc.more.asPlain && !p.doc.adopted && p.doc.more.stored != nil {
			unknown[p.doc] = p.doc.more.stored
		}
	}
	if err := e.run.adopt(unknown); err != nil {
		for d := range unknown {
			d.fail(err)
		}
	}
	for _, p := range parts {
		if p.first {
			close(p.doc.more.begun)
		}
	}
}

func (d *document) decide(questions []*question, spent bool) {
	got, over := 0, 0
	for _, q := range questions {
		switch {
		case q.doc != d:
		case q.err == nil:
			got++
		case errors.Is(q.err, errBudget):
			over++
		}
	}
	d.more.description = readDescription(d.more.about.text)
	if d.more.asPlain = spent && got == 0 && over > 0; d.more.asPlain {
		d.stay()
	}
}

// stay leaves the document as the store holds it, where it does, and else makes
// it plain.
func (d *document) stay() {
	d.policy = d.plain
	if d.before == "" {
		return
	}
	d.adopted, d.policy = true, d.before
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.existing {
		d.existing[id] = false
	}
}

// complete gives the rows of a part what was answered, and seals them. The
// commit mark waits for the other parts.
func (e *enricher) complete(p *part) {
	more := p.doc.more
	<-more.begun
	for _, row := range p.rows {
		if row.IsMark() {
			continue
		}
		p.doc.fail(e.seal(p.doc, row))
	}
	more.parts.Done()
	if !p.last {
		return
	}
	more.parts.Wait()
	if n := len(p.rows); n > 0 {
		p.doc.fail(e.seal(p.doc, p.rows[n-1]))
	}
}

// seal completes one row.
func (e *enricher) seal(d *document, row *pending) error {
	row.Policy = d.policy
	if !d.more.asPlain {
		if err := e.addMeta(d, row); err != nil {
			return err
		}
	}
	row.Seal(row.embedText())
	return nil
}

func (e *enricher) addMeta(d *document, row *pending) error {
	note := receipt{}
	texts := map[string]string{metaSummary: d.more.description.Summary}
	if row.Ordinal == 0 && d.more.about.kept {
		note.Document = d.more.about.key
	}
	if row.asked != nil && row.asked.kept {
		note.Context, row.context = row.asked.key, row.asked.text
	}
	if row.IsMark() {
		note.Plain, note.Pending = d.plain, d.pendingEnrichment()
	}
	texts[metaContext] = row.context
	if row.untitled && !d.more.titled {
		texts[metaTitle] = d.more.description.Title
	}
	row.tokens += e.tokens(row.context)
	meta, err := withFields(row.Meta, texts, note)
	row.Meta = meta
	return err
}

func (e *enricher) tokens(text string) int {
	switch {
	case text == "":
		return 0
	case e.run.Chunks.Count != nil:
		return e.run.Chunks.Count(text)
	}
	return chunk.EstimateTokens(text)
}

// pendingEnrichment reports whether enrichment of what is stored is still to
// come.
func (d *document) pendingEnrichment() bool {
	if d.adopted {
		return d.pending
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.more != nil && d.more.pending
}

// withFields adds texts that are not empty, and the receipt, to metadata.
func withFields(meta json.RawMessage, texts map[string]string, note receipt) (json.RawMessage, error) {
	fields, err := readFields(meta)
	if err != nil {
		return nil, err
	}
	for key, text := range texts {
		if text != "" {
			fields[key] = text
		}
	}
	if note != (receipt{}) {
		fields[metaEnrichment] = note
	}
	return json.Marshal(fields)
}

func readFields(meta json.RawMessage) (map[string]any, error) {
	fields := map[string]any{}
	read := json.NewDecoder(bytes.NewReader(meta))
	read.UseNumber()
	if err := read.Decode(&fields); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return fields, nil
}

// embedText is what the row's vector stands for: its context, heading and text.
func (p *pending) embedText() string {
	if p.context == "" {
		return p.embed
	}
	return p.context + "\n\n" + p.embed
}

// dropContext takes back a context with which the row cannot be embedded.
func (e *enricher) dropContext(row *pending) error {
	key := row.asked.key
	row.context = ""
	fields, err := readFields(row.Meta)
	if err != nil {
		return err
	}
	delete(fields, metaContext)
	if row.Meta, err = json.Marshal(fields); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	row.Seal(row.embedText())
	return e.run.Journal.KeepAnswers(context.WithoutCancel(e.run.ctx), map[string]string{key: ""})
}

// enrichable sets which policies a document may have, and whether it is to be
// enriched in this run.
func (r *run) enrichable(d *document, format parse.Format) {
	d.plain = r.policy(format)
	d.policy, d.rich = d.plain, r.policy(format, r.Enrich.policy()...)
	d.enriching = r.enrich.open()
	d.unenriched = r.Enrich.on() && !d.enriching
	if d.enriching {
		d.policy, d.more = d.rich, newEnriched()
	}
}

// upToDate reports whether there is nothing to do for a document of the same
// content: it was made by the same policy, its enrichment included; or by the
// same but for that, in a run that enriches nothing or has spent its budget.
// Enrichment that was paid for stays.
func (r *run) upToDate(d *document, done journal.Document) bool {
	switch {
	case r.Enrich.on() && done.Plain == d.plain && done.Policy == d.rich && !done.Pending:
		d.unenriched = false
		return true
	case d.enriching:
		return false
	}
	return cmp.Or(done.Plain, done.Policy) == d.plain
}

// reportEnrichment says how the enrichment of a document went.
func (d *document) reportEnrichment(report *Document) {
	if d.more == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	report.ChatTokens, report.Unanswered = d.more.tokens, d.more.unanswered
	report.Unenriched = report.Unenriched || d.more.pending
}

// record is what the journal keeps of a document that is complete.
func (d *document) record(at time.Time) journal.Document {
	done := journal.Document{
		ID: d.id, SHA: d.sha, Policy: d.policy, Chunks: d.chunks, At: at,
		Location: d.location, Version: d.version, Parser: d.parser,
	}
	if d.policy != d.plain {
		done.Plain, done.Pending = d.plain, d.pendingEnrichment()
	}
	return done
}

// keepStored notes a row of a document to be enriched that the store holds.
func (e *enriched) keepStored(d *document, row rows.Row) {
	if row.Policy == d.rich && row.Ordinal < contextChunks && len(e.paid) < contextChunks {
		e.paid = append(e.paid, hashed(row.ID))
	}
	if d.recorded {
		return
	}
	if e.stored == nil {
		e.stored = newVersions()
	}
	e.stored.add(d, row)
}
