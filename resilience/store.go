package resilience

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Store keeps the records of shared breakers where several processes reach
// them: package redisstore in Redis, natsstore in NATS, filestate in one file.
// A store knows keys, values and versions, and nothing of breakers. It is safe
// for concurrent use. Every method returns soon after its context ends. One
// that is a fmt.Stringer is named in the log, so String must hold no secret.
type Store interface {
	// Load returns the record of key. Without one its Value is empty, and Now
	// counts too.
	Load(ctx context.Context, key string) (Record, error)
	// Swap replaces the record of key if its version is the given one, 0 for a
	// key without a record, and returns what is there after: the new record, or
	// with ErrConflict the one that was in the way. An empty value removes the
	// record. The store may forget a record once it has not been written for
	// keep; 0 keeps it for ever. After any other error the value may have been
	// written or not.
	Swap(ctx context.Context, key string, version uint64, value []byte, keep time.Duration) (Record, error)
	// Watch calls changed with every record that there is, then present once,
	// then changed with every record that is written or removed from then on,
	// until it may have missed one: it then returns an error, at the latest
	// 5 s after the connection was lost. It returns nil only when ctx has
	// ended. The calls come one at a time, those for one key in the order of
	// their versions; of several writes in a row the last may stand for all. A
	// record that was removed has an empty Value and the version of its removal
	// or a higher one, below that of the record to follow. One that the store
	// forgot or lost need not be reported. The Now of a record that changed
	// reports may be zero.
	Watch(ctx context.Context, present func(), changed func(key string, r Record)) error
}

// Record is one version of a value in a Store.
type Record struct {
	// Value is empty for a key without a record.
	Value []byte
	// Version grows with every write to a key, and never returns, even after
	// the store has lost all that it held. It is 0 for a key that was never
	// written, or whose record is gone without a trace.
	Version uint64
	// Now is the store's clock at the time of the answer. The processes of a
	// fleet compare no other clock.
	Now time.Time
}

// ErrConflict is what errors.Is finds when Store.Swap met another version.
var ErrConflict = errors.New("the record has changed")

// guarded is a Store whose panics are errors: they would end the process, in a
// goroutine that no caller knows of.
type guarded struct{ Store }

func (s guarded) Load(ctx context.Context, key string) (r Record, err error) {
	defer panicked(&err)
	return s.Store.Load(ctx, key)
}

func (s guarded) Swap(
	ctx context.Context, key string, version uint64, value []byte, keep time.Duration,
) (r Record, err error) {
	defer panicked(&err)
	return s.Store.Swap(ctx, key, version, value, keep)
}

func (s guarded) Watch(ctx context.Context, present func(), changed func(key string, r Record)) (err error) {
	defer panicked(&err)
	return s.Store.Watch(ctx, present, changed)
}

func panicked(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("the store panicked: %v", r)
	}
}
