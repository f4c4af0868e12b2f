package redisstore

import (
	"context"
	_ "embed"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/resilience"
)

// Store is a resilience.Store in Redis. It is safe for concurrent use.
type Store struct {
	client  redis.UniversalClient
	prefix  string // of keys
	channel string
}

// New returns the store under a prefix, which separates fleets in one database.
// It sends nothing. The store needs no closing.
func New(client redis.UniversalClient, prefix string) *Store {
	return &Store{client: client, prefix: prefix + ":breaker:", channel: prefix + ":breakers"}
}

// String names the server and the prefix, for the log.
func (s *Store) String() string {
	return "redis " + strings.Join(s.servers(), ",") + " " + strings.TrimSuffix(s.prefix, ":breaker:")
}

func (s *Store) servers() []string {
	switch client := s.client.(type) {
	case *redis.Client:
		return []string{client.Options().Addr}
	case *redis.ClusterClient:
		return client.Options().Addrs
	case *redis.Ring:
		return slices.Sorted(maps.Values(client.Options().Addrs))
	}
	return []string{"client"}
}

var (
	//go:embed load.lua
	loadText string
	//go:embed swap.lua
	swapText string

	loadScript = script{loadText, redis.NewScript(loadText).Hash()}
	swapScript = script{swapText, redis.NewScript(swapText).Hash()}
)

type script struct{ text, hash string }

// Load returns the record of key. Its error is the context's or a *StoreError.
func (s *Store) Load(ctx context.Context, key string) (resilience.Record, error) {
	answer, err := s.run(ctx, "load", loadScript, key)
	if err != nil {
		return resilience.Record{}, err
	}
	return s.record("load", key, answer)
}

// Swap replaces the record of key if its version is the given one. Its error is
// resilience.ErrConflict, the context's or a *StoreError. A keep is rounded up
// to milliseconds.
func (s *Store) Swap(
	ctx context.Context, key string, version uint64, value []byte, keep time.Duration,
) (resilience.Record, error) {
	millis := (max(keep, 0) + time.Millisecond - 1) / time.Millisecond
	answer, err := s.run(ctx, "swap", swapScript, key,
		strconv.FormatUint(version, 10), string(value), int64(millis), s.channel)
	if err != nil {
		return resilience.Record{}, err
	}
	switch written, ok := answer[0].(int64); {
	case !ok || len(answer) != 3:
		return resilience.Record{}, s.fault("swap", key, errAnswer)
	case written == 0:
		there, err := s.record("swap", key, answer[1:])
		if err == nil {
			err = resilience.ErrConflict
		}
		return there, err
	}
	text, _ := answer[1].(string)
	return s.record("swap", key, []any{text + " " + string(value), answer[2]})
}

func (s *Store) fault(op, key string, err error) error {
	return &StoreError{op, s.prefix + key, err}
}

// run runs a script for one key.
func (s *Store) run(ctx context.Context, op string, script script, key string, args ...any) ([]any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	answer, err := promptly(ctx, func() ([]any, error) {
		return s.eval(ctx, script, append([]any{1, s.prefix + key}, args...))
	})
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	default:
		return nil, s.fault(op, key, err)
	}
}

// eval sends the script's hash, and its text to a server that does not know it.
func (s *Store) eval(ctx context.Context, script script, args []any) ([]any, error) {
	answer, err := s.once(ctx, append([]any{"evalsha", script.hash}, args...))
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		answer, err = s.once(ctx, append([]any{"eval", script.text}, args...))
	}
	return answer, err
}

// once sends a command that the client does not repeat: a write whose answer
// was lost would conflict with itself.
func (s *Store) once(ctx context.Context, args []any) ([]any, error) {
	c := onlyOnce{redis.NewCmd(ctx, args...)}
	if err := s.client.Process(ctx, c); err != nil {
		return nil, err
	}
	answer, err := c.Slice()
	if err == nil && len(answer) < 2 {
		err = errAnswer
	}
	return answer, err
}

type onlyOnce struct{ *redis.Cmd }

// NoRetry is part of redis.Cmder.
func (onlyOnce) NoRetry() bool { return true }

// promptly returns when ctx ends, even if run does not: a client waits for an
// answer as long as its own timeouts say.
func promptly[T any](ctx context.Context, run func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := run()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return *new(T), ctx.Err()
	}
}

// record reads what a script has answered: what there is, and the time.
func (s *Store) record(op, key string, answer []any) (resilience.Record, error) {
	text, isText := answer[0].(string)
	micros, isTime := answer[1].(int64)
	if !isText || !isTime {
		return resilience.Record{}, s.fault(op, key, errAnswer)
	}
	r, ok := parse(text)
	if !ok {
		return resilience.Record{}, s.fault(op, key, errForeign)
	}
	r.Now = time.UnixMicro(micros)
	return r, nil
}

// parse reads "version value"; nothing is a key without a record.
func parse(text string) (resilience.Record, bool) {
	if text == "" {
		return resilience.Record{}, true
	}
	number, value, found := strings.Cut(text, " ")
	version, err := strconv.ParseUint(number, 10, 64)
	if !found || err != nil {
		return resilience.Record{}, false
	}
	return resilience.Record{Value: []byte(value), Version: version}, true
}
