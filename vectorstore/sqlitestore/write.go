package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"google.golang.org/grpc/codes"
)

// Insert adds rows and returns their keys. If a key exists, the error is
// AlreadyExists and no row is added.
func (s *Store) Insert(
	ctx context.Context, collName, partitionName string, columns ...entity.Column,
) (entity.Column, error) {
	return s.put(ctx, "Insert", collName, partitionName, columns, func(tx *sql.Tx, b *batch) error {
		found, err := b.existing(ctx, tx)
		if err == nil && len(found) > 0 {
			err = faultf(codes.AlreadyExists, "%d of %d keys already exist; use Upsert to replace them",
				len(found), b.rows)
		}
		return err
	})
}

// Upsert adds rows, replaces existing ones, and returns the keys.
func (s *Store) Upsert(
	ctx context.Context, collName, partitionName string, columns ...entity.Column,
) (entity.Column, error) {
	return s.put(ctx, "Upsert", collName, partitionName, columns, func(tx *sql.Tx, b *batch) error {
		found, err := b.existing(ctx, tx)
		if err != nil {
			return err
		}
		return b.c.remove(ctx, tx, found)
	})
}

func (s *Store) put(
	ctx context.Context, op, coll, partition string, columns []entity.Column, before func(*sql.Tx, *batch) error,
) (entity.Column, error) {
	var ids entity.Column
	err := s.update(ctx, op, coll, func(tx *sql.Tx, c *collection) error {
		if err := defaultPartition(partition); err != nil {
			return err
		}
		b, err := newBatch(c, columns)
		if err != nil {
			return err
		}
		if err := before(tx, b); err != nil {
			return err
		}
		ids = b.ids()
		return b.insert(ctx, tx)
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

func defaultPartition(names ...string) error {
	for _, name := range names {
		if name != "" && name != "_default" {
			return invalid("partition %q: there are no partitions", name)
		}
	}
	return nil
}

// existing returns the rowids of existing keys.
func (b *batch) existing(ctx context.Context, tx *sql.Tx) ([]int64, error) {
	keys, err := b.keys()
	if err != nil {
		return nil, err
	}
	return b.c.rowids(ctx, tx, b.c.column(b.c.pk)+" IN (SELECT value FROM json_each(?))", []any{keys})
}

func (c *collection) rowids(ctx context.Context, tx *sql.Tx, where string, args []any) ([]int64, error) {
	rows, err := tx.QueryContext(ctx, "SELECT rowid FROM "+c.rows()+" WHERE "+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// insert writes the batch, with one prepared statement per table.
func (b *batch) insert(ctx context.Context, tx *sql.Tx) error {
	w, err := b.c.prepare(ctx, tx)
	if err != nil {
		return err
	}
	defer w.close()
	args := make([]any, 0, len(b.cols))
	for row := range b.rows {
		if args, err = b.scalars(row, args[:0]); err != nil {
			return err
		}
		vec, err := b.vector(row)
		if err != nil {
			return err
		}
		if err := w.put(ctx, args, vec); err != nil {
			return err
		}
	}
	return nil
}

// writer holds the statements of an insert.
type writer struct {
	c                  *collection
	rows, vectors, fts *sql.Stmt
}

func (c *collection) prepare(ctx context.Context, tx *sql.Tx) (*writer, error) {
	w := &writer{c: c}
	var err error
	marks := strings.Repeat(", ?", len(c.schema.Fields)-2)
	if w.rows, err = tx.PrepareContext(ctx,
		fmt.Sprintf("INSERT INTO %s VALUES(NULL, ?%s)", c.rows(), marks)); err != nil {
		return nil, err
	}
	if w.vectors, err = tx.PrepareContext(ctx,
		fmt.Sprintf("INSERT INTO %s(rowid, e) VALUES(?, ?)", c.vectors())); err != nil {
		w.close()
		return nil, err
	}
	if len(c.text) == 0 {
		return w, nil
	}
	w.fts, err = tx.PrepareContext(ctx, fmt.Sprintf("INSERT INTO %s(rowid, %s) VALUES(?%s)",
		c.fulltext(), strings.Join(c.textColumns(), ", "), strings.Repeat(", ?", len(c.text))))
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *writer) close() {
	for _, st := range []*sql.Stmt{w.rows, w.vectors, w.fts} {
		if st != nil {
			_ = st.Close()
		}
	}
}

func (w *writer) put(ctx context.Context, scalars []any, vec []byte) error {
	res, err := w.rows.ExecContext(ctx, scalars...)
	if err != nil {
		return err
	}
	id, err := res.LastInsertId()
	if err != nil {
		return err
	}
	if _, err := w.vectors.ExecContext(ctx, id, vec); err != nil {
		return err
	}
	if w.fts == nil {
		return nil
	}
	_, err = w.fts.ExecContext(ctx, w.terms(id, scalars)...)
	return err
}

// terms is the row of the full-text table: the id and the segmented texts.
func (w *writer) terms(id int64, scalars []any) []any {
	args := []any{id}
	for _, f := range w.c.text {
		if f > w.c.vector {
			f-- // scalars leave the vector out
		}
		text, _ := scalars[f].(string)
		args = append(args, segment(text))
	}
	return args
}

// Delete removes the rows that match the expression. An empty expression is an
// invalid argument: to empty a collection, use DropCollection.
func (s *Store) Delete(ctx context.Context, collName, partitionName, expr string) error {
	return s.deleteWhere(ctx, "Delete", collName, partitionName, func(c *collection) (string, []any, error) {
		if strings.TrimSpace(expr) == "" {
			return "", nil, invalid("an empty expression would delete every row")
		}
		return c.where(expr)
	})
}

// DeleteByPks removes the rows with these keys; missing keys are ignored.
func (s *Store) DeleteByPks(ctx context.Context, collName, partitionName string, ids entity.Column) error {
	return s.deleteWhere(ctx, "DeleteByPks", collName, partitionName, func(c *collection) (string, []any, error) {
		return c.whereKeys(ids)
	})
}

// deleteWhere removes the rows that match.
func (s *Store) deleteWhere(
	ctx context.Context, op, coll, partition string, match func(*collection) (string, []any, error),
) error {
	return s.update(ctx, op, coll, func(tx *sql.Tx, c *collection) error {
		if err := defaultPartition(partition); err != nil {
			return err
		}
		where, args, err := match(c)
		if err != nil {
			return err
		}
		ids, err := c.rowids(ctx, tx, where, args)
		if err != nil {
			return err
		}
		return c.remove(ctx, tx, ids)
	})
}

// whereKeys matches the rows with the given keys.
func (c *collection) whereKeys(ids entity.Column) (string, []any, error) {
	pk := c.schema.Fields[c.pk]
	switch {
	case ids == nil || ids.Len() == 0:
		return "", nil, invalid("no keys are given")
	case ids.Name() != "" && ids.Name() != pk.Name:
		return "", nil, invalid("field %q is not the primary key, %q is", ids.Name(), pk.Name)
	case ids.Type() != pk.DataType:
		return "", nil, invalid("key %q is %s, the column is %s", pk.Name, pk.DataType.Name(), ids.Type().Name())
	}
	keys, err := jsonList(ids)
	return c.column(c.pk) + " IN (SELECT value FROM json_each(?))", []any{keys}, err
}

// remove deletes rows from every table, row by row: neither virtual table has
// a fast way to delete by a list.
func (c *collection) remove(ctx context.Context, tx *sql.Tx, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	tables := []string{c.vectors(), c.rows()}
	if len(c.text) > 0 {
		tables = append(tables, c.fulltext())
	}
	for _, table := range tables {
		if err := removeFrom(ctx, tx, table, ids); err != nil {
			return err
		}
	}
	return nil
}

func removeFrom(ctx context.Context, tx *sql.Tx, table string, ids []int64) error {
	st, err := tx.PrepareContext(ctx, "DELETE FROM "+table+" WHERE rowid = ?")
	if err != nil {
		return err
	}
	defer st.Close()
	for _, id := range ids {
		if _, err := st.ExecContext(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
