package redisstore_test

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/fleettest"
	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/redisstore"
)

func TestMain(m *testing.M) {
	fleettest.Main(open)
	os.Exit(m.Run())
}

func open(addr, name string) (resilience.Store, func(), error) {
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	return redisstore.New(client, name), func() { _ = client.Close() }, nil
}

// TestFleet is eight processes on one Redis.
func TestFleet(t *testing.T) {
	fleettest.Run(t, fleettest.Backend{
		Open:  open,
		Start: func(t *testing.T) *upstreams.Process { return upstreams.StartRedis(t, "--save", "") },
		Save: func(t *testing.T, server *upstreams.Process) {
			require.NoError(t, connect(t, server.Addr).Save(t.Context()).Err())
		},
		Restore: func(t *testing.T, server *upstreams.Process) { server.Start(t) },
		Empty: func(t *testing.T, server *upstreams.Process) {
			require.NoError(t, connect(t, server.Addr).FlushAll(t.Context()).Err())
		},
	})
}
