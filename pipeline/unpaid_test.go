package pipeline_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// archive is a gzipped tar file of so many texts.
func archive(t *testing.T, members int) string {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	w := tar.NewWriter(zipped)
	for i := range members {
		text := fmt.Sprintf("Member %d says that pump %d leaks.", i, i*13)
		header := &tar.Header{Name: fmt.Sprintf("%d.txt", i), Mode: 0o644, Size: int64(len(text))}
		require.NoError(t, w.WriteHeader(header))
		_, err := w.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, zipped.Close())
	return packed.String()
}

// An archive of 20,000 members cost 9,472 embeddings before it was refused for
// having more than 10,000.
func TestNothingIsPaidForADocumentOverALimit(t *testing.T) {
	w := newWorld(t, llmtest.Options{})
	registry := parse.New(parse.Limits{MaxEntries: 1000})
	t.Cleanup(func() { assert.NoError(t, registry.Close()) })
	w.config.Parsers = registry
	w.write("many.tar.gz", archive(t, 1001))
	summary, err := w.run()
	require.NoError(t, err)
	assert.Equal(t, parse.TooLarge, w.reports["docs/many.tar.gz"].Kind)
	assert.Zero(t, summary.Embedded)

	w.write("many.tar.gz", archive(t, 1000))
	summary, err = w.run()
	require.NoError(t, err)
	assert.Equal(t, pipeline.Ingested, w.reports["docs/many.tar.gz"].Result)
	assert.Equal(t, 1000, summary.Embedded)
}
