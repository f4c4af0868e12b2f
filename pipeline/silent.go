package pipeline

import (
	"errors"

	"github.com/penstock-go/penstock/pipeline/parse"
)

// outcome is the end of a document that is neither ingested nor failed.
type outcome struct {
	result       Result
	kind, reason string
}

func (o *outcome) Error() string { return o.reason }

// gone is the outcome of a document that is no longer there.
func gone() error {
	return &outcome{result: Gone, reason: "it was listed, and is no longer there"}
}

// removed is the outcome of a document that was removed while it was ingested:
// nothing is left of what was read.
func removed() *outcome {
	return &outcome{result: Gone, reason: "it was removed while it was ingested"}
}

// skipped is the outcome of a document of a listing by its refusal, where the
// content never is text; nil for any other. What an input names itself is meant
// to be a document.
func skipped(err error) *outcome {
	refused, ok := errors.AsType[*parse.Error](err)
	if !ok || refused.NotText == "" {
		return nil
	}
	o := &outcome{result: Skipped, kind: refused.NotText, reason: "it is empty"}
	if refused.Err != nil {
		o.reason = refused.Err.Error()
	}
	return o
}
