package version

import (
	"maps"
	"slices"

	"github.com/penstock-go/penstock/pipeline/rows"
)

// Standing says where a row stands.
type Standing uint8

// The standings.
const (
	// Complete: the row belongs to a complete version, as far as can be told.
	Complete Standing = iota
	// Unfinished: it belongs to a version whose commit mark is not there.
	Unfinished
	// Stale: it belongs to a version that has been replaced.
	Stale
)

// Judge says where each row of one document stands. The attempts are those of
// the document's notes. list holds the document's rows: all, or all its commit
// marks and all rows at the ordinals in question. The rows need ID, Ordinal,
// Chunks, SHA and Policy.
func Judge(attempts []Attempt, list []rows.Row) []Standing {
	verdicts := make([]Standing, len(list))
	if len(attempts) == 0 {
		return verdicts
	}
	j := newJudge(attempts, list)
	for i := range list {
		verdicts[i] = j.row(&list[i])
	}
	return verdicts
}

// judge is the trial of one document's rows.
type judge struct {
	current []current
	open    map[string]bool // stamps of attempts without a commit mark
}

// current is a version that replaces all others.
type current struct {
	Attempt
	mark *rows.Row
	own  map[int]int // rows with its stamp, by ordinal
	old  map[int]int // rows of no attempt, by ordinal
}

func newJudge(attempts []Attempt, list []rows.Row) *judge {
	j := &judge{open: map[string]bool{}}
	for _, a := range attempts {
		if mark := a.mark(list); mark != nil {
			j.current = append(j.current, current{Attempt: a, mark: mark, own: map[int]int{}, old: map[int]int{}})
		} else {
			j.open[a.Stamp] = true
		}
	}
	for _, c := range j.current {
		delete(j.open, c.Stamp)
	}
	j.current = slices.DeleteFunc(j.current, j.replaced())
	for _, c := range j.current {
		c.count(list, j.open)
	}
	return j
}

// mark is the attempt's commit mark among the rows; nil while it is not there.
func (a Attempt) mark(list []rows.Row) *rows.Row {
	for i := range list {
		row := &list[i]
		switch {
		case !row.IsMark() || row.SHA != a.SHA || row.Policy != a.Policy:
		case row.ID == a.Kept, a.Kept == "" && a.New(*row):
			return row
		}
	}
	return nil
}

// replaced reports of a version whether another began later, when it was
// complete.
func (j *judge) replaced() func(current) bool {
	all := slices.Clone(j.current)
	return func(c current) bool {
		return slices.ContainsFunc(all, func(later current) bool {
			return later.At > c.At && later.mark.ID != c.mark.ID && slices.Contains(later.Before, c.mark.ID)
		})
	}
}

// count counts the rows that may be the version's, by ordinal.
func (c current) count(list []rows.Row, open map[string]bool) {
	for _, row := range list {
		switch {
		case row.IsMark() || row.Policy != c.Policy:
		case row.SHA == c.Stamp:
			c.own[row.Ordinal]++
		case !open[row.SHA]:
			c.old[row.Ordinal]++
		}
	}
}

func (j *judge) row(row *rows.Row) Standing {
	if len(j.current) > 0 {
		for _, c := range j.current {
			if c.has(row, j.open[row.SHA]) {
				return Complete
			}
		}
		if row.IsMark() || !j.open[row.SHA] {
			return Stale
		}
	}
	if !row.IsMark() && j.open[row.SHA] {
		return Unfinished
	}
	return Complete
}

// has reports whether a row is of the version. Where the version has no row
// with its stamp at an ordinal, it shares the one that is there with the
// version before; with an open attempt only where nothing else is there, since
// another run may have shared it before it knew.
func (c current) has(row *rows.Row, open bool) bool {
	switch {
	case row.IsMark():
		return row.ID == c.mark.ID
	case row.Policy != c.Policy || row.Ordinal >= c.mark.Chunks-1:
		return false
	case row.SHA == c.Stamp:
		return true
	case c.own[row.Ordinal] > 0:
		return false
	}
	return !open || c.old[row.Ordinal] == 0
}

// Open gives the stamps of the attempts without a commit mark. list holds the
// document's commit marks.
func Open(attempts []Attempt, list []rows.Row) (stamps []string) {
	if len(attempts) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(newJudge(attempts, list).open))
}
