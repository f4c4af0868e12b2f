package pipeline

import (
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// someHeld are originals of up to 40 documents, sorted.
func someHeld(r *rand.Rand, old bool) []held {
	var list []held
	for range r.IntN(100) {
		list = append(list, held{document: hash{byte(r.IntN(40))}, sha: hash{byte(r.Int())}, old: old})
	}
	slices.SortFunc(list, func(a, b held) int { return a.document.compare(b.document) })
	return list
}

func listed(list []held) iter.Seq2[held, error] {
	return func(yield func(held, error) bool) {
		for _, one := range list {
			if !yield(one, nil) {
				return
			}
		}
	}
}

// Whatever the listings are, each document is in one stretch, with all its
// originals, and one that has none is in one as well.
func TestStretches(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		own, old := someHeld(r, false), someHeld(r, true)
		most := 1 + r.IntN(30)
		covered, found, longest := map[hash]int{}, map[hash]int{}, 0
		for s, err := range stretches(merged(listed(own), listed(old)), most) {
			require.NoError(t, err)
			longest = max(longest, len(s.list))
			for i := range 45 {
				if document := (hash{byte(i)}); s.covers(document) {
					covered[document]++
					found[document] += len(s.of(document))
				}
			}
			total := 0
			for all := range s.documents() {
				total += len(all)
			}
			require.Equal(t, len(s.list), total)
		}
		for i := range 45 {
			document := hash{byte(i)}
			want := 0
			for _, one := range slices.Concat(own, old) {
				if one.document == document {
					want++
				}
			}
			require.Equal(t, 1, covered[document], "seed %d, document %d", seed, i)
			require.Equal(t, want, found[document], "seed %d, document %d", seed, i)
		}
		assert.LessOrEqual(t, longest, most+100)
	}
}

// An error of either listing is the last of the merged one.
func TestMergedEndsWithAnError(t *testing.T) {
	list := []held{{document: hash{1}}, {document: hash{2}}}
	failing := func(yield func(held, error) bool) {
		if yield(list[0], nil) {
			yield(held{}, assert.AnError)
		}
	}
	for i, listing := range []iter.Seq2[held, error]{
		merged(failing, listed(list)), merged(listed(list), failing), merged(failing, listed(nil)),
	} {
		var last error
		for _, err := range listing {
			require.NoError(t, last, "%d: nothing comes after an error", i)
			last = err
		}
		require.ErrorIs(t, last, assert.AnError, "%d", i)
	}
}
