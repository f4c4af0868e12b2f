package pipeline_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// Run, Search and Doctor say alike when a rate limit ends.
func TestEveryCallPassesOnTheRetryAfter(t *testing.T) {
	ours := func(t *testing.T, w *world) llm.EmbeddingClient { t.Helper(); return w.client(llm.Config{}) }
	plain := func(_ *testing.T, w *world) llm.EmbeddingClient { return plainClient(w.model.URL, nil) }
	clients := map[string]func(*testing.T, *world) llm.EmbeddingClient{"ours": ours, "plain": plain}
	for client, embeddings := range clients {
		for name, fault := range busy {
			t.Run(client+", "+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, llmtest.Options{})
				w.config.Embeddings = embeddings(t, w)
				w.corpus(3)
				_, err := w.run()
				require.NoError(t, err)
				const wait = 90 * time.Second
				w.model.Script(llmtest.All(fault(wait)))
				for call, stopped := range map[string]func() *pipeline.StopError{
					"run": func() *pipeline.StopError {
						_, err := w.run(func(c *pipeline.Config) { c.Collection, c.Destination = "other", "other" })
						return stopOf(t, err)
					},
					"search": func() *pipeline.StopError {
						_, err := w.pipeline().Search(t.Context(), "valve 26", pipeline.SearchOptions{})
						return stopOf(t, err)
					},
					"doctor": func() *pipeline.StopError {
						for finding := range w.pipeline().Findings(t.Context()) {
							if finding.Upstream == "llm" {
								return finding.Stop
							}
						}
						return nil
					},
				} {
					began := time.Now()
					stop := stopped()
					require.NotNil(t, stop, call)
					assert.Equal(t, pipeline.StopDeferred, stop.Kind, call)
					assert.Equal(t, "llm", stop.Upstream, call)
					earliest, latest := began.Add(wait-time.Second), time.Now().Add(wait+time.Second)
					assert.WithinRange(t, stop.RetryAt, earliest, latest, call)
				}
			})
		}
	}
}
