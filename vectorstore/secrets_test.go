package vectorstore_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/vectorstore"
)

// A mounted secret ends in a line break, which no server takes for part of it.
func TestKeysAreSentWithoutOuterWhiteSpace(t *testing.T) {
	s, addr := serve(t)
	var sent metadata.MD
	s.on("HasCollection", func(ctx context.Context, _ any) (any, error) {
		sent, _ = metadata.FromIncomingContext(ctx)
		return &milvuspb.BoolResponse{Status: ok()}, nil
	})
	ask := func(cfg vectorstore.Config) {
		cfg.Address = addr + "\n"
		g, _ := guard(t)
		_, err := g.HasCollection(t.Context(), connect(t, cfg), "docs")
		require.NoError(t, err)
	}
	encoded := func(text string) []string { return []string{base64.StdEncoding.EncodeToString([]byte(text))} }
	ask(vectorstore.Config{APIKey: "\ufeff key-0123456789\r\n"})
	assert.Equal(t, encoded("key-0123456789"), sent.Get("authorization"))
	ask(vectorstore.Config{Username: "root\n", Password: "\ufeff\n pass word \r\n ", Database: " docs\n"})
	assert.Equal(t, encoded("root:pass word"), sent.Get("authorization"))
	assert.Equal(t, []string{"docs"}, sent.Get("dbname"))
}

func TestKeysThatCannotBeSentAreRefusedBeforeAnyCall(t *testing.T) {
	for name, cfg := range map[string]vectorstore.Config{
		"API key":    {APIKey: "secret-012\n3456789"},
		"user name":  {Username: "ro\x00ot"},
		"password":   {Password: "secret-012\t3456789"},
		"database":   {Database: "a\nb"},
		"ASCII":      {Database: "dätä"},
		"address":    {},
		"user in it": {},
	} {
		cfg.Address = "localhost:19530"
		switch name {
		case "address":
			cfg.Address = "local\nhost:19530"
		case "user in it":
			cfg.Address = "http://root:secret-0123456789@localhost"
		}
		_, err := vectorstore.NewClient(t.Context(), cfg)
		require.ErrorAs(t, err, new(*vectorstore.ArgumentError), name)
		assert.ErrorContains(t, err, name)
		assert.NotContains(t, err.Error(), "3456789", name)
	}
}

// gRPC refuses metadata of the caller's that it cannot send, and calls that an
// internal error.
func TestMetadataThatCannotBeSentIsNoFailure(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	g, b := guard(t)
	for _, pair := range [][]string{{"x-trace", "a\nb"}, {"x-trace", "ä"}, {"X Y", "a"}} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), pair...)
		for range 5 {
			_, err := g.HasCollection(ctx, c, "docs")
			require.Error(t, err)
		}
	}
	assert.EqualValues(t, 15, b.Snapshot().Ignored)
	assert.Zero(t, s.count("HasCollection"))
}

func TestKeysThatAServerRepeatsAreMasked(t *testing.T) {
	s, addr := serve(t)
	for _, cfg := range []vectorstore.Config{
		{APIKey: "secret-0123456789"}, {Username: "root", Password: "secret-0123456789"},
	} {
		cfg.Address = addr
		c := connect(t, cfg)
		g, _ := guard(t)
		said := "no such key: secret-0123456789, " +
			base64.StdEncoding.EncodeToString([]byte("secret-0123456789")) + ", " +
			base64.StdEncoding.EncodeToString([]byte("root:secret-0123456789"))
		s.reply("HasCollection", &milvuspb.BoolResponse{Status: &commonpb.Status{Code: 1400, Reason: said}})
		_, err := g.HasCollection(t.Context(), c, "docs")
		require.ErrorContains(t, err, "no such key: ********")
		assert.NotContains(t, err.Error(), "0123456789")
		s.fail("HasCollection", status.Error(codes.Unauthenticated, said))
		_, err = g.HasCollection(t.Context(), c, "docs")
		require.ErrorContains(t, err, "no such key: ********")
		assert.NotContains(t, err.Error(), "0123456789")
		assert.Equal(t, codes.Unauthenticated, status.Code(err))
	}
}

// To errors.Is the end of a context was none: gRPC has a status of its own.
func TestEndsOfContextsAreThemselves(t *testing.T) {
	s, addr := serve(t)
	arrived := make(chan struct{}, 1)
	s.on("HasCollection", func(ctx context.Context, _ any) (any, error) {
		arrived <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	c := connect(t, vectorstore.Config{Address: addr})
	g, b := guard(t)
	ask := func(ctx context.Context) error {
		_, err := g.HasCollection(ctx, c, "docs")
		return err
	}
	reason := errors.New("the shift is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-arrived; cancel(reason) }()
	err := ask(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, reason)
	assert.Equal(t, codes.Canceled, status.Code(err))
	assert.EqualValues(t, 1, b.Snapshot().Ignored)

	late, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	err = ask(late)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
	<-arrived
	c = connect(t, vectorstore.Config{Address: addr, CallTimeout: 20 * time.Millisecond})
	err = ask(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded, "the client's own")
	assert.EqualValues(t, 2, b.Snapshot().Failures)
}

// Waits that the SDK does in its own loop, and iterations, said less.
func TestEndsOfWaitsAreThemselves(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	s.reply("Flush", &milvuspb.FlushResponse{
		Status: ok(), CollSegIDs: map[string]*schemapb.LongArray{"docs": {Data: []int64{1}}},
	})
	s.reply("GetFlushState", &milvuspb.GetFlushStateResponse{Status: ok()})
	s.reply("HasCollection", &milvuspb.BoolResponse{Status: ok(), Value: true})
	s.reply("CreateIndex", ok())
	building := []*milvuspb.IndexDescription{{FieldName: "vector", State: commonpb.IndexState_InProgress}}
	s.reply("DescribeIndex", &milvuspb.DescribeIndexResponse{Status: ok(), IndexDescriptions: building})
	s.reply("LoadCollection", ok())
	s.reply("GetLoadingProgress", &milvuspb.GetLoadingProgressResponse{Status: ok(), Progress: 1})
	var g vectorstore.Guard
	waits := map[string]func(context.Context) error{
		"Flush": func(ctx context.Context) error { return g.Flush(ctx, c, "docs", false) },
		"CreateIndex": func(ctx context.Context) error {
			return g.CreateIndex(ctx, c, "docs", "vector", flat(t, entity.L2), false)
		},
		"LoadCollection": func(ctx context.Context) error { return g.LoadCollection(ctx, c, "docs", false) },
	}
	reason := errors.New("the shift is over")
	for name, wait := range waits {
		b := testutil.NewBreaker(t, "waits", resilience.Config{})
		g = vectorstore.Guard{Breaker: b}
		ctx, stop := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, reason)
		err := wait(ctx)
		stop()
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		require.ErrorIs(t, err, reason, name)
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err), name)
		assert.EqualValues(t, 1, b.Snapshot().Failures, name)

		left, leave := context.WithCancelCause(t.Context())
		time.AfterFunc(20*time.Millisecond, func() { leave(reason) })
		err = wait(left)
		require.ErrorIs(t, err, context.Canceled, name)
		require.ErrorIs(t, err, reason, name)
		assert.Equal(t, codes.Canceled, status.Code(err), name)
		assert.EqualValues(t, 1, b.Snapshot().Ignored, name)
	}
}

// The server may be the first to see the deadline, and then it is its word.
func TestDeadlineThatTheServerSeesFirstIsOne(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	g, b := guard(t)
	s.fail("HasCollection", status.Error(codes.DeadlineExceeded, "context deadline exceeded"))
	_, err := g.HasCollection(t.Context(), c, "docs")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.EqualValues(t, 1, b.Snapshot().Failures)
}

// Who cancels while the caller is there is no caller.
func TestServerThatCancelsIsAFailure(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	g, b := guard(t)
	s.fail("HasCollection", status.Error(codes.Canceled, "shutting down"))
	for range 5 {
		_, err := g.HasCollection(t.Context(), c, "docs")
		require.NotErrorIs(t, err, context.Canceled)
	}
	assert.Equal(t, resilience.Open, b.State())
	require.NoError(t, c.Close())
	closed, ignored := guard(t)
	_, err := closed.HasCollection(t.Context(), c, "docs")
	require.Error(t, err)
	assert.EqualValues(t, 1, ignored.Snapshot().Ignored, "a connection that this program has closed: %v", err)
}

// A server that has gone is no end of a context.
func TestRefusedConnectionIsNoEndOfAContext(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, lis.Close())
	c := connect(t, vectorstore.Config{Address: lis.Addr().String()})
	g, _ := guard(t)
	_, err = g.HasCollection(t.Context(), c, "docs")
	require.Error(t, err)
	assert.NotErrorIs(t, err, context.Canceled)
	assert.NotErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, resilience.Failure, vectorstore.Classify(t.Context(), err).Outcome)
}
