package httpdoor_test

import (
	"testing"

	"github.com/penstock-go/penstock/internal/door/doortest"
)

func TestGuideNamesRealTests(t *testing.T) {
	doortest.Guide(t, "../docs/httpdoor.md", []string{".", "../examples/clients"}, "| promise |")
}
