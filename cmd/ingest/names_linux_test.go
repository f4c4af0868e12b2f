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

// Names that are forms of one name are in the status, and have a way out.
func TestNamesOfTwoForms(t *testing.T) {
	const composed, decomposed, alias = "docs/caf\u00e9.md", "docs/cafe\u0301.md", "docs/./cafe%cc%81.md"
	c := newCommand(t)
	c.write(t, composed, "A pump.")
	c.write(t, decomposed, "A valve.")
	o := c.ingest(t, "docs")
	assert.Equal(t, exitData, o.code)
	assert.Equal(t, pipeline.Ingested, o.documents[composed].Result)
	assert.Equal(t, pipeline.NameCollision, o.documents[alias].Kind)
	assert.Contains(t, c.run(t, "status").stdout, "dead_letter  "+alias)
	assert.Zero(t, c.ingest(t, "docs").code, "it is known")
	assert.Equal(t, exitData, c.ingest(t, "--strict", "docs").code)
	assert.Zero(t, c.ingest(t, "--prune", "docs").code, "all was listed")
	retried := c.ingest(t, "retry")
	assert.Equal(t, exitData, retried.code, "it is tried, and says why that is in vain")
	assert.Equal(t, pipeline.NameCollision, retried.documents[alias].Kind)
	assert.Len(t, retried.documents, 1, "a file does not take another ID")
	assert.Equal(t, o.documents[alias].Reason, retried.documents[alias].Reason)

	require.Zero(t, c.run(t, "delete", decomposed).code, "the document of the file that has this name")
	assert.NotContains(t, c.run(t, "status").stdout, alias)
	assert.Contains(t, c.run(t, "search", "pump").stdout, " "+composed)
	assert.Equal(t, exitData, c.ingest(t, "docs").code)

	assert.Equal(t, exitData, c.ingest(t, "--strict", decomposed).code, "the ID is that of the other")
	o = c.ingest(t, "--id-prefix=other", decomposed)
	assert.Zero(t, o.code, "by its own path, with another ID")
	assert.Equal(t, pipeline.Ingested, o.documents["other/"+composed].Result)
	c.rename(t, decomposed, "docs/tea.md")
	o = c.ingest(t, "docs")
	assert.Zero(t, o.code)
	assert.Equal(t, pipeline.Ingested, o.documents["docs/tea.md"].Result)
	assert.NotContains(t, c.run(t, "status").stdout, alias)

	assert.Zero(t, c.run(t, "delete", decomposed).code, "the name in either form")
	assert.NotContains(t, c.run(t, "search", "pump").stdout, " "+composed)
	require.Zero(t, c.ingest(t, "docs").code)
	assert.Zero(t, c.run(t, "delete", composed).code)
}
