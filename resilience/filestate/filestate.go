package filestate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/penstock-go/penstock/resilience"
)

const (
	windows = runtime.GOOS == "windows"

	// retryLock is how often a lock that another process holds is tried.
	retryLock = 5 * time.Millisecond
	// largest is the size of the largest file that is read.
	largest = 64 << 20
)

// Config are the options of a store. The zero value is the defaults.
type Config struct {
	// Log is told once of each content of the file that cannot be read;
	// slog.Default() by default.
	Log *slog.Logger
	// Poll is how often a watch reads the file, by default each second.
	Poll time.Duration
	// Now is the clock of the machine, time.Now by default.
	Now func() time.Time
}

// Store is a resilience.Store in one file. It is safe for concurrent use, by
// several processes too, and holds nothing open between calls.
type Store struct {
	path   string
	config Config
	turn   chan struct{} // of the writers in this process

	mu     sync.Mutex
	warned string // the problem and size of the broken file that was logged last
}

// New returns the store in the file at path, which need not exist. Its folder
// must. A link is followed now. It reads and writes nothing.
func New(path string, config Config) (*Store, error) {
	path, err := filepath.Abs(path)
	if linked, broken := filepath.EvalSymlinks(path); err == nil && broken == nil {
		path = linked
	}
	if err == nil {
		err = checkPlace(path)
	}
	if err != nil {
		return nil, &FileError{"open", path, err}
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	if config.Poll <= 0 {
		config.Poll = time.Second
	}
	return &Store{path: path, config: config, turn: make(chan struct{}, 1)}, nil
}

func checkPlace(path string) error {
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return err
	}
	for _, file := range []string{path, path + ".lock"} {
		if err := checkRegular(file); err != nil {
			return err
		}
	}
	return nil
}

// checkRegular refuses what may keep a process that opens it.
func checkRegular(path string) error {
	if found, err := os.Stat(path); err == nil && !found.Mode().IsRegular() {
		return fmt.Errorf("%s: %w", filepath.Base(path), errIrregular)
	}
	return nil
}

// String is the path of the file.
func (s *Store) String() string { return s.path }

// Load returns the record of key. Its error is the context's or a *FileError.
func (s *Store) Load(ctx context.Context, key string) (resilience.Record, error) {
	text, err := s.readShared(ctx)
	if err != nil {
		return resilience.Record{}, err
	}
	there, _ := s.decode(text)
	return there.record(key, s.config.now()), nil
}

// Swap replaces the record of key if its version is the given one. Its error is
// resilience.ErrConflict, the context's or a *FileError. Whether the value was
// written is unknown only if the Op of that is "write".
func (s *Store) Swap(
	ctx context.Context, key string, version uint64, value []byte, keep time.Duration,
) (resilience.Record, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return resilience.Record{}, err
	}
	defer unlock()
	text, err := s.read()
	if err != nil {
		return resilience.Record{}, err
	}
	state, broken := s.decode(text)
	now := s.config.now()
	if there := state.record(key, now); there.Version != version {
		return there, resilience.ErrConflict
	}
	next := state.with(key, value, keep, now)
	if err := s.write(next, broken); err != nil {
		return resilience.Record{}, err
	}
	there := next.record(key, now)
	there.Version = next.Version // that of a removal, too
	return there, nil
}

// decode reads the content of the file. A broken one is empty.
func (s *Store) decode(text []byte) (there state, broken bool) {
	if text == nil {
		return state{}, false
	}
	err := errTooLarge
	if len(text) <= largest {
		there, err = decode(text)
	}
	if err != nil {
		s.warn(len(text), err)
		return state{}, true
	}
	s.healed()
	return there, false
}

func (s *Store) warn(size int, problem error) {
	about := fmt.Sprintf("%d bytes: %v", size, problem)
	s.mu.Lock()
	known := s.warned == about
	s.warned = about
	s.mu.Unlock()
	if !known {
		s.config.Log.Warn("the state of the breakers cannot be read and counts as empty; "+
			"the next write sets it aside", "file", s.path, "aside", s.aside(), "error", problem)
	}
}

func (s *Store) healed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warned = ""
}

func (s *Store) aside() string { return s.path + ".broken" }

// lock waits for the turn to write.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	file := flock.New(s.path+".lock", flock.SetPermissions(0o600))
	if _, err := file.TryLockContext(ctx, retryLock); err != nil {
		<-s.turn
		return nil, lockError(ctx, file, err)
	}
	return func() {
		_ = file.Unlock() // ends with the file, which is closed in any case
		<-s.turn
	}, nil
}

func lockError(ctx context.Context, file *flock.Flock, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &FileError{"lock", file.Path(), err}
}

// readShared reads the file while nobody writes it. A lock that does not exist
// or may not be opened is that of a file that is not written.
func (s *Store) readShared(ctx context.Context) ([]byte, error) {
	file := flock.New(s.path+".lock", flock.SetFlag(os.O_RDONLY))
	_, err := file.TryRLockContext(ctx, retryLock)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
	case err != nil:
		return nil, lockError(ctx, file, err)
	default:
		defer file.Unlock() //nolint:errcheck // ends with the file, which is closed in any case
	}
	return s.read()
}

// read returns the content of the file, nil if it does not exist, and one byte
// too much of one that is too large.
func (s *Store) read() ([]byte, error) {
	file, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &FileError{"read", s.path, err}
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, largest+1))
	if err != nil {
		return nil, &FileError{"read", s.path, err}
	}
	return text, nil
}

// write replaces the file, and keeps one that is broken.
func (s *Store) write(next state, broken bool) error {
	temporary := s.path + ".tmp"
	text, err := next.encode()
	if err == nil {
		err = writeFile(temporary, text)
	}
	if err == nil && broken {
		err = os.Rename(s.path, s.aside())
	}
	if err == nil {
		err = os.Rename(temporary, s.path)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(s.path))
	}
	if err != nil {
		_ = remove(temporary) // the next write does that too
		return &FileError{"write", s.path, err}
	}
	return nil
}

// writeFile makes a file and brings it to the disk. One that a killed process
// has left may be anything, so it is not written into.
func writeFile(path string, text []byte) error {
	if err := remove(path); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func syncFolder(folder string) error {
	if windows { // a folder's handle cannot be synced there
		return nil
	}
	file, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
