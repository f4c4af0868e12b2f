package pipeline_test

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	openai "github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

var update = flag.Bool("update", false, "write what is in testdata/golden")

//go:embed testdata/golden/corpus
var goldenCorpus embed.FS

// goldenIDs are the documents of the golden corpus: their ids, and the files
// that hold their content. Ids may hold anything but invalid UTF-8.
var goldenIDs = map[string]string{
	"notes/handover, 3 March & later #7?.txt":           "handover.txt",
	"notes/copy of handover.txt":                        "handover.txt",
	`"quoted" \ back\slash/breaker.md`:                  "breaker.md",
	"100%/percent%20encoded+plus.md":                    "valves.md",
	"日本語/ファイル 🚰.html":                                   "page.html",
	"tab\tand\nnewline.csv":                             "parts.csv",
	"../../outside/readings.json":                       "readings.json",
	strings.Repeat("длинное имя/", 45) + "events.jsonl": "events.jsonl",
	"mail/<1@example.com>.eml":                          "mail.eml",
	"O'Hara; DROP TABLE rows--.txt":                     "latin1.txt",
	"broken.json":                                       "broken.json",
}

func goldenDocuments(t *testing.T) iter.Seq2[source.Item, error] {
	t.Helper()
	contents := map[string][]byte{"book.md": []byte(sections(300)), "empty.txt": nil}
	for id, name := range goldenIDs {
		content, err := goldenCorpus.ReadFile("testdata/golden/corpus/" + name)
		require.NoError(t, err)
		contents[id] = content
	}
	return func(yield func(source.Item, error) bool) {
		for id, content := range contents {
			if !yield(opened(id, memory{bytes.NewReader(content)}), nil) {
				return
			}
		}
	}
}

// What a run leaves in the stores is what testdata/golden says, to the byte:
// ids of rows and names of objects are in stores out there. After an intended
// change, "go test ./pipeline -run Golden -update" rewrites the files.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, c *pipeline.Config){
		"plain": func(*testing.T, *pipeline.Config) {},
		"meta": func(_ *testing.T, c *pipeline.Config) {
			c.Prefix = "deep/down/"
			c.Meta = map[string]string{"team": "search", "Zone": "ü \"7\"", "_empty": ""}
			c.Chunks.Tokens, c.Chunks.Overlap = 200, 20
			c.Chunks.Count, c.Tokenizer = staticmodel.New().Tokens, staticmodel.Name
		},
		"enriched": func(t *testing.T, c *pipeline.Config) {
			chat := llmtest.NewServer(t, llmtest.Options{ReplyTo: goldenReply})
			asked, err := llm.NewClient(llm.Config{BaseURL: chat.URL})
			require.NoError(t, err)
			c.Enrich = pipeline.Enrichment{Client: asked, Model: "scribe", Title: true, Summary: true, Context: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &golden{world: newStillWorld(t), model: staticmodel.New()}
			change(t, &g.config)
			g.makeCollection("golden")
			g.run(t)
			file := filepath.Join("testdata", "golden", name+".txt")
			if *update {
				require.NoError(t, os.WriteFile(file, g.text.Bytes(), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			if !bytes.Equal(want, g.text.Bytes()) {
				assert.Equal(t, strings.Split(string(want), "\n"), strings.Split(g.text.String(), "\n"))
			}
		})
	}
}

// goldenReply answers from the question alone.
func goldenReply(r openai.ChatCompletionRequest) string {
	var asked strings.Builder
	asked.WriteString(r.Model)
	for _, m := range r.Messages {
		fmt.Fprintf(&asked, "%q: %q", m.Role, m.Content)
	}
	said := short(asked.String())
	if strings.HasPrefix(r.Messages[len(r.Messages)-1].Content, "<document>") {
		return fmt.Sprintf(`{"title": "Title %s", "summary": "Summary %s."}`, said, said)
	}
	return "Context " + said + "."
}

// golden is a world in which the golden corpus is ingested, and what is written
// down of it.
type golden struct {
	*world

	model *staticmodel.Model
	text  bytes.Buffer
}

// makeCollection makes the collection with an ID, which is random otherwise and
// part of the keys of originals.
func (g *golden) makeCollection(id string) {
	g.t.Helper()
	record := rows.NewRecord(staticmodel.Name, 256)
	record.ID = id
	schema, err := record.Schema(g.config.Collection)
	require.NoError(g.t, err)
	require.NoError(g.t, g.store.CreateCollection(g.t.Context(), schema, entity.DefaultShardNumber))
}

// run ingests the corpus twice, the second time with nothing to do, and writes
// down what is in the stores.
func (g *golden) run(t *testing.T) {
	t.Helper()
	p := g.pipeline()
	_, err := p.Run(t.Context(), goldenDocuments(t))
	require.NoError(t, err)
	g.writeReports()
	again, err := p.Run(t.Context(), goldenDocuments(t))
	require.NoError(t, err)
	assert.Equal(t, again.Documents, again.Unchanged+again.KnownDeadLetters)
	g.writeObjects()
	g.writeRows()
}

func (g *golden) writeReports() {
	for _, id := range slices.Sorted(maps.Keys(g.reports)) {
		d := g.reports[id]
		fmt.Fprintf(&g.text, "document %q %s", d.ID, d.Result)
		if d.Result == pipeline.Ingested {
			fmt.Fprintf(&g.text, " %d chunks %d tokens\n", d.Chunks, d.Tokens)
		} else {
			fmt.Fprintf(&g.text, " %s %s\n", d.Stage, d.Kind)
		}
	}
}

func (g *golden) writeObjects() {
	for _, key := range g.originals() {
		in := &s3.GetObjectInput{Bucket: aws.String("originals"), Key: aws.String(key)}
		found, err := g.objects.GetObject(g.t.Context(), in)
		require.NoError(g.t, err)
		content, err := io.ReadAll(found.Body)
		require.NoError(g.t, err)
		require.NoError(g.t, found.Body.Close())
		fmt.Fprintf(&g.text, "object %s %d bytes %s", key, len(content), short(string(content)))
		fmt.Fprintf(&g.text, " %s\n", asJSON(g.t, found.Metadata))
	}
}

// writeRows writes a line for each row, with hashes cut to 64 bits.
func (g *golden) writeRows() {
	before := ""
	for _, row := range g.rows() {
		if row.Source != before {
			fmt.Fprintf(&g.text, "rows of %q %s\n", row.Source, row.Doc)
			before = row.Source
		}
		assert.Equal(g.t, rows.DocumentHash(row.Source), row.Doc)
		fmt.Fprintf(&g.text, "%4d id %.16s policy %.16s embedded %.16s text %s %d bytes, heading %q, %s",
			row.Ordinal, row.ID, row.Policy, row.TextSHA, short(row.Text), len(row.Text), row.Heading, row.Meta)
		if row.IsMark() {
			fmt.Fprintf(&g.text, ", mark: %d chunks of %s", row.Chunks, row.SHA)
		}
		g.text.WriteByte('\n')
		g.checkVector(row)
	}
}

// checkVector finds the text that was embedded, by its hash, and compares the
// vector with what the model makes of it.
func (g *golden) checkVector(row rows.Row) {
	text := row.Text
	if row.Heading != "" {
		text = row.Heading + "\n\n" + text
	}
	var meta struct{ Context string }
	require.NoError(g.t, json.Unmarshal(row.Meta, &meta))
	if meta.Context != "" {
		text = meta.Context + "\n\n" + text
	}
	require.Equal(g.t, rows.TextHash(text), row.TextSHA, "the embedded text of chunk %d of %q", row.Ordinal, row.Source)
	vector, _ := g.model.Embed(text)
	require.InDeltaSlice(g.t, vector, row.Vector, 1e-6)
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	encoded, err := json.Marshal(v)
	require.NoError(t, err)
	return string(encoded)
}

// short is a hash of a text, cut to 64 bits.
func short(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}
