package pipeline

import (
	"errors"
	"maps"
	"slices"

	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/pipeline/enrich"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/vectorstore"
)

// enriching completes the rows of groups: the chat model is asked, and each row
// is sealed with what it answered.
type enriching struct {
	*scope
	vectors *vectors
	model   *enrich.Enricher
}

// asked is a question about a document.
type asked struct {
	doc *document
	*enrich.Question
}

// enrich completes the rows of a group. A question that the end of the run came
// before fails its document.
func (e *enriching) enrich(group []*part) {
	var mine []*part
	for _, p := range group {
		if p.doc.enriching {
			mine = append(mine, p)
		}
	}
	if len(mine) == 0 {
		return
	}
	defer e.timed("enrich")()
	questions := e.questions(mine)
	e.seed(mine, questions)
	questions = slices.DeleteFunc(questions, func(q asked) bool { return q.doc.failure() != nil })
	e.ask(questions)
	e.begin(mine, questions)
	for _, p := range mine {
		e.complete(p)
	}
}

// questions lists what is to be asked about the parts. The order is that of the
// documents, so that a budget completes some before it begins others.
func (e *enriching) questions(parts []*part) []asked {
	var list []asked
	for _, p := range parts {
		more := p.doc.more
		if p.doc.failure() != nil {
			continue
		}
		if p.first {
			if more.about = e.model.AboutDocument(more.head, more.titled); more.about != nil {
				list = append(list, asked{p.doc, more.about})
			}
		}
		for _, row := range p.rows {
			if e.Enrich.Context && row.Ordinal < enrich.ContextChunks {
				row.asked = e.model.AboutChunk(more.head, row.Heading, row.before, row.Text, row.after)
				list = append(list, asked{p.doc, row.asked})
			}
		}
	}
	return list
}

// ask has questions answered and counts what became of them.
func (e *enriching) ask(questions []asked) {
	list := make([]*enrich.Question, len(questions))
	for i, q := range questions {
		list[i] = q.Question
	}
	e.model.Ask(e.ctx, list)
	for _, q := range questions {
		q.doc.answered(q.Question)
	}
}

// answered notes what became of a question about the document.
func (d *document) answered(q *enrich.Question) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.chatTokens += q.Spent
	switch {
	case errors.Is(q.Err, enrich.ErrBudget) || errors.Is(q.Err, enrich.ErrLater):
		d.more.unasked = true
	case q.Err != nil:
		if d.failed == nil {
			d.failed = q.Err
		}
	case q.Text == "":
		d.unanswered++
	}
}

// keepStored notes a row of a document to be enriched that the store holds.
func keepStored(d *document, row rows.Row) {
	more := d.more
	if row.Policy == d.rich && row.Ordinal < enrich.ContextChunks && len(more.paid) < enrich.ContextChunks {
		more.paid = append(more.paid, hashed(row.ID))
	}
	if d.recorded {
		return
	}
	if more.stored == nil {
		more.stored = newVersions()
	}
	more.stored.add(d, row)
}

// seed takes the answers that the stored rows of documents hold into the
// journal, if that lacks any.
func (e *enriching) seed(parts []*part, questions []asked) {
	lacking := map[*document]bool{}
	for _, q := range questions {
		if len(q.doc.more.paid) > 0 && !lacking[q.doc] {
			known, err := e.Journal.Answers(e.ctx, q.Key)
			if err != nil {
				_ = e.end.Fault(err) // the questions are not asked
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
// that fails fails the documents: to continue would pay again.
func (e *enriching) readBack(documents []*document) {
	var ids []string
	for _, d := range documents {
		for _, id := range d.more.paid {
			ids = append(ids, id.String())
		}
	}
	for batch := range slices.Chunk(ids, writeRows) {
		found, err := e.vectors.query(vectorstore.In(rows.Field.ID, batch), []string{rows.Field.ID, rows.Field.Meta})
		if err != nil {
			failAll(documents, err)
			return
		}
		e.keepFound(found)
	}
}

func (e *enriching) keepFound(found []rows.Row) {
	answers := map[string]string{}
	for _, row := range found {
		maps.Copy(answers, enrich.ReadMeta(row.Meta).Answers())
	}
	if err := e.Journal.KeepAnswers(e.lasting(), answers); err != nil {
		_ = e.end.Fault(err) // what was not kept is asked again
	}
}

// begin decides how the documents that begin in these parts are enriched. One
// that got nothing, since the budget is spent, stays as it is, or else is as it
// would be without enrichment.
func (e *enriching) begin(parts []*part, questions []asked) {
	spent := e.model.SpentUp()
	unknown := map[*document]*versions{} // that the store may hold with enrichment of another kind
	for _, p := range parts {
		if !p.first {
			continue
		}
		d := p.doc
		d.decide(questions, spent)
		if d.more.asPlain && !d.adopted && d.more.stored != nil {
			unknown[d] = d.more.stored
		}
	}
	if err := adopt(e.vectors, unknown); err != nil {
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

func (d *document) decide(questions []asked, spent bool) {
	got, over := 0, 0
	for _, q := range questions {
		switch {
		case q.doc != d:
		case q.Err == nil:
			got++
		case errors.Is(q.Err, enrich.ErrBudget):
			over++
		}
	}
	d.more.title, d.more.summary = d.more.about.Description()
	if d.more.asPlain = spent && got == 0 && over > 0; d.more.asPlain {
		d.stay()
	}
}

// complete gives the rows of a part what was answered, and seals them. The
// commit mark waits for the other parts.
func (e *enriching) complete(p *part) {
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
func (e *enriching) seal(d *document, row *pending) error {
	row.Policy = d.policy
	if !d.more.asPlain {
		if err := e.addMeta(d, row); err != nil {
			return err
		}
	}
	row.Seal(row.embedText())
	return nil
}

func (e *enriching) addMeta(d *document, row *pending) (err error) {
	meta := enrich.Meta{Summary: d.more.summary}
	if row.Ordinal == 0 {
		meta.Enrichment.Document = d.more.about.Receipt()
	}
	if key := row.asked.Receipt(); key != "" {
		meta.Enrichment.Context, row.context = key, row.asked.Text
	}
	if row.IsMark() {
		meta.Enrichment.Plain, meta.Enrichment.Pending = d.plain, d.unfinished()
	}
	meta.Context = row.context
	if row.untitled && !d.more.titled {
		meta.Title = d.more.title
	}
	row.tokens += e.tokens(row.context)
	row.Meta, err = meta.AddTo(row.Meta)
	return err
}

func (e *enriching) tokens(text string) int {
	switch {
	case text == "":
		return 0
	case e.Chunks.Count != nil:
		return e.Chunks.Count(text)
	}
	return chunk.EstimateTokens(text)
}

// dropContext takes back a context with which the row cannot be embedded.
func (e *enriching) dropContext(row *pending) (err error) {
	if row.Meta, err = enrich.WithoutContext(row.Meta); err != nil {
		return err
	}
	row.context = ""
	row.Seal(row.embedText())
	return e.Journal.KeepAnswers(e.lasting(), map[string]string{row.asked.Key: ""})
}
