package filestate

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/penstock-go/penstock/resilience"
)

// Watch tells of the records of the file, and of their changes within
// Config.Poll. It ends with a *FileError when the file cannot be read; that it
// does not exist, or is broken, is no change.
func (s *Store) Watch(ctx context.Context, present func(), changed func(string, resilience.Record)) error {
	w := watch{store: s, changed: changed, known: map[string]entry{}}
	if err := w.look(ctx); err != nil || ctx.Err() != nil {
		return unlessEnded(ctx, err)
	}
	present()
	tick := time.NewTicker(s.config.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := w.look(ctx); err != nil {
			return unlessEnded(ctx, err)
		}
	}
}

func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

type watch struct {
	store   *Store
	changed func(string, resilience.Record)
	text    []byte           // as it was read last
	known   map[string]entry // by the text of the key; what changed was told
}

// look reads the file and tells what has changed.
func (w *watch) look(ctx context.Context) error {
	text, err := w.store.readShared(ctx)
	if err != nil || bytes.Equal(text, w.text) {
		return err
	}
	w.text = text
	there, broken := w.store.decode(text)
	if !broken {
		w.tell(there, w.store.config.now())
	}
	return nil
}

func (w *watch) tell(there state, now time.Time) {
	for _, key := range slices.Sorted(maps.Keys(there.Records)) {
		if e := there.Records[key]; e.Version > w.known[key].Version && !e.passed(now) {
			w.known[key] = e
			w.changed(keyOf(key), resilience.Record{Value: e.value(), Version: e.Version})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.known)) {
		if _, ok := there.Records[key]; !ok {
			w.gone(key, there.Version, now)
		}
	}
}

// gone tells that a record was removed, if the file is a later one. Which write
// removed it is not known: it was the last one at the latest.
func (w *watch) gone(key string, version uint64, now time.Time) {
	e := w.known[key]
	if len(e.value()) == 0 || version <= e.Version {
		return
	}
	w.known[key] = entry{Version: version}
	if !e.passed(now) {
		w.changed(keyOf(key), resilience.Record{Version: version})
	}
}
