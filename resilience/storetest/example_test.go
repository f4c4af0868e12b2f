package storetest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-go/penstock/resilience/storetest"
)

// One client loses the store while the other continues.
func ExampleMemory() {
	ctx := context.Background()
	store := &storetest.Memory{}
	one, other := store.Client(), store.Client()
	written, err := one.Swap(ctx, "llm", 0, []byte("open"), 0)
	fmt.Println(written.Version, err)

	one.Down(errors.New("no route to host"))
	_, err = one.Load(ctx, "llm")
	fmt.Println(err)
	read, err := other.Load(ctx, "llm")
	fmt.Println(string(read.Value), err)

	store.Flush()
	read, err = other.Load(ctx, "llm")
	fmt.Println(read.Version, err)
	// Output:
	// 1 <nil>
	// no route to host
	// open <nil>
	// 0 <nil>
}
