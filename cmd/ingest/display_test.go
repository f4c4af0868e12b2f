package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

func deferredFor(id, stage, kind, reason string) pipeline.Document {
	return pipeline.Document{ID: id, Result: pipeline.Deferred, Stage: stage, Kind: kind, Reason: reason}
}

// An outage defers many documents for one reason, and says so once.
func TestDeferralsAreGrouped(t *testing.T) {
	open := func(s int) string { return fmt.Sprintf("circuit breaker open; next probe in %ds", s) }
	docs := []pipeline.Document{
		deferredFor("d/5.md", "embed", "deferred", open(59)),
		deferredFor("d/3.md", "embed", "deferred", open(58)),
		deferredFor("d/4.md", "embed", "deferred", open(57)),
		deferredFor("d/2.md", "embed", "deferred", open(56)),
		deferredFor("d/1.md", "store", "upstream failed", "disk full"),
		deferredFor("d/7.md", "read", "changed", "it was truncated"),
		deferredFor("d/6.md", "read", "changed", "it was truncated"),
	}
	docs = append(docs, deferredFor("f.md", "list", "not begun", "the run ended before this document was begun"))
	for i := range 328 {
		docs = append(docs, deferredFor(fmt.Sprintf("e/%d.md", i), "embed", "stopped", stop.ErrEnded.Error()))
	}
	want := []string{
		"d/1.md: disk full (store)",
		"4 documents: circuit breaker open; next probe in 56s (embed): d/2.md, d/3.md, d/4.md and 1 more",
		"2 documents: it was truncated (read): d/6.md, d/7.md",
		"329 documents were not begun",
	}
	for range 2 {
		var d deferrals
		for _, doc := range docs {
			d.add(doc)
		}
		assert.Equal(t, want, d.lines(nil))
		slices.Reverse(docs)
	}
	assert.Empty(t, new(deferrals).lines(nil))
}

// A server that answered 500 and one that answered 503 were one group.
func TestStatusesAreDifferentReasons(t *testing.T) {
	var d deferrals
	for i, status := range []int{500, 503, 500} {
		id := fmt.Sprintf("d/number%d.md", i)
		d.add(deferredFor(id, "embed", "upstream failed", fmt.Sprintf("%s: HTTP %d, request %d", id, status, i)))
	}
	assert.Equal(t, []string{
		"2 documents: d/number0.md: HTTP 500, request 0 (embed): d/number0.md, d/number2.md",
		"d/number1.md: d/number1.md: HTTP 503, request 1 (embed)",
	}, d.lines(nil))
}

// A stop said one sentence in the lines of the deferred documents and in its
// own.
func TestDeferralsDoNotRepeatTheStop(t *testing.T) {
	open := func(s int) string { return fmt.Sprintf("circuit breaker open; next probe in %ds", s) }
	for name, row := range map[string]struct {
		stop *pipeline.Stop
		one  string
		many string
	}{
		"its cause":  {&pipeline.Stop{Reason: "3 documents were deferred", Cause: open(57)}, "", ""},
		"its reason": {&pipeline.Stop{Reason: open(57), Cause: "on fire"}, "", ""},
		"another":    {&pipeline.Stop{Reason: "disk full"}, ": " + open(59), ": " + open(58)},
		"no stop":    {nil, ": " + open(59), ": " + open(58)},
	} {
		var one, many deferrals
		one.add(deferredFor("d/1.md", "embed", "deferred", open(59)))
		many.add(deferredFor("d/2.md", "embed", "deferred", open(59)))
		many.add(deferredFor("d/1.md", "embed", "deferred", open(58)))
		assert.Equal(t, []string{"d/1.md" + row.one + " (embed)"}, one.lines(row.stop), name)
		assert.Equal(t, []string{"2 documents" + row.many + " (embed): d/1.md, d/2.md"}, many.lines(row.stop), name)
	}
}

func TestDeferralsForManyReasonsAreBounded(t *testing.T) {
	var d deferrals
	for i := range 30 {
		d.add(deferredFor(fmt.Sprintf("d/%02d.md", i), "read", "changed", strings.Repeat("x", i+1)))
	}
	d.add(deferredFor("e.md", "embed", "stopped", stop.ErrEnded.Error()))
	lines := d.lines(nil)
	require.Len(t, lines, deferralGroups+2)
	assert.Equal(t, "10 documents for other reasons; 'ingest status --json' lists them", lines[deferralGroups])
	assert.Equal(t, "1 document was not begun", lines[deferralGroups+1])
}

func TestTimesForPeopleHaveAZone(t *testing.T) {
	local := time.Local
	defer func() { time.Local = local }()
	time.Local = time.FixedZone("", -(3*3600 + 1800))
	at := time.Date(2026, 11, 29, 23, 32, 6, 0, time.UTC)
	assert.Equal(t, "2026-11-29 20:02:06 -03:30", clock(at))
	time.Local = time.UTC
	assert.Equal(t, "2026-11-29 23:32:06 +00:00", clock(at))
}

// The counts come first, and what the upstream said remains on the screen.
func TestSummaryEndsWithTheCause(t *testing.T) {
	at := time.Date(2026, 11, 29, 23, 32, 6, 0, time.UTC)
	for _, tt := range []struct {
		name string
		stop pipeline.Stop
		want string
	}{
		{"a breaker", pipeline.Stop{
			Kind: stop.Deferred, Upstream: "llm", Address: "http://a/v1", Model: "m", RetryAt: &at,
			Reason: `circuit breaker open for "llm"; last failure: on fire`, Cause: "on fire",
		}, `stopped (deferred, llm at http://a/v1, model m): circuit breaker open for "llm"; run again after ` +
			clock(at) + "; cause: on fire"},
		{"a refusal", pipeline.Stop{
			Kind: stop.Denied, Upstream: "s3", Address: "http://s", Reason: "AccessDenied", Cause: "AccessDenied",
		}, "stopped (denied, s3 at http://s); cause: AccessDenied"},
		{"words before the cause", pipeline.Stop{
			Kind: stop.Configuration, Upstream: "milvus",
			Reason: "collection x: no such field y", Cause: "no such field y",
		}, "stopped (configuration, milvus): collection x; cause: no such field y"},
		{"a cause within a phrase", pipeline.Stop{
			Kind: stop.Configuration, Upstream: "milvus", Reason: "collection x: no such field y", Cause: "field y",
		}, "stopped (configuration, milvus): collection x: no such field y; cause: field y"},
		{"a cause within a word", pipeline.Stop{
			Kind: stop.Deferred, Upstream: "s3", Reason: "put a: misfired", Cause: "fired",
		}, "stopped (deferred, s3): put a: misfired; cause: fired"},
		{"an embedded store", pipeline.Stop{
			Kind: stop.Fault, Upstream: "s3", Address: "embedded", Reason: "put a: disk full", Cause: "disk full",
		}, "stopped (fault, embedded object store): put a; cause: disk full"},
		{"a bucket of documents", pipeline.Stop{
			Kind: stop.Deferred, Upstream: "s3", Address: "embedded (documents: AWS)", Reason: "503", Cause: "503",
		}, "stopped (deferred, s3 at embedded (documents: AWS)); cause: 503"},
		{"a state in a bucket", pipeline.Stop{
			Kind: stop.Deferred, Upstream: "s3", Address: "embedded (state: AWS)", Reason: "503", Cause: "503",
		}, "stopped (deferred, s3 at embedded (state: AWS)); cause: 503"},
		{"no upstream", pipeline.Stop{Kind: stop.Fault, Reason: "disk full"}, "stopped (fault): disk full"},
	} {
		var out strings.Builder
		writeSummary(&out, "", false, pipeline.Summary{Documents: 1, Stopped: &tt.stop})
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		assert.Contains(t, lines[0], "1 document in", tt.name)
		assert.Equal(t, []string{tt.want}, lines[1:], tt.name)
	}
}

// The bar began with "0 documents/hr".
func TestRateOfTheBar(t *testing.T) {
	for _, row := range []struct {
		documents int
		took      time.Duration
		want      string
	}{
		{0, 0, ""},
		{0, time.Hour, ""},
		{5, 900 * time.Millisecond, ""},
		{1, time.Second, "1 document/s "},
		{250, 10 * time.Second, "25 documents/s "},
		{9, 10 * time.Second, "54 documents/min "},
		{1, time.Minute, "1 document/min "},
		{1, time.Hour, "less than 1 document/min "},
	} {
		assert.Equal(t, row.want, rate(row.documents, row.took), "%d in %v", row.documents, row.took)
	}
}

func withBar(drawn io.Writer) *display {
	a := &app{settings: &Settings{}, stdout: io.Discard, audit: &auditLog{}}
	return &display{app: a, bar: progressbar.NewOptions(-1, progressbar.OptionSetWriter(drawn))}
}

// The command waited for the listing that counts the documents, which a mount
// that hangs never ends.
func TestAListingThatHangsDoesNotKeepTheCommand(t *testing.T) {
	d := withBar(io.Discard)
	synctest.Test(t, func(t *testing.T) {
		mount := make(chan struct{})
		d.count(t.Context(), func(context.Context) iter.Seq2[source.Item, error] {
			return func(yield func(source.Item, error) bool) {
				<-mount
				yield(source.Item{}, nil)
			}
		})
		d.summary(pipeline.Summary{})
		ended := make(chan error, 1)
		go func() { ended <- d.app.stop() }()
		synctest.Wait()
		select {
		case err := <-ended:
			require.NoError(t, err)
		default:
			t.Error("the command waits for the listing")
		}
		close(mount)
		synctest.Wait()
	})
}

// A total that is known only after the summary was drawn below it.
func TestNoTotalAfterTheSummary(t *testing.T) {
	var drawn bytes.Buffer
	d := withBar(&drawn)
	d.summary(pipeline.Summary{})
	drawn.Reset()
	d.total(3)
	assert.Empty(t, drawn.String())
}

// A run whose model dies says in a few lines what has happened.
func TestOutageIsAFewLines(t *testing.T) {
	c, model := withModel(t, llmtest.Options{})
	corpus(t, c, 400)
	model.Script(llmtest.From(3, inOwnWords(http.StatusInternalServerError)))
	o := c.run(t, "docs")
	require.Equal(t, exitTemporary, o.code, o.stderr)
	lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
	assert.Less(t, len(lines), 10, o.stdout)
	assert.Contains(t, o.stdout, " documents were not begun\n")
	assert.Regexp(t, `^stopped \(deferred, llm at http://.*, model .*run again after [0-9-]+ [0-9:]+ [+-].*; cause: .*`+
		ownWords, lines[len(lines)-1])
}

// Two runs that do the same print the same, in whatever order documents end.
func TestOrderOfResultsIsStable(t *testing.T) {
	c := newCommand(t)
	for i := range 60 {
		c.write(t, fmt.Sprintf("docs/%02d.md", i), fmt.Sprintf("Pump %d.", i))
		c.write(t, fmt.Sprintf("docs/%02d.pdf", i), "%PDF-1.7 and nothing else")
	}
	documents := func(args ...string) []string {
		o := c.run(t, args...)
		lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
		return lines[:len(lines)-1] // the summary has the time
	}
	dry := documents("--dry-run", "docs")
	require.Len(t, dry, 120)
	assert.Equal(t, dry, documents("--dry-run", "docs"))
	wet := documents("docs")
	require.Len(t, wet, 60)
	assert.True(t, slices.IsSorted(wet), wet)
	assert.True(t, slices.IsSorted(documents("delete", "docs/")))
}

func TestColorsOnRequest(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a.pdf", "%PDF-1.7 and nothing else")
	for _, tt := range []struct {
		args []string
		env  []string
		want bool
	}{
		{[]string{"docs"}, nil, false},
		{[]string{"docs", "--color=always"}, nil, true},
		{[]string{"docs", "--color=always"}, []string{"NO_COLOR=1", "TERM=dumb"}, true},
		{[]string{"docs"}, []string{"PENSTOCK_COLOR=always"}, true},
		{[]string{"docs", "--color=never"}, []string{"PENSTOCK_COLOR=always"}, false},
		{[]string{"docs", "--color=always", "--json"}, nil, false},
	} {
		c.env = append(tt.env, "PENSTOCK_STATE="+t.TempDir())
		o := c.run(t, tt.args...)
		require.Equal(t, exitData, o.code, o.stderr)
		assert.Equal(t, tt.want, strings.Contains(o.stdout, "\x1b["), "%v %v", tt.args, tt.env)
	}
}
