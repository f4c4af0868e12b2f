package natsstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-go/penstock/resilience"
)

const (
	heartbeat = 2 * time.Second
	// quietLimit finds a link that is dead within 5 s of its last word.
	quietLimit = 4500 * time.Millisecond
	// forgetConsumer is when a server removes a watch that nobody hears.
	forgetConsumer = 10 * time.Second
)

// Watch tells of all records and of their changes. Its error is a *StoreError.
func (s *Store) Watch(ctx context.Context, present func(), changed func(string, resilience.Record)) error {
	if ctx.Err() != nil {
		return nil
	}
	connected, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := s.watch(connected, cancel, present, changed)
	if ctx.Err() != nil {
		return nil
	}
	return &StoreError{"watch", s.bucket, "", err}
}

// watch ends lost when the connection is lost.
func (s *Store) watch(
	ctx context.Context, lost context.CancelCauseFunc, present func(), changed func(string, resilience.Record),
) error {
	nc := s.js.Conn()
	status := nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(status) // closes it
	go func() {
		if _, ok := <-status; ok {
			lost(errDisconnected)
		}
	}()
	w := &watch{subjects: s.subjects(), present: present, changed: changed}
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only if the connection is closed
	w.initial, err = s.consume(ctx, sub.Subject)
	if err != nil {
		return err
	}
	w.presentOnce(w.initial == 0)
	for err == nil {
		var m *nats.Msg
		if m, err = next(ctx, sub); err == nil {
			err = w.take(m)
		}
	}
	return err
}

// consume has the server send what there is to a subject, the last of each key,
// then what changes. It returns how many records there are, traces included.
func (s *Store) consume(ctx context.Context, inbox string) (initial uint64, err error) {
	asked, cancel := context.WithTimeoutCause(ctx, quietLimit, errQuiet)
	defer cancel()
	if _, err := s.learn(asked); err != nil {
		return 0, because(asked, err)
	}
	consumer, err := s.js.CreatePushConsumer(asked, s.name(), jetstream.ConsumerConfig{
		DeliverSubject:    inbox,
		DeliverPolicy:     jetstream.DeliverLastPerSubjectPolicy,
		FilterSubject:     s.subjects() + ">",
		AckPolicy:         jetstream.AckNonePolicy,
		MaxDeliver:        1,
		IdleHeartbeat:     heartbeat,
		InactiveThreshold: forgetConsumer,
		MemoryStorage:     true,
		Replicas:          1,
	})
	if isGone(err) {
		s.forget() // the next watch makes it again
	}
	if err != nil {
		return 0, because(asked, err)
	}
	info := consumer.CachedInfo()
	return info.NumPending + info.Delivered.Consumer, nil
}

// next waits for a message.
func next(ctx context.Context, sub *nats.Subscription) (*nats.Msg, error) {
	limited, cancel := context.WithTimeoutCause(ctx, quietLimit, errQuiet)
	defer cancel()
	m, err := sub.NextMsgWithContext(limited)
	return m, because(limited, err)
}

// because names the cause if the context is why something has failed.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// watch is one call of Watch.
type watch struct {
	subjects string
	present  func()
	changed  func(string, resilience.Record)

	initial  uint64 // how many messages are of what was there
	last     uint64 // the number of the last message
	complete bool   // present has been called
}

// take takes the next message. The server numbers those of a watch, and each
// heartbeat has the last number.
func (w *watch) take(m *nats.Msg) error {
	if m.Header.Get("Status") != "" {
		last, err := strconv.ParseUint(m.Header.Get("Nats-Last-Consumer"), 10, 64)
		if err != nil || last != w.last {
			return errMissed
		}
		return nil
	}
	about, err := m.Metadata()
	if err != nil {
		return errors.Join(errAnswer, err)
	}
	if about.Sequence.Consumer != w.last+1 {
		return errMissed
	}
	w.last++
	r := record(m.Header, m.Data, about.Sequence.Stream)
	key, ours := keyOf(strings.TrimPrefix(m.Subject, w.subjects))
	if ours && (w.complete || len(r.Value) > 0) {
		w.changed(key, r)
	}
	w.presentOnce(w.last >= w.initial || about.NumPending == 0)
	return nil
}

func (w *watch) presentOnce(complete bool) {
	if complete && !w.complete {
		w.complete = true
		w.present()
	}
}
