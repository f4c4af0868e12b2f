package pipeline_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

const png = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01"

// problems are the IDs that the journal calls dead letters or deferred.
func (w *world) problems() (ids []string) {
	w.t.Helper()
	for p, err := range w.config.Journal.Problems(w.t.Context(), w.config.Destination, "") {
		require.NoError(w.t, err)
		ids = append(ids, p.ID)
	}
	return ids
}

// sources are the documents that a search finds.
func (w *world) sources(question string) (ids []string) {
	w.t.Helper()
	found, err := w.pipeline().Search(w.t.Context(), question, pipeline.SearchOptions{Limit: 100})
	require.NoError(w.t, err)
	for _, hit := range found {
		ids = append(ids, hit.Source)
	}
	return ids
}

// An empty file or a picture in a folder was a dead letter.
func TestFilesThatNeverAreTextAreSkipped(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.write("a.md", "A text.")
	w.write("__init__.py", "")
	w.write("b.png", png)
	w.write("c.bin", "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x0e")
	summary, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, [4]int{4, 1, 2, 1}, [4]int{
		summary.Documents, summary.Ingested, summary.Skipped, summary.DeadLetters,
	})
	assert.Empty(t, summary.EmptyInputs)
	for id, want := range map[string][2]string{
		"docs/__init__.py": {"empty", "it is empty"}, "docs/b.png": {"image", "the content is image/png"},
	} {
		report := w.reports[id]
		assert.Equal(t, pipeline.Skipped, report.Result, id)
		assert.Equal(t, want, [2]string{report.Kind, report.Reason}, id)
	}
	assert.Equal(t, []string{"docs/c.bin"}, w.problems())
	assert.Equal(t, "unsupported format", w.reports["docs/c.bin"].Kind, "nobody knows what it is")

	named, err := source.Files([]string{
		filepath.Join(w.dir, "docs", "b.png"), filepath.Join(w.dir, "docs", "__init__.py"),
	}, source.Options{})
	require.NoError(t, err)
	summary, err = w.pipeline().Run(t.Context(), named.All(t.Context()))
	require.NoError(t, err)
	assert.Equal(t, 2, summary.DeadLetters, "what is named itself is meant to be a document")
}

// What kept a file from being ingested before is no matter once it is skipped.
func TestSkippedFileLeavesTheJournal(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.write("a.md", "A text.")
	w.write("b.png", png)
	require.NoError(t, w.config.Journal.Fail(t.Context(), w.config.Destination, journal.Problem{
		ID: "docs/b.png", Status: journal.DeadLetter, Stage: "parse", Kind: "unsupported format",
	}))
	_, err := w.run(func(c *pipeline.Config) { c.DryRun = true })
	require.NoError(t, err)
	assert.Equal(t, []string{"docs/b.png"}, w.problems())
	_, err = w.run()
	require.NoError(t, err)
	assert.Empty(t, w.problems())
}

// A document that was ingested and is empty now stays found, and --prune
// removes it as one that was deleted.
func TestDocumentThatIsNoTextAnyMoreStaysUntilPrune(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "blank": "\n", "image": png} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, llmtest.Options{})
			w.write("a.md", "A text about pumps.")
			w.write("b.md", "A text about valves.")
			_, err := w.run()
			require.NoError(t, err)
			w.write("a.md", content)
			census := w.inputs().Census()
			summary, err := w.pipeline(func(c *pipeline.Config) {
				report := c.Report
				c.Report = func(d pipeline.Document) {
					if d.Result == pipeline.Skipped {
						census.Skip(d.ID)
					}
					report(d)
				}
			}).Run(t.Context(), census.All(t.Context()))
			require.NoError(t, err)
			assert.Equal(t, 1, summary.Skipped)
			assert.Contains(t, w.reports["docs/a.md"].Reason, "--prune")
			assert.Contains(t, w.sources("pumps"), "docs/a.md", "never less than before")

			summary, err = w.pipeline().Prune(t.Context(), census, 1)
			require.NoError(t, err)
			assert.Equal(t, 1, summary.Deleted)
			assert.Equal(t, []string{"docs/b.md"}, w.sources("pumps"))
		})
	}
}

// A folder in which nothing is to be ingested was passed without a word.
func TestInputsWithNothingToIngestAreInTheSummary(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.write("a.md", "A text.")
	for _, folder := range []string{"empty", "pictures", "broken"} {
		require.NoError(t, os.Mkdir(filepath.Join(w.dir, folder), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "pictures", "a.png"), []byte(png), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "broken", "a.pdf"), []byte("%PDF-1.7\nno"), 0o644))
	inputs := []string{"pictures", "docs", "empty", "broken"}
	for i, input := range inputs {
		inputs[i] = filepath.Join(w.dir, input)
	}
	in, err := source.Files(inputs, source.Options{})
	require.NoError(t, err)
	for range 2 {
		summary, err := w.pipeline().Run(t.Context(), in.All(t.Context()))
		require.NoError(t, err)
		assert.Equal(t, []string{inputs[2], inputs[0]}, summary.EmptyInputs)
		assert.Zero(t, summary.Gone)
	}
}

// A file that vanished between the listing and its turn was a dead letter.
func TestFileThatVanishesIsGone(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.write("a.md", "A text.")
	w.write("b.md", "Another.")
	_, err := w.run()
	require.NoError(t, err)
	w.write("b.md", "Another, changed.")
	documents := w.documents()
	summary, err := w.pipeline().Run(t.Context(), func(yield func(source.Item, error) bool) {
		for item, err := range documents {
			if strings.HasSuffix(item.ID, "b.md") {
				require.NoError(t, os.Remove(item.Location))
			}
			if !yield(item, err) {
				return
			}
		}
	})
	require.NoError(t, err)
	assert.Equal(t, [3]int{1, 1, 0}, [3]int{summary.Unchanged, summary.Gone, summary.DeadLetters})
	assert.Equal(t, pipeline.Gone, w.reports["docs/b.md"].Result)
	assert.Empty(t, w.problems())
	assert.Contains(t, w.sources("another"), "docs/b.md", "until --prune")
}

// A volume that was unmounted after its listing left an input without anything
// to ingest, and the run did not say so.
func TestInputWhoseDocumentsAreAllGoneIsEmpty(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.write("a.md", "A text.")
	w.write("b.md", "Another.")
	w.write("c.png", png)
	documents := w.documents()
	summary, err := w.pipeline().Run(t.Context(), func(yield func(source.Item, error) bool) {
		for item, err := range documents {
			require.NoError(t, os.RemoveAll(item.Location))
			if !yield(item, err) {
				return
			}
		}
	})
	require.NoError(t, err)
	assert.Equal(t, 3, summary.Gone)
	assert.Equal(t, []string{filepath.Join(w.dir, "docs")}, summary.EmptyInputs)
}

// Names that are forms of one name were reported in each run again, and in no
// status.
func TestNamesThatCollideAreKeptInTheJournal(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.write("caf\u00e9.md", "One text.")
	w.write("cafe\u0301.md", "Another text.")
	w.write("cafe%cc%81.md", "A text in a file that is named as an ID.")
	const alias = "docs/./cafe%cc%81.md"
	summary, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, [2]int{2, 1}, [2]int{summary.Ingested, summary.DeadLetters})
	report := w.reports[alias]
	assert.Equal(t, [2]string{"list", pipeline.NameCollision}, [2]string{report.Stage, report.Kind})
	assert.Contains(t, report.Reason, "rename one of them")
	assert.Equal(t, []string{alias}, w.problems())
	summary, err = w.run()
	require.NoError(t, err)
	assert.Equal(t, [2]int{2, 1}, [2]int{summary.Unchanged, summary.KnownDeadLetters})

	decomposed := filepath.Join(w.dir, "docs", "cafe\u0301.md")
	require.NoError(t, os.Rename(decomposed, filepath.Join(w.dir, "docs", "tea.md")))
	summary, err = w.run()
	require.NoError(t, err)
	assert.Equal(t, [2]int{2, 1}, [2]int{summary.Unchanged, summary.Ingested})
	assert.Empty(t, w.problems(), "one was renamed")
}

// It is the other file that was renamed.
func TestNameThatCollidesNoLongerIsIngested(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.write("caf\u00e9.md", "One text.")
	w.write("cafe\u0301.md", "Another text.")
	_, err := w.run()
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(w.dir, "docs", "caf\u00e9.md")))
	summary, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, 1, summary.Ingested)
	assert.Empty(t, w.problems())
	assert.Equal(t, []string{"docs/caf\u00e9.md"}, w.sources("another"))
}
