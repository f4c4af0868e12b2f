package redisstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/resilience"
)

const (
	// pingEach and quietLimit find a link that is dead within 5 s of its last
	// word.
	pingEach   = 2500 * time.Millisecond
	quietLimit = 4500 * time.Millisecond
	// scanCount is about how many keys the server visits for one answer.
	scanCount = 1000
)

// Watch tells of all records and of their changes. Its error is a *StoreError.
func (s *Store) Watch(ctx context.Context, present func(), changed func(string, resilience.Record)) error {
	if ctx.Err() != nil {
		return nil
	}
	err := errRing
	if _, ring := s.client.(*redis.Ring); !ring {
		err = s.watch(ctx, present, changed)
	}
	if ctx.Err() != nil {
		return nil
	}
	return &StoreError{"watch", s.channel, err}
}

// watch is one call of Watch. All its callbacks run in the caller's goroutine;
// what may hang runs in others, which end some time after it.
type watch struct {
	store   *Store
	ctx     context.Context // ends with the call
	present func()
	changed func(string, resilience.Record)

	messages chan any     // from the subscription
	found    chan []found // what there is; closed when all was read
	failed   chan error   // of each goroutine its last

	subscribed bool
	scanned    map[string]uint64 // the versions that the scan has found or missed, by key
}

// found is a string in Redis with its key.
type found struct{ key, text string }

func (s *Store) watch(ctx context.Context, present func(), changed func(string, resilience.Record)) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &watch{
		store: s, ctx: inner, present: present, changed: changed,
		messages: make(chan any), found: make(chan []found), failed: make(chan error, 3),
		scanned: map[string]uint64{},
	}
	sub := s.client.Subscribe(inner) // to nothing yet, which cannot hang
	context.AfterFunc(inner, func() { _ = sub.Close() })
	go w.receive(sub)
	return w.follow(sub)
}

// follow tells what comes until something has failed.
func (w *watch) follow(sub *redis.PubSub) error {
	quiet, scan := time.NewTimer(quietLimit), time.NewTimer(quietLimit)
	defer quiet.Stop()
	defer scan.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return w.ctx.Err()
		case err := <-w.failed:
			return err
		case <-quiet.C:
			return errQuiet
		case <-scan.C:
			return errScanHangs
		case m := <-w.messages:
			if err := w.heard(m, sub); err != nil {
				return err
			}
			quiet.Reset(quietLimit)
		case batch, more := <-w.found:
			w.tell(batch)
			scan.Reset(quietLimit)
			if !more {
				w.found = nil
				scan.Stop()
				w.present()
			}
		}
	}
}

// heard takes a message of the subscription: the first confirms it.
func (w *watch) heard(message any, sub *redis.PubSub) error {
	switch m := message.(type) {
	case *redis.Subscription:
		if w.subscribed {
			return errReconnected
		}
		w.subscribed = true
		go w.ping(sub)
		go w.scan()
	case *redis.Message:
		w.pushed(m.Payload)
	}
	return nil
}

// receive passes on what the subscription is told.
func (w *watch) receive(sub *redis.PubSub) {
	err := sub.Subscribe(w.ctx, w.store.channel)
	for err == nil {
		var m any
		if m, err = sub.Receive(w.ctx); err == nil {
			w.send(m)
		}
	}
	w.failed <- err
}

func (w *watch) send(m any) {
	select {
	case w.messages <- m:
	case <-w.ctx.Done():
	}
}

func (w *watch) ping(sub *redis.PubSub) {
	tick := time.NewTicker(pingEach)
	defer tick.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-tick.C:
		}
		if err := sub.Ping(w.ctx); err != nil {
			w.failed <- err
			return
		}
	}
}

// pushed tells a change: "version length key value", as swap.lua publishes it.
// What is written otherwise is from somebody else. One older than what the scan
// has found was waiting behind it.
func (w *watch) pushed(payload string) {
	version, rest, _ := strings.Cut(payload, " ")
	length, rest, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > len(rest) {
		return
	}
	key, ours := strings.CutPrefix(rest[:n], w.store.prefix)
	r, ok := parse(version + " " + rest[n:])
	if !ours || !ok || r.Version <= w.scanned[key] {
		return
	}
	if w.found == nil {
		delete(w.scanned, key) // pushes of one key come in order
	} else {
		w.scanned[key] = r.Version // the scan may still find an older one
	}
	w.changed(key, r)
}

// tell tells what the scan has found, but for what a push has overtaken.
func (w *watch) tell(batch []found) {
	for _, f := range batch {
		key, ours := strings.CutPrefix(f.key, w.store.prefix)
		r, ok := parse(f.text)
		if ours && ok && r.Version > w.scanned[key] {
			w.scanned[key] = r.Version
			w.changed(key, r)
		}
	}
}

// scan reads all records, from each master of a Cluster.
func (w *watch) scan() {
	var err error
	if cluster, ok := w.store.client.(interface {
		ForEachMaster(ctx context.Context, fn func(ctx context.Context, client *redis.Client) error) error
	}); ok {
		err = cluster.ForEachMaster(w.ctx, func(_ context.Context, c *redis.Client) error { return w.scanOne(c) })
	} else {
		err = w.scanOne(w.store.client)
	}
	if err != nil {
		w.failed <- err
		return
	}
	close(w.found)
}

func (w *watch) scanOne(client redis.Cmdable) error {
	pattern := globEscaper.Replace(w.store.prefix) + "*"
	var cursor uint64
	for {
		keys, next, err := client.Scan(w.ctx, cursor, pattern, scanCount).Result()
		if err != nil {
			return err
		}
		batch, err := w.read(client, keys)
		if err != nil {
			return err
		}
		select {
		case w.found <- batch:
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// globEscaper makes SCAN take a prefix as it is.
var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`)

// read reads strings. A key that is gone by then, or holds something else, is
// left out.
func (w *watch) read(client redis.Cmdable, keys []string) (batch []found, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	pipe := client.Pipeline()
	for _, key := range keys {
		pipe.Get(w.ctx, key)
	}
	answers, _ := pipe.Exec(w.ctx) // has the first of the commands' errors
	for i, answer := range answers {
		text, err := answer.(*redis.StringCmd).Result()
		switch {
		case err == nil:
			batch = append(batch, found{keys[i], text})
		case errors.Is(err, redis.Nil), redis.HasErrorPrefix(err, "WRONGTYPE"):
		default:
			return nil, err
		}
	}
	return batch, nil
}
