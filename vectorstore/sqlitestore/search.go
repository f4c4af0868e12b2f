package sqlitestore

import (
	"context"
	"database/sql"
	"slices"
	"strconv"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
)

// Search finds for each vector the topK (1 to 4096) nearest rows that match the
// expression, best first. Scores are as in Milvus: similarity for COSINE,
// squared distance for L2. The metric must be the collection's (or ""); search
// parameters are for approximate indexes and are ignored, since the search is
// exact.
func (s *Store) Search(ctx context.Context, collName string, partitions []string, expr string, outputFields []string,
	vectors []entity.Vector, vectorField string, metricType entity.MetricType, topK int, _ entity.SearchParam,
	opts ...client.SearchQueryOptionFunc,
) ([]client.SearchResult, error) {
	var out []client.SearchResult
	offset := int(searchOptions(opts).Offset)
	err := s.view(ctx, "Search", collName, func(tx *sql.Tx, c *collection) error {
		q, err := c.newSearch(partitions, expr, outputFields, topK, offset)
		if err != nil {
			return err
		}
		if err := c.checkSearch(vectors, vectorField, metricType); err != nil {
			return err
		}
		for _, v := range vectors {
			r, err := q.nearest(ctx, tx, v.Serialize())
			if err != nil {
				return err
			}
			out = append(out, r)
		}
		return nil
	})
	return out, err
}

func (c *collection) checkSearch(vectors []entity.Vector, field string, metric entity.MetricType) error {
	if field != c.schema.Fields[c.vector].Name {
		return invalid("collection %q has no vector field %q", c.schema.CollectionName, field)
	}
	if metric != "" && metric != c.metric {
		return invalid("the metric of collection %q is %s, not %s", c.schema.CollectionName, c.metric, metric)
	}
	if len(vectors) == 0 {
		return invalid("no vectors to search for")
	}
	for i, v := range vectors {
		fv, ok := v.(entity.FloatVector)
		if !ok {
			return invalid("vector %d is %s, not FloatVector", i, v.FieldType().Name())
		}
		if err := c.checkVector(fv); err != nil {
			return invalid("vector %d: %v", i, err)
		}
	}
	return nil
}

// search is a checked request for the best rows.
type search struct {
	c            *collection
	where        string
	args         []any
	fields       []int
	topK, offset int
}

func (c *collection) newSearch(partitions []string, expr string, outputs []string, topK, offset int) (*search, error) {
	if err := c.ready(partitions); err != nil {
		return nil, err
	}
	if topK < 1 || offset < 0 || topK+offset > maxTopK {
		return nil, invalid("topK %d with offset %d is not within 1 to %d", topK, offset, maxTopK)
	}
	q := &search{c: c, topK: topK, offset: offset}
	var err error
	if q.where, q.args, err = c.where(expr); err != nil {
		return nil, err
	}
	q.fields, err = c.outputs(outputs)
	return q, err
}

// hit is a row found and its score.
type hit struct {
	rowid int64
	score float32
}

func (q *search) nearest(ctx context.Context, tx *sql.Tx, vector []byte) (client.SearchResult, error) {
	sqlText := "SELECT rowid, distance FROM " + q.c.vectors() + " WHERE e MATCH ? AND k = ?"
	args := []any{vector, q.topK + q.offset}
	if q.where != "1" {
		sqlText += " AND rowid IN (SELECT rowid FROM " + q.c.rows() + " WHERE " + q.where + ")"
		args = append(args, q.args...)
	}
	hits, err := readHits(ctx, tx, sqlText+" ORDER BY distance", args, q.c.score)
	if err != nil {
		return client.SearchResult{}, err
	}
	return q.result(ctx, tx, hits)
}

func (c *collection) score(distance float64) float32 {
	if c.metric == entity.L2 {
		return float32(distance * distance)
	}
	return float32(1 - distance)
}

func readHits(ctx context.Context, tx *sql.Tx, text string, args []any, score func(float64) float32) ([]hit, error) {
	rows, err := tx.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var hits []hit
	for rows.Next() {
		var (
			h hit
			d float64
		)
		if err := rows.Scan(&h.rowid, &d); err != nil {
			return nil, err
		}
		h.score = score(d)
		hits = append(hits, h)
	}
	return hits, rows.Err()
}

// result reads the rows of the hits, in the order of the hits.
func (q *search) result(ctx context.Context, tx *sql.Tx, hits []hit) (client.SearchResult, error) {
	hits = hits[min(q.offset, len(hits)):]
	list := make([]byte, 0, 8*len(hits)+2)
	list = append(list, '[')
	for i, h := range hits {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, h.rowid, 10)
	}
	list = append(list, ']')

	fields := append(slices.Clone(q.fields), q.c.pk)
	set, err := q.c.scan(ctx, tx, fields,
		"FROM json_each(?) AS j CROSS JOIN "+q.c.rows()+" AS r ON r.rowid = j.value ORDER BY j.key",
		[]any{string(list)})
	if err != nil {
		return client.SearchResult{}, err
	}
	r := client.SearchResult{
		ResultCount: len(hits), IDs: set[len(set)-1], Fields: set[:len(set)-1],
		Scores: make([]float32, len(hits)),
	}
	for i, h := range hits {
		r.Scores[i] = h.score
	}
	return r, nil
}
