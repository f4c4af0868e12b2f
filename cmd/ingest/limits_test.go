package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
)

// archiveOf is a zip of so many short texts.
func archiveOf(t *testing.T, texts int) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := range texts {
		member, err := z.Create(fmt.Sprint(i, ".txt"))
		require.NoError(t, err)
		_, err = fmt.Fprintf(member, "Text %d about pumps.", i)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return b.String()
}

// A message about a limit named fields of Go, or a flag that limits something
// else.
func TestLimitsAreRaisedByTheFlagThatTheMessageNames(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a.zip", archiveOf(t, 3))
	for _, row := range []struct{ flag, low, high string }{
		{"--max-entries", "2", "3"},
		{"--max-unpacked", "10", "1000"},
		{"--max-size", "10", "100000"},
	} {
		at := []string{"--collection", "limit" + row.low + row.high}
		o := c.ingest(t, append(at, "docs", row.flag, row.low)...)
		assert.Equal(t, exitData, o.code, row.flag)
		assert.Contains(t, o.documents["docs/a.zip"].Reason, row.flag+")")
		o = c.ingest(t, append(at, "docs", row.flag, row.high)...)
		assert.Zero(t, o.code, row.flag)
		assert.Equal(t, pipeline.Ingested, o.documents["docs/a.zip"].Result, row.flag)
	}
	limited := newCommand(t, "PENSTOCK_MAX_ENTRIES=2", "PENSTOCK_PARSE_TIMEOUT=5m", "PENSTOCK_MAX_WORK=2",
		"PENSTOCK_MAX_RATIO=300", "PENSTOCK_MAX_DEPTH=5", "PENSTOCK_MAX_UNPACKED=1000")
	limited.write(t, "a.zip", archiveOf(t, 3))
	o := limited.run(t, "parse", "a.zip")
	assert.Equal(t, exitData, o.code)
	assert.Contains(t, o.stderr, "more than 2 members (MaxEntries, --max-entries)")
	assert.Zero(t, limited.run(t, "parse", "a.zip", "--max-entries", "3", "--parse-timeout", "10s").code)
}
