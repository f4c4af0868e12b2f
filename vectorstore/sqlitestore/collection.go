package sqlitestore

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"google.golang.org/grpc/codes"
)

// Milvus numbers the fields of a user from 100 on.
const firstFieldID = 100

// indexDef holds the arguments of CreateIndex for a field.
type indexDef struct {
	Name   string            `json:"name"`
	Type   entity.IndexType  `json:"type"`
	Params map[string]string `json:"params"`
}

// collection is a row of the catalogue: the schema and where its rows live.
type collection struct {
	id      int64
	schema  *entity.Schema
	shards  int32
	metric  entity.MetricType
	indexes map[string]indexDef // by field name
	loaded  bool

	pk, vector int   // positions in schema.Fields
	text       []int // full-text fields, in the order of the schema
}

// The tables of a collection. A field's column is named by its position, so
// that no name of the caller's is ever part of a statement.
func (c *collection) rows() string        { return "c" + strconv.FormatInt(c.id, 10) }
func (c *collection) vectors() string     { return "v" + strconv.FormatInt(c.id, 10) }
func (c *collection) fulltext() string    { return "t" + strconv.FormatInt(c.id, 10) }
func (c *collection) column(i int) string { return "f" + strconv.Itoa(i) }

func (c *collection) field(name string) (int, bool) {
	i := slices.IndexFunc(c.schema.Fields, func(f *entity.Field) bool { return f.Name == name })
	return i, i >= 0
}

func (c *collection) dim() int {
	n, _ := strconv.Atoi(c.schema.Fields[c.vector].TypeParams[entity.TypeParamDim])
	return n
}

// newCollection checks that the store can hold the schema.
func newCollection(sch *entity.Schema) (*collection, error) {
	c := &collection{schema: sch, pk: -1, vector: -1, indexes: map[string]indexDef{}, metric: entity.COSINE}
	if sch == nil || sch.CollectionName == "" {
		return nil, invalid("the schema has no collection name")
	}
	if sch.EnableDynamicField || sch.AutoID {
		return nil, invalid("dynamic fields and generated keys are not supported")
	}
	seen := map[string]bool{}
	for i, f := range sch.Fields {
		if f.Name == "" || seen[f.Name] {
			return nil, invalid("field %d: name %q is empty or used twice", i, f.Name)
		}
		seen[f.Name] = true
		if err := c.admit(i, f); err != nil {
			return nil, err
		}
	}
	if c.pk < 0 || c.vector < 0 {
		return nil, invalid("a collection needs one primary key and one vector field")
	}
	return c, nil
}

func (c *collection) admit(i int, f *entity.Field) error {
	if f.AutoID || f.IsDynamic {
		return invalid("field %q: dynamic fields and generated keys are not supported", f.Name)
	}
	if f.PrimaryKey {
		if c.pk >= 0 || (f.DataType != entity.FieldTypeVarChar && f.DataType != entity.FieldTypeInt64) {
			return invalid("field %q: the primary key is one VARCHAR or INT64 field", f.Name)
		}
		c.pk = i
	}
	switch f.DataType {
	case entity.FieldTypeFloatVector:
		if n, err := strconv.Atoi(f.TypeParams[entity.TypeParamDim]); err != nil || n < 1 || n > 8192 || c.vector >= 0 {
			return invalid("field %q: the vector is one FLOAT_VECTOR field of 1 to 8192 dimensions", f.Name)
		}
		c.vector = i
	case entity.FieldTypeVarChar:
		if n, err := strconv.Atoi(f.TypeParams[entity.TypeParamMaxLength]); err != nil || n < 1 || n > 65535 {
			return invalid("field %q: max_length is 1 to 65535 bytes", f.Name)
		}
		if f.Name == "heading" || f.Name == "text" {
			c.text = append(c.text, i)
		}
	case entity.FieldTypeBool, entity.FieldTypeInt8, entity.FieldTypeInt16,
		entity.FieldTypeInt32, entity.FieldTypeInt64,
		entity.FieldTypeFloat, entity.FieldTypeDouble, entity.FieldTypeJSON:
	default:
		return invalid("field %q: type %s is not supported", f.Name, f.DataType.Name())
	}
	return nil
}

// HasCollection reports whether a collection of that name exists.
func (s *Store) HasCollection(ctx context.Context, collName string) (bool, error) {
	var n int
	err := s.read.QueryRowContext(ctx, `SELECT count(*) FROM collection WHERE name = ?`, collName).Scan(&n)
	return n > 0, s.wrap(ctx, "HasCollection", err)
}

// ListCollections lists the collections with ID, name and load state, in order
// of creation.
func (s *Store) ListCollections(ctx context.Context, _ ...client.ListCollectionOption) ([]*entity.Collection, error) {
	list, err := s.listCollections(ctx)
	return list, s.wrap(ctx, "ListCollections", err)
}

func (s *Store) listCollections(ctx context.Context) ([]*entity.Collection, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT id, name, loaded FROM collection ORDER BY id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []*entity.Collection
	for rows.Next() {
		c := new(entity.Collection)
		if err := rows.Scan(&c.ID, &c.Name, &c.Loaded); err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, rows.Err()
}

// CreateCollection creates a collection. If one of the same name and schema
// exists, nothing changes; with another schema the error is AlreadyExists. The
// number of shards is stored but has no effect; options are ignored.
func (s *Store) CreateCollection(
	ctx context.Context, schema *entity.Schema, shardsNum int32, _ ...client.CreateCollectionOption,
) error {
	c, err := newCollection(schema)
	if err != nil {
		return s.wrap(ctx, "CreateCollection", err)
	}
	return s.inTx(ctx, s.write, "CreateCollection", func(tx *sql.Tx) error {
		return createCollection(ctx, tx, c, shardsNum)
	})
}

func createCollection(ctx context.Context, tx *sql.Tx, c *collection, shards int32) error {
	text, err := json.Marshal(numbered(c.schema))
	if err != nil {
		return err
	}
	old, err := loadMeta(ctx, tx, c.schema.CollectionName)
	switch {
	case err == nil:
		return sameSchema(old, text)
	case !isNotFound(err):
		return err
	}
	res, err := tx.ExecContext(ctx, `INSERT INTO collection(name, schema, shards, metric) VALUES(?, ?, ?, ?)`,
		c.schema.CollectionName, string(text), shards, string(c.metric))
	if err != nil {
		return err
	}
	if c.id, err = res.LastInsertId(); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, c.ddl())
	return err
}

// numbered returns the schema with the field IDs that a server would assign.
func numbered(sch *entity.Schema) *entity.Schema {
	out := *sch
	out.Fields = make([]*entity.Field, len(sch.Fields))
	for i, f := range sch.Fields {
		g := *f
		g.ID = int64(firstFieldID + i)
		out.Fields[i] = &g
	}
	return &out
}

func sameSchema(old *collection, text []byte) error {
	have, err := json.Marshal(old.schema)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, text) {
		return faultf(codes.AlreadyExists, "collection %q exists with another schema", old.schema.CollectionName)
	}
	return nil
}

// ddl creates the tables: the scalar fields, the vectors, and the full text,
// which is contentless (the rows hold the text) and keyed by rowid.
func (c *collection) ddl() string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE %s(rowid INTEGER PRIMARY KEY", c.rows())
	for i, f := range c.schema.Fields {
		if i == c.vector {
			continue
		}
		fmt.Fprintf(&b, ", %s %s NOT NULL", c.column(i), sqlType(f.DataType))
		if i == c.pk {
			b.WriteString(" UNIQUE")
		}
	}
	b.WriteString(");\n")
	if i, ok := c.field("doc"); ok && i != c.pk && i != c.vector {
		b.WriteString(c.scalarIndexDDL(i))
	}
	b.WriteString(c.vectorDDL(c.vectors()))
	if len(c.text) > 0 {
		fmt.Fprintf(&b, "CREATE VIRTUAL TABLE %s USING fts5(%s, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2');\n",
			c.fulltext(), strings.Join(c.textColumns(), ", "))
	}
	return b.String()
}

func (c *collection) textColumns() []string {
	names := make([]string, len(c.text))
	for i, f := range c.text {
		names[i] = c.column(f)
	}
	return names
}

func (c *collection) vectorDDL(table string) string {
	metric := "cosine"
	if c.metric == entity.L2 {
		metric = "l2"
	}
	return fmt.Sprintf("CREATE VIRTUAL TABLE %s USING vec0(e float[%d] distance_metric=%s);\n", table, c.dim(), metric)
}

func (c *collection) scalarIndexDDL(i int) string {
	return fmt.Sprintf("CREATE INDEX IF NOT EXISTS %s_%s ON %s(%s);\n", c.rows(), c.column(i), c.rows(), c.column(i))
}

func sqlType(t entity.FieldType) string {
	switch t {
	case entity.FieldTypeVarChar, entity.FieldTypeJSON:
		return "TEXT"
	case entity.FieldTypeFloat, entity.FieldTypeDouble:
		return "REAL"
	default:
		return "INTEGER"
	}
}

// DescribeCollection returns the collection with its schema and description.
func (s *Store) DescribeCollection(ctx context.Context, collName string) (*entity.Collection, error) {
	var out *entity.Collection
	err := s.view(ctx, "DescribeCollection", collName, func(_ *sql.Tx, c *collection) error {
		out = &entity.Collection{
			ID: c.id, Name: c.schema.CollectionName, Schema: c.schema, Loaded: c.loaded,
			ConsistencyLevel: entity.ClStrong, ShardNum: c.shards,
		}
		return nil
	})
	return out, err
}

// DropCollection removes the collection with its rows. A missing collection is
// not an error, as on the server.
func (s *Store) DropCollection(ctx context.Context, collName string, _ ...client.DropCollectionOption) error {
	return s.inTx(ctx, s.write, "DropCollection", func(tx *sql.Tx) error {
		c, err := loadMeta(ctx, tx, collName)
		if isNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		stmts := fmt.Sprintf("DROP TABLE %s; DROP TABLE %s; DELETE FROM collection WHERE id = %d;",
			c.rows(), c.vectors(), c.id)
		if len(c.text) > 0 {
			stmts += fmt.Sprintf("DROP TABLE %s;", c.fulltext())
		}
		_, err = tx.ExecContext(ctx, stmts)
		return err
	})
}

// CreateIndex records the index and, on the vector field, sets the metric
// (its "metric_type", COSINE by default). On a scalar field it creates an index
// that speeds up filters on it. The index is complete when it returns.
func (s *Store) CreateIndex(
	ctx context.Context, collName, fieldName string, idx entity.Index, _ bool, _ ...client.IndexOption,
) error {
	return s.update(ctx, "CreateIndex", collName, func(tx *sql.Tx, c *collection) error {
		i, ok := c.field(fieldName)
		if !ok {
			return invalid("collection %q has no field %q", collName, fieldName)
		}
		if err := c.buildIndex(ctx, tx, i, idx); err != nil {
			return err
		}
		c.indexes[fieldName] = indexDef{Name: idx.Name(), Type: idx.IndexType(), Params: idx.Params()}
		text, err := json.Marshal(c.indexes)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE collection SET indexes = ?, metric = ? WHERE id = ?`,
			string(text), string(c.metric), c.id)
		return err
	})
}

func (c *collection) buildIndex(ctx context.Context, tx *sql.Tx, i int, idx entity.Index) error {
	if i != c.vector {
		_, err := tx.ExecContext(ctx, c.scalarIndexDDL(i))
		return err
	}
	metric := entity.MetricType(idx.Params()["metric_type"])
	switch metric {
	case c.metric, "":
		return nil
	case entity.COSINE, entity.L2:
		return c.changeMetric(ctx, tx, metric)
	default:
		return invalid("metric %q is not supported; COSINE and L2 are", metric)
	}
}

// changeMetric copies the vectors into a table with the other metric, since the
// metric is part of the table.
func (c *collection) changeMetric(ctx context.Context, tx *sql.Tx, metric entity.MetricType) error {
	c.metric = metric
	_, err := tx.ExecContext(ctx, fmt.Sprintf(`
CREATE TEMP TABLE moving AS SELECT rowid AS r, e FROM %[1]s;
DROP TABLE %[1]s;
%[2]s
INSERT INTO %[1]s(rowid, e) SELECT r, e FROM moving;
DROP TABLE moving;`, c.vectors(), c.vectorDDL(c.vectors())))
	return err
}

// DescribeIndex returns the index of a field, or NotFound.
func (s *Store) DescribeIndex(
	ctx context.Context, collName, fieldName string, _ ...client.IndexOption,
) ([]entity.Index, error) {
	var out []entity.Index
	err := s.view(ctx, "DescribeIndex", collName, func(_ *sql.Tx, c *collection) error {
		def, ok := c.indexes[fieldName]
		if !ok {
			return faultf(codes.NotFound, "field %q of collection %q has no index", fieldName, collName)
		}
		params := maps.Clone(def.Params)
		if fieldName == c.schema.Fields[c.vector].Name {
			params["metric_type"] = string(c.metric)
		}
		out = []entity.Index{entity.NewGenericIndex(def.Name, def.Type, params)}
		return nil
	})
	return out, err
}

// LoadCollection makes the collection searchable. It needs an index on the
// vector field, as on the server.
func (s *Store) LoadCollection(ctx context.Context, collName string, _ bool, _ ...client.LoadCollectionOption) error {
	return s.update(ctx, "LoadCollection", collName, func(tx *sql.Tx, c *collection) error {
		name := c.schema.Fields[c.vector].Name
		if _, ok := c.indexes[name]; !ok {
			return faultf(codes.FailedPrecondition, "field %q of collection %q has no index", name, collName)
		}
		return c.setLoaded(ctx, tx, true)
	})
}

// ReleaseCollection undoes LoadCollection.
func (s *Store) ReleaseCollection(ctx context.Context, collName string, _ ...client.ReleaseCollectionOption) error {
	return s.update(ctx, "ReleaseCollection", collName, func(tx *sql.Tx, c *collection) error {
		return c.setLoaded(ctx, tx, false)
	})
}

func (c *collection) setLoaded(ctx context.Context, tx *sql.Tx, loaded bool) error {
	_, err := tx.ExecContext(ctx, `UPDATE collection SET loaded = ? WHERE id = ?`, loaded, c.id)
	return err
}

// GetLoadState returns the load state; for a missing collection it is
// LoadStateNotExist, without an error.
func (s *Store) GetLoadState(ctx context.Context, collName string, _ []string) (entity.LoadState, error) {
	var loaded bool
	err := s.read.QueryRowContext(ctx, `SELECT loaded FROM collection WHERE name = ?`, collName).Scan(&loaded)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return entity.LoadStateNotExist, nil
	case err != nil:
		return entity.LoadStateNotExist, s.wrap(ctx, "GetLoadState", err)
	case loaded:
		return entity.LoadStateLoaded, nil
	default:
		return entity.LoadStateNotLoad, nil
	}
}

// Flush moves written data into the main file and syncs it. Writes survive a
// crash of the process without it.
func (s *Store) Flush(ctx context.Context, collName string, _ bool, _ ...client.FlushOption) error {
	has, err := s.HasCollection(ctx, collName)
	if err == nil && !has {
		err = s.wrap(ctx, "Flush", notFound(collName))
	}
	if err != nil {
		return err
	}
	_, err = s.write.ExecContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`)
	return s.wrap(ctx, "Flush", err)
}

func notFound(coll string) error {
	return faultf(codes.NotFound, "collection %q does not exist", coll)
}

func isNotFound(err error) bool {
	f, ok := errors.AsType[*fault](err)
	return ok && f.code == codes.NotFound
}

// loadMeta reads a collection's row of the catalogue.
func loadMeta(ctx context.Context, tx *sql.Tx, name string) (*collection, error) {
	var (
		id            int64
		text, indexes string
		shards        int32
		metric        string
		loaded        bool
	)
	err := tx.QueryRowContext(ctx, `SELECT id, schema, shards, metric, indexes, loaded FROM collection WHERE name = ?`,
		name).
		Scan(&id, &text, &shards, &metric, &indexes, &loaded)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, notFound(name)
	}
	if err != nil {
		return nil, err
	}
	sch, err := decodeSchema(text)
	if err != nil {
		return nil, err
	}
	c, err := newCollection(sch)
	if err != nil {
		return nil, err
	}
	c.id, c.shards, c.metric, c.loaded = id, shards, entity.MetricType(metric), loaded
	return c, json.Unmarshal([]byte(indexes), &c.indexes)
}

func decodeSchema(text string) (*entity.Schema, error) {
	var raw entity.Schema
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return nil, err
	}
	fields := raw.Fields
	raw.Fields = nil
	for _, f := range fields { // WithField notes the primary key, which JSON cannot
		raw.WithField(f)
	}
	return &raw, nil
}

// DropIndex removes the index of a field. Rows and vectors stay. The vector
// field's index can be removed only while the collection is not loaded, as on
// the server.
func (s *Store) DropIndex(ctx context.Context, collName, fieldName string, _ ...client.IndexOption) error {
	return s.update(ctx, "DropIndex", collName, func(tx *sql.Tx, c *collection) error {
		i, ok := c.field(fieldName)
		if !ok {
			return invalid("collection %q has no field %q", collName, fieldName)
		}
		if i == c.vector && c.loaded {
			return faultf(codes.FailedPrecondition, "collection %q is loaded; release it first", collName)
		}
		delete(c.indexes, fieldName)
		text, err := json.Marshal(c.indexes)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx,
			fmt.Sprintf("DROP INDEX IF EXISTS %s_%s; UPDATE collection SET indexes = ? WHERE id = ?",
				c.rows(), c.column(i)), string(text), c.id)
		return err
	})
}
