package redisstore_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/door/doortest"
	"github.com/penstock-go/penstock/internal/fleettest"
	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/internal/upstreams/network"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/redisstore"
	"github.com/penstock-go/penstock/resilience/storetest"
)

// patience is how long a drill waits for what must happen.
const patience = 30 * time.Second

// isPrompt checks that calls end with their contexts.
func isPrompt(t *testing.T, store resilience.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := store.Load(ctx, "a") // the connection may tell of its deadline first
	require.Error(t, err)
	_, err = store.Swap(ctx, "a", 1, []byte("2"), 0)
	require.Error(t, err)
	require.NotErrorIs(t, err, resilience.ErrConflict)
	t.Logf("both calls gave up after %v", time.Since(began).Round(time.Millisecond))
}

// A server that stands still answers nobody, and its sockets stay open.
func TestFrozenServer(t *testing.T) {
	doortest.LeakFree(t)
	server := upstreams.StartRedis(t)
	defaults := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer defaults.Close()
	store, other := redisstore.New(connect(t, server.Addr), "a"), redisstore.New(defaults, "a")
	fleettest.Put(t, store, "a", "1")
	fleettest.Put(t, other, "a", "1")
	w := fleettest.Watch(t, store)
	server.Pause(t)
	isPrompt(t, store)
	isPrompt(t, other)
	require.Error(t, w.End(t))
	server.Resume(t)
	again := fleettest.Watch(t, store)
	fleettest.Put(t, store, "a", "3")
	again.Await(t, "a=3")
}

func TestNetworkFaults(t *testing.T) {
	server := upstreams.StartRedis(t)
	for name, toxic := range map[string]string{
		"no answers":  `{"type":"timeout","stream":"downstream","attributes":{"timeout":0}}`,
		"no requests": `{"type":"timeout","stream":"upstream","attributes":{"timeout":0}}`,
	} {
		t.Run(name, func(t *testing.T) {
			doortest.LeakFree(t)
			n := network.New(t, server.Addr)
			store := redisstore.New(connect(t, n.Addr()), name)
			there := fleettest.Put(t, store, "a", "1")
			w := fleettest.Watch(t, store)
			n.Spoil(toxic)
			isPrompt(t, store)
			require.Error(t, w.End(t))
			n.Set("")
			require.Eventually(t, func() bool {
				r, err := store.Load(t.Context(), "a")
				return err == nil && r.Version >= there.Version
			}, patience, 10*time.Millisecond)
			again := fleettest.Watch(t, store)
			fleettest.Put(t, store, "a", "3")
			again.Await(t, "a=3")
		})
	}
	t.Run("a cut", func(t *testing.T) {
		doortest.LeakFree(t)
		n := network.New(t, server.Addr)
		store := redisstore.New(connect(t, n.Addr()), "cut")
		w := fleettest.Watch(t, store)
		n.Set("") // what is open is cut, and a client could connect again
		require.Error(t, w.End(t))
	})
	t.Run("half a second late", func(t *testing.T) {
		doortest.LeakFree(t)
		n := network.New(t, server.Addr)
		n.Set(`{"type":"latency","attributes":{"latency":500}}`)
		slow, quick := redisstore.New(connect(t, n.Addr()), "slow"), redisstore.New(connect(t, server.Addr), "slow")
		isPrompt(t, slow)
		w := fleettest.Watch(t, slow)
		fleettest.Put(t, quick, "a", "1")
		w.Await(t, "a=1")
		fleettest.Put(t, slow, "a", "2")
		w.Await(t, "a=2")
	})
}

// A server that comes back with what it had on disk has gone back in time: its
// versions are old, and those to come are not.
func TestServerThatComesBackWithOldData(t *testing.T) {
	doortest.LeakFree(t)
	server := upstreams.StartRedis(t, "--save", "")
	client := connect(t, server.Addr)
	store := redisstore.New(client, "a")
	old := fleettest.Put(t, store, "a", "old")
	require.NoError(t, client.Save(t.Context()).Err())
	lost := fleettest.Put(t, store, "a", "lost")
	w := fleettest.Watch(t, store)
	server.Kill(t)
	require.Error(t, w.End(t))
	_, err := store.Load(t.Context(), "a")
	require.Error(t, err)

	server.Start(t)
	r, err := store.Load(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, "old", string(r.Value))
	assert.Equal(t, old.Version, r.Version)
	_, err = store.Swap(t.Context(), "a", lost.Version, []byte("of the lost life"), 0)
	require.ErrorIs(t, err, resilience.ErrConflict)
	assert.Greater(t, fleettest.Put(t, store, "a", "new").Version, lost.Version)
	fleettest.Watch(t, store).Await(t, "a=new")
}

// A server that writes each change to disk has all of them after a crash.
func TestServerThatComesBackWithAll(t *testing.T) {
	doortest.LeakFree(t)
	server := upstreams.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	store := redisstore.New(connect(t, server.Addr), "a")
	fleettest.Put(t, store, "a", "1")
	fleettest.Put(t, store, "gone", "1")
	fleettest.Put(t, store, "gone", "")
	last := fleettest.Put(t, store, "a", "2")
	server.Restart(t)
	r, err := store.Load(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, last.Version, r.Version)
	assert.Equal(t, "2", string(r.Value))
	r, err = store.Load(t.Context(), "gone")
	require.NoError(t, err)
	assert.Zero(t, r.Version)
}

// cluster starts a Cluster of three masters.
func cluster(t *testing.T) (nodes []*upstreams.Process, addrs []string) {
	t.Helper()
	for i, slots := range [][2]int{{0, 5460}, {5461, 10922}, {10923, 16383}} {
		node := upstreams.StartRedisNode(t)
		nodes, addrs = append(nodes, node), append(addrs, node.Addr)
		admin := connect(t, node.Addr)
		require.NoError(t, admin.ClusterAddSlotsRange(t.Context(), slots[0], slots[1]).Err())
		require.NoError(t, admin.Do(t.Context(), "cluster", "set-config-epoch", i+1).Err())
		if i > 0 {
			meet(t, admin, nodes[0].Addr)
		}
	}
	for _, addr := range addrs {
		require.Eventually(t, func() bool { return isWhole(t, connect(t, addr)) }, patience, 50*time.Millisecond)
	}
	return nodes, addrs
}

func connectCluster(t *testing.T, options redis.ClusterOptions) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&options)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// meet introduces a node to another one, whose port for other nodes it has told
// its clients.
func meet(t *testing.T, admin *redis.Client, addr string) {
	t.Helper()
	nodes, err := connect(t, addr).ClusterNodes(t.Context()).Result()
	require.NoError(t, err)
	_, bus, _ := strings.Cut(strings.Fields(nodes)[1], "@")
	bus, _, _ = strings.Cut(bus, ",")
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	require.NoError(t, admin.Do(t.Context(), "cluster", "meet", host, port, bus).Err())
}

func isWhole(t *testing.T, node *redis.Client) bool {
	t.Helper()
	info, err := node.ClusterInfo(t.Context()).Result()
	require.NoError(t, err)
	return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3")
}

func TestClusterConforms(t *testing.T) {
	_, addrs := cluster(t)
	storetest.Run(t, func(t *testing.T) storetest.Opened {
		prefix := newPrefix()
		client := connectCluster(t, redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
		readers := connectCluster(t, redis.ClusterOptions{Addrs: addrs, ReadOnly: true})
		return storetest.Opened{
			Stores: []resilience.Store{redisstore.New(client, prefix), redisstore.New(readers, prefix)},
			Keep:   time.Millisecond,
			Flush: func(t *testing.T) {
				require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
					return c.FlushAll(ctx).Err()
				}))
			},
		}
	})
}

// Records are on all shards, and a watch is told of each.
func TestClusterSpreadsRecords(t *testing.T) {
	nodes, addrs := cluster(t)
	client := connectCluster(t, redis.ClusterOptions{Addrs: addrs})
	store := redisstore.New(client, "a")
	w := fleettest.Watch(t, store)
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	for _, key := range keys {
		fleettest.Put(t, store, key, "1")
		w.Await(t, key+"=1")
	}
	for _, node := range nodes {
		held, err := connect(t, node.Addr).DBSize(t.Context()).Result()
		require.NoError(t, err)
		assert.Positive(t, held)
	}
}

// A shard that does not answer ends a watch that has not read it, though the
// node that it is subscribed at is well.
func TestClusterWithAFrozenShard(t *testing.T) {
	nodes, addrs := cluster(t)
	client := connectCluster(t, redis.ClusterOptions{Addrs: addrs})
	store := redisstore.New(client, "a")
	fleettest.Put(t, store, "a", "1")
	subscribed, err := client.MasterForKey(t.Context(), "a:breakers")
	require.NoError(t, err)
	frozen := nodes[0]
	if subscribed.Options().Addr == frozen.Addr {
		frozen = nodes[1]
	}
	frozen.Pause(t)
	ended := make(chan error, 1)
	began := time.Now()
	go func() {
		ended <- store.Watch(t.Context(), func() { assert.Fail(t, "a shard does not answer") },
			func(string, resilience.Record) {})
	}()
	select {
	case err := <-ended:
		require.Error(t, err)
		t.Logf("after %v: %v", time.Since(began).Round(time.Millisecond), err)
	case <-time.After(patience):
		require.Fail(t, "the watch does not end")
	}
	frozen.Resume(t)
}

// When the master dies, Sentinel makes its replica the master, and the client
// follows.
func TestSentinelFailover(t *testing.T) {
	master := upstreams.StartRedis(t)
	host, port, err := net.SplitHostPort(master.Addr)
	require.NoError(t, err)
	replica := upstreams.StartRedis(t, "--replicaof", host+" "+port)
	sentinel := upstreams.StartRedisSentinel(t, master)
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "breakers", SentinelAddrs: []string{sentinel.Addr}, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	store := redisstore.New(client, "a")
	before := fleettest.Put(t, store, "a", "1")
	admin := connect(t, replica.Addr)
	require.Eventually(t, func() bool {
		return admin.Exists(t.Context(), "a:breaker:a").Val() == 1 &&
			strings.Contains(connect(t, sentinel.Addr).Info(t.Context(), "sentinel").Val(), "slaves=1")
	}, patience, 50*time.Millisecond)
	w := fleettest.Watch(t, store)
	master.Kill(t)
	require.Error(t, w.End(t))

	require.Eventually(t, func() bool {
		r, err := store.Load(t.Context(), "a")
		return err == nil && r.Version == before.Version
	}, 2*patience, 50*time.Millisecond, "the client does not find the new master")
	var after resilience.Record
	require.Eventually(t, func() bool {
		after, err = store.Swap(t.Context(), "a", before.Version, []byte("2"), 0)
		return err == nil
	}, 2*patience, 50*time.Millisecond)
	assert.Greater(t, after.Version, before.Version)
	fleettest.Watch(t, store).Await(t, "a=2")
}
