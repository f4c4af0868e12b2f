package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// delivery is one request that a gateway got.
type delivery struct{ method, path, body, user string }

func gateway(t *testing.T, status int) (address string, got <-chan delivery) {
	t.Helper()
	received := make(chan delivery, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		received <- delivery{r.Method, r.URL.Path, string(body), user + ":" + password}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	return server.URL, received
}

func TestMetricsAreDelivered(t *testing.T) {
	address, got := gateway(t, http.StatusOK)
	c := newCommand(t)
	c.write(t, "docs/a.md", "A text.")
	o := c.run(t, "docs", "--pushgateway="+strings.Replace(address, "://", "://me:secret@", 1),
		"--pushgateway-job=nightly", "--metrics-textfile=out.prom")
	require.Zero(t, o.code, o.stderr)
	d := <-got
	assert.Equal(t, http.MethodPost, d.method)
	assert.Equal(t, "/metrics/job/nightly", d.path)
	assert.Equal(t, "me:secret", d.user)
	assert.NotEmpty(t, d.body)
	text := c.read(t, "out.prom")
	assert.Contains(t, text, `ingest_documents_total{result="ingested"} 1`)
	assert.Contains(t, text, `circuit_breaker_state{upstream="milvus"} 0`)

	require.Zero(t, c.run(t, "search", "text", "--pushgateway="+address, "--metrics-textfile=out.prom").code)
	require.Zero(t, c.run(t, "config", "--pushgateway="+address).code)
	require.Zero(t, c.run(t, "docs", "--dry-run", "--pushgateway="+address, "--metrics-textfile=out.prom").code)
	assert.Empty(t, got, "what does not ingest leaves the metrics of what does alone")
	assert.Equal(t, text, c.read(t, "out.prom"))
}

// A run that failed replaced the last success in the file by zeros, or left it
// out: it had not begun, so it did not know it.
func TestTextfileOfARunThatDidNotBegin(t *testing.T) {
	c := newCommand(t, "PENSTOCK_METRICS_TEXTFILE=out.prom")
	c.write(t, "docs/a.md", "A text.")
	require.Zero(t, c.run(t, "docs").code)
	success := regexp.MustCompile(`(?m)^ingest_last_success_timestamp_seconds [0-9.e+]+$`)
	known := success.FindString(c.read(t, "out.prom"))
	require.NotEmpty(t, known)
	dead := "--s3-endpoint=http://" + refused(t)
	for _, row := range []struct {
		name   string
		args   []string
		code   int
		result string
		also   string
	}{
		{"missing inputs", []string{"nowhere"}, exitUsage, "configuration", ""},
		{"a bad flag", []string{"docs", "--breaker-reset=0s"}, exitUsage, "configuration", ""},
		{"a bad timeout", []string{"docs", "--timeout=1ms"}, exitUsage, "configuration", ""},
		{"no audit log", []string{"docs", "--audit-log=nowhere/a"}, exitConfiguration, "configuration", ""},
		{"a broken journal", []string{"docs", "--state=broken"}, exitFault, "fault", ""},
		{
			"the state's store is down",
			[]string{"docs", "--state=s3://state/nightly", dead, "--s3-region=x", "--timeout=1s"},
			exitTemporary, "deferred", `ingest_upstream_up{upstream="s3"} 0`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			c.write(t, "broken/journal.db", "this is not a database, and it is long enough to be read as a page")
			c.env = []string{"PENSTOCK_METRICS_TEXTFILE=out.prom", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b"}
			o := c.run(t, row.args...)
			require.Equal(t, row.code, o.code, o.stderr)
			text := c.read(t, "out.prom")
			assert.Contains(t, text, `ingest_last_run_result{result="`+row.result+`"} 1`)
			assert.Contains(t, text, `ingest_last_run_result{result="done"} 0`)
			assert.Contains(t, text, known)
			assert.Contains(t, text, row.also)
			assert.Contains(t, text, `ingest_upstream_up{upstream="s3"} `, "what is not known stays")
		})
	}
}

// A command line that cannot be parsed, or a file with a wrong setting, pushed
// nothing: an alert on the last result was silent.
func TestRunThatCannotBeParsedIsDelivered(t *testing.T) {
	address, got := gateway(t, http.StatusOK)
	c := newCommand(t)
	c.write(t, "docs/a.md", "A text.")
	c.write(t, "unknown.yaml", "nonsense: 1\npushgateway: "+address+"\npushgateway-job: ofthefile")
	c.write(t, "broken.yaml", "a: [")
	c.write(t, "value.yaml", "timeout: banana")
	flag, job := "--pushgateway="+address, "--pushgateway-job=nightly"
	for _, row := range []struct {
		args []string
		code int
		job  string
	}{
		{[]string{"run", "docs", "--nonsense"}, exitUsage, "ingest"},
		{[]string{"docs", "--nonsense"}, exitUsage, "ingest"},
		{[]string{"run", "docs", "--interval", "banana", flag, job}, exitUsage, "nightly"},
		{[]string{"retry", "--timeout", "banana", "--pushgateway-job", "again"}, exitUsage, "again"},
		{[]string{"docs", "--config=unknown.yaml"}, exitConfiguration, "ofthefile"},
		{[]string{"docs", "--config=broken.yaml"}, exitConfiguration, "ingest"},
		{[]string{"docs", "--config=value.yaml"}, exitUsage, "ingest"},
		{[]string{"docs", "--config=nowhere.yaml"}, exitConfiguration, "ingest"},
	} {
		c.env = []string{"PENSTOCK_PUSHGATEWAY=" + address}
		if row.job == "ofthefile" {
			c.env = nil
		}
		o := c.run(t, row.args...)
		require.Equal(t, row.code, o.code, "%v %s", row.args, o.stderr)
		require.NotEmpty(t, got, row.args)
		d := <-got
		assert.Equal(t, "/metrics/job/"+row.job, d.path, row.args)
		assert.NotEmpty(t, d.body)
	}
	c.env = []string{"PENSTOCK_PUSHGATEWAY=" + address}
	for _, args := range [][]string{
		{"status", "--nonsense"},
		{"search", "x", "--limit=banana"},
		{"docs", "--dry-run", "--nonsense"},
		{"version", "--nonsense"},
		{"serve", "docs", "--nonsense"},
	} {
		require.NotZero(t, c.run(t, args...).code, args)
		assert.Empty(t, got, args)
	}
}

// A dry run that could not begin replaced the result of the last run.
func TestDryRunThatDidNotBeginLeavesTheMetricsAlone(t *testing.T) {
	c := newCommand(t, "PENSTOCK_METRICS_TEXTFILE=out.prom")
	c.write(t, "docs/a.md", "A text.")
	require.Zero(t, c.run(t, "docs").code)
	before := c.read(t, "out.prom")
	for _, args := range [][]string{
		{"--dry-run", "nosuch"},
		{"run", "--dry-run", "nosuch"},
		{"--dry-run", "statsu"},
		{"--dry-run", "docs", "--timeout=1ms"},
		{"--dry-run", "docs", "--audit-log=nowhere/a"},
	} {
		require.NotZero(t, c.run(t, args...).code, args)
		assert.True(t, before == c.read(t, "out.prom"), args)
	}
}

// Exit code 65 of a run without any dead letter became the result dead_letters.
func TestResultOfARunWithoutDeadLetters(t *testing.T) {
	for name, row := range map[string]struct {
		args    []string
		prepare func(*command)
		result  string
	}{
		"an empty folder": {[]string{"docs", "empty", "--strict"}, func(c *command) {
			require.NoError(t, os.MkdirAll(filepath.Join(c.dir, "empty"), 0o755))
		}, "done"},
		"a refused --prune": {[]string{"docs", "--prune", "--prune-limit=0"}, func(c *command) {
			require.NoError(t, os.Remove(filepath.Join(c.dir, "docs", "b.md")))
		}, "done"},
		"a known dead letter": {[]string{"docs", "dead", "--strict"}, func(c *command) {
			c.write(t, "dead/a.html", "<title>Nothing</title>")
			require.Equal(t, exitData, c.run(t, "dead").code)
			require.Contains(t, c.read(t, "out.prom"), `ingest_last_run_result{result="dead_letters"} 1`)
		}, "done"},
		"a new dead letter": {[]string{"docs", "dead"}, func(c *command) {
			c.write(t, "dead/a.html", "<title>Nothing</title>")
		}, "dead_letters"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCommand(t, "PENSTOCK_METRICS_TEXTFILE=out.prom")
			c.write(t, "docs/a.md", "A text.")
			c.write(t, "docs/b.md", "Another.")
			require.Zero(t, c.run(t, "docs").code)
			row.prepare(c)
			o := c.run(t, row.args...)
			require.Equal(t, exitData, o.code, o.stdout+o.stderr)
			assert.Contains(t, c.read(t, "out.prom"), `ingest_last_run_result{result="`+row.result+`"} 1`)
		})
	}
}

// The journal is held by another run, whose metrics stay.
func TestTextfileWhileAnotherRunHoldsTheJournal(t *testing.T) {
	url, asked, release := gatedModel(t)
	c := newCommand(t, atModel(url)...)
	c.env = append(c.env, "PENSTOCK_METRICS_TEXTFILE=out.prom")
	c.write(t, "docs/a.md", "A text.")
	first := c.start(t.Context(), "docs")
	require.NoError(t, first.Start())
	asked()
	require.Equal(t, exitTemporary, c.run(t, "docs").code)
	text := c.read(t, "out.prom")
	assert.Contains(t, text, `ingest_last_run_result{result="deferred"} 1`)
	assert.NotContains(t, text, "ingest_last_success_timestamp_seconds", "no run has succeeded yet")
	assert.NotContains(t, text, "ingest_upstream_up")
	release()
	require.NoError(t, first.Wait())
	text = c.read(t, "out.prom")
	assert.Contains(t, text, `ingest_last_run_result{result="done"} 1`)
	assert.Contains(t, text, "\ningest_last_success_timestamp_seconds ")
}

// What cannot be delivered fails nothing.
func TestMetricsThatCannotBeDelivered(t *testing.T) {
	refusing, _ := gateway(t, http.StatusBadRequest)
	for name, flags := range map[string][]string{
		"gateway refuses":   {"--pushgateway=" + refusing},
		"gateway is down":   {"--pushgateway=http://me:secret@" + refused(t)},
		"no address":        {"--pushgateway=::secret::"},
		"folder is missing": {"--metrics-textfile=nowhere/out.prom"},
	} {
		c := newCommand(t)
		c.write(t, "docs/a.md", "A text.")
		o := c.ingest(t, append([]string{"docs"}, flags...)...)
		assert.Zero(t, o.code, "%s: %s", name, o.stderr)
		assert.Equal(t, 1, o.summary.Ingested, name)
		assert.Contains(t, o.stderr, "not delivered", name)
		assert.NotContains(t, o.stderr, "secret", name)
	}
}

// auditLine is a line of the audit log as a reader sees it.
type auditLine struct {
	Upstream, From, To string
	all                map[string]any
}

func (c *command) audit(t *testing.T) (lines []auditLine) {
	t.Helper()
	for line := range strings.Lines(c.read(t, "audit.jsonl")) {
		var l auditLine
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		require.NoError(t, json.Unmarshal([]byte(line), &l.all))
		lines = append(lines, l)
	}
	return lines
}

func TestAuditLog(t *testing.T) {
	c, model := withModel(t, llmtest.Options{})
	c.env = append(c.env, "PENSTOCK_AUDIT_LOG=audit.jsonl")
	corpus(t, c, 300)
	for range 2 {
		model.Script(llmtest.From(2, llmtest.Status(500))) // all but the check
		require.NoError(t, os.RemoveAll(c.path(".penstock", breakersFile)))
		o := c.run(t, "docs", "--log-json")
		require.Equal(t, exitTemporary, o.code, o.stderr)
		assert.Equal(t, 1, strings.Count(o.stderr,
			`"msg":"circuit breaker changed state","upstream":"llm","old_state":"closed","new_state":"open"`), o.stderr)
	}
	lines := c.audit(t)
	require.Len(t, lines, 2, "each run adds to what is there")
	for _, l := range lines {
		assert.Equal(t, []string{"llm", "closed", "open"}, []string{l.Upstream, l.From, l.To})
		for key, want := range map[string]any{
			"event": "circuit_breaker_transition", "reason": "consecutive failures",
			"failures": 5.0, "probe_id": 0.0,
			"since_opened_seconds": 0.0, "refused": 0.0,
		} {
			assert.Equal(t, want, l.all[key], key)
		}
		assert.GreaterOrEqual(t, l.all["eligible"], 5.0)
		assert.Positive(t, l.all["in_state_seconds"])
		assert.NotEmpty(t, l.all["policy_version"])
		at, err := time.Parse(time.RFC3339Nano, l.all["time"].(string))
		require.NoError(t, err)
		until, err := time.Parse(time.RFC3339Nano, l.all["open_until"].(string))
		require.NoError(t, err)
		assert.WithinRange(t, until, at.Add(time.Minute), at.Add(time.Minute+time.Minute/jitterPart))
	}
}

// Where an operator's hold begins or ends and the state stays, the line is not
// that of a change of state.
// --breaker-reset is the breakers' own time, and so the time to run again.
func TestBreakerReset(t *testing.T) {
	c, model := withModel(t, llmtest.Options{})
	corpus(t, c, 300)
	model.Script(llmtest.From(2, llmtest.Status(500))) // all but the check
	o := c.ingest(t, "docs", "--breaker-reset=20s")
	require.Equal(t, exitTemporary, o.code, o.stderr)
	require.NotNil(t, o.summary.Stopped)
	require.NotNil(t, o.summary.Stopped.RetryAt)
	requireRetryAfter(t, o, 20*time.Second)
}

func TestAuditLogOfHolds(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "audit.jsonl"))
	require.NoError(t, err)
	defer file.Close()
	log := &auditLog{to: file, log: slog.New(slog.DiscardHandler)}
	b, err := resilience.New("s3", resilience.Config{FailMax: 1, Shadow: true, Logger: log.log})
	require.NoError(t, err)
	defer b.Observe(log.write)()
	b.ForceClose("migration")
	b.Reset()
	require.Error(t, b.Do(t.Context(), func(context.Context) error { return errors.New("password=hunter2 is\nwrong") }))
	log.write(resilience.Transition{Upstream: "s3", To: resilience.Open, Dropped: 3})

	content, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	var got []string
	for line := range strings.Lines(string(content)) {
		var all map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &all))
		got = append(got, fmt.Sprintf("%v %v %v %v %v %v %v %v", all["event"], all["from"], all["to"], all["reason"],
			all["held"], all["cause"], all["shadow"], all["dropped"]))
	}
	assert.Equal(t, []string{
		"circuit_breaker_hold closed closed migration forced_closed <nil> true <nil>",
		"circuit_breaker_hold closed closed reset <nil> <nil> true <nil>",
		"circuit_breaker_transition closed open consecutive failures <nil> password=*** is wrong true <nil>",
		"circuit_breaker_transition closed open  <nil> <nil> <nil> 3",
	}, got)
}
