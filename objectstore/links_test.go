package objectstore_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
)

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Skip(err)
	}
}

// A download onto a symbolic link replaced the link, and what it led to stayed
// as it was.
func TestDownloadFollowsSymbolicLinks(t *testing.T) {
	store := openStore(t)
	keep(t, store, "key", "text", nil)
	for name, arrange := range map[string]func(t *testing.T, dir string) (target string){
		"absolute": func(t *testing.T, dir string) string {
			link(t, filepath.Join(dir, "there", "file"), filepath.Join(dir, "link"))
			return "there/file"
		},
		"relative": func(t *testing.T, dir string) string {
			link(t, "there/file", filepath.Join(dir, "link"))
			return "there/file"
		},
		"a chain": func(t *testing.T, dir string) string {
			link(t, "there/second", filepath.Join(dir, "link"))
			link(t, "../third", filepath.Join(dir, "there", "second"))
			link(t, "there/file", filepath.Join(dir, "third"))
			return "there/file"
		},
		"through a folder that is a link": func(t *testing.T, dir string) string {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "there", "deep"), 0o755))
			link(t, "there/deep", filepath.Join(dir, "folder"))
			link(t, "folder/../file", filepath.Join(dir, "link")) // there/file, not file
			return "there/file"
		},
		"by name alone": func(t *testing.T, dir string) string {
			link(t, "file", filepath.Join(dir, "link"))
			return "file"
		},
	} {
		for _, dangling := range []bool{false, true} {
			dir := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(dir, "there"), 0o755))
			target := filepath.Join(dir, filepath.FromSlash(arrange(t, dir)))
			if !dangling {
				require.NoError(t, os.WriteFile(target, []byte("old"), 0o600))
			}
			path := filepath.Join(dir, "link")
			g, _ := breaker(t, resilience.Config{})
			_, err := g.DownloadFile(t.Context(), &breaking{store, 2, nil}, get("key"), path)
			require.Error(t, err, name)
			partials, err := filepath.Glob(filepath.Join(filepath.Dir(target), ".penstock-*"))
			require.NoError(t, err)
			assert.Len(t, partials, 1, "%s: what came is beside the target", name)
			out, err := g.DownloadFile(t.Context(), store, get("key"), path)
			require.NoError(t, err, name)
			assert.EqualValues(t, 2, out.Resumed, name)
			got, err := os.ReadFile(target)
			require.NoError(t, err, name)
			assert.Equal(t, "text", string(got), name)
			info, err := os.Lstat(path)
			require.NoError(t, err)
			assert.Equal(t, os.ModeSymlink, info.Mode().Type(), "%s: the link stays", name)
		}
	}
}

func TestDownloadRefusesWhatIsNoFile(t *testing.T) {
	store := openStore(t)
	keep(t, store, "key", "text", nil)
	dir := t.TempDir()
	link(t, "second", filepath.Join(dir, "first"))
	link(t, "first", filepath.Join(dir, "second"))
	link(t, "itself", filepath.Join(dir, "itself"))
	link(t, ".", filepath.Join(dir, "folder"))
	link(t, "nowhere/file", filepath.Join(dir, "lost"))
	g, b := breaker(t, resilience.Config{})
	var input *objectstore.InputError
	for path, problem := range map[string]string{
		"first": "in a circle", "itself": "in a circle", "folder": "is a folder", "": "is a folder",
		"new/": "does not name a file", "/": "is a folder",
	} {
		_, err := g.DownloadFile(t.Context(), store, get("key"), dir+"/"+path)
		require.ErrorAs(t, err, &input, path)
		assert.Contains(t, err.Error(), problem)
	}
	_, err := g.DownloadFile(t.Context(), store, get("key"), "")
	require.ErrorAs(t, err, &input)
	for _, path := range []string{"lost", "missing/file"} {
		_, err = g.DownloadFile(t.Context(), store, get("key"), filepath.Join(dir, path))
		require.ErrorIs(t, err, os.ErrNotExist, path)
	}
	_, err = g.DownloadFile(t.Context(), store, get("key"), os.DevNull)
	require.ErrorAs(t, err, &input)
	assert.Zero(t, b.Snapshot().Calls, "nothing is asked for")
}
