package statuspage

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline/journal"
)

// 300 documents that failed for three reasons were 20 entries and a link.
func TestDeadLettersAreGroupedByReason(t *testing.T) {
	n := situations["dead"](t)
	body := n.get("/").Body.String()
	for _, want := range []string{
		">235 documents</a></strong>: <span class=\"reason\"><bdi>page 2: no text, the page is an image</bdi>",
		">50 documents</a></strong>: <span class=\"reason\"><bdi>error, status code: 400,",
		">15 documents</a></strong>: <span class=\"reason\"><bdi>the file is encrypted",
		"For example <bdi>scans/001.pdf</bdi>, <bdi>scans/002.pdf</bdi>, <bdi>scans/003.pdf</bdi>",
		"All 300 dead letters",
	} {
		assert.Contains(t, body, want)
	}

	link := regexp.MustCompile(`href="(/problems\?status=dead_letter&amp;reason=[0-9a-f]{16})">50 documents`)
	found := link.FindStringSubmatch(body)
	require.NotNil(t, found)
	page := n.get(strings.ReplaceAll(found[1], "&amp;", "&")).Body.String()
	assert.Equal(t, 50, strings.Count(page, "<strong><bdi>mail/"))
	assert.Equal(t, 50, strings.Count(page, "<strong><bdi>"), "those with that reason and no others")
	assert.Contains(t, page, "All 300, with every reason")
	assert.NotContains(t, page, `rel="next"`)
}

// A page of one reason continues where the page before ended.
func TestPagesOfOneReason(t *testing.T) {
	f := newFixture(t, nil)
	for i := range 500 {
		p := journal.Problem{ID: fmt.Sprintf("%05d", i), Status: journal.DeadLetter, Reason: "odd"}
		if i%2 == 0 {
			p.Reason = "even"
		}
		f.journal.problems = append(f.journal.problems, p)
	}
	want := wanted{status: journal.DeadLetter, reason: reasonKey(f.journal.problems[0])}
	seen := 0
	for address := want.link(""); address != ""; {
		page := f.get(address).Body.String()
		seen += strings.Count(page, "<strong><bdi>")
		assert.Equal(t, 1, strings.Count(page, "<bdi>even</bdi>"), "the reason is said once")
		next := regexp.MustCompile(`href="([^"]*)" rel="next"`).FindStringSubmatch(page)
		address = ""
		if next != nil {
			address = strings.ReplaceAll(next[1], "&amp;", "&")
		}
	}
	assert.Equal(t, 250, seen)
}

func TestReasonsThatAreTheSame(t *testing.T) {
	problem := func(id, reason string) journal.Problem {
		return journal.Problem{ID: id, Status: journal.DeadLetter, Stage: "parse", Kind: "malformed", Reason: reason}
	}
	one := problem("docs/one.pdf", "docs/one.pdf, page 3: no text")
	assert.Equal(t, reasonKey(one), reasonKey(problem("docs/two.pdf", "docs/two.pdf, page 40: no text")))
	assert.NotEqual(t, reasonKey(one), reasonKey(problem("docs/one.pdf", "no header")))
	other := problem("docs/one.pdf", "no text")
	other.Status = journal.Deferred
	assert.NotEqual(t, reasonKey(problem("docs/one.pdf", "no text")), reasonKey(other))
}

// As many reasons as documents are a few lines and a number.
func TestManyReasonsAreBounded(t *testing.T) {
	f := newFixture(t, nil)
	for i := range 3 * reasonsKept {
		f.journal.problems = append(f.journal.problems, journal.Problem{
			ID: fmt.Sprintf("%05d", i), Status: journal.DeadLetter, Reason: strings.Repeat("x", i+1) + " is odd",
		})
	}
	body := f.get("/").Body.String()
	assert.Equal(t, reasonsShown, strings.Count(body, `<a id="r-`))
	assert.Contains(t, body, fmt.Sprintf("%d documents have other reasons", 3*reasonsKept-reasonsShown))
}
