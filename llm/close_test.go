package llm_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
)

// silentAfter says a text, and then nothing until its client leaves.
func silentAfter(t *testing.T, text string, zipped bool) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", eventStream)
		if zipped {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, text)
			_ = z.Flush()
		} else {
			_, _ = io.WriteString(w, text)
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// receiver is the SDK's stream, or a door's.
type receiver interface {
	RecvRaw() ([]byte, error)
	Close() error
}

// closedWhileRead closes a stream from another goroutine than its reader's, and
// gives the reader's error.
func closedWhileRead(t *testing.T, s receiver) error {
	t.Helper()
	_, err := s.RecvRaw()
	require.NoError(t, err)
	read := make(chan error)
	go func() {
		_, err := s.RecvRaw()
		for err == nil {
			_, err = s.RecvRaw()
		}
		read <- err
	}()
	require.NoError(t, s.Close())
	return <-read // at once, or the test runs out of its time: the server is silent for ever
}

// Close drained the body beside its reader.
func TestStreamIsClosedBesideItsReader(t *testing.T) {
	for _, zipped := range []bool{false, true} {
		below, guard := newGuard(resilience.Config{}), newGuard(resilience.Config{})
		client := newClient(t, llm.Config{
			BaseURL: silentAfter(t, part(0, "a", "", ""), zipped), Breaker: below.Breaker,
		})
		for range 10 {
			undoored, err := client.CreateChatCompletionStream(t.Context(), ask("x"))
			require.NoError(t, err)
			require.Error(t, closedWhileRead(t, undoored))

			stream, err := guard.CreateChatCompletionStream(t.Context(), client, ask("x"))
			require.NoError(t, err)
			require.Error(t, closedWhileRead(t, stream))
			require.NoError(t, stream.Close())
		}
		assert.EqualValues(t, 10, guard.Breaker.Snapshot().Ignored)
		assert.EqualValues(t, 10, below.Breaker.Snapshot().Ignored)
	}
}

// Whatever the body is that the transport gives: an answer as a whole, an
// error, a stream, one that no door asked for.
func TestBodyIsClosedBesideItsReader(t *testing.T) {
	for _, status := range []int{200, 500} {
		for _, accept := range []string{"application/json", eventStream} {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, `{"data":[`)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}))
			client, err := llm.NewHTTPClient(llm.Config{Breaker: newGuard(resilience.Config{FailMax: 100}).Breaker})
			require.NoError(t, err)
			for range 10 {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
				require.NoError(t, err)
				request.Header.Set("Accept", accept)
				response, err := client.Do(request)
				require.NoError(t, err)
				read := make(chan error)
				go func() {
					_, err := io.Copy(io.Discard, response.Body)
					read <- err
				}()
				require.NoError(t, response.Body.Close())
				require.NoError(t, response.Body.Close())
				require.Error(t, <-read, "%d, %s", status, accept)
				_, err = response.Body.Read(make([]byte, 1))
				require.Error(t, err)
				require.False(t, errors.Is(err, io.EOF), fmt.Sprint(err))
			}
			s.Close()
		}
	}
}
