package redisstore_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/resilience/redisstore"
)

// The store of the fleet "prod" in one server.
func Example() { //nolint:testableexamples // needs a server
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs:                 []string{"redis:6379"},
		ContextTimeoutEnabled: true,
	})
	defer client.Close()
	store := redisstore.New(client, "prod")

	r, err := store.Load(context.Background(), "llm")
	fmt.Println(string(r.Value), r.Now, err)
}
