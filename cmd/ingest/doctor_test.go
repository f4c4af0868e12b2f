package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// silence accepts connections and never answers.
func silence(t *testing.T) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var held []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			held = append(held, conn)
		}
		for _, conn := range held {
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { assert.NoError(t, listener.Close()); <-done })
	return listener.Addr().String()
}

// A server that says nothing kept doctor for minutes, ten of them if it was the
// chat model's. Each finding names the address that was tried, and the remedy.
func TestDoctorNamesSilentAddressesAndRemedies(t *testing.T) {
	s3, milvus, model, chat := silence(t), silence(t), silence(t), silence(t)
	c := newCommand(t, "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b")
	args := []string{
		"doctor", "--wait=200ms", "--s3-endpoint=http://" + s3, "--milvus=" + milvus,
		"--llm-base-url=http://" + model + "/v1", "--enrich=title", "--enrich-model=m",
		"--chat-base-url=http://" + chat + "/v1",
	}
	o := c.run(t, args...)
	require.Equal(t, exitTemporary, o.code, o.stdout+o.stderr)
	for name, want := range map[string][2]string{
		"s3": {"http://" + s3, "--s3-endpoint"}, "milvus": {milvus, "--milvus"},
		"llm":  {"http://" + model + "/v1, model text-embedding-3-small", "--llm-base-url"},
		"chat": {"http://" + chat + "/v1, model m", "--chat-base-url"},
	} {
		assert.Regexp(t, `(?m)^FAIL +`+name+` +no answer within 200ms\n +tried `+want[0]+
			`\n +check that the server runs.* `+want[1]+` is right$`, o.stdout)
	}

	o = c.run(t, append(args, "--json")...)
	require.Equal(t, exitTemporary, o.code)
	addresses := map[string]bool{}
	for line := range strings.Lines(o.stdout) {
		var f pipeline.Finding
		require.NoError(t, json.Unmarshal([]byte(line), &f))
		addresses[f.Address] = true
	}
	for _, address := range []string{"http://" + s3, milvus, "http://" + model + "/v1", "http://" + chat + "/v1"} {
		assert.True(t, addresses[address], address)
	}
	assert.Equal(t, exitUsage, c.run(t, "doctor", "--wait=0s").code)
}

func TestDoctorBoundsTheLookAtARemoteState(t *testing.T) {
	s3 := silence(t)
	c := newCommand(t, "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b")
	o := c.run(t, "doctor", "--wait=200ms", "--state=s3://bucket/state", "--s3-endpoint=http://"+s3)
	require.Equal(t, exitTemporary, o.code, o.stdout+o.stderr)
	assert.Regexp(t, `(?m)^FAIL +state +no answer within 200ms\n +tried http://`+s3+`$`, o.stdout)
}

func TestDoctorSaysWhatToChange(t *testing.T) {
	c, model := withModel(t, llmtest.Options{})
	for status, remedy := range map[int]string{
		http.StatusUnauthorized: "check --llm-api-key and the quota",
		http.StatusNotFound:     "set --embedding-model to an embedding model of that server",
	} {
		model.Script(llmtest.All(inOwnWords(status)))
		o := c.run(t, "doctor")
		assert.Contains(t, o.stdout, "tried "+model.URL, status)
		assert.Contains(t, o.stdout, remedy, status)
	}
	model.Script()
	assert.Regexp(t, `(?m)^ok +llm .*\n +at `+model.URL, c.run(t, "doctor").stdout)

	c.write(t, "docs/a.md", "A pump.")
	require.Zero(t, c.ingest(t, "docs").code)
	o := c.run(t, "doctor", "--embedding-model=other")
	assert.Equal(t, exitConfiguration, o.code)
	assert.Regexp(t, `FAIL +milvus .*"other".*\n.*--collection`, o.stdout)
}

// The remedy for a server that has just answered was to check that it runs.
func TestDoctorKnowsAServerThatAnswers(t *testing.T) {
	eight := &resized{Model: staticmodel.New()}
	eight.dimensions.Store(8)
	c, model := withModel(t, llmtest.Options{Embedder: eight})
	c.env = append(c.env, "PENSTOCK_EMBEDDING_MODEL=other")
	c.write(t, "docs/a.md", "A pump.")
	require.Zero(t, c.ingest(t, "docs").code)
	for status, remedy := range map[int]string{
		http.StatusInternalServerError: "the server answers with an error of its own: see its log",
		http.StatusBadGateway:          "the server answers with an error of its own: see its log",
		http.StatusTooManyRequests:     "the server answers and asks for patience: raise its rate limit or the quota",
	} {
		model.Script(llmtest.All(inOwnWords(status)))
		o := c.run(t, "doctor")
		assert.Equal(t, exitTemporary, o.code)
		assert.Contains(t, o.stdout, "tried "+model.URL+", model other\n")
		assert.Contains(t, o.stdout, remedy, status)
		assert.NotContains(t, o.stdout, "check that the server runs", status)

		o = c.run(t, "search", "pump")
		assert.Equal(t, exitTemporary, o.code)
		assert.Contains(t, o.stderr, "stopped (deferred, llm at "+model.URL+", model other)")
	}
	o := c.run(t, "doctor", "--llm-base-url=http://127.0.0.1:1/v1")
	assert.Contains(t, o.stdout, "check that the server runs")
}

// A run that a person has to repair says how, for each upstream that has flags.
func TestRunSaysWhatToDo(t *testing.T) {
	c, model := withModel(t, llmtest.Options{})
	c.write(t, "docs/a.md", "A pump.")
	for status, tt := range map[int]struct {
		code   int
		remedy string
	}{
		http.StatusUnauthorized: {exitDenied, "what to do: check --llm-api-key and the quota, then run again"},
		http.StatusNotFound:     {exitConfiguration, "what to do: set --embedding-model to an embedding model of that server"},
	} {
		model.Script(llmtest.All(inOwnWords(status)))
		o := c.run(t, "docs")
		assert.Equal(t, tt.code, o.code, o.stdout)
		assert.Contains(t, o.stdout, tt.remedy)
	}
	model.Script(llmtest.All(inOwnWords(http.StatusInternalServerError)))
	assert.NotContains(t, c.run(t, "docs").stdout, "what to do")
}

// Times of one output were in two zones.
func TestTimesOfAnOutputAreInOneZone(t *testing.T) {
	eight := &resized{Model: staticmodel.New()}
	eight.dimensions.Store(8)
	c, model := withModel(t, llmtest.Options{Embedder: eight})
	c.env = append(c.env, "PENSTOCK_EMBEDDING_MODEL=other", "TZ=Europe/Berlin")
	c.write(t, "docs/a.md", "A pump.")
	require.Zero(t, c.ingest(t, "docs").code)
	c.write(t, "docs/b.md", "A valve.")
	model.Script(llmtest.All(inOwnWords(http.StatusInternalServerError)))
	o := c.run(t, "docs")
	assert.Regexp(t, `time=[0-9T:.-]+Z .*retry_at=[0-9T:.-]+Z`, o.stderr)
	assert.Regexp(t, `run again after [0-9-]+ [0-9:]+ \+0[12]:00`, o.stdout)
	o = c.run(t, "search", "pump")
	assert.Regexp(t, `run again after [0-9-]+ [0-9:]+ \+0[12]:00`, o.stderr)
	assert.NotRegexp(t, `[0-9]Z`, o.stderr)
	at := time.Date(2026, 11, 29, 13, 0, 6, 0, time.UTC)
	assert.Equal(t, "held since "+clock(at)+": 2026-13-01T00:00:00Z",
		localTimes("held since 2026-11-29T13:00:06.5Z: 2026-13-01T00:00:00Z"))
}

// A variable that was set for another program sends every text to its server.
func TestVariableThatRedirectsTheEmbeddingsIsSaid(t *testing.T) {
	eight := &resized{Model: staticmodel.New()}
	eight.dimensions.Store(8)
	model := llmtest.NewServer(t, llmtest.Options{Embedder: eight})
	c := newCommand(t)
	c.write(t, "docs/a.md", "A pump.")
	require.Zero(t, c.ingest(t, "docs").code)

	c.env = []string{"OPENAI_BASE_URL=" + model.URL, "PENSTOCK_EMBEDDING_MODEL=other"}
	const said = "OPENAI_BASE_URL redirects the embeddings"
	c.write(t, "docs/b.md", "A valve.")
	o := c.run(t, "docs")
	require.Equal(t, exitConfiguration, o.code, o.stdout)
	assert.Equal(t, 1, strings.Count(o.stderr, said), o.stderr)
	assert.Contains(t, o.stderr, "address="+model.URL+" model=other")
	assert.Contains(t, o.stdout, `holds vectors of model "penstock-static-256-v1" with 256 dimensions, `+
		`this run makes those of "other" with 8; choose another collection for this model (--collection), or run with `+
		`the model of the collection`)

	for _, args := range [][]string{
		{"docs", "--llm-base-url="}, {"search", "pump"}, {"status"}, {"docs", "--llm-base-url=", "--dry-run"},
	} {
		o := c.run(t, args...)
		assert.Zero(t, o.code, "%v: %s", args, o.stdout+o.stderr)
		assert.NotContains(t, o.stderr, said, "%v", args)
	}
	c.env = []string{"PENSTOCK_LLM_BASE_URL=" + model.URL, "OPENAI_BASE_URL=" + model.URL}
	assert.NotContains(t, c.run(t, "docs").stderr, said, "it was asked for")
}

// The API key is sent as Milvus wants it, cut of the newline of a mounted file,
// and is in no output.
func TestMilvusAPIKeyIsSent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	sent := make(chan []string, 100)
	server := grpc.NewServer(grpc.UnaryInterceptor(
		func(ctx context.Context, _ any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
			got, _ := metadata.FromIncomingContext(ctx)
			sent <- got.Get("authorization")
			return nil, status.Error(codes.Unauthenticated, "the key "+ownSecret+" is not known")
		}))
	milvuspb.RegisterMilvusServiceServer(server, &failingMilvus{})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); assert.NoError(t, <-done) })

	c := newCommand(t, "PENSTOCK_MILVUS="+listener.Addr().String(), "PENSTOCK_MILVUS_API_KEY="+ownSecret+"\n")
	o := c.run(t, "doctor")
	assert.Equal(t, exitDenied, o.code, o.stdout)
	assert.Equal(t, []string{base64.StdEncoding.EncodeToString([]byte(ownSecret))}, <-sent)
	assert.Contains(t, o.stdout, "check --milvus-user and --milvus-password, or --milvus-api-key")
	for _, args := range [][]string{{"doctor"}, {"config"}, {"config", "--json"}, {"verify"}} {
		o := c.run(t, args...)
		assert.NotContains(t, o.stdout+o.stderr, ownSecret, "%v", args)
	}
	c.env = append(c.env, "PENSTOCK_MILVUS_USER=root")
	assert.Equal(t, exitUsage, c.run(t, "doctor").code)
}

// A damaged journal, which ends each run with 1, was no finding.
func TestDoctorReadsTheJournal(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a.md", "A text.")
	require.Zero(t, c.run(t, "docs").code)
	require.Zero(t, c.run(t, "doctor").code)
	c.write(t, ".penstock/journal.db", "junk")
	require.Equal(t, exitFault, c.run(t, "docs").code)
	o := c.run(t, "doctor")
	assert.Equal(t, exitFault, o.code, o.stdout)
	assert.Regexp(t, `(?m)^FAIL +state +.*journal.db.*\n +move the journal away`, o.stdout)
	assert.Regexp(t, `(?m)^ok +llm +`, o.stdout, "the rest is looked at all the same")
}

// Without a folder that can be written, doctor called no upstream.
func TestDoctorCallsUpstreamsWithoutAFolder(t *testing.T) {
	c, model := withModel(t, llmtest.Options{})
	c.write(t, "file", "A file where a folder is to be.")
	o := c.run(t, "doctor", "--state=file/state")
	assert.Equal(t, exitFault, o.code)
	assert.Regexp(t, `(?m)^FAIL +state +`, o.stdout)
	assert.Regexp(t, `(?m)^ok +llm +`, o.stdout)
	assert.NotRegexp(t, `(?m)^(ok|FAIL) +(s3|milvus) +`, o.stdout, "they are a part of the state")
	assert.Equal(t, 1, model.Stats().Requests)
}
