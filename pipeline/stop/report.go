package stop

import "time"

// Place says where an upstream is, for people; it holds no secrets.
type Place struct {
	Address string // a URL without userinfo, or "embedded"
	Model   string // that a model server is asked for; empty for other upstreams
	// Embedded says that the upstream is part of this program, and no server is
	// called for it.
	Embedded bool
	// ChatModel is the chat model that shares the breaker of the embedding
	// model, and ChatAddress where it is, if not at Address.
	ChatAddress, ChatModel string
	// StateAddress is where the state is, in a bucket of an object store, if
	// that is not at Address.
	StateAddress string
	// SourceAddress is where documents in buckets are read, if there may be
	// such and that is not at Address.
	SourceAddress string
}

// Where is the address, and those of the chat model, the documents and the
// state.
func (p Place) Where() string {
	return p.Address + beside("chat", p.ChatAddress) + beside("documents", p.SourceAddress) +
		beside("state", p.StateAddress)
}

// Models are the names of the models.
func (p Place) Models() string { return p.Model + beside("chat", p.ChatModel) }

func beside(what, text string) string {
	if text == "" {
		return ""
	}
	return " (" + what + ": " + text + ")"
}

// Report is an Error as it stands in a summary.
type Report struct {
	Kind     Kind   `json:"kind"`
	Upstream string `json:"upstream,omitempty"`
	// Address and Model are Where and Models of the upstream's Place.
	Address string `json:"address,omitempty"`
	Model   string `json:"model,omitempty"`
	Reason  string `json:"reason"`
	// Cause is what the upstream itself said, on one line of at most 200 bytes
	// and with secrets masked: for an open breaker the failure behind it, not
	// the refusal. Empty where no upstream said anything.
	Cause   string     `json:"cause,omitempty"`
	RetryAt *time.Time `json:"retry_at,omitempty"`
}

// Report returns the error as it stands in a summary. places says where the
// upstreams are, by name; it may be nil.
func (e *Error) Report(places map[string]Place) *Report {
	at := places[e.Upstream]
	r := &Report{
		Kind: e.Kind, Upstream: e.Upstream, Address: at.Where(), Model: at.Models(),
		Reason: e.Err.Error(), Cause: Cause(e.Err),
	}
	if !e.RetryAt.IsZero() {
		at := wholeSecond(e.RetryAt)
		r.RetryAt = &at
	}
	return r
}
