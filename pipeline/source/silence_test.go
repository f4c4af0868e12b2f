package source

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An empty folder and one that holds no document passed without a word.
func TestInputWithoutDocumentsIsReported(t *testing.T) {
	folder := lay(t, "docs/a.md", "hidden/.a.md")
	require.NoError(t, os.Mkdir(filepath.Join(folder, "empty"), 0o755))
	in, err := Files([]string{"empty", "docs", "hidden"}, Options{})
	require.NoError(t, err)
	census := in.Census()
	var found, empty []string
	for item, err := range census.All(context.Background()) {
		var none *EmptyError
		if err == nil {
			found = append(found, item.ID)
			continue
		}
		require.ErrorAs(t, err, &none)
		empty = append(empty, none.Input)
	}
	assert.Equal(t, []string{"docs/a.md"}, found)
	assert.Equal(t, []string{"empty", "hidden"}, empty)
	assert.Zero(t, census.Errors, "all was listed")
}

// What an input names itself is told from what a listing holds.
func TestItemsSayWhichInputListedThem(t *testing.T) {
	lay(t, "docs/a.md", "docs/b/c.md", "top/d.md")
	in, err := Files([]string{"docs", "./docs/b/*.md", "top/d.md"}, Options{Prefix: "p"})
	require.NoError(t, err)
	inputs := map[string]string{}
	for item, err := range in.All(context.Background()) {
		require.NoError(t, err)
		inputs[item.ID] = item.Input
	}
	assert.Equal(t, map[string]string{
		"p/docs/a.md": "docs", "p/docs/b/c.md": "docs", "p/b/c.md": "./docs/b/*.md", "p/top/d.md": "",
	}, inputs)
}

// A folder that goes while its parent is listed leaves the rest, and a listing
// without it is whole.
func TestFolderThatVanishesIsNoError(t *testing.T) {
	folder := lay(t, "docs/a.md", "docs/b/c.md", "docs/d.md", "docs/e.md")
	in, err := Files([]string{"docs"}, Options{})
	require.NoError(t, err)
	census := in.Census()
	var found []string
	for item, err := range census.All(context.Background()) {
		require.NoError(t, err)
		found = append(found, item.ID)
		if item.ID == "docs/a.md" {
			require.NoError(t, os.RemoveAll(filepath.Join(folder, "docs/b")))
			require.NoError(t, os.Remove(filepath.Join(folder, "docs/d.md")))
		}
	}
	assert.Equal(t, []string{"docs/a.md", "docs/d.md", "docs/e.md"}, found, "the names were read before")
	assert.Zero(t, census.Errors)
}

func TestFileBelowAFileIsGone(t *testing.T) {
	lay(t, "docs/a")
	_, err := OpenFile(filepath.Join("docs", "a", "b.md"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = OpenFile("nowhere")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// Folders whose names are forms of one name gave two files one ID.
func TestTwinNamesOfFolders(t *testing.T) {
	lay(t, "docs/caf\u00e9/a.md", "docs/cafe\u0301/a.md", "docs/cafe\u0301/b.md", "docs/caf\u00e9/c.md")
	in, err := Files([]string{"docs"}, Options{})
	require.NoError(t, err)
	census := in.Census()
	var found []string
	var collision *CollisionError
	for item, err := range census.All(context.Background()) {
		if err == nil {
			found = append(found, item.ID)
		} else {
			require.ErrorAs(t, err, &collision)
		}
	}
	assert.ElementsMatch(t, []string{"docs/caf\u00e9/a.md", "docs/caf\u00e9/b.md", "docs/caf\u00e9/c.md"}, found)
	require.NotNil(t, collision)
	assert.Equal(t, "docs/cafe%cc%81/./a.md", collision.Alias)
	assert.Contains(t, collision.Error(), "rename one of them")
	assert.Zero(t, census.Errors, "all was listed")
	gone, _ := census.Gone(collision.Alias, collision.Second)
	assert.False(t, gone)
}

// The ID of a file that had that of another was itself that of a third, which
// cleared its dead letter in each run.
func TestIDOfATwinIsNoOtherID(t *testing.T) {
	for _, row := range []struct{ first, second, third string }{
		{"docs/caf\u00e9.md", "docs/cafe\u0301.md", "docs/cafe%cc%81.md"},
		{"docs/l-%E9.md", "docs/l-\xe9.md", "docs/l-%e9.md"},
		{"docs/caf\u00e9/a.md", "docs/cafe\u0301/a.md", "docs/cafe%cc%81/a.md"},
	} {
		lay(t, row.first, row.second, row.third)
		in, err := Files([]string{"docs"}, Options{})
		require.NoError(t, err)
		seen := map[string]bool{}
		for item, err := range in.All(context.Background()) {
			id := item.ID
			if collision, ok := errors.AsType[*CollisionError](err); ok {
				id = collision.Alias
			}
			assert.False(t, seen[id], id)
			seen[id] = true
		}
		assert.Len(t, seen, 3)
	}
}

// A name of another form was passed over where there was a second input.
func TestNamesOfAnotherFormBesideAnotherInput(t *testing.T) {
	lay(t, "docs/cafe\u0301.md", "other/b.md")
	in, err := Files([]string{"docs", "other"}, Options{})
	require.NoError(t, err)
	found, problems := ids(t, in)
	assert.Empty(t, problems)
	assert.Equal(t, []string{"docs/caf\u00e9.md", "other/b.md"}, found)
}

func TestIdentityOfEitherForm(t *testing.T) {
	for _, name := range []string{"docs/caf\u00e9.md", "docs/cafe\u0301.md"} {
		assert.Equal(t, "docs/caf\u00e9.md", Identity(name))
	}
	assert.Equal(t, "docs/l-%E9.md", Identity("docs/l-\xe9.md"))
	assert.Equal(t, "docs/cafe%cc%81.md", Identity("docs/cafe%cc%81.md"))
}

// A document that was skipped is gone for --prune, and its folder is not empty.
func TestCensusWithoutASkippedDocument(t *testing.T) {
	lay(t, "docs/a.md")
	in, err := Files([]string{"docs"}, Options{})
	require.NoError(t, err)
	census := in.Census()
	location := ""
	for item, err := range census.All(context.Background()) {
		require.NoError(t, err)
		location = item.Location
	}
	census.Skip("docs/a.md")
	gone, empty := census.Gone("docs/a.md", location)
	assert.True(t, gone)
	assert.Empty(t, empty)
}

// Prefixes of a bucket are as folders are.
func TestSilenceOfABucket(t *testing.T) {
	options := inBucket(t, map[string]string{
		"docs/a.md": "A", "docs/caf\u00e9.md": "B", "docs/cafe\u0301.md": "C", "folder/": "",
	})
	list := func(input string) (items []Item, problems []error) {
		in, err := Find([]string{input}, options)
		require.NoError(t, err)
		for item, err := range in.All(context.Background()) {
			if err != nil {
				problems = append(problems, err)
			} else {
				items = append(items, item)
			}
		}
		return items, problems
	}
	for _, input := range []string{"s3://bkt/tpyo/", "s3://bkt/doc", "s3://bkt/folder"} {
		items, problems := list(input)
		assert.Empty(t, items)
		require.Len(t, problems, 1, input)
		var none *EmptyError
		require.ErrorAs(t, problems[0], &none)
		assert.Equal(t, input, none.Input)
	}

	items, problems := list("s3://bkt/docs/")
	require.Len(t, items, 2)
	assert.Equal(t, "s3://bkt/docs/", items[0].Input)
	require.Len(t, problems, 1)
	var collision *CollisionError
	require.ErrorAs(t, problems[0], &collision)
	assert.Equal(t, "s3://bkt/docs/caf\u00e9.md", collision.ID)
	assert.Contains(t, collision.Alias, "s3://bkt/docs/./caf%")

	items, problems = list("s3://bkt/docs/a.md")
	assert.Empty(t, problems)
	require.Len(t, items, 1)
	assert.Empty(t, items[0].Input, "named itself")
}

func TestObjectThatVanishesIsGone(t *testing.T) {
	options := inBucket(t, map[string]string{"docs/a.md": "A"})
	options.Prefix = "p"
	for place, want := range map[string]bool{"s3://bkt/docs/b.md": true, "s3://bkt/docs/a.md": false} {
		for item, err := range Again(func(yield func(Place, error) bool) { yield(Place{place, place}, nil) }, options) {
			require.NoError(t, err)
			content, err := item.Open(context.Background())
			assert.Equal(t, want, errors.Is(err, fs.ErrNotExist), "%s: %v", place, err)
			if err == nil {
				require.NoError(t, content.Close())
			}
		}
	}
}
