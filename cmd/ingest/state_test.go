package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/bucket"
	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// pod gives a command another machine with an empty disk: only its documents
// are there too.
func (c *command) pod(t *testing.T) *command {
	t.Helper()
	next := newCommand(t, c.env...)
	c.copyDocs(t, next)
	return next
}

// copyDocs gives another command the same documents.
func (c *command) copyDocs(t *testing.T, to *command) {
	t.Helper()
	require.NoError(t, os.CopyFS(to.path("docs"), os.DirFS(c.path("docs"))))
}

// remote is a command whose state is in the real object store, as its stores
// are.
func remote(t *testing.T, llmURL string) *command {
	t.Helper()
	env := append(real(t, llmURL), "PENSTOCK_STATE=s3://"+bucketName(t)+"/state",
		"PENSTOCK_STATE_LEASE="+testTTL.String(), "TMPDIR="+t.TempDir())
	return newCommand(t, env...)
}

// testTTL is short, for a test that waits for its end, and long enough for a
// busy machine.
const testTTL = 9 * time.Second

// takeOver puts a lease of another run into the state of a remote command.
func takeOver(t *testing.T, number int) {
	t.Helper()
	key := fmt.Sprintf("state/lease/%019d", number)
	bucket.Put(t, bucket.Client(t, upstreams.SeaweedFS(t)), bucketName(t), key,
		`{"holder":"somebody else","token":"t","ttl_ms":3000}`)
}

// kept gives the keys of a remote command's state that begin with a prefix.
func kept(t *testing.T) func(prefix string) []string {
	t.Helper()
	client := bucket.Client(t, upstreams.SeaweedFS(t))
	return func(prefix string) []string { return bucket.Keys(t, client, bucketName(t), prefix) }
}

// A run whose model dies in the middle, and a pod that begins with an empty
// disk: it knows what is left, does only that, and pays for nothing twice.
func TestStateInTheObjectStore(t *testing.T) {
	model := llmtest.NewServer(t, llmtest.Options{Delay: 5 * time.Millisecond})
	first := remote(t, model.URL)
	corpus(t, first, 300)
	first.write(t, "docs/aaa-broken.pdf", "%PDF-1.7 and nothing more")
	// It dies slowly, so that documents of its first answers are stored.
	model.Script(llmtest.From(10, llmtest.Fault{Delay: 3 * time.Second, Status: 500}))
	o := first.ingest(t, "docs")
	requireRetry(t, o, "llm")
	require.Positive(t, o.summary.Ingested)
	require.Positive(t, o.summary.Deferred)
	require.NoDirExists(t, first.path(".penstock"), "nothing is kept here")

	second := first.pod(t)
	status := second.run(t, "status")
	require.Zero(t, status.code, status.stderr)
	assert.Contains(t, status.stdout, fmt.Sprintf("%d documents, %d chunks, %d dead letter, %d deferred",
		o.summary.Ingested, o.summary.Chunks, o.summary.DeadLetters, o.summary.Deferred))
	assert.Contains(t, status.stdout, "breaker llm: open")
	listed := second.run(t, "--json", "status")
	assert.Equal(t, o.summary.Deferred, strings.Count(listed.stdout, `"status":"deferred"`), listed.stdout)

	model.Script()
	retry := second.ingest(t, "retry")
	require.Contains(t, []int{exitOK, exitData}, retry.code, retry.stdout+retry.stderr)
	assert.Equal(t, o.summary.Deferred, retry.summary.Documents-o.summary.DeadLetters, "those and no other")
	for id, d := range retry.documents {
		assert.Equal(t, id == "docs/aaa-broken.pdf", d.Result == pipeline.DeadLetter, "%+v", d)
	}

	third := second.pod(t)
	rest := third.ingest(t, "docs")
	require.Contains(t, []int{exitOK, exitData}, rest.code, rest.stdout+rest.stderr)
	assert.Equal(t, o.summary.Ingested+retry.summary.Ingested, rest.summary.Unchanged, "what is complete is known")
	ids := third.stored(t, collectionName(t))
	assert.Len(t, ids, 1200)
	assert.LessOrEqual(t, model.Stats().Repeated, 2, "no text is embedded twice, the checks of the model excepted")
	status = third.pod(t).run(t, "status")
	assert.Contains(t, status.stdout, "300 documents, 1200 chunks, 1 dead letter, 0 deferred")
	assert.Contains(t, status.stdout, "dead_letter  docs/aaa-broken.pdf")

	requests := model.Stats().Requests
	again := third.pod(t).ingest(t, "docs")
	require.Zero(t, again.code, again.stdout+again.stderr)
	assert.Equal(t, 300, again.summary.Unchanged)
	assert.Equal(t, 1, again.summary.KnownDeadLetters)
	assert.Equal(t, requests, model.Stats().Requests)
}

// Two runs at once: the second says who holds the state, wherever it runs. One
// that is killed is followed by the next as soon as its lease has expired.
func TestStateIsHeldByOneRun(t *testing.T) {
	keys := kept(t)
	url, asked, release := gatedModel(t)
	c := remote(t, url)
	corpus(t, c, 5)
	first := c.start(t.Context(), "docs")
	require.NoError(t, first.Start())
	asked()
	other := c.pod(t)
	holder := fmt.Sprintf("held by another run (process %d on ", first.Process.Pid)
	for range 2 { // the second time the lease has been renewed
		second := other.ingest(t, "docs")
		require.Equal(t, exitTemporary, second.code, second.stdout+second.stderr)
		require.NotNil(t, second.summary.Stopped)
		assert.Contains(t, second.summary.Stopped.Reason, holder)
		assert.WithinRange(t, *second.summary.Stopped.RetryAt, second.began, second.ended.Add(2*testTTL))
		assert.Len(t, second.summary.Breakers, 3)
		before := keys("state/lease/")
		eventually(t, 50*time.Millisecond, func() bool { return !slices.Equal(before, keys("state/lease/")) })
	}
	doctor := other.run(t, "doctor", "--timeout=1s") // the model says nothing
	assert.Contains(t, doctor.stdout, holder)
	dry := other.run(t, "docs", "--dry-run")
	assert.Zero(t, dry.code, "a dry run takes no lease: %s", dry.stderr)
	assert.Contains(t, dry.stdout, "would ingest 5 documents")

	require.NoError(t, first.Process.Kill())
	require.Error(t, first.Wait())
	before := keys("state/")
	assert.Zero(t, other.run(t, "docs", "--dry-run").code)
	assert.Equal(t, before, keys("state/"), "nor does it write")
	release()
	eventually(t, 100*time.Millisecond, func() bool {
		o := other.ingest(t, "docs")
		return o.code == exitOK && o.summary.Ingested == 5
	})
	other.stored(t, collectionName(t))
}

// A lease that another has taken ends the run, which writes over nothing.
func TestStateIsTakenOver(t *testing.T) {
	keys := kept(t)
	url, asked, release := gatedModel(t)
	c := remote(t, url)
	corpus(t, c, 5)
	done := make(chan output, 1)
	go func() { done <- c.ingest(t, "docs") }()
	asked()
	require.NotEmpty(t, keys("state/lease/"))
	takeOver(t, 999)
	o := <-done
	release()
	require.Equal(t, exitTemporary, o.code, o.stdout+o.stderr)
	assert.Contains(t, o.summary.Stopped.Reason, "taken over by another run (somebody else)")
	require.NotNil(t, o.summary.Stopped.RetryAt)
	assert.Empty(t, keys("state/journal/"))
}

// Interrupted, a run does not wait for the model, which is given a minute; it
// saves its state.
func TestStateOfAnInterruptedRun(t *testing.T) {
	url, asked, release := gatedModel(t)
	t.Cleanup(release)
	c := remote(t, url)
	corpus(t, c, 5)
	run := c.start(t.Context(), "docs")
	require.NoError(t, run.Start())
	asked()
	before := time.Now()
	require.NoError(t, run.Process.Signal(os.Interrupt))
	require.Error(t, run.Wait())
	assert.Equal(t, 130, run.ProcessState.ExitCode())
	assert.Less(t, time.Since(before), time.Minute)
	status := c.pod(t).run(t, "status")
	assert.Contains(t, status.stdout, "stopped (interrupted)")
	release()
	o := c.pod(t).ingest(t, "docs")
	require.Zero(t, o.code, "the lease was given back: %s", o.stdout)
}

func TestStateFaults(t *testing.T) {
	at := upstreams.SeaweedFS(t)
	good := append(keysOf(at), "AWS_ENDPOINT_URL="+at.Endpoint)
	for _, row := range []struct {
		name  string
		state string
		env   []string
		code  int
		says  string
	}{
		{"no prefix", "s3://bucket", nil, exitUsage, "s3://bucket/prefix"},
		{"no bucket", "s3://", nil, exitUsage, "s3://bucket/prefix"},
		{"another store", "gs://bucket/state", nil, exitUsage, "a folder or s3://bucket/prefix"},
		{
			"short lease", "s3://bucket/state",
			[]string{"PENSTOCK_STATE_LEASE=2s"},
			exitUsage,
			"--state-lease: 2s is too short",
		},
		{"no such bucket", "s3://not-there/state", nil, exitConfiguration, "of the state does not exist"},
		{"wrong key", "s3://" + at.Bucket + "/state", []string{"AWS_SECRET_ACCESS_KEY=wrong"}, exitDenied, "403"},
		{
			"away", "s3://" + at.Bucket + "/state",
			[]string{"AWS_ENDPOINT_URL=http://" + refused(t)},
			exitTemporary, "connection refused",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := newCommand(t, slices.Concat(good, row.env, []string{"PENSTOCK_STATE=" + row.state})...)
			corpus(t, c, 3)
			o := c.ingest(t, "docs")
			assert.Equal(t, row.code, o.code, o.stdout+o.stderr)
			assert.Contains(t, o.stdout+o.stderr, row.says)
			if row.code == exitUsage {
				return
			}
			require.NotNil(t, o.summary.Stopped)
			if row.code == exitTemporary {
				requireRetryAfter(t, o, time.Minute)
			}
			status := c.run(t, "status")
			assert.Equal(t, row.code, status.code, status.stdout+status.stderr)
			assert.Contains(t, status.stderr, row.says)
			doctor := c.run(t, "doctor")
			assert.NotZero(t, doctor.code)
			assert.Regexp(t, "FAIL +state .*"+row.says, doctor.stdout)
		})
	}
}

// The state is not a document, and needs no object store for originals.
func TestStateBesideEmbeddedStores(t *testing.T) {
	at := upstreams.SeaweedFS(t)
	name, client := bucketOf(t)
	bucket.Put(t, client, name, "a.md", "# A\n\nA pump.\n")
	c := newCommand(t, append(keysOf(at), "AWS_ENDPOINT_URL="+at.Endpoint,
		"PENSTOCK_STATE=s3://"+name+"/ingest/state")...)
	for range 2 {
		o := c.ingest(t, "s3://"+name)
		require.Zero(t, o.code, o.stdout+o.stderr)
		assert.Equal(t, 1, o.summary.Documents)
	}
	assert.DirExists(t, c.path(".penstock", "objects"))
	assert.NoFileExists(t, c.path(".penstock", "journal.db"))
	doctor := c.run(t, "doctor")
	require.Zero(t, doctor.code, doctor.stdout)
	assert.Contains(t, doctor.stdout, "s3://"+name+"/ingest/state is writable and allows one run at a time")
	assert.Regexp(t, `state +s3://`+name+`/ingest/state +# environment, PENSTOCK_STATE`, c.run(t, "config").stdout)
	assert.Zero(t, c.run(t, "verify").code)
	assert.Zero(t, c.run(t, "delete", "s3://"+name+"/a.md").code)

	// Another machine: its embedded collection is another one, so what the
	// state says of the first is not believed.
	elsewhere := newCommand(t, c.env...)
	o := elsewhere.ingest(t, "s3://"+name)
	require.Zero(t, o.code, o.stdout+o.stderr)
	assert.Equal(t, 1, o.summary.Ingested)

	// And one that keeps nothing but the vectors here.
	vectors := newCommand(t, append(c.env, "PENSTOCK_S3_ENDPOINT="+at.Endpoint, "PENSTOCK_S3_BUCKET="+name)...)
	o = vectors.ingest(t, "s3://"+name)
	require.Zero(t, o.code, o.stdout+o.stderr)
	assert.Equal(t, 1, o.summary.Ingested)
}

func TestServeHoldsItsState(t *testing.T) {
	model := llmtest.NewServer(t, llmtest.Options{})
	c := remote(t, model.URL)
	corpus(t, c, 3)
	serve := c.serve(t, "docs", "--interval=1s")
	other := c.pod(t)
	// The pass after one that a busy store has failed may begin a minute later.
	eventuallyWithin(t, 3*time.Minute, 200*time.Millisecond, func() bool {
		return strings.Contains(other.run(t, "status").stdout, "3 documents")
	}, "written while it serves")
	assert.Equal(t, exitTemporary, other.ingest(t, "docs").code)
	code, _ := serve.stop(t, syscall.SIGINT)
	assert.Zero(t, code)
	assert.Zero(t, other.ingest(t, "docs").code)

	serve = c.serve(t, "docs", "--interval=1s")
	takeOver(t, 9999)
	require.Error(t, serve.cmd.Wait())
	assert.Equal(t, exitTemporary, serve.cmd.ProcessState.ExitCode())
}
