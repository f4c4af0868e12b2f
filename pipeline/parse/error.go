package parse

import (
	"errors"
	"fmt"
	"strings"
)

// Error is a document that cannot be read.
type Error struct {
	// Kind is why, in words that stay as they are:
	//
	//	"unsupported format"  no parser reads this format
	//	"no text"             the document has no text at all
	//	"no text layer"       the pages are pictures
	//	"password protected"  the document is encrypted
	//	"too large"           the document, or what it unpacks to, is over a limit
	//	"malformed"           the content breaks the rules of its format
	//	"timed out"           the parser made no progress, see Limits.Timeout
	//	"parser crashed"      the parser panicked; Stack says where
	Kind string
	// Name is the document, or the member of a container, as "mail.eml!a.pdf".
	Name string
	// Parser is the parser that refused it; empty if none was chosen.
	Parser string
	// Hint is what the operator can do.
	Hint string
	// Later says that nothing is known against the document: the parser did not
	// get the processor time that would show whether it ever ends, or there was
	// no room for another. Try again.
	Later bool
	// NotText is set for content of a kind that never is text: "empty" (white
	// space too), "image", "audio", "video", "font", "executable" or "object
	// file". Nothing is wrong with such a file in a folder of documents.
	NotText string
	// Err is the cause; nil if there is no more to say than Kind does.
	Err error
	// Stack is where the parser panicked; nil for every other kind.
	Stack []byte
}

// Kinds of documents that other limits may let through.
const (
	TooLarge = "too large"
	TimedOut = "timed out"
)

const (
	unsupported       = "unsupported format"
	empty             = "no text"
	noTextLayer       = "no text layer"
	passwordProtected = "password protected"
	malformed         = "malformed"
	crashed           = "parser crashed"
)

var hints = map[string]string{
	unsupported:       "convert it to a supported format, or register a parser for it",
	empty:             "nothing to do if the document is meant to be empty",
	noTextLayer:       "run it through OCR (ocrmypdf, say) and ingest the result",
	passwordProtected: "save a copy without the password",
	TooLarge:          "split it, or raise the limit that the message names",
	malformed:         "open it in the program that made it and save it again",
	TimedOut:          "split it, or raise --parse-timeout",
	crashed:           "report it with the stack that the error carries; the other documents are not affected",
}

const laterHint = "run again when the machine is less busy, or raise --parse-timeout"

// Error names the document, the kind and the cause, on one line.
func (e *Error) Error() string {
	switch {
	case e.Err != nil && e.Parser != "":
		return fmt.Sprintf("%s: %s (%s): %s", e.Name, e.Kind, e.Parser, withoutStack(e.Err))
	case e.Err != nil:
		return fmt.Sprintf("%s: %s: %s", e.Name, e.Kind, withoutStack(e.Err))
	}
	return fmt.Sprintf("%s: %s", e.Name, e.Kind)
}

// withoutStack is the text of an error without the calls inside the PDF engine,
// which have no names and say nothing to an operator.
func withoutStack(err error) string {
	text, _, _ := strings.Cut(err.Error(), "wasm stack trace:")
	return strings.TrimSpace(text)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// refuse is an Error of a parser; Blocks fills in the name, the parser and the
// usual hint.
func refuse(kind string, cause error) *Error { return &Error{Kind: kind, Err: cause} }

// kindOf is the kind of the error where it is an *Error, else "".
func kindOf(err error) string {
	if refused, ok := errors.AsType[*Error](err); ok {
		return refused.Kind
	}
	return ""
}
