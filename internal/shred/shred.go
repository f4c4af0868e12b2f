// Package shred removes from an SQLite file in WAL mode what deleted rows have
// left in it: in free pages, in the unused parts of others, where rows that
// moved to another page have left a copy too, and in the log, which holds
// earlier states of pages.
//
// PRAGMA secure_delete was tried and dropped. It made replacing rows 8 % dearer
// (the pages that FTS5 frees when it merges are written once more), it keeps
// the copies of rows that moved, and it does nothing about rows that were
// deleted before it was set.
package shred

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrBusy says that the log could not be emptied, since another connection has
// been reading for longer than the busy timeout. What deleted rows have left
// may still be in the log; call Rest again.
var ErrBusy = errors.New("another process reads the file, so its log still holds deleted rows")

// Rest removes what deleted rows have left in the file of a database whose
// transactions begin immediately. It reads the whole file and writes the pages
// that need it, in one transaction.
func Rest(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	dirty, err := unclean(ctx, tx)
	if err != nil {
		return err
	}
	for _, p := range dirty {
		if err := p.clean(ctx, tx); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return emptyLog(ctx, db)
}

// page is a page of the file and what it is used for.
type page struct {
	number int64
	kind   string // as dbstat has it, or one of those below
	unused int    // bytes
}

const (
	freeTrunk = "trunk" // lists free pages
	freeLeaf  = "free"
)

// unclean lists the pages that hold something where nothing is used.
func unclean(ctx context.Context, tx *sql.Tx) (dirty []page, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT s.pageno, s.pagetype, s.unused, p.data
		FROM dbstat AS s CROSS JOIN sqlite_dbpage AS p ON p.pgno = s.pageno`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var (
			p    page
			data sql.RawBytes
		)
		if err := rows.Scan(&p.number, &p.kind, &p.unused, &data); err != nil {
			return nil, err
		}
		if !p.isClean(data) {
			dirty = append(dirty, p)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	free, err := freePages(ctx, tx)
	return append(dirty, free...), err
}

// freePages lists the free pages that are not clean.
func freePages(ctx context.Context, tx *sql.Tx) (dirty []page, err error) {
	first, err := read(ctx, tx, 1)
	if err != nil {
		return nil, err
	}
	for trunk := int64(binary.BigEndian.Uint32(first[32:])); trunk != 0; {
		data, err := read(ctx, tx, trunk)
		if err != nil {
			return nil, err
		}
		leaves := int(binary.BigEndian.Uint32(data[4:]))
		if 8+4*leaves > len(data) {
			return nil, fmt.Errorf("the list of free pages is damaged on page %d", trunk)
		}
		for i := range leaves {
			leaf := page{number: int64(binary.BigEndian.Uint32(data[8+4*i:])), kind: freeLeaf}
			content, err := read(ctx, tx, leaf.number)
			if err != nil {
				return nil, err
			}
			if !leaf.isClean(content) {
				dirty = append(dirty, leaf)
			}
		}
		if p := (page{number: trunk, kind: freeTrunk}); !p.isClean(data) {
			dirty = append(dirty, p)
		}
		trunk = int64(binary.BigEndian.Uint32(data))
	}
	return dirty, nil
}

func read(ctx context.Context, tx *sql.Tx, number int64) (data []byte, err error) {
	err = tx.QueryRowContext(ctx, "SELECT data FROM sqlite_dbpage WHERE pgno=?", number).Scan(&data)
	return data, err
}

// clean zeroes what is not used.
func (p page) clean(ctx context.Context, tx *sql.Tx) error {
	data, err := read(ctx, tx, p.number)
	if err != nil {
		return err
	}
	for part := range p.idle(data) {
		clear(part)
	}
	_, err = tx.ExecContext(ctx, "UPDATE sqlite_dbpage SET data=? WHERE pgno=?", data, p.number)
	return err
}

func (p page) isClean(data []byte) bool {
	for part := range p.idle(data) {
		if len(bytes.TrimLeft(part, "\x00")) > 0 {
			return false
		}
	}
	return true
}

// idle yields the parts of a page that hold nothing which is used. The layouts
// are those of SQLite's file format, sections 1.5 to 1.7.
func (p page) idle(data []byte) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		switch p.kind {
		case freeLeaf:
			yield(data)
		case freeTrunk:
			yield(data[8+4*int(binary.BigEndian.Uint32(data[4:])):])
		case "overflow":
			yield(data[len(data)-p.unused:])
		case "leaf", "internal":
			p.idleOfTree(data, yield)
		}
	}
}

// idleOfTree yields the part between the pointers to the cells of a page and
// the cells, then the free blocks between cells without their headers.
func (p page) idleOfTree(data []byte, yield func([]byte) bool) {
	header := 0
	if p.number == 1 {
		header = 100 // of the file
	}
	pointers := header + 8
	if p.kind == "internal" {
		pointers += 4
	}
	from := pointers + 2*int(binary.BigEndian.Uint16(data[header+3:]))
	to := int(binary.BigEndian.Uint16(data[header+5:]))
	if to == 0 {
		to = 1 << 16
	}
	if from > to || to > len(data) || !yield(data[from:to]) {
		return
	}
	for at := int(binary.BigEndian.Uint16(data[header+1:])); at != 0 && at+4 <= len(data); {
		next, size := int(binary.BigEndian.Uint16(data[at:])), int(binary.BigEndian.Uint16(data[at+2:]))
		if size < 4 || at+size > len(data) || !yield(data[at+4:at+size]) || next <= at {
			return
		}
		at = next
	}
}

// emptyLog moves the log into the file and truncates it.
func emptyLog(ctx context.Context, db *sql.DB) error {
	var busy, frames, moved int
	err := db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved)
	if err == nil && busy != 0 {
		return ErrBusy
	}
	return err
}
