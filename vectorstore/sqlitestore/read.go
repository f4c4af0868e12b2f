package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"google.golang.org/grpc/codes"

	"github.com/penstock-go/penstock/vectorstore/internal/sdkopt"
)

const countField = "count(*)"

// Get returns the rows with these keys, with all fields unless
// client.GetWithOutputFields is given. Missing keys are left out; the order is
// unspecified.
func (s *Store) Get(
	ctx context.Context, collectionName string, ids entity.Column, opts ...client.GetOption,
) (client.ResultSet, error) {
	o := sdkopt.ReadGet(opts)
	if len(o.OutputFields) == 0 {
		o.OutputFields = []string{"*"}
	}
	return s.query(ctx, "Get", collectionName, o.Partitions, func(c *collection) (selection, error) {
		where, args, err := c.whereKeys(ids)
		return selection{fields: o.OutputFields, where: where, args: args}, err
	})
}

// Query returns the rows that match the expression, with the output fields ("*"
// for all) and the primary key, or the number of rows for the single output
// field "count(*)". With client.WithLimit or client.WithOffset, rows are
// ordered by key; the consistency level has no effect.
func (s *Store) Query(
	ctx context.Context, collectionName string, partitionNames []string, expr string, outputFields []string,
	opts ...client.SearchQueryOptionFunc,
) (client.ResultSet, error) {
	o := searchOptions(opts)
	return s.query(ctx, "Query", collectionName, partitionNames, func(c *collection) (selection, error) {
		where, args, err := c.where(expr)
		sel := selection{fields: outputFields, where: where, args: args}
		if o.Limit > 0 || o.Offset > 0 {
			sel.page = fmt.Sprintf(" ORDER BY r.%s LIMIT %d OFFSET %d", c.column(c.pk),
				pageSize(o.Limit), max(o.Offset, 0))
		}
		return sel, err
	})
}

func searchOptions(opts []client.SearchQueryOptionFunc) client.SearchQueryOption {
	var o client.SearchQueryOption
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// pageSize is the limit in SQL, where -1 is none.
func pageSize(limit int64) int64 {
	if limit <= 0 {
		return -1
	}
	return limit
}

// selection is a query in parts.
type selection struct {
	fields []string
	where  string
	args   []any
	page   string
}

func (s *Store) query(
	ctx context.Context, op, coll string, partitions []string, build func(*collection) (selection, error),
) (client.ResultSet, error) {
	var out client.ResultSet
	err := s.view(ctx, op, coll, func(tx *sql.Tx, c *collection) error {
		if err := c.ready(partitions); err != nil {
			return err
		}
		sel, err := build(c)
		if err != nil {
			return err
		}
		out, err = c.run(ctx, tx, sel)
		return err
	})
	return out, err
}

// ready checks the collection before every read.
func (c *collection) ready(partitions []string) error {
	if !c.loaded {
		return faultf(codes.FailedPrecondition, "collection %q is not loaded", c.schema.CollectionName)
	}
	return defaultPartition(partitions...)
}

func (c *collection) run(ctx context.Context, tx *sql.Tx, sel selection) (client.ResultSet, error) {
	if slices.Contains(sel.fields, countField) {
		return c.count(ctx, tx, sel)
	}
	fields, err := c.outputs(sel.fields)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(fields, c.pk) {
		fields = append(fields, c.pk)
	}
	return c.scan(ctx, tx, fields, "FROM "+c.rows()+" AS r WHERE "+sel.where+sel.page, sel.args)
}

func (c *collection) count(ctx context.Context, tx *sql.Tx, sel selection) (client.ResultSet, error) {
	if len(sel.fields) > 1 || sel.page != "" {
		return nil, invalid("count(*) stands alone, without other fields, limit or offset")
	}
	var n int64
	err := tx.QueryRowContext(ctx, "SELECT count(*) FROM "+c.rows()+" WHERE "+sel.where, sel.args...).Scan(&n)
	return client.ResultSet{entity.NewColumnInt64(countField, []int64{n})}, err
}

// outputs returns the positions of the output fields, without duplicates.
func (c *collection) outputs(names []string) ([]int, error) {
	var out []int
	for _, name := range names {
		if name == "*" {
			for i := range c.schema.Fields {
				out = append(out, i)
			}
			continue
		}
		i, ok := c.field(name)
		if !ok {
			return nil, invalid("collection %q has no field %q", c.schema.CollectionName, name)
		}
		out = append(out, i)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// scan runs a SELECT of the fields over the rows table under the name r.
func (c *collection) scan(
	ctx context.Context, tx *sql.Tx, fields []int, from string, args []any,
) (client.ResultSet, error) {
	rows, err := tx.QueryContext(ctx, "SELECT "+strings.Join(c.expressions(fields), ", ")+" "+from, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	builders, dest := c.builders(fields)
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		for _, b := range builders {
			b.push()
		}
	}
	return c.columns(fields, builders), rows.Err()
}

func (c *collection) expressions(fields []int) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = "r." + c.column(f)
		if f == c.vector {
			out[i] = "(SELECT e FROM " + c.vectors() + " WHERE rowid = r.rowid)"
		}
	}
	return out
}

func (c *collection) builders(fields []int) ([]builder, []any) {
	builders, dest := make([]builder, len(fields)), make([]any, len(fields))
	for i, f := range fields {
		builders[i] = c.builder(f)
		dest[i] = builders[i].dest()
	}
	return builders, dest
}

func (c *collection) columns(fields []int, builders []builder) client.ResultSet {
	out := make(client.ResultSet, len(fields))
	for i, f := range fields {
		out[i] = builders[i].column(c.schema.Fields[f].Name)
	}
	return out
}
