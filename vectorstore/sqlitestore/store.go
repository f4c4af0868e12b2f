package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"
	_ "modernc.org/sqlite/vec" // the vec0 table; brings the driver with it

	"github.com/penstock-go/penstock/internal/frozen"
	"github.com/penstock-go/penstock/internal/netfs"
)

const (
	applicationID = 0x70737672 // "psvr", in the file's header
	formatVersion = 1
	readers       = 4
	maxTopK       = 4096 // vec0's limit
)

// Store is a vector store in one file. Create one with [Open], and close it.
type Store struct {
	path  string
	write *sql.DB // one connection; that of read where the file cannot be written
	read  *sql.DB
	still *frozen.Database // how such a file is opened; nil for others
}

// Open opens the store in the file at path, and creates the file if it is
// missing; its folder must exist. A file that cannot be written can be read:
// writes are then PermissionDenied. Its error is an [*Error]:
// FailedPrecondition for a network volume or a file of another application or a
// newer version, and DataLoss for a file that is damaged or not a database.
func Open(path string) (*Store, error) {
	s := &Store{path: path}
	ctx := context.Background()
	if err := s.open(ctx); err != nil {
		_ = s.Close()
		return nil, s.wrap(ctx, "Open", err)
	}
	return s, nil
}

func (s *Store) open(ctx context.Context) error {
	abs, err := filepath.Abs(s.path)
	if err != nil {
		return err
	}
	if err := checkPlace(abs); err != nil {
		return err
	}
	err = s.openToWrite(ctx, abs)
	if file, statErr := os.Stat(abs); frozen.Unwritable(err) && statErr == nil && file.Mode().IsRegular() {
		return s.openToRead(ctx, abs)
	}
	return err
}

func checkPlace(abs string) error {
	dir := filepath.Dir(abs)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return faultf(codes.FailedPrecondition, "folder %s does not exist", dir)
	}
	if fs := netfs.Name(dir); fs != "" {
		return faultf(codes.FailedPrecondition,
			"the file is on a network volume (%s), where locks cannot be trusted; put it on a local disk", fs)
	}
	return nil
}

func (s *Store) openToWrite(ctx context.Context, abs string) (err error) {
	if s.write, err = connect(abs, 1, writing+"&_txlock=immediate"); err != nil {
		return err
	}
	if s.read, err = connect(abs, readers, writing+"&_pragma=query_only(true)"); err != nil {
		return err
	}
	return s.prepareFile(ctx)
}

// openToRead opens a file that cannot be written: as others may write it
// elsewhere, or else as nobody does.
func (s *Store) openToRead(ctx context.Context, abs string) error {
	err := s.openStill(ctx, &frozen.Database{Path: abs, Query: "mode=ro"})
	if !frozen.Unwritable(err) {
		return err
	}
	still, err := frozen.Find(abs)
	if err != nil {
		return err
	}
	return s.openStill(ctx, still)
}

func (s *Store) openStill(ctx context.Context, still *frozen.Database) error {
	_ = s.Close() // what could not be opened otherwise
	s.still = still
	db, err := connect(still.Path, readers, still.Query)
	s.read, s.write = db, db
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	return checkOwner(ctx, tx)
}

// writing are the parameters of a file that is written.
const writing = "_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"

func connect(abs string, conns int, more string) (*sql.DB, error) {
	file := url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}
	db, err := sql.Open("sqlite", file.String()+
		"?_pragma=busy_timeout(5000)&"+more+"&_pragma=cache_size(-16000)&_pragma=temp_store(MEMORY)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// prepareFile checks that the file is a store, and creates the catalogue.
func (s *Store) prepareFile(ctx context.Context) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := checkOwner(ctx, tx); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, fmt.Sprintf(`
PRAGMA application_id = %d;
PRAGMA user_version = %d;
CREATE TABLE IF NOT EXISTS collection(
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	name TEXT NOT NULL UNIQUE,
	schema TEXT NOT NULL,
	shards INTEGER NOT NULL,
	metric TEXT NOT NULL,
	indexes TEXT NOT NULL DEFAULT '{}',
	loaded INTEGER NOT NULL DEFAULT 0);`, applicationID, formatVersion))
	if err != nil {
		return err
	}
	return tx.Commit()
}

func checkOwner(ctx context.Context, tx *sql.Tx) error {
	var owner, version, tables int
	err := tx.QueryRowContext(ctx,
		`SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_schema)`).
		Scan(&owner, &version, &tables)
	switch {
	case err != nil:
		return err
	case owner != applicationID && (owner != 0 || tables > 0):
		return faultf(codes.FailedPrecondition, "the file belongs to another application")
	case version > formatVersion:
		return faultf(codes.FailedPrecondition,
			"the file has format %d, this version reads up to %d; use a newer version", version, formatVersion)
	}
	return nil
}

// Close closes the file. Calls in flight end with an error.
func (s *Store) Close() error {
	var first error
	for _, db := range []*sql.DB{s.read, s.write} {
		if db == nil {
			continue
		}
		if err := db.Close(); err != nil && first == nil {
			first = err
		}
	}
	return cmp.Or(first, s.still.Close())
}

// update runs fn on the named collection in one write transaction.
func (s *Store) update(ctx context.Context, op, coll string, fn func(*sql.Tx, *collection) error) error {
	return s.inTx(ctx, s.write, op, onCollection(ctx, coll, fn))
}

// view runs fn on the named collection on a consistent snapshot of the file.
func (s *Store) view(ctx context.Context, op, coll string, fn func(*sql.Tx, *collection) error) error {
	return s.inTx(ctx, s.read, op, onCollection(ctx, coll, fn))
}

func onCollection(ctx context.Context, coll string, fn func(*sql.Tx, *collection) error) func(*sql.Tx) error {
	return func(tx *sql.Tx) error {
		c, err := loadMeta(ctx, tx, coll)
		if err != nil {
			return err
		}
		return fn(tx, c)
	}
}

func (s *Store) inTx(ctx context.Context, db *sql.DB, op string, fn func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return s.wrap(ctx, op, err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := fn(tx); err != nil {
		return s.wrap(ctx, op, err)
	}
	return s.wrap(ctx, op, tx.Commit())
}
