package vectorstore

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
)

// checkKeys refuses what the SDK's own expression for keys would garble: a
// column without a name where the name goes into it, and, for the SDK's bare
// client, keys that need escaping.
func checkKeys(c any, ids entity.Column, named bool) error {
	switch {
	case isNil(ids) || ids.Len() == 0:
		return errors.New("no keys")
	case ids.Type() != entity.FieldTypeVarChar && ids.Type() != entity.FieldTypeInt64:
		return fmt.Errorf("keys are VARCHAR or INT64, not %s", ids.Type().Name())
	case named && ids.Name() == "":
		return errors.New("the column of keys has no name")
	}
	if bare(c) && awkward(textKeys(ids)) {
		return errors.New("a key holds quotes, backslashes or control characters, which only a client made by NewClient can send")
	}
	return nil
}

// checkPage refuses pages of a Query that the SDK or the server would pass
// over, and then read everything.
func checkPage(opts []client.SearchQueryOptionFunc) error {
	asked, err := optionsOf(opts)
	switch {
	case err != nil:
		return err
	case asked.Limit < 0 || asked.Offset < 0:
		return fmt.Errorf("a page of %d rows from row %d; neither can be negative", asked.Limit, asked.Offset)
	case asked.Offset > 0 && asked.Limit == 0:
		return errors.New("an offset without a limit, over which the server passes")
	case asked.Offset > math.MaxInt64-asked.Limit:
		return fmt.Errorf("a page of %d rows from row %d; the server cannot count so far", asked.Limit, asked.Offset)
	}
	return nil
}

// checkTopK refuses pages of a search that no server has.
func checkTopK(topK int, opts []client.SearchQueryOptionFunc) error {
	asked, err := optionsOf(opts)
	switch {
	case err != nil:
		return err
	case topK < 1:
		return fmt.Errorf("%d rows are asked for, need at least 1", topK)
	case asked.Offset < 0 || asked.Offset > math.MaxInt64-int64(topK):
		return fmt.Errorf("%d rows from row %d on", topK, asked.Offset)
	}
	return nil
}

// optionsOf is what the options ask for.
func optionsOf(opts []client.SearchQueryOptionFunc) (asked client.SearchQueryOption, err error) {
	for i, o := range opts {
		if o == nil {
			return asked, fmt.Errorf("option %d is nil", i)
		}
		o(&asked)
	}
	return asked, nil
}

// wantedPage checks a page of a Query: no more rows than were asked for.
func wantedPage(opts []client.SearchQueryOptionFunc) func(client.ResultSet) error {
	return func(set client.ResultSet) error {
		if asked, _ := optionsOf(opts); asked.Limit > 0 && int64(set.Len()) > asked.Limit {
			return fmt.Errorf("%d rows, %d were asked for", set.Len(), asked.Limit)
		}
		return evenRows(set)
	}
}

// bare reports whether c is the SDK's client, or something around it, whose
// requests nobody checks.
func bare(c any) bool {
	_, sdk := c.(client.Client)
	_, ours := c.(typed)
	return sdk && !ours
}

// The checks of answers.

func sameRows(columns []entity.Column) func(entity.Column) error {
	return func(ids entity.Column) error {
		if isNil(ids) || ids.Len() != columns[0].Len() {
			return fmt.Errorf("%d rows were sent, %d keys came back", columns[0].Len(), columnLen(ids))
		}
		return nil
	}
}

func columnLen(c entity.Column) int {
	if isNil(c) {
		return 0
	}
	return c.Len()
}

func evenRows(set client.ResultSet) error {
	for _, col := range set {
		if isNil(col) {
			return errors.New("a column that is nil")
		}
		if col.Len() != set.Len() {
			return fmt.Errorf("columns of %d and %d rows", set.Len(), col.Len())
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
	case len(r.Fields) > 0 && r.ResultCount > 0 && columnLen(r.Fields[0]) != r.ResultCount:
		return fmt.Errorf("%d rows, fields of %d", r.ResultCount, columnLen(r.Fields[0]))
	}
	if finite(r.Scores) != nil {
		return errors.New("a score is not finite")
	}
	return evenRows(r.Fields)
}

func wantedRows(limit int) func([]client.SearchResult) error {
	return func(results []client.SearchResult) error { return wantedResults(len(results), limit)(results) }
}

func checkSchema(schema *entity.Schema) error {
	if schemaName(schema) == "" {
		return errors.New("the schema has no collection name")
	}
	for i, f := range schema.Fields {
		if f == nil {
			return fmt.Errorf("field %d is nil", i)
		}
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
	if isNil(idx) {
		return errors.New("no index")
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
		return errors.New("the expression is empty")
	}
	return nil
}
