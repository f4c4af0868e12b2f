package llmtest

import (
	"net/http/httptest"
	"testing"
)

// Server is a Handler that listens on the loopback address.
type Server struct {
	*Handler
	// URL is the base URL for a client, such as http://127.0.0.1:40213/v1.
	URL string
	// HTTP is the server under it, for its connections and its certificate.
	HTTP *httptest.Server
}

// NewServer starts a server and ends it with the test.
func NewServer(t testing.TB, o Options) *Server { return start(t, o, (*httptest.Server).Start) }

// NewTLSServer is NewServer over TLS, with a certificate that only
// HTTP.Certificate's holder trusts.
func NewTLSServer(t testing.TB, o Options) *Server { return start(t, o, (*httptest.Server).StartTLS) }

func start(t testing.TB, o Options, listen func(*httptest.Server)) *Server {
	h := NewHandler(o)
	server := httptest.NewUnstartedServer(h)
	listen(server)
	t.Cleanup(func() {
		h.Release()
		server.CloseClientConnections()
		server.Close()
	})
	return &Server{Handler: h, URL: server.URL + "/v1", HTTP: server}
}
