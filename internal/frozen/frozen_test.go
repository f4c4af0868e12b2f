package frozen_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/frozen"
)

type coded int

func (c coded) Error() string { return fmt.Sprint("code ", int(c)) }
func (c coded) Code() int     { return int(c) }

func TestUnwritable(t *testing.T) {
	for err, want := range map[error]bool{
		&fs.PathError{Err: syscall.EROFS}:   true,
		&fs.PathError{Err: syscall.EACCES}:  true,
		&fs.PathError{Err: syscall.EPERM}:   true,
		&fs.PathError{Err: syscall.ENOSPC}:  false,
		fmt.Errorf("wrapped: %w", coded(8)): true,
		coded(8 | 5<<8):                     true, // SQLITE_READONLY_CANTINIT
		coded(14):                           true,
		coded(5):                            false,
		errors.New("anything else"):         false,
	} {
		assert.Equal(t, want, frozen.Unwritable(err), "%v", err)
	}
	assert.False(t, frozen.Unwritable(nil))
}

func TestFind(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "rows.db")
	_, err := frozen.Find(path)
	require.ErrorIs(t, err, fs.ErrNotExist)

	require.NoError(t, os.WriteFile(path, []byte("rows"), 0o600))
	for range 2 { // without a log, and with an empty one
		d, err := frozen.Find(path)
		require.NoError(t, err)
		assert.Equal(t, &frozen.Database{Path: path, Query: "mode=ro&immutable=1"}, d)
		require.NoError(t, d.Close())
		require.NoError(t, os.WriteFile(path+"-wal", nil, 0o600))
	}

	require.NoError(t, os.WriteFile(path+"-wal", []byte("more rows"), 0o600))
	d, err := frozen.Find(path)
	require.NoError(t, err)
	assert.Equal(t, "mode=ro", d.Query)
	for end, want := range map[string]string{"": "rows", "-wal": "more rows"} {
		got, err := os.ReadFile(d.Path + end)
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
	require.NoError(t, d.Close())
	assert.NoDirExists(t, filepath.Dir(d.Path))
	assert.FileExists(t, path)
}
