package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/testutil/llmtest"
	"github.com/penstock-go/penstock/vectorstore"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

// real are the environment variables that send the command to real upstreams.
func real(t *testing.T, llmURL string) []string {
	t.Helper()
	s3 := upstreams.SeaweedFS(t)
	env := append(atS3(s3, bucketName(t)), "PENSTOCK_CREATE_BUCKET=true",
		"PENSTOCK_MILVUS="+upstreams.Milvus(t), "PENSTOCK_COLLECTION="+collectionName(t))
	return append(env, atModel(llmURL)...)
}

func bucketName(t *testing.T) string {
	return strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
}

func collectionName(t *testing.T) string {
	return strings.NewReplacer("/", "_", "-", "_").Replace(t.Name())
}

// storedRows reads every row of a collection, the vectors left out.
func storedRows(t *testing.T, store vectorstore.Store, collection string) []rows.Row {
	t.Helper()
	answer, err := store.Query(t.Context(), collection, nil, rows.Field.ID+` != ""`,
		[]string{
			rows.Field.ID, rows.Field.Doc, rows.Field.Source, rows.Field.Ordinal,
			rows.Field.Chunks, rows.Field.SHA,
		},
		client.WithSearchQueryConsistencyLevel(entity.ClStrong))
	require.NoError(t, err)
	list, err := rows.Read(answer)
	require.NoError(t, err)
	return list
}

// requireComplete checks that each document of the store is there once and
// whole, and returns the ids of its rows, sorted.
func requireComplete(t *testing.T, list []rows.Row) []string {
	t.Helper()
	ids, marks, ordinals := make([]string, 0, len(list)), map[string]int{}, map[string]map[int]bool{}
	for _, row := range list {
		ids = append(ids, row.ID)
		if row.IsMark() {
			require.Zero(t, marks[row.Source], "%s has two commit marks", row.Source)
			marks[row.Source] = row.Chunks
		}
		if ordinals[row.Source] == nil {
			ordinals[row.Source] = map[int]bool{}
		}
		require.False(t, ordinals[row.Source][row.Ordinal], "%s has chunk %d twice", row.Source, row.Ordinal)
		ordinals[row.Source][row.Ordinal] = true
	}
	for source, have := range ordinals {
		require.Equal(t, marks[source], len(have), source)
	}
	slices.Sort(ids)
	return ids
}

// stored are the ids of a collection's rows, which must be complete.
func (c *command) stored(t *testing.T, collection string) []string {
	t.Helper()
	return requireComplete(t, storedRows(t, openStore(t, c), collection))
}

// openStore opens the vector store that the command writes to.
func openStore(t *testing.T, c *command) vectorstore.Store {
	t.Helper()
	for _, variable := range c.env {
		if address, ok := strings.CutPrefix(variable, "PENSTOCK_MILVUS="); ok {
			store, err := vectorstore.NewClient(context.Background(), vectorstore.Config{Address: address})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, store.Close()) })
			return store
		}
	}
	store, err := sqlitestore.Open(c.path(".penstock", "vectors.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	return store
}

// TestPythonDocs takes the same 500 pages, which somebody else wrote, through
// embedded and through real upstreams.
func TestPythonDocs(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		pythonDocs(t, newCommand(t), "documents", func() int { return 0 })
	})
	t.Run("real", func(t *testing.T) {
		model := llmtest.NewServer(t, llmtest.Options{})
		c := newCommand(t, real(t, model.URL)...)
		pythonDocs(t, c, collectionName(t), func() int { return model.Stats().Requests })
	})
}

func pythonDocs(t *testing.T, c *command, collection string, requests func() int) {
	docs := c.path("manual")
	require.NoError(t, os.CopyFS(docs, os.DirFS(upstreams.PythonDocs(t))))
	args := []string{"manual/**/*.html"}

	first := c.ingest(t, args...)
	require.Zero(t, first.code, first.stdout+first.stderr)
	require.Greater(t, first.summary.Ingested, 400)
	t.Logf("%d files, %d chunks in %s: %.0f files/s, %.0f chunks/s, peak memory %d MB",
		first.summary.Ingested, first.summary.Chunks,
		first.summary.Elapsed, float64(first.summary.Ingested)/first.summary.Elapsed.Seconds(),
		float64(first.summary.Chunks)/first.summary.Elapsed.Seconds(), first.peak>>20)
	store := openStore(t, c)
	ids := requireComplete(t, storedRows(t, store, collection))
	require.Len(t, ids, first.summary.Chunks)

	before := requests()
	again := c.ingest(t, args...)
	require.Zero(t, again.code, again.stderr)
	require.Equal(t, first.summary.Ingested, again.summary.Unchanged)
	require.Equal(t, before, requests(), "an unchanged corpus asks for nothing that is paid for")

	page := filepath.Join(docs, "library", "zlib.html")
	content, err := os.ReadFile(page)
	require.NoError(t, err)
	changed := strings.Replace(string(content), "</body>",
		"<h1>Penstocks</h1><p>A penstock shuts before the turbine is wrecked.</p></body>", 1)
	require.NoError(t, os.WriteFile(page, []byte(changed), 0o644))
	one := c.ingest(t, args...)
	require.Zero(t, one.code, one.stderr)
	require.Equal(t, 1, one.summary.Ingested)
	require.Equal(t, first.summary.Unchanged+first.summary.Ingested-1, one.summary.Unchanged)
	require.Less(t, one.summary.Embedded, one.summary.Chunks, "what did not change is not embedded again")
	// Close to the text: the index of fresh rows in Milvus looks at an eighth
	// of them.
	found := c.run(t, "search", "Penstocks: a penstock shuts before the turbine is wrecked")
	require.Zero(t, found.code, found.stderr)
	require.Contains(t, strings.SplitN(found.stdout, "\n", 2)[0], "manual/library/zlib.html")

	require.NoError(t, os.WriteFile(page, content, 0o644))
	require.Zero(t, c.ingest(t, args...).code)
	require.Equal(t, ids, requireComplete(t, storedRows(t, store, collection)), "the same input gives the same ids")

	before = requests()
	require.NoError(t, os.RemoveAll(c.path(".penstock")))
	fresh := c.ingest(t, args...)
	require.Zero(t, fresh.code, fresh.stderr)
	if len(c.env) > 0 { // the stores are elsewhere: the journal was lost, nothing else
		require.Zero(t, fresh.summary.Embedded)
		require.LessOrEqual(t, requests()-before, 1, "the check of the model, no more")
	} else {
		store = openStore(t, c)
	}
	require.Equal(t, ids, requireComplete(t, storedRows(t, store, collection)), "the same input gives the same ids")
}

// TestTwoRunsMakeOneCollection starts two processes with states of their own at
// the same time where neither bucket nor collection exists.
func TestTwoRunsMakeOneCollection(t *testing.T) {
	model := llmtest.NewServer(t, llmtest.Options{})
	for round := range 5 {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			env := real(t, model.URL)
			commands := []*command{newCommand(t, env...), newCommand(t, env...)}
			outputs := make([]output, len(commands))
			var both sync.WaitGroup
			for i, c := range commands {
				require.NoError(t, os.Mkdir(c.path("notes"), 0o755))
				own := fmt.Sprintf("notes/own%d.txt", i)
				require.NoError(t, os.WriteFile(c.path("notes", "common.txt"), []byte("The weir was closed."), 0o644))
				require.NoError(t, os.WriteFile(c.path(own), []byte("Read by one of them."), 0o644))
				both.Go(func() { outputs[i] = c.ingest(t, "notes") })
			}
			both.Wait()
			for _, o := range outputs {
				assert.Zero(t, o.code, o.stdout+o.stderr)
				assert.Equal(t, 2, o.summary.Ingested)
			}
			assert.Len(t, commands[0].stored(t, collectionName(t)), 3)
			for _, c := range commands {
				again := c.ingest(t, "notes")
				assert.Zero(t, again.code, again.stderr)
				assert.Equal(t, 2, again.summary.Unchanged, "each has the collection in its journal")
			}
		})
	}
}
