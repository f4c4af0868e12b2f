package llmtest

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sashabaranov/go-openai"
)

// Rule says which requests a fault applies to. The zero value of each field
// matches everything.
type Rule struct {
	Path        string // such as "/v1/embeddings"
	First, Last int    // numbers of requests since the last Script, from 1
	Text        string // part of one of the texts, or of a message
	Fault       Fault
}

// Fault replaces or changes a good answer. Its fields apply in this order:
// Delay, After, then the first of Hang, Drop and Status, then Spoil.
type Fault struct {
	Delay  time.Duration // wait first
	After  int           // for streams: send so many chunks first
	Hang   bool          // say nothing until the client leaves
	Drop   bool          // close the connection
	Status int           // answer with this status …
	Header http.Header   // … these headers …
	Body   string        // … and this body, an OpenAI error naming the status if empty
	Spoil  func(*Vectors)
}

// Vectors is an embedding answer that a Fault may change before it is sent.
type Vectors struct {
	Data    []openai.Embedding
	NoIndex bool // leave the index fields out
}

// All applies to every request.
func All(f Fault) Rule { return Rule{Fault: f} }

// From applies to request n, counted from 1 since the last Script, and all
// later ones.
func From(n int, f Fault) Rule { return Rule{First: n, Fault: f} }

// First applies to the first n requests.
func First(n int, f Fault) Rule { return Rule{Last: n, Fault: f} }

// Poison applies to each request with text in one of its texts.
func Poison(text string, f Fault) Rule { return Rule{Text: text, Fault: f} }

// Status answers with an OpenAI error of this status.
func Status(status int) Fault { return Fault{Status: status} }

// Answer answers with a body, good or bad.
func Answer(status int, body string) Fault { return Fault{Status: status, Body: body} }

// RateLimit answers 429 with a Retry-After header in this form.
func RateLimit(retryAfter string) Fault {
	return Fault{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {retryAfter}}}
}

// Hang sends nothing until the client leaves.
func Hang() Fault { return Fault{Hang: true} }

// Drop closes the connection without an answer.
func Drop() Fault { return Fault{Drop: true} }

// Delay answers after a delay.
func Delay(d time.Duration) Fault { return Fault{Delay: d} }

// Shuffled sends the vectors in reverse order, with correct indexes.
func Shuffled() Fault {
	return Fault{Spoil: func(v *Vectors) {
		for i, j := 0, len(v.Data)-1; i < j; i, j = i+1, j-1 {
			v.Data[i], v.Data[j] = v.Data[j], v.Data[i]
		}
	}}
}

// NoIndex omits the index fields.
func NoIndex() Fault { return Fault{Spoil: func(v *Vectors) { v.NoIndex = true }} }

// SameIndex numbers every vector n.
func SameIndex(n int) Fault {
	return Fault{Spoil: func(v *Vectors) {
		for i := range v.Data {
			v.Data[i].Index = n
		}
	}}
}

// Missing omits the last vector.
func Missing() Fault { return Fault{Spoil: func(v *Vectors) { v.Data = v.Data[:len(v.Data)-1] }} }

// NullVector makes the last vector null.
func NullVector() Fault {
	return Fault{Spoil: func(v *Vectors) { v.Data[len(v.Data)-1].Embedding = nil }}
}

// ZeroVector makes the last vector all zeros.
func ZeroVector() Fault {
	return Fault{Spoil: func(v *Vectors) {
		last := &v.Data[len(v.Data)-1]
		last.Embedding = make([]float32, len(last.Embedding))
	}}
}

// Dimensions cuts the last vector to n values.
func Dimensions(n int) Fault {
	return Fault{Spoil: func(v *Vectors) {
		last := &v.Data[len(v.Data)-1]
		last.Embedding = last.Embedding[:n:n]
	}}
}

func (r *Rule) fits(path string, number int, texts []string) bool {
	return (r.Path == "" || r.Path == path) && number >= r.First && (r.Last == 0 || number <= r.Last) &&
		r.hasText(texts)
}

func (r *Rule) hasText(texts []string) bool {
	if r.Text == "" {
		return true
	}
	for _, text := range texts {
		if strings.Contains(text, r.Text) {
			return true
		}
	}
	return false
}

// body is the answer's body, an OpenAI error unless the fault has one.
func (f *Fault) body() string {
	if f.Body != "" {
		return f.Body
	}
	return `{"error":{"message":"scripted ` + strconv.Itoa(f.Status) + `","type":"scripted","code":null}}`
}
