package main

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// opened opens the breaker of the model in a run of c.
func opened(t *testing.T, c *command, model *llmtest.Server) output {
	t.Helper()
	corpus(t, c, 60)
	model.Script(llmtest.From(3, inOwnWords(http.StatusInternalServerError)))
	o := c.ingest(t, "docs")
	requireRetry(t, o, "llm")
	require.Equal(t, "open", o.summary.Breakers["llm"])
	return o
}

// A run that cron starts before retry_at took five more failures: each process
// began with closed breakers.
func TestRunBeforeRetryAtCallsNothing(t *testing.T) {
	c, model := withModel(t, llmtest.Options{Delay: time.Millisecond})
	first := opened(t, c, model)
	calls := model.Stats().Requests
	for range 3 {
		o := c.ingest(t, "docs")
		assert.Equal(t, exitTemporary, o.code, o.stderr)
		assert.Equal(t, first.summary.Stopped.RetryAt, o.summary.Stopped.RetryAt)
		assert.Equal(t, first.summary.Stopped.Cause, o.summary.Stopped.Cause, "what the upstream said is known")
		assert.Equal(t, first.summary.Waiting, o.summary.Waiting)
	}
	retry := c.ingest(t, "retry")
	assert.Equal(t, exitTemporary, retry.code, retry.stderr)
	search := c.run(t, "search", "what")
	assert.Equal(t, exitTemporary, search.code, search.stderr)
	assert.Contains(t, search.stderr, ", or with --now")
	assert.Contains(t, search.stderr, "cause: "+first.summary.Stopped.Cause)
	assert.Regexp(t, "run again after [^;]*, or with --now; cause: ", c.run(t, "docs").stdout)
	assert.Empty(t, logged(t, c.run(t, "docs", "--log-json").stderr, "circuit breaker changed state"),
		"at level info: another run has made the change")
	assert.Equal(t, calls, model.Stats().Requests)
}

// The first run after the wait probes: one call, if the upstream is still down.
func TestFirstRunAfterRetryAtProbes(t *testing.T) {
	c, model := withModel(t, llmtest.Options{Delay: time.Millisecond})
	c.env = append(c.env, "PENSTOCK_BREAKER_RESET=2s")
	corpus(t, c, 60)
	model.Script(llmtest.From(3, inOwnWords(http.StatusInternalServerError)))
	o := c.ingest(t, "docs")
	require.Equal(t, exitTemporary, o.code, o.stderr)
	<-time.After(time.Until(*o.summary.Stopped.RetryAt))
	calls := model.Stats().Requests
	o = c.ingest(t, "docs")
	assert.Equal(t, exitTemporary, o.code, o.stderr)
	assert.Equal(t, calls+1, model.Stats().Requests)
	open := c.record(t, "llm")
	assert.Equal(t, "open", open.State)
	assert.Equal(t, ceil(open.Until), *o.summary.Stopped.RetryAt, "the wait that was drawn is in it")
	<-time.After(time.Until(*o.summary.Stopped.RetryAt))
	model.Script()
	o = c.ingest(t, "docs")
	assert.Zero(t, o.code, o.stderr)
	assert.Equal(t, "closed", o.summary.Breakers["llm"])
	o = c.ingest(t, "docs")
	assert.Zero(t, o.code, o.stderr)
}

// record is the record of a breaker in the state folder.
func (c *command) record(t *testing.T, upstream string) (r struct {
	State string
	Until time.Time
},
) {
	t.Helper()
	var file struct {
		Records map[string]struct {
			Value struct {
				State string `json:"state"`
				Until int64  `json:"open_until"`
			} `json:"value"`
		} `json:"records"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.read(t, ".penstock/"+breakersFile)), &file))
	for key, record := range file.Records {
		if strings.HasPrefix(key, "1/"+upstream+"@") {
			r.State, r.Until = record.Value.State, time.Unix(0, record.Value.Until).UTC()
		}
	}
	return r
}

// ceil is the next whole second.
func ceil(at time.Time) time.Time { return at.Add(time.Second - 1).Truncate(time.Second) }

// An operator who has repaired the upstream need not wait.
func TestOperatorClosesTheBreakers(t *testing.T) {
	for name, repair := range map[string]func(*testing.T, *command) output{
		"now": func(t *testing.T, c *command) output { return c.ingest(t, "docs", "--now") },
		"doctor": func(t *testing.T, c *command) output {
			o := c.run(t, "doctor")
			require.Zero(t, o.code, o.stdout+o.stderr)
			assert.Contains(t, o.stdout, "ok    llm     its circuit breaker was open, and is closed now\n")
			o = c.run(t, "doctor")
			assert.NotContains(t, o.stdout, "circuit breaker")
			return c.ingest(t, "docs")
		},
		"the file is removed": func(t *testing.T, c *command) output {
			require.NoError(t, os.Remove(c.path(".penstock", breakersFile)))
			return c.ingest(t, "docs")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, model := withModel(t, llmtest.Options{Delay: time.Millisecond})
			opened(t, c, model)
			model.Script()
			o := repair(t, c)
			assert.Zero(t, o.code, o.stderr)
			assert.Equal(t, "closed", o.summary.Breakers["llm"])
		})
	}
}

// A doctor who finds the upstream down closes nothing.
func TestDoctorClosesNothingThatIsDown(t *testing.T) {
	c, model := withModel(t, llmtest.Options{Delay: time.Millisecond})
	first := opened(t, c, model)
	doctor := c.run(t, "doctor")
	assert.Equal(t, exitTemporary, doctor.code)
	assert.Regexp(t, `(?m)^FAIL  llm     circuit breaker open for "llm", failing fast; next probe in .*\n +runs call it again`,
		doctor.stdout)
	o := c.ingest(t, "docs")
	assert.Equal(t, first.summary.Stopped.RetryAt, o.summary.Stopped.RetryAt)
}

// Another server is another breaker, and so is another state folder.
func TestBreakersOfOtherServersAndFolders(t *testing.T) {
	c, model := withModel(t, llmtest.Options{Delay: time.Millisecond})
	opened(t, c, model)
	other := llmtest.NewServer(t, llmtest.Options{Delay: time.Millisecond})
	o := c.ingest(t, "--llm-base-url", other.URL, "docs")
	assert.Zero(t, o.code, o.stderr)
	model.Script()
	o = c.ingest(t, "--state", "elsewhere", "docs")
	assert.Zero(t, o.code, o.stderr)
}

// A file that cannot be read closes the breakers, with a warning.
func TestBrokenFileOfBreakers(t *testing.T) {
	c, model := withModel(t, llmtest.Options{Delay: time.Millisecond})
	opened(t, c, model)
	c.write(t, ".penstock/"+breakersFile, "{not json")
	model.Script()
	o := c.ingest(t, "docs")
	assert.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stderr, breakersFile)
}

// A folder in the place of the file, or of its lock, does not keep a run from
// its work, or from its end.
func TestBreakersInNoFile(t *testing.T) {
	for name, lay := range map[string]func(path string) error{
		"folder":         func(path string) error { return os.Mkdir(path, 0o755) },
		"folder of lock": func(path string) error { return os.Mkdir(path+".lock", 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := withModel(t, llmtest.Options{Delay: time.Millisecond})
			corpus(t, c, 1)
			require.NoError(t, os.Mkdir(c.path(".penstock"), 0o755))
			require.NoError(t, lay(c.path(".penstock", breakersFile)))
			o := c.ingest(t, "docs")
			assert.Zero(t, o.code, o.stderr)
			assert.Contains(t, o.stderr, "it is not a regular file; remove it")
		})
	}
}

// A scheme in capitals is that scheme.
func TestSharedSchemeInCapitals(t *testing.T) {
	c, model := withModel(t, llmtest.Options{Delay: time.Millisecond})
	opened(t, c, model)
	model.Script()
	o := c.ingest(t, "docs", "--shared=REDIS://127.0.0.1:1")
	assert.Zero(t, o.code, o.stdout+o.stderr)
	assert.Contains(t, o.stderr, "the store of shared circuit breakers does not answer")
}

// A record that cannot be read is said with its file, and an operator closes
// the breaker as any other.
func TestBrokenRecordOfABreaker(t *testing.T) {
	for name, repair := range map[string]func(*testing.T, *command) output{
		"now":    func(t *testing.T, c *command) output { return c.ingest(t, "docs", "--now") },
		"doctor": func(t *testing.T, c *command) output { return c.run(t, "doctor") },
	} {
		t.Run(name, func(t *testing.T) {
			c, model := withModel(t, llmtest.Options{Delay: time.Millisecond})
			opened(t, c, model)
			model.Script()
			file := ".penstock/" + breakersFile
			c.write(t, file, strings.Replace(c.read(t, file), `"state": "open"`, `"state": "ajar"`, 1))
			o := repair(t, c)
			assert.Zero(t, o.code, o.stdout+o.stderr)
			assert.Contains(t, o.stderr, c.path(file))
			o = c.ingest(t, "docs")
			assert.Zero(t, o.code, o.stderr)
			assert.Empty(t, o.stderr)
			assert.NotContains(t, c.read(t, file), "ajar")
		})
	}
}

// Nothing is written for breakers that are closed.
func TestNowWritesNothingForClosedBreakers(t *testing.T) {
	c, _ := withModel(t, llmtest.Options{Delay: time.Millisecond})
	corpus(t, c, 3)
	o := c.ingest(t, "docs", "--now")
	require.Zero(t, o.code, o.stderr)
	assert.NoFileExists(t, c.path(".penstock", breakersFile))
}

// Runs continue without the server that they share breakers through, but it is
// not as it should be.
func TestDoctorLooksAtTheSharedServer(t *testing.T) {
	c, _ := withModel(t, llmtest.Options{})
	corpus(t, c, 1)
	for kind, address := range map[string]string{
		"nobody listens": "redis://:" + sharedPassword + "@127.0.0.1:1", "silent": "nats://" + silence(t),
	} {
		t.Run(kind, func(t *testing.T) {
			o := c.run(t, "doctor", "--wait=500ms", "--shared="+address)
			assert.Equal(t, exitTemporary, o.code)
			assert.Regexp(t, `(?m)^FAIL  shared  .+\n +tried (redis|nats)://.*127\.0\.0\.1:\d+\n +check --shared;`, o.stdout)
			assert.NotContains(t, o.stdout+o.stderr, sharedPassword)
		})
	}
}

// A dry run calls nothing, and is not refused either.
func TestDryRunFollowsNoBreaker(t *testing.T) {
	c, model := withModel(t, llmtest.Options{Delay: time.Millisecond})
	opened(t, c, model)
	o := c.ingest(t, "--dry-run", "docs")
	assert.Zero(t, o.code, o.stderr)
}

// sharing has a server that breakers are shared through, of each kind, with a
// password.
var sharing = map[string]func(t *testing.T) string{
	"redis": func(t *testing.T) string {
		t.Helper()
		return "redis://:" + sharedPassword + "@" + upstreams.StartRedis(t, "--requirepass", sharedPassword).Addr + "/2"
	},
	"nats": func(t *testing.T) string {
		t.Helper()
		s, err := server.NewServer(&server.Options{
			Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
			Username: "ingest", Password: sharedPassword,
		})
		require.NoError(t, err)
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		return "nats://ingest:" + sharedPassword + "@" + s.Addr().String()
	},
}

const sharedPassword = "hunter2"

// Pods with an empty disk share through a server: one finds the upstream down,
// the next sends it nothing.
func TestMachinesShareThroughAServer(t *testing.T) {
	for kind, start := range sharing {
		t.Run(kind, func(t *testing.T) {
			c, model := withModel(t, llmtest.Options{Delay: time.Millisecond})
			c.env = append(c.env, "PENSTOCK_SHARED="+start(t))
			first := opened(t, c, model)
			calls := model.Stats().Requests
			pod := c.pod(t)
			o := pod.ingest(t, "docs")
			assert.Equal(t, exitTemporary, o.code, o.stderr)
			assert.Equal(t, "open", o.summary.Breakers["llm"])
			assert.WithinDuration(t, *first.summary.Stopped.RetryAt, *o.summary.Stopped.RetryAt, time.Second)
			assert.Equal(t, calls, model.Stats().Requests)
			assert.NoFileExists(t, pod.path(".penstock", breakersFile))

			model.Script()
			doctor := pod.run(t, "doctor")
			assert.Zero(t, doctor.code, doctor.stdout+doctor.stderr)
			assert.Contains(t, doctor.stdout, "ok    shared  the server of the circuit breakers answers")
			again := c.ingest(t, "docs")
			assert.Zero(t, again.code, again.stdout+again.stderr)

			settings := c.run(t, "config")
			assert.Regexp(t, `shared +`+kind+`://\*+@127`, settings.stdout)
			for _, said := range []output{o, doctor, again, settings, c.run(t, "status")} {
				assert.NotContains(t, said.stdout+said.stderr, sharedPassword)
			}
		})
	}
}

// A service of another machine sends nothing to what a run has found down, and
// begins as soon as a doctor has found it well.
func TestServiceFollowsTheRunOfAnotherMachine(t *testing.T) {
	for kind, start := range sharing {
		t.Run(kind, func(t *testing.T) {
			c, model := withModel(t, llmtest.Options{Delay: time.Millisecond})
			c.env = append(c.env, "PENSTOCK_SHARED="+start(t))
			opened(t, c, model)
			calls := model.Stats().Requests
			service := c.pod(t).serve(t, "docs", "--interval=1s")
			service.await(t, "/readyz", "not ready: open circuit breakers: llm")
			_, page := service.get(t, "/")
			assert.Contains(t, page, "Their circuit breakers are shared: <bdi>"+kind+"://127.0.0.1:")
			assert.Contains(t, page, "Opened by <bdi>another process on ")
			assert.Equal(t, calls, model.Stats().Requests)
			model.Script()
			require.Zero(t, c.run(t, "doctor").code)
			service.await(t, "/", "<dt>documents complete</dt><dd>60</dd>")
		})
	}
}

// A server that is down costs one warning, no call and no run.
func TestRunWithoutItsSharedServer(t *testing.T) {
	for _, scheme := range []string{"redis", "rediss", "nats", "tls"} {
		t.Run(scheme, func(t *testing.T) {
			c, model := withModel(t, llmtest.Options{Delay: time.Millisecond})
			c.env = append(c.env, "PENSTOCK_SHARED="+scheme+"://u:"+sharedPassword+"@"+refused(t))
			first := opened(t, c, model)
			assert.LessOrEqual(t, model.Stats().Requests-2, 5)
			lost := logged(t, c.run(t, "docs", "--log-json").stderr,
				"the store of shared circuit breakers does not answer; each process continues on its own")
			assert.Len(t, lost, 1)
			assert.NotContains(t, first.stdout+first.stderr, sharedPassword)
			model.Script()
			o := c.ingest(t, "docs")
			assert.Zero(t, o.code, o.stdout+o.stderr)
		})
	}
}

func TestSharedAddressIsRefused(t *testing.T) {
	for _, address := range []string{
		"localhost:6379", "http://u:hunter2@127.0.0.1", "redis://u:hunter2@127.0.0.1:port",
		"redis://u:hunter2@127.0.0.1/name", "redis://u:hunter2@127.0.0.1?no_such_option=1",
		"nats://u:hunter2@127.0.0.1:port", "nats://u:hunter2@127.0.0.1:99999", "://hunter2", "redis://",
	} {
		c := newCommand(t, "PENSTOCK_SHARED="+address)
		corpus(t, c, 1)
		for _, verb := range [][]string{{"docs"}, {"retry"}, {"search", "x"}, {"doctor"}} {
			o := c.run(t, verb...)
			assert.Equal(t, exitUsage, o.code, "%s %v: %s", address, verb, o.stdout+o.stderr)
			assert.NotContains(t, o.stdout+o.stderr, sharedPassword)
		}
		o := c.run(t, "docs")
		assert.Contains(t, o.stderr, "--shared", address)
	}
}
