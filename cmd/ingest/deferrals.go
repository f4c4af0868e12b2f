package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/stop"
)

const (
	// deferralGroups bounds how many reasons are told apart.
	deferralGroups = 20
	// namedDeferrals is how many documents of a group are named.
	namedDeferrals = 3
)

// deferrals groups deferred documents by reason: an outage defers thousands
// for the same one. The zero value is ready to use.
type deferrals struct {
	notBegun int         // the run ended before it sent anything of them
	groups   []*deferral // in the order of the first document
	others   int         // documents of further groups
}

// deferral is a group of documents with the same reason, see [plain.Pattern]:
// the seconds until the next probe may differ.
type deferral struct {
	stage, kind, key, reason string
	documents                int
	names                    []string // the first few, sorted
}

func (d *deferrals) add(doc pipeline.Document) {
	if doc.Kind == pipeline.NotBegun || doc.Kind == "stopped" && doc.Reason == stop.ErrEnded.Error() {
		d.notBegun++
		return
	}
	group := d.group(doc)
	if group == nil {
		d.others++
		return
	}
	group.documents++
	at, _ := slices.BinarySearch(group.names, doc.ID)
	if at == 0 {
		group.reason = doc.Reason
	}
	group.names = slices.Insert(group.names, at, doc.ID)
	group.names = group.names[:min(len(group.names), namedDeferrals)]
}

// group returns the group of a document; nil if there are too many.
func (d *deferrals) group(doc pipeline.Document) *deferral {
	key := plain.Pattern(doc.Reason, doc.ID)
	for _, g := range d.groups {
		if g.stage == doc.Stage && g.kind == doc.Kind && g.key == key {
			return g
		}
	}
	if len(d.groups) == deferralGroups {
		return nil
	}
	g := &deferral{stage: doc.Stage, kind: doc.Kind, key: key}
	d.groups = append(d.groups, g)
	return g
}

// lines are a line for each group, in a stable order: by the first document.
// What said names, as the line of a stop beside them does, is not said again.
func (d *deferrals) lines(said *pipeline.Stop) []string {
	groups := slices.SortedFunc(slices.Values(d.groups), func(a, b *deferral) int {
		return strings.Compare(a.names[0], b.names[0])
	})
	var lines []string
	for _, g := range groups {
		lines = append(lines, g.line(said))
	}
	if d.others > 0 {
		lines = append(lines, numberOf(d.others, "document")+" for other reasons; 'ingest status --json' lists them")
	}
	if d.notBegun > 0 {
		lines = append(lines, countOf(d.notBegun, "document")+" not begun")
	}
	return lines
}

func (g *deferral) line(said *pipeline.Stop) string {
	reason := ": " + plain.Line(g.reason)
	if g.saidBy(said) {
		reason = ""
	}
	var names []string
	for _, name := range g.names {
		names = append(names, plain.Name(name))
	}
	if g.documents == 1 {
		return fmt.Sprintf("%s%s (%s)", names[0], reason, g.stage)
	}
	list := strings.Join(names, ", ")
	if g.documents > len(names) {
		list += fmt.Sprintf(" and %d more", g.documents-len(names))
	}
	return fmt.Sprintf("%d documents%s (%s): %s", g.documents, reason, g.stage, list)
}

// saidBy reports whether a stop has the reason of the group.
func (g *deferral) saidBy(stop *pipeline.Stop) bool {
	if stop == nil {
		return false
	}
	same := func(text string) bool { return plain.Pattern(text, g.names[0]) == g.key }
	return same(stop.Reason) || same(stop.Cause)
}

// countOf is "1 document was" or "3 documents were".
func countOf(n int, thing string) string {
	return numberOf(n, thing) + plain.Noun(n, " was", " were")
}
