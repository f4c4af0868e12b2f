package main

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// resized is the static model under any name, with vectors of as many
// dimensions as it is told.
type resized struct {
	*staticmodel.Model
	dimensions atomic.Int64
}

func (m *resized) CreateEmbeddings(
	ctx context.Context, request openai.EmbeddingRequestConverter,
) (openai.EmbeddingResponse, error) {
	r := request.Convert()
	r.Model = staticmodel.Name
	response, err := m.Model.CreateEmbeddings(ctx, r)
	for i, d := range response.Data {
		response.Data[i].Embedding = d.Embedding[:m.dimensions.Load()]
	}
	return response, err
}

// A model whose dimensions had changed made search blame --where, which was not
// even given, with exit 64.
func TestSearchAfterTheModelHasChangedItsDimensions(t *testing.T) {
	model := &resized{Model: staticmodel.New()}
	server := llmtest.NewServer(t, llmtest.Options{Embedder: model})
	c := newCommand(t, "PENSTOCK_LLM_BASE_URL="+server.URL, "PENSTOCK_EMBEDDING_MODEL=fake")
	c.write(t, "docs/a.md", "# Pumps\n\nPump seven is loud.\n")
	model.dimensions.Store(8)
	require.Zero(t, c.ingest(t, "docs").code)
	require.Zero(t, c.run(t, "search", "loud pump").code)

	require.Zero(t, c.run(t, "doctor").code)
	for _, dimensions := range []int64{12, 4} {
		model.dimensions.Store(dimensions)
		doctor := c.run(t, "doctor")
		assert.Equal(t, exitConfiguration, doctor.code, "as for a run, which it called well")
		assert.Regexp(t, `(?m)^ok +milvus (.*\n)+FAIL +llm +collection "documents".*(.*\n)+ +use another collection`,
			doctor.stdout)
		for _, where := range [][]string{nil, {"--where", `source == "docs/a.md"`}} {
			o := c.run(t, append([]string{"--json", "search", "loud pump"}, where...)...)
			assert.Equal(t, exitConfiguration, o.code, o.stderr)
			assert.NotContains(t, o.stderr, "--where")
			var line struct{ Stopped *pipeline.Stop }
			require.NoError(t, json.Unmarshal([]byte(o.stdout), &line))
			require.NotNil(t, line.Stopped)
			assert.Equal(t, pipeline.StopConfiguration, line.Stopped.Kind)
			assert.Equal(t, "llm", line.Stopped.Upstream)
			assert.Regexp(t, `"fake" now has (12|4) dimensions, and collection "documents" .* 8;`, line.Stopped.Reason)
		}
	}
	model.dimensions.Store(8)
	o := c.run(t, "search", "loud pump", "--where", "nonsense(")
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, "--where")
}
