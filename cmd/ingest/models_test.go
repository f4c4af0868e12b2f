package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/testutil/llmtest"
)

// gatedModel is a model that answers when it is told to.
func gatedModel(t *testing.T) (url string, asked, release func()) {
	t.Helper()
	gate, calls := make(chan struct{}), make(chan struct{}, 100)
	model := llmtest.NewHandler(llmtest.Options{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls <- struct{}{}
		select {
		case <-gate:
		case <-r.Context().Done():
		}
		model.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	asked = func() {
		t.Helper()
		select {
		case <-calls:
		case <-time.After(time.Minute):
			require.Fail(t, "the model is not asked")
		}
	}
	return server.URL + "/v1", asked, sync.OnceFunc(func() { close(gate) })
}

// till is a model server that writes down which texts each run had embedded.
type till struct {
	handler http.Handler

	mu   sync.Mutex
	runs [][][]string // run, request, text
}

func newTill(t *testing.T) (*till, string) {
	t.Helper()
	tl := &till{handler: llmtest.NewHandler(llmtest.Options{Delay: 3 * time.Millisecond})}
	server := httptest.NewServer(tl)
	t.Cleanup(server.Close)
	return tl, server.URL + "/v1"
}

func (tl *till) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller was killed
	}
	var request struct{ Input []string }
	if err := json.Unmarshal(body, &request); err == nil {
		tl.mu.Lock()
		last := len(tl.runs) - 1
		tl.runs[last] = append(tl.runs[last], request.Input)
		tl.mu.Unlock()
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	tl.handler.ServeHTTP(w, r)
}

func (tl *till) nextRun() {
	tl.mu.Lock()
	defer tl.mu.Unlock()
	tl.runs = append(tl.runs, nil)
}

// requirePaidOnce checks that no text was embedded again but those of the five
// requests at most that were in flight when a run was killed, and says how many
// texts that were. They need not be the last five: one may be in flight while
// others come and go.
func (tl *till) requirePaidOnce(t *testing.T) (texts, again int) {
	t.Helper()
	tl.mu.Lock()
	defer tl.mu.Unlock()
	type payment struct{ run, request int }
	paid := map[string]payment{}
	lost := make([]map[int]bool, len(tl.runs)) // requests of a run that another paid for again
	for run, requests := range tl.runs {
		for n, request := range requests {
			for _, text := range request {
				if strings.HasPrefix(text, "penstock: does the model answer") {
					continue
				}
				texts++
				if before, ok := paid[text]; ok {
					again++
					require.NotEqual(t, run, before.run, "embedded twice in one run: %q", text)
					if lost[before.run] == nil {
						lost[before.run] = map[int]bool{}
					}
					lost[before.run][before.request] = true
					require.LessOrEqual(t, len(lost[before.run]), 5, "run %d kept less than what was not in flight: %q",
						before.run, text)
				}
				paid[text] = payment{run, n}
			}
		}
	}
	return texts, again
}

// liar is a model server that answers badly when it chooses to.
type liar struct {
	good, bad *llmtest.Handler

	mu      sync.Mutex
	lies    func(request int) bool
	number  int
	streak  int // bad answers in a row, in the order of the requests
	longest int
	total   int // bad answers
}

func newLiar(t *testing.T, fault llmtest.Fault) (*liar, string) {
	t.Helper()
	l := &liar{
		good: llmtest.NewHandler(llmtest.Options{Delay: time.Millisecond}),
		bad:  llmtest.NewHandler(llmtest.Options{}),
	}
	l.bad.Script(llmtest.All(fault))
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)
	return l, server.URL + "/v1"
}

func (l *liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l.next() {
		l.bad.ServeHTTP(w, r)
	} else {
		l.good.ServeHTTP(w, r)
	}
}

func (l *liar) next() (lie bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	if lie = l.lies != nil && l.lies(l.number); lie {
		l.total++
		l.streak++
	} else {
		l.streak = 0
	}
	l.longest = max(l.longest, l.streak)
	return lie
}

// lied is how many answers were lies, and the most of them in a row.
func (l *liar) lied() (total, longest int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total, l.longest
}

// behave sets when to lie from now on; nil is never.
func (l *liar) behave(lies func(request int) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lies, l.number, l.streak = lies, 0, 0
}

// prompts counts what a chat model was asked, and answers each time in other
// words.
type prompts struct {
	mu    sync.Mutex
	asked map[string]int
	n     int
}

func (p *prompts) reply(r openai.ChatCompletionRequest) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	prompt := r.Messages[len(r.Messages)-1].Content
	p.n++
	if !strings.Contains(prompt, "does the model answer?") { // the check of the model
		p.asked[prompt]++
	}
	if strings.HasPrefix(prompt, "<document>") {
		return fmt.Sprintf(`{"title": "Title %d", "summary": "Summary %d."}`, p.n, p.n)
	}
	return fmt.Sprintf("Context %d.", p.n)
}

// paid is how many questions were asked, and how many of them again.
func (p *prompts) paid() (distinct, again int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.asked {
		again += n - 1
	}
	return len(p.asked), again
}
