package netfs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/netfs"
)

func TestFolderOfThisMachineHasNoName(t *testing.T) {
	for _, folder := range []string{"/proc", "/nowhere"} {
		assert.Empty(t, netfs.Name(folder), folder)
	}
}
