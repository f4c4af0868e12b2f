package redisstore_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/fleettest"
	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/redisstore"
	"github.com/penstock-go/penstock/resilience/storetest"
)

// prefixes has an odd one that is another each time.
var prefixes atomic.Int64

func newPrefix() string { return "te*st[1]? " + strconv.FormatInt(prefixes.Add(1), 10) }

func connect(t *testing.T, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// A store is named in the log, without what a password would be in.
func TestStoreIsNamed(t *testing.T) {
	for want, client := range map[string]redis.UniversalClient{
		"redis cache:6379 prod": redis.NewClient(&redis.Options{Addr: "cache:6379", Password: "hunter2"}),
		"redis a:1,b:2 prod":    redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"a:1", "b:2"}}),
		"redis c:3,d:4 prod":    redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"x": "c:3", "y": "d:4"}}),
	} {
		assert.Equal(t, want, redisstore.New(client, "prod").String())
		require.NoError(t, client.Close())
	}
}

func TestConformance(t *testing.T) {
	addr := upstreams.Redis(t)
	storetest.Run(t, func(t *testing.T) storetest.Opened {
		prefix := newPrefix()
		one, other := connect(t, addr), connect(t, addr)
		return storetest.Opened{
			Stores: []resilience.Store{redisstore.New(one, prefix), redisstore.New(other, prefix)},
			Keep:   time.Millisecond,
			Flush:  func(t *testing.T) { require.NoError(t, one.FlushAll(t.Context()).Err()) },
		}
	})
}

// A client as the library makes it, with its own retries and timeouts.
func TestDefaultClientConforms(t *testing.T) {
	addr := upstreams.Redis(t)
	storetest.Run(t, func(t *testing.T) storetest.Opened {
		client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{addr}})
		t.Cleanup(func() { assert.NoError(t, client.Close()) })
		prefix := newPrefix()
		return storetest.Opened{
			Stores: []resilience.Store{redisstore.New(client, prefix), redisstore.New(client, prefix)},
			Keep:   time.Millisecond,
			Flush:  func(t *testing.T) { require.NoError(t, client.FlushAll(t.Context()).Err()) },
		}
	})
}

// A server that is killed ends watches, and a call to it fails.
func TestKilledServer(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Opened {
		server := upstreams.StartRedis(t)
		return storetest.Opened{
			Stores: []resilience.Store{
				redisstore.New(connect(t, server.Addr), "a"), redisstore.New(connect(t, server.Addr), "a"),
			},
			Cut: func(t *testing.T) { server.Kill(t) },
		}
	})
}

func TestPrefixesAreApart(t *testing.T) {
	addr := upstreams.Redis(t)
	client := connect(t, addr)
	literal, glob := redisstore.New(client, "prod-a"), redisstore.New(client, "prod*")
	fleettest.Put(t, literal, "llm", "of a")
	r, err := glob.Load(t.Context(), "llm")
	require.NoError(t, err)
	assert.Empty(t, r.Value)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, glob.Watch(ctx, cancel, func(key string, _ resilience.Record) {
		assert.Fail(t, "the record of another prefix", key)
	}))
}

// What is under the prefix and not of this package is reported, and left alone.
func TestForeignKeys(t *testing.T) {
	client := connect(t, upstreams.Redis(t))
	store := redisstore.New(client, "foreign")
	require.NoError(t, client.Set(t.Context(), "foreign:breaker:text", "a text", 0).Err())
	require.NoError(t, client.RPush(t.Context(), "foreign:breaker:list", "a").Err())
	for _, key := range []string{"text", "list"} {
		_, err := store.Load(t.Context(), key)
		fault, ok := errors.AsType[*redisstore.StoreError](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, "foreign:breaker:"+key, fault.Key)
		assert.ErrorContains(t, err, "something else uses the prefix")
		_, err = store.Swap(t.Context(), key, 0, []byte("1"), 0)
		assert.ErrorContains(t, err, "something else uses the prefix")
	}
	assert.Equal(t, "a text", client.Get(t.Context(), "foreign:breaker:text").Val())

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var told []string
	require.NoError(t, store.Watch(ctx, func() {
		for _, payload := range []string{
			"", "x", "1 99 foreign:breaker:text", "1 -1 a", "1 4 textvalue", "x 21 foreign:breaker:texty",
		} {
			client.Publish(t.Context(), "foreign:breakers", payload)
		}
		fleettest.Put(t, store, "ours", "1")
	}, func(key string, _ resilience.Record) {
		told = append(told, key)
		cancel()
	}))
	assert.Equal(t, []string{"ours"}, told)
}

// The rights that the documentation lists are enough, and a user without one
// learns which.
func TestRights(t *testing.T) {
	server := upstreams.StartRedis(t)
	admin := connect(t, server.Addr)
	rights := []any{
		"acl", "setuser", "breakers", "on", ">secret", "resetchannels", "&prod:breakers", "~prod:breaker:*",
		"+evalsha", "+eval", "+time", "+get", "+set", "+del", "+publish", "+subscribe", "+scan", "+ping",
		"+hello", "+client", "+select",
	}
	require.NoError(t, admin.Do(t.Context(), rights...).Err())
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "breakers", Password: "secret"})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	store := redisstore.New(client, "prod")
	fleettest.Put(t, store, "a", "1")
	ctx, cancel := context.WithCancel(t.Context())
	present := func() { fleettest.Put(t, store, "a", "2") }
	require.NoError(t, store.Watch(ctx, present, func(_ string, r resilience.Record) {
		if string(r.Value) == "2" {
			cancel()
		}
	}))

	_, err := redisstore.New(client, "test").Load(t.Context(), "a")
	assert.ErrorContains(t, err, "grant the user")
	err = redisstore.New(client, "test").Watch(t.Context(), nil, nil)
	assert.ErrorContains(t, err, "grant the user")
	assert.NotContains(t, err.Error(), "secret")
}

// A write whose answer is lost is not sent again: it would meet itself.
func TestWritesAreSentOnce(t *testing.T) {
	server := upstreams.StartRedis(t)
	admin := connect(t, server.Addr)
	client := redis.NewClient(&redis.Options{
		Addr: server.Addr, MaxRetries: 5, ReadTimeout: 50 * time.Millisecond, MinRetryBackoff: -1, MaxRetryBackoff: -1,
	})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	store := redisstore.New(client, "a")
	there := fleettest.Put(t, store, "a", "1")
	evals := func() int { return commands(t, admin)["evalsha"] }
	before := evals()
	server.Pause(t)
	_, err := store.Swap(t.Context(), "a", there.Version, []byte("2"), 0)
	require.Error(t, err)
	require.NotErrorIs(t, err, resilience.ErrConflict)
	server.Resume(t)
	require.Eventually(t, func() bool { return evals() > before }, 30*time.Second, time.Millisecond)
	r, err := store.Load(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, "2", string(r.Value))
	assert.Equal(t, before+2, evals(), "one Swap, one Load")
}

// commands counts the calls that a server was sent, by name.
func commands(t *testing.T, client *redis.Client) map[string]int {
	t.Helper()
	text, err := client.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	counts := map[string]int{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if number, _, more := strings.Cut(rest, ","); ok && more {
			counts[name], err = strconv.Atoi(number)
			require.NoError(t, err)
		}
	}
	return counts
}

// A call costs one command, the first of a server two.
func TestCommandsAreFew(t *testing.T) {
	server := upstreams.StartRedis(t)
	client := connect(t, server.Addr)
	store := redisstore.New(client, "a")
	fleettest.Put(t, store, "a", "1")
	first := commands(t, client)
	assert.Equal(t, 2, first["eval"], "the texts of two scripts")
	for range 10 {
		fleettest.Put(t, store, "a", "2")
	}
	later := commands(t, client)
	assert.Equal(t, 2, later["eval"])
	assert.Equal(t, first["evalsha"]+20, later["evalsha"])
}

// A server that does not know the scripts any more is given them again.
func TestScriptsAreLoadedAgain(t *testing.T) {
	server := upstreams.StartRedis(t)
	client := connect(t, server.Addr)
	store := redisstore.New(client, "a")
	fleettest.Put(t, store, "a", "1")
	require.NoError(t, client.ScriptFlush(t.Context()).Err())
	fleettest.Put(t, store, "a", "2")
}

func TestRingIsRefused(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	defer ring.Close()
	err := redisstore.New(ring, "a").Watch(t.Context(), nil, nil)
	assert.ErrorContains(t, err, "a Ring")
}

// A watch that is told nothing costs its pings.
func TestIdleWatchOnlyPings(t *testing.T) {
	server := upstreams.StartRedis(t)
	admin := connect(t, server.Addr)
	fleettest.Watch(t, redisstore.New(connect(t, server.Addr), "a"))
	before := commands(t, admin)
	var after map[string]int
	require.Eventually(t, func() bool {
		after = commands(t, admin)
		return after["ping"] > before["ping"]
	}, patience, 100*time.Millisecond)
	for _, counts := range []map[string]int{before, after} {
		delete(counts, "ping")
		delete(counts, "info") // this test's own
	}
	assert.Equal(t, before, after)
}
