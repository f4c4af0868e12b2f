package llm_test

import (
	"testing"

	"github.com/penstock-go/penstock/internal/door/doortest"
)

func TestGuideNamesRealTests(t *testing.T) {
	doortest.Guide(t, "../docs/llm.md", []string{"."}, "| the SDK |")
}
