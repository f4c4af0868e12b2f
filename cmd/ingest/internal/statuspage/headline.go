package statuspage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
)

// tone says how urgent a headline is.
type tone int

// Most urgent first.
const (
	bad  tone = iota // nothing is ingested, and somebody must look
	wait             // nothing is ingested, and time helps
	note             // it works, and somebody should look
	work             // a pass is running
	calm
)

var toneNames = [...]string{bad: "bad", wait: "wait", note: "note", work: "work", calm: "calm"}

func (t tone) String() string { return toneNames[t] }

// headlineView is the sentence on top of the page: what is wrong, since when,
// what waits, what comes next and what to do.
type headlineView struct {
	Tone    tone
	What    string    // the main clause, without a full stop
	Since   time.Time // zero if it is not a matter of time
	For     string    // how long that is ago, in minutes
	Facts   string    // further sentences
	Waiting backlog
	Awaited string    // what comes next
	Next    time.Time // when; zero if nothing does
	Cause   string    // in the upstream's own words
	At      string    // the upstream's address and model
	Do      string    // what an operator can do
	Doctor  bool      // which begins with running doctor
	Also    []string  // further troubles

	about string // the upstream
	still bool   // nothing comes next
}

// Due says when what comes next is due.
func (h headlineView) Due(now time.Time) string { return due(h.Next.Sub(now)) }

// newHeadline is about the most urgent trouble, or says that all is well.
func newHeadline(v view) headlineView {
	found := troubles(v)
	if len(found) == 0 {
		return finished(goodNews(v), v)
	}
	h := found[0]
	for _, other := range found[1:] {
		h.Also = append(h.Also, other.clause(v.Now))
	}
	return finished(h, v)
}

// finished fills in what all headlines have.
func finished(h headlineView, v view) headlineView {
	h.Waiting = v.waiting()
	if past := v.Now.Sub(h.Since).Truncate(time.Minute); !h.Since.IsZero() && past > 0 {
		h.For = spell(past)
	}
	if h.Next.IsZero() && !h.still && !v.Progress.Running && v.Progress.Ended {
		h.Awaited, h.Next = "next pass", v.Progress.Next
	}
	return h
}

// waiting is what waits by the journal, which lists the documents that a pass
// did not come to as well; where it cannot be read, what the last pass left.
func (v view) waiting() backlog {
	b := v.Progress.Waiting
	if v.Worries.Fault == "" {
		b.N = v.Worries.Deferred
	}
	if b.N == 0 {
		b.Since = time.Time{}
	}
	return b
}

// String is how many documents wait, as the beginning of a sentence.
func (b backlog) String() string {
	n := plural(b.N, "document waits", "documents wait")
	if b.Least {
		return "At least " + n
	}
	return n
}

// clause is the trouble on one line.
func (h headlineView) clause(now time.Time) string {
	if h.Since.IsZero() {
		return h.What + "."
	}
	return fmt.Sprintf("%s since %s UTC.", h.What, moment(h.Since, now))
}

// troubles lists what is wrong, the most urgent first. Each upstream is named
// once.
func troubles(v view) (found []headlineView) {
	if v.Worries.Fault != "" {
		found = append(found, headlineView{
			Tone: bad, What: "The journal cannot be read", Cause: v.Worries.Fault, Doctor: true,
			Do: "Check the disk and the permissions of the state folder.",
		})
	}
	if h, ok := storeTrouble(v); ok {
		found = append(found, h)
	}
	for _, b := range v.Breakers {
		if h, ok := breakerTrouble(b); ok && !v.probeRefused(b) {
			h.Since = v.sooner(h)
			found = append(found, h)
		}
	}
	if h, ok := passTrouble(v); ok && !slices.ContainsFunc(found, h.explains) {
		found = append(found, h)
	}
	if h, ok := deadLetters(v); ok {
		found = append(found, h)
	}
	slices.SortStableFunc(found, func(a, b headlineView) int { return cmp.Compare(a.Tone, b.Tone) })
	return found
}

// probeRefused reports whether an upstream has answered a probe by refusing the
// credentials: its breaker stays half-open, but that is what is wrong.
func (v view) probeRefused(b breakerView) bool {
	e := v.Progress.Failed
	return b.State == resilience.HalfOpen && v.Ready.Early != nil &&
		e != nil && e.kind == stop.Denied && e.upstream == b.Name()
}

// sooner is since when an upstream has failed: passes can have ended at it
// before its breaker opened.
func (v view) sooner(h headlineView) time.Time {
	e := v.Progress.Failed
	if e == nil || v.Ready.Early == nil || e.upstream != h.about || h.Tone != bad || h.still {
		return h.Since
	}
	if e.Since.Before(h.Since) {
		return e.Since
	}
	return h.Since
}

// explains reports whether other is the reason for h as well.
func (h headlineView) explains(other headlineView) bool {
	return h.about != "" && other.about == h.about && other.Tone <= h.Tone
}

const (
	resumes = "Ingesting resumes by itself as soon as a probe succeeds."
	fixKey  = "Repair the key and restart the service, which reads it at its start; or raise the quota, and the next " +
		"pass succeeds."
	fixHeld = "Repair the key or raise the quota, then restart the service or reset the breaker, which is held open " +
		"until then."
	fixSettings = "Correct the setting that the error names, and restart the service."
	fixMachine  = "Check the disk (free space, permissions of the state folder) and restart the service."
	fixInputs   = "Make the inputs readable: a folder may not be mounted, a bucket missing or a credential refused. " +
		"Each pass tries again."
	bePatient = "Nothing, unless this comes back: then raise the rate limit or the quota."
)

// breakerTrouble is what the state of a breaker means.
func breakerTrouble(b breakerView) (h headlineView, ok bool) {
	h = headlineView{
		Tone: bad, Since: b.Since, Cause: b.Broken, At: b.place(), about: b.Name(),
		What: b.Subject() + " has been failing", Doctor: true,
	}
	switch {
	case b.Shadow:
		return h, false
	case b.Held == "denied":
		h.What, h.Do = b.Subject()+" has refused the credentials or the quota", fixHeld
	case b.Held == "forced_open":
		h = b.forced("open", "No call is made.")
		h.Tone, h.still = bad, true
	case b.Held == "forced_closed":
		h = b.forced("closed", "Failures do not open it.")
	case b.State == resilience.Open:
		h.Awaited, h.Next, h.Do, h.Facts = "next probe", b.OpenUntil, b.repair(), b.opening()
	case b.State == resilience.HalfOpen:
		h.Facts, h.Do = join(b.opening(), "The next call is the probe."), b.repair()
	case b.RampShare < 1:
		return headlineView{
			Tone: work, about: b.Name(),
			What: fmt.Sprintf("%s has recovered: %d %% of calls are admitted, a growing share", b.Subject(), b.Share),
		}, true
	default:
		return h, false
	}
	return h, true
}

// opening says who has opened a breaker, if that was not this process with the
// consent of the others.
func (v breakerView) opening() string {
	switch {
	case v.Opener != "":
		return "Its breaker was opened by " + v.Opener + "."
	case v.Apart():
		return "Calls from other processes succeed: look at the network and the settings of this machine."
	}
	return ""
}

// join puts sentences together.
func join(sentences ...string) string {
	return strings.Join(slices.DeleteFunc(sentences, func(s string) bool { return s == "" }), " ")
}

// Unshared reports whether the place where breakers are shared is lost.
func (v view) Unshared() bool {
	return v.Shared != "" &&
		slices.ContainsFunc(v.Breakers, func(b breakerView) bool { return b.Snapshot.Shared && !b.StoreUp })
}

// storeTrouble is the loss of the place where breakers are shared.
func storeTrouble(v view) (h headlineView, ok bool) {
	if !v.Unshared() {
		return h, false
	}
	return headlineView{
		Tone: note, What: "The shared state of the circuit breakers cannot be reached",
		Facts: "It is in " + v.Shared + ". Until it is back, each process counts failures and sends probes by itself.",
		Do:    "Check that it is running and can be written. This process tries it again every few seconds.",
	}, true
}

// forced is an operator's hold. effect says what it does.
func (v breakerView) forced(state, effect string) headlineView {
	return headlineView{
		Tone: note, Since: v.HeldSince, At: v.place(), about: v.Name(),
		What:  "An operator has held the breaker of " + v.object() + " " + state,
		Facts: "The reason given: " + v.Why + ". " + effect,
		Do:    v.lift(),
	}
}

// lift says how to end an operator's hold.
func (v breakerView) lift() string {
	if v.Snapshot.Shared {
		return "Reset the breaker when that reason is gone, in any process that shares it."
	}
	return "Reset the breaker, or restart the service, when that reason is gone."
}

// object is the upstream within a sentence.
func (u upstreamView) object() string {
	if after, ok := strings.CutPrefix(u.Subject(), "The "); ok {
		return "the " + after
	}
	return u.Subject()
}

// place is where the upstream is, on one line.
func (u upstreamView) place() string {
	if u.Model == "" || u.Where == "" {
		return u.Where
	}
	return u.Where + ", model " + u.Model
}

// repair says what helps an upstream that fails.
func (u upstreamView) repair() string {
	if u.Embedded {
		return fixMachine
	}
	return "Repair or restart " + u.object() + ". " + resumes
}

// passTrouble is the reason why the last pass ended early.
func passTrouble(v view) (h headlineView, ok bool) {
	e := v.Progress.Failed
	if e == nil || v.Ready.Early == nil {
		return h, false
	}
	u := upstreamOf(v, e.upstream)
	h = headlineView{Tone: bad, Since: e.Since, Cause: e.Text, At: u.place(), about: e.upstream, Doctor: true}
	if v.Progress.Running {
		h.Facts = "A pass is trying again."
	}
	switch {
	case e.partly:
		h.What, h.Do, h.Doctor = "Some of the inputs have not been readable", fixInputs, false
	case e.kind == "":
		h.What, h.Do, h.Doctor = "The inputs have not been readable", fixInputs, false
	case e.kind == stop.Fault:
		h.What, h.Do = "Something on this machine has been failing", fixMachine
	case e.kind == stop.Configuration:
		h.What, h.Do = "The configuration has not fitted "+u.object(), fixSettings
	case e.kind == stop.Denied:
		h.What, h.Do = u.Subject()+" has refused the credentials or the quota", fixKey
	case e.throttled:
		h.Tone, h.What, h.Do, h.Doctor = wait, u.Subject()+" has asked for patience", bePatient, false
	case e.upstream == "":
		h.What, h.Do = "Passes have ended early", "Read the error below. The next pass tries again."
	default:
		h.What, h.Do = u.Subject()+" has been failing", u.repair()
	}
	return h, true
}

// upstreamOf finds an upstream by its name.
func upstreamOf(v view, name string) upstreamView {
	for _, b := range v.Breakers {
		if b.Name() == name {
			return b.upstreamView
		}
	}
	return upstreamView{Name: cmp.Or(name, "the upstreams")}
}

func deadLetters(v view) (h headlineView, ok bool) {
	n := v.Worries.DeadLetters
	if n == 0 {
		return h, false
	}
	h = headlineView{
		Tone: note, What: plural(n, "document cannot be ingested as it is", "documents cannot be ingested as they are"),
		Facts: "Everything else works.",
		Do:    "See the reasons below. A document is tried again when it changes.",
	}
	if v.Progress.Running {
		h.Facts = "Everything else works, and a pass is running."
	}
	return h, true
}

// goodNews is the headline if nothing is wrong.
func goodNews(v view) headlineView {
	p := v.Progress
	complete := plural(v.Worries.Documents, "document is", "documents are") + " complete, in " +
		plural(v.Worries.Chunks, "chunk", "chunks") + "."
	switch {
	case !p.Ended && !p.Running:
		return headlineView{Tone: work, What: "The service has started; the first pass begins"}
	case p.Running && !p.Ended:
		return headlineView{Tone: work, What: "The first pass has been running", Since: p.Current.Began}
	case p.Running && p.Current.eventful():
		return headlineView{
			Tone: work, What: "Everything works, and a pass has been running", Since: p.Current.Began, Facts: complete,
		}
	case v.Worries.Documents == 0:
		return headlineView{
			Tone: note, What: "Everything works, but no document was found",
			Do: "Check the inputs that the service was started with.",
		}
	case v.waiting().N > 0:
		return headlineView{
			Tone: work, What: "Everything works; some documents wait for the next pass", Facts: complete,
		}
	}
	if !v.waiting().Least {
		complete += " Nothing waits."
	}
	return headlineView{Tone: calm, What: "All is well", Facts: complete}
}
