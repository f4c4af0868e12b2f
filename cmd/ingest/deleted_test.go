package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// leftOf lists the files of the state that have any of these texts. The test
// must not have the store open: closing a file ends all locks of its process.
func (c *command) leftOf(t *testing.T, texts ...string) (left []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(c.path(".penstock"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		for _, text := range texts {
			if bytes.Contains(content, []byte(text)) {
				left = append(left, fmt.Sprintf("%s has %q", filepath.Base(path), text))
			}
		}
		return err
	}))
	return left
}

// A deletion may be killed at any moment: the next one completes it, and
// nothing is left of the documents. Those that stay are whole.
func TestDeletionsAreKilledAtAnyInstant(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := newCommand(t)
	const documents = 40
	lay := func() {
		for i := range documents {
			var text strings.Builder
			for section := range 12 {
				fmt.Fprintf(&text, "# Gate %d\n\nzq%dqz%dwx opens, 閘%d門%d。\n\n", section, i, section, i, section)
			}
			c.write(t, fmt.Sprintf("docs/note%02d.md", i), text.String())
		}
	}
	lay()
	require.Zero(t, c.ingest(t, "docs").code)
	for round := range atLength(6, 60) {
		t.Run(strconv.Itoa(round), func(t *testing.T) { // which closes the store that it opens
			var gone, texts []string
			for _, i := range random.Perm(documents)[:documents/2] {
				gone = append(gone, fmt.Sprintf("docs/note%02d.md", i))
				texts = append(texts, fmt.Sprintf("zq%dqz", i), fmt.Sprintf("note%02d.md", i), fmt.Sprintf("閘%d門", i))
			}
			cmd := c.start(t.Context(), append([]string{"delete"}, gone...)...)
			require.NoError(t, cmd.Start())
			timer := time.AfterFunc(time.Duration(random.IntN(400))*time.Millisecond, func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait()
			timer.Stop()
			again := c.run(t, append([]string{"delete"}, gone...)...)
			assert.Contains(t, []int{0, 65}, again.code, again.stderr) // 65: some were deleted before
			require.Empty(t, c.leftOf(t, texts...))
			require.Len(t, c.stored(t, "documents"), documents/2*12)
			require.Zero(t, c.ingest(t, "docs").code)
		})
	}
}
