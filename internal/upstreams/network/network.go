// Package network spoils the network before a server.
package network

import (
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Network stands between a client and a server. To change its faults it starts
// another proxy at the same address: toxiproxy 2.5 can wait forever when a
// toxic is taken off a live connection. It is for one goroutine.
type Network struct {
	t        testing.TB
	upstream string
	proxy    *toxiproxy.Proxy
}

// New starts a network without faults before the server at upstream, a
// host:port, and takes it down when the test ends.
func New(t testing.TB, upstream string) *Network {
	t.Helper()
	n := &Network{t: t, upstream: upstream}
	n.start("127.0.0.1:0", "")
	t.Cleanup(func() { n.proxy.Stop() })
	return n
}

// Addr is the host:port that clients connect to, the same for its whole life.
func (n *Network) Addr() string { return n.proxy.Listen }

// Set replaces the faults by a toxic, written in toxiproxy's JSON; "" heals.
// Connections that are open are cut.
func (n *Network) Set(toxic string) {
	n.t.Helper()
	n.proxy.Stop()
	n.start(n.proxy.Listen, toxic)
}

// Spoil adds a toxic, to the connections that are open, too.
func (n *Network) Spoil(toxic string) {
	n.t.Helper()
	if _, err := n.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		n.t.Fatalf("toxic %s: %v", toxic, err)
	}
}

func (n *Network) start(listen, toxic string) {
	n.t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	n.proxy = toxiproxy.NewProxy(server, "upstream", listen, n.upstream)
	if toxic != "" {
		n.Spoil(toxic)
	}
	if err := n.proxy.Start(); err != nil {
		n.t.Fatalf("network at %s: %v", listen, err)
	}
}
