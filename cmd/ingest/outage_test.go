package main

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/testutil/hostile"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// corpus lays n documents of a few chunks each, no two chunks alike.
func corpus(t *testing.T, c *command, n int) {
	t.Helper()
	for i := range n {
		var text strings.Builder
		for section := range 4 {
			fmt.Fprintf(&text, "# Chapter %d of report %d\n\nReport %d says in chapter %d that pump %d ran for %d hours.\n\n",
				section, i, i, section, i*7+section, i*31+section*17)
		}
		c.write(t, fmt.Sprintf("docs/report%03d.md", i), text.String())
	}
}

// requireRetry checks what an orchestrator needs to run again.
func requireRetry(t *testing.T, o output, upstream string) {
	t.Helper()
	require.Equal(t, exitTemporary, o.code, o.stdout+o.stderr)
	require.NotNil(t, o.summary.Stopped)
	require.Equal(t, pipeline.StopDeferred, o.summary.Stopped.Kind)
	require.Equal(t, upstream, o.summary.Stopped.Upstream)
	requireRetryAfter(t, o, time.Minute)
}

// requireRetryAfter checks that retry_at is so long after something that
// happened while the command ran.
func requireRetryAfter(t *testing.T, o output, wait time.Duration) {
	t.Helper()
	const rounded = time.Second
	require.NotNil(t, o.summary.Stopped.RetryAt)
	latest := o.ended.Add(wait + wait/jitterPart + rounded)
	require.WithinRange(t, *o.summary.Stopped.RetryAt, o.began.Add(wait-rounded), latest)
}

// An endpoint that begins to answer 500 in the middle of a run gets no more
// than five doomed requests, and the run after recovery pays for the rest only.
func TestModelFailsInTheMiddle(t *testing.T) {
	for _, good := range []int{2, 3, 7} {
		t.Run(fmt.Sprintf("after %d", good), func(t *testing.T) {
			c, model := withModel(t, llmtest.Options{Delay: 5 * time.Millisecond})
			documents := atLength(300, 2000)
			corpus(t, c, documents)
			model.Script(llmtest.From(good+1, llmtest.Status(500)))
			o := c.ingest(t, "docs")
			requireRetry(t, o, "llm")
			stats := model.Stats()
			doomed := stats.Requests - good
			assert.LessOrEqual(t, doomed, 5)
			assert.Equal(t, "open", o.summary.Breakers["llm"])
			assert.Positive(t, o.summary.Deferred)
			assert.Contains(t, o.summary.Stopped.Reason, `circuit breaker open for "llm"`)

			model.Script()
			rest := c.ingest(t, "docs", "--now")
			require.Zero(t, rest.code, rest.stdout+rest.stderr)
			assert.Equal(t, documents, o.summary.Ingested+rest.summary.Ingested)
			ids := c.stored(t, "documents")
			assert.Len(t, ids, 4*documents)
			assert.LessOrEqual(t, model.Stats().Repeated, 1,
				"no text is embedded twice, the second run's check of the model excepted")
		})
	}
}

// Down from the start, the check before the run says so after one request.
func TestUpstreamDownFromTheStart(t *testing.T) {
	for _, row := range []struct {
		name, variable, upstream string
	}{
		{"model", "PENSTOCK_LLM_BASE_URL", "llm"},
		{"object store", "PENSTOCK_S3_ENDPOINT", "s3"},
	} {
		t.Run(row.name, func(t *testing.T) {
			server := testutil.NewFaultyServer(t, nil)
			server.Always(testutil.Status(http.StatusInternalServerError))
			c := newCommand(t, row.variable+"="+server.URL(), "AWS_REGION=us-east-1",
				"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b")
			corpus(t, c, 20)
			requireRetry(t, c.ingest(t, "docs"), row.upstream)
			server.WantRequests(1)
		})
	}
}

// refused is an address on which nothing listens.
func refused(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func TestUpstreamRefusedOrSilent(t *testing.T) {
	for _, row := range []struct {
		name, variable, scheme, upstream string
	}{
		{"model", "PENSTOCK_LLM_BASE_URL", "http://", "llm"},
		{"object store", "PENSTOCK_S3_ENDPOINT", "http://", "s3"},
		{"vector store", "PENSTOCK_MILVUS", "", "milvus"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			silent := strings.TrimPrefix(hostile.Serve(t, hostile.Stalled("", nil)), "http://")
			for fault, address := range map[string]string{"refused": refused(t), "silent": silent} {
				c := newCommand(t, row.variable+"="+row.scheme+address, "PENSTOCK_TIMEOUT=2s",
					"AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b")
				corpus(t, c, 20)
				o := c.ingest(t, "docs")
				requireRetry(t, o, row.upstream)
				assert.Zero(t, o.summary.Ingested, fault)

				doctor := c.run(t, "doctor")
				assert.Equal(t, exitTemporary, doctor.code, fault)
				assert.Regexp(t, `FAIL +`+row.upstream, doctor.stdout)
			}
		})
	}
}

// A store that becomes unavailable during a run: at most five calls fail, the
// run ends, and the next one continues.
func TestStoresGoAwayInTheMiddle(t *testing.T) {
	for _, row := range []struct {
		upstream string
		start    func(*testing.T, *command) *upstreams.Process
	}{
		{"s3", func(t *testing.T, c *command) *upstreams.Process {
			p, s3 := upstreams.StartSeaweedFS(t)
			c.env = append(c.env, "PENSTOCK_S3_ENDPOINT="+s3.Endpoint, "PENSTOCK_CREATE_BUCKET=true")
			c.env = append(c.env, keysOf(s3)...)
			return p
		}},
		{"milvus", func(t *testing.T, c *command) *upstreams.Process {
			p := upstreams.StartMilvus(t)
			c.env = append(c.env, "PENSTOCK_MILVUS="+p.Addr)
			return p
		}},
	} {
		t.Run(row.upstream, func(t *testing.T) {
			c, model := withModel(t, llmtest.Options{Delay: 100 * time.Millisecond})
			corpus(t, c, 2000)
			process := row.start(t, c)
			done := make(chan output)
			go func() { done <- c.ingest(t, "docs") }()
			require.Eventually(t, func() bool { return model.Stats().Requests >= 3 }, time.Minute, time.Millisecond)
			process.Kill(t)
			o := <-done
			requireRetry(t, o, row.upstream)
			assert.Less(t, o.summary.Ingested, 2000)

			process.Start(t)
			rest := c.ingest(t, "docs", "--now")
			require.Zero(t, rest.code, rest.stdout+rest.stderr)
			assert.Len(t, c.stored(t, "documents"), 8000)
			assert.LessOrEqual(t, model.Stats().Repeated, 1,
				"no text is embedded twice, the second run's check of the model excepted")
		})
	}
}
