package pipeline

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/pipeline/journal"
)

// Result says how a document came out of a run.
type Result string

// The results.
const (
	// Ingested: its chunks are in the vector store, complete and verified.
	Ingested Result = "ingested"
	// Unchanged: it was so already.
	Unchanged Result = "unchanged"
	// DeadLetter: it cannot be ingested as it is.
	DeadLetter Result = "dead_letter"
	// KnownDeadLetter: it was a dead letter before and has not changed.
	KnownDeadLetter Result = "known_dead_letter"
	// Deferred: an upstream's fault, or the end of the run, came before it.
	Deferred Result = "deferred"
	// Deleted: Delete or Prune removed it.
	Deleted Result = "deleted"
	// NotFound: Delete found nothing of it.
	NotFound Result = "not_found"
	// WouldIngest: a dry run would have ingested it.
	WouldIngest Result = "would_ingest"
)

// Document is the report on one document.
type Document struct {
	ID       string `json:"document"`
	Result   Result `json:"result"`
	Chunks   int    `json:"chunks,omitempty"`
	Tokens   int    `json:"tokens,omitempty"`
	Embedded int    `json:"embedded,omitempty"` // chunks whose text went to the embedding model
	Removed  int    `json:"removed,omitempty"`  // stale chunks that were deleted
	// ChatTokens is what was spent to enrich it in this run, and Unanswered how
	// many questions about it the chat model gave no answer to that is of use.
	ChatTokens int `json:"chat_tokens,omitempty"`
	Unanswered int `json:"unanswered,omitempty"`
	// Unenriched says that some enrichment is still to come: the budget is spent,
	// or the chat model did not answer in time.
	Unenriched bool   `json:"unenriched,omitempty"`
	Stage      string `json:"stage,omitempty"` // where it failed
	Kind       string `json:"kind,omitempty"`  // what kind of failure
	Reason     string `json:"reason,omitempty"`
}

// Summary counts what a run did.
type Summary struct {
	Destination      string        `json:"destination"`
	Documents        int           `json:"documents"` // that were looked at; all the next add up to it
	Ingested         int           `json:"ingested"`
	Unchanged        int           `json:"unchanged"`
	DeadLetters      int           `json:"dead_letters"`
	KnownDeadLetters int           `json:"known_dead_letters"`
	Deferred         int           `json:"deferred"`
	WouldIngest      int           `json:"would_ingest,omitempty"`
	Deleted          int           `json:"deleted,omitempty"`
	NotFound         int           `json:"not_found,omitempty"`
	Chunks           int           `json:"chunks"`                // of the documents ingested
	Tokens           int           `json:"tokens"`                // of these chunks
	Embedded         int           `json:"embedded"`              // chunks whose text went to the embedding model
	Removed          int           `json:"removed"`               // stale chunks deleted
	ChatTokens       int           `json:"chat_tokens,omitempty"` // spent on enrichment, its check of the model included
	Unanswered       int           `json:"unanswered,omitempty"`  // questions without a useful answer
	Unenriched       int           `json:"unenriched,omitempty"`  // documents, of those ingested or unchanged, that a run with a budget completes
	Elapsed          time.Duration `json:"elapsed_ns"`
	Stopped          *Stop         `json:"stopped,omitempty"`
	// Breakers are the states of the three breakers at the end of the run.
	Breakers map[string]string `json:"breakers"`
}

// Stop says why a run ended early.
type Stop struct {
	Kind     StopKind   `json:"kind"`
	Upstream string     `json:"upstream,omitempty"`
	Reason   string     `json:"reason"`
	RetryAt  *time.Time `json:"retry_at,omitempty"`
}

// add counts one document.
func (s *Summary) add(d Document) {
	s.Documents++
	switch d.Result {
	case Ingested:
		s.Ingested++
	case Unchanged:
		s.Unchanged++
	case DeadLetter:
		s.DeadLetters++
	case KnownDeadLetter:
		s.KnownDeadLetters++
	case Deferred:
		s.Deferred++
	case WouldIngest:
		s.WouldIngest++
	case Deleted:
		s.Deleted++
	case NotFound:
		s.NotFound++
	}
	if d.Result == Ingested || d.Result == WouldIngest {
		s.Chunks += d.Chunks
		s.Tokens += d.Tokens
	}
	s.Embedded += d.Embedded
	s.Removed += d.Removed
	s.Unanswered += d.Unanswered
	if d.Unenriched {
		s.Unenriched++
	}
}

// StopKind says whether to run again.
type StopKind string

// The kinds of stops.
const (
	// StopDeferred: an upstream is away or asks for patience; run again later.
	StopDeferred StopKind = "deferred"
	// StopDenied: an upstream refuses the credentials, or the quota is spent;
	// running again does not help until that is mended.
	StopDenied StopKind = "denied"
	// StopConfiguration: bucket, model and collection do not fit together;
	// running again does not help until that is mended.
	StopConfiguration StopKind = "configuration"
	// StopInterrupted: the run's context ended.
	StopInterrupted StopKind = "interrupted"
	// StopFault: something here failed, a full disk for one.
	StopFault StopKind = "fault"
)

// StopError ends a run early. What was done is saved; run again at RetryAt, or
// once what it says is mended.
type StopError struct {
	Kind     StopKind
	Upstream string    // "llm", "milvus" or "s3"; empty where none is to blame
	RetryAt  time.Time // zero where time does not help
	Err      error
}

func (e *StopError) Error() string {
	var advice string
	switch e.Kind {
	case StopDeferred:
		advice = "; run again"
		if !e.RetryAt.IsZero() {
			advice += " after " + e.RetryAt.UTC().Format(time.RFC3339)
		}
	case StopDenied:
		advice = "; check the credentials and the quota, then run again"
	case StopConfiguration, StopInterrupted, StopFault:
	}
	if e.Upstream == "" {
		return fmt.Sprintf("stopped: %v%s", e.Err, advice)
	}
	return fmt.Sprintf("stopped by %s: %v%s", e.Upstream, e.Err, advice)
}

// Unwrap gives the cause: *resilience.OpenError when a breaker was open, else
// the upstream's own error.
func (e *StopError) Unwrap() error { return e.Err }

// stop is the error as it stands in a Summary.
func (e *StopError) stop() *Stop {
	s := &Stop{Kind: e.Kind, Upstream: e.Upstream, Reason: e.Err.Error()}
	if !e.RetryAt.IsZero() {
		at := e.RetryAt.UTC().Truncate(time.Second)
		s.RetryAt = &at
	}
	return s
}

// failure ends one document.
type failure struct {
	status      journal.Status
	stage, kind string
	err         error
}

func (f *failure) Error() string { return f.stage + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func deadLetter(stage, kind string, err error) error {
	return &failure{status: journal.DeadLetter, stage: stage, kind: kind, err: err}
}

func deferral(stage, kind string, err error) error {
	return &failure{status: journal.Deferred, stage: stage, kind: kind, err: err}
}

// errStopped is what a step gets that comes after the end of the run.
var errStopped = errors.New("the run ended before this document was done")

// asFailure gives any error that ends a document the shape of a failure.
func asFailure(stage string, err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	return &failure{status: journal.Deferred, stage: stage, kind: "stopped", err: err}
}
