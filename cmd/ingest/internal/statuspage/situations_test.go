package statuspage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// night is a fixture whose clock a test moves through a night.
type night struct {
	*fixture
	clock *testutil.FakeClock
	waits int64 // since when documents wait, as Unix time
}

// newNight begins seven hours before the page is looked at.
func newNight(t *testing.T, change func(*Config)) *night {
	n := &night{clock: testutil.NewClock()}
	n.clock.Set(threeOClock.Add(-5 * time.Hour))
	breakers := resilience.NewRegistry(resilience.Config{ResetTimeout: time.Minute, Clock: n.clock, Logger: quiet})
	llm, milvus, s3 := breakers.MustRegister("llm", resilience.Config{}),
		breakers.MustRegister("milvus", resilience.Config{}), breakers.MustRegister("s3", resilience.Config{})
	n.fixture = newFixture(t, func(c *Config) {
		c.Breakers = breakers.All()
		c.Destination = "objects=http://10.0.3.9:8333 bucket=penstock prefix=documents " +
			"vectors=10.0.3.7:19530/default collection=handbook"
		c.Folder, c.Shared = ".penstock", "rediss://breakers.an-internal-domain-with-a-long-name.example:6379/0"
		c.Places = map[string]stop.Place{
			"llm": {Address: "http://127.0.0.1:18701/v1", Model: "fake-8"}, "milvus": {Address: "10.0.3.7:19530"},
			"s3": {Address: "http://10.0.3.9:8333"},
		}
		if change != nil {
			change(c)
		}
	})
	n.now = n.clock.Now
	n.began = n.clock.Now()
	n.llm, n.milvus, n.s3 = llm, milvus, s3
	return n
}

var errOnFire = errors.New("error, status code: 500, status: 500 Internal Server Error, message: the GPU node is on fire")

var errKey = errors.New("error, status code: 401, message: Incorrect API key provided")

// pass is a pass that ingests documents and ends with a stop, if any.
func (n *night) pass(took time.Duration, ended *stop.Error, results map[pipeline.Result]int) {
	n.PassBegins(n.clock.Now())
	n.works(results)
	n.clock.Advance(took)
	summary := pipeline.Summary{}
	var err error
	if ended != nil {
		summary.Stopped, err = ended.Report(n.config.Places), ended
		summary.Waiting = backlogOfANight
		n.journal.wait(unbegun(backlogOfANight))
		n.waits = cmp.Or(n.waits, n.clock.Now().Unix())
		since := time.Unix(n.waits, 0)
		summary.WaitingSince = &since
	}
	next := n.clock.Now().Add(time.Minute)
	if ended == nil {
		n.waits = 0
		n.journal.wait(nil)
	}
	if ended != nil && !ended.RetryAt.IsZero() {
		next = ended.RetryAt
	}
	n.PassEnds(summary, err, n.clock.Now(), next)
}

// backlogOfANight is how many documents wait after a pass that was stopped.
const backlogOfANight = 60

// unbegun are documents that a pass did not come to, as the journal lists them.
func unbegun(n int) []journal.Problem {
	list := problems(journal.Deferred, n, "docs/")
	for i := range list {
		list[i].Stage, list[i].Kind = "list", "not begun"
		list[i].Reason = "the run ended before this document was begun"
	}
	return list
}

// wait replaces the deferred documents.
func (b *books) wait(deferred []journal.Problem) {
	b.problems = slices.DeleteFunc(b.problems, func(p journal.Problem) bool { return p.Status == journal.Deferred })
	b.problems = append(b.problems, deferred...)
	slices.SortFunc(b.problems, func(a, b journal.Problem) int { return strings.Compare(a.ID, b.ID) })
}

func (n *night) works(results map[pipeline.Result]int) {
	for result, count := range results {
		for i := range count {
			n.Document(pipeline.Document{ID: strconv.Itoa(i), Result: result, Chunks: 3, Embedded: 3})
		}
	}
}

// calls makes calls of a breaker that end with err.
func calls(b *resilience.Breaker, n int, err error) {
	for range n {
		_ = b.Do(context.Background(), func(context.Context) error { return err })
	}
}

func settle(t *testing.T, b *resilience.Breaker, outcome resilience.Outcome) {
	p, err := b.Allow(t.Context())
	require.NoError(t, err)
	p.Settle(resilience.Verdict{Outcome: outcome})
}

// evening is the time before: passes each minute, documents now and then, and a
// short outage of the vector store that is over.
func (n *night) evening() {
	n.pass(40*time.Second, nil, map[pipeline.Result]int{pipeline.Ingested: 340})
	calls(n.llm, 340, nil)
	calls(n.milvus, 1020, nil)
	calls(n.s3, 680, nil)
	for i := range 90 {
		n.clock.Advance(time.Minute)
		n.pass(time.Second, nil, map[pipeline.Result]int{pipeline.Unchanged: 340, pipeline.Ingested: i % 7})
	}
	calls(n.milvus, 5, errors.New("rpc error: code = Unavailable desc = connection refused"))
	for range 6 {
		n.clock.Advance(61 * time.Second)
		calls(n.milvus, 1, errors.New("rpc error: code = Unavailable desc = connection refused"))
		n.pass(time.Second, stop.Later("milvus", n.clock.Now(), errors.New("connection refused")), nil)
	}
	n.clock.Advance(61 * time.Second)
	calls(n.milvus, 300, nil)
	for i := range 120 {
		n.clock.Advance(time.Minute)
		n.pass(time.Second, nil, map[pipeline.Result]int{pipeline.Unchanged: 420, pipeline.Ingested: i % 3})
	}
}

func (n *night) to(ago time.Duration) { n.clock.Set(threeOClock.Add(-ago)) }

// threeOClock is when the page is looked at.
var threeOClock = time.Date(2026, time.March, 1, 3, 0, 12, 0, time.UTC)

// situations are what an operator may see.
var situations = map[string]func(*testing.T) *night{
	"fresh": func(t *testing.T) *night {
		n := newNight(t, nil)
		n.journal.empty = true
		n.clock.Set(threeOClock)
		n.began = n.clock.Now()
		return n
	},
	"quiet": func(t *testing.T) *night {
		n := newNight(t, nil)
		n.evening()
		n.to(10 * time.Second)
		n.pass(2*time.Second, nil, map[pipeline.Result]int{pipeline.Unchanged: 420})
		return n
	},
	"running": func(t *testing.T) *night {
		n := newNight(t, nil)
		n.evening()
		n.to(20 * time.Second)
		n.PassBegins(n.clock.Now())
		n.works(map[pipeline.Result]int{pipeline.Unchanged: 420, pipeline.Ingested: 132, pipeline.DeadLetter: 1})
		n.journal.problems = problems(journal.DeadLetter, 1, "b/")
		return n
	},
	"open": func(t *testing.T) *night {
		n := newNight(t, nil)
		n.evening()
		n.to(17 * time.Minute)
		calls(n.llm, 5, errOnFire)
		for range 16 {
			n.clock.Advance(61 * time.Second)
			calls(n.llm, 1, errOnFire)
			n.pass(0, stop.Later("llm", n.clock.Now().Add(time.Minute), errOnFire),
				map[pipeline.Result]int{pipeline.Deferred: 7})
		}
		for i := range 7 {
			n.journal.problems[i].Reason = errOnFire.Error()
			n.journal.problems[i].Stage, n.journal.problems[i].Kind = "embed", "upstream failed"
		}
		return n
	},
	"denied": func(t *testing.T) *night {
		n := newNight(t, nil)
		n.evening()
		n.to(12 * time.Minute)
		for range 11 {
			n.clock.Advance(time.Minute)
			settle(t, n.llm, resilience.Denied)
			n.pass(time.Second, &stop.Error{
				Kind: stop.Denied, Upstream: "llm", Err: errKey,
			}, map[pipeline.Result]int{pipeline.Deferred: 4})
		}
		return n
	},
	"throttled": func(t *testing.T) *night {
		n := newNight(t, nil)
		n.evening()
		n.to(2 * time.Minute)
		settle(t, n.llm, resilience.Throttled)
		call := &stop.CallError{
			Upstream: "llm", Verdict: resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: 15 * time.Minute},
			Err: errors.New("error, status code: 429, message: slow down"),
		}
		n.pass(time.Second, stop.Later("llm", n.clock.Now().Add(15*time.Minute), call),
			map[pipeline.Result]int{pipeline.Deferred: 4})
		return n
	},
	"forced": func(t *testing.T) *night {
		n := newNight(t, nil)
		n.evening()
		n.to(40 * time.Minute)
		n.milvus.ForceOpen("maintenance of the Milvus cluster until 04:00")
		for range 39 {
			n.clock.Advance(time.Minute)
			calls(n.milvus, 1, nil)
			n.pass(time.Second, stop.Later("milvus", n.clock.Now().Add(time.Minute), errors.New("held open")), nil)
		}
		return n
	},
	"dead": func(t *testing.T) *night {
		n := newNight(t, nil)
		n.evening()
		n.to(30 * time.Second)
		n.pass(time.Second, nil, map[pipeline.Result]int{pipeline.Unchanged: 420, pipeline.DeadLetter: 300})
		n.journal.problems = failed()
		return n
	},
	"embedded": func(t *testing.T) *night {
		n := newNight(t, func(c *Config) {
			c.Destination = "objects=embedded bucket=penstock prefix= vectors=embedded collection=documents"
			c.Places = map[string]stop.Place{
				"llm":    {Address: "embedded", Model: "potion-base-8M", Embedded: true},
				"milvus": {Address: "embedded", Embedded: true},
				"s3":     {Address: "embedded", Embedded: true},
			}
		})
		n.evening()
		n.to(10 * time.Second)
		n.pass(2*time.Second, nil, map[pipeline.Result]int{pipeline.Unchanged: 420})
		return n
	},
}

// failed are 300 documents with few reasons.
func failed() (list []journal.Problem) {
	for i := range 300 {
		p := journal.Problem{
			ID: fmt.Sprintf("scans/%03d.pdf", i), Status: journal.DeadLetter, Stage: "parse", Kind: "malformed",
			At: threeOClock.Add(-time.Hour), Reason: fmt.Sprintf("page %d: no text, the page is an image", i%40+1),
		}
		switch {
		case i%6 == 0:
			p.ID = fmt.Sprintf("mail/%03d.eml", i)
			p.Stage, p.Kind = "embed", "refused by upstream"
			p.Reason = "error, status code: 400, message: input rejected by the content filter, request req-" + strconv.Itoa(i*7919)
		case i%17 == 0:
			p.ID = fmt.Sprintf("old/%03d.doc", i)
			p.Kind, p.Reason = "encrypted", "the file is encrypted; remove the password"
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b journal.Problem) int { return strings.Compare(a.ID, b.ID) })
	return list
}
