package statuspage

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
)

var tag = regexp.MustCompile(`<[^>]*>`)

// sentence is the headline of the page as text.
func (f *fixture) sentence() string {
	_, after, _ := strings.Cut(f.get("/").Body.String(), `<div id="headline">`)
	text, _, _ := strings.Cut(after, `<p class="hidden"`)
	text = strings.ReplaceAll(tag.ReplaceAllString(text, ""), "&nbsp;", " ")
	return strings.Join(strings.Fields(text), " ")
}

// What an operator reads first, in each situation.
func TestHeadlines(t *testing.T) {
	const model = "http://127.0.0.1:18701/v1, model fake-8 said "
	for name, want := range map[string]string{
		"fresh": "The service has started; the first pass begins.",
		"quiet": "All is well. 7 documents are complete, in 40 chunks. Nothing waits. " +
			"The next pass is in 52 s (03:01:04 UTC).",
		"embedded": "All is well. 7 documents are complete, in 40 chunks. Nothing waits. " +
			"The next pass is in 52 s (03:01:04 UTC).",
		"running": "1 document cannot be ingested as it is. Everything else works, and a pass is running. " +
			"What to do See the reasons below. A document is tried again when it changes.",
		"open": "The model server has been failing since 02:43 UTC, for 17 min. 60 documents wait, the first since " +
			"02:44 UTC. The next probe is in 16 s (03:00:28 UTC). " + model +
			"error, status code: 500, status: 500 Internal Server Error, message: the GPU node is on fire " +
			"What to do Run ingest doctor with the settings of the service: it shows what each upstream answers. Repair or restart the model server. " +
			"Ingesting resumes by itself as soon as a probe succeeds.",
		"denied": "The model server has refused the credentials or the quota since 02:49 UTC, for 10 min. " +
			"60 documents wait, the first since 02:49 UTC. The next pass is in 11 s (03:00:23 UTC). " + model +
			"error, status code: 401, message: Incorrect API key provided " +
			"What to do Run ingest doctor with the settings of the service: it shows what each upstream answers. " +
			"Repair the key and restart the service, which reads it at its start; or raise the quota, and the next " +
			"pass succeeds.",
		"throttled": "The model server has asked for patience since 02:58 UTC, for 1 min. 60 documents wait, the first " +
			"since 02:58 UTC. The next pass is in 13 min (03:13:12 UTC). " + model +
			"error, status code: 429, message: slow down " +
			"What to do Nothing, unless this comes back: then raise the rate limit or the quota.",
		"forced": "An operator has held the breaker of the vector store open since 02:20 UTC, for 40 min. The reason " +
			"given: maintenance of the Milvus cluster until 04:00. No call is made. 60 documents wait, the first " +
			"since 02:21 UTC. What to do Reset the breaker, or restart the service, when that reason is gone.",
		"dead": "300 documents cannot be ingested as they are. Everything else works. The next pass is in 31 s " +
			"(03:00:43 UTC). What to do See the reasons below. A document is tried again when it changes.",
	} {
		t.Run(name, func(t *testing.T) {
			n := situations[name](t)
			n.clock.Set(threeOClock)
			assert.Equal(t, want, n.sentence())
		})
	}
	assert.Len(t, situations, 9, "each has its row")
}

// What ends passes without a breaker that opens.
func TestHeadlineOfAPassThatEndedEarly(t *testing.T) {
	for name, row := range map[string]struct {
		kind     stop.Kind
		upstream string
		want     string
	}{
		"failure":       {stop.Deferred, "milvus", "The vector store has been failing since 02:00 UTC"},
		"configuration": {stop.Configuration, "milvus", "The configuration has not fitted the vector store since 02:00 UTC"},
		"fault":         {stop.Fault, "", "Something on this machine has been failing since 02:00 UTC"},
		"held journal":  {stop.Deferred, "", "Passes have ended early since 02:00 UTC"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNight(t, nil)
			n.clock.Set(threeOClock.Add(-time.Hour))
			for range 30 {
				n.pass(0, &stop.Error{Kind: row.kind, Upstream: row.upstream, Err: errors.New("it says no")}, nil)
				n.clock.Advance(time.Minute)
			}
			n.clock.Set(threeOClock)
			got := n.sentence()
			assert.Regexp(t, "^"+row.want+", for 1 h.", got)
			assert.Contains(t, got, "it says no What to do ")
			assert.Contains(t, got, "The next pass is due")

			n.PassBegins(n.clock.Now())
			assert.Contains(t, n.sentence(), "A pass is trying again.")
			n.Document(pipeline.Document{Result: pipeline.Ingested})
			assert.Regexp(t, "^Everything works, and a pass has been running since 03:00 UTC.", n.sentence(),
				"a document came through")
		})
	}
}

// Passes fail at an upstream before its breaker opens: since then it has been
// failing.
func TestHeadlineSinceTheFirstFailure(t *testing.T) {
	n := newNight(t, nil)
	for range 5 {
		calls(n.llm, 1, errOnFire)
		n.pass(0, stop.Later("llm", n.clock.Now().Add(10*time.Second), errOnFire), nil)
		n.clock.Advance(10 * time.Second)
	}
	n.clock.Advance(10 * time.Minute)
	assert.Equal(t, resilience.HalfOpen, n.llm.State())
	assert.Contains(t, n.sentence(), "The model server has been failing since 22:00 UTC, for 10 min.")
}

// A file that is being written is left for the next pass.
func TestHeadlineOfAPassThatLeftDocuments(t *testing.T) {
	n := newNight(t, nil)
	left := &stop.LeftError{Documents: 60, Cause: errors.New("it is being written")}
	n.pass(0, stop.Later("", n.clock.Now(), left), map[pipeline.Result]int{pipeline.Deferred: 60})
	assert.Equal(t, "Everything works; some documents wait for the next pass. 7 documents are complete, in 40 chunks. "+
		"60 documents wait, the first since 22:00 UTC. The next pass is due (22:00:12 UTC).", n.sentence())
}

func TestHeadlineOfInputsThatAreGone(t *testing.T) {
	n := newNight(t, nil)
	n.PassBegins(n.clock.Now())
	n.PassEnds(pipeline.Summary{}, errors.New("cannot list docs: no such file"), n.clock.Now(), n.clock.Now())
	assert.Contains(t, n.sentence(), "The inputs have not been readable since 22:00 UTC.")
	assert.Contains(t, n.sentence(), "The error cannot list docs: no such file What to do Make the inputs readable")
}

// A key that is refused after an outage leaves the breaker half-open, and the
// page said that the server fails.
func TestHeadlineOfARefusedProbe(t *testing.T) {
	n := newNight(t, nil)
	calls(n.llm, 5, errOnFire)
	n.pass(0, stop.Later("llm", n.clock.Now().Add(time.Minute), errOnFire), nil)
	n.clock.Advance(time.Minute)
	require.Equal(t, resilience.HalfOpen, n.llm.State())
	assert.Contains(t, n.sentence(), "The model server has been failing since")
	settle(t, n.llm, resilience.Denied)
	n.pass(0, &stop.Error{Kind: stop.Denied, Upstream: "llm", Err: errKey}, nil)
	require.Equal(t, resilience.HalfOpen, n.llm.State())
	assert.Contains(t, n.sentence(), "The model server has refused the credentials or the quota since")
	assert.NotContains(t, n.sentence(), "has been failing")
}

// The worst comes first, and each upstream once.
func TestHeadlineOfSeveralTroubles(t *testing.T) {
	n := situations["dead"](t)
	n.s3.ForceClose("migration")
	calls(n.llm, 5, errOnFire)
	n.pass(0, stop.Later("llm", n.clock.Now().Add(time.Minute), errOnFire), nil)
	got := n.sentence()
	assert.True(t, strings.HasPrefix(got, "The model server has been failing"), got)
	assert.Contains(t, got, "An operator has held the breaker of the object store closed since 02:59 UTC.")
	assert.Contains(t, got, "300 documents cannot be ingested as they are.")
	assert.Equal(t, 1, strings.Count(got, "The model server has"))
	n.journal.fault = errors.New("disk I/O error")
	n.worries.next = time.Time{}
	n.worries.change()
	assert.True(t, strings.HasPrefix(n.sentence(), "The journal cannot be read."), n.sentence())
}

// An outage of the chat server was one of the embedded model, and that of a
// bucket with the state one of the embedded originals: check the disk.
func TestHeadlineOfAServerBesideSomethingEmbedded(t *testing.T) {
	n := newNight(t, func(c *Config) {
		c.Places = map[string]stop.Place{
			"llm": {Address: "embedded", Model: "potion-base-8M", ChatAddress: "http://gpu/v1", ChatModel: "gpt"},
			"s3":  {Address: "embedded", StateAddress: "AWS"},
		}
	})
	calls(n.llm, 5, errOnFire)
	got := n.sentence()
	assert.Contains(t, got, "The model server has been failing")
	assert.Contains(t, got, "embedded (chat: http://gpu/v1), model potion-base-8M (chat: gpt) said")
	assert.Contains(t, got, "Repair or restart the model server.")
	assert.NotContains(t, got, "Check the disk")
	body := n.get("/").Body.String()
	assert.Contains(t, body, "<h3>Model server <code>llm</code></h3>")
	assert.Contains(t, body, "<bdi>embedded (chat: http://gpu/v1)</bdi>")
	n.llm.Reset()
	calls(n.s3, 5, errOnFire)
	assert.Contains(t, n.sentence(), "The object store has been failing")
	assert.Contains(t, n.sentence(), "embedded (state: AWS) said")
}

func TestHeadlineOfAnEmbeddedStore(t *testing.T) {
	n := situations["embedded"](t)
	calls(n.milvus, 5, errors.New("disk I/O error"))
	assert.Contains(t, n.sentence(), "The embedded vector store has been failing")
	assert.Contains(t, n.sentence(), "embedded, in .penstock said disk I/O error")
	assert.Contains(t, n.sentence(), "Check the disk")
	body := n.get("/").Body.String()
	assert.Contains(t, body, "<h3>Vectors</h3>")
	assert.Contains(t, body, "<strong>fails</strong>")
	assert.NotContains(t, tag.ReplaceAllString(body, ""), "milvus", "only metrics and attributes call it that")
}

// Shadow mode is not a trouble, and a ramp is the end of one.
func TestHeadlineOfWhatIsNotATrouble(t *testing.T) {
	n := newNight(t, nil)
	shadow := n.own(t, resilience.Config{FailMax: 1, Shadow: true})
	fail(shadow, "down")
	n.pass(0, nil, nil)
	assert.Contains(t, n.sentence(), "All is well.")

	n = newNight(t, nil)
	ramp := n.own(t, resilience.Config{FailMax: 1, ResetTimeout: time.Minute, Ramp: time.Minute, Clock: n.clock})
	fail(ramp, "down")
	assert.Contains(t, n.sentence(), "own has been failing")
	n.clock.Advance(time.Minute)
	assert.Contains(t, n.sentence(), "own has been failing", "nothing has shown that it works")
	assert.Contains(t, n.sentence(), "The next call is the probe.")
	require.NoError(t, ramp.Do(t.Context(), func(context.Context) error { return nil }))
	n.clock.Advance(30 * time.Second)
	assert.Contains(t, n.sentence(), "own has recovered: 50 % of calls are admitted, a growing share.")
}

// Nothing is known before the first document.
func TestHeadlineOfTheFirstPass(t *testing.T) {
	n := newNight(t, nil)
	n.PassBegins(n.clock.Now())
	assert.Contains(t, n.sentence(), "The first pass has been running since 22:00 UTC.")
}

// An empty folder is not the same as a job done.
func TestHeadlineWithoutDocuments(t *testing.T) {
	n := newNight(t, nil)
	n.journal.empty = true
	n.pass(0, nil, nil)
	assert.Contains(t, n.sentence(), "Everything works, but no document was found. ")
}

// A breaker that stays closed does not make its card look well while passes
// end at its upstream.
func TestCardOfTheUpstreamThatEndedThePass(t *testing.T) {
	body := situations["denied"](t).get("/").Body.String()
	assert.Contains(t, body, `<li class="card closed blamed" data-upstream="llm"`)
	assert.Equal(t, 1, strings.Count(body, "the last pass ended here"))
	assert.Contains(t, body, `<code>llm</code>`)
	assert.Contains(t, body, "<bdi>http://127.0.0.1:18701/v1</bdi>")
	assert.Contains(t, body, "Model <bdi>fake-8</bdi>")
}

// Seven documents were in flight when the upstream failed, and the page said
// that seven were deferred.
func TestTheWholeBacklogIsShown(t *testing.T) {
	n := situations["open"](t)
	body := n.get("/").Body.String()
	assert.Contains(t, body, "<dt>waiting</dt><dd>60</dd>")
	assert.Contains(t, body, ">53 documents</a></strong>: <span class=\"reason\"><bdi>the run ended before")
	assert.Contains(t, body, "All 60 deferred documents")
	assert.Contains(t, n.get("/problems?status=deferred").Body.String(), "<p>60 in total.</p>")
	assert.Contains(t, situations["quiet"](t).get("/").Body.String(), "<dt>waiting</dt><dd>0</dd>")
}

// With 30 of 60 documents ingested the page still said that 60 wait.
func TestTheBacklogShrinksDuringAPass(t *testing.T) {
	n := situations["open"](t)
	n.PassBegins(n.clock.Now())
	n.works(map[pipeline.Result]int{pipeline.Ingested: 30})
	n.journal.problems = unbegun(30)
	body := n.get("/").Body.String()
	assert.Contains(t, body, "<strong>30 documents wait</strong>")
	assert.Contains(t, body, "<dt>waiting</dt><dd>30</dd>")
	assert.NotContains(t, body, "60 documents")
	assert.NotContains(t, body, "more documents wait")
	assert.Contains(t, n.sentence(), ", the first since 02:44 UTC")
}

// A lower bound was shown as an exact number.
func TestABacklogThatIsNotKnownWhole(t *testing.T) {
	for waiting, want := range map[int]string{0: "≥ 0", 1: "≥ 1", 60: "≥ 60"} {
		n := newNight(t, nil)
		n.PassBegins(n.clock.Now())
		n.PassEnds(pipeline.Summary{Waiting: waiting, WaitingAtLeast: true}, nil, n.clock.Now(), n.clock.Now())
		n.journal.wait(unbegun(waiting))
		assert.Contains(t, n.get("/").Body.String(), "<dt>waiting</dt><dd>"+want+"</dd>")
		assert.NotContains(t, n.sentence(), "Nothing waits")
		sentence := map[int]string{1: "At least 1 document waits.", 60: "At least 60 documents wait."}[waiting]
		assert.Contains(t, n.sentence(), sentence)

		n.PassBegins(n.clock.Now())
		n.PassEnds(pipeline.Summary{}, nil, n.clock.Now(), n.clock.Now())
		assert.NotContains(t, n.get("/").Body.String(), "≥")
		assert.NotContains(t, n.sentence(), "At least")
	}
}

// A journal that cannot be read leaves the count of the last pass.
func TestTheBacklogWithoutAJournal(t *testing.T) {
	n := situations["open"](t)
	n.journal.fault = errors.New("disk I/O error")
	assert.Contains(t, n.sentence(), "60 documents wait")
}

// One error is not on the page again and again.
func TestOneErrorIsNotRepeated(t *testing.T) {
	n := situations["open"](t)
	seen := strings.Count(n.get("/").Body.String(), "<bdi>"+errOnFire.Error())
	assert.LessOrEqual(t, seen, 3, "the sentence, the card, and the documents that wait")
	assert.GreaterOrEqual(t, seen, 2)
}
