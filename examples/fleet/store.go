package main

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/filestate"
	"github.com/penstock-go/penstock/resilience/natsstore"
	"github.com/penstock-go/penstock/resilience/redisstore"
)

// open is the store at an address, for the fleet of a name. What is no URL is
// the path of a file.
func open(address, name string) (store resilience.Store, shut func(), err error) {
	if !strings.Contains(address, "://") {
		return openFile(address)
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, nil, err
	}
	switch u.Scheme {
	case "redis", "rediss":
		return openRedis(address, name)
	case "nats", "tls":
		return openNATS(address, name)
	}
	return nil, nil, fmt.Errorf("%q is not redis, rediss, nats or tls", u.Scheme)
}

func openRedis(address, name string) (resilience.Store, func(), error) {
	options, err := redis.ParseURL(address)
	if err != nil {
		return nil, nil, err
	}
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	store := redisstore.New(client, name)
	return store, func() { _ = client.Close() }, nil
}

func openNATS(address, name string) (resilience.Store, func(), error) {
	nc, err := nats.Connect(address, nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1), nats.PingInterval(2*time.Second))
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	store := natsstore.New(js, name, natsstore.Config{})
	return store, nc.Close, nil
}

func openFile(path string) (resilience.Store, func(), error) {
	store, err := filestate.New(path, filestate.Config{Poll: 100 * time.Millisecond})
	return store, func() {}, err
}
