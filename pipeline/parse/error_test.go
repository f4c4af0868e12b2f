package parse_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/pipeline/parse"
)

// The reason of a dead letter was a page of calls without names.
func TestErrorOfTheEngineHasNoStack(t *testing.T) {
	trap := errors.New("wasm error: out of bounds memory access\nwasm stack trace:\n\t.$1200(i32)\n\t.$1201(i32)")
	err := &parse.Error{Kind: "malformed", Name: "a.pdf", Parser: "pdf", Err: fmt.Errorf("page 3: %w", trap)}
	assert.EqualError(t, err, "a.pdf: malformed (pdf): page 3: wasm error: out of bounds memory access")
}
