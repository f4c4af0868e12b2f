package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/bucket"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// found lists inputs and reads each document.
func found(t *testing.T, options Options, inputs ...string) (content, places map[string]string, errs []error) {
	t.Helper()
	in, err := Find(inputs, options)
	require.NoError(t, err)
	return readAll(t, in.All(t.Context()))
}

func readAll(t *testing.T, documents iter.Seq2[Item, error]) (content, places map[string]string, errs []error) {
	t.Helper()
	content, places = map[string]string{}, map[string]string{}
	for item, err := range documents {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		places[item.ID] = item.Location
		c, err := item.Open(t.Context())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		text, err := io.ReadAll(io.NewSectionReader(c, 0, c.Size()))
		require.NoError(t, err)
		require.NoError(t, c.Close())
		content[item.ID] = string(text)
	}
	return content, places, errs
}

func TestStdin(t *testing.T) {
	content, places, errs := found(t, Options{Stdin: strings.NewReader("words"), StdinName: "w.txt", Prefix: "p"}, "-")
	assert.Empty(t, errs)
	assert.Equal(t, map[string]string{"p/w.txt": "words"}, content)
	assert.Equal(t, map[string]string{"p/w.txt": ""}, places)
	_, _, errs = found(t, Options{}, "-")
	assert.Equal(t, []error{errNoStdin}, errs)
}

func TestListNamesDocumentsAsWritten(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"a/docs/x.md", "b/docs/x.md", "c/y.md", "#odd name.md"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(name), 0o644))
	}
	require.NoError(t, os.WriteFile("list",
		[]byte("a/docs/x.md\r\n\n./b/docs/x.md\n  \nc\n#odd name.md\na/docs/x.md\n"), 0o644))
	content, _, errs := found(t, Options{}, "@list")
	assert.Empty(t, errs)
	assert.Equal(t, map[string]string{
		"a/docs/x.md": "a/docs/x.md", "b/docs/x.md": "b/docs/x.md", "c/y.md": "c/y.md", "#odd name.md": "#odd name.md",
	}, content)
	content, _, _ = found(t, Options{Stdin: strings.NewReader("c/y.md")}, "@-")
	assert.Len(t, content, 1)
	_, err := Find([]string{"@nowhere"}, Options{})
	var listing *Error
	require.ErrorAs(t, err, &listing)
	_, err = Find([]string{"@-"}, Options{})
	require.ErrorIs(t, err, errNoStdin)
}

// inBucket has objects in the bucket bkt.
func inBucket(t *testing.T, objects map[string]string) Options {
	t.Helper()
	store := bucket.Open(t, "bkt")
	for key, content := range objects {
		bucket.Put(t, store, "bkt", key, content)
	}
	return Options{Objects: func(context.Context) (ObjectReader, error) { return store, nil }}
}

func TestBucket(t *testing.T) {
	options := inBucket(t, map[string]string{
		"docs/a.md": "A", "docs/sub/b.md": "B", "docs-old/c.md": "C", "docs": "D", "originals/x/y": "E",
	})
	options.ExcludeObjects = []string{"bkt/originals/"}
	for _, row := range []struct {
		input string
		want  []string
	}{
		{"s3://bkt/docs", []string{"s3://bkt/docs", "s3://bkt/docs/a.md", "s3://bkt/docs/sub/b.md"}},
		{"s3://bkt/docs/", []string{"s3://bkt/docs/a.md", "s3://bkt/docs/sub/b.md"}},
		{"s3://bkt/docs/a.md", []string{"s3://bkt/docs/a.md"}},
		{"s3://bkt", []string{
			"s3://bkt/docs", "s3://bkt/docs-old/c.md",
			"s3://bkt/docs/a.md", "s3://bkt/docs/sub/b.md",
		}},
	} {
		_, places, errs := found(t, options, row.input)
		assert.Empty(t, errs, row.input)
		var ids []string
		for id, place := range places {
			assert.Equal(t, id, place)
			ids = append(ids, id)
		}
		assert.ElementsMatch(t, row.want, ids, row.input)
	}
	content, _, errs := found(t, options, "s3://bkt/docs/", "s3://bkt/docs/a.md")
	assert.Empty(t, errs)
	assert.Equal(t, map[string]string{"s3://bkt/docs/a.md": "A", "s3://bkt/docs/sub/b.md": "B"}, content, "each once")

	in, err := Find([]string{"s3://bkt/docs/"}, options)
	require.NoError(t, err)
	for item, err := range in.All(t.Context()) {
		require.NoError(t, err)
		assert.Equal(t, "s3", item.Upstream)
		c, err := item.Open(t.Context())
		require.NoError(t, err)
		assert.Equal(t, item.Version(t.Context()), c.(interface{ Version() string }).Version())
		require.NoError(t, c.Close())
	}
}

func TestBucketThatIsNotThere(t *testing.T) {
	_, _, errs := found(t, inBucket(t, nil), "s3://other/docs")
	require.Len(t, errs, 1)
	var away *stop.CallError
	require.ErrorAs(t, errs[0], &away)
	_, _, errs = found(t, Options{}, "s3://bkt/docs")
	require.Len(t, errs, 1)
	assert.ErrorContains(t, errs[0], "no object store is configured")
	_, err := Find([]string{"s3://"}, Options{})
	assert.Error(t, err)
}

// serve answers on this machine; paths name what it does.
func serve(t *testing.T) (base string, reads *atomic.Int64) {
	t.Helper()
	reads = new(atomic.Int64)
	mux := http.NewServeMux()
	mux.HandleFunc("/page", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			reads.Add(1)
		}
		user, password, _ := r.BasicAuth()
		w.Header().Set("ETag", `"v1"`)
		fmt.Fprintf(w, "page %s %s %s", user, password, r.URL.Query().Get("sig"))
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 6<<20)) })
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		for range 7 {
			_, _ = w.Write(make([]byte, 1<<20))
			_ = http.NewResponseController(w).Flush()
		}
	})
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("half"))
	})
	mux.HandleFunc("/silent", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("half"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/away",
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	mux.HandleFunc("/moved",
		func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/page", http.StatusFound) })
	mux.HandleFunc("/round",
		func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round", http.StatusFound) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL, reads
}

func TestAddress(t *testing.T) {
	base, reads := serve(t)
	host := strings.TrimPrefix(base, "http://")
	options := Options{AllowPrivate: true, MaxDownload: 5 << 20, Timeout: time.Second}
	content, places, errs := found(t, options, "http://me:pass@"+host+"/page?b=2&sig=s3cret#part", base+"/moved")
	assert.Empty(t, errs)
	id := base + "/page?b=2"
	assert.Equal(t, "page me pass s3cret", content[id])
	assert.Equal(t, id, places[id], "no secret is kept")
	assert.Equal(t, "page   ", content[base+"/moved"])

	in, err := Find([]string{base + "/page"}, options)
	require.NoError(t, err)
	before := reads.Load()
	for item, err := range in.All(t.Context()) {
		require.NoError(t, err)
		c, err := item.Open(t.Context())
		require.NoError(t, err)
		assert.Equal(t, c.(interface{ Version() string }).Version(), item.Version(t.Context()))
	}
	assert.Equal(t, before+1, reads.Load(), "the version costs no download")
}

func TestAddressFaults(t *testing.T) {
	base, _ := serve(t)
	options := Options{AllowPrivate: true, MaxDownload: 5 << 20, Timeout: 300 * time.Millisecond}
	for _, row := range []struct {
		path string
		away bool
		text string
	}{
		{"/nowhere", false, "404 Not Found"},
		{"/away", true, "503"},
		{"/large", false, "larger than 5242880 bytes"},
		{"/endless", false, "larger than 5242880 bytes"},
		{"/broken", true, "interrupted"},
		{"/silent", true, "interrupted"},
		{"/round", true, "redirects"},
	} {
		_, _, errs := found(t, options, base+row.path+"?token=s3cret")
		require.Len(t, errs, 1, row.path)
		var away *AwayError
		assert.Equal(t, row.away, errors.As(errs[0], &away), "%s: %v", row.path, errs[0])
		assert.ErrorContains(t, errs[0], row.text)
		assert.NotContains(t, errs[0].Error(), "s3cret")
	}
	_, err := Find([]string{"http://me:s3cret@[::bad/?token=s3cret"}, Options{})
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "s3cret")
}

// Neither a name nor a redirect leads to an address that is not public.
func TestPrivateAddressIsRefused(t *testing.T) {
	base, reads := serve(t)
	port := base[strings.LastIndex(base, ":"):]
	for _, address := range []string{
		base + "/page", "http://localhost" + port + "/page",
		"http://[::ffff:127.0.0.1]" + port + "/page",
	} {
		_, _, errs := found(t, Options{}, address)
		require.Len(t, errs, 1, address)
		var refused *PrivateAddressError
		require.ErrorAs(t, errs[0], &refused, address)
	}
	assert.Zero(t, reads.Load())

	for address, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700:4700::1111": true,
		"10.0.0.1": false, "172.16.0.1": false, "192.168.1.1": false, "127.0.0.53": false,
		"0.0.0.0": false, "0.1.2.3": false,
		"169.254.169.254": false, "100.64.0.1": false, "224.0.0.1": false, "255.255.255.255": false, "192.0.0.8": false,
		"::1": false, "::": false, "fe80::1": false, "fd00:ec2::254": false,
		"::ffff:10.0.0.1": false, "64:ff9b::a00:1": false,
		"2002:a00:1::": false, "2001:db8::1": false, "ff02::1": false, "fe80::1%eth0": false,
	} {
		assert.Equal(t, want, public(netip.MustParseAddr(address)), address)
	}
}

func TestPublicName(t *testing.T) {
	for input, want := range map[string]string{
		"HTTP://u:p@Host.Example/A?b=1&a=2#f":                    "http://host.example/A?b=1&a=2",
		"https://h/x?X-Amz-Signature=s&X-Amz-Date=d&versionId=3": "https://h/x?versionId=3",
		"https://h/x?Expires=1&Signature=s&Key-Pair-Id=k":        "https://h/x",
		"https://h/x?expires=1&policy=2":                         "https://h/x?expires=1&policy=2",
		"https://h/x?sv=1&se=2&sig=3&comp=list":                  "https://h/x?comp=list",
		"https://h/x?st=oil&se=1":                                "https://h/x?st=oil&se=1",
		"https://h/x?access_token=t&page=2":                      "https://h/x?page=2",
		"https://h/x?%61ccess_token=t":                           "https://h/x",
	} {
		address, err := url.Parse(input)
		require.NoError(t, err)
		assert.Equal(t, want, publicName(address), input)
	}
}

func TestAgain(t *testing.T) {
	base, _ := serve(t)
	options := inBucket(t, map[string]string{"docs/a b.md": "A"})
	options.AllowPrivate = true
	file := filepath.Join(t.TempDir(), "x.md")
	require.NoError(t, os.WriteFile(file, []byte("X"), 0o644))
	places := func(yield func(Place, error) bool) {
		for _, p := range []Place{
			{"docs/x.md", file},
			{"p/s3://bkt/docs/a b.md", "s3://bkt/docs/a b.md"},
			{"page", base + "/page"},
			{ID: "stdin"},
		} {
			if !yield(p, nil) {
				return
			}
		}
		yield(Place{}, io.ErrUnexpectedEOF)
	}
	content, again, errs := readAll(t, Again(places, options))
	assert.Equal(t, map[string]string{"docs/x.md": "X", "p/s3://bkt/docs/a b.md": "A", "page": "page   "}, content)
	assert.Equal(t, file, again["docs/x.md"])
	require.Len(t, errs, 2)
	require.ErrorIs(t, errs[0], errOnce)
	assert.NotContains(t, errs[0].Error(), "check that it exists")
	require.ErrorIs(t, errs[1], io.ErrUnexpectedEOF)
}

// The largest limit made an empty document of any stream.
func TestLargestLimitIsNoLimit(t *testing.T) {
	for _, limit := range []int64{math.MaxInt64, math.MaxInt64 - 1} {
		for _, size := range []int{1, spoolBytes, 5 << 20} {
			c, err := spool(strings.NewReader(strings.Repeat("x", size)), limit)
			require.NoError(t, err)
			assert.EqualValues(t, size, c.Size(), "at most %d", limit)
			require.NoError(t, c.Close())
		}
	}
}

// A spool file has no name, so nothing is left of it.
func TestSpoolLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	c, err := spool(strings.NewReader(strings.Repeat("x", 5<<20)), 0)
	require.NoError(t, err)
	assert.Equal(t, int64(5<<20), c.Size())
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Empty(t, entries)
	require.NoError(t, c.Close())
	_, err = spool(strings.NewReader(strings.Repeat("x", 100)), 99)
	var large *TooLargeError
	require.ErrorAs(t, err, &large)
	t.Setenv("TMPDIR", filepath.Join(folder, "nowhere"))
	_, err = spool(strings.NewReader(strings.Repeat("x", 5<<20)), 0)
	var disk *diskError
	require.ErrorAs(t, err, &disk)
}
