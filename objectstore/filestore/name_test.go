package filestore

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestObjectPath(t *testing.T) {
	for _, row := range []struct{ key, want string }{
		{"readme.md", "readme.md@"},
		{"README.md", "^r^e^a^d^m^e.md@"},
		{"docs/a b.txt", "docs/a%20b.txt@"},
		{"..", "%2e%2e@"},
		{"../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd@"},
		{"./x", "%2e/x@"},
		{"a.", "a%2e@"},
		{"/", "%/%@"},
		{"a//b", "a/%/b@"},
		{"a/", "a/%@"},
		{"a@/b+", "a%40/b%2b@"},
		{`a\b:c*?"<>|`, "a%5cb%3ac%2a%3f%22%3c%3e%7c@"},
		{"é", "%c3%a9@"},
		{"con", "%63on@"},
		{"Lpt1.txt", "%4cpt1.txt@"},
		{"console", "console@"},
	} {
		assert.Equal(t, row.want, objectPath(row.key), "key %q", row.key)
	}
}

func TestLongSegmentsAreCutIntoPieces(t *testing.T) {
	for _, n := range []int{190, 191, 192, 193, 255, 384, 1024} {
		p := objectPath(strings.Repeat("x", n))
		for name := range strings.SplitSeq(p, "/") {
			assert.LessOrEqual(t, len(name), 200, "segment of %d bytes", n)
		}
	}
	assert.Equal(t, strings.Repeat("x", 192)+"+/%@", objectPath(strings.Repeat("x", 192)))
}

// decodePath is the way a listing reads a path.
func decodePath(t testing.TB, p string) string {
	prefix := ""
	parts := strings.Split(p, "/")
	for i, name := range parts {
		n, ok := decode(prefix, name, i < len(parts)-1)
		require.True(t, ok, "name %q of %q", name, p)
		prefix = n.prefix
	}
	return prefix
}

func FuzzObjectPath(f *testing.F) {
	for _, key := range []string{"a", "..", "a//b/", "É/é", "con.txt", strings.Repeat("é", 200), "a\xffb"} {
		f.Add(key, "b")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, key := range []string{a, b} {
			p := objectPath(key)
			require.Equal(t, key, decodePath(t, p))
			require.Equal(t, strings.ToLower(p), p, "a path depends on case")
			require.True(t, filepath.IsLocal(p), "path %q leaves its folder", p)
			require.Equal(t, path.Clean(p), p)
		}
		if a != b {
			require.NotEqual(t, objectPath(a), objectPath(b))
		}
	})
}

func TestForeignNamesAreNotObjects(t *testing.T) {
	for _, row := range []struct {
		name string
		dir  bool
	}{
		{".DS_Store", false},
		{"readme.md", false},
		{"README@", false},
		{"a%4@", false},
		{"a%4G@", false},
		{"a^@", false},
		{"A", true},
		{"a b", true},
	} {
		_, ok := decode("", row.name, row.dir)
		assert.False(t, ok, "name %q", row.name)
	}
}

func TestTrailerOfForeignFilesIsRefused(t *testing.T) {
	good, err := record{Key: "k", Size: 3}.trailer()
	require.NoError(t, err)
	for name, content := range map[string]string{
		"empty": "", "short": "abc", "no magic": strings.Repeat("x", 100),
		"length beyond the file": "\xff\xff\xff\xff\xff\xff\xff\xff" + magic,
		"not JSON":               "abcd\x00\x00\x00\x00\x00\x00\x00\x04" + magic,
		"size does not fit":      "abcd" + string(good),
	} {
		file := filepath.Join(t.TempDir(), "f")
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		f, err := os.Open(file)
		require.NoError(t, err)
		_, err = readRecord(f)
		assert.ErrorIs(t, err, errForeign, name)
		require.NoError(t, f.Close())
	}
}

func TestParseRange(t *testing.T) {
	for header, want := range map[string]span{
		"bytes=0-0":   {0, 1, true},
		"bytes=2-4":   {2, 3, true},
		"bytes=9-":    {9, 1, true},
		"bytes=5-100": {5, 5, true},
		"bytes=-3":    {7, 3, true},
		"bytes=-30":   {0, 10, true},
	} {
		b, err := parseRange("GetObject", header, 10)
		require.NoError(t, err, header)
		assert.Equal(t, want, b, header)
	}
	for _, header := range []string{"", "bytes=4-2", "bytes=0-1,3-4", "bytes=x-1", "items=0-1"} {
		b, err := parseRange("GetObject", header, 10)
		require.NoError(t, err, header)
		assert.Equal(t, span{0, 10, false}, b, "%s: it asks for the whole object", header)
	}
	for _, header := range []string{"bytes=10-", "bytes=-0"} {
		_, err := parseRange("GetObject", header, 10)
		code, _ := apiError(err)
		assert.Equal(t, "InvalidRange", code, header)
	}
}

func TestSiblingsSortAsKeysDo(t *testing.T) {
	keys := []string{
		"a", "a!", "a/", "a/b", "a0", "A", "é", strings.Repeat("x", 192), strings.Repeat("x", 192) + "/y",
		strings.Repeat("x", 192) + "!", strings.Repeat("x", 300),
	}
	slices.Sort(keys)
	s, bucket := openTemp(t)
	for _, k := range keys {
		put(t, s, bucket, k, k)
	}
	assert.Equal(t, keys, listAll(t, s, bucket, 1))
}
