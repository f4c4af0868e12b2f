package vectorstore

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
)

// maxVarChar is the most bytes that any VARCHAR field can have.
const maxVarChar = 65535

// checkColumns finds what the SDK would send although it cannot be stored, or,
// for vectors of mixed lengths, would be stored shifted.
func checkColumns(columns []entity.Column) error {
	if len(columns) == 0 {
		return fmt.Errorf("no columns")
	}
	for _, col := range columns {
		if col == nil || col.Len() == 0 {
			return fmt.Errorf("a column without rows")
		}
		if col.Len() != columns[0].Len() {
			return fmt.Errorf("column %q has %d rows, %q has %d", col.Name(), col.Len(), columns[0].Name(), columns[0].Len())
		}
		if err := checkColumn(col); err != nil {
			return fmt.Errorf("column %q: %w", col.Name(), err)
		}
	}
	return nil
}

func checkColumn(col entity.Column) error {
	switch col := col.(type) {
	case *entity.ColumnFloatVector:
		return checkRows(col.Data(), func(v []float32) error {
			if len(v) != col.Dim() {
				return fmt.Errorf("%d dimensions, the column has %d", len(v), col.Dim())
			}
			return finite(v)
		})
	case *entity.ColumnVarChar:
		return checkRows(col.Data(), checkText)
	case *entity.ColumnJSONBytes:
		return checkRows(col.Data(), func(v []byte) error {
			if !json.Valid(v) {
				return fmt.Errorf("not valid JSON")
			}
			return nil
		})
	}
	return nil
}

func checkRows[T any](rows []T, check func(T) error) error {
	for i, v := range rows {
		if err := check(v); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	return nil
}

func checkText(s string) error {
	switch {
	case len(s) > maxVarChar:
		return fmt.Errorf("%d bytes, VARCHAR holds %d", len(s), maxVarChar)
	case !utf8.ValidString(s):
		return fmt.Errorf("not valid UTF-8")
	}
	return nil
}

func finite(v []float32) error {
	for i, x := range v {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return fmt.Errorf("dimension %d is not finite", i)
		}
	}
	return nil
}

func checkVectors(vectors []entity.Vector) error {
	if len(vectors) == 0 {
		return fmt.Errorf("no vectors to search for")
	}
	return checkRows(vectors, func(v entity.Vector) error {
		switch fv, float := v.(entity.FloatVector); {
		case v == nil: // the SDK would panic
			return fmt.Errorf("no vector")
		case v.FieldType() != vectors[0].FieldType():
			return fmt.Errorf("%s among %s", v.FieldType().Name(), vectors[0].FieldType().Name())
		case float && len(fv) == 0:
			return fmt.Errorf("no dimensions")
		case float:
			return finite(fv)
		}
		return nil
	})
}

// checkKeys refuses what the SDK's own expression for keys would garble: a
// column without a name where the name goes into it, and, for the SDK's bare
// client, keys that need escaping.
func checkKeys(c any, ids entity.Column, named bool) error {
	switch {
	case ids == nil || ids.Len() == 0:
		return fmt.Errorf("no keys")
	case ids.Type() != entity.FieldTypeVarChar && ids.Type() != entity.FieldTypeInt64:
		return fmt.Errorf("keys are VARCHAR or INT64, not %s", ids.Type().Name())
	case named && ids.Name() == "":
		return fmt.Errorf("the column of keys has no name")
	}
	if _, bare := c.(*client.GrpcClient); bare && awkward(ids) {
		return fmt.Errorf("a key holds quotes, backslashes or control characters, which only a client made by NewClient can send")
	}
	return nil
}

// The checks of answers.

func sameRows(columns []entity.Column) func(entity.Column) error {
	return func(ids entity.Column) error {
		if ids == nil || ids.Len() != columns[0].Len() {
			return fmt.Errorf("%d rows were sent, %d keys came back", columns[0].Len(), columnLen(ids))
		}
		return nil
	}
}

func columnLen(c entity.Column) int {
	if c == nil {
		return 0
	}
	return c.Len()
}

func evenRows(set client.ResultSet) error {
	for _, col := range set {
		if col == nil || col.Len() != set.Len() {
			return fmt.Errorf("columns of %d and %d rows", set.Len(), columnLen(col))
		}
	}
	return nil
}

// wantedResults checks the shape of search results: one for each query, no
// more rows than asked for, ids and scores and fields of one length.
func wantedResults(queries, topK int) func([]client.SearchResult) error {
	return func(results []client.SearchResult) error {
		if len(results) != queries {
			return fmt.Errorf("%d queries, %d results", queries, len(results))
		}
		for i, r := range results {
			if err := wantedResult(r, topK); err != nil {
				return fmt.Errorf("result %d: %w", i, err)
			}
		}
		return nil
	}
}

func wantedResult(r client.SearchResult, topK int) error {
	switch {
	case r.Err != nil:
		return r.Err
	case r.ResultCount > topK:
		return fmt.Errorf("%d rows, %d were asked for", r.ResultCount, topK)
	case len(r.Scores) != r.ResultCount || columnLen(r.IDs) != r.ResultCount:
		return fmt.Errorf("%d rows, %d scores, %d keys", r.ResultCount, len(r.Scores), columnLen(r.IDs))
	case len(r.Fields) > 0 && r.ResultCount > 0 && r.Fields.Len() != r.ResultCount:
		return fmt.Errorf("%d rows, fields of %d", r.ResultCount, r.Fields.Len())
	}
	if finite(r.Scores) != nil {
		return fmt.Errorf("a score is not finite")
	}
	return evenRows(r.Fields)
}

func wantedRows(limit int) func([]client.SearchResult) error {
	return func(results []client.SearchResult) error { return wantedResults(len(results), limit)(results) }
}

func checkHybrid(reranker client.Reranker, requests []*client.ANNSearchRequest) error {
	if reranker == nil || len(requests) == 0 {
		return fmt.Errorf("a reranker and at least one request are needed")
	}
	return nil
}

func checkSchema(schema *entity.Schema) error {
	if schemaName(schema) == "" {
		return fmt.Errorf("the schema has no collection name")
	}
	return nil
}

func schemaName(schema *entity.Schema) string {
	if schema == nil {
		return ""
	}
	return schema.CollectionName
}

func checkIndex(idx entity.Index) error {
	if idx == nil {
		return fmt.Errorf("no index")
	}
	return nil
}

// noParams stands for search parameters that were not given, over which the SDK
// would panic.
func noParams() entity.SearchParam {
	sp, _ := entity.NewIndexFlatSearchParam() // the error is for parameters out of range
	return sp
}

// settleEmpty takes the error off results without rows: the SDK fails to read
// the fields of nothing, and says so in the result.
func settleEmpty(results []client.SearchResult, err error) ([]client.SearchResult, error) {
	for i := range results {
		if results[i].ResultCount == 0 {
			results[i].Err = nil
		}
	}
	return results, err
}

func checkFilter(expr string) error {
	if strings.TrimSpace(expr) == "" {
		return fmt.Errorf("the expression is empty")
	}
	return nil
}
