// Package enrich asks a chat model about documents and their chunks, within a
// budget, and reads what it answers into the metadata of rows.
//
//	e := enrich.New(enrich.Config{Client: client, Wanted: wanted, …})
//	question := e.AboutChunk(head, heading, before, text, after)
//	e.Ask(ctx, []*enrich.Question{question})
//
// An answer is asked for once: it is kept by the hash of model and prompt, and
// found again there. The metadata of a row says by which keys its texts were
// asked for, so that they are also found without what was kept
// ([Meta.Answers]).
//
// An answer that is useless leaves its field out, and so does a text that the
// model refuses; neither is an error.
package enrich

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	openai "github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/pipeline/modelserver"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
)

const (
	stage     = "enrich" // where documents fail, in errors
	operation = "create_chat_completion"
)

var (
	// ErrBudget is the error of a question that the budget does not allow.
	ErrBudget = errors.New("the budget for enrichment is spent")
	// ErrLater is the error of a question that the model did not answer, though
	// it answers others, and that may not be to blame.
	ErrLater = errors.New("the chat model did not answer; the next run asks again")
)

// Answers keeps answers from one run to the next. *journal.Journal is one.
type Answers interface {
	// Answers gives the known ones of the answers to these keys.
	Answers(ctx context.Context, keys ...string) (map[string]string, error)
	// KeepAnswers keeps answers by their key. An empty text is an answer that
	// was useless.
	KeepAnswers(ctx context.Context, answers map[string]string) error
}

// Wanted says what is asked for. The zero value asks for nothing.
type Wanted struct {
	Title, Summary, Context bool
}

// Any reports whether anything is asked for.
func (w Wanted) Any() bool { return w.Title || w.Summary || w.Context }

// Policy names what a model makes of a document, for its policy hash.
func (w Wanted) Policy(model string) []string {
	parts := []string{"enrich", promptVersion, model}
	for _, kind := range []struct {
		on   bool
		name string
	}{{w.Title, keyTitle}, {w.Summary, keySummary}, {w.Context, keyContext}} {
		if kind.on {
			parts = append(parts, kind.name)
		}
	}
	return parts
}

// Config says what an Enricher is made of. Fields without a default are
// required.
type Config struct {
	Client llm.ChatClient
	// Guard is the door; its breaker is that of the Server's service.
	Guard  llm.Guard
	Model  string
	Wanted Wanted
	// Budget is how many tokens may be spent, prompts and answers together, as
	// the server counts them. Zero means unlimited.
	Budget int
	// Concurrency is how many questions of one Ask are on their way at a time.
	// Default: 1.
	Concurrency int
	// Answers has what was answered before. When it fails, the run ends: to
	// continue would pay again.
	Answers Answers
	Server  *modelserver.Server
	// Metrics counts tokens. Default: none.
	Metrics *metrics.Pipeline
}

// Enricher asks a chat model. It is safe for concurrent use.
type Enricher struct {
	config Config
	model  *modelserver.Model
	ending *stop.Ending
	budget *budget

	check    sync.Once
	checkErr error

	mu      sync.Mutex
	flights map[string]*flight // by key
}

// flight is a question on its way.
type flight struct {
	done chan struct{}
	Question
}

// New makes an Enricher. It calls nothing.
func New(config Config) *Enricher {
	e := &Enricher{
		config: config, ending: config.Server.Ending(), budget: newBudget(config.Budget), flights: map[string]*flight{},
	}
	e.model = config.Server.Model(modelserver.Use{
		Stage: stage, Operation: operation, Canary: e.canary, Failures: 3, Doubts: 2,
	})
	return e
}

// Open reports whether something is wanted and the budget may still allow it.
func (e *Enricher) Open() bool { return e.config.Wanted.Any() && !e.SpentUp() }

// SpentUp reports whether the budget has refused a question. It refuses all
// others from then on.
func (e *Enricher) SpentUp() bool { return e.budget.spentUp() }

// Spent is how many tokens were spent.
func (e *Enricher) Spent() int { return e.budget.total() }

// Check asks the model something harmless, once; Ask does so before its first
// question. A failure ends the run; the error is a [*stop.Failure].
func (e *Enricher) Check(ctx context.Context) error {
	e.check.Do(func() { e.checkErr = e.model.Check(ctx) })
	return e.checkErr
}

// Ask asks questions, the first ones first, and returns when each has its
// answer or an error. Equal questions that are asked at the same time are one.
// The end of the run defers the rest.
//
// A question is sent with the context of the call that brought it first, so
// calls at the same time need contexts that end together.
func (e *Enricher) Ask(ctx context.Context, questions []*Question) {
	var next atomic.Int64
	var askers sync.WaitGroup
	for range min(max(e.config.Concurrency, 1), len(questions)) {
		askers.Go(func() {
			for i := next.Add(1); i <= int64(len(questions)); i = next.Add(1) {
				e.once(ctx, questions[i-1])
			}
		})
	}
	askers.Wait()
}

// once answers a question, or waits for the equal one that is on its way. Then
// it has spent nothing.
func (e *Enricher) once(ctx context.Context, q *Question) {
	e.mu.Lock()
	f := e.flights[q.Key]
	if f != nil {
		e.mu.Unlock()
		<-f.done
		q.Text, q.Kept, q.Err = f.Text, f.Kept, f.Err
		return
	}
	f = &flight{done: make(chan struct{})}
	e.flights[q.Key] = f
	e.mu.Unlock()
	e.answer(ctx, q)
	f.Question = *q
	e.mu.Lock()
	delete(e.flights, q.Key)
	e.mu.Unlock()
	close(f.done)
}

// answer finds what was answered before, or has the question answered if the
// budget allows it.
func (e *Enricher) answer(ctx context.Context, q *Question) {
	known, err := e.config.Answers.Answers(ctx, q.Key)
	if err != nil {
		q.Err = stop.Defer(stage, "fault", e.ending.Fault(err))
		return
	}
	if q.Text, q.Kept = known[q.Key]; q.Kept {
		return
	}
	need := q.estimate(e.config.Model)
	if !e.budget.take(need) {
		q.Err = ErrBudget
		return
	}
	defer func() { e.budget.settle(need, q.Spent) }()
	if q.Err = e.Check(ctx); q.Err == nil {
		q.Err = e.ask(ctx, q)
	}
}

// ask sends a question until it is known what becomes of it.
func (e *Enricher) ask(ctx context.Context, q *Question) error {
	failed := e.model.Send(ctx, e.request(q))
	if failed == nil || failed.Refused() && !e.ending.Stopped(failed.Err) {
		return nil // a refusal costs one field, and a canary would cost tokens
	}
	judgment, err := e.model.Judge(ctx, failed, e.request(q))
	switch judgment {
	case modelserver.Guilty:
		if stop.VerdictOf(err).Outcome == resilience.Failure {
			e.keep(ctx, q) // nor will it have an answer the next time
		}
	case modelserver.Unproven:
		return ErrLater
	case modelserver.Ended:
		return err
	case modelserver.Answered:
	}
	return nil
}

// request asks a question and keeps its answer.
func (e *Enricher) request(q *Question) modelserver.Request {
	return func(ctx context.Context, told func(resilience.Verdict)) error {
		response, err := e.call(ctx, told, q)
		if err != nil {
			return err
		}
		choice := response.Choices[0]
		q.Text = q.read(reply{text: choice.Message.Content, cut: cutShort(choice.FinishReason)})
		e.keep(ctx, q)
		return nil
	}
}

// canary asks something harmless. Whatever is answered will do.
func (e *Enricher) canary(ctx context.Context, told func(resilience.Verdict)) error {
	q := &Question{prompt: modelserver.CanaryText, tokens: canaryTokens}
	_, err := e.call(ctx, told, q)
	e.budget.settle(0, q.Spent)
	if _, named := errors.AsType[*namedError](err); err != nil && !named {
		return &namedError{e.config.Model, err} // the door's own
	}
	return err
}

// call sends a question through the door and counts what it cost.
func (e *Enricher) call(
	ctx context.Context, told func(resilience.Verdict), q *Question,
) (openai.ChatCompletionResponse, error) {
	guard := e.config.Guard
	guard.Settled = told
	response, err := guard.CreateChatCompletion(
		ctx, named{e.config.Client, e.config.Model}, chatRequest(e.config.Model, q.prompt, q.tokens))
	if err == nil {
		spent := spentOn(q, response)
		q.Spent += spent
		e.config.Metrics.Chat(spent)
	}
	return response, err
}

// spentOn is what an answer cost, by the server's count or else by estimate.
func spentOn(q *Question, response openai.ChatCompletionResponse) int {
	usage := response.Usage
	if spent := max(usage.TotalTokens, usage.PromptTokens+usage.CompletionTokens); spent > 0 {
		return min(spent, 1<<30)
	}
	said := plain.Front(response.Choices[0].Message.Content, answerBytes)
	return q.shown() + chunk.EstimateTokens(said)
}

func cutShort(reason openai.FinishReason) bool {
	return reason == openai.FinishReasonLength || reason == openai.FinishReasonContentFilter
}

// keep remembers the answer to a question, even a useless one.
func (e *Enricher) keep(ctx context.Context, q *Question) {
	q.Kept = true
	answers := map[string]string{q.Key: q.Text}
	if err := e.config.Answers.KeepAnswers(context.WithoutCancel(ctx), answers); err != nil {
		_ = e.ending.Fault(err)
	}
}
