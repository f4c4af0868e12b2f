package journal

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A copy of a journal, or of what has changed in it, is lines of JSON: a header
// that names the columns of each table, a line a row, a line a row that is
// gone, and an end that counts them, without which a copy is not whole.
//
//	{"journal":1,"tables":{"problem":["destination","id",…]}}
//	["problem","…","docs/a.md",…]
//	["-problem","…","docs/b.md"]
//	{"end":2}
//
// Columns are named so that the layout of the database can grow: those that a
// copy lacks get their defaults, and one that is not known is of a newer
// version.
const copyFormat = 1

// table is a table that is copied. Its key is its first columns.
type table struct {
	name    string
	key     int
	columns []string
	blob    string // the column that is none of text
	most    int    // rows in a copy, the newest; 0 for all
}

var tables = []table{
	{name: "document", key: 2, columns: []string{
		"destination", "id", "sha", "policy", "chunks", "at", "location",
		"version", "parser", "plain", "pending", "size",
	}},
	{name: "problem", key: 2, columns: []string{
		"destination", "id", "sha", "policy", "status", "stage", "kind",
		"reason", "at", "location",
	}},
	{name: "destination", key: 1, columns: []string{"destination", "collection"}},
	{name: "writer", key: 1, columns: []string{"destination", "id", "unfinished"}},
	{name: "run", key: 1, columns: []string{"destination", "at", "summary"}},
	{name: "past", key: 2, columns: []string{"owner", "key"}},
	{name: "answer", key: 1, columns: []string{"key", "text"}, most: paidKept},
	{name: "vector", key: 2, columns: []string{"space", "key", "vector"}, blob: "vector"},
}

// paidKept is how many vectors, and how many answers, a copy of a whole journal
// holds at most, the newest: those about texts that have changed since are
// never asked for, and most others are in the vector store.
const paidKept = 10_000

func (t table) list() string { return strings.Join(t.columns, ", ") }

// where finds a row by its key.
func (t table) where() string {
	return " WHERE " + strings.Join(t.columns[:t.key], "=? AND ") + "=?"
}

// second is the second column of the key in a trigger's row, or nothing.
func (t table) second(row string) string {
	if t.key == 1 {
		return "''"
	}
	return row + "." + t.columns[1]
}

// triggers note the key of each row that changes.
func (t table) triggers() string {
	var all strings.Builder
	for event, row := range map[string]string{"INSERT": "NEW", "UPDATE": "NEW", "DELETE": "OLD"} {
		if t.blob != "" && event != "INSERT" {
			continue
		}
		note := fmt.Sprintf("INSERT OR REPLACE INTO changed(name, a, b) VALUES ('%s', %s.%s, %s);", t.name, row,
			t.columns[0], t.second(row))
		if t.blob != "" {
			note = "INSERT OR REPLACE INTO paid VALUES (NEW.space, NEW.key, 0);"
		}
		fmt.Fprintf(&all, "CREATE TRIGGER %s_%s AFTER %s ON %s BEGIN %s END;\n", t.name, strings.ToLower(event), event,
			t.name, note)
	}
	return all.String()
}

// tracking is what a journal has that is copied elsewhere: changed notes the
// rows that are not in a copy yet, and paid the vectors that are not in the
// vector store yet: most of them are a moment later. One that has been seen
// once (1) is noted the next time (2).
const tracking = `
CREATE TABLE changed (seq INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, a TEXT NOT NULL, b TEXT NOT NULL, UNIQUE (name, a, b));
CREATE TABLE paid (space TEXT NOT NULL, key TEXT NOT NULL, seen INTEGER NOT NULL, PRIMARY KEY (space, key));
INSERT INTO paid SELECT space, key, 2 FROM vector;
`

// Track has the journal note from now on what changes, for
// [Journal.WriteChanges]. Call it once, after what [Journal.Apply] brings: the
// vectors that are there count as copied and not stored.
func (j *Journal) Track(ctx context.Context) error {
	var text strings.Builder
	text.WriteString(tracking)
	for _, t := range tables {
		text.WriteString(t.triggers())
	}
	err := j.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, text.String())
		return err
	})
	j.tracked = err == nil
	return err
}

// NoteVectors has the vectors copied that were paid for before the last call
// and are not stored yet; with fresh, those as well that came after it. The
// others change only when they are stored.
func (j *Journal) NoteVectors(ctx context.Context, fresh bool) error {
	steps := []string{
		"INSERT OR REPLACE INTO changed(name, a, b) SELECT 'vector', space, key FROM paid WHERE seen=1",
		"UPDATE paid SET seen=seen+1 WHERE seen<2",
	}
	if fresh {
		steps = append(steps, steps...)
	}
	return j.write(ctx, func(tx *sql.Tx) error {
		for _, step := range steps {
			if _, err := tx.ExecContext(ctx, step); err != nil {
				return err
			}
		}
		return nil
	})
}

// Stored says that the vectors of these texts are in the vector store now. A
// journal that is copied elsewhere copies them no longer.
func (j *Journal) Stored(ctx context.Context, space string, keys ...string) error {
	if !j.tracked || len(keys) == 0 {
		return nil
	}
	return j.write(ctx, func(tx *sql.Tx) error {
		for _, key := range keys {
			for _, step := range []string{
				"INSERT OR REPLACE INTO changed(name, a, b) SELECT 'vector', space, key FROM paid WHERE space=?1 AND key=?2 AND seen=2",
				"DELETE FROM paid WHERE space=?1 AND key=?2",
			} {
				if _, err := tx.ExecContext(ctx, step, space, key); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// copier writes a copy.
type copier struct {
	to    *bufio.Writer
	lines int
	err   error
}

func newCopier(w io.Writer) *copier {
	c := &copier{to: bufio.NewWriter(w)}
	columns := map[string][]string{}
	for _, t := range tables {
		columns[t.name] = t.columns
	}
	c.put(map[string]any{"journal": copyFormat, "tables": columns})
	c.lines = 0
	return c
}

func (c *copier) put(line any) {
	text, err := json.Marshal(line)
	if err == nil && c.err == nil {
		_, err = c.to.Write(append(text, '\n'))
	}
	c.err = errors.Join(c.err, err)
	c.lines++
}

func (c *copier) end() error {
	c.put(map[string]int{"end": c.lines})
	return errors.Join(c.err, c.to.Flush())
}

// row copies the row under the scanner.
func (c *copier) row(t table, from scanner) error {
	values, fields := make([]any, len(t.columns)), make([]any, len(t.columns))
	for i := range values {
		fields[i] = &values[i]
	}
	if err := from.Scan(fields...); err != nil {
		return err
	}
	c.put(append([]any{t.name}, values...))
	return c.err
}

// WriteAll writes a copy of all that the journal holds, but for the vectors
// that are in the vector store. The mark is for [Journal.Copied]. The journal
// must be tracked.
func (j *Journal) WriteAll(ctx context.Context, w io.Writer) (mark int64, err error) {
	tx, err := j.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return 0, j.wrap(err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := tx.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM changed").Scan(&mark); err != nil {
		return 0, j.wrap(err)
	}
	c := newCopier(w)
	for _, t := range tables {
		if err := c.table(ctx, tx, t); err != nil {
			return 0, j.wrap(err)
		}
	}
	return mark, c.end()
}

func (c *copier) table(ctx context.Context, tx *sql.Tx, t table) error {
	query := "SELECT " + t.list() + " FROM " + t.name
	if t.blob != "" {
		query = fmt.Sprintf(
			"SELECT %s FROM %s JOIN (SELECT rowid AS age, space, key FROM paid ORDER BY age DESC LIMIT %d) USING (space, key)",
			t.list(),
			t.name,
			paidKept,
		)
	}
	if t.most > 0 {
		query += fmt.Sprintf(" WHERE rowid > (SELECT max(rowid) FROM %s) - %d", t.name, t.most)
	}
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	for rows.Next() {
		if err := c.row(t, rows); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return rows.Err()
}

// note is a row that has changed.
type note struct {
	seq  int64
	name string
	key  []any
}

// changesAtOnce is how many changes are looked up at a time.
const changesAtOnce = 500

// WriteChanges writes what has changed since the last copy, in a copy of about
// limit bytes at most, so that there may be more. The mark is for
// [Journal.Copied]; it is zero when nothing has changed, and nothing is written
// then. The journal must be tracked.
func (j *Journal) WriteChanges(ctx context.Context, w io.Writer, limit int) (mark int64, err error) {
	counted := &counter{to: w}
	var c *copier
	for counted.n < limit {
		notes, err := j.notes(ctx, mark)
		if err != nil || len(notes) == 0 {
			return mark, errors.Join(err, c.finish())
		}
		if c == nil {
			c = newCopier(counted)
		}
		for _, n := range notes {
			if err := j.change(ctx, c, n); err != nil {
				return mark, j.wrap(err)
			}
			mark = n.seq
			if counted.n >= limit {
				break
			}
		}
	}
	return mark, c.finish()
}

// finish is end for a copy that may not have begun.
func (c *copier) finish() error {
	if c == nil {
		return nil
	}
	return c.end()
}

// counter counts what is written.
type counter struct {
	to io.Writer
	n  int
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += n
	return n, err
}

func (j *Journal) notes(ctx context.Context, after int64) (list []note, err error) {
	rows, err := j.db.QueryContext(ctx, "SELECT seq, name, a, b FROM changed WHERE seq>? ORDER BY seq LIMIT ?", after,
		changesAtOnce)
	if err != nil {
		return nil, j.wrap(err)
	}
	for rows.Next() {
		var n note
		var a, b string
		if err := rows.Scan(&n.seq, &n.name, &a, &b); err != nil {
			return nil, j.wrap(errors.Join(err, rows.Close()))
		}
		n.key = []any{a, b}
		list = append(list, n)
	}
	return list, j.wrap(rows.Err())
}

// change copies one row as it is now, or that it is gone.
func (j *Journal) change(ctx context.Context, c *copier, n note) error {
	t := tables[slices.IndexFunc(tables, func(t table) bool { return t.name == n.name })]
	key := n.key[:t.key]
	query := "SELECT " + t.list() + " FROM " + t.name + t.where()
	if t.blob != "" {
		query += " AND EXISTS (SELECT 1 FROM paid WHERE paid.space=vector.space AND paid.key=vector.key)"
	}
	err := c.row(t, j.db.QueryRowContext(ctx, query, key...))
	if errors.Is(err, sql.ErrNoRows) {
		c.put(append([]any{"-" + t.name}, key...))
		return c.err
	}
	return err
}

// Copied says that a copy up to a mark is safe, so that its changes need not be
// copied again.
func (j *Journal) Copied(ctx context.Context, mark int64) error {
	_, err := j.db.ExecContext(ctx, "DELETE FROM changed WHERE seq<=?", mark)
	return j.wrap(err)
}

// CopyError says that a copy of a journal cannot be read.
type CopyError struct {
	Newer bool // a newer version wrote it
	Err   error
}

func (e *CopyError) Error() string { return "the copy of the journal cannot be read: " + e.Err.Error() }

// Unwrap gives the cause.
func (e *CopyError) Unwrap() error { return e.Err }

// Apply brings what a copy holds into the journal, all or nothing. The error of
// a copy that is not whole, damaged or of a newer version is a [*CopyError];
// that of the reader itself is its own.
func (j *Journal) Apply(ctx context.Context, from io.Reader) error {
	return j.write(ctx, func(tx *sql.Tx) error {
		a := &applier{ctx: ctx, tx: tx, lines: bufio.NewReader(from)}
		defer a.close()
		return a.all()
	})
}

// applier reads one copy.
type applier struct {
	ctx        context.Context
	tx         *sql.Tx
	lines      *bufio.Reader
	columns    map[string][]string
	statements map[string]*sql.Stmt
}

func (a *applier) close() {
	for _, s := range a.statements {
		_ = s.Close()
	}
}

func damaged(format string, args ...any) error { return &CopyError{Err: fmt.Errorf(format, args...)} }

func newer(format string, args ...any) error {
	return &CopyError{Newer: true, Err: fmt.Errorf("it was written by a newer version: "+format, args...)}
}

// longestLine is far beyond every row.
const longestLine = 16 << 20

func (a *applier) line() ([]byte, error) {
	var line []byte
	for {
		part, err := a.lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case err == io.EOF: // itself: an error that wraps it is the reader's
			return nil, damaged("it breaks off")
		case err != bufio.ErrBufferFull: //nolint:errorlint // as above
			return nil, err
		case len(line) > longestLine:
			return nil, damaged("a line is longer than %d bytes", longestLine)
		}
	}
}

func (a *applier) all() error {
	line, err := a.line()
	if err != nil {
		return err
	}
	if err := a.header(line); err != nil {
		return err
	}
	for n := 0; ; n++ {
		if line, err = a.line(); err != nil {
			return err
		}
		if line[0] == '{' {
			return a.ended(line, n)
		}
		if err := a.apply(line); err != nil {
			return err
		}
	}
}

// ended holds the last line against those before it, and finds that it is the
// last: a checksum may come behind it.
func (a *applier) ended(line []byte, n int) error {
	var end struct{ End *int }
	if err := json.Unmarshal(line, &end); err != nil || end.End == nil || *end.End != n {
		return damaged("its end does not fit its %d lines", n)
	}
	switch _, err := a.lines.ReadByte(); err {
	case nil:
		return damaged("there is more behind its end")
	case io.EOF: // itself
		return nil
	default:
		return err
	}
}

func (a *applier) header(line []byte) error {
	var header struct {
		Journal int
		Tables  map[string][]string
	}
	if err := json.Unmarshal(line, &header); err != nil || header.Journal == 0 {
		return damaged("it does not begin as one")
	}
	if header.Journal > copyFormat {
		return newer("it is of format %d, this one knows %d", header.Journal, copyFormat)
	}
	a.columns, a.statements = header.Tables, map[string]*sql.Stmt{}
	return nil
}

// apply brings one row.
func (a *applier) apply(line []byte) error {
	decoder := json.NewDecoder(strings.NewReader(string(line)))
	decoder.UseNumber()
	var values []any
	if err := decoder.Decode(&values); err != nil || len(values) == 0 {
		return damaged("a line is no row: %w", err)
	}
	name, _ := values[0].(string)
	statement, err := a.statement(name, len(values)-1)
	if err != nil {
		return err
	}
	if err := a.decode(name, values[1:]); err != nil {
		return err
	}
	_, err = statement.ExecContext(a.ctx, values[1:]...)
	return err
}

func (a *applier) decode(name string, values []any) error {
	for i, column := range a.columns[name] {
		if name != "vector" || column != "vector" || i >= len(values) {
			continue
		}
		text, _ := values[i].(string)
		blob, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return damaged("a vector: %w", err)
		}
		values[i] = blob
	}
	return nil
}

// statement is what a line asks for: a row to have, or one to lose.
func (a *applier) statement(name string, values int) (*sql.Stmt, error) {
	if s := a.statements[name]; s != nil {
		return s, nil
	}
	bare, gone := strings.CutPrefix(name, "-")
	at := slices.IndexFunc(tables, func(t table) bool { return t.name == bare })
	if at < 0 {
		return nil, newer("it has a table %q", bare)
	}
	t, columns := tables[at], a.columns[bare]
	for _, column := range columns {
		if !slices.Contains(t.columns, column) {
			return nil, newer("table %s has a column %q", bare, column)
		}
	}
	query := "DELETE FROM " + t.name + t.where()
	want := t.key
	if !gone {
		want = len(columns)
		query = fmt.Sprintf("INSERT OR REPLACE INTO %s (%s) VALUES (%s)", t.name, strings.Join(columns, ","),
			strings.TrimSuffix(strings.Repeat("?,", want), ","))
	}
	if values != want {
		return nil, damaged("a row of %s has %d values, not %d", bare, values, want)
	}
	s, err := a.tx.PrepareContext(a.ctx, query)
	if err == nil {
		a.statements[name] = s
	}
	return s, err
}
