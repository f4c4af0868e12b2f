package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
)

// A file can be named whatever its name is, and has the id that it has when its
// folder is named.
func TestNameThatIsNotUTF8(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/caf\xe9.md", "A pump.")
	require.Equal(t, pipeline.Ingested, c.ingest(t, "docs/caf\xe9.md").documents["docs/caf%E9.md"].Result)
	assert.Equal(t, 1, c.ingest(t, "docs").summary.Unchanged)
	shown := c.run(t, "parse", "docs/caf\xe9.md")
	require.Zero(t, shown.code, shown.stderr)
	assert.Contains(t, shown.stdout, "A pump.")
}
