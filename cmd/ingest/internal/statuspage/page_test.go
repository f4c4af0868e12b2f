package statuspage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// books is a Journal in memory.
type books struct {
	problems []journal.Problem // sorted by id
	fault    error
	reads    int
	empty    bool
	one      bool // document is complete, in one chunk
}

func (b *books) Totals(context.Context, string) (journal.Totals, error) {
	b.reads++
	t := journal.Totals{Documents: 7, Chunks: 40}
	if b.empty {
		t = journal.Totals{}
	}
	if b.one {
		t = journal.Totals{Documents: 1, Chunks: 1}
	}
	for _, p := range b.problems {
		if p.Status == journal.DeadLetter {
			t.DeadLetters++
		} else {
			t.Deferred++
		}
	}
	return t, b.fault
}

func (b *books) ProblemsOf(
	_ context.Context, _ string, status journal.Status, after string,
) iter.Seq2[journal.Problem, error] {
	return func(yield func(journal.Problem, error) bool) {
		if b.fault != nil {
			yield(journal.Problem{}, b.fault)
			return
		}
		for _, p := range b.problems {
			if p.Status == status && p.ID > after && !yield(p, nil) {
				return
			}
		}
	}
}

// answers is a Searcher that knows the answer.
type answers struct {
	hits []pipeline.Hit
	err  error
	hold chan struct{}

	mu    sync.Mutex
	asked []string
}

func (a *answers) Search(ctx context.Context, question string, _ pipeline.SearchOptions) ([]pipeline.Hit, error) {
	if a.hold != nil {
		select {
		case a.hold <- struct{}{}:
		case <-ctx.Done():
		}
		<-ctx.Done()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, question)
	return a.hits, a.err
}

// fixture is a page over three breakers of its own.
type fixture struct {
	*Page
	t               *testing.T
	llm, milvus, s3 *resilience.Breaker
	journal         *books
	searcher        *answers
}

var quiet = slog.New(slog.DiscardHandler)

func newFixture(t *testing.T, change func(*Config)) *fixture {
	t.Helper()
	breakers := resilience.NewRegistry(resilience.Config{FailMax: 2, ResetTimeout: time.Minute, Logger: quiet})
	f := &fixture{t: t, journal: &books{}, searcher: &answers{}}
	f.llm, f.milvus, f.s3 = breakers.MustRegister("llm", resilience.Config{}),
		breakers.MustRegister("milvus", resilience.Config{}), breakers.MustRegister("s3", resilience.Config{})
	config := Config{
		Breakers: breakers.All(), Searcher: f.searcher, Journal: f.journal,
		Destination: "objects=embedded", Logger: quiet,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("metrics")) }),
	}
	if change != nil {
		change(&config)
	}
	page, err := New(config)
	require.NoError(t, err)
	t.Cleanup(page.Close)
	f.Page = page
	return f
}

// own adds a breaker with a policy of its own to the page.
func (f *fixture) own(t *testing.T, config resilience.Config) *resilience.Breaker {
	t.Helper()
	config.Logger = quiet
	b, err := resilience.New("own", config)
	require.NoError(t, err)
	f.config.Breakers = append(f.config.Breakers, b)
	t.Cleanup(b.Observe(f.transition))
	return b
}

func fail(b *resilience.Breaker, text string) {
	_ = b.Do(context.Background(), func(context.Context) error { return errors.New(text) })
}

// get asks as a browser on this machine would.
func (f *fixture) get(target string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	f.t.Helper()
	return f.ask(httptest.NewRequest(http.MethodGet, target, nil), change...)
}

func (f *fixture) ask(r *http.Request, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r.Host = "127.0.0.1:8091"
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func TestNewWantsWhatItNeeds(t *testing.T) {
	_, err := New(Config{})
	require.ErrorContains(t, err, "required")
	f := newFixture(t, nil)
	config := f.config
	config.AnyHost = true
	_, err = New(config)
	require.ErrorContains(t, err, "needs a Token")
}

func TestPageShowsBreakers(t *testing.T) {
	f := newFixture(t, nil)
	fail(f.llm, "dial https://user:hunter2@llm.example: connection refused")
	fail(f.llm, "dial https://user:hunter2@llm.example: connection refused")
	f.milvus.ForceOpen("maintenance")
	body := f.get("/").Body.String()
	for _, want := range []string{
		`data-upstream="llm" data-state="open"`, `data-upstream="milvus" data-state="open"`,
		`data-upstream="s3" data-state="closed"`,
		"2 of 2", "in 1 min", "Held open: only a reset closes it.", "://********@llm.example: connection refused",
		"consecutive failures", "maintenance", "2 of 2 calls failed", `http-equiv="refresh"`,
	} {
		assert.Contains(t, body, want)
	}
	assert.NotContains(t, body, "hunter2")
}

// A hold is shown with its reason and its beginning, on the breaker and among
// the changes; one that leaves the state as it is does not look like a change.
func TestPageShowsHolds(t *testing.T) {
	f := newFixture(t, nil)
	f.s3.ForceClose("migration")
	f.milvus.ForceOpen("maintenance")
	body := f.get("/").Body.String()
	since := f.s3.Snapshot().HeldSince.UTC().Format("2006-01-02 15:04:05")
	for _, want := range []string{
		`data-upstream="s3" data-state="closed" data-held="forced_closed"`,
		"Held closed: failures do not open it, until a reset.", since + "</time> UTC: <bdi>migration</bdi>",
		`data-upstream="milvus" data-state="open" data-held="forced_open"`,
		"Held open: only a reset closes it.", "UTC: <bdi>maintenance</bdi>",
		`<strong>Object store</strong> <span class="to">closed, forced closed</span> <span class="dim">since`,
		`<span class="to">open, forced open</span>`,
	} {
		assert.Contains(t, body, want)
	}
	f.s3.Reset()
	f.milvus.Reset()
	body = f.get("/").Body.String()
	assert.NotContains(t, body, "data-held")
	assert.Contains(t, body, `<strong>Object store</strong> <span class="to">closed, forced closed</span> <span class="dim">for 0 s, from`)
	assert.Contains(t, body, `<strong>Vector store</strong> <span class="to">open, forced open</span> <span class="dim">for 0 s, from`)
}

func TestPageShowsADeniedBreaker(t *testing.T) {
	f := newFixture(t, nil)
	b := f.own(t, resilience.Config{
		StopOnDenied: true,
		Classify: func(context.Context, error) resilience.Verdict {
			return resilience.Verdict{Outcome: resilience.Denied}
		},
	})
	fail(b, "quota wall 4711, api_key=hunter2hunter2")
	body := f.get("/").Body.String()
	assert.Contains(t, body, `data-upstream="own" data-state="open" data-held="denied"`)
	assert.Contains(t, body, "Held open: the credential or the quota was denied. Fix that and reset it.")
	assert.Contains(t, body, "<bdi>quota wall 4711, api_key=***</bdi>")
	assert.NotContains(t, body, "hunter2")
}

func TestPageShowsARamp(t *testing.T) {
	f := newFixture(t, nil)
	clock := testutil.NewClock()
	b := f.own(t, resilience.Config{FailMax: 1, ResetTimeout: time.Minute, Ramp: time.Minute, Clock: clock})
	assert.NotContains(t, f.get("/").Body.String(), "<dt>Admitted</dt>")
	fail(b, "away")
	clock.Advance(time.Minute)
	require.NoError(t, b.Do(t.Context(), func(context.Context) error { return nil }))
	clock.Advance(30 * time.Second)
	for range 10 {
		_ = b.Do(t.Context(), func(context.Context) error { return nil }) // most are turned away
	}
	body := f.get("/").Body.String()
	assert.Contains(t, body, "A growing share of calls is admitted; the others are turned away.")
	assert.Contains(t, body, "<dt>Admitted</dt><dd>50 % of calls</dd>")
	assert.Contains(t, body, fmt.Sprintf("<dt>Turned away</dt><dd>%d</dd>", b.Snapshot().Shed))
	assert.Equal(t, http.StatusOK, f.get("/readyz").Code)
}

// In shadow mode a breaker refuses nothing, so the service is ready.
func TestPageShowsShadowMode(t *testing.T) {
	f := newFixture(t, nil)
	b := f.own(t, resilience.Config{FailMax: 1, Shadow: true})
	fail(b, "away")
	require.NoError(t, b.Do(t.Context(), func(context.Context) error { return nil }))
	body := f.get("/").Body.String()
	assert.Contains(t, body, "Shadow mode: calls are admitted, and counted where they would be refused.")
	assert.Contains(t, body, "<dt>Would be refused</dt><dd>1</dd>")
	assert.Contains(t, body, "(shadow mode)")
	assert.Equal(t, http.StatusOK, f.get("/readyz").Code)
}

func TestPageCountsMissingChanges(t *testing.T) {
	f := newFixture(t, nil)
	f.transition(resilience.Transition{Upstream: "s3", To: resilience.Open, Dropped: 3})
	assert.Contains(t, f.get("/").Body.String(), "3 changes before this one are missing")
}

// One of anything was "1 documents", "1 dead letters", or "1 calls".
func TestPageCountsOneInTheSingular(t *testing.T) {
	f := newFixture(t, nil)
	f.journal.problems = problems(journal.DeadLetter, 1, "a/")
	f.journal.one = true
	at := time.Now()
	f.transition(resilience.Transition{
		Upstream: "s3", To: resilience.Open, Dropped: 1, Failures: 1, Eligible: 1, Reason: "r",
	})
	f.transition(resilience.Transition{Upstream: "s3", From: resilience.Open, To: resilience.Closed, Refused: 1})
	f.PassBegins(at.Add(-time.Second))
	f.Document(pipeline.Document{ID: "a", Result: pipeline.Ingested, Chunks: 1})
	running := f.get("/").Body.String()
	f.Document(pipeline.Document{ID: "b", Result: pipeline.DeadLetter})
	f.Document(pipeline.Document{ID: "c", Result: pipeline.KnownDeadLetter})
	both := f.get("/").Body.String()
	f.PassEnds(pipeline.Summary{}, nil, at, at.Add(time.Hour))
	ended := f.get("/").Body.String()
	f.searcher.hits = []pipeline.Hit{{Source: "a"}}
	all := strings.Join([]string{
		running, both, ended, f.get("/changes").Body.String(), f.get("/search?q=a").Body.String(),
	}, "\n")
	for _, want := range []string{
		"<dt>document</dt><dd>1</dd>", "<dt>chunk</dt><dd>1</dd>", "<dt>document complete</dt><dd>1</dd>",
		"<dt>dead letter</dt><dd>1</dd>", "<dt>new dead letter</dt><dd>1</dd>", "<dt>known dead letter</dt><dd>1</dd>",
		"3 documents, 1 ingested, 1 new dead letter, 1 known dead letter", "1 of 1 call failed", "; 1 call refused",
		"1 change before this one is missing", "1 passage in ",
	} {
		assert.Contains(t, all, want)
	}
	many := regexp.MustCompile(`<dt>[a-z ]*(documents|chunks|letters)\b[a-z ]*</dt><dd>1</dd>` +
		`|\b1 (new |known )*(document|chunk|dead letter|call|change|passage|pass|probe|time)(e?s)\b`)
	assert.Empty(t, many.FindAllString(strings.ReplaceAll(all, "documents per second", ""), -1))
}

func TestPageShowsPasses(t *testing.T) {
	f := newFixture(t, nil)
	assert.Contains(t, f.get("/").Body.String(), "No pass has begun yet.")
	at := time.Now().Add(-2 * time.Second)
	f.PassBegins(at)
	for range 10 {
		f.Document(pipeline.Document{ID: "a", Result: pipeline.Ingested, Chunks: 3, Embedded: 2})
	}
	f.Document(pipeline.Document{ID: "b", Result: pipeline.DeadLetter})
	body := f.get("/").Body.String()
	assert.Regexp(t, `Pass 1 has been running for 2\.\d s`, body)
	assert.Regexp(t, `<dt>documents per second</dt><dd>5\.\d</dd>`, body)

	next := at.Add(time.Hour)
	retry := next
	f.PassEnds(pipeline.Summary{Stopped: &pipeline.Stop{
		Kind: pipeline.StopDeferred, Reason: "s3 is down",
		RetryAt: &retry,
	}}, nil, at.Add(2*time.Second), next)
	body = f.get("/").Body.String()
	assert.Contains(t, body, "the next pass begins at <time datetime=\""+next.UTC().Format(time.RFC3339))
	assert.Contains(t, body, `11 documents, 10 ingested, 1 new dead letter <span class="dim">in 2.0 s</span>`)
	assert.Contains(t, body, `<span class="label">The error</span> <bdi>s3 is down</bdi>`)
	assert.Contains(t, body, `<span class="label">deferred</span> as above`)
}

// Passes that found nothing to do are not worth a line each: there is one a
// minute.
func TestIdlePassesAreNotListed(t *testing.T) {
	var p passes
	at := time.Unix(1_700_000_000, 0)
	const n = 4 * passesKept
	for i := range n {
		p.begin(at)
		p.document(pipeline.Document{Result: pipeline.Unchanged})
		p.document(pipeline.Document{Result: pipeline.KnownDeadLetter})
		if i%2 == 0 {
			p.document(pipeline.Document{Result: pipeline.Ingested})
		}
		p.end(pipeline.Summary{}, nil, at.Add(time.Millisecond), at)
	}
	v := p.view(at)
	require.Len(t, v.Last, passesKept)
	assert.Equal(t, n-1, v.Last[0].Number)
	assert.Equal(t, n, v.Current.Number)
	assert.Zero(t, v.Current.Rate(), "a millisecond says nothing about speed")

	p.begin(at)
	p.end(pipeline.Summary{}, errors.New("the inputs are gone"), at, at)
	assert.Equal(t, "the inputs are gone", p.view(at).Last[0].Early.Text)
}

func problems(status journal.Status, n int, prefix string) (list []journal.Problem) {
	for i := range n {
		list = append(list, journal.Problem{
			ID: fmt.Sprintf("%s%05d", prefix, i), Status: status, Stage: "parse", Kind: "malformed",
			Reason: "it is broken", At: time.Unix(1_700_000_000, 0),
		})
	}
	return list
}

func TestProblems(t *testing.T) {
	f := newFixture(t, nil)
	f.journal.problems = slices.Concat(problems(journal.Deferred, 3000, "a/"), problems(journal.DeadLetter, 150, "b/"))
	body := f.get("/").Body.String()
	assert.Equal(t, examplesShown, strings.Count(body, "<bdi>a/"))
	assert.Equal(t, examplesShown, strings.Count(body, "<bdi>b/"),
		"dead letters are found behind 3000 deferred documents")
	assert.Contains(t, body, "All 3,000 deferred documents")
	assert.Contains(t, body, "malformed, at parse, last <time datetime=\"2023-11-14T22:13:20Z\">")

	first := f.get("/problems?status=dead_letter").Body.String()
	assert.Equal(t, pageLength, strings.Count(first, "<bdi>b/"))
	assert.Contains(t, first, "150 in total")
	assert.Equal(t, 1, strings.Count(first, "it is broken"), "the same reason is said once")
	second := f.get("/problems?" + url.Values{"status": {"dead_letter"}, "after": {"b/00099"}}.Encode()).Body.String()
	assert.Contains(t, first, `href="/problems?after=b%2F00099&amp;status=dead_letter"`)
	assert.Equal(t, 50, strings.Count(second, "<bdi>b/"))
	assert.NotContains(t, second, `rel="next"`)
	assert.Contains(t, f.get("/problems?status=deferred").Body.String(), "3000 in total")
}

// Of a status that no document has, the page showed "Dead letters", 0 of them.
func TestProblemsOfAnUnknownStatus(t *testing.T) {
	f := newFixture(t, nil)
	for _, status := range []string{"foo", "ingested", "Deferred", "dead_letter "} {
		answer := f.get("/problems?" + url.Values{"status": {status}}.Encode())
		assert.Equal(t, http.StatusBadRequest, answer.Code, status)
		assert.Equal(t, "The status is unknown. The documents listed here have the status dead_letter or deferred.\n",
			answer.Body.String())
	}
	for _, path := range []string{"/problems", "/problems?status=", "/problems?status=deferred"} {
		assert.Equal(t, http.StatusOK, f.get(path).Code, path)
	}
}

// 12,000 documents with one reason were 10,000, and 2,000 with other reasons;
// dead letters behind them had none.
func TestReasonsOfManyDocuments(t *testing.T) {
	f := newFixture(t, nil)
	f.journal.problems = slices.Concat(problems(journal.Deferred, 12_000, "a/"), problems(journal.DeadLetter, 3, "b/"))
	body := f.get("/").Body.String()
	assert.Contains(t, body, ">12,000 documents</a>")
	assert.Contains(t, body, ">3 documents</a>")
	assert.NotContains(t, body, "have other reasons")
	assert.NotContains(t, body, "not sorted")
}

// What was not looked at has no reason, not even another one.
func TestReasonsOfMoreDocumentsThanAreRead(t *testing.T) {
	for more, want := range map[int]string{
		0: "", 1: "<p>1 more document was not looked at.</p>", 2: "<p>2 more documents were not looked at.</p>",
	} {
		f := newFixture(t, nil)
		f.journal.problems = slices.Concat(problems(journal.Deferred, grouped+more, "a/"),
			problems(journal.DeadLetter, 3, "b/"))
		body := f.get("/").Body.String()
		assert.Contains(t, body, ">"+thousands(strconv.Itoa(grouped))+" documents</a>")
		assert.Contains(t, body, ">3 documents</a>")
		assert.NotContains(t, body, "have other reasons")
		assert.Contains(t, body, want)
		assert.Equal(t, want != "", strings.Contains(body, "not looked at"))
	}
}

// A page of dead letters has some, whatever comes before them.
func TestDeadLettersBehindManyDeferredDocuments(t *testing.T) {
	f := newFixture(t, nil)
	f.journal.problems = slices.Concat(problems(journal.Deferred, 2*scanned, "a/"),
		problems(journal.DeadLetter, 3, "b/"))
	assert.Equal(t, 3, strings.Count(f.get("/problems").Body.String(), "<bdi>b/"))
}

// Reading many documents takes time: it is not all that the service does.
func TestReadingTheJournalIsFollowedByARest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, reads := worries{stale: true}, 0
		look := func(took time.Duration) int {
			w.change()
			w.read(t.Context(), func(context.Context) worriesView {
				time.Sleep(took)
				reads++
				return worriesView{}
			})
			return reads
		}
		assert.Equal(t, 1, look(2*time.Second))
		time.Sleep(rests*2*time.Second - 1)
		assert.Equal(t, 1, look(0))
		time.Sleep(time.Nanosecond)
		assert.Equal(t, 2, look(0))
		time.Sleep(worriesAge - 1)
		assert.Equal(t, 2, look(0))
		time.Sleep(time.Nanosecond)
		assert.Equal(t, 3, look(0))
	})
}

func TestJournalThatCannotBeRead(t *testing.T) {
	f := newFixture(t, nil)
	f.journal.fault = errors.New("disk I/O error")
	assert.Contains(t, f.get("/").Body.String(), "disk I/O error")
	assert.Contains(t, f.get("/problems").Body.String(), "disk I/O error")
}

// The journal is not asked again for each look at the page.
func TestProblemsAreReadOncePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		look := func(result pipeline.Result) int {
			for range 20 {
				f.Document(pipeline.Document{Result: result})
				f.get("/")
			}
			return f.journal.reads
		}
		assert.Equal(t, 1, look(pipeline.Ingested))
		time.Sleep(worriesAge) // of the bubble's clock
		assert.Equal(t, 2, look(pipeline.Ingested))
		time.Sleep(worriesAge)
		assert.Equal(t, 3, look(pipeline.Unchanged), "the change that came within the second is shown after it")
		time.Sleep(worriesAge)
		assert.Equal(t, 3, look(pipeline.Unchanged))
	})
}

func TestSearch(t *testing.T) {
	f := newFixture(t, nil)
	long := strings.Repeat("Water flows down the penstock. ", 100)
	f.searcher.hits = []pipeline.Hit{
		{
			Score: 0.7, Similarity: 0.5, Source: "docs/a.pdf", Heading: "A > B", Page: 3,
			Text: "It opens\n\tafter five failures.",
		},
		{Score: 0.2, Source: "docs/b.md", Text: long},
	}
	w := f.get("/search?q=" + url.QueryEscape("when does it open?"))
	body := w.Body.String()
	require.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, []string{"when does it open?"}, f.searcher.asked)
	for _, want := range []string{
		`value="when does it open?"`, "docs/a.pdf", ", page 3", "A &gt; B", "It opens\n\tafter five failures.",
		"score 0.700, similarity 0.50",
		"<details><summary>Show the rest</summary>", "score 0.200</p>",
	} {
		assert.Contains(t, body, want)
	}
	assert.NotContains(t, body, "http-equiv", "an answer is not loaded again: that would ask again")
	hit := newHitView(1, f.searcher.hits[1])
	assert.Equal(t, strings.TrimSpace(long), strings.TrimSuffix(hit.First, "…")+hit.Rest,
		"nothing of the passage is lost")
}

func TestSearchThatAsksNothing(t *testing.T) {
	f := newFixture(t, nil)
	assert.Equal(t, http.StatusOK, f.get("/search").Code)
	assert.Equal(t, http.StatusOK, f.get("/search?q=++").Code)
	cross := f.get("/search?q=pumps", with("Sec-Fetch-Site", "cross-site"))
	assert.Contains(t, cross.Body.String(), "Press Search to ask it")
	assert.Empty(t, f.searcher.asked, "another site cannot spend money")
	f.get("/search?q=" + strings.Repeat("x", 5000))
	assert.LessOrEqual(t, len(f.searcher.asked[0]), longestAsked+len("…"))
	assert.Contains(t, f.get("/search?q=pumps").Body.String(), "Nothing found.")
}

func TestSearchThatFails(t *testing.T) {
	f := newFixture(t, nil)
	f.llm.Trip("drill")
	open := f.llm.Do(t.Context(), func(context.Context) error { return nil })
	require.ErrorIs(t, open, resilience.ErrOpen)
	for _, row := range []struct {
		err    error
		status int
		shown  string
	}{
		{open, http.StatusServiceUnavailable, "circuit breaker open for &#34;llm&#34;"},
		{
			&pipeline.StopError{Kind: pipeline.StopConfiguration, Err: errors.New("not found")},
			http.StatusNotFound, "not found",
		},
		{errors.New("connection reset"), http.StatusBadGateway, "connection reset"},
	} {
		f.searcher.err = row.err
		w := f.get("/search?q=pumps")
		assert.Equal(t, row.status, w.Code, row.shown)
		assert.Contains(t, w.Body.String(), row.shown)
	}
}

func TestSearchesAreBounded(t *testing.T) {
	f := newFixture(t, nil)
	f.searcher.hold = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, searchesAtATime)
	for range searchesAtATime {
		go func() { _, status := f.Page.ask(ctx, "pumps"); done <- status }()
		<-f.searcher.hold
	}
	assert.Equal(t, http.StatusServiceUnavailable, f.get("/search?q=pumps").Code)
	f.searcher.err = context.Canceled
	cancel()
	for range searchesAtATime {
		assert.Equal(t, http.StatusBadGateway, <-done)
	}
	f.searcher.hold, f.searcher.err = nil, nil
	assert.Equal(t, http.StatusOK, f.get("/search?q=pumps").Code, "the places come back")
}

func TestHealthAndReadiness(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Token = testToken })
	bearer := with("Authorization", "Bearer "+testToken)
	assert.Equal(t, "ready\n", f.get("/readyz").Body.String())
	f.s3.Trip("drill")
	f.llm.Trip("drill")
	w := f.get("/readyz", bearer)
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Regexp(t, "^not ready: open circuit breakers: llm, s3; since [^ ;]+Z\n$", w.Body.String())
	assert.Equal(t, "not ready\n", f.get("/readyz").Body.String(), "a stranger is not told which")
	assert.Equal(t, http.StatusOK, f.get("/healthz").Code)
	f.s3.Reset()
	f.llm.Reset()
	assert.Equal(t, http.StatusOK, f.get("/readyz").Code)
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		strings.Repeat("é", 400):            strings.Repeat("é", 300) + "…",
		"plain":                             "plain",
		"two\nlines\tand\x1b[31m colour":    "two lines and [31m colour",
		"evil\u202Etxt.exe":                 "evil txt.exe",
		"a\xffb":                            "a b",
		"get https://me:secret@host/x: bad": "get https://********@host/x: bad",
		"x" + strings.Repeat("é", 400):      "x" + strings.Repeat("é", 299) + "…",
	} {
		assert.Equal(t, want, clean(in), "%q", in)
	}
}

// Refused credentials and rate limits leave the breaker closed, so they stand
// on its card.
func TestCardShowsDeniedAndThrottledCalls(t *testing.T) {
	f := newFixture(t, nil)
	assert.NotContains(t, f.get("/").Body.String(), "<dt>Denied</dt>")
	for _, outcome := range []resilience.Outcome{resilience.Denied, resilience.Throttled, resilience.Throttled} {
		p, err := f.llm.Allow(t.Context())
		require.NoError(t, err)
		p.Settle(resilience.Verdict{Outcome: outcome})
	}
	body := f.get("/").Body.String()
	assert.Contains(t, body, "<dt>Denied</dt><dd>1: check the credential and the quota</dd>")
	assert.Contains(t, body, "<dt>Throttled</dt><dd>2</dd>")
}
