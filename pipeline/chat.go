package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/resilience"
)

var (
	// errBudget is what a question gets that the budget does not allow.
	errBudget = errors.New("the budget for enrichment is spent")
	// errLater is what a question gets that failed, though others did not, and that
	// may not be to blame for it.
	errLater = errors.New("the chat model did not answer; the next run asks again")
)

// chatter asks the chat model. Equal questions that are asked at the same time
// are one.
type chatter struct {
	run    *run
	budget *budget

	check    sync.Once
	checkErr error

	mu      sync.Mutex
	flights map[string]*flight // by key

	successes atomic.Int64
}

// flight is a question on its way.
type flight struct {
	done chan struct{}
	question
}

func newChatter(r *run, b *budget) *chatter {
	return &chatter{run: r, budget: b, flights: map[string]*flight{}}
}

// all asks questions, the first ones first.
func (c *chatter) all(questions []*question) {
	var next atomic.Int64
	var askers sync.WaitGroup
	for range min(c.run.Concurrency, len(questions)) {
		askers.Go(func() {
			for i := next.Add(1); i <= int64(len(questions)); i = next.Add(1) {
				c.once(questions[i-1])
			}
		})
	}
	askers.Wait()
}

// once answers a question, or waits for who is at it. Who only waited has spent
// nothing.
func (c *chatter) once(q *question) {
	c.mu.Lock()
	f := c.flights[q.key]
	if f != nil {
		c.mu.Unlock()
		<-f.done
		q.text, q.kept, q.err = f.text, f.kept, f.err
		return
	}
	f = &flight{done: make(chan struct{})}
	c.flights[q.key] = f
	c.mu.Unlock()
	c.answer(q)
	f.question = *q
	c.mu.Lock()
	delete(c.flights, q.key)
	c.mu.Unlock()
	close(f.done)
}

// answer finds what was answered before, or has the question answered if the
// budget allows it.
func (c *chatter) answer(q *question) {
	known, err := c.run.Journal.Answers(c.run.ctx, q.key)
	if err != nil {
		q.err = deferral("enrich", "fault", c.run.journalFault(err))
		return
	}
	if q.text, q.kept = known[q.key]; q.kept {
		return
	}
	need := q.estimate(c.run.Enrich.Model)
	if !c.budget.take(need) {
		q.err = errBudget
		return
	}
	defer func() { c.budget.settle(need, q.spent) }()
	if q.err = c.ready(); q.err == nil {
		q.err = c.ask(q)
	}
}

// ready checks the chat model before the first question. Every question waits
// for it.
func (c *chatter) ready() error {
	c.check.Do(func() {
		err := c.canary()
		for tries := 0; err != nil && tries < patience && c.run.embed.waitedOut(err); tries++ {
			err = c.canary()
		}
		if err != nil {
			err = fmt.Errorf("chat model %q: %w", c.run.Enrich.Model, err)
		}
		c.checkErr = c.run.beforeFirst(upstreamLLM, err)
	})
	return c.checkErr
}

// canary asks something harmless. Whatever is answered will do.
func (c *chatter) canary() error {
	q := &question{prompt: canaryText, tokens: 8, read: func(reply) string { return "" }}
	defer func() { c.budget.settle(0, q.spent) }()
	return c.request(q)
}

// ask sends a question until it is known what becomes of it.
func (c *chatter) ask(q *question) error {
	for failures := 0; ; {
		before := c.successes.Load()
		err := c.request(q)
		verdict := classify(c.run.ctx, err)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errStopped) || c.run.ctx.Err() != nil:
			return deferral("enrich", "stopped", errStopped)
		case c.run.embed.waitedOut(err):
			continue
		case c.run.stopFor(upstreamLLM, verdict, err) != nil:
			return c.run.blame(upstreamLLM, "enrich", err)
		case verdict.Outcome != resilience.Failure: // it refuses this text
			return nil
		}
		if err := c.others(before, err); err != nil {
			return err
		}
		if failures++; failures > doubts {
			c.keep(q) // convicted: it has no answer
			return nil
		}
		if failures == doubts {
			if err := c.witness(err); err != nil {
				return err
			}
		}
	}
}

// doubts is how often a question may fail, while others do not, before it is on
// trial.
const doubts = 2

// others waits until another question has been answered since, so that the fault
// is in the one that failed.
func (c *chatter) others(before int64, cause error) error {
	for c.successes.Load() == before {
		if err := c.run.probe("enrich", cause, c.canary); err != nil {
			return err
		}
	}
	return nil
}

// witness looks whether the chat model is well, so that a question that fails
// once more is to blame itself. A server that comes and goes must not leave
// documents without their enrichment for good, nor must a slow one.
func (c *chatter) witness(cause error) error {
	if isTimeout(cause) {
		return errLater
	}
	for range witnesses {
		err := c.canary()
		switch {
		case err == nil:
		case errors.Is(err, errStopped) || c.run.stopFor(upstreamLLM, classify(c.run.ctx, err), err) != nil:
			return c.run.blame(upstreamLLM, "enrich", err)
		default:
			return errLater
		}
	}
	return nil
}

func (c *chatter) request(q *question) error {
	if !c.run.embed.wait(c.run.embed.pace.next(time.Now())) {
		return errStopped
	}
	var response openai.ChatCompletionResponse
	err := c.run.llm.do(c.run.ctx, "create_chat_completion", func() (err error) {
		response, err = c.run.LLMGuard.CreateChatCompletion(c.run.ctx, c.run.Enrich.Client,
			chatRequest(c.run.Enrich.Model, q.prompt, q.tokens))
		if err == nil {
			c.accept(q, response)
		}
		return err
	})
	if err != nil {
		return withWait(err, response.Header())
	}
	return nil
}

// accept reads an answer and remembers it, before another request may be sent in
// its place.
func (c *chatter) accept(q *question, response openai.ChatCompletionResponse) {
	c.successes.Add(1)
	choice := response.Choices[0]
	spent := spentOn(q, response)
	q.spent += spent
	c.run.Metrics.Chat(spent)
	q.text = q.read(reply{text: choice.Message.Content, cut: cutShort(choice.FinishReason)})
	c.keep(q)
}

func cutShort(reason openai.FinishReason) bool {
	return reason == openai.FinishReasonLength || reason == openai.FinishReasonContentFilter
}

// spentOn is what an answer cost, by the server's count or else by estimate.
func spentOn(q *question, response openai.ChatCompletionResponse) int {
	usage := response.Usage
	if spent := max(usage.TotalTokens, usage.PromptTokens+usage.CompletionTokens); spent > 0 {
		return min(spent, 1<<30)
	}
	said := front(response.Choices[0].Message.Content, answerBytes)
	return q.shown() + chunk.EstimateTokens(said)
}

// keep remembers an answer, be it of no use. That of the canary has no key.
func (c *chatter) keep(q *question) {
	if q.key == "" {
		return
	}
	q.kept = true
	if err := c.run.Journal.KeepAnswers(context.WithoutCancel(c.run.ctx), map[string]string{q.key: q.text}); err != nil {
		c.run.fault(err)
	}
}

// budget is what a run may spend, in tokens.
type budget struct {
	limit int // zero is no limit

	mu       sync.Mutex
	settled  *sync.Cond
	spent    int
	promised int  // to questions on their way
	over     bool // a question was refused
}

func newBudget(limit int) *budget {
	b := &budget{limit: limit}
	b.settled = sync.NewCond(&b.mu)
	return b
}

// take promises tokens to a question. While others are on their way that may
// cost less than was promised to them, it waits. From the first refusal on
// everything is refused.
func (b *budget) take(tokens int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.limit > 0 && !b.over && b.spent+b.promised+tokens > b.limit {
		if b.promised == 0 {
			b.over = true
			break
		}
		b.settled.Wait()
	}
	if b.over {
		return false
	}
	b.promised += tokens
	return true
}

// settle replaces a promise by what was spent.
func (b *budget) settle(promised, spent int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.promised -= promised
	b.spent += spent
	b.settled.Broadcast()
}

func (b *budget) spentUp() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}

// total is what was spent.
func (b *budget) total() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spent
}
