package upstreams_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/penstock-go/penstock/internal/upstreams"
)

func post(t *testing.T, url, body string) string {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, string(text))
	return string(text)
}

func TestLlamaAnswersChatAndEmbeddings(t *testing.T) {
	base := upstreams.Llama(t)
	chat := post(t, base+"/chat/completions", `{"messages":[{"role":"user","content":"Say hello."}],"max_tokens":8}`)
	assert.Contains(t, chat, `"finish_reason"`)
	vectors := post(t, base+"/embeddings", `{"input":["one","two"],"encoding_format":"float"}`)
	assert.Equal(t, 2, strings.Count(vectors, `"embedding":[`))
}

func TestMilvusSurvivesACrash(t *testing.T) {
	p := upstreams.StartMilvus(t)
	post(t, "http://"+p.Addr+"/v1/vector/collections/create", `{"collectionName":"kept","dimension":4}`)
	p.Restart(t)
	resp, err := http.Get("http://" + p.Addr + "/v1/vector/collections")
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Contains(t, string(body), `"kept"`)
}

func TestTwoMilvusServersLiveSideBySide(t *testing.T) {
	assert.NotEqual(t, upstreams.Milvus(t), upstreams.StartMilvus(t).Addr)
	assert.Equal(t, upstreams.Milvus(t), upstreams.Milvus(t), "the shared one is started once")
}

func TestSeaweedFSChecksSignatures(t *testing.T) {
	s3 := upstreams.SeaweedFS(t)
	resp, err := http.Get(s3.Endpoint + "/" + s3.Bucket)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
}

func TestSeaweedFSComesBack(t *testing.T) {
	p, s3 := upstreams.StartSeaweedFS(t)
	p.Stop(t)
	_, err := http.Get(s3.Endpoint)
	require.Error(t, err)
	p.Start(t)
}

// ping tells "PONG" from a refused connection and from silence.
func ping(addr string) (string, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

func TestOutageDrill(t *testing.T) {
	defer goleak.VerifyNone(t)
	p := upstreams.StartRedis(t)
	pong := func() {
		t.Helper()
		answer, err := ping(p.Addr)
		require.NoError(t, err)
		assert.Equal(t, "+PONG\r\n", answer)
	}
	pong()

	p.Pause(t)
	_, err := ping(p.Addr)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "a paused server accepts and is silent")
	p.Resume(t)
	pong()

	p.Kill(t)
	p.Kill(t)
	_, err = ping(p.Addr)
	var refused *net.OpError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "dial", refused.Op)
	p.Start(t)
	pong()

	p.Stop(t)
	p.Restart(t)
	pong()
}

// TestHelperProcess does nothing, except in a child of
// TestServersEndWithTheTestProcess, where it waits for its end.
func TestHelperProcess(t *testing.T) {
	how := os.Getenv("UPSTREAMS_HELPER")
	if how == "" {
		return
	}
	p := upstreams.StartRedis(t)
	_, err := io.WriteString(os.Stdout, "started "+p.Addr+" "+p.Dir+"\n")
	require.NoError(t, err)
	if how == "panic" {
		go func() { panic("as a bug would") }()
	}
	<-t.Context().Done()
}

func TestServersEndWithTheTestProcess(t *testing.T) {
	upstreams.Program(t, "redis-server")
	for _, how := range []string{"panic", "kill"} {
		t.Run(how, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestHelperProcess$")
			cmd.Env = append(os.Environ(), "UPSTREAMS_HELPER="+how)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			line, err := bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err)
			if how == "kill" {
				require.NoError(t, cmd.Process.Kill())
			}
			require.Error(t, cmd.Wait())

			fields := strings.Fields(line)
			require.Eventually(t, func() bool {
				_, err := ping(fields[1])
				_, gone := os.Stat(fields[2])
				return err != nil && errors.Is(gone, os.ErrNotExist)
			}, 10*time.Second, 20*time.Millisecond, "%s still there", line)
		})
	}
}

// verdict is a testing.TB that records how a test ended, in place of ending it.
type verdict struct {
	testing.TB
	skipped, failed bool
	said            string
}

func (v *verdict) Helper()                   {}
func (v *verdict) Context() context.Context  { return context.Background() }
func (v *verdict) note(args []any)           { v.said += args[0].(error).Error(); panic(v) }
func (v *verdict) Skip(args ...any)          { v.skipped = true; v.note(args) }
func (v *verdict) Fatal(args ...any)         { v.failed = true; v.note(args) }
func (v *verdict) run(body func(testing.TB)) { defer func() { _ = recover() }(); body(v) }

func TestMissingServerSkipsUnlessRequired(t *testing.T) {
	t.Setenv("PENSTOCK_SERVICES", t.TempDir())
	start := func(t testing.TB) { upstreams.StartMilvus(t) }

	t.Setenv("PENSTOCK_REQUIRE_SERVICES", "")
	v := &verdict{TB: t}
	v.run(start)
	assert.True(t, v.skipped)
	assert.Equal(t, "needs Milvus, which make test-servers installs", v.said)

	t.Setenv("PENSTOCK_REQUIRE_SERVICES", "1")
	v = &verdict{TB: t}
	v.run(start)
	assert.True(t, v.failed)

	t.Setenv("PENSTOCK_SERVICES", "none")
	v = &verdict{TB: t}
	v.run(start)
	assert.True(t, v.skipped)
	v = &verdict{TB: t}
	v.run(func(t testing.TB) { upstreams.Program(t, "sh") })
	assert.True(t, v.skipped)
}

func TestServerThatEndsByItselfShowsItsLog(t *testing.T) {
	v := &verdict{TB: t}
	v.run(func(t testing.TB) {
		upstreams.Start(t, upstreams.Spec{
			Name: "broken", Ports: 1,
			Command: func(string, []int) *exec.Cmd { return exec.Command("sh", "-c", "echo no licence >&2; exit 3") },
			Ready:   func(context.Context, string) error { return errors.New("not yet") },
		})
	})
	assert.True(t, v.failed)
	assert.Contains(t, v.said, "ended by itself")
	assert.Contains(t, v.said, "no licence")
}

func TestCorpus(t *testing.T) {
	for pattern, least := range map[string]int{
		filepath.Join(upstreams.Samples(t), "pypdf-*", "resources", "*.pdf"):                             50,
		filepath.Join(upstreams.Manuals(t), "live-manual-epub", "usr", "share", "doc", "*", "epub", "*"): 5,
	} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		assert.Greater(t, len(files), least, pattern)
	}
}

func TestPythonDocs(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(upstreams.PythonDocs(t), "library", "*.html"))
	require.NoError(t, err)
	assert.Greater(t, len(pages), 200)
}
