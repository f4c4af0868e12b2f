package grpcdoor_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/penstock-go/penstock/grpcdoor"
	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
	"github.com/penstock-go/penstock/testutil"
)

// service is a gRPC server that counts what reaches it.
type service struct {
	grpc_testing.UnimplementedTestServiceServer

	mu     sync.Mutex
	calls  int
	unary  func(context.Context) error
	stream func(grpc.ServerStream) error
}

func (s *service) seen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *service) arrive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
}

func (s *service) EmptyCall(ctx context.Context, _ *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	s.arrive()
	if s.unary != nil {
		if err := s.unary(ctx); err != nil {
			return nil, err
		}
	}
	return &grpc_testing.Empty{}, nil
}

func (s *service) FullDuplexCall(both grpc_testing.TestService_FullDuplexCallServer) error {
	s.arrive()
	return s.stream(both)
}

func (s *service) StreamingInputCall(in grpc_testing.TestService_StreamingInputCallServer) error {
	s.arrive()
	for {
		_, err := in.Recv()
		if err == io.EOF { //nolint:errorlint // the very end
			return in.SendAndClose(&grpc_testing.StreamingInputCallResponse{AggregatedPayloadSize: 7})
		}
		if err != nil {
			return err
		}
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newBreaker(t testing.TB, cfg resilience.Config) *resilience.Breaker {
	cfg.Logger = quiet()
	return testutil.NewBreaker(t, "service", cfg)
}

func (s *service) serve(t testing.TB) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(server, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(lis) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return lis.Addr().String()
}

func dial(t testing.TB, addr string, c grpcdoor.Config, opts ...grpc.DialOption) grpc_testing.TestServiceClient {
	t.Helper()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(addr, append(grpcdoor.DialOptions(c), opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return grpc_testing.NewTestServiceClient(conn)
}

func call(ctx context.Context, c grpc_testing.TestServiceClient) error {
	_, err := c.EmptyCall(ctx, &grpc_testing.Empty{})
	return err
}

func withRetryInfo(t testing.TB, code codes.Code, wait time.Duration) error {
	st, err := status.New(code, "later").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	require.NoError(t, err)
	return st.Err()
}

func TestEveryCodeHasItsOutcome(t *testing.T) {
	const success, failure, ignored, throttled, denied = resilience.Success, resilience.Failure, resilience.Ignored,
		resilience.Throttled, resilience.Denied
	for i, row := range []struct {
		err  error
		want resilience.Verdict
	}{
		{nil, resilience.Verdict{Outcome: success}},
		{status.Error(codes.NotFound, ""), resilience.Verdict{Outcome: success}},
		{status.Error(codes.AlreadyExists, ""), resilience.Verdict{Outcome: success}},
		{status.Error(codes.Canceled, ""), resilience.Verdict{Outcome: failure}},
		{
			status.Error(codes.Canceled, "grpc: the client connection is closing"),
			resilience.Verdict{Outcome: ignored},
		},
		{status.Error(codes.InvalidArgument, ""), resilience.Verdict{Outcome: ignored}},
		{status.Error(codes.FailedPrecondition, ""), resilience.Verdict{Outcome: ignored}},
		{status.Error(codes.Aborted, ""), resilience.Verdict{Outcome: ignored}},
		{status.Error(codes.OutOfRange, ""), resilience.Verdict{Outcome: ignored}},
		{status.Error(codes.Unimplemented, ""), resilience.Verdict{Outcome: ignored}},
		{status.Error(codes.Unauthenticated, ""), resilience.Verdict{Outcome: denied}},
		{status.Error(codes.PermissionDenied, ""), resilience.Verdict{Outcome: denied}},
		{status.Error(codes.Unavailable, ""), resilience.Verdict{Outcome: failure}},
		{status.Error(codes.Internal, ""), resilience.Verdict{Outcome: failure}},
		{status.Error(codes.Unknown, ""), resilience.Verdict{Outcome: failure}},
		{status.Error(codes.DataLoss, ""), resilience.Verdict{Outcome: failure}},
		{status.Error(codes.DeadlineExceeded, ""), resilience.Verdict{Outcome: failure}},
		{status.Error(codes.Code(77), ""), resilience.Verdict{Outcome: failure}},
		{errors.New("no status"), resilience.Verdict{Outcome: failure}},
		{status.Error(codes.ResourceExhausted, ""), resilience.Verdict{Outcome: throttled}},
		{
			withRetryInfo(t, codes.ResourceExhausted, time.Second),
			resilience.Verdict{Outcome: throttled, RetryAfter: time.Second},
		},
		{
			withRetryInfo(t, codes.Unavailable, time.Second),
			resilience.Verdict{Outcome: throttled, RetryAfter: time.Second, Unavailable: true},
		},
		{withRetryInfo(t, codes.Unavailable, 0), resilience.Verdict{Outcome: failure}},
		{withRetryInfo(t, codes.Unavailable, -time.Second), resilience.Verdict{Outcome: failure}},
		{withRetryInfo(t, codes.Internal, time.Second), resilience.Verdict{Outcome: failure}},
		{
			status.Error(codes.ResourceExhausted, "grpc: trying to send message larger than max (5 vs. 4)"),
			resilience.Verdict{Outcome: ignored},
		},
		{status.Error(codes.Internal, "string field contains invalid UTF-8"), resilience.Verdict{Outcome: ignored}},
		{
			status.Error(codes.ResourceExhausted, "rate larger than max of 100/s"),
			resilience.Verdict{Outcome: throttled},
		},
		{status.Error(codes.Internal, "row 7: invalid UTF-8"), resilience.Verdict{Outcome: failure}},
		{
			status.Error(codes.Internal, "grpc: failed to unmarshal the received message: invalid UTF-8"),
			resilience.Verdict{Outcome: failure},
		},
		{resilience.ErrOpen, resilience.Verdict{Outcome: ignored}},
	} {
		assert.Equal(t, row.want, grpcdoor.Classify(t.Context(), row.err), "%d: %v", i, row.err)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	assert.Equal(t, ignored, grpcdoor.Classify(left, errors.New("reset")).Outcome)
}

func TestOpenBreakerSendsNothing(t *testing.T) {
	s := &service{unary: func(context.Context) error { return status.Error(codes.Unavailable, "down") }}
	b := newBreaker(t, resilience.Config{})
	c := dial(t, s.serve(t), grpcdoor.Config{Breaker: b})
	for range 5 {
		assert.Equal(t, codes.Unavailable, status.Code(call(t.Context(), c)))
	}
	var open *resilience.OpenError
	require.ErrorAs(t, call(t.Context(), c), &open)
	_, err := c.FullDuplexCall(t.Context())
	require.ErrorAs(t, err, &open)
	assert.Equal(t, 5, s.seen())
}

// A service config can have gRPC repeat calls, unseen.
func TestServiceConfigRetriesNothing(t *testing.T) {
	s := &service{unary: func(context.Context) error { return status.Error(codes.Unavailable, "down") }}
	b := newBreaker(t, resilience.Config{})
	c := dial(t, s.serve(t), grpcdoor.Config{Breaker: b}, grpc.WithDefaultServiceConfig(`{"methodConfig":[{
		"name":[{}], "waitForReady":true,
		"retryPolicy":{"maxAttempts":5,"initialBackoff":"0.001s","maxBackoff":"0.01s","backoffMultiplier":1,
			"retryableStatusCodes":["UNAVAILABLE"]}}]}`))
	require.Error(t, call(t.Context(), c))
	assert.Equal(t, 1, s.seen())
	assert.EqualValues(t, 1, b.Snapshot().Failures)
}

func TestServerThatIsDownIsAFailureAtOnce(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, lis.Close())
	b := newBreaker(t, resilience.Config{})
	c := dial(t, lis.Addr().String(), grpcdoor.Config{Breaker: b},
		grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"waitForReady":true}]}`))
	for range 5 {
		assert.Equal(t, codes.Unavailable, status.Code(call(t.Context(), c)))
	}
	require.ErrorIs(t, call(t.Context(), c), resilience.ErrOpen)
}

func TestWhatCannotBeSentIsIgnored(t *testing.T) {
	s := &service{}
	b := newBreaker(t, resilience.Config{})
	c := dial(t, s.serve(t), grpcdoor.Config{Breaker: b}, grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(10)))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-key", "a\nb")
	for range 5 {
		require.Error(t, call(ctx, c))
		_, err := c.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{
			Payload: &grpc_testing.Payload{Body: make([]byte, 100)},
		})
		require.Error(t, err)
		for _, option := range []grpc.CallOption{grpc.UseCompressor("none"), grpc.CallContentSubtype("none")} {
			_, err = c.EmptyCall(t.Context(), &grpc_testing.Empty{}, option)
			require.Error(t, err)
		}
		_, err = c.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{
			ResponseStatus: &grpc_testing.EchoStatus{Message: "\xff"},
		})
		require.Error(t, err)
	}
	assert.EqualValues(t, 25, b.Snapshot().Ignored)
	assert.Zero(t, s.seen())
}

// echo answers each message until its client ends.
func echo(both grpc.ServerStream) error {
	for {
		m := new(grpc_testing.StreamingOutputCallRequest)
		if err := both.RecvMsg(m); err != nil {
			if err == io.EOF { //nolint:errorlint // the very end
				return nil
			}
			return err
		}
		if err := both.SendMsg(&grpc_testing.StreamingOutputCallResponse{Payload: m.GetPayload()}); err != nil {
			return err
		}
	}
}

func TestEndOfAStreamDecidesItsOutcome(t *testing.T) {
	broken := func(both grpc.ServerStream) error {
		_ = both.SendMsg(&grpc_testing.StreamingOutputCallResponse{})
		return status.Error(codes.Internal, "broken")
	}
	for name, row := range map[string]struct {
		server func(grpc.ServerStream) error
		use    func(t *testing.T, both grpc_testing.TestService_FullDuplexCallClient, cancel func())
		want   resilience.Outcome
	}{
		"whole": {echo, func(t *testing.T, both grpc_testing.TestService_FullDuplexCallClient, _ func()) {
			for range 3 {
				assert.NoError(t, both.Send(&grpc_testing.StreamingOutputCallRequest{}))
				_, err := both.Recv()
				require.NoError(t, err)
			}
			require.NoError(t, both.CloseSend())
			_, err := both.Recv()
			require.ErrorIs(t, err, io.EOF)
		}, resilience.Success},
		"broken": {broken, func(t *testing.T, both grpc_testing.TestService_FullDuplexCallClient, _ func()) {
			_, err := both.Recv()
			require.NoError(t, err)
			_, err = both.Recv()
			assert.Equal(t, codes.Internal, status.Code(err))
			_, err = both.Recv()
			assert.Equal(t, codes.Internal, status.Code(err), "again, and counted once")
		}, resilience.Failure},
		"left": {echo, func(t *testing.T, both grpc_testing.TestService_FullDuplexCallClient, cancel func()) {
			cancel()
			_, err := both.Recv()
			assert.Equal(t, codes.Canceled, status.Code(err))
		}, resilience.Ignored},
	} {
		t.Run(name, func(t *testing.T) {
			s := &service{stream: row.server}
			b := newBreaker(t, resilience.Config{})
			var told []resilience.Outcome
			c := dial(t, s.serve(t), grpcdoor.Config{Breaker: b, Settled: func(v resilience.Verdict) {
				told = append(told, v.Outcome)
			}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			both, err := c.FullDuplexCall(ctx)
			require.NoError(t, err)
			assert.Empty(t, told, "not before its end")
			row.use(t, both, cancel)
			assert.Equal(t, []resilience.Outcome{row.want}, told)
		})
	}
}

// One goroutine sends and another receives: the end of one use was taken for
// that of both, and a server that hangs for an abandoned call.
func TestDeadlineOfAStreamInUseIsAFailure(t *testing.T) {
	s := &service{stream: func(both grpc.ServerStream) error {
		<-both.Context().Done()
		return both.Context().Err()
	}}
	addr := s.serve(t)
	for range 10 {
		b := newBreaker(t, resilience.Config{})
		var told []resilience.Outcome
		c := dial(t, addr, grpcdoor.Config{Breaker: b, Settled: func(v resilience.Verdict) {
			told = append(told, v.Outcome)
		}})
		ctx := deadline{t.Context(), make(chan struct{})}
		both, err := c.FullDuplexCall(ctx)
		require.NoError(t, err)
		began, sending := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(sending)
			assert.NoError(t, both.Send(&grpc_testing.StreamingOutputCallRequest{}))
			close(began)
			for both.Send(&grpc_testing.StreamingOutputCallRequest{}) == nil {
				runtime.Gosched()
			}
		}()
		go func() { <-began; close(ctx.over) }()
		_, err = both.Recv()
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
		<-sending
		assert.Equal(t, []resilience.Outcome{resilience.Failure}, told)
	}
}

// deadline is a context whose deadline passes when the test says so.
type deadline struct {
	context.Context

	over chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.over }

func (d deadline) Err() error {
	select {
	case <-d.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// The one answer of a server that sends one is the end.
func TestAnswerToAStreamOfRequestsEndsIt(t *testing.T) {
	s, b := &service{}, newBreaker(t, resilience.Config{})
	c := dial(t, s.serve(t), grpcdoor.Config{Breaker: b})
	in, err := c.StreamingInputCall(t.Context())
	require.NoError(t, err)
	require.NoError(t, in.Send(&grpc_testing.StreamingInputCallRequest{}))
	sum, err := in.CloseAndRecv()
	require.NoError(t, err)
	assert.EqualValues(t, 7, sum.GetAggregatedPayloadSize())
	assert.EqualValues(t, 1, b.Snapshot().Successes)
}

func probing(t *testing.T, clock *testutil.FakeClock) *resilience.Breaker {
	b := newBreaker(t, resilience.Config{Clock: clock})
	b.Trip("drill")
	clock.Advance(time.Minute)
	return b
}

// Messages keep a probe, and a stream that nobody reads gives it back.
func TestStreamHoldsAProbeWhileItFlows(t *testing.T) {
	clock := testutil.NewClock()
	s, b := &service{stream: echo}, probing(t, clock)
	c := dial(t, s.serve(t), grpcdoor.Config{Breaker: b})
	both, err := c.FullDuplexCall(t.Context())
	require.NoError(t, err)
	for range 10 {
		require.NoError(t, both.Send(&grpc_testing.StreamingOutputCallRequest{}))
		_, err = both.Recv()
		require.NoError(t, err)
		clock.Advance(59 * time.Second)
	}
	require.NoError(t, both.CloseSend())
	_, err = both.Recv()
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, resilience.Closed, b.State())
}

func TestAbandonedStreamGivesItsSlotBack(t *testing.T) {
	for name, abandon := range map[string]func(cancel func()){
		"context": func(cancel func()) { cancel() },
		"garbage": func(func()) { runtime.GC() },
	} {
		s, b := &service{stream: echo}, probing(t, testutil.NewClock())
		c := dial(t, s.serve(t), grpcdoor.Config{Breaker: b})
		ctx, cancel := context.WithCancel(t.Context())
		func() {
			_, err := c.FullDuplexCall(ctx)
			require.NoError(t, err)
		}()
		require.False(t, b.Ready(), name)
		require.Eventually(t, func() bool { abandon(cancel); return b.Ready() }, 10*time.Second, time.Millisecond, name)
		assert.EqualValues(t, 1, b.Snapshot().Ignored, name)
		cancel()
	}
}

func TestThousandCallersOfADeadService(t *testing.T) {
	s := &service{unary: func(context.Context) error { return status.Error(codes.Internal, "down") }}
	limiter, err := inflight.New(newBreaker(t, resilience.Config{}), 0)
	require.NoError(t, err)
	c := dial(t, s.serve(t), grpcdoor.Config{InFlight: limiter})
	refused := 0
	for _, err := range testutil.Stampede(1000, func() error { return call(t.Context(), c) }) {
		if errors.Is(err, resilience.ErrOpen) {
			refused++
		}
	}
	assert.Equal(t, 5, s.seen())
	assert.Equal(t, 995, refused)
}

func TestBreakerOfEachMethod(t *testing.T) {
	s := &service{stream: func(grpc.ServerStream) error { return status.Error(codes.Internal, "broken") }}
	family, err := resilience.NewRegistry(resilience.Config{Logger: quiet()}).Keyed("method", resilience.Config{})
	require.NoError(t, err)
	c := dial(t, s.serve(t), grpcdoor.Config{
		Pick: func(method string, _ *grpc.ClientConn) *resilience.Breaker { return family.Get(method) },
	})
	for range 5 {
		both, err := c.FullDuplexCall(t.Context())
		require.NoError(t, err)
		_, err = both.Recv()
		require.Error(t, err)
	}
	_, err = c.FullDuplexCall(t.Context())
	require.ErrorIs(t, err, resilience.ErrOpen)
	require.NoError(t, call(t.Context(), c))
}

func TestConfigWithoutABreakerSendsNothing(t *testing.T) {
	s, b := &service{}, newBreaker(t, resilience.Config{})
	none := func(string, *grpc.ClientConn) *resilience.Breaker { return nil }
	for name, config := range map[string]grpcdoor.Config{
		"none": {}, "none picked": {Pick: none}, "two": {Pick: none, Breaker: b},
	} {
		c := dial(t, s.serve(t), config)
		var wrong *grpcdoor.ConfigError
		require.ErrorAs(t, call(t.Context(), c), &wrong, name)
		_, err := c.FullDuplexCall(t.Context())
		require.ErrorAs(t, err, &wrong, name)
	}
	assert.Zero(t, s.seen())
}

func TestOwnClassifier(t *testing.T) {
	s := &service{unary: func(context.Context) error { return status.Error(codes.Aborted, "") }}
	b := newBreaker(t, resilience.Config{})
	c := dial(t, s.serve(t), grpcdoor.Config{
		Breaker: b,
		Classify: func(ctx context.Context, err error) resilience.Verdict {
			if status.Code(err) == codes.Aborted {
				return resilience.Verdict{Outcome: resilience.Failure}
			}
			return grpcdoor.Classify(ctx, err)
		},
	})
	require.Error(t, call(t.Context(), c))
	assert.EqualValues(t, 1, b.Snapshot().Failures)
}

// A connection with a breaker, in the call of another door: that door's
// admission counts.
func TestCallOfADoorIsNotCountedBelowIt(t *testing.T) {
	s, below, above := &service{stream: echo}, newBreaker(t, resilience.Config{}), newBreaker(t, resilience.Config{})
	c := dial(t, s.serve(t), grpcdoor.Config{Breaker: below})
	_, err := door.Call(t.Context(), door.Guard{Breaker: above}, door.Op{Name: "test", Classify: grpcdoor.Classify},
		func(ctx context.Context) (any, error) {
			both, err := c.FullDuplexCall(ctx)
			if err == nil {
				err = both.CloseSend()
			}
			return nil, errors.Join(err, call(ctx, c))
		})
	require.NoError(t, err)
	assert.EqualValues(t, 1, above.Snapshot().Calls)
	assert.Zero(t, below.Snapshot().Calls)
}

func BenchmarkUnary(b *testing.B) {
	invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	guarded := grpcdoor.Unary(grpcdoor.Config{Breaker: newBreaker(b, resilience.Config{})})
	for name, run := range map[string]func() error{
		"bare":    func() error { return invoke(b.Context(), "/s/m", nil, nil, nil) },
		"guarded": func() error { return guarded(b.Context(), "/s/m", nil, nil, nil, invoke) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
