package vectorstoretest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// assertCode checks that an error has one of these gRPC codes. about says which
// row of a table it comes from.
func assertCode(t *testing.T, about string, err error, want ...codes.Code) {
	t.Helper()
	assert.Contains(t, want, status.Code(err), "%s: %v", about, err)
}
