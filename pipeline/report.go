package pipeline

import (
	"errors"
	"strings"
	"time"

	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
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
	// Skipped: it was found in a folder, glob or prefix, and never is text: an
	// empty file, an image, a program. What was ingested of it before stays.
	Skipped Result = "skipped"
	// Gone: it was listed, and was no longer there when it was to be read. What
	// was ingested of it before stays until Prune.
	Gone Result = "gone"
	// Deleted: Delete or Prune removed it.
	Deleted Result = "deleted"
	// NotFound: Delete found nothing of it.
	NotFound Result = "not_found"
	// WouldIngest: a dry run would have ingested it.
	WouldIngest Result = "would_ingest"
)

// NameCollision is the kind of a dead letter that has the ID of another file,
// since their names are forms of one.
const NameCollision = "name collision"

// NotBegun is the kind of a document that waits since the run was stopped
// before it came to it.
const NotBegun = "not begun"

// Document is the report on one document.
type Document struct {
	ID       string `json:"document"`
	Result   Result `json:"result"`
	Chunks   int    `json:"chunks,omitempty"`
	Tokens   int    `json:"tokens,omitempty"`
	Embedded int    `json:"embedded,omitempty"` // chunks whose text went to the embedding model
	Removed  int    `json:"removed,omitempty"`  // stale chunks that were deleted
	// OriginalsLeft is how many of its originals Delete has left, since their
	// keys do not say to which destination they belong.
	OriginalsLeft int `json:"originals_left,omitempty"`
	// ChatTokens is what was spent to enrich it in this run, and Unanswered how
	// many questions about it the chat model got no useful answer to.
	ChatTokens int `json:"chat_tokens,omitempty"`
	Unanswered int `json:"unanswered,omitempty"`
	// Unenriched says that some enrichment is still to come: the budget is
	// spent, or the chat model did not answer in time.
	Unenriched bool   `json:"unenriched,omitempty"`
	Stage      string `json:"stage,omitempty"` // where it failed
	Kind       string `json:"kind,omitempty"`  // what kind of failure, or of content for one that was skipped
	Reason     string `json:"reason,omitempty"`
}

// Summary counts what a run did.
type Summary struct {
	Destination      string `json:"destination"`
	Documents        int    `json:"documents"` // that were looked at; all the next add up to it
	Ingested         int    `json:"ingested"`
	Unchanged        int    `json:"unchanged"`
	DeadLetters      int    `json:"dead_letters"`
	KnownDeadLetters int    `json:"known_dead_letters"`
	Deferred         int    `json:"deferred"`
	Skipped          int    `json:"skipped,omitempty"`
	Gone             int    `json:"gone,omitempty"`
	WouldIngest      int    `json:"would_ingest,omitempty"`
	Deleted          int    `json:"deleted,omitempty"`
	NotFound         int    `json:"not_found,omitempty"`
	Chunks           int    `json:"chunks"`                   // of the documents ingested
	Tokens           int    `json:"tokens"`                   // of these chunks
	Embedded         int    `json:"embedded"`                 // chunks whose text went to the embedding model
	Removed          int    `json:"removed"`                  // stale chunks deleted
	OriginalsLeft    int    `json:"originals_left,omitempty"` // by Delete, see Document
	ChatTokens       int    `json:"chat_tokens,omitempty"`    // spent on enrichment and its check
	Unanswered       int    `json:"unanswered,omitempty"`     // questions without useful answer
	Unenriched       int    `json:"unenriched,omitempty"`     // documents that lack enrichment
	// EmptyInputs are the folders and prefixes, as given, in which nothing was
	// to be ingested: they hold no document, or only such as were skipped or
	// gone.
	EmptyInputs []string `json:"empty_inputs,omitempty"`
	// Unlisted says, for each input or folder below one that could not be
	// listed, why; twenty are named. They count as dead letters, and the
	// journal does not know what they hold. Inputs that Config.Emptied names
	// are said as well, and count as nothing: they may be empty for good.
	Unlisted []string `json:"unlisted,omitempty"`
	// Waiting counts the documents of the destination that are known to be not
	// ingested yet in their present version: those that were deferred, and
	// those that a run which an upstream stopped did not come to. Runs over
	// other inputs leave them.
	Waiting int `json:"waiting"`
	// WaitingAtLeast says that not all inputs could be listed, so that more
	// documents may wait.
	WaitingAtLeast bool `json:"waiting_at_least,omitempty"`
	// WaitingSince is since when at least one document has been waiting, over
	// all runs of the destination.
	WaitingSince *time.Time `json:"waiting_since,omitempty"`
	// LastSuccess is when a run of the destination last went through all its
	// inputs and left nothing to do. Dead letters are done.
	LastSuccess *time.Time    `json:"last_success,omitempty"`
	Elapsed     time.Duration `json:"elapsed_ns"`
	Stopped     *Stop         `json:"stopped,omitempty"`
	// Upstreams says how Run found each upstream: UpstreamUp if a call went
	// well, UpstreamDown if the run failed because of it or left its breaker
	// open, or UpstreamRefused if it refuses the credentials or the quota. What
	// a run did not call is as the run before found it, and left out if no run
	// has called it. Nil for a dry run, Delete and Prune.
	Upstreams map[string]string `json:"upstreams,omitempty"`
	// Breakers are the states of the three breakers at the end of the run, that
	// of a breaker which refused the call for which the run stopped at the
	// refusal.
	Breakers map[string]string `json:"breakers"`
	// Holds are forced_open, forced_closed or denied, and why, for each breaker
	// that was held where it is.
	Holds map[string]string `json:"holds,omitempty"`
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
	case Skipped:
		s.Skipped++
	case Gone:
		s.Gone++
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
	s.OriginalsLeft += d.OriginalsLeft
	s.Unanswered += d.Unanswered
	if d.Unenriched {
		s.Unenriched++
	}
}

// SetBreakers sets Breakers and Holds. The breaker that refused the call for
// which a run stopped stands as it refused: it may have changed since.
func (s *Summary) SetBreakers(ended *StopError, all ...resilience.Snapshot) {
	s.Breakers, s.Holds = make(map[string]string, len(all)), nil
	refused, as := refusal(ended)
	for _, b := range all {
		if b.Name == refused && b.State != as.State {
			b.State, b.Held, b.HeldReason = as.State, as.Held, as.HeldReason
		}
		s.Breakers[b.Name] = b.State.String()
		if b.Held == "" {
			continue
		}
		if s.Holds == nil {
			s.Holds = map[string]string{}
		}
		s.Holds[b.Name] = strings.TrimSuffix(b.Held+": "+b.HeldReason, ": ")
	}
}

// refusal is the breaker whose refusal stopped a run, and how it stood; none
// where another error did.
func refusal(ended *StopError) (breaker string, as resilience.Snapshot) {
	if ended == nil {
		return "", as
	}
	if open, ok := errors.AsType[*resilience.OpenError](ended.Err); ok {
		return open.Upstream(), resilience.Snapshot{State: open.State()}
	}
	if denied, ok := errors.AsType[*resilience.DeniedError](ended.Err); ok {
		return denied.Upstream(), resilience.Snapshot{State: resilience.Open, Held: "denied", HeldReason: "denied"}
	}
	return "", as
}

// StopError ends a run early, see [stop.Error].
type StopError = stop.Error

// StopKind says whether to run again, see [stop.Kind].
type StopKind = stop.Kind

// The kinds of stops, see package pipeline/stop.
const (
	StopDeferred      = stop.Deferred
	StopDenied        = stop.Denied
	StopConfiguration = stop.Configuration
	StopInterrupted   = stop.Interrupted
	StopFault         = stop.Fault
)

// Stop says in a Summary why a run ended early, see [stop.Report].
type Stop = stop.Report
