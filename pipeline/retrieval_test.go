package pipeline_test

import (
	"cmp"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/block"
	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/vectorstore"
)

// inquiry is a heading, and what lies below it is the answer.
type inquiry struct {
	text   string
	source string
	// start and end are where the answer lies in the text of the source.
	start, end int64
}

// answers reports whether a chunk is the answer to a question: it is of the
// same document, and half of the shorter of the two lies in the other.
func (q inquiry) answers(source string, start, end int64) bool {
	common := min(q.end, end) - max(q.start, start)
	return source == q.source && common > 0 && 2*common >= min(q.end-q.start, end-start)
}

// shelf is a world whose collection is written without a run.
type shelf struct {
	*world

	model *staticmodel.Model
	rows  []*rows.Row
	spans map[string][2]int64 // by id of a row
}

func newShelf(t *testing.T) *shelf {
	w, model := newStillWorld(t), staticmodel.New()
	schema, err := rows.NewRecord(staticmodel.Name, model.Dimensions()).Schema("docs")
	require.NoError(t, err)
	require.NoError(t, w.store.CreateCollection(t.Context(), schema, 1))
	index, err := entity.NewIndexAUTOINDEX(entity.COSINE)
	require.NoError(t, err)
	require.NoError(t, w.store.CreateIndex(t.Context(), "docs", rows.Field.Vector, index, false))
	require.NoError(t, w.store.LoadCollection(t.Context(), "docs", false))
	return &shelf{world: w, model: model, spans: map[string][2]int64{}}
}

// put adds a chunk. It is embedded and stored without headings.
func (s *shelf) put(t *testing.T, source string, c chunk.Chunk) {
	row := &rows.Row{
		Doc: rows.DocumentHash(source), Source: source, Ordinal: c.Ordinal, Text: c.Text, Meta: []byte("{}"),
	}
	row.Vector, _ = s.model.Embed(c.Text)
	row.Seal(c.Text)
	if _, known := s.spans[row.ID]; known {
		return
	}
	s.spans[row.ID] = [2]int64{c.Start, c.End}
	if s.rows = append(s.rows, row); len(s.rows) >= 500 {
		s.flush(t)
	}
}

func (s *shelf) flush(t *testing.T) {
	_, err := s.store.Upsert(t.Context(), "docs", "", rows.Columns(s.rows, s.model.Dimensions())...)
	require.NoError(t, err)
	s.rows = nil
}

// ranks are the places of the answer to each question in a ranking, from 1; 0
// if it is not among the candidates.
type ranks []int

func (r ranks) each(value func(rank int) float64) []float64 {
	values := make([]float64, len(r))
	for i, rank := range r {
		values[i] = value(rank)
	}
	return values
}

func reciprocal(rank int) float64 {
	if rank == 0 {
		return 0
	}
	return 1 / float64(rank)
}

func inTen(rank int) float64 {
	if rank > 0 && rank <= 10 {
		return 1
	}
	return 0
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// gain is the mean of the differences between two rankings, question by
// question, with the bounds in which 95 of 100 resamplings of the questions
// lie.
type gain struct{ mean, low, high float64 }

func (g gain) String() string { return fmt.Sprintf("%+.3f [%+.3f, %+.3f]", g.mean, g.low, g.high) }

func paired(a, b ranks, value func(int) float64) gain {
	const resamplings = 2000
	differences := a.each(value)
	for i, v := range b.each(value) {
		differences[i] -= v
	}
	random := rand.New(rand.NewPCG(1, 2))
	means := make([]float64, resamplings)
	for i := range means {
		for range differences {
			means[i] += differences[random.IntN(len(differences))] / float64(len(differences))
		}
	}
	slices.Sort(means)
	return gain{mean(differences), means[resamplings*25/1000], means[resamplings*975/1000]}
}

// candidates is how many hits of each ranking are looked at.
const candidates = 100

// ask ranks the answers to every question by vectors, by text, and by both.
func (s *shelf) ask(t *testing.T, questions []inquiry) map[string]ranks {
	found := map[string]ranks{}
	withoutText := s.pipeline(func(c *pipeline.Config) { c.Vectors = struct{ vectorstore.Store }{s.store} })
	for name, search := range map[string]func(question string) ([]pipeline.Hit, error){
		"vectors": func(question string) ([]pipeline.Hit, error) {
			return withoutText.Search(t.Context(), question, pipeline.SearchOptions{Limit: candidates})
		},
		"text": func(question string) ([]pipeline.Hit, error) { return s.searchText(t, question) },
		"fused": func(question string) ([]pipeline.Hit, error) {
			return s.pipeline().Search(t.Context(), question, pipeline.SearchOptions{Limit: candidates})
		},
	} {
		for _, q := range questions {
			hits, err := search(q.text)
			require.NoError(t, err)
			found[name] = append(found[name], s.rankOf(q, hits))
		}
	}
	return found
}

func (s *shelf) searchText(t *testing.T, question string) (hits []pipeline.Hit, err error) {
	fields := []string{rows.Field.ID, rows.Field.Source}
	results, err := s.store.SearchText(t.Context(), "docs", "", fields, question, candidates)
	require.NoError(t, err)
	list, err := rows.Read(results[0].Fields)
	for _, row := range list {
		hits = append(hits, pipeline.Hit{ID: row.ID, Source: row.Source})
	}
	return hits, err
}

func (s *shelf) rankOf(q inquiry, hits []pipeline.Hit) int {
	return 1 + slices.IndexFunc(hits, func(h pipeline.Hit) bool {
		span := s.spans[h.ID]
		return q.answers(h.Source, span[0], span[1])
	})
}

func report(t *testing.T, set string, found map[string]ranks, names ...string) {
	for _, name := range names {
		r := found[name]
		t.Logf("| %-28s | %-9s | %9d | %.3f | %.3f |", set, name, len(r), mean(r.each(reciprocal)), mean(r.each(inTen)))
	}
}

// filesIn lists the files of some kinds below a folder, in order.
func filesIn(t *testing.T, root string, exts ...string) []string {
	var files []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && slices.Contains(exts, filepath.Ext(path)) {
			files = append(files, path)
		}
		return err
	}))
	require.NotEmpty(t, files)
	return files
}

// headed is a section of a document: a heading, and the text below it.
type headed struct{ heading, body string }

var (
	underlined = regexp.MustCompile(`(?m)^(\S.*)\n[=\-~^"'#*+]{4,}$`)
	withHashes = regexp.MustCompile(`(?m)^#{1,4} +(.*)$`)
)

// cutAtHeadings cuts a text in Markdown or reStructuredText at its headings.
func cutAtHeadings(text, ext string) []headed {
	mark := underlined
	if ext == ".md" {
		mark = withHashes
	}
	var list []headed
	heads := mark.FindAllStringSubmatchIndex(text, -1)
	for i, at := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		heading, body := strings.TrimSpace(text[at[2]:at[3]]), strings.TrimSpace(text[at[1]:end])
		list = append(list, headed{heading: heading, body: body})
	}
	return list
}

// asks reports whether a heading can stand for a question.
func asks(heading string) bool { return len(strings.Fields(heading)) >= 2 && len(heading) >= 10 }

// TestFusedRankingFindsSections asks with the headings of manuals for the text
// below them, which is stored without. The weights of the fusion were chosen on
// docstrings, and the model was fitted on none of these texts.
func TestFusedRankingFindsSections(t *testing.T) {
	s, seen := newShelf(t), map[string]bool{}
	chunker, err := chunk.New(chunk.Config{Count: s.model.Tokens})
	require.NoError(t, err)
	parsers := parse.New(parse.Limits{})
	t.Cleanup(func() { assert.NoError(t, parsers.Close()) })
	var questions []inquiry
	for _, file := range filesIn(t, upstreams.Samples(t), ".md", ".rst") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for i, section := range cutAtHeadings(strings.ReplaceAll(string(text), "\r\n", "\n"), filepath.Ext(file)) {
			source := fmt.Sprintf("%s#%d", file, i)
			body := parse.FromBytes("section.txt", []byte(section.body))
			for c, err := range chunker.Chunks(parsers.Blocks(t.Context(), body)) {
				if err == nil {
					s.put(t, source, c)
				}
			}
			if asks(section.heading) && len(section.body) >= 200 && !seen[section.heading] {
				end := int64(len(section.body))
				questions = append(questions, inquiry{text: section.heading, source: source, end: end})
			}
			seen[section.heading] = true
		}
	}
	s.flush(t)
	found := s.ask(t, questions)
	report(t, "heading, section", found, "vectors", "text", "fused")
	rank, recall := paired(found["fused"], found["text"], reciprocal), paired(found["fused"], found["text"], inTen)
	t.Logf("fused less text: reciprocal rank %s, recall at 10 %s, %d chunks", rank, recall, len(s.spans))
	assert.GreaterOrEqual(t, rank.mean, 0.0)
	assert.Positive(t, recall.low)
}

// TestDefaultChunksAnswerBetterThanFixed asks with the headings of the Python
// manual. Either chunker is given the pages without their headings, and its
// chunks are stored without heading paths: only where they are cut differs.
// Some of the pages and questions will do to see that all is well;
// PENSTOCK_LONG=1 asks enough of them to tell the two apart.
func TestDefaultChunksAnswerBetterThanFixed(t *testing.T) {
	pages, most := readPages(t), 1200
	long := os.Getenv("PENSTOCK_LONG") == "1"
	if !long {
		pages, most = pages[:len(pages)/3], 200
	}
	var questions []inquiry
	for _, p := range pages {
		questions = append(questions, p.questions...)
	}
	questions = unlike(questions, most)
	found := map[string]map[string]ranks{}
	for _, mode := range []chunk.Mode{chunk.Structure, chunk.Fixed} {
		s := newShelf(t)
		chunker, err := chunk.New(chunk.Config{Mode: mode, Count: s.model.Tokens})
		require.NoError(t, err)
		for _, p := range pages {
			for c, err := range chunker.Chunks(p.withoutHeadings(mode)) {
				require.NoError(t, err)
				s.put(t, p.source, c)
			}
		}
		s.flush(t)
		found[mode.String()] = s.ask(t, questions)
		report(t, "heading, page, "+mode.String(), found[mode.String()], "vectors", "text", "fused")
		t.Log(len(s.spans), "chunks")
	}
	for _, name := range []string{"vectors", "text", "fused"} {
		structure, fixed := found["structure"][name], found["fixed"][name]
		rank, recall := paired(structure, fixed, reciprocal), paired(structure, fixed, inTen)
		t.Logf("structure less fixed, %s: reciprocal rank %s, recall at 10 %s", name, rank, recall)
	}
	if g := paired(found["structure"]["fused"], found["fixed"]["fused"], reciprocal); long {
		assert.Positive(t, g.low)
	} else {
		assert.Positive(t, g.high)
	}
}

// page is a page of a manual, and what its headings ask.
type page struct {
	source    string
	blocks    []block.Block
	questions []inquiry
}

// notAPart are pages that list what others say.
var notAPart = regexp.MustCompile(`genindex|modindex|contents\.html|search\.html|whatsnew|/_|changelog`)

func readPages(t *testing.T) []page {
	reg := parse.New(parse.Limits{})
	t.Cleanup(func() { require.NoError(t, reg.Close()) })
	var pages []page
	root := upstreams.PythonDocs(t)
	for _, file := range filesIn(t, root, ".html") {
		if notAPart.MatchString(filepath.ToSlash(strings.TrimPrefix(file, root))) {
			continue
		}
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		p := page{source: file}
		for b, err := range reg.Blocks(t.Context(), parse.FromBytes("page.html", content)) {
			require.NoError(t, err)
			p.blocks = append(p.blocks, b)
		}
		p.ask()
		pages = append(pages, p)
	}
	return pages
}

// ask makes a question of each heading with enough below it.
func (p *page) ask() {
	const enough = 200 // bytes
	open := inquiry{}
	end := func(at int64) {
		if open.end = at; asks(open.text) && open.end-open.start >= enough {
			p.questions = append(p.questions, open)
		}
	}
	for _, b := range p.blocks {
		if b.Kind == block.Heading {
			end(b.Offset)
			open = inquiry{text: b.Text, source: p.source, start: b.Offset + int64(len(b.Text)) + 1}
		}
	}
	if n := len(p.blocks); n > 0 {
		end(p.blocks[n-1].Offset + int64(len(p.blocks[n-1].Text)))
	}
}

// withoutHeadings are the blocks with nothing of what the headings say: the
// default chunker sees where there was one, the fixed one does not care.
func (p *page) withoutHeadings(mode chunk.Mode) func(func(block.Block, error) bool) {
	return func(yield func(block.Block, error) bool) {
		for _, b := range p.blocks {
			if b.Kind == block.Title || b.Kind == block.Heading && mode == chunk.Fixed {
				continue
			}
			if b.Kind == block.Heading {
				b.Text = "§"
			}
			if !yield(b, nil) {
				return
			}
		}
	}
}

// unlike leaves out the questions that are asked twice, and draws from the
// rest.
func unlike(questions []inquiry, most int) []inquiry {
	times := map[string]int{}
	for _, q := range questions {
		times[strings.ToLower(q.text)]++
	}
	questions = slices.DeleteFunc(questions, func(q inquiry) bool { return times[strings.ToLower(q.text)] > 1 })
	random := rand.New(rand.NewPCG(3, 4))
	random.Shuffle(len(questions), func(i, j int) { questions[i], questions[j] = questions[j], questions[i] })
	questions = questions[:min(most, len(questions))]
	slices.SortFunc(questions, func(a, b inquiry) int { return cmp.Compare(a.source, b.source) })
	return questions
}
