package pipeline_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/testutil/llmtest"
	"github.com/penstock-go/penstock/vectorstore"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

// traces are what must not be left on the disk, by name.
type traces map[string][]byte

// vectors adds the first bytes of the vectors of rows.
func (s traces) vectors(w *world, id string) {
	for i, row := range w.rowsOf(id) {
		var start []byte
		for _, x := range row.Vector[:4] {
			start = binary.LittleEndian.AppendUint32(start, math.Float32bits(x))
		}
		s[fmt.Sprintf("vector %d of %s, %s", i, id, row.ID)] = start
	}
}

// left lists the traces that are in any file of the world but the documents.
func (s traces) left(w *world) (found []string) {
	w.t.Helper()
	require.NoError(w.t, filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(path, filepath.Join(w.dir, "docs")) {
			return err
		}
		content, err := os.ReadFile(path)
		for name, trace := range s {
			if bytes.Contains(content, trace) || strings.Contains(path, string(trace)) {
				found = append(found, name+" in "+filepath.Base(path))
			}
		}
		return err
	}))
	return found
}

// marked is a document of n paragraphs, each with words of its own, and adds
// these to the traces.
func (s traces) marked(name string, n int) string {
	var text strings.Builder
	for i := range n {
		words := []string{
			fmt.Sprintf("zq%dxj%s", i*7919+104729, name), fmt.Sprintf("jx%dqz", i*104729+7919),
			fmt.Sprintf("水閘%d開啓於黎明", i),
		}
		for _, word := range words {
			s[word+" of "+name] = []byte(word)
		}
		fmt.Fprintf(&text, "# Valve %s\n\nIt was %sing, says %s.\n\n", words[1], words[0], words[2])
	}
	return text.String()
}

// What is deleted is in no file: not in the stores, their logs, free pages and
// indexes, nor in the journal, while others read.
func TestDeletedDocumentsLeaveNothing(t *testing.T) {
	w, scribe := newScribe(t)
	secrets := traces{}
	scribe.answer = func(prompt string, n int) string {
		if !strings.Contains(prompt, "zq104729xj") {
			return "A context of others."
		}
		answer := fmt.Sprintf("Answer no%dqjz of the model", n)
		secrets["answer "+answer] = []byte(answer)
		if strings.HasPrefix(prompt, "<document>") {
			return fmt.Sprintf(`{"title": %q, "summary": %q}`, answer, answer)
		}
		return answer
	}
	w.corpus(200)
	w.write("secret.md", secrets.marked("secret", 40))
	w.write("refused.xyz", "\x00\x01zq104729xjrefused\x00")
	_, err := w.run()
	require.NoError(t, err)
	w.write("secret.md", secrets.marked("second", 60))
	secrets.vectors(w, "docs/secret.md")
	_, err = w.run()
	require.NoError(t, err)
	secrets.vectors(w, "docs/secret.md")
	require.NotEmpty(t, secrets.left(w))

	reader, err := sqlitestore.Open(filepath.Join(w.dir, "vectors.db"))
	require.NoError(t, err)
	defer reader.Close()
	_, err = reader.HasCollection(t.Context(), "docs")
	require.NoError(t, err)
	looking, err := journal.OpenReadOnly(t.Context(), filepath.Join(w.dir, "journal"))
	require.NoError(t, err)
	defer looking.Close()
	_, err = looking.Totals(t.Context(), "test")
	require.NoError(t, err)

	summary, err := w.pipeline().Delete(t.Context(), "docs/secret.md", "docs/refused.xyz")
	require.NoError(t, err)
	assert.Equal(t, 2, summary.Deleted)
	secrets["name"] = []byte("secret.md")
	secrets["dead letter"] = []byte("refused.xyz")
	assert.Empty(t, secrets.left(w))
	w.requireComplete(200)
}

// A deletion that ends before its purge is completed by the next one, although
// that finds nothing more to delete.
func TestTheNextDeletePurges(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	w.corpus(50)
	secrets := traces{}
	w.write("secret.md", secrets.marked("secret", 40))
	_, err := w.run()
	require.NoError(t, err)
	secrets.vectors(w, "docs/secret.md")
	unable := func(c *pipeline.Config) { c.Vectors = &hooked{Store: w.store} } // it has no Purge
	_, err = w.pipeline(unable).Delete(t.Context(), "docs/secret.md")
	require.NoError(t, err)
	require.NotEmpty(t, secrets.left(w))
	summary, err := w.pipeline().Delete(t.Context(), "docs/secret.md")
	require.NoError(t, err)
	assert.Equal(t, 1, summary.NotFound)
	assert.Empty(t, secrets.left(w))
	w.requireComplete(50)
}

// keeping is a vector store that keeps some of the rows that it says to delete.
type keeping struct {
	vectorstore.Store

	times int // -1 for always
}

func (k *keeping) DeleteByPks(ctx context.Context, collection, partition string, ids entity.Column) error {
	if k.times == 0 {
		return k.Store.DeleteByPks(ctx, collection, partition, ids)
	}
	k.times--
	return nil
}

// Rows that are there once more are deleted once more. Those that stay defer
// their document.
func TestDeleteOfRowsThatStay(t *testing.T) {
	w := newStillWorld(t)
	w.corpus(3)
	_, err := w.run()
	require.NoError(t, err)
	for _, row := range []struct{ times, deleted, removed int }{{-1, 0, 0}, {2, 1, 1}} {
		stays := &keeping{Store: w.store, times: row.times}
		p := w.pipeline(func(c *pipeline.Config) { c.Vectors = stays })
		summary, err := p.Delete(t.Context(), "docs/note001.txt")
		assert.Equal(t, row.deleted, summary.Deleted)
		assert.Equal(t, 1-row.deleted, summary.Deferred)
		if row.deleted == 0 {
			assert.Equal(t, pipeline.StopDeferred, stopOf(t, err).Kind)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, row.removed, summary.Removed)
	}
	w.requireComplete(2)
}
