package metrics

import (
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
)

// TestDurationsAreBoundedBetweenScrapes has nobody scrape.
func TestDurationsAreBoundedBetweenScrapes(t *testing.T) {
	reg := resilience.NewRegistry(resilience.Config{Logger: slog.New(slog.DiscardHandler)})
	keyed, err := reg.Keyed("swept", resilience.Config{MaxKeys: 10, Durations: true})
	require.NoError(t, err)
	d := &timings{by: make(map[string]*timing)}
	held := make([]*resilience.Breaker, 5000)
	for i := range held {
		held[i] = keyed.Get(strconv.Itoa(i))
		d.of(held[i]).calls.WithLabelValues("swept", "embed").Observe(time.Second.Seconds())
		assert.LessOrEqual(t, len(d.by), sweepFrom)
	}
}
