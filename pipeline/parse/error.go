package parse

import "fmt"

// ErrorKind says why a document could not be read. It is an error itself, so
// that errors.Is(err, parse.NoTextLayer) holds for an [*Error] of that kind.
type ErrorKind uint8

// The kinds of errors.
const (
	// Unsupported: no parser reads this format.
	Unsupported ErrorKind = iota + 1
	// Empty: the document has no text at all.
	Empty
	// NoTextLayer: the pages are pictures.
	NoTextLayer
	// PasswordProtected: the document is encrypted.
	PasswordProtected
	// TooLarge: the document, or what it unpacks to, is over a limit.
	TooLarge
	// Malformed: the content breaks the rules of its format.
	Malformed
	// TimedOut: the parser was still working at Limits.Timeout.
	TimedOut
	// Crashed: the parser panicked; the cause holds the stack.
	Crashed
)

var errorKinds = [...]struct{ name, hint string }{
	Unsupported:       {"unsupported format", "convert it to a supported format, or register a parser for it"},
	Empty:             {"no text", "nothing to do if the document is meant to be empty"},
	NoTextLayer:       {"no text layer", "run it through OCR (ocrmypdf, for one) and ingest the result"},
	PasswordProtected: {"password protected", "save a copy without the password"},
	TooLarge:          {"too large", "split it, or raise the limit that the message names"},
	Malformed:         {"malformed", "open it in the program that made it and save it again"},
	TimedOut:          {"timed out", "split it, or raise the time limit for a document"},
	Crashed:           {"parser crashed", "report it with the stack that the error carries; the other documents are not affected"},
}

// Error returns the kind in lower case.
func (k ErrorKind) Error() string { return k.String() }

// String returns the kind in lower case.
func (k ErrorKind) String() string {
	if k > 0 && int(k) < len(errorKinds) {
		return errorKinds[k].name
	}
	return "unknown"
}

// Error is a document that cannot be read.
type Error struct {
	// Kind is why.
	Kind ErrorKind
	// Name is the document, or the member of a container, as "mail.eml!a.pdf".
	Name string
	// Parser is the parser that refused it; empty if none was chosen.
	Parser string
	// Hint is what the operator can do.
	Hint string
	// Err is the cause; nil if there is no more to say than Kind does.
	Err error
	// Stack is where a Crashed parser panicked.
	Stack []byte
}

// Error names the document, the kind and the cause, on one line.
func (e *Error) Error() string {
	switch {
	case e.Err != nil && e.Parser != "":
		return fmt.Sprintf("%s: %s (%s): %v", e.Name, e.Kind, e.Parser, e.Err)
	case e.Err != nil:
		return fmt.Sprintf("%s: %s: %v", e.Name, e.Kind, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.Name, e.Kind)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the kind of e.
func (e *Error) Is(target error) bool {
	kind, ok := target.(ErrorKind)
	return ok && kind == e.Kind
}

// refuse is an Error of a parser; Blocks fills in the name, the parser and the
// usual hint.
func refuse(kind ErrorKind, cause error) *Error { return &Error{Kind: kind, Err: cause} }
