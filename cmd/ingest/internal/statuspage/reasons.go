package statuspage

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/pipeline/journal"
)

const (
	// reasonsShown is how many reasons of each kind the page shows; the
	// documents with other ones are only counted.
	reasonsShown = 8
	// reasonsKept bounds the reasons that are told apart.
	reasonsKept = 200
	// examplesShown is how many documents are named for each reason.
	examplesShown = 3
)

// reasonView is documents that are not ingested for the same reason.
type reasonView struct {
	N           int
	Key         string // for a link
	Stage, Kind string
	Reason      string // of the first one
	Examples    []string
	Last        time.Time
}

// reasons groups problems.
type reasons struct {
	found map[string]*reasonView
	N     int // documents in all
}

func (r *reasons) add(p journal.Problem) {
	r.N++
	key := reasonKey(p)
	one := r.found[key]
	if one == nil {
		if len(r.found) == reasonsKept {
			return
		}
		if r.found == nil {
			r.found = map[string]*reasonView{}
		}
		one = &reasonView{Key: key, Stage: p.Stage, Kind: p.Kind, Reason: clean(p.Reason)}
		r.found[key] = one
	}
	one.N++
	one.Last = latest(one.Last, p.At)
	if len(one.Examples) < examplesShown {
		one.Examples = append(one.Examples, clean(p.ID))
	}
}

// most returns the most frequent reasons.
func (r *reasons) most() (all []reasonView) {
	for _, one := range r.found {
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b reasonView) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(len(all), reasonsShown)]
}

// reasonKey is equal for problems with the same reason.
func reasonKey(p journal.Problem) string {
	sum := fnv.New64a()
	for _, part := range []string{string(p.Status), p.Stage, p.Kind, plain.Pattern(p.Reason, p.ID)} {
		fmt.Fprintf(sum, "%s\x00", part)
	}
	return fmt.Sprintf("%016x", sum.Sum64())
}
