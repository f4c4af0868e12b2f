package pipeline

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/version"
	"github.com/penstock-go/penstock/vectorstore"
)

// visibleSearch is one search that passes over the rows of no complete version.
type visibleSearch struct {
	*Pipeline
	where string

	attempts map[string][]version.Attempt // by document, as the notes said last
	noted    map[string]bool              // documents that had a note during the search

	stamps []string // whose rows the store leaves out: their versions were unfinished
	ids    []string // of single rows that it leaves out
	crowd  []string // documents that it leaves out at last
}

const (
	// searches is how often the store is searched for one question, each time
	// for more rows, while rows of no complete version take the places of
	// others.
	searches = 5
	// ranked is how many rows are asked for at most: the embedded store takes
	// no more.
	ranked = 4096
)

// ranking asks the store for the k best rows by vector and by text. byText is
// nil where the store does not search text.
type ranking func(where string, k int) (byVector, byText []candidate, err error)

// search ranks rows, and ranks them again without those that have no place in
// the answer. The notes are read again after each ranking: whatever was written
// before it has its note there, or has been completed since. At last it leaves
// out the documents whose rows take the places of others, but for those of
// their rows that it has seen.
func (s *visibleSearch) search(ctx context.Context, rank ranking) ([]Hit, error) {
	var vectors, texts []candidate
	for try := range searches {
		k := min(candidates<<(2*try), ranked)
		byVector, byText, err := rank(s.filter(), k)
		if err != nil {
			return nil, err
		}
		if err := s.look(ctx); err != nil {
			return nil, err
		}
		byVector, byText = s.withCrowd(byVector, vectors), s.withCrowd(byText, texts)
		var again bool
		again, vectors, texts, err = s.sift(ctx, k, byVector, byText)
		if err == nil && !again {
			again, vectors, texts, err = s.present(ctx, vectors, texts)
		}
		if err != nil {
			return nil, err
		}
		if !again {
			break
		}
		if try == searches-2 {
			s.crowd = crowding(byVector, vectors)
			s.crowd = append(s.crowd, crowding(byText, texts)...)
		}
	}
	return hits(vectors, texts), nil
}

// present leaves out candidates that are no longer there, and asks for another
// search then: a document may have been replaced between the two rankings, or a
// version given up after them, and the note be gone.
func (s *visibleSearch) present(
	ctx context.Context, byVector, byText []candidate,
) (again bool, vectors, texts []candidate, err error) {
	vectors, texts = byVector[:min(len(byVector), candidates)], byText[:min(len(byText), candidates)]
	ids := map[string]bool{}
	for _, ranking := range [][]candidate{vectors, texts} {
		for _, c := range ranking {
			ids[c.row.ID] = true
		}
	}
	if len(ids) == 0 {
		return false, byVector, byText, nil
	}
	list, err := s.query(ctx, vectorstore.In(rows.Field.ID, slices.Collect(maps.Keys(ids))), []string{rows.Field.ID})
	if err != nil {
		return false, nil, nil, err
	}
	gone := &verdicts{hidden: ids}
	for _, row := range list {
		delete(gone.hidden, row.ID)
	}
	return len(gone.hidden) > 0, gone.shown(vectors), gone.shown(texts), nil
}

// crowding are the documents of the rows that are not shown.
func crowding(list, shown []candidate) (documents []string) {
	seen := map[string]bool{}
	for _, c := range shown {
		seen[c.row.ID] = true
	}
	for _, c := range list {
		if !seen[c.row.ID] && !slices.Contains(documents, c.row.Doc) {
			documents = append(documents, c.row.Doc)
		}
	}
	return documents
}

// withCrowd adds rows of an earlier ranking whose documents were left out of
// this one.
func (s *visibleSearch) withCrowd(list, earlier []candidate) []candidate {
	if len(s.crowd) == 0 {
		return list
	}
	for _, c := range earlier {
		if slices.Contains(s.crowd, c.row.Doc) {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
	return list
}

// hits are the best of both rankings.
func hits(byVector, byText []candidate) []Hit {
	list := byVector[:min(len(byVector), candidates)]
	if byText != nil {
		list = fuse(list, byText[:min(len(byText), candidates)])
	}
	found := make([]Hit, min(len(list), candidates))
	for i := range found {
		found[i] = list[i].hit()
	}
	return found
}

// look reads the notes.
func (s *visibleSearch) look(ctx context.Context) error {
	list, err := s.query(ctx, placeOfNotes, noteFields)
	if err != nil {
		return err
	}
	notes, err := version.Read(list)
	if err != nil {
		return unreadableNotes(s.config.Collection, err)
	}
	s.attempts = notes.Attempts()
	if s.noted == nil {
		s.noted = map[string]bool{}
	}
	for doc := range s.attempts {
		s.noted[doc] = true
	}
	return nil
}

// query reads what the store shows at once. To wait for all that was written
// before, as the ranking has done, would cost the 200 ms of Milvus's time tick
// again; what a ranking has seen, a later read of the same replica sees too.
func (s *visibleSearch) query(
	ctx context.Context, expr string, fields []string, opts ...client.SearchQueryOptionFunc,
) (list []rows.Row, err error) {
	err = s.read(ctx, expr, fields, func(answer client.ResultSet) (err error) {
		list, err = rows.Read(answer)
		return err
	}, opts...)
	return list, err
}

func (s *visibleSearch) read(
	ctx context.Context, expr string, fields []string, take func(client.ResultSet) error,
	opts ...client.SearchQueryOptionFunc,
) error {
	config := s.config
	opts = append(opts, client.WithSearchQueryConsistencyLevel(entity.ClEventually))
	return service.Vectors(config.VectorGuard).CallVectors(ctx, "query", func(guard vectorstore.Guard) error {
		answer, err := guard.Query(ctx, config.Vectors, config.Collection, nil, expr, fields, opts...)
		if err != nil {
			return err
		}
		return take(answer)
	})
}

// filter is the caller's, without what the store is to leave out.
func (s *visibleSearch) filter() string {
	var terms []string
	if strings.TrimSpace(s.where) != "" {
		terms = append(terms, "("+s.where+")")
	}
	if len(s.stamps) > 0 {
		terms = append(terms, notIn(rows.Field.SHA, s.stamps))
	}
	if len(s.ids) > 0 {
		terms = append(terms, notIn(rows.Field.ID, s.ids))
	}
	if len(s.crowd) > 0 {
		terms = append(terms, notIn(rows.Field.Doc, s.crowd))
	}
	if len(s.stamps)+len(s.ids)+len(s.crowd) == 0 {
		return s.where
	}
	return strings.Join(terms, " and ")
}

func notIn(field string, values []string) string {
	return field + " not" + strings.TrimPrefix(vectorstore.In(field, values), field)
}

// sift takes out what belongs to no complete version. It asks for another
// search where what is left may not be the best, and sets what that leaves out.
func (s *visibleSearch) sift(
	ctx context.Context, k int, byVector, byText []candidate,
) (again bool, vectors, texts []candidate, err error) {
	verdicts, err := s.verdicts(ctx, byVector, byText)
	if err != nil || verdicts == nil {
		return false, byVector, byText, err
	}
	vectors, texts = verdicts.shown(byVector), verdicts.shown(byText)
	again = len(byVector) == k && len(vectors) < candidates || len(byText) == k && len(texts) < candidates
	for _, stamp := range s.stamps { // a version may have been completed since
		again = again || !slices.Contains(verdicts.open, stamp)
	}
	s.stamps = verdicts.open
	s.ids = append(s.ids, verdicts.out...)
	return again, vectors, texts, nil
}

// verdicts say which rows have no place in an answer.
type verdicts struct {
	hidden map[string]bool // rows, by id
	out    []string        // those of them that no stamp names
	open   []string        // stamps of unfinished versions
}

func (v *verdicts) shown(list []candidate) []candidate {
	if list == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(list), func(c candidate) bool { return v.hidden[c.row.ID] })
}

// verdicts judges candidates of documents that have notes; nil where all rows
// may be shown.
func (s *visibleSearch) verdicts(ctx context.Context, rankings ...[]candidate) (*verdicts, error) {
	v := &verdicts{hidden: map[string]bool{}}
	asked := map[string]rows.Row{} // candidates of documents with notes, by id
	for _, ranking := range rankings {
		for _, c := range ranking {
			switch {
			case c.row.Doc == version.Place:
				v.hide(c.row.ID)
			case s.noted[c.row.Doc]:
				asked[c.row.ID] = c.row
			}
		}
	}
	switch {
	case len(asked)+len(s.stamps) > 0:
		return v, s.judge(ctx, v, asked)
	case len(v.hidden) > 0:
		return v, nil
	}
	return nil, nil
}

func (v *verdicts) hide(id string) {
	if !v.hidden[id] {
		v.hidden[id] = true
		v.out = append(v.out, id)
	}
}

// judge judges candidates by what the store holds of their documents now. One
// that is no longer there has been removed since it was found.
func (s *visibleSearch) judge(ctx context.Context, v *verdicts, asked map[string]rows.Row) error {
	byDoc, err := s.around(ctx, asked)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for doc, list := range byDoc {
		attempts := s.attempts[doc]
		v.open = append(v.open, version.Open(attempts, list)...)
		for i, standing := range version.Judge(attempts, list) {
			there[list[i].ID] = true
			switch standing {
			case version.Unfinished:
				v.hidden[list[i].ID] = true // and so has every row with its stamp
			case version.Stale:
				if _, ok := asked[list[i].ID]; ok {
					v.hide(list[i].ID)
				}
			case version.Complete:
			}
		}
	}
	for id := range asked {
		if !there[id] {
			v.hide(id)
		}
	}
	return nil
}

// around reads the commit marks of all documents that have notes, and all rows
// at the places of candidates.
func (s *visibleSearch) around(ctx context.Context, asked map[string]rows.Row) (map[string][]rows.Row, error) {
	noted := vectorstore.In(rows.Field.Doc, slices.Collect(maps.Keys(s.noted)))
	marks, err := s.query(ctx, noted+andMarked, judgedFields)
	if err != nil {
		return nil, err
	}
	documents, ordinals := map[string]bool{}, map[int64]bool{}
	for _, row := range asked {
		documents[row.Doc], ordinals[int64(row.Ordinal)] = true, true
	}
	var others []rows.Row
	if len(asked) > 0 {
		others, err = s.query(ctx, vectorstore.In(rows.Field.Doc, slices.Collect(maps.Keys(documents)))+
			" and "+vectorstore.In(rows.Field.Ordinal, slices.Collect(maps.Keys(ordinals))), judgedFields)
		if err != nil {
			return nil, err
		}
	}
	byDoc := map[string][]rows.Row{}
	for doc := range s.attempts {
		byDoc[doc] = nil
	}
	seen := make(map[string]bool, len(marks)+len(others))
	for _, row := range append(marks, others...) {
		if !seen[row.ID] {
			seen[row.ID] = true
			byDoc[row.Doc] = append(byDoc[row.Doc], row)
		}
	}
	return byDoc, nil
}
