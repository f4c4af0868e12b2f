package natsstore_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/fleettest"
	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/natsstore"
)

// open connects as the documentation says, and more often to a server that was
// down.
func open(addr, name string) (resilience.Store, func(), error) {
	nc, err := nats.Connect("nats://"+addr, nats.PingInterval(2*time.Second), nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, nil, err
	}
	return natsstore.New(js, name, natsstore.Config{}), nc.Close, nil
}

// TestFleet is eight processes on one NATS.
func TestFleet(t *testing.T) {
	saved := func(server *upstreams.Process) string { return filepath.Join(server.Dir, "saved") }
	data := func(server *upstreams.Process) string { return filepath.Join(server.Dir, "data") }
	fleettest.Run(t, fleettest.Backend{
		Open:  open,
		Start: start,
		Save: func(t *testing.T, server *upstreams.Process) {
			server.Stop(t)
			require.NoError(t, os.CopyFS(saved(server), os.DirFS(data(server))))
			server.Start(t)
		},
		Restore: func(t *testing.T, server *upstreams.Process) {
			require.NoError(t, os.RemoveAll(data(server)))
			require.NoError(t, os.CopyFS(data(server), os.DirFS(saved(server))))
			server.Start(t)
		},
		Empty: func(t *testing.T, server *upstreams.Process) {
			require.NoError(t, connect(t, server.Addr).DeleteKeyValue(t.Context(), fleettest.Records))
		},
	})
}
