package sqlitestore

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"unicode"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
)

// SearchText finds the topK (1 to 4096) rows whose heading and text match the
// question best by BM25, among those that match the expression. The score is
// positive, higher is better, and comparable within one answer only. A question
// is plain words: English stop words are ignored, any of the others may match,
// stems and accents are folded, and scripts without spaces between words are
// matched by runs of characters. A question without a word finds nothing. The
// answer has one result, like Search for one vector.
func (s *Store) SearchText(
	ctx context.Context, collName, expr string, outputFields []string, question string, topK int,
) ([]client.SearchResult, error) {
	var out []client.SearchResult
	err := s.view(ctx, "SearchText", collName, func(tx *sql.Tx, c *collection) error {
		if len(c.text) == 0 {
			return invalid("collection %q has no VARCHAR field named heading or text", collName)
		}
		q, err := c.newSearch(nil, expr, outputFields, topK, 0)
		if err != nil {
			return err
		}
		r, err := q.bestText(ctx, tx, matchQuery(question))
		out = []client.SearchResult{r}
		return err
	})
	return out, err
}

func (q *search) bestText(ctx context.Context, tx *sql.Tx, match string) (client.SearchResult, error) {
	if match == "" {
		return q.result(ctx, tx, nil)
	}
	sqlText := "SELECT rowid, rank FROM " + q.c.fulltext() + " WHERE " + q.c.fulltext() + " MATCH ?"
	args := []any{match}
	if q.where != "1" {
		// The sign keeps SQLite from matching the text once for each row that
		// the filter takes, which took a minute for 10,000 rows.
		sqlText += " AND +rowid IN (SELECT rowid FROM " + q.c.rows() + " WHERE " + q.where + ")"
		args = append(args, q.args...)
	}
	args = append(args, q.topK)
	hits, err := readHits(ctx, tx, sqlText+" ORDER BY rank LIMIT ?", args,
		func(rank float64) float32 { return float32(-rank) })
	if err != nil {
		return client.SearchResult{}, err
	}
	return q.result(ctx, tx, hits)
}

// unspaced are the scripts without spaces between words; runs of them are
// indexed by single characters and searched by phrases of window characters.
var unspaced = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul,
	unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar,
}

// window is how many characters of a run make one search term: two carry a
// meaning in Han, kana and hangul, three in the alphabets.
func window(r rune) int {
	if unicode.In(r, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar) {
		return 3
	}
	return 2
}

// segment puts spaces around each character of an unspaced script, so that the
// tokenizer treats it as a word.
func segment(text string) string {
	if !strings.ContainsFunc(text, isUnspaced) {
		return text
	}
	var b strings.Builder
	b.Grow(2 * len(text))
	for _, r := range text {
		if isUnspaced(r) {
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func isUnspaced(r rune) bool { return r >= 0x0E00 && unicode.IsLetter(r) && unicode.In(r, unspaced...) }

// matchQuery turns a question into an FTS5 expression: each term quoted, joined
// by OR. A raw question would be a syntax error at its question mark, and a
// conjunction of all words would find nothing.
func matchQuery(question string) string {
	words := terms(question)
	kept := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return stopWords[strings.ToLower(w)] })
	if len(kept) == 0 {
		kept = words
	}
	for i, w := range kept {
		kept[i] = `"` + w + `"`
	}
	return strings.Join(kept, " OR ")
}

// terms splits a question into words, and runs of unspaced scripts into
// overlapping windows of characters.
func terms(question string) []string {
	var out []string
	fields := strings.FieldsFunc(question, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r)
	})
	for _, field := range fields {
		out = append(out, splitRuns(field)...)
	}
	return out
}

func splitRuns(field string) []string {
	var (
		out []string
		run []rune
		was bool
	)
	flush := func() {
		if len(run) > 0 {
			out = append(out, windows(run, was)...)
		}
		run = run[:0]
	}
	for _, r := range field {
		if is := isUnspaced(r); is != was && !unicode.IsMark(r) {
			flush()
			was = is
		}
		if !was || !unicode.IsMark(r) {
			run = append(run, r)
		}
	}
	flush()
	return out
}

func windows(run []rune, split bool) []string {
	if !split {
		return []string{string(run)}
	}
	n := min(window(run[0]), len(run))
	var out []string
	for i := 0; i+n <= len(run); i++ {
		out = append(out, strings.Join(strings.Split(string(run[i:i+n]), ""), " "))
	}
	return out
}

// stopWords are English words that occur in nearly every passage.
var stopWords = wordSet(`a about all also am an and any are as at be because been but by can could did do does
doing for from had has have having he her here him his how i if in into is it its just me my no not of on or
our out own she should so some such than that the their them then there these they this those through to too
up us very was we were what when where which while who whom why will with would you your`)

func wordSet(text string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(text) {
		set[w] = true
	}
	return set
}
