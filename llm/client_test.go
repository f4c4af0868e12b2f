package llm_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

func discard() *log.Logger { return log.New(io.Discard, "", 0) }

func TestConfigurationIsCheckedAtConstruction(t *testing.T) {
	for _, row := range []struct {
		name string
		cfg  llm.Config
		ok   bool
	}{
		{"zero value", llm.Config{}, true},
		{"local", llm.Config{BaseURL: "http://127.0.0.1:8080/v1/"}, true},
		{"no scheme", llm.Config{BaseURL: "localhost:8080"}, false},
		{"no host", llm.Config{BaseURL: "http:///v1"}, false},
		{"other scheme", llm.Config{BaseURL: "ftp://host"}, false},
		{"unreadable", llm.Config{BaseURL: "http://[::1"}, false},
		{"key in the URL", llm.Config{BaseURL: "https://user:hunter2@host/v1"}, false},
		{"query", llm.Config{BaseURL: "https://host/v1?key=hunter2"}, false},
		{"fragment", llm.Config{BaseURL: "https://host/v1#hunter2"}, false},
		{"query of another scheme", llm.Config{BaseURL: "ftp://hunter2@host/v1?key=hunter2"}, false},
		{"user without a scheme", llm.Config{BaseURL: "user:hunter2@host"}, false},
		{"key as host", llm.Config{BaseURL: "hunter2"}, false},
		{"query and port", llm.Config{BaseURL: "http://host:99999/v1?key=hunter2"}, false},
		{"negative timeout", llm.Config{Timeout: -1}, false},
		{"negative limit", llm.Config{MaxResponseBytes: -1}, false},
	} {
		_, err := llm.NewClient(row.cfg)
		assert.Equal(t, row.ok, err == nil, "%s: %v", row.name, err)
		assert.NotContains(t, fmt.Sprint(err), "hunter2", row.name)
	}
}

func TestEnvironmentFillsWhatTheConfigLeavesOut(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{Key: "from-env"})
	t.Setenv("OPENAI_BASE_URL", s.URL)
	t.Setenv("OPENAI_API_KEY", "from-env")
	require.NoError(t, operations(newGuard(resilience.Config{}), newClient(t, llm.Config{}))[0].do(t.Context()))
	require.Error(
		t,
		operations(newGuard(resilience.Config{}), newClient(t, llm.Config{APIKey: "mine"}))[0].do(t.Context()),
	)
}

func TestCustomCertificateAuthority(t *testing.T) {
	s := llmtest.NewTLSServer(t, llmtest.Options{})
	file, other := filepath.Join(t.TempDir(), "ca.pem"), filepath.Join(t.TempDir(), "other.pem")
	require.NoError(
		t,
		os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.HTTP.Certificate().Raw}), 0o600),
	)
	for _, call := range operations(newGuard(resilience.Config{}),
		newClient(t, llm.Config{BaseURL: s.URL, CAFile: file})) {
		require.NoError(t, call.do(t.Context()), call.name)
	}
	_, err := llm.NewClient(llm.Config{CAFile: other})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(other, []byte("not a certificate"), 0o600))
	_, err = llm.NewClient(llm.Config{CAFile: other})
	require.ErrorContains(t, err, "holds no certificate")
}

func TestAnswerLargerThanItsBoundFails(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{Reply: strings.Repeat("many words ", 1000)})
	for i, name := range []string{"chat", "stream", "embeddings"} {
		for limit, ok := range map[int64]bool{1000: false, 1 << 20: true} {
			guard := newGuard(resilience.Config{})
			err := operations(guard, newClient(t, llm.Config{BaseURL: s.URL, MaxResponseBytes: limit}))[i].do(
				t.Context(),
			)
			if ok {
				require.NoError(t, err, name)
				continue
			}
			var contract *llm.ContractError
			require.ErrorAs(t, err, &contract, "%s: %v", name, err)
			assertOutcome(t, guard, resilience.Failure)
		}
	}
}

func TestAnswerOfJustItsBoundIsRead(t *testing.T) {
	body := `{"object":"list","data":[]}`
	s := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }),
	)
	defer s.Close()
	for limit, ok := range map[int]bool{len(body): true, len(body) - 1: false} {
		client := newClient(t, llm.Config{BaseURL: s.URL, MaxResponseBytes: int64(limit)})
		_, err := newGuard(resilience.Config{}).ListModels(t.Context(), client)
		assert.Equal(t, ok, err == nil, "%d: %v", limit, err)
	}
}

// The SDK stops reading at the end of the JSON value, and net/http closes a
// connection whose answer was not read to its end: every call would pay for a
// new one.
func TestConnectionsAreUsedAgain(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	proxy := newCountingProxy(t, s.HTTP.Listener.Addr().String())
	client, guard := newClient(t, llm.Config{BaseURL: "http://" + proxy.addr + "/v1"}), newGuard(resilience.Config{})
	for range 10 {
		for _, i := range []int{0, 2} {
			require.NoError(t, operations(guard, client)[i].do(t.Context()))
		}
	}
	assert.Equal(t, int32(1), proxy.conns.Load())
}

type countingProxy struct {
	addr  string
	conns atomic.Int32
}

func newCountingProxy(t *testing.T, target string) *countingProxy {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &countingProxy{addr: l.Addr().String()}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			p.conns.Add(1)
			out, err := net.Dial("tcp", target)
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	}()
	return p
}

// A GET that breaks on a reused connection is sent again by net/http.
func TestGetOnABrokenConnectionIsNotSentAgain(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, `{"data":[]}`)
	}))
	defer s.Close()
	client := newClient(t, llm.Config{BaseURL: s.URL})
	_, err := client.ListModels(t.Context())
	require.NoError(t, err)
	_, err = client.ListModels(t.Context())
	require.Error(t, err)
	assert.Equal(t, int32(2), requests.Load())
}

func TestTimeoutSaysWhatItWas(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	s.Script(llmtest.All(llmtest.Hang()))
	_, err := newClient(
		t,
		llm.Config{BaseURL: s.URL, ChatTimeout: 30 * time.Millisecond},
	).CreateChatCompletion(t.Context(), ask("x"))
	require.ErrorContains(t, err, "no answer in time")
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	assert.True(t, timeout.Timeout())
}

func TestHTTPClientForAzure(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	s.Script(llmtest.All(llmtest.RateLimit("7")))
	cfg := openai.DefaultAzureConfig("key", s.HTTP.URL)
	httpClient, err := llm.NewHTTPClient(llm.Config{Breaker: newGuard(resilience.Config{}).Breaker})
	require.NoError(t, err)
	defer httpClient.CloseIdleConnections()
	cfg.HTTPClient = httpClient
	guard := newGuard(resilience.Config{OpenOnThrottle: true})
	require.Error(t, operations(guard, openai.NewClientWithConfig(cfg))[1].do(t.Context()))
	assert.InDelta(t, 7*time.Second, held(guard, resilience.Throttled), float64(time.Second))
}
