package hostile_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/testutil/hostile"
)

// get reads at most so many bytes of an answer, on a connection of its own.
func get(ctx context.Context, url string, most int64) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 1 << 16}
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("a body"))
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	return string(body), err
}

func TestEachAnswerIsServed(t *testing.T) {
	answers := hostile.HTTP("text/plain", "half", "<error>")
	seen := make(chan string, 2*len(answers))
	t.Run("all", func(t *testing.T) {
		hostile.Each(t, answers, func(t *testing.T, url string) {
			for range 2 {
				body, err := get(t.Context(), url, 1<<20)
				switch {
				case err != nil:
				case strings.HasPrefix(body, "<html>"), body == "half":
				default:
					assert.True(t, strings.HasPrefix(body, "<error>oopsoops"), "%.40s", body)
					assert.Len(t, body, 1<<20)
				}
				seen <- t.Name()
			}
		})
	})
	assert.Len(t, seen, cap(seen))
}

func TestStalledWaitsForTheClient(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := get(ctx, hostile.Serve(t, hostile.Stalled("HTTP/1.1 200 OK\r\nContent-Le", cancel)), 10)
	require.ErrorIs(t, err, context.Canceled)
}

func TestServerEndsWithTheTest(t *testing.T) {
	var url string
	ctx := t.Context()
	said := make(chan struct{})
	answered := make(chan error, 1)
	t.Run("test", func(t *testing.T) {
		url = hostile.Serve(t, hostile.Stalled("", func() { close(said) }))
		go func() {
			_, err := get(ctx, url, 1)
			answered <- err
		}()
		<-said
	})
	require.Error(t, <-answered, "an open connection is closed")
	_, err := get(ctx, url, 1)
	require.Error(t, err)
}
