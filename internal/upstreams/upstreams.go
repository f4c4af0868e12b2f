// Package upstreams starts the real servers that the tests of this module talk
// to: Milvus, SeaweedFS, llama.cpp and Redis, as scripts/install-services puts
// them on a machine.
//
//	addr := upstreams.Milvus(t)         // started once a test process
//	s3 := upstreams.SeaweedFS(t)
//	base := upstreams.Llama(t)          // OpenAI-compatible: chat and embeddings
//
// Those are shared by all tests of a process and never taken down by one. A
// test that needs an outage starts a server of its own:
//
//	p := upstreams.StartMilvus(t)
//	p.Kill(t)      // gone: connection refused
//	p.Start(t)     // back, same address, same data
//	p.Pause(t)     // hangs: connections open, no answers
//	p.Resume(t)
//
// Servers listen on free ports of the loopback address (Milvus 2.3 has no
// setting for that, and listens on all addresses), keep their data in a
// temporary folder and are ready to serve when a function returns. They end
// with the test process however that ends, a panic, a timeout or a kill
// included, and their folder goes too. When a test fails, the last lines of the
// server's log are in its output.
//
// Where a server is not installed the test is skipped; with
// PENSTOCK_REQUIRE_SERVICES=1 it fails instead. PENSTOCK_SERVICES names the
// folder of the installation if it is not .services at the root of the module;
// with "none" every test that needs a server is skipped.
package upstreams

import (
	"context"
	"sync"
	"testing"
)

// shared is one server for all tests of the process.
type shared struct {
	spec func() (Spec, error)

	mu    sync.Mutex
	proc  *Process
	fault error
}

var (
	sharedMilvus    = &shared{spec: milvusSpec}
	sharedSeaweedFS = &shared{spec: seaweedSpec}
	sharedLlama     = &shared{spec: llamaSpec}
	sharedRedis     = &shared{spec: func() (Spec, error) { return redisSpec() }}
)

// process starts the server for the first caller, and a new one, with none of
// the data, if it has crashed since: the tests to come are not at fault.
func (s *shared) process(t testing.TB) *Process {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil && s.proc.crashed() {
		t.Logf("%s at %s has ended by itself and is replaced:\n%s", s.proc.Name, s.proc.Addr, s.proc.lastWords())
		s.proc.end()
		s.proc = nil
	}
	if s.proc == nil && s.fault == nil {
		s.proc, s.fault = s.launch()
	}
	check(t, s.fault)
	proc := s.proc
	t.Cleanup(func() { proc.showLog(t) })
	return proc
}

func (s *shared) launch() (*Process, error) {
	spec, err := s.spec()
	if err != nil {
		return nil, err
	}
	return launch(context.Background(), spec)
}

// Milvus returns the host:port of a Milvus 2.3.5 standalone server.
func Milvus(t testing.TB) string {
	t.Helper()
	return sharedMilvus.process(t).Addr
}

// SeaweedFS returns an S3 endpoint that checks signatures and has the bucket
// S3.Bucket.
func SeaweedFS(t testing.TB) S3 {
	t.Helper()
	return s3At(sharedSeaweedFS.process(t).Addr)
}

// Llama returns the base URL, with /v1, of an OpenAI-compatible server for chat
// and embeddings. It serves a model of 135 million parameters at about a
// hundred tokens a second, which shows that the plumbing holds and nothing
// about quality. An embedding input of more than 1024 tokens gets a 500, each
// time.
func Llama(t testing.TB) string {
	t.Helper()
	return LlamaURL(sharedLlama.process(t))
}

// Redis returns the host:port of a Redis server.
func Redis(t testing.TB) string {
	t.Helper()
	return sharedRedis.process(t).Addr
}

// StartMilvus starts a Milvus for this test alone.
func StartMilvus(t testing.TB) *Process {
	t.Helper()
	return startOwn(t, milvusSpec)
}

// StartSeaweedFS starts a SeaweedFS for this test alone.
func StartSeaweedFS(t testing.TB) (*Process, S3) {
	t.Helper()
	p := startOwn(t, seaweedSpec)
	return p, s3At(p.Addr)
}

// StartLlama starts a llama.cpp server for this test alone; see LlamaURL.
func StartLlama(t testing.TB) *Process {
	t.Helper()
	return startOwn(t, llamaSpec)
}

// StartRedis starts a Redis for this test alone, with options of its command
// line.
func StartRedis(t testing.TB, options ...string) *Process {
	t.Helper()
	return startOwn(t, func() (Spec, error) { return redisSpec(options...) })
}

// StartRedisNode starts a Redis that can be a node of a Cluster, without slots.
func StartRedisNode(t testing.TB) *Process {
	t.Helper()
	return startOwn(t, redisNodeSpec)
}

// StartRedisSentinel starts a Sentinel that watches a master as "breakers", and
// alone decides, after a second, that it is down.
func StartRedisSentinel(t testing.TB, master *Process) *Process {
	t.Helper()
	return startOwn(t, func() (Spec, error) { return redisSentinelSpec(master) })
}

func startOwn(t testing.TB, spec func() (Spec, error)) *Process {
	t.Helper()
	s, err := spec()
	check(t, err)
	return Start(t, s)
}
