package grpcdoor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/grpcdoor"
	"github.com/penstock-go/penstock/resilience"
)

// A service that lacks what is asked of it answers, and one that has gone does
// not.
func ExampleDialOptions() {
	breaker, err := resilience.New("prices", resilience.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer()
	go func() { _ = server.Serve(lis) }()
	conn, err := grpc.NewClient(lis.Addr().String(), append(
		grpcdoor.DialOptions(grpcdoor.Config{Breaker: breaker}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)...)
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	prices := grpc_testing.NewTestServiceClient(conn)
	ask := func() error {
		_, err := prices.EmptyCall(context.Background(), &grpc_testing.Empty{})
		return err
	}

	fmt.Println(status.Code(ask()), breaker.State())
	server.Stop()
	for range 5 {
		_ = ask()
	}
	fmt.Println(errors.Is(ask(), resilience.ErrOpen), breaker.State())
	// Output:
	// Unimplemented closed
	// true open
}
