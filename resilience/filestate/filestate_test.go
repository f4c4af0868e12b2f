package filestate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/fleettest"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/filestate"
	"github.com/penstock-go/penstock/resilience/storetest"
)

func open(t *testing.T, path string, config filestate.Config) *filestate.Store {
	t.Helper()
	store, err := filestate.New(path, config)
	require.NoError(t, err)
	return store
}

func newPath(t *testing.T) string { return filepath.Join(t.TempDir(), "breakers.json") }

// put writes a value in place of what is there.
func put(t *testing.T, store resilience.Store, key, value string, keep time.Duration) resilience.Record {
	t.Helper()
	there, err := store.Load(t.Context(), key)
	require.NoError(t, err)
	r, err := store.Swap(t.Context(), key, there.Version, []byte(value), keep)
	require.NoError(t, err)
	return r
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Opened {
		path := newPath(t)
		config := filestate.Config{Poll: 10 * time.Millisecond}
		return storetest.Opened{
			Stores: []resilience.Store{open(t, path, config), open(t, path, config)},
			Keep:   time.Millisecond,
			Flush:  func(t *testing.T) { require.NoError(t, os.Remove(path)) },
		}
	})
}

// A link is followed, so that what it names is written.
func TestFileBehindALink(t *testing.T) {
	target, link := newPath(t), newPath(t)
	require.NoError(t, os.WriteFile(target, nil, 0o600))
	require.NoError(t, os.Symlink(target, link))
	store := open(t, link, filestate.Config{})
	put(t, store, "llm", "x", 0)
	found, err := os.Lstat(link)
	require.NoError(t, err)
	assert.Equal(t, os.ModeSymlink, found.Mode().Type())
	text, err := os.ReadFile(target)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"llm"`)
}

// A person can read the file, and it is nobody else's to read.
func TestFileIsReadable(t *testing.T) {
	path := newPath(t)
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	store := open(t, path, filestate.Config{Now: func() time.Time { return at }})
	put(t, store, "llm https://llm.example.com/v1 100%\n", `{"state":"open"}`, time.Minute)
	put(t, store, "raw", "\xff", 0)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"about": "circuit breakers shared by the processes of this machine; instants in nanoseconds since 1970",
		"format": 1,
		"version": 1777636800000001,
		"records": {
			"llm https://llm.example.com/v1 100%25%0A": {
				"version": 1777636800000000, "value": {"state": "open"}, "until": "2026-05-01T12:01:00Z"
			},
			"raw": {"version": 1777636800000001, "bytes": "/w=="}
		}
	}`, string(text))
	assert.Equal(t, path, store.String())
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
}

func TestVersionsGrowWhenTheClockStepsBack(t *testing.T) {
	now := time.Now()
	store := open(t, newPath(t), filestate.Config{Now: func() time.Time { return now }})
	first := put(t, store, "a", "1", 0)
	put(t, store, "a", "", 0)
	now = now.Add(-time.Hour)
	second := put(t, store, "a", "2", 0)
	assert.Greater(t, second.Version, first.Version)
	now = time.Unix(-1, 0)
	assert.Greater(t, put(t, store, "b", "2", 0).Version, second.Version)
}

func TestPassedRecordsAreDroppedAtTheNextWrite(t *testing.T) {
	path, now := newPath(t), time.Now()
	store := open(t, path, filestate.Config{Now: func() time.Time { return now }})
	put(t, store, "short", "1", time.Minute)
	put(t, store, "long", "1", 0)
	now = now.Add(time.Minute)
	assert.Empty(t, fleettest.Value(t, store, "short"))
	put(t, store, "other", "1", 0)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "short")
	assert.Equal(t, "1", fleettest.Value(t, store, "long"))
}

func TestBrokenFileIsEmptyAndSetAside(t *testing.T) {
	whole := newPath(t)
	put(t, open(t, whole, filestate.Config{}), "a", "1", 0)
	text, err := os.ReadFile(whole)
	require.NoError(t, err)
	contents := map[string]string{
		"empty":        "",
		"zeros":        string(make([]byte, 4096)),
		"foreign":      "[breakers]\n",
		"other JSON":   `{"name": "penstock"}`,
		"an array":     `[]`,
		"null":         `null`,
		"newer":        `{"format": 2, "version": 1}`,
		"two files":    string(text) + string(text),
		"no version":   `{"format": 1, "version": 3, "records": {"a": {"text": "1"}}}`,
		"no value":     `{"format": 1, "version": 3, "records": {"a": {"version": 1}}}`,
		"bad key":      `{"format": 1, "version": 3, "records": {"%x": {"version": 1, "text": "1"}}}`,
		"from ahead":   `{"format": 1, "version": 3, "records": {"a": {"version": 4, "text": "1"}}}`,
		"wrong number": `{"format": 1, "version": -3}`,
	}
	for _, cut := range []int{1, len(text) / 2, len(text) - 3} {
		contents[fmt.Sprint("cut at ", cut)] = string(text[:cut])
	}
	for name, content := range contents {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			path := newPath(t)
			require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
			store := open(t, path, filestate.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
			assert.Empty(t, fleettest.Value(t, store, "a"))
			assert.Empty(t, fleettest.Value(t, store, "a"))
			assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
			assert.Contains(t, log.String(), path+".broken")

			put(t, store, "a", "new", 0)
			assert.Equal(t, "new", fleettest.Value(t, store, "a"))
			aside, err := os.ReadFile(path + ".broken")
			require.NoError(t, err)
			assert.Equal(t, content, string(aside))

			require.NoError(t, os.WriteFile(path, []byte(content), 0o644)) // broken again
			assert.Empty(t, fleettest.Value(t, store, "a"))
			assert.Equal(t, 2, strings.Count(log.String(), "level=WARN"))
		})
	}
}

func TestHugeFileIsForeign(t *testing.T) {
	path := newPath(t)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, 1<<40)) // has holes
	store := open(t, path, filestate.Config{Log: slog.New(slog.DiscardHandler)})
	assert.Empty(t, fleettest.Value(t, store, "a"))
	put(t, store, "a", "1", 0)
	assert.Equal(t, "1", fleettest.Value(t, store, "a"))
}

func TestWrongPlaces(t *testing.T) {
	folder := t.TempDir()
	for name, path := range map[string]string{
		"no folder": filepath.Join(folder, "missing", "breakers.json"),
		"a folder":  folder,
		"nothing":   "",
		"no file":   os.DevNull,
	} {
		_, err := filestate.New(path, filestate.Config{})
		fault, ok := errors.AsType[*filestate.FileError](err)
		require.True(t, ok, name)
		assert.Equal(t, "open", fault.Op)
		assert.Contains(t, err.Error(), fault.Path, name)
	}
	_, err := filestate.New(filepath.Join(folder, "missing", "breakers.json"), filestate.Config{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "make its folder")
}

// The folder can go while the store is open.
func TestFolderThatIsGone(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.Mkdir(folder, 0o755))
	store := open(t, filepath.Join(folder, "breakers.json"), filestate.Config{})
	require.NoError(t, os.Remove(folder))
	assert.Empty(t, fleettest.Value(t, store, "a"), "there is no record in it")
	_, err := store.Swap(t.Context(), "a", 0, []byte("1"), 0)
	fault, ok := errors.AsType[*filestate.FileError](err)
	require.True(t, ok)
	assert.Equal(t, "lock", fault.Op)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// disk is a small file system of its own.
func disk(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	mount := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder)
	if mount.Run() != nil {
		t.Skip("a file system of its own needs root on Linux")
	}
	t.Cleanup(func() { assert.NoError(t, exec.Command("umount", "-l", folder).Run()) })
	return folder
}

func TestReadOnlyFolder(t *testing.T) {
	folder := disk(t)
	path := filepath.Join(folder, "breakers.json")
	put(t, open(t, path, filestate.Config{}), "a", "1", 0)
	require.NoError(t, exec.CommandContext(t.Context(), "mount", "-o", "remount,ro", folder).Run())

	store := open(t, path, filestate.Config{})
	there, err := store.Load(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, "1", string(there.Value))
	_, err = store.Swap(t.Context(), "a", there.Version, []byte("2"), 0)
	require.ErrorIs(t, err, syscall.EROFS)
	assert.ErrorContains(t, err, "mounted read-only")
}

func TestFullDisk(t *testing.T) {
	folder := disk(t)
	path := filepath.Join(folder, "breakers.json")
	store := open(t, path, filestate.Config{})
	there := put(t, store, "a", "1", 0)
	_, err := store.Swap(t.Context(), "b", 0, bytes.Repeat([]byte("x"), 128<<10), 0)
	fault, ok := errors.AsType[*filestate.FileError](err)
	require.True(t, ok)
	assert.Equal(t, filestate.FileError{Op: "write", Path: path, Err: fault.Err}, *fault)
	require.ErrorIs(t, err, syscall.ENOSPC)
	assert.ErrorContains(t, err, "free some space")

	assert.Equal(t, "1", fleettest.Value(t, store, "a"), "the old file is whole")
	_, err = store.Swap(t.Context(), "a", there.Version, []byte("2"), 0)
	require.NoError(t, err, "what could not be written does not fill the disk")
}

// A writer that is stopped with the lock delays others no longer than their
// contexts allow.
func TestWaitingForTheLockEnds(t *testing.T) {
	path := newPath(t)
	store := open(t, path, filestate.Config{})
	there := put(t, store, "a", "1", 0)
	lock := flock.New(path + ".lock")
	require.NoError(t, lock.Lock())
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := store.Load(ctx, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = store.Swap(ctx, "a", there.Version, []byte("2"), 0)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, store.Watch(ctx, func() {}, nil))
	})
	require.NoError(t, lock.Unlock())
	assert.Equal(t, "1", fleettest.Value(t, store, "a"))
}

// A turn that is waited for in the process ends with the context too.
func TestWaitingForTheTurnEnds(t *testing.T) {
	path := newPath(t)
	store := open(t, path, filestate.Config{})
	lock := flock.New(path + ".lock")
	require.NoError(t, lock.Lock())
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error)
	for range 2 { // one waits for the lock, one for the turn
		go func() {
			_, err := store.Swap(ctx, "a", 0, []byte("1"), 0)
			results <- err
		}()
	}
	cancel()
	require.ErrorIs(t, <-results, context.Canceled)
	require.ErrorIs(t, <-results, context.Canceled)
	require.NoError(t, lock.Unlock())
	put(t, store, "a", "1", 0)
}

func TestWatchTellsChangesWithinAPoll(t *testing.T) {
	path := newPath(t)
	synctest.Test(t, func(t *testing.T) {
		store := open(t, path, filestate.Config{Log: slog.New(slog.DiscardHandler)})
		put(t, store, "short", "1", time.Minute)
		var told []string
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- store.Watch(ctx, func() { told = append(told, "present") },
				func(key string, r resilience.Record) { told = append(told, key+"="+string(r.Value)) })
		}()
		next := func() []string {
			time.Sleep(time.Second)
			synctest.Wait()
			defer func() { told = nil }()
			return told
		}
		assert.Equal(t, []string{"short=1", "present"}, next())
		put(t, store, "a", "1", 0)
		put(t, store, "a", "2", 0)
		assert.Equal(t, []string{"a=2"}, next())
		assert.Empty(t, next())
		put(t, store, "a", "", 0)
		assert.Equal(t, []string{"a="}, next())

		time.Sleep(time.Minute)
		put(t, store, "b", "1", 0)
		assert.Equal(t, []string{"b=1"}, next(), "short was forgotten, not removed")

		require.NoError(t, os.WriteFile(path, []byte("broken"), 0o600))
		assert.Empty(t, next(), "it was lost, not removed")
		require.NoError(t, os.Remove(path))
		assert.Empty(t, next())
		put(t, store, "b", "2", 0)
		assert.Equal(t, []string{"b=2"}, next())

		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Mkdir(path, 0o700))
		err := <-ended
		_, ok := errors.AsType[*filestate.FileError](err)
		assert.True(t, ok, err)
		cancel()
	})
}
