package statuspage

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/resilience"
)

// watcher is a browser that has the page open.
type watcher struct {
	header http.Header
	cancel context.CancelFunc

	mu       sync.Mutex
	status   int
	text     strings.Builder
	deadline time.Time
	broken   bool
}

func (w *watcher) Header() http.Header { return w.header }
func (w *watcher) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = status
}

func (w *watcher) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken {
		return 0, errors.New("connection reset")
	}
	return w.text.Write(b)
}

func (w *watcher) Flush() {}

func (w *watcher) SetWriteDeadline(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline = at
	return nil
}

// read gives what came since the last read.
func (w *watcher) read() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.text.Reset()
	return w.text.String()
}

// watch opens an event stream; ended is closed when the handler returns.
func (f *fixture) watch() (w *watcher, ended <-chan struct{}) {
	w = &watcher{header: http.Header{}}
	ctx, cancel := context.WithCancel(f.t.Context())
	w.cancel = cancel
	f.t.Cleanup(cancel)
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1/events", nil)
	done := make(chan struct{})
	go func() { f.ServeHTTP(w, r); close(done) }()
	return w, done
}

// bubble runs a test with a page that is running, on the bubble's clock.
func bubble(t *testing.T, test func(t *testing.T, f *fixture)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { f.Run(ctx); close(done) }()
		test(t, f)
		cancel()
		<-done
		synctest.Wait()
	})
}

func TestChangesArriveWithinASecond(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		w, _ := f.watch()
		time.Sleep(time.Second)
		first := w.read()
		for _, part := range []string{"clock", "headline", "breakers", "timeline", "progress", "problems"} {
			assert.Contains(t, first, "event: "+part+"\n", "a page that comes, or comes back, gets everything")
		}
		assert.Equal(t, "text/event-stream", w.header.Get("Content-Type"))

		f.s3.Trip("drill")
		time.Sleep(time.Second)
		news := w.read()
		assert.Contains(t, news, `data-upstream="s3" data-state="open"`)
		assert.Contains(t, news, "event: timeline\n")
		assert.NotContains(t, news, "event: progress\n", "what has not changed is not sent")

		time.Sleep(30 * time.Second)
		assert.NotContains(t, w.read(), "data:",
			"while it waits there is nothing to say: the page counts down by itself")
		time.Sleep(30 * time.Second) // the minute was over a second ago
		assert.Contains(t, w.read(), `data-upstream="s3" data-state="half_open"`,
			"the wait ends without an event of the breaker")

		require.NoError(t, f.s3.Do(t.Context(), func(context.Context) error { return nil }))
		time.Sleep(time.Second)
		assert.Contains(t, w.read(), `data-upstream="s3" data-state="closed"`)

		fail(f.llm, "away")
		time.Sleep(time.Second)
		assert.Contains(t, w.read(), "1 of 2", "a streak is no transition and is shown all the same")
		w.cancel()
	})
}

func TestPassesArrive(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		w, _ := f.watch()
		time.Sleep(time.Second)
		w.read()
		f.PassBegins(time.Now())
		f.Document(pipeline.Document{Result: pipeline.Ingested, Chunks: 4})
		time.Sleep(time.Second)
		assert.Contains(t, w.read(), "<dt>chunks</dt><dd>4</dd>")
		f.PassEnds(pipeline.Summary{}, nil, time.Now(), time.Now().Add(time.Minute))
		time.Sleep(time.Second)
		assert.Contains(t, w.read(), "Idle; the next pass begins")
		w.cancel()
	})
}

func TestIdleStreamIsKeptAlive(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		w, _ := f.watch()
		time.Sleep(time.Minute)
		assert.GreaterOrEqual(t, strings.Count(w.read(), ": alive\n\n"), 3)
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.WithinDuration(t, time.Now(), w.deadline, beat+sendLimit, "each write has a deadline of its own")
		w.cancel()
	})
}

func TestStreamsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var all []*watcher
		for range watchers {
			w, _ := f.watch()
			all = append(all, w)
		}
		synctest.Wait()
		w, ended := f.watch()
		<-ended
		assert.Equal(t, http.StatusServiceUnavailable, w.status)
		assert.NotEmpty(t, w.header.Get("Retry-After"))

		all[0].cancel()
		synctest.Wait()
		again, _ := f.watch()
		time.Sleep(time.Second)
		assert.Contains(t, again.read(), "event: breakers")
		for _, w := range append(all, again) {
			w.cancel()
		}
		synctest.Wait()
		assert.False(t, f.hub.watched())
	})
}

// A watcher whose connection broke is forgotten at the next event.
func TestBrokenStreamEnds(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		w, ended := f.watch()
		time.Sleep(time.Second)
		w.mu.Lock()
		w.broken = true
		w.mu.Unlock()
		f.s3.Trip("drill")
		<-ended
		assert.False(t, f.hub.watched())
	})
}

func TestStreamsEndWithTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		go f.Run(ctx)
		_, ended := f.watch()
		time.Sleep(time.Second)
		cancel()
		<-ended
		late, refused := f.watch()
		<-refused
		assert.Equal(t, http.StatusServiceUnavailable, late.status)
	})
}

// Nobody watches: the page reads nothing.
func TestNobodyWatches(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.s3.Trip("drill")
		f.PassBegins(time.Now())
		time.Sleep(time.Hour)
		assert.Zero(t, f.journal.reads)
	})
}

// A hundred changes in a moment are a few events, and the last of them is
// there.
func TestChangesAreGathered(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		w, _ := f.watch()
		time.Sleep(time.Second)
		w.read()
		for range 100 {
			f.s3.ForceOpen("drill")
			time.Sleep(time.Millisecond)
			f.s3.Reset()
			time.Sleep(time.Millisecond)
		}
		f.s3.ForceOpen("the last")
		time.Sleep(time.Second)
		news := w.read()
		assert.LessOrEqual(t, strings.Count(news, "event: breakers"), 6)
		assert.Contains(t, news[strings.LastIndex(news, "event: timeline"):], "the last")
		w.cancel()
	})
}

func TestEncodingOfEvents(t *testing.T) {
	got := events([]fragment{{id: "a", html: "one\r\n\ntwo: three"}, {id: "b"}})
	assert.Equal(t, "event: a\ndata: one\ndata: \ndata: two: three\n\nevent: b\n\n", got)
}

// The parts that arrive as events are those that the page has places for.
func TestPartsHavePlaces(t *testing.T) {
	f := newFixture(t, nil)
	body := f.get("/").Body.String()
	script, err := staticFiles.ReadFile("static/app.js")
	require.NoError(t, err)
	for _, part := range f.fragments(t.Context()) {
		assert.Contains(t, body, `<div id="`+part.id+`">`)
		assert.Contains(t, string(script), `"`+part.id+`"`)
		assert.NotEmpty(t, part.html)
	}
	assert.NotEqual(t, resilience.Open, f.s3.State())
}
