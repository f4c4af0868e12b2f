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

// samples reads series of the service, all in one scrape; ok is false while it
// has not all of them.
func (s *served) samples(t *testing.T, series ...string) (values []int, ok bool) {
	t.Helper()
	_, body := s.get(t, "/metrics")
	for _, one := range series {
		found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(one) + ` ([0-9.e+]+)$`).FindStringSubmatch(body)
		if found == nil {
			return nil, false
		}
		value, err := strconv.ParseFloat(found[1], 64)
		require.NoError(t, err)
		values = append(values, int(value))
	}
	return values, true
}

// reached looks whether a series is as large as that.
func (s *served) reached(t *testing.T, series string, least int) func() bool {
	return func() bool {
		values, ok := s.samples(t, series)
		return ok && values[0] >= least
	}
}

// reach waits until a series is as large as that.
func (s *served) reach(t *testing.T, series string, least int) {
	t.Helper()
	eventually(t, 50*time.Millisecond, s.reached(t, series, least), "%s never reached %d", series, least)
}

// whileItFails serves documents at a long and at a short interval, with a model
// server that answers with a status.
func whileItFails(
	t *testing.T, status, documents int, reset string, check func(*testing.T, *served, *llmtest.Server),
) {
	t.Helper()
	for _, interval := range []string{"1h", "10ms"} {
		t.Run(interval, func(t *testing.T) {
			t.Parallel()
			c, model := withModel(t, llmtest.Options{})
			corpus(t, c, documents)
			model.Script(llmtest.All(inOwnWords(status)))
			check(t, c.serve(t, "--interval="+interval, "--breaker-reset="+reset, "docs"), model)
		})
	}
}

// Against a model server that answers 500, the service said "ready" for
// minutes, and showed a closed breaker: each pass made one call.
func TestServeIsNotReadyWhileTheModelIsDown(t *testing.T) {
	whileItFails(t, http.StatusInternalServerError, 20, "600ms", func(t *testing.T, s *served, model *llmtest.Server) {
		s.await(t, "/readyz", "not ready: ")
		s.await(t, "/readyz", "the last pass ended early (deferred, llm at "+model.URL+"): ")
		status, body := s.get(t, "/readyz")
		assert.Equal(t, http.StatusServiceUnavailable, status)
		shows(t, "/readyz", body)

		s.reach(t, `circuit_breaker_opened_total{upstream="llm"}`, 1)
		calls, ok := s.samples(t, `circuit_breaker_calls_total{outcome="failure",upstream="llm"}`,
			`circuit_breaker_probes_total{upstream="llm"}`)
		require.True(t, ok)
		assert.LessOrEqual(t, calls[0]-calls[1], 5, "doomed calls, without probes")

		model.Script()
		s.await(t, "/readyz", "ready\n")
		s.await(t, "/", "<dt>documents complete</dt><dd>20</dd>")
		status, body = s.get(t, "/readyz")
		assert.Equal(t, http.StatusOK, status, body)
	})
}

// A key that was refused is tried again at the pace of probes, whatever the
// interval, so that a repaired one is noticed.
func TestServeNoticesARepairedKey(t *testing.T) {
	whileItFails(t, http.StatusUnauthorized, 5, "500ms", func(t *testing.T, s *served, model *llmtest.Server) {
		s.await(t, "/readyz", "not ready: the last pass ended early (denied, llm")
		s.reach(t, `circuit_breaker_calls_total{outcome="denied",upstream="llm"}`, 3)
		model.Script()
		s.await(t, "/readyz", "ready\n")
	})
}
