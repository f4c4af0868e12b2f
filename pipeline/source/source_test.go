package source

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lay makes files (path → content) under a fresh folder and works in it.
func lay(t *testing.T, files ...string) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range files {
		full := filepath.Join(folder, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, []byte(name), 0o644))
	}
	t.Chdir(folder)
	return folder
}

func ids(t *testing.T, in *Inputs) (found []string, problems []error) {
	t.Helper()
	for item, err := range in.All(context.Background()) {
		if err != nil {
			problems = append(problems, err)
			continue
		}
		found = append(found, item.ID)
	}
	return found, problems
}

func TestIdentityDoesNotDependOnTheMachine(t *testing.T) {
	folder := lay(t, "x/docs/a.md", "x/docs/guide/b.md", "README.md")
	here := filepath.Base(folder)
	for _, row := range []struct {
		name   string
		inputs []string
		prefix string
		want   []string
	}{
		{"folder", []string{"x/docs"}, "", []string{"docs/a.md", "docs/guide/b.md"}},
		{"folder with slash", []string{"x/docs/"}, "", []string{"docs/a.md", "docs/guide/b.md"}},
		{"absolute folder", []string{filepath.Join(folder, "x", "docs")}, "", []string{"docs/a.md", "docs/guide/b.md"}},
		{"file", []string{"x/docs/a.md"}, "", []string{"docs/a.md"}},
		{"file here", []string{"README.md"}, "", []string{here + "/README.md"}},
		{"the same file", []string{filepath.Join(folder, "README.md")}, "", []string{here + "/README.md"}},
		{
			"working folder",
			[]string{"."},
			"",
			[]string{here + "/README.md", here + "/x/docs/a.md", here + "/x/docs/guide/b.md"},
		},
		{
			"the same folder",
			[]string{folder},
			"",
			[]string{here + "/README.md", here + "/x/docs/a.md", here + "/x/docs/guide/b.md"},
		},
		{
			"above",
			[]string{"x/.."},
			"",
			[]string{here + "/README.md", here + "/x/docs/a.md", here + "/x/docs/guide/b.md"},
		},
		{"glob", []string{"x/docs/*.md"}, "", []string{"docs/a.md"}},
		{"deep glob", []string{"x/docs/**/*.md"}, "", []string{"docs/a.md", "docs/guide/b.md"}},
		{"alternatives", []string{"x/docs/{a,z}.md"}, "", []string{"docs/a.md"}},
		{"prefix", []string{"README.md"}, "team", []string{"team/" + here + "/README.md"}},
		{"given twice", []string{"README.md", "./README.md"}, "", []string{here + "/README.md"}},
		{"folder and a file of it", []string{"x/docs", "x/docs/a.md"}, "", []string{"docs/a.md", "docs/guide/b.md"}},
		{"alternative folders", []string{"x/{docs,other}/*.md"}, "", []string{"x/docs/a.md"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			in, err := Files(row.inputs, Options{Prefix: row.prefix})
			require.NoError(t, err)
			found, problems := ids(t, in)
			assert.Empty(t, problems)
			assert.Equal(t, row.want, found)
		})
	}
}

func TestNamesAreNFC(t *testing.T) {
	lay(t, "docs/cafe\u0301.md")
	in, err := Files([]string{"docs"}, Options{})
	require.NoError(t, err)
	found, _ := ids(t, in)
	assert.Equal(t, []string{"docs/caf\u00e9.md"}, found)
}

// Two names that are one in normal form are two files under one id.
func TestTwinNames(t *testing.T) {
	for _, names := range [][]string{
		{"docs/caf\u00e9.md", "docs/cafe\u0301.md"}, {"docs/l-\xe9.md", "docs/l-%E9.md"},
	} {
		lay(t, append(names, "docs/plain.md")...)
		in, err := Files([]string{"docs"}, Options{})
		require.NoError(t, err)
		found, problems := ids(t, in)
		assert.Len(t, found, 2, "%q", found)
		require.Len(t, problems, 1)
		var collision *CollisionError
		require.ErrorAs(t, problems[0], &collision)
		assert.NotEqual(t, collision.First, collision.Second)
	}
}

func TestInputsThatMeanNothing(t *testing.T) {
	lay(t, "docs/a.md")
	for _, input := range []string{"", "[", "nowhere"} {
		_, err := Find([]string{input}, Options{})
		var wrong *Error
		require.ErrorAs(t, err, &wrong, "%q", input)
	}
	_, err := Find([]string{"docs", ""}, Options{})
	require.Error(t, err)
	in, err := Find([]string{"docs/*.zzz", "docs"}, Options{})
	require.NoError(t, err)
	found, problems := ids(t, in)
	assert.Equal(t, []string{"docs/a.md"}, found)
	require.Len(t, problems, 1)
	require.ErrorIs(t, problems[0], errNoMatch)
}

func TestNamedLinkIsFollowed(t *testing.T) {
	folder := lay(t, "docs/a.md")
	require.NoError(t, os.Symlink(filepath.Join(folder, "docs"), filepath.Join(folder, "manual")))
	for _, input := range []string{"manual", "manual/", "manual/*.md"} {
		in, err := Files([]string{input}, Options{})
		require.NoError(t, err)
		found, problems := ids(t, in)
		assert.Empty(t, problems)
		assert.Equal(t, []string{"manual/a.md"}, found)
	}
}

func TestNamesAreUTF8(t *testing.T) {
	assert.Equal(t, "a\u00e9%FF%80.md", escapeInvalid("a\u00e9\xff\x80.md"))
}

func TestCollisionsAreRefused(t *testing.T) {
	lay(t, "a/docs/x.md", "b/docs/y.md", "a/r.md", "b/a/r.md")
	for _, inputs := range [][]string{{"a/docs", "b/docs"}, {"a/r.md", "b/a/r.md"}} {
		_, err := Files(inputs, Options{})
		collision, ok := errors.AsType[*CollisionError](err)
		require.Truef(t, ok, "%v: %v", inputs, err)
		assert.Contains(t, collision.Error(), "--id-prefix")
	}
}

// A folder and a glob have different keys; their files may still share an id.
func TestCollisionFoundWhileListing(t *testing.T) {
	lay(t, "a/docs/x.md", "b/docs/x.md")
	in, err := Files([]string{"a/docs", "b/docs/*.md"}, Options{})
	require.NoError(t, err)
	found, problems := ids(t, in)
	assert.Equal(t, []string{"docs/x.md"}, found)
	require.Len(t, problems, 1)
	var collision *CollisionError
	require.ErrorAs(t, problems[0], &collision)
}

func TestMissingInputs(t *testing.T) {
	lay(t, "docs/a.md")
	_, err := Files([]string{"nowhere", "neither"}, Options{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.Contains(t, err.Error(), "nowhere")

	in, err := Files([]string{"nowhere", "docs/a.md"}, Options{})
	require.NoError(t, err)
	found, problems := ids(t, in)
	assert.Equal(t, []string{"docs/a.md"}, found, "the rest is still found")
	require.Len(t, problems, 1)
	require.ErrorIs(t, problems[0], fs.ErrNotExist)
}

func TestLeftOut(t *testing.T) {
	folder := lay(t, "docs/a.md", "docs/.hidden", "docs/.git/config", "docs/state/journal.db", ".dot/b.md")
	require.NoError(t, os.Symlink(filepath.Join(folder, "docs/a.md"), filepath.Join(folder, "docs/link.md")))
	require.NoError(t, os.Symlink(filepath.Join(folder, "docs"), filepath.Join(folder, "docs/loop")))
	in, err := Files([]string{"docs"}, Options{Exclude: []string{"docs/state"}})
	require.NoError(t, err)
	found, problems := ids(t, in)
	assert.Empty(t, problems)
	assert.Equal(t, []string{"docs/a.md"}, found)

	in, err = Files([]string{"docs/link.md", ".dot"}, Options{})
	require.NoError(t, err)
	found, _ = ids(t, in)
	assert.Equal(t, []string{"docs/link.md", ".dot/b.md"}, found, "what is named is followed")
}

func TestUnreadableFolder(t *testing.T) {
	if os.Geteuid() == 0 {
		// Root reads everything: a folder that vanishes between the check and
		// the walk takes the same path.
		folder := lay(t, "gone/a.md", "docs/b.md")
		in, err := Files([]string{"gone", "docs/b.md"}, Options{})
		require.NoError(t, err)
		require.NoError(t, os.RemoveAll(filepath.Join(folder, "gone")))
		found, problems := ids(t, in)
		assert.Equal(t, []string{"docs/b.md"}, found)
		require.Len(t, problems, 1)
		return
	}
	folder := lay(t, "docs/a.md", "docs/locked/b.md", "docs/z.md")
	locked := filepath.Join(folder, "docs/locked")
	require.NoError(t, os.Chmod(locked, 0))
	t.Cleanup(func() { assert.NoError(t, os.Chmod(locked, 0o755)) })
	in, err := Files([]string{"docs"}, Options{})
	require.NoError(t, err)
	found, problems := ids(t, in)
	assert.Equal(t, []string{"docs/a.md", "docs/z.md"}, found)
	require.Len(t, problems, 1)
	require.ErrorIs(t, problems[0], fs.ErrPermission)
}

func TestListingStops(t *testing.T) {
	lay(t, "d/a", "d/b", "d/c")
	in, err := Files([]string{"d"}, Options{})
	require.NoError(t, err)
	for _, err := range in.All(context.Background()) {
		require.NoError(t, err)
		break
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, err := range in.All(ctx) {
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestOpen(t *testing.T) {
	folder := lay(t, "d/a.txt")
	in, err := Files([]string{"d"}, Options{})
	require.NoError(t, err)
	for item, err := range in.All(context.Background()) {
		require.NoError(t, err)
		assert.Equal(t, int64(7), item.Size)
		content, err := item.Open(context.Background())
		require.NoError(t, err)
		text, err := io.ReadAll(io.NewSectionReader(content, 0, content.Size()))
		require.NoError(t, err)
		assert.Equal(t, "d/a.txt", string(text))
		require.NoError(t, content.Close())
		require.NoError(t, os.Remove(filepath.Join(folder, "d/a.txt")))
		_, err = item.Open(context.Background())
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
}

func TestDeviceIsNotADocument(t *testing.T) {
	in, err := Files([]string{os.DevNull}, Options{})
	require.NoError(t, err)
	_, problems := ids(t, in)
	require.Len(t, problems, 1)
	assert.Regexp(t, "not a regular file$", problems[0].Error(), "it exists")
	_, err = OpenFile(os.DevNull)
	require.ErrorIs(t, err, errNotRegular)
}
