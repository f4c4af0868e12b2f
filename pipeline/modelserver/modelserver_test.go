package modelserver_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	openai "github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/pipeline/modelserver"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/trip"
)

// reply is what the scripted server answers: an error and its verdict.
type reply struct {
	err     error
	verdict resilience.Verdict
}

var (
	well    = reply{}
	failed  = reply{errors.New("down"), resilience.Verdict{Outcome: resilience.Failure}}
	refused = reply{errors.New("unfit"), resilience.Verdict{Outcome: resilience.Ignored}}
	slow    = reply{context.DeadlineExceeded, resilience.Verdict{Outcome: resilience.Failure}}
	denied  = reply{errors.New("who are you?"), resilience.Verdict{Outcome: resilience.Denied}}
	unknown = reply{&openai.APIError{HTTPStatusCode: 404, Message: "no such model"}, refused.verdict}
)

func throttled(after time.Duration) reply {
	return reply{errors.New("too fast"), resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: after}}
}

// script answers requests in turn; the last answer is repeated.
type script struct {
	mu      sync.Mutex
	replies []reply
	sent    int
}

func says(replies ...reply) *script { return &script{replies: replies} }

func (s *script) next() reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.replies[min(s.sent, len(s.replies)-1)]
	s.sent++
	return r
}

// world is a model of a server whose answers are scripted. Its calls go through
// a real breaker.
type world struct {
	breaker *resilience.Breaker
	ending  *stop.Ending
	server  *modelserver.Server
	model   *modelserver.Model
}

func newWorld(t *testing.T, c resilience.Config, use modelserver.Use, canary *script) *world {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	breaker, err := resilience.New("llm", c)
	require.NoError(t, err)
	w := &world{breaker: breaker, ending: stop.NewEnding(t.Context())}
	w.server = modelserver.New(modelserver.Config{
		Service: service.Models(llm.Guard{Breaker: breaker}), Ending: w.ending, MaxPause: 30 * time.Second,
	})
	use.Stage, use.Operation, use.Canary = "embed", "create_embeddings", w.request(canary)
	w.model = w.server.Model(use)
	return w
}

func (w *world) request(s *script) modelserver.Request {
	return func(ctx context.Context, told func(resilience.Verdict)) error {
		var r reply
		classify := func(context.Context, error) resilience.Verdict { return r.verdict }
		op := resilience.Op[int]{Name: "create_embeddings", Classify: classify, Settled: told}
		_, err := resilience.CallOp(ctx, w.breaker, op, func(context.Context) (int, error) {
			r = s.next()
			return 0, r.err
		})
		return err
	}
}

var (
	strict  = modelserver.Use{Failures: 4, Doubts: 1} // as for embeddings
	lenient = modelserver.Use{Failures: 3, Doubts: 2} // as for chat
)

// Each row is a trial: what the model answers to the text and to the canary,
// how the trial ends and what it costs.
func TestTrial(t *testing.T) {
	const (
		answered = modelserver.Answered
		guilty   = modelserver.Guilty
		unproven = modelserver.Unproven
		ended    = modelserver.Ended
	)
	for name, row := range map[string]struct {
		use             modelserver.Use
		text, canary    *script
		want            modelserver.Judgment
		texts, canaries int
		stop            stop.Kind
	}{
		"always fails":          {strict, says(failed), says(well), guilty, 4, 4 + 3*4, ""},
		"fails twice":           {strict, says(failed, failed, well), says(well), answered, 3, 2 + 2*4, ""},
		"refused":               {strict, says(refused), says(well), guilty, 1, 1, ""},
		"fails, then refused":   {strict, says(failed, refused), says(well), guilty, 2, 2 + 4, ""},
		"times out":             {strict, says(slow), says(well), unproven, 1, 1, ""},
		"fails, then slow":      {strict, says(failed, slow), says(well), unproven, 2, 2 + 4, ""},
		"all refused":           {strict, says(refused), says(refused), ended, 1, 1, stop.Configuration},
		"refused, canary fails": {strict, says(refused), says(failed, failed, well), guilty, 1, 3, ""},
		"all fail":              {strict, says(failed), says(failed), ended, 1, 4, stop.Deferred},
		"comes and goes":        {strict, says(failed), says(well, well, failed), unproven, 1, 3, ""},
		"denied":                {strict, says(denied), says(well), ended, 1, 0, stop.Denied},
		"canary denied":         {strict, says(failed), says(denied), ended, 1, 1, stop.Denied},
		"witness denied":        {strict, says(failed), says(well, well, denied), ended, 1, 3, stop.Denied},
		"model gone":            {strict, says(unknown), says(well), ended, 1, 0, stop.Configuration},
		"model gone meanwhile":  {strict, says(failed), says(unknown), ended, 1, 1, stop.Configuration},
		"short limits": {
			strict, says(throttled(time.Second), failed, throttled(time.Second), well),
			says(throttled(time.Second), well, throttled(time.Second), well), answered, 4, 2 + 1 + 4, "",
		},
		"a long limit":               {strict, says(throttled(time.Hour)), says(well), ended, 1, 0, stop.Deferred},
		"a long limit of the canary": {strict, says(failed), says(throttled(time.Hour)), ended, 1, 1, stop.Deferred},
		"a limit without a time":     {strict, says(throttled(0)), says(well), ended, 1, 0, stop.Deferred},

		"lenient, always fails":    {lenient, says(failed), says(well), guilty, 3, 3 + 4, ""},
		"lenient, fails once":      {lenient, says(failed, well), says(well), answered, 2, 1, ""},
		"lenient, slow once":       {lenient, says(slow, well), says(well), answered, 2, 1, ""},
		"lenient, slow twice":      {lenient, says(slow), says(well), unproven, 2, 2, ""},
		"lenient, slow at the end": {lenient, says(failed, failed, slow), says(well), unproven, 3, 3 + 4, ""},
		"lenient, comes and goes":  {lenient, says(failed), says(well, well, failed), unproven, 2, 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, resilience.Config{}, row.use, row.canary)
				setback := w.model.Send(t.Context(), w.request(row.text))
				require.NotNil(t, setback)
				got, err := w.model.Judge(t.Context(), setback, w.request(row.text))
				assert.Equal(t, row.want, got)
				assert.Equal(t, row.texts, row.text.sent)
				assert.Equal(t, row.canaries, row.canary.sent)
				assert.Equal(t, row.want == modelserver.Answered, err == nil, "%v", err)
				if row.stop == "" {
					assert.Nil(t, w.ending.Reason())
					return
				}
				require.NotNil(t, w.ending.Reason())
				assert.Equal(t, row.stop, w.ending.Reason().Kind)
				var failure *stop.Failure
				require.ErrorAs(t, err, &failure)
				assert.True(t, failure.Deferred)
				assert.Equal(t, "embed", failure.Stage)
			})
		})
	}
}

// A breaker that looks at a window may never open: one canary that fails ends
// the run.
func TestTrialUnderAWindow(t *testing.T) {
	window := resilience.Config{Trip: trip.CountWindow{Size: 10, MinCalls: 10, FailureRate: 1}}
	text, canary := says(failed), says(failed)
	w := newWorld(t, window, strict, canary)
	judgment, err := w.model.Judge(t.Context(), w.model.Send(t.Context(), w.request(text)), w.request(text))
	assert.Equal(t, modelserver.Ended, judgment)
	require.Error(t, err)
	assert.Equal(t, 1, canary.sent)
	assert.Equal(t, stop.Deferred, w.ending.Reason().Kind)
	assert.False(t, w.ending.Reason().RetryAt.IsZero())
}

// The answer to another request is as good as a canary's.
func TestAnotherAnswerSavesTheCanary(t *testing.T) {
	canary := says(failed)
	w := newWorld(t, resilience.Config{}, strict, canary)
	setback := w.model.Send(t.Context(), w.request(says(failed)))
	require.Nil(t, w.model.Send(t.Context(), w.request(says(well))))
	require.NoError(t, w.model.SetAside(t.Context(), setback))
	assert.Zero(t, canary.sent)
}

// The answer of another model of the server says nothing about this one.
func TestModelsAreJudgedApart(t *testing.T) {
	canary := says(well)
	w := newWorld(t, resilience.Config{}, strict, canary)
	setback := w.model.Send(t.Context(), w.request(says(failed)))
	other := w.server.Model(modelserver.Use{Stage: "enrich", Operation: "create_chat_completion"})
	require.Nil(t, other.Send(t.Context(), w.request(says(well))))
	require.NoError(t, w.model.SetAside(t.Context(), setback))
	assert.Equal(t, 1, canary.sent)
}

func TestCheck(t *testing.T) {
	wait := throttled(time.Second)
	for name, row := range map[string]struct {
		canary *script
		sent   int
		stop   stop.Kind
	}{
		"answers":        {says(well), 1, ""},
		"asks to wait":   {says(wait, wait, wait, wait, wait, well), 6, ""},
		"asks for ever":  {says(wait), 6, stop.Deferred},
		"asks for hours": {says(throttled(time.Hour)), 1, stop.Deferred},
		"fails":          {says(failed), 1, stop.Deferred},
		"takes too long": {says(slow), 1, stop.Deferred},
		"refuses":        {says(refused), 1, stop.Configuration},
		"does not exist": {says(unknown), 1, stop.Configuration},
		"knows us not":   {says(denied), 1, stop.Denied},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, resilience.Config{}, strict, row.canary)
				err := w.model.Check(t.Context())
				assert.Equal(t, row.sent, row.canary.sent)
				if row.stop == "" {
					require.NoError(t, err)
					return
				}
				require.Error(t, err)
				assert.Equal(t, row.stop, w.ending.Reason().Kind)
				assert.Equal(t, "llm", w.ending.Reason().Upstream)
			})
		})
	}
}

// A run that has ended sends nothing more, and blames nothing.
func TestEndOfTheRun(t *testing.T) {
	t.Run("before", func(t *testing.T) {
		text, canary := says(failed), says(well)
		w := newWorld(t, resilience.Config{}, strict, canary)
		require.NotNil(t, w.model.Send(t.Context(), w.request(text)))
		w.ending.With(&stop.Error{Kind: stop.Interrupted})
		setback := w.model.Send(t.Context(), w.request(text))
		require.ErrorIs(t, setback.Err, stop.ErrEnded)
		judgment, err := w.model.Judge(t.Context(), setback, w.request(text))
		assert.Equal(t, modelserver.Ended, judgment)
		require.ErrorIs(t, err, stop.ErrEnded)
		assert.Equal(t, [2]int{1, 0}, [2]int{text.sent, canary.sent})
	})
	t.Run("in a pause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			text := says(throttled(20 * time.Second))
			w := newWorld(t, resilience.Config{}, strict, says(well))
			time.AfterFunc(time.Second, func() { w.ending.With(&stop.Error{Kind: stop.Interrupted}) })
			began := time.Now()
			setback := w.model.Send(t.Context(), w.request(text))
			assert.Equal(t, time.Second, time.Since(began))
			judgment, _ := w.model.Judge(t.Context(), setback, w.request(text))
			assert.Equal(t, modelserver.Ended, judgment)
			assert.Equal(t, stop.Interrupted, w.ending.Reason().Kind)
		})
	})
	t.Run("by the context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := newWorld(t, resilience.Config{}, strict, says(well))
		setback := w.model.Send(ctx, w.request(says(refused)))
		cancel()
		judgment, err := w.model.Judge(ctx, setback, w.request(says(refused)))
		assert.Equal(t, modelserver.Ended, judgment)
		require.ErrorIs(t, err, stop.ErrEnded)
		assert.Nil(t, w.ending.Reason(), "a caller that leaves is no misfit")
	})
}

// Requests are spread evenly; idle time buys no burst. All models share the
// rate.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, resilience.Config{}, strict, says(well))
		server := modelserver.New(modelserver.Config{
			Service: service.Models(llm.Guard{Breaker: w.breaker}), Ending: w.ending, Rate: 4,
		})
		models := []*modelserver.Model{server.Model(strict), server.Model(lenient)}
		for range 2 {
			began := time.Now()
			for i := range 5 {
				require.Nil(t, models[i%2].Send(t.Context(), w.request(says(well))))
				assert.Equal(t, time.Duration(i)*250*time.Millisecond, time.Since(began))
			}
			time.Sleep(time.Minute)
		}
	})
}
