package main

import (
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/testutil/llmtest"
)

// samples reads series of the service, all in one scrape.
func (s *served) samples(t *testing.T, series ...string) (values []int) {
	t.Helper()
	_, body := s.get(t, "/metrics")
	for _, one := range series {
		found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(one) + ` ([0-9.e+]+)$`).FindStringSubmatch(body)
		require.NotNil(t, found, one)
		value, err := strconv.ParseFloat(found[1], 64)
		require.NoError(t, err)
		values = append(values, int(value))
	}
	return values
}

// reach waits until a series is as large as that.
func (s *served) reach(t *testing.T, series string, least int) {
	t.Helper()
	require.Eventually(t, func() bool { return s.samples(t, series)[0] >= least },
		time.Minute, 50*time.Millisecond, "%s never reached %d", series, least)
}

// Against a model server that answers 500, the service said "ready" for
// minutes, and showed a closed breaker: each pass made one call.
func TestServeIsNotReadyWhileTheModelIsDown(t *testing.T) {
	for _, interval := range []string{"1h", "10ms"} {
		t.Run(interval, func(t *testing.T) {
			t.Parallel()
			c, model := withModel(t, llmtest.Options{})
			corpus(t, c, 20)
			model.Script(llmtest.All(inOwnWords(http.StatusInternalServerError)))
			s := c.serve(t, "--interval="+interval, "--breaker-reset=600ms", "docs")
			s.await(t, "/readyz", "not ready: ")
			s.await(t, "/readyz", "the last pass ended early (deferred, llm at "+model.URL+"): ")
			status, body := s.get(t, "/readyz")
			assert.Equal(t, http.StatusServiceUnavailable, status)
			shows(t, "/readyz", body)

			s.reach(t, `circuit_breaker_opened_total{upstream="llm"}`, 1)
			calls := s.samples(t, `circuit_breaker_calls_total{outcome="failure",upstream="llm"}`,
				`circuit_breaker_probes_total{upstream="llm"}`)
			assert.LessOrEqual(t, calls[0]-calls[1], 5, "doomed calls, without probes")

			model.Script()
			s.await(t, "/readyz", "ready\n")
			s.await(t, "/", "<dt>documents complete</dt><dd>20</dd>")
			status, body = s.get(t, "/readyz")
			assert.Equal(t, http.StatusOK, status, body)
		})
	}
}

// A key that was refused is tried again at the pace of probes, whatever the
// interval, so that a repaired one is noticed.
func TestServeNoticesARepairedKey(t *testing.T) {
	for _, interval := range []string{"1h", "10ms"} {
		t.Run(interval, func(t *testing.T) {
			t.Parallel()
			c, model := withModel(t, llmtest.Options{})
			corpus(t, c, 5)
			model.Script(llmtest.All(inOwnWords(http.StatusUnauthorized)))
			s := c.serve(t, "--interval="+interval, "--breaker-reset=500ms", "docs")
			s.await(t, "/readyz", "not ready: the last pass ended early (denied, llm")
			s.reach(t, `circuit_breaker_calls_total{outcome="denied",upstream="llm"}`, 3)
			model.Script()
			s.await(t, "/readyz", "ready\n")
		})
	}
}
