package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// logged are the lines of a log in JSON with a message.
func logged(t *testing.T, log, message string) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(log) {
		var record map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &record), line)
		if record["msg"] == message {
			lines = append(lines, record)
		}
	}
	return lines
}

// A breaker that trips in the middle of a run hid the cause: the upstream's own
// words were in no output, or only within the text of a refusal, and nothing
// said which server and model had failed.
func TestRunThatTripsABreakerShowsTheCause(t *testing.T) {
	c, model := withModel(t, llmtest.Options{Delay: time.Millisecond})
	c.env = append(c.env, "PENSTOCK_AUDIT_LOG=audit.jsonl")
	corpus(t, c, 200)
	model.Script(llmtest.From(3, inOwnWords(http.StatusInternalServerError)))
	o := c.ingest(t, "docs", "--log-json")
	requireRetry(t, o, "llm")
	stopped := o.summary.Stopped
	shows(t, "cause", stopped.Cause)
	assert.NotContains(t, stopped.Cause, "circuit breaker")
	assert.Equal(t, model.URL, stopped.Address)
	assert.Equal(t, staticmodel.Name, stopped.Model)
	assert.Equal(t, map[string]string{"llm": "open", "milvus": "closed", "s3": "closed"}, o.summary.Breakers)

	lines := logged(t, o.stderr, "run stopped")
	require.Len(t, lines, 1, o.stderr)
	assert.Equal(t, "WARN", lines[0]["level"])
	for key, want := range map[string]string{
		"upstream": "llm", "address": model.URL, "model": staticmodel.Name, "cause": stopped.Cause,
		"kind": "deferred", "retry_at": stopped.RetryAt.Format(time.RFC3339),
	} {
		assert.Equal(t, want, lines[0][key], key)
	}

	calls := model.Stats().Requests
	for where, text := range map[string]string{
		"run": c.run(t, "docs").stdout, "status": c.run(t, "status").stdout,
	} {
		line := lineWith(t, text, "stopped (deferred")
		shows(t, where, line)
		assert.Contains(t, line, model.URL, where)
		assert.Contains(t, line, staticmodel.Name, where)
	}
	var status destinationStatus
	require.NoError(t, json.Unmarshal([]byte(c.run(t, "status", "--json").stdout), &status))
	assert.Equal(t, stopped.Cause, status.LastRun.Stopped.Cause)

	audit := c.audit(t)
	require.Len(t, audit, 2, "the change of state says why the first run ended")
	assert.Equal(t, "circuit_breaker_transition", audit[0].all["event"])
	assert.Equal(t, "run_stopped", audit[1].all["event"])
	assert.Equal(t, calls, model.Stats().Requests, "the run before retry_at knows the cause of the first")
	for _, l := range audit {
		assert.Equal(t, model.URL, l.all["address"])
		assert.Equal(t, staticmodel.Name, l.all["model"])
	}
}

func lineWith(t *testing.T, text, part string) string {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return line
		}
	}
	require.Fail(t, "no line with "+part, text)
	return ""
}

// A run that an upstream stopped while its breaker stayed closed was not in the
// audit log.
func TestAuditLogSaysWhyARunStoppedWithoutATransition(t *testing.T) {
	throttled := inOwnWords(http.StatusTooManyRequests)
	throttled.Header = http.Header{"Retry-After": {"900"}}
	for name, row := range map[string]struct {
		fault llmtest.Fault
		code  int
	}{
		"failed once":  {inOwnWords(http.StatusInternalServerError), exitTemporary},
		"rate limit":   {throttled, exitTemporary},
		"refused key":  {inOwnWords(http.StatusUnauthorized), exitDenied},
		"no such name": {inOwnWords(http.StatusNotFound), exitConfiguration},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, model := withModel(t, llmtest.Options{})
			c.env = append(c.env, "PENSTOCK_AUDIT_LOG=audit.jsonl")
			corpus(t, c, 3)
			model.Script(llmtest.All(row.fault))
			o := c.ingest(t, "docs")
			require.Equal(t, row.code, o.code, o.stdout+o.stderr)
			shows(t, "cause", o.summary.Stopped.Cause)
			var transitions, stops int
			for _, l := range c.audit(t) {
				shows(t, "audit log", l.all["cause"].(string))
				assert.Equal(t, "llm", l.Upstream)
				assert.Equal(t, model.URL, l.all["address"])
				assert.Equal(t, staticmodel.Name, l.all["model"])
				if l.all["event"] == "run_stopped" {
					stops++
					assert.Equal(t, string(o.summary.Stopped.Kind), l.all["kind"])
				} else {
					transitions++
				}
			}
			assert.Equal(t, 1, stops+transitions)
			assert.Equal(t, transitions == 1, o.summary.Breakers["llm"] == "open")
		})
	}
}

// A run that succeeds after another that failed is not in the audit log.
func TestAuditLogOfARunThatIsDone(t *testing.T) {
	var l *auditLog
	l.stopped(pipeline.Summary{Stopped: &pipeline.Stop{Upstream: "llm"}})
	c, _ := withModel(t, llmtest.Options{})
	corpus(t, c, 1)
	require.Zero(t, c.ingest(t, "docs", "--audit-log=audit.jsonl").code)
	assert.Empty(t, c.read(t, "audit.jsonl"))
}
