//go:build unix

package source

import (
	"context"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A pipe in the place of a file that was listed, or is in the journal, keeps
// nobody waiting.
func TestPipeIsNotADocument(t *testing.T) {
	lay(t, "d/a.txt")
	in, err := Files([]string{"d"}, Options{})
	require.NoError(t, err)
	for item, err := range in.All(context.Background()) {
		require.NoError(t, err)
		require.NoError(t, os.Remove("d/a.txt"))
		require.NoError(t, syscall.Mkfifo("d/a.txt", 0o600))
		_, err = item.Open(context.Background())
		require.ErrorIs(t, err, errNotRegular)
		assert.ErrorContains(t, err, "d/a.txt")
	}
}
