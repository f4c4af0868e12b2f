package version

import (
	"cmp"
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
	done    []*complete     // by the time of their last attempts
	current []*complete     // those that no other has replaced
	open    map[string]bool // stamps of attempts without a commit mark
	named   map[string]bool // stamps of all attempts
	free    map[place]int   // rows whose stamp is not named
	stray   map[place]int   // rows with an open stamp
	deleted int64           // when the document was deleted last; 0 for never
}

// place is where a version may have a row.
type place struct {
	policy  string
	ordinal int
}

// complete is a version whose commit mark is there.
type complete struct {
	Attempt  // the last on it, which knows best what it replaces
	attempts []Attempt
	stamps   map[string]bool
	mark     *rows.Row
	before   *complete   // the version that it replaces, if that was noted as well
	own      map[int]int // rows with its stamps, by ordinal
}

func newJudge(attempts []Attempt, list []rows.Row) *judge {
	j := &judge{
		open: map[string]bool{}, named: map[string]bool{}, free: map[place]int{}, stray: map[place]int{},
	}
	for _, a := range attempts {
		if a.Deleted {
			j.deleted = max(j.deleted, a.At)
			continue
		}
		j.named[a.Stamp] = true
		if mark := a.mark(list); mark != nil {
			j.complete(a, mark)
		} else {
			j.open[a.Stamp] = true
		}
	}
	j.done = slices.DeleteFunc(j.done, func(c *complete) bool { return c.At < j.deleted })
	slices.SortStableFunc(j.done, func(a, b *complete) int { return cmp.Compare(a.At, b.At) })
	for _, c := range j.done {
		maps.DeleteFunc(j.open, func(stamp string, _ bool) bool { return c.stamps[stamp] })
		for _, row := range list {
			if !row.IsMark() && row.Policy == c.Policy && c.stamps[row.SHA] {
				c.own[row.Ordinal]++
			}
		}
	}
	for _, row := range list {
		switch at := (place{row.Policy, row.Ordinal}); {
		case row.IsMark():
		case j.open[row.SHA]:
			j.stray[at]++
		case !j.named[row.SHA]:
			j.free[at]++
		}
	}
	j.order()
	return j
}

// complete adds an attempt to the version whose commit mark it has.
func (j *judge) complete(a Attempt, mark *rows.Row) {
	i := slices.IndexFunc(j.done, func(c *complete) bool { return c.mark.ID == mark.ID })
	if i < 0 {
		i = len(j.done)
		j.done = append(j.done, &complete{Attempt: a, mark: mark, stamps: map[string]bool{}, own: map[int]int{}})
	}
	c := j.done[i]
	c.attempts, c.stamps[a.Stamp] = append(c.attempts, a), true
	if a.At > c.At {
		c.Attempt = a
	}
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

// order finds what each version replaces, and those that none has replaced. A
// version replaces those that were complete when it began.
func (j *judge) order() {
	replaced := map[*complete]bool{}
	for i, c := range j.done {
		for _, earlier := range j.done[:i] {
			if earlier.At < c.At && slices.Contains(c.Before, earlier.mark.ID) {
				c.before = earlier
				replaced[earlier] = true
			}
		}
	}
	for _, c := range j.done {
		if !replaced[c] {
			j.current = append(j.current, c)
		}
	}
}

func (j *judge) row(row *rows.Row) Standing {
	for _, c := range j.current {
		if j.has(c, row) {
			return Complete
		}
	}
	switch {
	case !row.IsMark() && j.open[row.SHA]:
		return Unfinished
	case len(j.current) > 0, j.deleted > 0:
		return Stale
	}
	return Complete
}

// has reports whether a row is of a version. Where the version has no row with
// its stamp at an ordinal, it shares that of the version before; and where that
// has left none either, the row of an open attempt, which another run may have
// shared before it knew.
func (j *judge) has(c *complete, row *rows.Row) bool {
	switch {
	case row.IsMark():
		return row.ID == c.mark.ID
	case row.Policy != c.Policy || row.Ordinal >= c.mark.Chunks-1:
		return false
	case c.stamps[row.SHA]:
		return true
	case c.own[row.Ordinal] > 0:
		return false
	case c.before != nil:
		return j.has(c.before, row)
	}
	at := place{row.Policy, row.Ordinal}
	return !j.named[row.SHA] || j.open[row.SHA] && j.free[at] == 0 && j.stray[at] == 1
}

// Current gives the attempts whose version is complete and has not been
// replaced. list holds the document's commit marks.
func Current(attempts []Attempt, list []rows.Row) (current []Attempt) {
	for _, c := range newJudge(attempts, list).current {
		current = append(current, c.attempts...)
	}
	return current
}

// Open gives the stamps of the attempts without a commit mark. list holds the
// document's commit marks.
func Open(attempts []Attempt, list []rows.Row) (stamps []string) {
	if len(attempts) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(newJudge(attempts, list).open))
}
