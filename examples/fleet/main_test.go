package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
)

// The test binary is a worker if it is started as one.
func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		main()
	}
	os.Exit(m.Run())
}

func TestTimelineWithAFile(t *testing.T) {
	tellsTheOutage(t, "")
}

func TestTimelineWithRedis(t *testing.T) {
	tellsTheOutage(t, "redis://"+upstreams.Redis(t))
}

func TestTimelineWithNATS(t *testing.T) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	require.True(t, s.ReadyForConnections(time.Minute))
	tellsTheOutage(t, s.ClientURL())
}

// tellsTheOutage checks what is told, whenever it is.
func tellsTheOutage(t *testing.T, store string) {
	t.Helper()
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err := run(ctx, config{
		store: store, timeout: 10 * time.Second, reset: 500 * time.Millisecond, pace: 20 * time.Millisecond, probes: 2,
	}, &out)
	require.NoError(t, err, out.String())
	t.Log("\n" + out.String())
	told := regexp.MustCompile(`(?m)^ *[0-9.]+ s  (\S*) +`).ReplaceAllString(out.String(), "$1 ")
	for what, times := range map[string]int{
		"THE UPSTREAM DIES": 1, "THE UPSTREAM RECOVERS": 1,
		"opens the breaker: consecutive failures": 1, " open, by worker-": workers - 1,
		"opens it again, for": 2, "closes the breaker: probe succeeded": 1,
		"closed, by the probe of worker-": workers - 1, "were refused and not sent": 1,
	} {
		assert.Equal(t, times, strings.Count(told, what), what)
	}
	assert.GreaterOrEqual(t, strings.Count(told, " a call "), failMax+2)
	assert.Equal(t, 3, strings.Count(told, " probes\n"), "two that fail, and one that closes it")
}

func TestStoreIsChecked(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), config{store: "/no folder/breakers.json"}, &out)
	assert.ErrorContains(t, err, "-store: filestate: cannot open /no folder/breakers.json: ")
	assert.Empty(t, out.String())
	for _, url := range []string{"memcached://localhost", "no folder/breakers.json", "redis://localhost/x"} {
		_, _, err := open(url, "prod")
		assert.Error(t, err, url)
	}
}
