package block_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline/block"
)

// What "ingest parse --json" prints is read back by the type it is made of.
func TestBlocksSurviveJSON(t *testing.T) {
	for kind := block.Paragraph; kind <= block.Note; kind++ {
		want := block.Block{Kind: kind, Text: "A text.", Level: 2, Page: 3, Offset: 7}
		text, err := json.Marshal(want)
		require.NoError(t, err)
		var got block.Block
		require.NoError(t, json.Unmarshal(text, &got), "%s", text)
		assert.Equal(t, want, got)
	}
}

func TestUnknownKindIsNotRead(t *testing.T) {
	unknown := block.Note + 1
	assert.Equal(t, "unknown", unknown.String())
	kind := block.Table
	for _, text := range []string{"unknown", "", "Table", "list_item"} {
		require.ErrorContains(t, kind.UnmarshalText([]byte(text)), "is not a kind of block; the kinds are paragraph,")
		assert.Equal(t, block.Table, kind)
	}
}
