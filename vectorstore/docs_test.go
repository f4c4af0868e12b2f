package vectorstore_test

import (
	"testing"

	"github.com/penstock-go/penstock/internal/door/doortest"
)

func TestGuideNamesRealTests(t *testing.T) {
	doortest.Guide(t, "../docs/vectorstore.md", []string{".", "sqlitestore", "vectorstoretest"}, "| the SDK |")
}
