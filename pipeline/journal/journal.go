// Package journal remembers what ingest runs have done, so that the next one
// does only the rest.
//
// The journal is a cache of the stores, never the truth: losing it costs reads,
// not embeddings, and nothing in it is needed to read what was ingested. It
// holds, by destination (which object store, vector store and collection):
//
//   - each document that is complete, with its content hash and policy;
//   - each document that is a dead letter or was deferred, with the reason;
//   - how the last run ended;
//
// and what was paid for: the vectors, by embedding space (model and
// dimensions), and the answers of chat models. It is one SQLite file in WAL
// mode with synchronous=FULL, beside a lock file that names the run that holds
// it. [Open] takes the lock; [OpenReadOnly] does not, and may read during a
// run.
//
// A *Journal is safe for concurrent use. It needs a local disk: SQLite's locks
// do not hold on a network file system. [Journal.Track], [Journal.WriteAll],
// [Journal.WriteChanges] and [Journal.Apply] carry it elsewhere; package
// pipeline/state does that with an object store.
package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	_ "modernc.org/sqlite" // the driver

	"github.com/penstock-go/penstock/internal/frozen"
)

const (
	fileName = "journal.db"
	lockName = "journal.lock"
	version  = 4
)

const schema = `
CREATE TABLE IF NOT EXISTS document (
	destination TEXT NOT NULL, id TEXT NOT NULL, sha TEXT NOT NULL, policy TEXT NOT NULL,
	chunks INTEGER NOT NULL, at INTEGER NOT NULL,
	location TEXT NOT NULL DEFAULT '', version TEXT NOT NULL DEFAULT '', parser TEXT NOT NULL DEFAULT '',
	plain TEXT NOT NULL DEFAULT '', pending INTEGER NOT NULL DEFAULT 0, size INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (destination, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS problem (
	destination TEXT NOT NULL, id TEXT NOT NULL, sha TEXT NOT NULL, policy TEXT NOT NULL,
	status TEXT NOT NULL, stage TEXT NOT NULL, kind TEXT NOT NULL, reason TEXT NOT NULL, at INTEGER NOT NULL,
	location TEXT NOT NULL DEFAULT '',
	PRIMARY KEY (destination, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS destination (
	destination TEXT NOT NULL PRIMARY KEY, collection TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS writer (
	destination TEXT NOT NULL PRIMARY KEY, id TEXT NOT NULL, unfinished INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS run (
	destination TEXT NOT NULL PRIMARY KEY, at INTEGER NOT NULL, summary TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS vector (
	space TEXT NOT NULL, key TEXT NOT NULL, vector BLOB NOT NULL,
	PRIMARY KEY (space, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answer (
	key TEXT NOT NULL PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS past (
	owner TEXT NOT NULL, key TEXT NOT NULL,
	PRIMARY KEY (owner, key)) WITHOUT ROWID;
`

// migrations take a journal of the version before to each next one. A fresh
// file needs none.
var migrations = map[int]string{
	1: `ALTER TABLE document ADD COLUMN location TEXT NOT NULL DEFAULT '';
		ALTER TABLE document ADD COLUMN version TEXT NOT NULL DEFAULT '';
		ALTER TABLE document ADD COLUMN parser TEXT NOT NULL DEFAULT '';
		ALTER TABLE problem ADD COLUMN location TEXT NOT NULL DEFAULT '';`,
	2: `ALTER TABLE document ADD COLUMN plain TEXT NOT NULL DEFAULT '';
		ALTER TABLE document ADD COLUMN pending INTEGER NOT NULL DEFAULT 0;`,
	3: `ALTER TABLE document ADD COLUMN size INTEGER NOT NULL DEFAULT 0;`,
}

// Document is a document that is complete in its destination.
type Document struct {
	ID     string
	SHA    string // SHA-256 of the content, hex
	Policy string // how it was parsed, chunked and embedded
	Chunks int
	At     time.Time
	// Location is where it was read from, empty where that cannot be named.
	Location string
	// Version is what its source says of the content: an ETag and a size, or a
	// file's modification time and size; empty where a source says nothing.
	Version string
	// Parser is the name of the parser that read it, which is a part of Policy.
	Parser string
	// Plain is what Policy would be without enrichment; empty for a document
	// that has none.
	Plain string
	// Pending says that some of its enrichment is still to come.
	Pending bool
	// Size is that of the content in bytes; zero where it is not known, as for
	// a document that was found in the store.
	Size int64
}

// Status tells the two kinds of [Problem] apart.
type Status string

const (
	// DeadLetter is a document that cannot be ingested as it is.
	DeadLetter Status = "dead_letter"
	// Deferred is a document that an upstream's fault kept from being ingested.
	Deferred Status = "deferred"
)

// Problem is a document that is not complete, and why.
type Problem struct {
	ID     string    `json:"id"`
	SHA    string    `json:"sha,omitempty"`    // content that was tried; empty when it could not be read
	Policy string    `json:"policy,omitempty"` // how it was tried
	Status Status    `json:"status"`
	Stage  string    `json:"stage"` // the step that failed
	Kind   string    `json:"kind"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	// Location is where it can be read again, empty where it cannot.
	Location string `json:"location,omitempty"`
}

// Totals counts what the journal holds for one destination.
type Totals struct {
	Documents   int `json:"documents"`
	Chunks      int `json:"chunks"`
	DeadLetters int `json:"dead_letters"`
	Deferred    int `json:"deferred"`
}

// HeldError says that another run holds the journal.
type HeldError struct {
	Path   string // the lock file
	Holder string // who holds it, as far as it says
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%s is held by another run (%s); wait for it to end, or use another --state", e.Path, e.Holder)
}

// CorruptError says that the journal's file cannot be used.
type CorruptError struct {
	Path string
	Err  error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("journal %s cannot be read: %v; move it away and run again: "+
		"what is complete is found in the vector store and not embedded again", e.Path, e.Err)
}

// Unwrap gives SQLite's own error.
func (e *CorruptError) Unwrap() error { return e.Err }

// Journal is an open journal.
type Journal struct {
	db   *sql.DB
	path string
	lock *flock.Flock // nil when opened for reading
	// still is how a journal that cannot be written is opened; nil for others
	still *frozen.Database

	tracked bool // changes are noted
	hold    hold

	document, problem, answer *sql.Stmt // parsing one takes longer than running it
}

// ReadOnlyError says that the folder of a journal cannot be written.
type ReadOnlyError struct {
	Folder string
	Err    error
}

func (e *ReadOnlyError) Error() string {
	return fmt.Sprintf("state folder %s cannot be written: %v; it must be a writable local folder, except to look "+
		"('ingest status', 'search', 'verify')", e.Folder, e.Err)
}

// Unwrap returns the cause, of the file system or of SQLite.
func (e *ReadOnlyError) Unwrap() error { return e.Err }

// Open opens the journal in folder, which it makes when it is missing, and
// takes its lock; Close gives it back, and so does the end of the process. The
// error is a [*HeldError], a [*CorruptError], a [*ReadOnlyError], or the file
// system's own.
func Open(ctx context.Context, folder string) (*Journal, error) {
	j, err := openLocked(ctx, folder)
	if frozen.Unwritable(err) {
		return nil, &ReadOnlyError{Folder: folder, Err: err}
	}
	return j, err
}

func openLocked(ctx context.Context, folder string) (*Journal, error) {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	lock, err := acquire(filepath.Join(folder, lockName))
	if err != nil {
		return nil, err
	}
	j, err := open(ctx, filepath.Join(folder, fileName), "mode=rwc", false)
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	j.lock = lock
	return j, nil
}

// OpenReadOnly opens the journal in folder for looking only, without its lock.
// The folder need not be writable. The error satisfies errors.Is(err,
// fs.ErrNotExist) without a journal.
func OpenReadOnly(ctx context.Context, folder string) (*Journal, error) {
	if err := exists(folder); err != nil {
		return nil, err
	}
	file := filepath.Join(folder, fileName)
	j, err := open(ctx, file, "mode=ro", true)
	if !frozen.Unwritable(err) {
		return j, err
	}
	still, err := frozen.Find(file)
	if err != nil {
		return nil, err
	}
	if j, err = open(ctx, still.Path, still.Query, true); err != nil {
		return nil, errors.Join(err, still.Close())
	}
	j.still = still
	return j, nil
}

// Exists reports whether there is a journal in folder, damaged or not. Where
// that cannot be known, there may be one.
func Exists(folder string) bool { return !errors.Is(exists(folder), fs.ErrNotExist) }

func exists(folder string) error {
	_, err := os.Stat(filepath.Join(folder, fileName))
	return err
}

// Held reports whether a process holds the journal in folder.
func Held(folder string) bool {
	lock := flock.New(filepath.Join(folder, lockName), flock.SetFlag(os.O_RDONLY))
	free, err := lock.TryRLock()
	if err != nil {
		return false // there is no lock
	}
	return !free || lock.Unlock() != nil
}

func acquire(file string) (*flock.Flock, error) {
	lock := flock.New(file)
	held, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("cannot lock %s: %w", file, err)
	}
	if !held {
		return nil, &HeldError{Path: file, Holder: holder(file)}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	note := fmt.Sprintf("process %d on %s since %s", os.Getpid(), host, time.Now().UTC().Format(time.RFC3339))
	if err := os.WriteFile(file, []byte(note), 0o640); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return lock, nil
}

func holder(file string) string {
	note, err := os.ReadFile(file)
	if err != nil || len(note) == 0 {
		return "unknown process"
	}
	return string(note)
}

// open opens a journal with parameters of SQLite's; looks says that it is only
// read.
func open(ctx context.Context, file, parameters string, looks bool) (*Journal, error) {
	query := url.Values{
		"_txlock": {"immediate"},
		"_pragma": {"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)"},
	}
	if looks {
		query["_pragma"] = query["_pragma"][:1]
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?"+parameters+"&"+query.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	j := &Journal{db: db, path: file}
	err = j.prepare(ctx, looks)
	if err == nil {
		err = j.statements(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return j, nil
}

func (j *Journal) prepare(ctx context.Context, looks bool) error {
	var found int
	if err := j.db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&found); err != nil {
		return j.wrap(err)
	}
	if found > version {
		return &CorruptError{
			Path: j.path,
			Err:  fmt.Errorf("it was written by a newer version (layout %d, this one knows %d)", found, version),
		}
	}
	if looks {
		if found < version {
			return fmt.Errorf(
				"journal %s was written by an older version; 'ingest retry' or any run brings it up to date",
				j.path,
			)
		}
		return nil
	}
	return j.write(ctx, func(tx *sql.Tx) error {
		for at := found; at > 0 && at < version; at++ {
			if _, err := tx.ExecContext(ctx, migrations[at]); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, schema+fmt.Sprintf("PRAGMA user_version=%d;", version))
		return err
	})
}

func (j *Journal) statements(ctx context.Context) (err error) {
	j.document, err = j.db.PrepareContext(ctx, "SELECT "+documentColumns+" FROM document WHERE destination=? AND id=?")
	if err == nil {
		j.problem, err = j.db.PrepareContext(ctx, "SELECT "+problemColumns+" FROM problem WHERE destination=? AND id=?")
	}
	if err == nil {
		j.answer, err = j.db.PrepareContext(ctx, "SELECT text FROM answer WHERE key=?")
	}
	return j.wrap(err)
}

// Close writes what is pending and gives the lock back.
func (j *Journal) Close() error {
	err := errors.Join(j.db.Close(), j.still.Close())
	if j.lock != nil {
		err = errors.Join(err, j.lock.Unlock())
	}
	return err
}

// Revoke says that all work by this journal must stop, and why: a lease that it
// was opened under has been lost. The error's RetryAt method, if it has one,
// says when to come again. The journal can still be written.
func (j *Journal) Revoke(err error) { j.hold.revoke(err) }

// Restore takes Revoke back, for the work that begins after it.
func (j *Journal) Restore() { j.hold.restore() }

// Revoked returns a channel that is closed when the journal is revoked, and
// what waits for that and returns the reason. A journal that is never revoked
// stays open.
func (j *Journal) Revoked() (over <-chan struct{}, why func() error) {
	t := j.hold.current()
	return t.over, func() error { <-t.over; return t.err }
}

// wrap tells a broken file apart from every other fault. SQLite's result codes
// 11 (corrupt) and 26 (not a database) are in the low byte of the code.
func (j *Journal) wrap(err error) error {
	coded, ok := errors.AsType[interface {
		error
		Code() int
	}](err)
	if ok && (coded.Code()&0xff == 11 || coded.Code()&0xff == 26) {
		return &CorruptError{Path: j.path, Err: err}
	}
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("journal %s: %w", j.path, err)
}

const (
	documentColumns = "id, sha, policy, chunks, at, location, version, parser, plain, pending, size"
	problemColumns  = "id, sha, policy, status, stage, kind, reason, at, location"
)

// scanner is a row of an answer.
type scanner interface{ Scan(fields ...any) error }

func scanDocument(row scanner) (Document, error) {
	var d Document
	var at int64
	err := row.Scan(&d.ID, &d.SHA, &d.Policy, &d.Chunks, &at, &d.Location, &d.Version, &d.Parser, &d.Plain, &d.Pending,
		&d.Size)
	d.At = time.UnixMilli(at).UTC()
	return d, err
}

func scanProblem(row scanner) (Problem, error) {
	var p Problem
	var at int64
	err := row.Scan(&p.ID, &p.SHA, &p.Policy, &p.Status, &p.Stage, &p.Kind, &p.Reason, &at, &p.Location)
	p.At = time.UnixMilli(at).UTC()
	return p, err
}

// Document looks up a complete document; the second result says whether it is
// there.
func (j *Journal) Document(ctx context.Context, destination, id string) (Document, bool, error) {
	d, err := scanDocument(j.document.QueryRowContext(ctx, destination, id))
	return d, err == nil, j.found(err)
}

// Problem looks up what kept a document from being complete.
func (j *Journal) Problem(ctx context.Context, destination, id string) (Problem, bool, error) {
	p, err := scanProblem(j.problem.QueryRowContext(ctx, destination, id))
	return p, err == nil, j.found(err)
}

func (j *Journal) found(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return j.wrap(err)
}

// Complete records documents as complete, in one transaction, and forgets what
// kept them from it before.
func (j *Journal) Complete(ctx context.Context, destination string, documents ...Document) error {
	return writeEach(ctx, j, slices.Values(documents), func(do statement, d Document) error {
		err := do("INSERT OR REPLACE INTO document VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", destination, d.ID, d.SHA, d.Policy,
			d.Chunks, d.At.UnixMilli(), d.Location, d.Version, d.Parser, d.Plain, d.Pending, d.Size)
		if err != nil {
			return err
		}
		return do("DELETE FROM problem WHERE destination=? AND id=?", destination, d.ID)
	})
}

// Fail records why documents are not complete, in one transaction. What was
// complete before stays recorded: the stores still hold it.
func (j *Journal) Fail(ctx context.Context, destination string, problems ...Problem) error {
	return writeEach(ctx, j, slices.Values(problems), func(do statement, p Problem) error {
		return do("INSERT OR REPLACE INTO problem VALUES (?,?,?,?,?,?,?,?,?,?)", destination, p.ID, p.SHA, p.Policy,
			p.Status, p.Stage, p.Kind, p.Reason, p.At.UnixMilli(), p.Location)
	})
}

// Dismiss drops what kept documents from being complete, where that is no
// matter any more, and nothing else that is known about them.
func (j *Journal) Dismiss(ctx context.Context, destination string, ids ...string) error {
	return writeEach(ctx, j, slices.Values(ids), func(do statement, id string) error {
		return do("DELETE FROM problem WHERE destination=? AND id=?", destination, id)
	})
}

// Reopen notes that the rows of complete documents are about to be replaced:
// the documents stay listed, with an empty policy, and count as changed until
// Complete.
func (j *Journal) Reopen(ctx context.Context, destination string, ids ...string) error {
	return writeEach(ctx, j, slices.Values(ids), func(do statement, id string) error {
		return do("UPDATE document SET policy='', plain='' WHERE destination=? AND id=?", destination, id)
	})
}

// Confirm notes that complete documents are what their sources hold: where they
// are read from now, and the version that the source names. What kept them from
// being complete is over.
func (j *Journal) Confirm(ctx context.Context, destination string, documents ...Document) error {
	return writeEach(ctx, j, slices.Values(documents), func(do statement, d Document) error {
		err := do("UPDATE document SET location=?, version=? WHERE destination=? AND id=?", d.Location, d.Version,
			destination, d.ID)
		if err != nil {
			return err
		}
		return do("DELETE FROM problem WHERE destination=? AND id=?", destination, d.ID)
	})
}

// statement runs one statement in a transaction.
type statement func(query string, args ...any) error

// writeEach writes each item, all in one transaction.
func writeEach[T any](
	ctx context.Context, j *Journal, items iter.Seq[T], write func(do statement, item T) error,
) error {
	return j.write(ctx, func(tx *sql.Tx) error {
		do := func(query string, args ...any) error {
			_, err := tx.ExecContext(ctx, query, args...)
			return err
		}
		for item := range items {
			if err := write(do, item); err != nil {
				return err
			}
		}
		return nil
	})
}

func (j *Journal) write(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := j.db.BeginTx(ctx, nil)
	if err != nil {
		return j.wrap(err)
	}
	if err := do(tx); err != nil {
		return j.wrap(errors.Join(err, tx.Rollback()))
	}
	return j.wrap(tx.Commit())
}

// Totals counts what is known of a destination.
func (j *Journal) Totals(ctx context.Context, destination string) (Totals, error) {
	var t Totals
	err := j.db.QueryRowContext(ctx, `SELECT
		(SELECT count(*) FROM document WHERE destination=?1),
		(SELECT coalesce(sum(chunks),0) FROM document WHERE destination=?1),
		(SELECT count(*) FROM problem WHERE destination=?1 AND status=?2),
		(SELECT count(*) FROM problem WHERE destination=?1 AND status=?3)`, destination, DeadLetter, Deferred).
		Scan(&t.Documents, &t.Chunks, &t.DeadLetters, &t.Deferred)
	return t, j.wrap(err)
}

// pageLength is how many entries are read at a time.
const pageLength = 500

// Problems lists the problems of a destination by id, those after the given id;
// "" lists all. The journal may be written meanwhile; a change of an entry
// further on may or may not show. An error ends the list.
func (j *Journal) Problems(ctx context.Context, destination, after string) iter.Seq2[Problem, error] {
	return entries(after, func(p Problem) string { return p.ID }, func(after string) ([]Problem, error) {
		return page(ctx, j, scanProblem, "SELECT "+problemColumns+" FROM problem", destination, after)
	})
}

// ProblemsOf is Problems for those of one status.
func (j *Journal) ProblemsOf(
	ctx context.Context, destination string, status Status, after string,
) iter.Seq2[Problem, error] {
	return entries(after, func(p Problem) string { return p.ID }, func(after string) ([]Problem, error) {
		rows, err := j.db.QueryContext(ctx, "SELECT "+problemColumns+
			" FROM problem WHERE destination=? AND status=? AND id>? ORDER BY id LIMIT ?",
			destination, status, after, pageLength)
		if err != nil {
			return nil, j.wrap(err)
		}
		return all(j, rows, scanProblem)
	})
}

// Documents lists the complete documents of a destination by id, as Problems
// does its problems.
func (j *Journal) Documents(ctx context.Context, destination, after string) iter.Seq2[Document, error] {
	return entries(after, func(d Document) string { return d.ID }, func(after string) ([]Document, error) {
		return page(ctx, j, scanDocument, "SELECT "+documentColumns+" FROM document", destination, after)
	})
}

// entries reads page after page, so that no read is open while the caller works
// on an entry.
func entries[T any](after string, id func(T) string, next func(after string) ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for after := after; ; {
			page, err := next(after)
			if err != nil {
				yield(*new(T), err)
				return
			}
			for _, one := range page {
				if !yield(one, nil) {
					return
				}
				after = id(one)
			}
			if len(page) < pageLength {
				return
			}
		}
	}
}

func page[T any](
	ctx context.Context, j *Journal, scan func(scanner) (T, error), from, destination, after string,
) ([]T, error) {
	rows, err := j.db.QueryContext(ctx, from+" WHERE destination=? AND id>? ORDER BY id LIMIT ?",
		destination, after, pageLength)
	if err != nil {
		return nil, j.wrap(err)
	}
	return all(j, rows, scan)
}

// all scans and closes what a query found.
func all[T any](j *Journal, rows *sql.Rows, scan func(scanner) (T, error)) ([]T, error) {
	var found []T
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, j.wrap(errors.Join(err, rows.Close()))
		}
		found = append(found, one)
	}
	return found, j.wrap(rows.Err())
}

// Destinations lists the destinations that the journal knows, sorted.
func (j *Journal) Destinations(ctx context.Context) ([]string, error) {
	rows, err := j.db.QueryContext(
		ctx,
		"SELECT destination FROM document UNION SELECT destination FROM problem UNION SELECT destination FROM run ORDER BY 1",
	)
	if err != nil {
		return nil, j.wrap(err)
	}
	return all(j, rows, func(row scanner) (name string, err error) {
		err = row.Scan(&name)
		return name, err
	})
}

// EndRun keeps the summary of a run, any value that encodes as JSON, as the
// destination's last.
func (j *Journal) EndRun(ctx context.Context, destination string, at time.Time, summary any) error {
	text, err := json.Marshal(summary)
	if err != nil {
		return fmt.Errorf("journal: summary: %w", err)
	}
	_, err = j.db.ExecContext(ctx, "INSERT OR REPLACE INTO run VALUES (?,?,?)", destination, at.UnixMilli(),
		string(text))
	return j.wrap(err)
}

// LastRun returns the summary that EndRun kept, as JSON, and when; nil before
// the first.
func (j *Journal) LastRun(ctx context.Context, destination string) (json.RawMessage, time.Time, error) {
	var at int64
	var text string
	err := j.db.QueryRowContext(ctx, "SELECT at, summary FROM run WHERE destination=?", destination).Scan(&at, &text)
	if err != nil {
		return nil, time.Time{}, j.found(err)
	}
	return json.RawMessage(strings.Clone(text)), time.UnixMilli(at).UTC(), nil
}

// Collection is the collection that a destination's documents went into, as
// SetCollection named it; empty when it has not been named.
func (j *Journal) Collection(ctx context.Context, destination string) (string, error) {
	var id string
	err := j.db.QueryRowContext(ctx, "SELECT collection FROM destination WHERE destination=?", destination).Scan(&id)
	return id, j.found(err)
}

// SetCollection names the collection that a destination's documents go into.
// The documents that went into another that had been named are forgotten: they
// are not in this one. The result is how many that were.
func (j *Journal) SetCollection(ctx context.Context, destination, id string) (forgotten int64, err error) {
	err = j.write(ctx, func(tx *sql.Tx) error {
		var before string
		err := tx.QueryRowContext(ctx, "SELECT collection FROM destination WHERE destination=?",
			destination).Scan(&before)
		named := err == nil
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if named && before != id {
			result, err := tx.ExecContext(ctx, "DELETE FROM document WHERE destination=?", destination)
			if err != nil {
				return err
			}
			if forgotten, err = result.RowsAffected(); err != nil {
				return err
			}
		}
		_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO destination VALUES (?,?)", destination, id)
		return err
	})
	return forgotten, err
}
