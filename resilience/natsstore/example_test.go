package natsstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-go/penstock/resilience/natsstore"
)

// The store of the fleet "prod" in three servers.
func Example() { //nolint:testableexamples // needs a server
	nc, err := nats.Connect("nats://nats:4222", nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1), nats.PingInterval(2*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		fmt.Println(err)
		return
	}
	store := natsstore.New(js, "prod", natsstore.Config{Replicas: 3})

	r, err := store.Load(context.Background(), "llm")
	fmt.Println(string(r.Value), r.Now, err)
}
