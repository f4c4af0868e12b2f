package parse_test

import (
	"os"
	"path/filepath"
	"testing"
)

// corpus is a folder of real documents, which scripts/corpus fetches.
func corpus(t testing.TB, folder string) string {
	t.Helper()
	root := os.Getenv("PENSTOCK_CORPUS")
	if root == "" {
		t.Skip("PENSTOCK_CORPUS is not set: run scripts/corpus FOLDER, and set it to FOLDER")
	}
	return filepath.Join(root, folder)
}
