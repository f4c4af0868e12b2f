package version_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/version"
)

// Shorthand of the tables: rows of a policy, and commit marks.
func row(id, stamp string, ordinal int) rows.Row {
	return rows.Row{ID: id, SHA: stamp, Policy: "p", Ordinal: ordinal}
}

func mark(id, sha string, chunks int) rows.Row {
	return rows.Row{ID: id, SHA: sha, Policy: "p", Ordinal: chunks - 1, Chunks: chunks}
}

const (
	complete   = version.Complete
	unfinished = version.Unfinished
	stale      = version.Stale
)

func TestJudge(t *testing.T) {
	first := version.Attempt{Stamp: "1", SHA: "one", Policy: "p", At: 10}
	second := version.Attempt{Stamp: "2", SHA: "two", Policy: "p", At: 20, Before: []string{"m1"}}
	back := version.Attempt{Stamp: "3", SHA: "one", Policy: "p", At: 30, Before: []string{"m1", "m2"}}
	done := back
	done.Kept = "m1"
	plain := version.Attempt{Stamp: "4", SHA: "one", Policy: "q", At: 40, Before: []string{"m1"}}
	for _, c := range []struct {
		name     string
		attempts []version.Attempt
		rows     []rows.Row
		want     []version.Standing
	}{
		{"nothing", []version.Attempt{first}, nil, []version.Standing{}},
		{
			"no note", nil,
			[]rows.Row{row("a", "7", 0), mark("m1", "one", 2), row("x", "8", 9)},
			[]version.Standing{complete, complete, complete},
		},
		{
			"the first version is written",
			[]version.Attempt{first},
			[]rows.Row{row("a", "1", 0), row("b", "1", 1)},
			[]version.Standing{unfinished, unfinished},
		},
		{
			"and complete, its note is still there",
			[]version.Attempt{first},
			[]rows.Row{row("a", "1", 0), row("b", "1", 1), mark("m1", "one", 3)},
			[]version.Standing{complete, complete, complete},
		},
		{
			"the second is written; rows of an earlier layout have no stamp",
			[]version.Attempt{second},
			[]rows.Row{row("a", "", 0), row("b", "", 1), mark("m1", "one", 3), row("b2", "2", 1)},
			[]version.Standing{complete, complete, complete, unfinished},
		},
		{
			"and complete: it shares the first row",
			[]version.Attempt{second},
			[]rows.Row{row("a", "", 0), row("b", "", 1), mark("m1", "one", 3), row("b2", "2", 1), mark("m2", "two", 3)},
			[]version.Standing{complete, stale, stale, complete, complete},
		},
		{
			"it is shorter",
			[]version.Attempt{second},
			[]rows.Row{row("a", "1", 0), row("b", "1", 1), mark("m1", "one", 3), mark("m2", "two", 2)},
			[]version.Standing{complete, stale, stale, complete},
		},
		{
			"back to the first, whose mark is there, unfinished",
			[]version.Attempt{second, back},
			[]rows.Row{
				row("a", "1", 0), row("b", "3", 1), mark("m1", "one", 3), row("b2", "2", 1), mark("m2", "two", 3),
			},
			[]version.Standing{complete, unfinished, stale, complete, complete},
		},
		{
			"and complete by its note",
			[]version.Attempt{second, done},
			[]rows.Row{
				row("a", "1", 0), row("b", "3", 1), mark("m1", "one", 3), row("b2", "2", 1), mark("m2", "two", 3),
			},
			[]version.Standing{complete, complete, complete, stale, stale},
		},
		{
			"another policy",
			[]version.Attempt{plain},
			[]rows.Row{
				row("a", "", 0), mark("m1", "one", 2),
				{ID: "c", SHA: "4", Policy: "q"},
				{ID: "m4", SHA: "one", Policy: "q", Ordinal: 1, Chunks: 2},
			},
			[]version.Standing{stale, stale, complete, complete},
		},
		{
			"a second attempt on the second version adds what the first has lost",
			[]version.Attempt{
				second, {Stamp: "6", SHA: "two", Policy: "p", At: 60, Before: []string{"m1", "m2"}, Kept: "m2"},
			},
			[]rows.Row{
				row("a2", "6", 0), row("a", "1", 0), row("b2", "2", 1), mark("m2", "two", 3), mark("m1", "one", 3),
			},
			[]version.Standing{complete, stale, complete, complete, stale},
		},
		{
			"and nothing of one that began later",
			[]version.Attempt{
				{Stamp: "7", SHA: "one", Policy: "p", At: 5},
				{Stamp: "8", SHA: "two", Policy: "p", At: 15},
				{Stamp: "7", SHA: "one", Policy: "p", At: 25, Before: []string{"m2"}},
				{Stamp: "9", SHA: "nine", Policy: "p", At: 35, Before: []string{"m1", "m2"}},
			},
			[]rows.Row{
				row("b", "8", 0), row("x", "9", 0), row("b1", "7", 1), mark("m2", "two", 3), mark("m1", "one", 3),
			},
			[]version.Standing{complete, unfinished, complete, stale, complete},
		},
		{
			"two at a time, neither complete",
			[]version.Attempt{first, {Stamp: "5", SHA: "five", Policy: "p", At: 11}},
			[]rows.Row{row("a", "1", 0), row("b", "5", 0), row("z", "", 0)},
			[]version.Standing{unfinished, unfinished, complete},
		},
		{
			"two at a time, one complete",
			[]version.Attempt{first, {Stamp: "5", SHA: "five", Policy: "p", At: 11}},
			[]rows.Row{row("a", "1", 0), row("b", "5", 0), mark("m5", "five", 2)},
			[]version.Standing{unfinished, complete, complete},
		},
	} {
		assert.Equal(t, c.want, version.Judge(c.attempts, c.rows), c.name)
	}
}

func TestCurrentAndOpen(t *testing.T) {
	first := version.Attempt{Stamp: "1", SHA: "one", Policy: "p", At: 10}
	second := version.Attempt{Stamp: "2", SHA: "two", Policy: "p", At: 20, Before: []string{"m1"}}
	third := version.Attempt{Stamp: "3", SHA: "three", Policy: "p", At: 30, Before: []string{"m2"}}
	all := []version.Attempt{third, second, first}
	for _, c := range []struct {
		marks   []rows.Row
		current []version.Attempt
		open    []string
	}{
		{nil, nil, []string{"1", "2", "3"}},
		{[]rows.Row{mark("m1", "one", 1)}, []version.Attempt{first}, []string{"2", "3"}},
		{[]rows.Row{mark("m1", "one", 1), mark("m2", "two", 1)}, []version.Attempt{second}, []string{"3"}},
		{[]rows.Row{mark("m2", "two", 1), mark("m3", "three", 1)}, []version.Attempt{third}, []string{"1"}},
		{[]rows.Row{mark("m3", "three", 1), mark("m1", "one", 1)}, []version.Attempt{first, third}, []string{"2"}},
	} {
		assert.Equal(t, c.current, version.Current(all, c.marks), "%v", c.marks)
		assert.Equal(t, c.open, version.Open(all, c.marks), "%v", c.marks)
		assert.Empty(t, version.Open(nil, c.marks))
	}
}

// shelf holds the rows of one document and the notes of the runs on it, as a
// store does. A version is a text: one row for each letter, the last of them
// the commit mark.
type shelf struct {
	t     *testing.T
	rows  map[string]rows.Row
	notes []version.Note

	allowed []string // versions that may be visible now; "" for none
	left    int      // writes until the run is killed; below zero is never
	number  int      // of the run
}

type killed struct{}

// write makes one change and looks at what is visible then.
func (s *shelf) write(change func()) {
	if s.left == 0 {
		panic(killed{})
	}
	s.left--
	change()
	s.look()
}

func (s *shelf) attempts() []version.Attempt {
	return version.Notes(s.notes).Attempts()["doc"]
}

func (s *shelf) list() []rows.Row {
	return slices.SortedFunc(maps.Values(s.rows), func(a, b rows.Row) int { return strings.Compare(a.ID, b.ID) })
}

// look requires that exactly one version is visible, and that a part of the
// rows is judged as all of them are.
func (s *shelf) look() {
	s.t.Helper()
	list := s.list()
	verdicts := version.Judge(s.attempts(), list)
	var visible []string
	for i, verdict := range verdicts {
		if verdict == version.Complete {
			visible = append(visible, list[i].ID)
		}
	}
	require.True(s.t, slices.ContainsFunc(s.allowed, func(text string) bool {
		return slices.Equal(visible, slices.Sorted(maps.Keys(rowsOf(text))))
	}), "%v are visible, of none of %q\n%s\n%+v", visible, s.allowed, shown(list), s.attempts())
	for _, one := range list {
		part := slices.DeleteFunc(slices.Clone(list), func(r rows.Row) bool {
			return !r.IsMark() && r.Ordinal != one.Ordinal
		})
		for i, verdict := range version.Judge(s.attempts(), part) {
			at := slices.IndexFunc(list, func(r rows.Row) bool { return r.ID == part[i].ID })
			require.Equal(s.t, verdicts[at], verdict, "%s\n%s\n%+v", part[i].ID, shown(list), s.attempts())
		}
	}
}

func shown(list []rows.Row) string {
	var text strings.Builder
	for _, r := range list {
		fmt.Fprintf(&text, "%s by %.4s; ", r.ID, r.SHA)
	}
	return text.String()
}

// rowsOf are the rows of a version, without stamps. An upper case first letter
// is another policy.
func rowsOf(text string) map[string]rows.Row {
	made, policy := map[string]rows.Row{}, policyOf(text)
	for i, letter := range strings.ToLower(text) {
		r := rows.Row{ID: fmt.Sprintf("%s%d%c", policy, i, letter), Ordinal: i, Policy: policy}
		if i == len(text)-1 {
			r.SHA, r.Chunks = text, len(text)
			r.ID += " of " + text
		}
		made[r.ID] = r
	}
	return made
}

func policyOf(text string) string {
	if text != strings.ToLower(text) {
		return "q"
	}
	return "p"
}

// run replaces what is there by a version, in the order of the pipeline. It
// reports whether it came to its end.
func (s *shelf) run(random *rand.Rand, text string) (done bool) {
	defer func() {
		if why := recover(); why != nil {
			if _, ok := why.(killed); !ok {
				panic(why)
			}
		}
	}()
	(&writer{shelf: s, random: random, text: text, wanted: rowsOf(text)}).run()
	return true
}

// writer is one run.
type writer struct {
	*shelf

	random *rand.Rand
	text   string
	wanted map[string]rows.Row

	attempt version.Attempt
	earlier []version.Attempt
	former  map[string]bool // rows that were there, and need no writing
	there   []string        // all rows that were there
	held    bool            // the commit mark was there
	noted   bool            // it writes a note
	mark    string
}

func (w *writer) run() {
	w.begin()
	writes := len(w.wanted)
	for id := range w.wanted {
		if w.former[id] {
			writes--
		}
	}
	w.noted = writes > 1 || writes == 1 && len(w.there) > 0 || len(w.earlier) > 0
	if w.noted {
		w.shelf.write(func() { w.note("") })
	}
	w.writeRows()
	stale := slices.DeleteFunc(slices.Clone(w.there), func(id string) bool { _, kept := w.wanted[id]; return kept })
	isMark := func(id string) bool { r := w.rows[id]; return r.IsMark() }
	w.remove(slices.DeleteFunc(slices.Clone(stale), isMark))
	for _, a := range w.earlier {
		w.shelf.write(func() { w.forget(a) })
	}
	w.remove(slices.DeleteFunc(stale, func(id string) bool { return !isMark(id) }))
	w.shelf.write(func() { w.forget(w.attempt) })
	require.Equal(w.t, slices.Sorted(maps.Keys(w.wanted)), slices.Sorted(maps.Keys(w.rows)))
	require.Empty(w.t, w.attempts())
}

// begin finds what is there, as a run does with its first read.
func (w *writer) begin() {
	w.earlier, w.former = w.attempts(), map[string]bool{}
	list := w.list()
	sha, policy := w.text, policyOf(w.text)
	a := version.Attempt{Doc: "doc", SHA: sha, Policy: policy, At: 1000 + w.random.Int64N(500)} // no clock is exact
	resumed := ""
	open := version.Open(w.earlier, list)
	for _, before := range w.earlier {
		a.At = max(a.At, before.At+1)
		if before.Same(a) && slices.Contains(open, before.Stamp) {
			resumed = before.Stamp
		}
	}
	stamps := map[string]bool{}
	for i, standing := range version.Judge(w.earlier, list) {
		r := list[i]
		w.there = append(w.there, r.ID)
		if r.IsMark() {
			a.Before = append(a.Before, r.ID)
		} else {
			stamps[r.SHA] = true
		}
		if standing == version.Complete || !r.IsMark() && r.SHA == resumed {
			w.former[r.ID] = true
		}
	}
	for id, r := range w.wanted {
		if r.IsMark() {
			w.mark = id
		}
	}
	w.held = slices.Contains(a.Before, w.mark)
	if a.Stamp = resumed; resumed == "" {
		a.Stamp = version.Stamp(a.Doc, a.SHA, a.Policy, func(stamp string) bool { return stamps[stamp] })
	}
	w.attempt = a
}

// note writes the note, or what has changed in it.
func (w *writer) note(kept string) {
	w.attempt.Kept = kept
	id := fmt.Sprint("note ", w.number)
	w.notes = slices.DeleteFunc(w.notes, func(n version.Note) bool { return n.ID == id })
	w.notes = append(w.notes, version.Note{ID: id, Attempts: []version.Attempt{w.attempt}})
}

func (w *writer) writeRows() {
	var ids []string
	for id := range w.wanted {
		if id != w.mark && !w.former[id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	w.random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids {
		w.shelf.write(func() {
			r := w.wanted[id]
			r.SHA = w.attempt.Stamp
			w.rows[id] = r
		})
	}
	complete := func() { w.allowed = []string{w.text} }
	if !w.former[w.mark] {
		w.shelf.write(func() {
			if !w.held {
				complete()
			}
			w.rows[w.mark] = w.wanted[w.mark]
		})
	}
	if w.held && w.noted {
		w.shelf.write(func() { complete(); w.note(w.mark) })
	}
}

func (w *writer) remove(ids []string) {
	w.random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids {
		w.shelf.write(func() { delete(w.rows, id) })
	}
}

// forget takes an attempt out of the notes.
func (s *shelf) forget(a version.Attempt) {
	s.notes = slices.DeleteFunc(s.notes, func(n version.Note) bool { return contains(n.Attempts, a) })
}

func contains(list []version.Attempt, a version.Attempt) bool {
	return slices.ContainsFunc(list, func(b version.Attempt) bool { return a.Stamp == b.Stamp && a.At == b.At })
}

// sweep removes what earlier runs left, in the order of the pipeline.
func (s *shelf) sweep(random *rand.Rand) {
	defer func() {
		if why := recover(); why != nil {
			if _, ok := why.(killed); !ok {
				panic(why)
			}
		}
	}()
	w := &writer{shelf: s, random: random}
	earlier, list := s.attempts(), s.list()
	current := version.Current(earlier, list)
	var marks, others []string
	for i, standing := range version.Judge(earlier, list) {
		switch {
		case standing == version.Complete:
		case list[i].IsMark():
			marks = append(marks, list[i].ID)
		default:
			others = append(others, list[i].ID)
		}
	}
	w.remove(others)
	for _, a := range earlier {
		if !contains(current, a) {
			s.write(func() { s.forget(a) })
		}
	}
	w.remove(marks)
	for _, a := range current {
		s.write(func() { s.forget(a) })
	}
	require.Empty(s.t, s.attempts())
}

// After each single write of runs that are killed anywhere, exactly one
// version is visible: the last one that came to its commit mark.
func TestJudgeAgainstAModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	texts := []string{
		"abcd", "abce", "abc", "xbcd", "ab", "a", "b", "xyzwv", "abcdef", "Abcd", "Abce", "xycd", "aacd",
	}
	for range 400 {
		s := &shelf{t: t, rows: map[string]rows.Row{}, allowed: []string{""}}
		for step := range 1 + random.IntN(8) {
			s.number, s.left = step, random.IntN(15)
			if random.IntN(6) == 0 {
				s.sweep(random)
				continue
			}
			s.run(random, texts[random.IntN(len(texts))])
		}
		s.number, s.left = 9, -1
		if random.IntN(2) == 0 {
			s.sweep(random)
			continue
		}
		require.True(t, s.run(random, texts[random.IntN(len(texts))]))
	}
}
