package enrich

import (
	"encoding/json"
	"strings"
	"unicode"

	"github.com/penstock-go/penstock/internal/plain"
)

// Limits of what is taken from an answer, in bytes. A longer text is cut at the
// end of a word; an answer of more than answerBytes is useless.
const (
	titleBytes   = 200
	summaryBytes = 800
	contextBytes = 400
	answerBytes  = 16 << 10
)

// reply is what the model said.
type reply struct {
	text string
	cut  bool // it had more to say
}

// description is what a model says of a document.
type description struct {
	Title   string `json:"title,omitempty"`
	Summary string `json:"summary,omitempty"`
}

// encode gives the form in which a description is kept; empty for none.
func (d description) encode() string {
	if d == (description{}) {
		return ""
	}
	encoded, err := json.Marshal(d)
	if err != nil { // never, as JSON holds any text
		return ""
	}
	return string(encoded)
}

func readDescription(encoded string) (d description) {
	if json.Unmarshal([]byte(encoded), &d) != nil {
		return description{}
	}
	return d
}

// parseDescription finds the fields that were asked for in an answer: a JSON
// object, fenced or with words around it, or plain text where that can only be
// the one thing.
func parseDescription(answer reply, title, summary bool) description {
	text := answer.content()
	found, ok := findObject(text)
	switch {
	case ok:
	case answer.cut || strings.Contains(text, "{"):
		return description{}
	case summary:
		found.Summary = text
	default:
		found.Title = text
	}
	if found.Title = sentence(found.Title, titleBytes); !title {
		found.Title = ""
	}
	if found.Summary = sentence(found.Summary, summaryBytes); !summary {
		found.Summary = ""
	}
	return found
}

// findObject reads the first JSON object in a text that has one of the fields.
func findObject(text string) (description, bool) {
	for range 8 {
		_, rest, ok := strings.Cut(text, "{")
		if !ok {
			break
		}
		var fields map[string]any
		if json.NewDecoder(strings.NewReader("{"+rest)).Decode(&fields) == nil {
			title, _ := fields["title"].(string)
			summary, _ := fields["summary"].(string)
			if title != "" || summary != "" {
				return description{Title: title, Summary: summary}, true
			}
		}
		text = rest
	}
	return description{}, false
}

func parseContext(answer reply) string {
	if answer.cut {
		return ""
	}
	text := strings.TrimSpace(strings.Trim(answer.content(), "`"))
	if strings.HasPrefix(text, "{") { // some models answer in JSON, asked for or not
		var only map[string]string
		if json.Unmarshal([]byte(text), &only) != nil || len(only) != 1 {
			return ""
		}
		for _, text = range only {
		}
	}
	return sentence(text, contextBytes)
}

// content is the text of an answer without the thoughts before it; empty for an
// answer that is longer than any that was asked for.
func (r reply) content() string {
	if len(r.text) > answerBytes {
		return ""
	}
	if _, said, thought := strings.Cut(r.text, "</think>"); thought {
		return strings.TrimSpace(said)
	}
	return strings.TrimSpace(r.text)
}

// sentence makes one line of at most so many bytes of a text: valid UTF-8, no
// control characters, no quotes around it. It is empty for a text without any
// letter or digit.
func sentence(text string, limit int) string {
	text = plain.Line(text)
	if len(text) > limit {
		text = wholeWords(plain.Front(text, limit))
	}
	text = strings.TrimSpace(strings.Trim(text, "\"'`*“”„«»"))
	if !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
		return ""
	}
	return text
}

// wholeWords drops the word that a cut went through, if there is another.
func wholeWords(text string) string {
	if at := strings.LastIndexByte(text, ' '); at > 0 {
		return text[:at]
	}
	return text
}
