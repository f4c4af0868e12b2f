package main

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/testutil/llmtest"
	"github.com/penstock-go/penstock/vectorstore"
)

// The test binary is the command if ETL_TEST is set. With a duration the task
// has that long, as under a caller with a deadline.
func TestMain(m *testing.M) {
	switch limit := os.Getenv("ETL_TEST"); limit {
	case "":
		os.Exit(m.Run())
	case "main":
		main()
	default:
		d, err := time.ParseDuration(limit)
		if err != nil {
			panic(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), d)
		code := exitCode(run(ctx))
		cancel()
		os.Exit(code)
	}
}

// upstreams are three servers that fail on demand.
type upstreams struct {
	model, s3 *testutil.FaultyServer
	milvus    *milvus
}

func serve(t *testing.T) upstreams {
	t.Helper()
	model := llmtest.NewHandler(llmtest.Options{Reply: "A short text.", Embedder: anyModel{staticmodel.New()}})
	return upstreams{
		model:  testutil.NewFaultyServer(t, model),
		s3:     testutil.NewFaultyServer(t, http.HandlerFunc(put)),
		milvus: serveMilvus(t),
	}
}

// put is S3's answer to an object that it has kept.
func put(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	sum := md5.Sum(body)
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:])+`"`)
}

// milvus answers an upsert as told.
type milvus struct {
	milvuspb.UnimplementedMilvusServiceServer

	server *grpc.Server
	addr   string
	upsert func(ctx context.Context) (*commonpb.Status, error) // set before the task runs
}

func serveMilvus(t *testing.T) *milvus {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m := &milvus{server: grpc.NewServer(), addr: listener.Addr().String(), upsert: milvusSays(0, "")}
	milvuspb.RegisterMilvusServiceServer(m.server, m)
	done := make(chan error)
	go func() { done <- m.server.Serve(listener) }()
	t.Cleanup(func() {
		m.server.Stop()
		if err := <-done; !errors.Is(err, grpc.ErrServerStopped) {
			assert.NoError(t, err)
		}
	})
	return m
}

func milvusSays(code int32, reason string) func(context.Context) (*commonpb.Status, error) {
	return func(context.Context) (*commonpb.Status, error) {
		return &commonpb.Status{Code: code, Reason: reason}, nil
	}
}

func milvusFails(code codes.Code) func(context.Context) (*commonpb.Status, error) {
	return func(context.Context) (*commonpb.Status, error) { return nil, status.Error(code, "no") }
}

func milvusHangs(ctx context.Context) (*commonpb.Status, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (m *milvus) DescribeCollection(
	context.Context, *milvuspb.DescribeCollectionRequest,
) (*milvuspb.DescribeCollectionResponse, error) {
	schema := entity.NewSchema().WithName("summaries").
		WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeVarChar).
			WithMaxLength(64).WithIsPrimaryKey(true)).
		WithField(entity.NewField().WithName("vector").WithDataType(entity.FieldTypeFloatVector).WithDim(256))
	return &milvuspb.DescribeCollectionResponse{
		Status: &commonpb.Status{}, Schema: schema.ProtoMessage(), CollectionName: "summaries",
	}, nil
}

func (m *milvus) Upsert(ctx context.Context, _ *milvuspb.UpsertRequest) (*milvuspb.MutationResult, error) {
	s, err := m.upsert(ctx)
	if err != nil {
		return nil, err
	}
	ids := &schemapb.IDs{IdField: &schemapb.IDs_StrId{StrId: &schemapb.StringArray{Data: []string{"a"}}}}
	return &milvuspb.MutationResult{Status: s, IDs: ids, UpsertCnt: 1}, nil
}

// env is what the task reads.
func (u upstreams) env() []string {
	return []string{
		"OPENAI_BASE_URL=" + u.model.URL() + "/v1", "OPENAI_API_KEY=key",
		"AWS_ENDPOINT_URL=" + u.s3.URL(), "AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret", "MILVUS_ADDRESS=" + u.milvus.addr,
	}
}

// process is the task as an orchestrator starts it.
func (u upstreams) process(t *testing.T, mode string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(u.env(), "ETL_TEST="+mode, "HOME="+t.TempDir(), "PATH="+os.Getenv("PATH"))
	cmd.Stdin, cmd.Stderr = strings.NewReader("A long text."), &stderr
	return cmd, &stderr
}

// wait returns the exit code of a process that has started.
func wait(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	if err := cmd.Wait(); err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
	}
	return cmd.ProcessState.ExitCode()
}

func (u upstreams) run(t *testing.T, mode string, args ...string) (code int, stderr string) {
	t.Helper()
	cmd, out := u.process(t, mode, args...)
	require.NoError(t, cmd.Start())
	code = wait(t, cmd)
	return code, out.String()
}

var unavailable = regexp.MustCompile(`(?m)^etl: (\w+) is unavailable, run again at (\S+)$`)

// reset is the wait, unless the upstream asks for more.
const reset = time.Minute

// Each row is the first failure of a new process.
func TestExitCodeOfTheFirstFailure(t *testing.T) {
	status := testutil.Status
	model := func(b testutil.Behaviour) func(upstreams) { return func(u upstreams) { u.model.Always(b) } }
	store := func(b testutil.Behaviour) func(upstreams) { return func(u upstreams) { u.s3.Always(b) } }
	rows := func(fn func(context.Context) (*commonpb.Status, error)) func(upstreams) {
		return func(u upstreams) { u.milvus.upsert = fn }
	}
	for _, row := range []struct {
		name     string
		fault    func(upstreams)
		code     int
		upstream string
		wait     time.Duration
	}{
		{"nothing", func(upstreams) {}, 0, "", 0},

		{"model 500", model(status(500)), 75, "llm", reset},
		{"model 503", model(status(503)), 75, "llm", reset},
		{"model 503 with a time", model(status(503, "Retry-After", "180")), 75, "llm", 3 * time.Minute},
		{"model 429", model(status(429)), 75, "llm", reset},
		{"model 429 with a time", model(status(429, "Retry-After", "120")), 75, "llm", 2 * time.Minute},
		{"model 401", model(status(401)), 77, "", 0},
		{"model 400", model(status(400)), 65, "", 0},
		{"model refuses connections", func(u upstreams) { u.model.Refuse() }, 75, "llm", reset},
		{"model resets", model(testutil.Reset()), 75, "llm", reset},
		{"model talks garbage", model(testutil.Garbage()), 75, "llm", reset},
		{"model breaks off", model(testutil.Truncate()), 75, "llm", reset},
		{
			"embeddings 500", func(u upstreams) { u.model.AlwaysFor("/v1/embeddings", status(500)) },
			75, "llm", reset,
		},

		{"s3 500", store(status(500)), 75, "s3", reset},
		{"s3 503", store(status(503)), 75, "s3", reset},
		{"s3 503 with a time", store(status(503, "Retry-After", "180")), 75, "s3", 3 * time.Minute},
		{"s3 403", store(status(403)), 77, "", 0},
		{"s3 404", store(status(404)), 65, "", 0},
		{"s3 400", store(status(400)), 65, "", 0},
		{"s3 refuses connections", func(u upstreams) { u.s3.Refuse() }, 75, "s3", reset},
		{"s3 resets", store(testutil.Reset()), 75, "s3", reset},

		{"milvus unavailable", rows(milvusFails(codes.Unavailable)), 75, "milvus", reset},
		{"milvus internal", rows(milvusFails(codes.Internal)), 75, "milvus", reset},
		{"milvus not ready", rows(milvusSays(1, "not ready")), 75, "milvus", reset},
		{"milvus rate limit", rows(milvusSays(8, "rate limit")), 75, "milvus", reset},
		{"milvus unauthenticated", rows(milvusSays(1400, "who?")), 77, "", 0},
		{"milvus denied", rows(milvusFails(codes.PermissionDenied)), 77, "", 0},
		{"milvus has no collection", rows(milvusSays(100, "no collection")), 65, "", 0},
		{"milvus refuses the row", rows(milvusSays(1100, "parameter")), 65, "", 0},
		{"milvus refuses connections", func(u upstreams) { u.milvus.server.Stop() }, 75, "milvus", reset},
	} {
		t.Run(row.name, func(t *testing.T) {
			u := serve(t)
			row.fault(u)
			began := time.Now()
			code, stderr := u.run(t, "main", "a")
			ended := time.Now()
			assert.Equal(t, row.code, code, stderr)
			wantUnavailable(t, stderr, row.upstream, began.Add(row.wait), ended.Add(row.wait+time.Second))
		})
	}
}

// wantUnavailable reads the line for the orchestrator; "" is for none.
func wantUnavailable(t *testing.T, stderr, upstream string, from, to time.Time) {
	t.Helper()
	line := unavailable.FindStringSubmatch(stderr)
	if upstream == "" {
		assert.Empty(t, line)
		return
	}
	require.NotEmpty(t, line, stderr)
	assert.Equal(t, upstream, line[1])
	at, err := time.Parse(time.RFC3339, line[2])
	require.NoError(t, err)
	assert.False(t, at.Before(from), "%v is before %v", at, from)
	assert.False(t, at.After(to), "%v is after %v", at, to)
}

func TestExitCodeOfAnUpstreamThatHangs(t *testing.T) {
	for name, hang := range map[string]func(upstreams){
		"llm":    func(u upstreams) { u.model.Always(testutil.Hang()) },
		"s3":     func(u upstreams) { u.s3.Always(testutil.Hang()) },
		"milvus": func(u upstreams) { u.milvus.upsert = milvusHangs },
	} {
		t.Run(name, func(t *testing.T) {
			u := serve(t)
			hang(u)
			code, stderr := u.run(t, "3s", "a")
			assert.Equal(t, 75, code, stderr)
			assert.Contains(t, stderr, "etl: "+name+" is unavailable, run again at ")
		})
	}
}

func TestExitCodeOfATaskThatIsToldToStop(t *testing.T) {
	for name, hang := range map[string]func(upstreams, func()){
		"llm": func(u upstreams, met func()) { u.model.Always(meet(met)) },
		"s3":  func(u upstreams, met func()) { u.s3.Always(meet(met)) },
		"milvus": func(u upstreams, met func()) {
			u.milvus.upsert = func(ctx context.Context) (*commonpb.Status, error) {
				met()
				return milvusHangs(ctx)
			}
		},
	} {
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			t.Run(name+" "+signal.String(), func(t *testing.T) {
				u, called := serve(t), make(chan struct{})
				hang(u, func() { close(called) })
				cmd, stderr := u.process(t, "main", "a")
				require.NoError(t, cmd.Start())
				<-called
				require.NoError(t, cmd.Process.Signal(signal))
				assert.Equal(t, 143, wait(t, cmd), stderr)
				assert.NotContains(t, stderr.String(), "run again")
			})
		}
	}
}

// meet hangs, and tells when a request has come.
func meet(met func()) testutil.Behaviour {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		met()
		testutil.Hang()(w, r, next)
	}
}

// What no upstream is to blame for is not worth another run.
func TestExitCodeOfOwnFaults(t *testing.T) {
	u := serve(t)
	code, stderr := u.run(t, "main")
	assert.Equal(t, 1, code, stderr)
	u.milvus.addr = ""
	code, stderr = u.run(t, "main", "a")
	assert.Equal(t, 1, code, stderr)
	u.model.WantRequests(0)
}

// The task keeps each error with the classifier of its door.
func TestExitCodeByTheClassifierOfTheDoor(t *testing.T) {
	for _, row := range []struct {
		breaker  *resilience.Breaker
		fault    func(upstreams)
		classify func(context.Context, error) resilience.Verdict
		want     int
	}{
		{resilience.LLM, func(u upstreams) { u.model.Always(testutil.Status(500)) }, llm.Classify, 75},
		{resilience.LLM, func(u upstreams) { u.model.Always(testutil.Status(401)) }, llm.Classify, 77},
		{resilience.LLM, func(u upstreams) { u.model.Always(testutil.Status(400)) }, llm.Classify, 65},
		{resilience.S3, func(u upstreams) { u.s3.Always(testutil.Status(503)) }, objectstore.Classify, 75},
		{resilience.S3, func(u upstreams) { u.s3.Always(testutil.Status(403)) }, objectstore.Classify, 77},
		{resilience.S3, func(u upstreams) { u.s3.Always(testutil.Status(404)) }, objectstore.Classify, 65},
		{resilience.Milvus, func(u upstreams) { u.milvus.upsert = milvusSays(2, "down") }, vectorstore.Classify, 75},
		{resilience.Milvus, func(u upstreams) { u.milvus.upsert = milvusSays(1401, "no") }, vectorstore.Classify, 77},
		{resilience.Milvus, func(u upstreams) { u.milvus.upsert = milvusSays(100, "none") }, vectorstore.Classify, 65},
	} {
		u := serve(t)
		row.fault(u)
		for _, pair := range u.env() {
			name, value, _ := strings.Cut(pair, "=")
			t.Setenv(name, value)
		}
		c, err := connect(t.Context())
		require.NoError(t, err)
		err = load(t.Context(), c, "a", "A long text.")
		assert.Equal(t, row.want, resilience.ExitCode(err, row.classify), "%s: %v", row.breaker.Name(), err)
		assert.Equal(t, row.want, exitCode(err), "%s: %v", row.breaker.Name(), err)
		row.breaker.Reset()
	}
}
