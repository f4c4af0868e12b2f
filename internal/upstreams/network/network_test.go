package network_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams/network"
)

func TestFaultsComeAndGo(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	n := network.New(t, s.Listener.Addr().String())
	addr := n.Addr()
	client := http.Client{Timeout: 10 * time.Second}
	get := func() error {
		resp, err := client.Get("http://" + addr)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	require.NoError(t, get())
	reset := `{"type":"reset_peer","attributes":{"timeout":0}}`
	for name, strike := range map[string]func(string){"new connections": n.Set, "open connections": n.Spoil} {
		strike(reset)
		require.Error(t, get(), name)
		n.Set("")
		client.CloseIdleConnections()
		require.NoError(t, get(), name)
	}
	assert.Equal(t, addr, n.Addr())
}
