package state

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/bucket"
	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/objectstore/filestore"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/lease"
	"github.com/penstock-go/penstock/resilience"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// here is a state in a folder of this machine, and the folder.
func here(t *testing.T) (Config, *bucket.Store) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	store := bucket.Open(t)
	return Config{
		Objects: store, Guard: bucket.Guard(t), Bucket: "bucket", Prefix: "/nightly/",
		CreateBucket: true, Every: time.Hour,
	}, store
}

func there(t *testing.T) Config {
	t.Helper()
	at := upstreams.SeaweedFS(t)
	return Config{
		Objects: bucket.Client(t, at), Guard: bucket.Guard(t), Bucket: at.Bucket,
		Prefix: strings.ToLower(t.Name()), Every: time.Hour,
	}
}

func open(t *testing.T, c Config) *State {
	t.Helper()
	s, err := Open(t.Context(), c)
	require.NoError(t, err)
	return s
}

// inBubble opens the state on the clock of a bubble.
func inBubble(t *testing.T, c *Config, use func(*testing.T, *State)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c.Guard = bucket.Guard(t)
		use(t, open(t, *c))
	})
}

// deferred notes documents as deferred.
func deferred(t *testing.T, s *State, ids ...string) {
	t.Helper()
	for _, id := range ids {
		require.NoError(t, s.Journal.Fail(t.Context(), "d",
			journal.Problem{ID: id, Status: journal.Deferred, Reason: "away", At: noon}))
	}
}

// seen are the ids that one who looks on finds deferred.
func seen(t *testing.T, c Config) (ids []string) {
	t.Helper()
	s, err := Read(t.Context(), c)
	require.NoError(t, err)
	for p, err := range s.Journal.Problems(t.Context(), "d", "") {
		require.NoError(t, err)
		ids = append(ids, p.ID)
	}
	require.NoError(t, s.Flush(t.Context()), "one who looks on writes nothing")
	require.NoError(t, s.Lost())
	require.NoError(t, s.Close(t.Context()))
	return ids
}

// keys are the objects of the state.
func keys(t *testing.T, c Config, folder string) (list []string) {
	t.Helper()
	for _, key := range bucket.Keys(t, c.Objects, c.Bucket, c.under(folder)) {
		list = append(list, strings.TrimPrefix(key, c.under(folder)))
	}
	return list
}

func TestNextRunFindsTheState(t *testing.T) {
	for name, place := range map[string]func(*testing.T) Config{
		"filestore": func(t *testing.T) Config { c, _ := here(t); return c },
		"seaweedfs": there,
	} {
		t.Run(name, func(t *testing.T) {
			c, ctx := place(t), t.Context()
			s := open(t, c)
			_, err := Read(ctx, c)
			require.ErrorIs(t, err, fs.ErrNotExist, "nothing has been written yet")
			deferred(t, s, "a", "b")
			require.NoError(t, s.Flush(ctx))
			assert.Equal(t, []string{"a", "b"}, seen(t, c), "one may look on")
			deferred(t, s, "c")
			require.NoError(t, s.Journal.EndRun(ctx, "d", noon, map[string]int{"documents": 3}))
			require.NoError(t, s.Journal.KeepVectors(ctx, "m/1", map[string][]float32{"paid": {1}}))
			require.NoError(t, s.Close(ctx))

			next := open(t, c)
			assert.True(t, next.lease.Clean())
			summary, at, err := next.Journal.LastRun(ctx, "d")
			require.NoError(t, err)
			assert.JSONEq(t, `{"documents":3}`, string(summary))
			assert.Equal(t, noon, at)
			vectors, err := next.Journal.Vectors(ctx, "m/1", []string{"paid"})
			require.NoError(t, err)
			assert.Len(t, vectors, 1)
			require.NoError(t, next.Journal.Complete(ctx, "d", journal.Document{ID: "b", At: noon}))
			require.NoError(t, next.Close(ctx))
			assert.Equal(t, []string{"a", "c"}, seen(t, c))
		})
	}
}

func TestLocalFolderGoes(t *testing.T) {
	c, _ := here(t)
	s := open(t, c)
	deferred(t, s, "a")
	require.NoError(t, s.Close(t.Context()))
	seen(t, c)
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "penstock-state-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// What a killed process left behind goes a day later, if it is dead.
func TestOldFoldersGo(t *testing.T) {
	c, _ := here(t)
	old := time.Now().Add(-folderAge - time.Minute)
	folder := func(name string, made time.Time) string {
		full := filepath.Join(os.TempDir(), "penstock-state-"+name)
		require.NoError(t, os.Mkdir(full, 0o700))
		require.NoError(t, os.Chtimes(full, made, made))
		return full
	}
	dead, young, strange := folder("dead", old), folder("young", time.Now()), filepath.Join(os.TempDir(), "else")
	require.NoError(t, os.Mkdir(strange, 0o700))
	live := folder("live", old)
	j, err := journal.Open(t.Context(), live)
	require.NoError(t, err)
	require.NoError(t, os.Chtimes(live, old, old))
	require.NoError(t, open(t, c).Close(t.Context()))
	assert.NoDirExists(t, dead)
	assert.DirExists(t, young)
	assert.DirExists(t, live)
	assert.DirExists(t, strange)
	require.NoError(t, j.Close())
}

func TestSecondRunIsToldWhoHoldsIt(t *testing.T) {
	c, _ := here(t)
	c.Holder = "the first"
	s := open(t, c)
	_, err := Open(t.Context(), c)
	var held *lease.HeldError
	require.ErrorAs(t, err, &held)
	assert.Equal(t, "the first", held.Holder)
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, open(t, c).Close(t.Context()), "it was given back")
}

// What changes is written every few seconds, and not when nothing has.
func TestWrittenBackMeanwhile(t *testing.T) {
	c, _ := here(t)
	c.Every = 5 * time.Second
	inBubble(t, &c, func(t *testing.T, s *State) {
		deferred(t, s, "a")
		time.Sleep(c.Every + 1)
		synctest.Wait()
		assert.Equal(t, []string{"a"}, seen(t, c))
		for range 10 {
			time.Sleep(c.Every)
		}
		synctest.Wait()
		assert.Len(t, keys(t, c, "journal"), 1, "nothing has changed since")
		require.NoError(t, s.Close(t.Context()))
		assert.Len(t, keys(t, c, "journal"), 1)
	})
}

var errDown = errors.New("down")

// A store that fails, or hangs, holds nobody up, and gets what it missed later.
func TestStoreThatFailsMeanwhile(t *testing.T) {
	c, objects := here(t)
	c.Every = 5 * time.Second
	inBubble(t, &c, func(t *testing.T, s *State) {
		var puts int
		objects.On(func(op, key string) error {
			if op != "put" || strings.Contains(key, "lease") {
				return nil
			}
			puts++
			if puts%2 == 0 {
				time.Sleep(30 * time.Second) // slow
			}
			return errDown
		}, nil)
		for i := range 40 {
			time.Sleep(time.Second)
			before := time.Now()
			deferred(t, s, strconv.Itoa(i))
			// SQLite may wait a millisecond for its lock.
			require.Less(t, time.Since(before), time.Second, "nobody waits for the store")
		}
		time.Sleep(time.Minute)
		objects.Heal()
		time.Sleep(2 * c.Every)
		synctest.Wait()
		assert.Len(t, seen(t, c), 40)
		assert.Greater(t, s.log.last, int64(len(s.log.names)),
			"a name is never used again: what did not seem to arrive may still")
		require.NoError(t, s.Close(t.Context()))
	})
}

// Segments are replaced by a whole copy before there are many, and readers
// find one or the other meanwhile.
func TestSegmentsAreReplaced(t *testing.T) {
	c, objects := here(t)
	ctx := t.Context()
	most := 0
	var want []string
	for i := range 3 * mostSegments {
		s := open(t, c)
		id := fmt.Sprintf("%03d", i)
		deferred(t, s, id)
		want = append(want, id)
		require.NoError(t, s.Close(ctx))
		most = max(most, len(keys(t, c, "journal")))
	}
	assert.LessOrEqual(t, most, mostSegments+1)
	assert.Equal(t, want, seen(t, c))

	swapped := false
	objects.On(func(op, key string) error {
		if op == "get" && !swapped {
			swapped = true // between the listing and the reading
			objects.Heal()
			s := open(t, c)
			deferred(t, s, "while reading")
			require.NoError(t, s.compact(ctx))
			require.NoError(t, s.Close(ctx))
		}
		return nil
	}, nil)
	assert.Contains(t, seen(t, c), "while reading")
	assert.True(t, swapped)
}

// A kill between the whole copy and the deletion of what it replaces leaves
// objects that count no more and go with the next one.
func TestReplacedSegmentsThatStayed(t *testing.T) {
	c, objects := here(t)
	s := open(t, c)
	deferred(t, s, "a", "b")
	require.NoError(t, s.Flush(t.Context()))
	require.NoError(t, s.Journal.Forget(t.Context(), "d", "a"))
	objects.On(bucket.Fail(errDown, "delete"), nil)
	require.NoError(t, s.compact(t.Context()))
	objects.Heal()
	assert.Len(t, keys(t, c, "journal"), 2)
	assert.Equal(t, []string{"b"}, seen(t, c))
	require.NoError(t, s.Close(t.Context()))
	s = open(t, c)
	require.NoError(t, s.compact(t.Context()))
	assert.Len(t, keys(t, c, "journal"), 1)
	require.NoError(t, s.Close(t.Context()))
	assert.Equal(t, []string{"b"}, seen(t, c))
}

// A fault of this machine's disk is not taken for one of the state.
func TestFullDiskIsNoDamage(t *testing.T) {
	c, _ := here(t)
	s := open(t, c)
	deferred(t, s, "a")
	require.NoError(t, s.Close(t.Context()))
	s, err := read(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, s.Journal.Close())
	err = s.load(t.Context())
	require.ErrorContains(t, err, "database is closed")
	var corrupt *CorruptError
	assert.False(t, errors.As(err, &corrupt))
	assert.ErrorIs(t, asDamage(&fs.PathError{Err: fs.ErrPermission}), fs.ErrPermission)
}

func TestLargeSegmentsAreReplaced(t *testing.T) {
	c, _ := here(t)
	s := open(t, c)
	random := rand.New(rand.NewPCG(1, 2))
	wholes := 0
	for range 12 {
		for n := range 100 {
			noise := make([]byte, 6000)
			for k := range noise {
				noise[k] = ' ' + byte(random.IntN(94))
			}
			require.NoError(t, s.Journal.Fail(t.Context(), "d",
				journal.Problem{ID: strconv.Itoa(n), Status: journal.Deferred, Reason: string(noise), At: noon}))
		}
		require.NoError(t, s.Flush(t.Context()))
		assert.LessOrEqual(t, s.log.since, max(s.log.whole, smallSegments))
		if isWhole(s.log.names[len(s.log.names)-1]) {
			wholes++
		}
	}
	assert.Positive(t, wholes)
	assert.Less(t, wholes, 12)
	require.NoError(t, s.Close(t.Context()))
	assert.Len(t, seen(t, c), 100)
}

// overtake puts a lease there that another has, as one would who waited for
// the end of this one.
func overtake(t *testing.T, c Config, s *State) {
	t.Helper()
	var last string
	for _, key := range keys(t, c, "lease") {
		last = key
	}
	number, err := strconv.ParseInt(last, 10, 64)
	require.NoError(t, err)
	bucket.Put(t, c.Objects, c.Bucket, fmt.Sprintf("%s%019d", c.under("lease"), number+1),
		`{"holder":"another","token":"t","ttl_ms":60000}`)
}

// A run that has lost its lease is told so, and writes nothing any more.
func TestLeaseIsTakenOver(t *testing.T) {
	c, _ := here(t)
	inBubble(t, &c, func(t *testing.T, s *State) {
		deferred(t, s, "before")
		require.NoError(t, s.Flush(t.Context()))
		over, why := s.Journal.Revoked()
		overtake(t, c, s)
		deferred(t, s, "after")
		<-over
		var lost *lease.LostError
		require.ErrorAs(t, why(), &lost)
		assert.Equal(t, "another", lost.Holder)
		require.ErrorAs(t, s.Lost(), &lost)
		require.ErrorAs(t, s.Flush(t.Context()), &lost)
		require.ErrorAs(t, s.Close(t.Context()), &lost)
		assert.Equal(t, []string{"before"}, seen(t, c))
		held, err := Examine(t.Context(), c)
		require.NoError(t, err)
		assert.Equal(t, "another", held.Holder)
	})
}

// A lease that lapsed and that nobody took is had again, and what was not
// written meanwhile is.
func TestLeaseLapsesAndComesBack(t *testing.T) {
	c, objects := here(t)
	c.Every = 5 * time.Second
	inBubble(t, &c, func(t *testing.T, s *State) {
		over, _ := s.Journal.Revoked()
		objects.On(bucket.Fail(errDown), nil)
		deferred(t, s, "a")
		<-over
		var lost *lease.LostError
		require.ErrorAs(t, s.Flush(t.Context()), &lost)
		objects.Heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NoError(t, s.Lost())
		again, _ := s.Journal.Revoked()
		select {
		case <-again:
			t.Error("it is held again")
		default:
		}
		assert.Equal(t, []string{"a"}, seen(t, c))

		objects.On(bucket.Fail(errDown), nil)
		time.Sleep(2 * time.Minute)
		objects.Heal()
		deferred(t, s, "b")
		require.NoError(t, s.Close(t.Context()), "the end tries once more")
		assert.Equal(t, []string{"a", "b"}, seen(t, c))
	})
}

// The end of a run whose store is unavailable says that the state is not
// written.
func TestStoreIsAwayAtTheEnd(t *testing.T) {
	c, objects := here(t)
	s := open(t, c)
	deferred(t, s, "a")
	objects.On(bucket.Fail(errDown), nil)
	err := s.Close(t.Context())
	var store *StoreError
	require.ErrorAs(t, err, &store)
	require.ErrorIs(t, err, errDown)
	assert.Contains(t, err.Error(), "cannot write the state to s3://bucket/nightly")
}

func TestBreakerIsOpenAtTheEnd(t *testing.T) {
	c, _ := here(t)
	s := open(t, c)
	deferred(t, s, "a")
	c.Guard.Breaker.Trip("for the test")
	var open *resilience.OpenError
	require.ErrorAs(t, s.Close(t.Context()), &open)
}

// After one who was not heard of any more, what that one still writes counts
// no more.
func TestZombie(t *testing.T) {
	c, _ := here(t)
	first := open(t, c)
	deferred(t, first, "early")
	require.NoError(t, first.Flush(t.Context()))
	first.stop() // it hangs
	first.work.Wait()

	overtake(t, c, first)
	record := fmt.Sprintf("%s%019d", c.under("lease"), 3)
	bucket.Put(t, c.Objects, c.Bucket, record, `{"holder":"another","token":"t","ttl_ms":1}`) // expired long ago
	var next *State
	var err error
	require.Eventually(t, func() bool {
		next, err = Open(t.Context(), c)
		return err == nil
	}, time.Minute, 50*time.Millisecond)
	assert.False(t, next.lease.Clean())
	deferred(t, first, "late")
	_, err = first.writeChanges(t.Context()) // it does not know yet
	require.NoError(t, err)
	deferred(t, next, "mine")
	require.NoError(t, next.Close(t.Context()))
	assert.Equal(t, []string{"early", "mine"}, seen(t, c))
}

func TestOpenFaults(t *testing.T) {
	c, objects := here(t)
	c.CreateBucket = false
	var missing *BucketError
	_, err := Open(t.Context(), c)
	require.ErrorAs(t, err, &missing)
	assert.Contains(t, missing.Error(), `bucket "bucket" of the state does not exist`)
	_, err = Read(t.Context(), c)
	require.ErrorAs(t, err, &missing)
	_, err = Examine(t.Context(), c)
	require.ErrorAs(t, err, &missing)

	c.CreateBucket = true
	s := open(t, c)
	deferred(t, s, "a")
	require.NoError(t, s.Close(t.Context()))
	var store *StoreError
	for _, op := range []string{"put", "get", "list"} {
		objects.On(bucket.Fail(errDown, op), nil)
		_, err = Open(t.Context(), c)
		require.ErrorAs(t, err, &store, op)
		objects.Heal()
	}
	objects.On(func(o, key string) error {
		if o == "list" && strings.Contains(key, "journal") {
			return errDown
		}
		return nil
	}, nil)
	_, err = Open(t.Context(), c)
	require.ErrorAs(t, err, &store)
	objects.Heal()
	require.NoError(t, open(t, c).Close(t.Context()), "the lease was given back each time")

	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	_, err = Open(t.Context(), c)
	require.ErrorContains(t, err, "state folder")
}

func TestExamineLeavesNothing(t *testing.T) {
	c, _ := here(t)
	s := open(t, c)
	held, err := Examine(t.Context(), c)
	require.NoError(t, err)
	require.NotNil(t, held)
	require.NoError(t, s.Close(t.Context()))
	held, err = Examine(t.Context(), c)
	require.NoError(t, err)
	assert.Nil(t, held)
	for _, key := range keys(t, c, "") {
		assert.NotContains(t, key, "doctor")
	}
}

// packed is a segment with this text.
func packed(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestDamagedSegments(t *testing.T) {
	good := `{"journal":1,"tables":{"problem":["destination","id"]}}` + "\n" + `["-problem","d","x"]` +
		"\n" + `{"end":1}` + "\n"
	whole := packed(t, good)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-5] ^= 1 // the checksum
	for name, row := range map[string]struct {
		content []byte
		advice  string
	}{
		"empty":     {nil, "move the objects below its folder away"},
		"no gzip":   {[]byte("hello"), "move the objects below its folder away"},
		"cut short": {whole[:len(whole)-12], "move the objects below its folder away"},
		"checksum":  {flipped, "move the objects below its folder away"},
		"no copy":   {packed(t, "hello\n"), "move the objects below its folder away"},
		"newer":     {packed(t, `{"journal":9}`+"\n"), "use that version"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := here(t)
			s := open(t, c)
			deferred(t, s, "a")
			require.NoError(t, s.Close(t.Context()))
			put := func(content []byte) {
				bucket.Put(t, c.Objects, c.Bucket, c.under("journal")+"0000000999999999999-00000001.more.jsonl.gz",
					string(content))
			}
			put(row.content)
			for _, open := range []func(context.Context, Config) (*State, error){Open, Read} {
				_, err := open(t.Context(), c)
				var corrupt *CorruptError
				require.ErrorAs(t, err, &corrupt)
				assert.Equal(t, "s3://bucket/nightly/journal/0000000999999999999-00000001.more.jsonl.gz", corrupt.Place)
				assert.Contains(t, corrupt.Error(), row.advice)
			}
			put(whole)
			assert.Equal(t, []string{"a"}, seen(t, c), "nothing was lost")
			next := open(t, c)
			assert.Equal(t, int64(1_000_000_000_000), next.log.epoch, "beyond all that is there")
			require.NoError(t, next.Close(t.Context()))
		})
	}
}

// 100,000 documents are carried there and back, in little memory.
func BenchmarkOpenAndClose(b *testing.B) {
	ctx := b.Context()
	store, err := filestore.Open(b.TempDir())
	require.NoError(b, err)
	breaker, err := resilience.New(b.Name(), resilience.Config{})
	require.NoError(b, err)
	c := Config{
		Objects: store, Guard: objectstore.Guard{Breaker: breaker}, Bucket: "bucket",
		Prefix: "p", CreateBucket: true,
	}
	s, err := Open(ctx, c)
	require.NoError(b, err)
	documents := make([]journal.Document, 100_000)
	for i := range documents {
		documents[i] = journal.Document{
			ID:     fmt.Sprintf("docs/%06d.md", i),
			SHA:    fmt.Sprintf("%x", sha256.Sum256([]byte{byte(i), byte(i >> 8), byte(i >> 16)})),
			Policy: fmt.Sprintf("%064x", 1), At: noon,
		}
	}
	require.NoError(b, s.Journal.Complete(ctx, "d", documents...))
	require.NoError(b, s.Close(ctx))
	for b.Loop() {
		s, err = Open(ctx, c)
		require.NoError(b, err)
		require.NoError(b, s.Close(ctx))
	}
	b.ReportMetric(float64(s.log.whole+s.log.since)/1e6, "MB-kept")
	require.NoError(b, store.Close())
}
