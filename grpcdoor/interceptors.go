package grpcdoor

import (
	"context"

	"google.golang.org/grpc"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/inflight"
)

// Config says which breaker a call belongs to, and how its outcome is read. One
// of Breaker, Pick and InFlight is needed.
type Config struct {
	// Breaker is that of all calls.
	Breaker *resilience.Breaker
	// Pick, where set, chooses the breaker of each call by its full method,
	// such as "/billing.Prices/Get", or by the connection's Target. Nil is an
	// error: nothing is sent without a breaker.
	Pick func(method string, conn *grpc.ClientConn) *resilience.Breaker
	// Classify replaces the package's Classify. It is asked for errors only.
	Classify func(caller context.Context, err error) resilience.Verdict
	// Settled, where set, is told the verdict of each call that was admitted,
	// once, in the goroutine that ends the call.
	Settled func(resilience.Verdict)
	// InFlight, where set, is entered by each call first, so that no more calls
	// are in flight than its breaker still tolerates failures. Its breaker is
	// then that of all calls.
	InFlight *inflight.Limiter
}

// ConfigError is a Config that cannot work. Nothing was sent and nothing is
// counted.
type ConfigError struct{ Problem string }

// Error says what is wrong.
func (e *ConfigError) Error() string { return "grpcdoor: " + e.Problem }

// DialOptions are the interceptors of c, and the end of retries and waits by a
// service config. They go before options of your own.
func DialOptions(c Config) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(Unary(c)),
		grpc.WithChainStreamInterceptor(Stream(c)),
		grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(false)), // whatever a service config says
	}
}

// Unary is the interceptor of calls with one answer. A call within one that
// another door of this module has admitted is part of that.
func Unary(c Config) grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption,
	) error {
		if door.Counted(ctx) {
			return invoke(ctx, method, req, reply, conn, opts...)
		}
		guard, err := c.guard(method, conn)
		if err != nil {
			return err
		}
		_, err = door.Call(ctx, guard, c.op(method), func(ctx context.Context) (struct{}, error) {
			return struct{}{}, invoke(ctx, method, req, reply, conn, opts...)
		})
		return err
	}
}

// Stream is the interceptor of streams. A stream within a call that another
// door of this module has admitted is part of that.
func Stream(c Config) grpc.StreamClientInterceptor {
	return func(
		ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer,
		opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		if door.Counted(ctx) {
			return streamer(ctx, desc, conn, method, opts...)
		}
		guard, err := c.guard(method, conn)
		if err != nil {
			return nil, err
		}
		return door.Open(ctx, guard, c.op(method), func(h *door.Handle) (grpc.ClientStream, error) {
			inner, err := streamer(h.Context(), desc, conn, method, opts...)
			if err != nil {
				return nil, err
			}
			h.Keep()
			return follow(inner, h, desc.ServerStreams), nil
		})
	}
}

func (c *Config) guard(method string, conn *grpc.ClientConn) (door.Guard, error) {
	g := door.Guard{Breaker: c.Breaker, Settled: c.Settled, InFlight: c.InFlight}
	switch {
	case c.Pick != nil && (c.Breaker != nil || c.InFlight != nil):
		return g, &ConfigError{"the Config has Pick and a Breaker or InFlight; leave one out"}
	case c.Pick != nil:
		if g.Breaker = c.Pick(method, conn); g.Breaker == nil {
			return g, &ConfigError{"Pick names no breaker for " + method}
		}
	case c.Breaker == nil && c.InFlight == nil:
		return g, &ConfigError{"the Config has no Breaker, Pick or InFlight"}
	}
	return g.Or(nil), nil
}

func (c *Config) op(method string) door.Op {
	classify := c.Classify
	if classify == nil {
		classify = Classify
	}
	return door.Op{Name: method, Classify: classify} // neither tracer nor metrics are known here
}
