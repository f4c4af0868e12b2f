package pipeline

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"github.com/milvus-io/milvus-sdk-go/v2/client"

	"github.com/penstock-go/penstock/pipeline/rows"
)

// exactRows is how many rows are read with their vectors, and ranked here, at
// most.
const exactRows = 4096

// exact completes the ranking of a store that has found less than k rows. An
// index that finds approximately looks at the nearest vectors only, and passes
// over those that the filter leaves out, ours or the caller's: beside thousands
// of these, Milvus finds few of the others, or none.
func (s *visibleSearch) exact(
	ctx context.Context, vector []float32, filter string, k int, found []candidate,
) ([]candidate, error) {
	if len(found) >= k || strings.TrimSpace(filter) == "" {
		return found, nil
	}
	there, err := s.count(ctx, filter)
	if err != nil || there <= len(found) {
		return found, err
	}
	list, err := s.query(ctx, filter, append([]string{rows.Field.Vector}, hitFields...), client.WithLimit(exactRows))
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, c := range found {
		known[c.row.ID] = true
	}
	for _, row := range list {
		if !known[row.ID] {
			similarity := cosine(vector, row.Vector)
			row.Vector = nil
			found = append(found, candidate{row: row, score: similarity, similarity: similarity})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
	return found[:min(k, len(found))], nil
}

// cosine is the similarity of two vectors of one length; 0 where one is 0.
func cosine(a, b []float32) float64 {
	if len(a) != len(b) {
		return 0
	}
	var dot, aa, bb float64
	for i := range a {
		dot += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	if aa*bb == 0 {
		return 0
	}
	return dot / math.Sqrt(aa*bb)
}

// count counts the rows that match.
func (s *visibleSearch) count(ctx context.Context, filter string) (n int, err error) {
	err = s.read(ctx, filter, []string{countField}, func(answer client.ResultSet) (err error) {
		n, err = readCount(answer)
		return err
	})
	return n, err
}
