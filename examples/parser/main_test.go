package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIngest(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "lists")
	require.NoError(t, os.Mkdir(folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "plant.todo"),
		[]byte("[x] repair the pump\n[ ] paint the fence\n"), 0o644))
	hits, err := ingest(t.Context(), t.TempDir(), folder, "pump")
	require.NoError(t, err)
	require.Len(t, hits, 1)
	assert.Equal(t, "lists/plant.todo", hits[0].Source)
	assert.Contains(t, hits[0].Text, "repair the pump (done)")
}
