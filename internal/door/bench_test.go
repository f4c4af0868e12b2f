package door_test

import (
	"context"
	"testing"
	"time"

	"github.com/penstock-go/penstock/internal/door"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

type untraced struct{}

func (untraced) Start(ctx context.Context, _ *resilience.Breaker) context.Context { return ctx }
func (untraced) End(resilience.Verdict, error)                                    {}
func (untraced) Refuse(error)                                                     {}

func plain(b *testing.B) (door.Guard, door.Op) {
	b.ReportAllocs()
	return door.Guard{Breaker: testutil.NewBreaker(b, "plain", resilience.Config{})},
		door.Op{Name: "read", Span: untraced{}, Observe: func(*resilience.Breaker, string, time.Duration) {}}
}

func BenchmarkCall(b *testing.B) {
	g, op := plain(b)
	for b.Loop() {
		if _, err := door.Call(b.Context(), g, op, func(context.Context) (int, error) { return 1, nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	g, op := plain(b)
	for b.Loop() {
		h, err := door.Open(b.Context(), g, op, func(h *door.Handle) (*door.Handle, error) { h.Keep(); return h, nil })
		if err != nil {
			b.Fatal(err)
		}
		h.End(nil)
	}
}

func BenchmarkUse(b *testing.B) {
	g, op := plain(b)
	h, err := door.Open(b.Context(), g, op, func(h *door.Handle) (*door.Handle, error) { h.Keep(); return h, nil })
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		h.Use(func() { n++ })
	}
}
