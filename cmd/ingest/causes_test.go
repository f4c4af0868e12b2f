package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/testutil/llmtest"
)

const (
	ownWords   = "quota wall 4711"
	ownSecret  = "hunter2hunter2" //nolint:gosec // what must not be shown
	ownMessage = ownWords + " for api_key=" + ownSecret
)

// failing is an upstream that fails in words of its own.
type failing struct {
	name  string
	opens bool // it passes the check and fails in the work, so that its breaker opens
	// start gives the variables of the command, and a function that has the
	// upstream pass the next check.
	start func(*testing.T) (env []string, again func())
}

var failings = []failing{
	{"llm", true, failingModel},
	{"s3", true, failingObjects},
	{"milvus", false, failingVectors},
}

func failingModel(t *testing.T) (env []string, again func()) {
	model := llmtest.NewServer(t, llmtest.Options{})
	again = func() { model.Script(llmtest.From(2, inOwnWords(http.StatusInternalServerError))) }
	again()
	return atModel(model.URL), again
}

func inOwnWords(status int) llmtest.Fault {
	return llmtest.Answer(status, fmt.Sprintf(`{"error":{"message":%q,"type":"server_error"}}`, ownMessage))
}

// failingObjects is an S3 with a bucket that takes nothing, whose ids are as
// long as those of AWS.
func failingObjects(t *testing.T) (env []string, again func()) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			return
		}
		w.Header().Set("X-Amz-Request-Id", strings.Repeat("R", 16))
		w.Header().Set("X-Amz-Id-2", strings.Repeat("h", 76))
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprintf(w, "<Error><Code>InternalError</Code><Message>%s</Message></Error>", ownMessage)
	}))
	t.Cleanup(server.Close)
	return []string{
		"PENSTOCK_S3_ENDPOINT=" + server.URL, "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b",
	}, func() {}
}

type failingMilvus struct {
	milvuspb.UnimplementedMilvusServiceServer
}

func (*failingMilvus) Connect(context.Context, *milvuspb.ConnectRequest) (*milvuspb.ConnectResponse, error) {
	return &milvuspb.ConnectResponse{Status: &commonpb.Status{}}, nil
}

// failingVectors is a Milvus that refuses all but the connection.
func failingVectors(t *testing.T) (env []string, again func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.UnaryInterceptor(
		func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if strings.HasSuffix(info.FullMethod, "/Connect") {
				return handle(ctx, request)
			}
			return nil, status.Error(codes.Unavailable, ownMessage)
		}))
	milvuspb.RegisterMilvusServiceServer(server, &failingMilvus{})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); assert.NoError(t, <-done) })
	return []string{"PENSTOCK_MILVUS=" + listener.Addr().String()}, func() {}
}

// shows requires the upstream's words, without the secret among them.
func shows(t *testing.T, where, text string) {
	t.Helper()
	assert.Contains(t, text, ownWords, where)
	assert.NotContains(t, text, ownSecret, where)
}

// The words of an upstream are in each output of a run, and the secret among
// them is in none.
func TestRunShowsWhyAnUpstreamFails(t *testing.T) {
	for _, upstream := range failings {
		t.Run(upstream.name, func(t *testing.T) {
			t.Parallel()
			env, again := upstream.start(t)
			c := newCommand(t, append(env, "PENSTOCK_AUDIT_LOG=audit.jsonl")...)
			corpus(t, c, 40)
			for _, form := range [][]string{nil, {"--json", "--log-json"}} {
				again()
				o := c.run(t, append([]string{"docs"}, form...)...)
				require.Equal(t, exitTemporary, o.code, o.stdout+o.stderr)
				shows(t, "documents and summary", o.stdout)
				if upstream.opens {
					shows(t, "log", o.stderr)
				}
				lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
				shows(t, "summary", lines[len(lines)-1])
				shows(t, "status", c.run(t, append([]string{"status"}, form...)...).stdout)
			}
			assert.NotContains(t, c.read(t, "audit.jsonl"), ownSecret)
			for _, line := range c.audit(t) {
				require.Contains(t, line.all, "cause")
				shows(t, "audit log", line.all["cause"].(string))
			}
		})
	}
}

// It is the same where no breaker opens: where a document or a key is refused.
func TestRefusalsShowWhy(t *testing.T) {
	c, model := withModel(t, llmtest.Options{})
	c.write(t, "docs/good.md", "A valve.")
	c.write(t, "docs/bad.md", "A pump.")
	model.Script(llmtest.Poison("pump", inOwnWords(http.StatusBadRequest)))
	o := c.ingest(t, "docs")
	require.Equal(t, exitData, o.code, o.stdout+o.stderr)
	shows(t, "dead letter", o.documents["docs/bad.md"].Reason)
	shows(t, "status", c.run(t, "status").stdout)

	model.Script(llmtest.All(inOwnWords(http.StatusUnauthorized)))
	c.write(t, "docs/new.md", "Another valve.")
	for _, args := range [][]string{{"docs"}, {"retry"}, {"doctor"}} {
		for _, form := range []string{"--json=false", "--json"} {
			o := c.run(t, append(args, form)...)
			require.Equal(t, exitDenied, o.code, "%v: %s", args, o.stdout+o.stderr)
			shows(t, args[0], o.stdout+o.stderr)
		}
	}
}

// The same holds for a service, its page and its events.
func TestServeShowsWhyAnUpstreamFails(t *testing.T) {
	for _, upstream := range failings {
		t.Run(upstream.name, func(t *testing.T) {
			t.Parallel()
			env, _ := upstream.start(t)
			c := newCommand(t, append(env, "PENSTOCK_AUDIT_LOG=audit.jsonl")...)
			corpus(t, c, 40)
			s := c.serve(t, "--interval=10ms", "docs")
			s.await(t, "/", `data-upstream="`+upstream.name+`" data-state="open"`)
			s.await(t, "/", "Idle; the next pass begins")
			s.await(t, "/readyz", "not ready: open circuit breakers: "+upstream.name)
			_, page := s.get(t, "/")
			shows(t, "page", page)
			events := s.events(t)
			for _, part := range []string{"headline", "breakers", "timeline"} {
				shows(t, "event "+part, events[part])
			}
			for _, path := range []string{"/problems?status=deferred", "/metrics", "/search?q=pump"} {
				_, body := s.get(t, path)
				assert.NotContains(t, body, ownSecret, path)
			}
			s.stop(t, syscall.SIGTERM)
			shows(t, "log", s.log())
			shows(t, "output", s.out())
			shows(t, "audit log", c.read(t, "audit.jsonl"))
		})
	}
}

// events are the parts of the page that a stream begins with, by name.
func (s *served) events(t *testing.T) map[string]string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+"/events", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	parts, name := map[string]string{}, ""
	for lines := bufio.NewReader(response.Body); parts["progress"] == "" || name != ""; {
		line, err := lines.ReadString('\n')
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			return parts
		}
		if event, ok := strings.CutPrefix(line, "event: "); ok {
			name = strings.TrimSpace(event)
		} else if data, ok := strings.CutPrefix(line, "data: "); ok {
			parts[name] += data
		} else if line == "\n" {
			name = ""
		}
	}
	return parts
}
