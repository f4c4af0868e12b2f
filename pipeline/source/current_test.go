package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/bucket"
)

// open opens the document that an input names, and closes it: what it says
// about its source holds longer.
func open(t *testing.T, options Options, input string) func() (bool, error) {
	t.Helper()
	in, err := Find([]string{input}, options)
	require.NoError(t, err)
	var content Content
	for item, err := range in.All(t.Context()) {
		require.NoError(t, err)
		require.Nil(t, content)
		content, err = item.Open(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, content.Close())
	asks, ok := content.(interface {
		Current(ctx context.Context) (bool, error)
	})
	require.True(t, ok)
	return func() (bool, error) { return asks.Current(t.Context()) }
}

func requireCurrent(t *testing.T, want bool, current func() (bool, error)) {
	t.Helper()
	is, err := current()
	require.NoError(t, err)
	require.Equal(t, want, is)
}

func TestCurrentFile(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, file string){
		"appended": func(t *testing.T, file string) {
			require.NoError(t, os.WriteFile(file, []byte("first+"), 0o644))
		},
		"truncated": func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, 2)) },
		"touched": func(t *testing.T, file string) {
			require.NoError(t, os.Chtimes(file, time.Time{}, time.Unix(1e9, 0)))
		},
		"replaced by one of the same size and time": func(t *testing.T, file string) {
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file+".new", []byte("other"), 0o644))
			require.NoError(t, os.Chtimes(file+".new", time.Time{}, info.ModTime()))
			require.NoError(t, os.Rename(file+".new", file))
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "a.txt")
			require.NoError(t, os.WriteFile(file, []byte("first"), 0o644))
			current := open(t, Options{}, file)
			requireCurrent(t, true, current)
			change(t, file)
			requireCurrent(t, false, current)
			require.NoError(t, os.Remove(file))
			_, err := current()
			require.ErrorIs(t, err, fs.ErrNotExist)
		})
	}
}

// A folder that cannot be entered any more says nothing about a file in it.
func TestCurrentFileBehindAnotherKindOfEntry(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "docs")
	require.NoError(t, os.Mkdir(folder, 0o755))
	file := filepath.Join(folder, "a.txt")
	require.NoError(t, os.WriteFile(file, []byte("first"), 0o644))
	current := open(t, Options{}, file)
	require.NoError(t, os.RemoveAll(folder))
	require.NoError(t, os.WriteFile(folder, nil, 0o644))
	_, err := current()
	require.Error(t, err)
	require.NotErrorIs(t, err, fs.ErrNotExist)
}

// unreachable is a store that stops answering.
type unreachable struct {
	*bucket.Store

	down atomic.Bool
}

var errDown = errors.New("connection refused")

func (u *unreachable) HeadObject(
	ctx context.Context, in *s3.HeadObjectInput, opts ...func(*s3.Options),
) (*s3.HeadObjectOutput, error) {
	if u.down.Load() {
		return nil, errDown
	}
	return u.Store.HeadObject(ctx, in, opts...)
}

func TestCurrentObject(t *testing.T) {
	store := &unreachable{Store: bucket.Open(t, "bkt")}
	bucket.Put(t, store, "bkt", "docs/a.txt", "first")
	options := Options{
		Objects:     func(context.Context) (ObjectReader, error) { return store, nil },
		ObjectGuard: bucket.Guard(t),
	}
	current := open(t, options, "s3://bkt/docs/a.txt")
	requireCurrent(t, true, current)
	bucket.Put(t, store, "bkt", "docs/a.txt", "first")
	requireCurrent(t, true, current)
	bucket.Put(t, store, "bkt", "docs/a.txt", "other")
	requireCurrent(t, false, current)
	store.down.Store(true)
	_, err := current()
	require.ErrorIs(t, err, errDown)
	require.NotErrorIs(t, err, fs.ErrNotExist)
	store.down.Store(false)
	gone := &s3.DeleteObjectInput{Bucket: aws.String("bkt"), Key: aws.String("docs/a.txt")}
	_, err = store.DeleteObject(t.Context(), gone)
	require.NoError(t, err)
	_, err = current()
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// An address is asked by its headers. A server that refuses that, or answers
// without a version, leaves nothing known.
func TestCurrentPage(t *testing.T) {
	for _, row := range []struct {
		name        string
		now         func(http.ResponseWriter, *http.Request) // how a HEAD is answered
		current     bool
		fails, gone bool // nothing is known; nothing is there
	}{
		{name: "same", current: true, now: answer(http.StatusOK, `"1"`, "5")},
		{name: "same, of no length", current: true, now: answer(http.StatusOK, `"1"`, "")},
		{name: "changed", now: answer(http.StatusOK, `"2"`, "5")},
		{name: "changed, of no length", now: answer(http.StatusOK, `"2"`, "")},
		{name: "without a version", current: true, now: answer(http.StatusOK, "", "5")},
		{name: "not found", now: answer(http.StatusNotFound, "", ""), fails: true, gone: true},
		{name: "gone", now: answer(http.StatusGone, "", ""), fails: true, gone: true},
		{name: "no HEAD", now: answer(http.StatusMethodNotAllowed, "", ""), fails: true},
		{name: "forbidden", now: answer(http.StatusForbidden, "", ""), fails: true},
		{name: "too many", now: answer(http.StatusTooManyRequests, "", ""), fails: true},
		{name: "error", now: answer(http.StatusBadGateway, "", ""), fails: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodHead {
					row.now(w, r)
					return
				}
				w.Header().Set("ETag", `"1"`)
				fmt.Fprint(w, "first")
			}))
			current := open(t, Options{AllowPrivate: true}, server.URL+"/a.txt")
			is, err := current()
			assert.Equal(t, row.fails, err != nil, "%v", err)
			assert.Equal(t, row.current, is && err == nil)
			assert.Equal(t, row.gone, errors.Is(err, fs.ErrNotExist), "%v", err)
			server.Close()
			_, err = current()
			var away *AwayError
			require.ErrorAs(t, err, &away)
		})
	}
}

func answer(status int, etag, length string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		if etag != "" {
			w.Header().Set("ETag", etag)
		}
		if length != "" {
			w.Header().Set("Content-Length", length)
		}
		w.WriteHeader(status)
	}
}
