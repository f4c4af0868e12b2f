package natsstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/door/doortest"
	"github.com/penstock-go/penstock/internal/fleettest"
	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/internal/upstreams/network"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/natsstore"
	"github.com/penstock-go/penstock/resilience/storetest"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// serve is the environment variable that makes the test binary a server, with
// its data in the folder it runs in. It holds the server's port and, for one of
// a cluster, the ports at which they reach each other, its own first.
const serve = "NATSSTORE_TEST_SERVE"

func TestMain(m *testing.M) {
	fleettest.Main(open)
	ports := strings.Fields(os.Getenv(serve))
	if len(ports) == 0 {
		os.Exit(m.Run())
	}
	if err := runServer(ports); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runServer(ports []string) error {
	port, _ := strconv.Atoi(ports[0])
	options := &server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: "data", NoLog: true,
		Users: users(), NoAuthUser: "admin",
	}
	if len(ports) > 1 {
		own, _ := strconv.Atoi(ports[1])
		options.ServerName = "node-" + ports[1]
		options.Cluster = server.ClusterOpts{Name: "breakers", Host: "127.0.0.1", Port: own}
		options.Routes = server.RoutesFromStr("nats://127.0.0.1:" + strings.Join(ports[1:], ",nats://127.0.0.1:"))
	}
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return nil
}

// users are one for whom nothing is denied, and one with the rights that the
// documentation lists for the bucket "prod".
func users() []*server.User {
	return []*server.User{
		{Username: "admin", Password: "admin"},
		{Username: "breakers", Password: "secret", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{
				"$KV.prod.>", "$JS.API.STREAM.INFO.KV_prod", "$JS.API.STREAM.CREATE.KV_prod",
				"$JS.API.STREAM.MSG.GET.KV_prod", "$JS.API.CONSUMER.CREATE.KV_prod.>",
			}},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}},
	}
}

// start starts a server of its own process, which can be killed and stopped.
func start(t *testing.T) *upstreams.Process {
	t.Helper()
	return startNode(t, 1, func(ports []int) []int { return ports }, isUp)
}

// startNode starts a server with free ports, which say picks from for serve.
func startNode(
	t *testing.T, ports int, pick func([]int) []int, ready func(context.Context, string) error,
) *upstreams.Process {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	return upstreams.Start(t, upstreams.Spec{
		Name: "nats", Ports: ports, Ready: ready,
		Command: func(_ string, ports []int) *exec.Cmd {
			c := exec.Command(program)
			c.Env = append(os.Environ(), serve+"="+strings.Trim(fmt.Sprint(pick(ports)), "[]"))
			return c
		},
	})
}

// isUp is whether a server and its JetStream answer.
func isUp(ctx context.Context, addr string) error {
	nc, err := nats.Connect("nats://"+addr, nats.NoReconnect())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.AccountInfo(ctx)
	}
	return err
}

// startCluster starts three servers that share their buckets.
func startCluster(t *testing.T) (nodes []*upstreams.Process) {
	t.Helper()
	var routes []int // the first node's free ports are for all
	listens := func(_ context.Context, addr string) error {
		nc, err := nats.Connect("nats://"+addr, nats.NoReconnect())
		if err == nil {
			nc.Close()
		}
		return err
	}
	for i := range 3 {
		nodes = append(nodes, startNode(t, 4, func(ports []int) []int {
			if i == 0 {
				routes = ports[1:]
			}
			return []int{ports[0], routes[i], routes[(i+1)%3], routes[(i+2)%3]}
		}, listens))
	}
	for _, node := range nodes {
		require.Eventually(t, func() bool { return isUp(t.Context(), node.Addr) == nil }, patience, 50*time.Millisecond)
	}
	return nodes
}

func connect(t *testing.T, addr string, options ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect("nats://"+addr, options...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}

// buckets makes their names distinct.
var buckets atomic.Int64

func newBucket() string { return "bucket_" + strconv.FormatInt(buckets.Add(1), 10) }

// A store is named in the log, without the password of its server.
func TestStoreIsNamed(t *testing.T) {
	node := start(t)
	js := connect(t, node.Addr)
	store := natsstore.New(js, "prod", natsstore.Config{})
	assert.Equal(t, "nats "+js.Conn().ConnectedUrlRedacted()+" prod", store.String())
	conn, err := nats.Connect("nats://ingest:hunter2@127.0.0.1:1", nats.RetryOnFailedConnect(true))
	require.NoError(t, err)
	defer conn.Close()
	away, err := jetstream.New(conn)
	require.NoError(t, err)
	assert.Equal(t, "nats nats://127.0.0.1:1 prod", natsstore.New(away, "prod", natsstore.Config{}).String())
}

func TestConformance(t *testing.T) {
	s := start(t)
	storetest.Run(t, func(t *testing.T) storetest.Opened {
		one, other, bucket := connect(t, s.Addr), connect(t, s.Addr), newBucket()
		return storetest.Opened{
			Stores: []resilience.Store{
				natsstore.New(one, bucket, natsstore.Config{Storage: jetstream.MemoryStorage}),
				natsstore.New(other, bucket, natsstore.Config{Storage: jetstream.MemoryStorage}),
			},
			Keep:  time.Second,
			Flush: func(t *testing.T) { require.NoError(t, one.DeleteKeyValue(t.Context(), bucket)) },
			Cut: func(*testing.T) {
				one.Conn().Close()
				other.Conn().Close()
			},
		}
	})
}

func TestFilesConform(t *testing.T) {
	s := start(t)
	storetest.Run(t, func(t *testing.T) storetest.Opened {
		js, bucket := connect(t, s.Addr), newBucket()
		return storetest.Opened{
			Stores: []resilience.Store{
				natsstore.New(js, bucket, natsstore.Config{}), natsstore.New(js, bucket, natsstore.Config{}),
			},
			Keep:  time.Second,
			Flush: func(t *testing.T) { require.NoError(t, js.DeleteKeyValue(t.Context(), bucket)) },
		}
	})
}

// A bucket that exists is taken as it is, such as one of the library's.
func TestForeignBucketConforms(t *testing.T) {
	s := start(t)
	storetest.Run(t, func(t *testing.T) storetest.Opened {
		js, bucket := connect(t, s.Addr), newBucket()
		_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{
			Bucket: bucket, LimitMarkerTTL: time.Hour, Storage: jetstream.MemoryStorage,
		})
		require.NoError(t, err)
		return storetest.Opened{
			Stores: []resilience.Store{
				natsstore.New(js, bucket, natsstore.Config{}), natsstore.New(js, bucket, natsstore.Config{}),
			},
			Keep: time.Second,
		}
	})
}

func TestClusterConforms(t *testing.T) {
	nodes := startCluster(t)
	storetest.Run(t, func(t *testing.T) storetest.Opened {
		bucket := newBucket()
		var opened storetest.Opened
		for _, node := range nodes {
			opened.Stores = append(opened.Stores,
				natsstore.New(connect(t, node.Addr), bucket, natsstore.Config{Replicas: 3}))
		}
		opened.Keep = time.Second
		return opened
	})
}

// A bucket outlives any one of its servers, and so do its versions.
func TestClusterOutlivesAServer(t *testing.T) {
	nodes := startCluster(t)
	stores := map[string]*natsstore.Store{}
	for _, node := range nodes {
		stores[node.Addr] = natsstore.New(connect(t, node.Addr, reconnecting...), "a", natsstore.Config{Replicas: 3})
	}
	last := fleettest.Put(t, stores[nodes[0].Addr], "a", "1")
	for _, node := range nodes[:2] { // one of them may lead the bucket
		node.Kill(t)
		for addr, store := range stores {
			if addr == node.Addr {
				continue
			}
			r := awaitLoad(t, store, "a")
			assert.GreaterOrEqual(t, r.Version, last.Version)
		}
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			store := stores[nodes[2].Addr]
			there, err := store.Load(ctx, "a")
			if err == nil {
				last, err = store.Swap(ctx, "a", there.Version, []byte("2"), 0)
			}
			return err == nil && last.Version > there.Version
		}, patience, 10*time.Millisecond)
		node.Start(t)
		awaitLoad(t, stores[node.Addr], "a")
	}
	fleettest.Watch(t, stores[nodes[0].Addr]).Await(t, "a=2")
}

// The library's own tools read the bucket.
func TestBucketIsReadable(t *testing.T) {
	s := start(t)
	js := connect(t, s.Addr)
	store := natsstore.New(js, "prod", natsstore.Config{})
	written := fleettest.Put(t, store, "llm https://llm.example.com/v1", "open")
	kv, err := js.KeyValue(t.Context(), "prod")
	require.NoError(t, err)
	entry, err := kv.Get(t.Context(), "llm=20https=3A=2F=2Fllm=2Eexample=2Ecom=2Fv1")
	require.NoError(t, err)
	assert.Equal(t, "open", string(entry.Value()))
	assert.Equal(t, written.Version, entry.Revision())

	// What others write there is read as a record or left out.
	_, err = kv.Put(t.Context(), "not=ours", []byte("1"))
	require.NoError(t, err)
	_, err = kv.Put(t.Context(), "mine", []byte("1"))
	require.NoError(t, err)
	require.NoError(t, kv.Delete(t.Context(), "llm=20https=3A=2F=2Fllm=2Eexample=2Ecom=2Fv1"))
	assert.Equal(t, "1", fleettest.Value(t, store, "mine"))
	assert.Empty(t, fleettest.Value(t, store, "llm https://llm.example.com/v1"))
	ctx, cancel := context.WithCancel(t.Context())
	var told []string
	require.NoError(t, store.Watch(ctx, cancel, func(key string, _ resilience.Record) { told = append(told, key) }))
	assert.Equal(t, []string{"mine"}, told)
}

// ends waits until a watch has found out that its link is dead.
func ends(t *testing.T, w *fleettest.Watching) {
	t.Helper()
	err := w.End(t)
	fault, ok := errors.AsType[*natsstore.StoreError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "watch", fault.Op)
}

func TestDeletedBucket(t *testing.T) {
	s := start(t)
	js := connect(t, s.Addr)
	store := natsstore.New(js, "a", natsstore.Config{})
	other := natsstore.New(connect(t, s.Addr), "a", natsstore.Config{})
	last := fleettest.Put(t, store, "a", "1")
	fleettest.Put(t, other, "a", "2")
	w := fleettest.Watch(t, store)
	require.NoError(t, js.DeleteKeyValue(t.Context(), "a"))
	_, err := other.Swap(t.Context(), "a", last.Version, []byte("3"), 0)
	require.ErrorIs(t, err, resilience.ErrConflict, "the bucket is made again, and has no such record")
	first := fleettest.Put(t, store, "b", "1")
	assert.Greater(t, first.Version, last.Version)
	ends(t, w)
	fleettest.Watch(t, other).Await(t, "b=1")
}

// A bucket of which all was purged continues its sequence.
func TestPurgedBucket(t *testing.T) {
	s := start(t)
	js := connect(t, s.Addr)
	store := natsstore.New(js, "a", natsstore.Config{})
	last := fleettest.Put(t, store, "a", "1")
	stream, err := js.Stream(t.Context(), "KV_a")
	require.NoError(t, err)
	require.NoError(t, stream.Purge(t.Context()))
	assert.Empty(t, fleettest.Value(t, store, "a"))
	assert.Greater(t, fleettest.Put(t, store, "a", "1").Version, last.Version)
}

// The trace of a removed record goes after an hour.
func TestExpiryOfTraces(t *testing.T) {
	s := start(t)
	js := connect(t, s.Addr)
	store := natsstore.New(js, "a", natsstore.Config{})
	fleettest.Put(t, store, "a", "1")
	fleettest.Put(t, store, "a", "")
	stream, err := js.Stream(t.Context(), "KV_a")
	require.NoError(t, err)
	m, err := stream.GetLastMsgForSubject(t.Context(), "$KV.a.a")
	require.NoError(t, err)
	assert.Equal(t, "1h0m0s", m.Header.Get("Nats-TTL"))
}

// isPrompt checks that calls end with their contexts.
func isPrompt(t *testing.T, store resilience.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := store.Load(ctx, "a")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = store.Swap(ctx, "a", 1, []byte("2"), 0)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// reconnecting makes a client find a server that is back soon.
var reconnecting = []nats.Option{nats.ReconnectWait(10 * time.Millisecond), nats.MaxReconnects(-1)}

// awaitLoad waits until a store answers again.
func awaitLoad(t *testing.T, store resilience.Store, key string) (r resilience.Record) {
	t.Helper()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var err error
		r, err = store.Load(ctx, key)
		return err == nil
	}, patience, 10*time.Millisecond)
	return r
}

// A server that stands still answers nobody, and its sockets stay open.
func TestFrozenServer(t *testing.T) {
	s := start(t)
	doortest.LeakFree(t)
	store := natsstore.New(connect(t, s.Addr), "a", natsstore.Config{})
	fleettest.Put(t, store, "a", "1")
	w := fleettest.Watch(t, store)
	w.Await(t, "a=1")
	s.Pause(t)
	isPrompt(t, store)
	ends(t, w)
	s.Resume(t)
	awaitLoad(t, store, "a")
	again := fleettest.Watch(t, store)
	fleettest.Put(t, store, "a", "3")
	again.Await(t, "a=3")
}

func TestNetworkFaults(t *testing.T) {
	s := start(t)
	for name, toxic := range map[string]string{
		"black hole": `{"type":"timeout","attributes":{"timeout":0}}`,
		"no answers": `{"type":"timeout","stream":"downstream","attributes":{"timeout":0}}`,
	} {
		t.Run(name, func(t *testing.T) {
			doortest.LeakFree(t)
			n := network.New(t, s.Addr)
			options := append([]nats.Option{nats.PingInterval(100 * time.Millisecond)}, reconnecting...)
			store := natsstore.New(connect(t, n.Addr(), options...), newBucket(), natsstore.Config{})
			there := fleettest.Put(t, store, "a", "1")
			w := fleettest.Watch(t, store)
			w.Await(t, "a=1")
			n.Spoil(toxic)
			ends(t, w)
			n.Set("") // what is open is cut
			assert.GreaterOrEqual(t, awaitLoad(t, store, "a").Version, there.Version)
			fleettest.Put(t, store, "b", "1")
		})
	}
	t.Run("half a second late", func(t *testing.T) {
		doortest.LeakFree(t)
		n := network.New(t, s.Addr)
		n.Set(`{"type":"latency","attributes":{"latency":500}}`)
		quick := natsstore.New(connect(t, s.Addr), "late", natsstore.Config{})
		slow := natsstore.New(connect(t, n.Addr()), "late", natsstore.Config{})
		w := fleettest.Watch(t, slow)
		fleettest.Put(t, quick, "a", "1")
		w.Await(t, "a=1")
		before := time.Now()
		r, err := slow.Load(t.Context(), "a")
		require.NoError(t, err)
		assert.Less(t, r.Now, time.Now(), "the store's clock is late, not early")
		assert.Greater(t, r.Now, before.Add(-patience))
	})
}

// A server that is killed ends a watch at once, and has all of it when it comes
// back. A call to it fails at once meanwhile.
func TestKilledServer(t *testing.T) {
	s := start(t)
	doortest.LeakFree(t)
	store := natsstore.New(connect(t, s.Addr, reconnecting...), "a", natsstore.Config{})
	last := fleettest.Put(t, store, "a", "1")
	w := fleettest.Watch(t, store)
	w.Await(t, "a=1")
	s.Kill(t)
	ends(t, w)
	_, err := store.Swap(t.Context(), "a", last.Version, []byte("2"), 0)
	require.Error(t, err)
	require.Error(t, store.Watch(t.Context(), nil, nil))

	s.Start(t)
	r := awaitLoad(t, store, "a")
	assert.Equal(t, last.Version, r.Version)
	assert.Equal(t, "1", string(r.Value), "what was published while it was down was not sent later")
	assert.Greater(t, fleettest.Put(t, store, "a", "3").Version, last.Version)
}

// A server that comes back with what was on its disk some time ago has gone
// back in time.
func TestServerThatComesBackWithOldData(t *testing.T) {
	s := start(t)
	store := natsstore.New(connect(t, s.Addr, reconnecting...), "a", natsstore.Config{})
	old := fleettest.Put(t, store, "a", "old")
	s.Stop(t)
	saved := t.TempDir()
	require.NoError(t, os.CopyFS(saved, os.DirFS(filepath.Join(s.Dir, "data"))))
	s.Start(t)
	awaitLoad(t, store, "a")
	fleettest.Put(t, store, "a", "lost")
	lost := fleettest.Put(t, store, "a", "lost again")
	s.Kill(t)
	require.NoError(t, os.RemoveAll(filepath.Join(s.Dir, "data")))
	require.NoError(t, os.CopyFS(filepath.Join(s.Dir, "data"), os.DirFS(saved)))
	s.Start(t)

	r := awaitLoad(t, store, "a")
	assert.Equal(t, "old", string(r.Value))
	assert.Equal(t, old.Version, r.Version)
	_, err := store.Swap(t.Context(), "a", lost.Version, []byte("of the lost life"), 0)
	require.ErrorIs(t, err, resilience.ErrConflict)
	fleettest.Put(t, store, "a", "new")
	assert.Equal(t, "new", fleettest.Value(t, store, "a"))
}

// The time of the server is counted on for 30 s.
func TestClockIsAskedAgain(t *testing.T) {
	s := start(t)
	store := natsstore.New(connect(t, s.Addr), "a", natsstore.Config{})
	fleettest.Put(t, store, "a", "1")
	trusted := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	store.SetClock(time.Now(), trusted)
	r, err := store.Load(t.Context(), "a")
	require.NoError(t, err)
	assert.WithinRange(t, r.Now, trusted, trusted.Add(patience))
	store.SetClock(time.Now().Add(-30*time.Second), trusted)
	r, err = store.Load(t.Context(), "a")
	require.NoError(t, err)
	assert.Greater(t, r.Now, trusted.Add(patience))
}

// The rights that the documentation lists are enough.
func TestRights(t *testing.T) {
	s := start(t)
	admin := natsstore.New(connect(t, s.Addr), "prod", natsstore.Config{})
	fleettest.Put(t, admin, "a", "1")
	store := natsstore.New(connect(t, s.Addr, nats.UserInfo("breakers", "secret")), "prod", natsstore.Config{})
	fleettest.Put(t, store, "a", "2")
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, store.Watch(ctx, cancel, func(string, resilience.Record) {}))

	denied := natsstore.New(connect(t, s.Addr, nats.UserInfo("breakers", "secret"),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})), "test", natsstore.Config{})
	isPrompt(t, denied)
}

func TestWrongBucketNames(t *testing.T) {
	s := start(t)
	js := connect(t, s.Addr)
	for _, name := range []string{"a b", "a.b", "a*", "a/b"} {
		_, err := natsstore.New(js, name, natsstore.Config{}).Load(t.Context(), "a")
		assert.ErrorContains(t, err, "a bucket's name has letters", name)
	}
}

// A watch that is told nothing sends nothing, and hears the server's heartbeat.
func TestIdleWatchIsSilent(t *testing.T) {
	s := start(t)
	js := connect(t, s.Addr)
	fleettest.Watch(t, natsstore.New(js, "a", natsstore.Config{}))
	before := js.Conn().Stats()
	require.Eventually(t, func() bool { return js.Conn().Stats().InMsgs > before.InMsgs }, patience, time.Millisecond)
	assert.Equal(t, before.OutMsgs, js.Conn().Stats().OutMsgs)
}
