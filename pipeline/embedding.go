package pipeline

import (
	"github.com/penstock-go/penstock/pipeline/embed"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/vectorstore"
)

// embedding gives rows their vectors.
type embedding struct {
	*scope
	vectors *vectors
	model   *embed.Embedder
	// dropContext takes back a context with which a row cannot be embedded.
	dropContext func(*pending) error
}

// fill gives each row its vector, from the rows of the version before where the
// text is the same, else from the model. A text that has none fails its
// document.
func (e *embedding) fill(list []writing) {
	defer e.timed("embed")()
	e.reuse(list)
	if again := e.embedRows(list); len(again) > 0 {
		e.reuse(again)
		e.embedRows(again)
	}
}

// embedRows gives rows without a vector one. It returns the rows that the model
// does not take with their context, now without it.
func (e *embedding) embedRows(list []writing) (again []writing) {
	texts := map[string]embed.Text{}
	for _, w := range list {
		if w.row.Vector == nil && w.doc.failure() == nil {
			texts[w.row.TextSHA] = embed.Text{Text: w.row.embedText(), Tokens: w.row.tokens}
		}
	}
	answers := e.model.Vectors(e.ctx, texts)
	for _, w := range list {
		if w.row.Vector != nil {
			continue
		}
		answer := answers[w.row.TextSHA]
		w.row.Vector = answer.Vector
		switch {
		case w.row.context != "" && stop.IsRefusal(answer.Err):
			if e.withoutContext(w) {
				again = append(again, w)
			}
		case answer.Err != nil:
			w.doc.fail(answer.Err)
		case answer.Sent:
			w.doc.countEmbedded()
		}
	}
	return again
}

// withoutContext takes the context off a row and reports whether the row is
// still to be written.
func (e *embedding) withoutContext(w writing) bool {
	if err := e.dropContext(w.row); err != nil {
		w.doc.fail(e.end.Fault(err))
		return false
	}
	return !w.doc.keep(hashed(w.row.ID))
}

// reuse reads back the vectors of rows with the same text. A read that fails
// fails the documents: to continue would pay again.
func (e *embedding) reuse(list []writing) {
	wanted := map[string][]writing{} // by id of the row that has the vector
	var ids []string
	for _, w := range list {
		known, ok := w.doc.byText[hashed(w.row.TextSHA)]
		if !ok {
			continue
		}
		id := known.String()
		if wanted[id] == nil {
			ids = append(ids, id)
		}
		wanted[id] = append(wanted[id], w)
	}
	if len(ids) == 0 {
		return
	}
	found, err := e.vectors.query(vectorstore.In(rows.Field.ID, ids), []string{rows.Field.ID, rows.Field.Vector})
	if err != nil {
		for _, same := range wanted {
			for _, w := range same {
				w.doc.fail(err)
			}
		}
		return
	}
	for _, row := range found {
		for _, w := range wanted[row.ID] {
			w.row.Vector = row.Vector
		}
	}
}

// forget tells the journal which vectors the store holds now: a journal that is
// kept elsewhere need not take them there.
func (e *embedding) forget(written []writing) {
	if !e.KeepVectors {
		return
	}
	var texts []string
	for _, w := range written {
		if w.row.Vector != nil && w.doc.failure() == nil {
			texts = append(texts, w.row.TextSHA)
		}
	}
	if err := e.Journal.Stored(e.lasting(), e.model.Space(), texts...); err != nil {
		_ = e.end.Fault(err) // the vectors stay in the journal
	}
}
