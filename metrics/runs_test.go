package metrics_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/metrics"
)

// aboutRuns are the lines of an exposition that are about runs.
func aboutRuns(t *testing.T, p *metrics.Pipeline) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(p))
	var lines []string
	for line := range strings.Lines(scrape(t, promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))) {
		for _, prefix := range []string{"last_", "documents_waiting", "upstream_up", "credentials_refused"} {
			if strings.HasPrefix(line, "ingest_"+prefix) && !strings.HasSuffix(line, "} 0\n") {
				lines = append(lines, strings.TrimPrefix(line, "ingest_"))
			}
		}
	}
	return strings.Join(lines, "")
}

func newPipeline(t *testing.T) *metrics.Pipeline {
	t.Helper()
	p, err := metrics.NewPipeline(prometheus.NewRegistry())
	require.NoError(t, err)
	return p
}

// A process that failed before it knew anything pushed zeros over what an
// earlier one had known.
func TestNothingIsSaidAboutRunsBeforeItIsKnown(t *testing.T) {
	p := newPipeline(t)
	assert.Empty(t, aboutRuns(t, p))
	p.Document("deferred")
	assert.Empty(t, aboutRuns(t, p))
	p.RunEnded(time.Unix(1_700_000_000, 0), "denied")
	assert.Equal(t, "last_run_result{result=\"denied\"} 1\nlast_run_timestamp_seconds 1.7e+09\n", aboutRuns(t, p))
}

func TestOneResultIsTheLast(t *testing.T) {
	p := newPipeline(t)
	for result, want := range map[string]string{
		"done": "done", "dead_letters": "dead_letters", "deferred": "deferred", "denied": "denied",
		"configuration": "configuration", "interrupted": "interrupted", "fault": "fault", "a new one": "fault",
	} {
		p.RunEnded(time.Unix(1_700_000_000, 0), result)
		assert.Contains(t, aboutRuns(t, p), `last_run_result{result="`+want+`"} 1`)
		assert.Equal(t, 1, strings.Count(aboutRuns(t, p), "last_run_result"))
	}
}

func TestAnIngestedDocumentShowsThatTheUpstreamsWork(t *testing.T) {
	p := newPipeline(t)
	p.Upstream("llm", false, false)
	p.Upstream("s3", true, true)
	assert.Equal(t, "credentials_refused{upstream=\"s3\"} 1\nupstream_up{upstream=\"s3\"} 1\n", aboutRuns(t, p))
	p.Document("unchanged")
	assert.Contains(t, aboutRuns(t, p), "credentials_refused")
	p.Document("ingested")
	assert.Equal(t, "upstream_up{upstream=\"llm\"} 1\nupstream_up{upstream=\"s3\"} 1\n", aboutRuns(t, p))
}

// The time since when documents wait is 0 where none do, as a date of 0 would
// be 56 years ago.
func TestNothingWaits(t *testing.T) {
	p := newPipeline(t)
	p.Waiting(3, time.Unix(1_700_000_000, 0))
	assert.Contains(t, aboutRuns(t, p), "documents_waiting_since_timestamp_seconds 1.7e+09\n")
	p.Waiting(0, time.Time{})
	assert.Contains(t, aboutRuns(t, p), "documents_waiting 0\n")
	assert.Contains(t, aboutRuns(t, p), "documents_waiting_since_timestamp_seconds 0\n")
}

// The text file is replaced as a whole, so that what is not known any more
// would be lost.
func TestTextfileKeepsWhatIsKnownAboutRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ingest.prom")
	for name, before := range map[string]string{
		"missing": "", "not metrics": "{{{\n", "of another program": "up 1\n# TYPE other gauge\nother 3\n",
	} {
		require.NoError(t, os.WriteFile(path, []byte(before), 0o600))
		require.NoError(t, metrics.WriteTextfile(path), name)
		assert.NotContains(t, read(t, path), "other 3", name)
	}
	tellAll(metrics.Ingest)
	require.NoError(t, metrics.WriteTextfile(path))
	got := read(t, path)
	assert.Equal(t, 1, strings.Count(got, "\ningest_last_success_timestamp_seconds "), "once, where it is known twice")
	assert.Contains(t, got, "\ningest_last_success_timestamp_seconds 1.69e+09\n")
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// Rules and dashboards rely on the names.
func TestMetricsAboutRunsAreLinted(t *testing.T) {
	p := newPipeline(t)
	tellAll(p)
	problems, err := promtest.CollectAndLint(p)
	require.NoError(t, err)
	assert.Empty(t, problems)
}
