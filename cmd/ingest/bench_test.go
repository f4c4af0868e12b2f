package main

import (
	"bytes"
	"io"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
)

// BenchmarkPythonDocs ingests the Python manual with embedded defaults.
func BenchmarkPythonDocs(b *testing.B) {
	pages := filepath.Join(upstreams.PythonDocs(b), "**", "*.html")
	var stderr bytes.Buffer
	for b.Loop() {
		code := run(b.Context(), []string{"--state", b.TempDir(), pages}, nil, io.Discard, &stderr)
		require.Zero(b, code, stderr.String())
	}
}
