package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/bucket"
	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline/stop"
)

func config(t *testing.T, store ObjectStore, holder string) Config {
	t.Helper()
	return Config{
		Objects: store, Guard: bucket.Guard(t), Bucket: "bucket", Prefix: "state/lease/",
		Holder: holder, TTL: time.Minute,
	}
}

func acquire(t *testing.T, c Config) *Lease {
	t.Helper()
	l, err := Acquire(t.Context(), c)
	require.NoError(t, err)
	return l
}

// TestExpiry goes over the instants around the end of a lease: the holder's own
// view, and a contender's.
func TestExpiry(t *testing.T) {
	for _, row := range []struct {
		after       time.Duration
		held, taken bool
	}{
		{0, true, false},
		{time.Minute - 1, true, false},
		{time.Minute, false, false}, // the second between is for the rounding of the store's clock
		{time.Minute + 1, false, false},
		{time.Minute + rounding - 1, false, false},
		{time.Minute + rounding, false, true},
		{time.Minute + rounding + 1, false, true},
	} {
		t.Run(row.after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := bucket.Open(t, "bucket")
				first := acquire(t, config(t, store, "first"))
				time.Sleep(row.after)
				assert.Equal(t, row.held, first.Lost() == nil, "the holder's view")
				second, err := Acquire(t.Context(), config(t, store, "second"))
				if !row.taken {
					var held *HeldError
					require.ErrorAs(t, err, &held)
					assert.Equal(t, "first", held.Holder)
					assert.Equal(t, time.Minute+rounding-row.after, time.Until(held.Until))
					ended := stop.Of(err)
					require.NotNil(t, ended)
					assert.Equal(t, stop.Deferred, ended.Kind)
					assert.Equal(t, held.Until.UTC().Add(time.Second-1).Truncate(time.Second), ended.RetryAt)
					assert.Contains(
						t,
						held.Error(),
						"s3://bucket/state/lease is held by another run (first) until 2000-01-01T00:01:01Z",
					)
					return
				}
				require.NoError(t, err)
				assert.False(t, second.Clean(), "the one before has not given it back")
				assert.Greater(t, second.Epoch(), first.Epoch())
				var lost *LostError
				require.ErrorAs(t, first.Renew(t.Context()), &lost)
				assert.Equal(t, "second", lost.Holder)
				assert.Contains(t, lost.Error(), "taken over by another run (second)")
				assert.Equal(t, lost, first.Lost(), "for good")
				require.NoError(t, second.Renew(t.Context()))
			})
		})
	}
}

func TestReleasedLeaseIsFreeAtOnce(t *testing.T) {
	store := bucket.Open(t, "bucket")
	epoch := int64(0)
	for i := range 5 {
		l := acquire(t, config(t, store, strconv.Itoa(i)))
		assert.True(t, l.Clean())
		assert.Greater(t, l.Epoch(), epoch)
		epoch = l.Epoch()
		require.NoError(t, l.Release(t.Context()))
		assert.NotNil(t, l.Lost(), "it is given back")
		held, err := Look(t.Context(), config(t, store, ""))
		require.NoError(t, err)
		assert.Nil(t, held)
	}
	assert.LessOrEqual(t, len(bucket.Keys(t, store, "bucket", "state/lease/")), 2, "what no longer rules is deleted")
}

// Kept, a lease never expires; the process that keeps it may be slow.
func TestKeepRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := bucket.Open(t, "bucket")
		l := acquire(t, config(t, store, "first"))
		ctx, cancel := context.WithCancel(t.Context())
		var told []error
		done := make(chan struct{})
		go func() { l.Keep(ctx, func(err error) { told = append(told, err) }); close(done) }()
		for range 100 {
			time.Sleep(7 * time.Second)
			require.Nil(t, l.Lost())
			held, err := Look(t.Context(), config(t, store, ""))
			require.NoError(t, err)
			require.Equal(t, "first", held.Holder)
		}
		cancel()
		<-done
		assert.Empty(t, told)
		require.NoError(t, l.Release(t.Context()))
	})
}

var errDown = errors.New("down")

// A store that is unavailable for longer than the TTL costs the lease, and
// gives it back if nobody else took it.
func TestLapsedAndHeldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := bucket.Open(t, "bucket")
		l := acquire(t, config(t, store, "first"))
		ctx, cancel := context.WithCancel(t.Context())
		told := make(chan error, 10)
		done := make(chan struct{})
		go func() { l.Keep(ctx, func(err error) { told <- err }); close(done) }()
		time.Sleep(30 * time.Second) // renewed at 20
		store.On(bucket.Fail(errDown), nil)
		time.Sleep(50*time.Second - 1)
		assert.Empty(t, told, "one nanosecond before the TTL has passed since the last renewal")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		var lost *LostError
		require.ErrorAs(t, <-told, &lost)
		assert.Empty(t, lost.Holder)
		require.ErrorIs(t, lost, errDown)
		assert.Contains(t, lost.Error(), "could not be renewed in time: ")
		assert.NotNil(t, l.Lost())

		time.Sleep(time.Minute)
		assert.Empty(t, told, "told once")
		store.Heal()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.NoError(t, <-told, "nobody else had it")
		assert.Nil(t, l.Lost())
		cancel()
		<-done
	})
}

func TestKeepEndsWhenAnotherHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := bucket.Open(t, "bucket")
		first := acquire(t, config(t, store, "first"))
		store.On(bucket.Fail(errDown), nil)
		told := make(chan error, 10)
		done := make(chan struct{})
		go func() { first.Keep(t.Context(), func(err error) { told <- err }); close(done) }()
		time.Sleep(70 * time.Second)
		store.Heal()
		acquire(t, config(t, store, "second"))
		<-done
		var lost *LostError
		require.ErrorAs(t, <-told, &lost)
		assert.Empty(t, lost.Holder, "lapsed")
		require.ErrorAs(t, <-told, &lost)
		assert.Equal(t, "second", lost.Holder)
		assert.NoError(t, first.Release(t.Context()), "what is another's is left alone")
		held, err := Look(t.Context(), config(t, store, ""))
		require.NoError(t, err)
		assert.Equal(t, "second", held.Holder)
	})
}

// A renewal that arrives though no answer comes back is one's own.
func TestRenewalWithoutAnswer(t *testing.T) {
	store := bucket.Open(t, "bucket")
	l := acquire(t, config(t, store, "first"))
	before := l.number
	store.On(nil, bucket.Fail(errDown))
	require.ErrorIs(t, l.Renew(t.Context()), errDown)
	store.Heal()
	require.NoError(t, l.Renew(t.Context()))
	assert.Equal(t, before+2, l.number)
	assert.Nil(t, l.Lost())

	store.On(bucket.Fail(errDown, "list"), nil)
	require.ErrorIs(t, l.Renew(t.Context()), errDown, "created and not looked at")
	store.Heal()
	require.NoError(t, l.Renew(t.Context()))
	assert.Equal(t, before+4, l.number)
}

// Never do two believe to hold a lease, whatever the store and they themselves
// do: calls that fail before or after they have worked, answers that are late,
// holders that hang and come back.
func TestNeverTwoHolders(t *testing.T) {
	rounds := 5
	if os.Getenv("PENSTOCK_LONG") == "1" {
		rounds = 50
	}
	for range rounds {
		seed := uint64(time.Now().UnixNano())
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { crowd(t, seed) })
		})
	}
}

// dice are random numbers for several goroutines.
type dice struct {
	mu   sync.Mutex
	from *rand.Rand
}

func (d *dice) below(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.from.IntN(n)
}

func (d *dice) nap(atMost time.Duration) { time.Sleep(time.Duration(d.below(int(atMost)))) }

func crowd(t *testing.T, seed uint64) {
	store, d := bucket.Open(t, "bucket"), &dice{from: rand.New(rand.NewPCG(seed, 0))}
	trouble := func(string, string) error {
		switch d.below(12) {
		case 0:
			return errDown
		case 1:
			d.nap(time.Minute)
		case 2, 3, 4:
			d.nap(time.Second)
		}
		return nil
	}
	store.On(trouble, trouble)
	var mu sync.Mutex
	var leases []*Lease
	taken := 0
	watch := func(mine *Lease) {
		mu.Lock()
		defer mu.Unlock()
		if mine != nil {
			leases = append(leases, mine)
			taken++
		}
		leases = slices.DeleteFunc(leases,
			func(l *Lease) bool { return l.Lost() != nil && l != mine && d.below(50) == 0 })
		var holders []string
		for _, l := range leases {
			if l.Lost() == nil {
				holders = append(holders, l.Holder)
			}
		}
		assert.LessOrEqual(t, len(holders), 1, "%v", holders)
	}
	c := config(t, store, "")
	var actors sync.WaitGroup
	end := time.Now().Add(2 * time.Hour)
	for i := range 4 {
		c := c
		c.Holder = strconv.Itoa(i)
		actors.Go(func() {
			for time.Now().Before(end) {
				if l, err := Acquire(t.Context(), c); err == nil {
					watch(l)
					use(t, l, d, func() { watch(nil) })
				}
				d.nap(time.Minute)
				watch(nil)
			}
		})
	}
	actors.Wait()
	assert.Greater(t, taken, 5)
}

// use holds a lease for a while, well or badly.
func use(t *testing.T, l *Lease, d *dice, watch func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { l.Keep(ctx, func(error) { watch() }); close(done) }()
	for range d.below(20) {
		d.nap(20 * time.Second)
		watch()
	}
	cancel()
	<-done
	switch d.below(3) {
	case 0: // it is killed
	case 1: // it hangs, and comes back
		d.nap(3 * time.Minute)
		_ = l.Renew(t.Context())
		watch()
	default:
		_ = l.Release(t.Context())
		watch()
	}
}

// Many who see the same expired lease: one gets it.
func TestTakeoverRace(t *testing.T) {
	t.Run("filestore", func(t *testing.T) {
		for range 5 {
			store := bucket.Open(t, "bucket")
			c := config(t, store, "")
			race(t, 32, func(i int) Config { c.Holder = strconv.Itoa(i); return c })
		}
	})
	t.Run("seaweedfs", func(t *testing.T) {
		at := upstreams.SeaweedFS(t)
		for round := range 3 {
			c := Config{
				Objects: bucket.Client(t, at), Guard: bucket.Guard(t), Bucket: at.Bucket,
				Prefix: fmt.Sprintf("race-%d/lease/", round), TTL: time.Minute,
			}
			race(t, 8, func(i int) Config { c.Holder = strconv.Itoa(i); return c })
		}
	})
}

// race has contenders take a lease that nobody had, and then one that was left
// to expire.
func race(t *testing.T, contenders int, of func(int) Config) {
	t.Helper()
	won := contend(t, contenders, of)
	gone := &Lease{Config: of(-1), token: "gone"}
	gone.TTL = time.Millisecond
	made, err := gone.create(t.Context(), won.number+1, false)
	require.NoError(t, err)
	require.True(t, made)
	require.Eventually(t, func() bool {
		held, err := Look(t.Context(), gone.Config)
		return err == nil && held == nil
	}, time.Minute, 50*time.Millisecond)
	next := contend(t, contenders, of)
	assert.Greater(t, next.Epoch(), won.Epoch())
	var lost *LostError
	require.ErrorAs(t, won.Renew(t.Context()), &lost)
}

// contend returns the only winner; every other is told that it is held.
func contend(t *testing.T, contenders int, of func(int) Config) *Lease {
	t.Helper()
	var mu sync.Mutex
	var winners []*Lease
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range contenders {
		c := of(i)
		all.Go(func() {
			<-start
			l, err := Acquire(t.Context(), c)
			if err == nil {
				mu.Lock()
				winners = append(winners, l)
				mu.Unlock()
				return
			}
			var held *HeldError
			assert.ErrorAs(t, err, &held)
		})
	}
	close(start)
	all.Wait()
	require.Len(t, winners, 1)
	return winners[0]
}

// The same on the real store, whose clock ticks in seconds.
func TestSeaweedFS(t *testing.T) {
	at := upstreams.SeaweedFS(t)
	c := Config{
		Objects: bucket.Client(t, at), Guard: bucket.Guard(t), Bucket: at.Bucket, Prefix: "kept/lease/",
		Holder: "first", TTL: 3 * MinTTL,
	}
	first := acquire(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	lost := make(chan error, 1)
	go func() { first.Keep(ctx, func(err error) { lost <- err }); close(done) }()
	c.Holder = "second"
	began := time.Now()
	_, err := Acquire(t.Context(), c)
	var held *HeldError
	require.ErrorAs(t, err, &held)
	assert.Equal(t, "first", held.Holder)
	assert.WithinRange(t, held.Until, began, time.Now().Add(2*c.TTL))

	cancel() // killed, as it were
	<-done
	assert.Empty(t, lost)
	var second *Lease
	require.Eventually(t, func() bool {
		second, err = Acquire(t.Context(), c)
		return err == nil
	}, time.Minute, 200*time.Millisecond)
	assert.False(t, second.Clean())
	assert.NotNil(t, first.Lost(), "it knew before the other could take it")
	var gone *LostError
	require.ErrorAs(t, first.Renew(t.Context()), &gone)
	assert.Equal(t, "second", gone.Holder)
	require.NoError(t, second.Release(t.Context()))
	third := acquire(t, c)
	assert.True(t, third.Clean())
	require.NoError(t, third.Remove(t.Context()))
}

// overwriter is a store that knows no conditions.
type overwriter struct{ *bucket.Store }

func (o overwriter) PutObject(
	ctx context.Context, in *s3.PutObjectInput, f ...func(*s3.Options),
) (*s3.PutObjectOutput, error) {
	plain := *in
	plain.IfNoneMatch = nil
	return o.Store.PutObject(ctx, &plain, f...)
}

func TestStoreThatIgnoresConditions(t *testing.T) {
	_, err := Acquire(t.Context(), config(t, overwriter{bucket.Open(t, "bucket")}, "first"))
	var unsafe *UnsafeError
	require.ErrorAs(t, err, &unsafe)
	assert.Contains(t, unsafe.Error(), "ignores If-None-Match")
}

// A contender that was asleep between looking and creating gets a number that
// was deleted meanwhile: it does not rule.
func TestStaleContender(t *testing.T) {
	store := bucket.Open(t, "bucket")
	l := acquire(t, config(t, store, "first"))
	for range 5 {
		require.NoError(t, l.Renew(t.Context()))
	}
	late := &Lease{Config: config(t, store, "late"), token: "late"}
	won, err := late.advance(t.Context(), 1, false)
	require.NoError(t, err)
	assert.False(t, won)
	require.NoError(t, l.Renew(t.Context()))
	assert.Nil(t, l.Lost())
}

// What cannot be read is somebody's.
func TestRecordThatCannotBeRead(t *testing.T) {
	store := bucket.Open(t, "bucket")
	for i, text := range []string{"", "no json", `{"ttl_ms":0}`, `[1]`, strings.Repeat("x", recordBytes+1)} {
		bucket.Put(t, store, "bucket", fmt.Sprintf("state/lease/%019d", i+1), text)
		_, err := Acquire(t.Context(), config(t, store, "first"))
		var held *HeldError
		require.ErrorAs(t, err, &held, "%q", text)
		assert.Contains(t, held.Error(), "unknown process")
	}
}

// The clock of the machine does not matter: age is what the store's two times
// differ by.
func TestStoreWithAnotherClock(t *testing.T) {
	for _, skew := range []time.Duration{-365 * 24 * time.Hour, 0, 365 * 24 * time.Hour} {
		for age, held := range map[time.Duration]bool{
			59 * time.Second: true,
			60 * time.Second: true, 61 * time.Second: false,
		} {
			now := time.Now().Add(skew).UTC().Truncate(time.Second)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Date", now.Format(http.TimeFormat))
				w.Header().Set("ETag", `"e"`)
				if r.URL.Query().Has("list-type") {
					fmt.Fprintf(
						w,
						`<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated><Contents><Key>l/7</Key><LastModified>%s</LastModified></Contents></ListBucketResult>`,
						now.Add(-age).Format(time.RFC3339),
					)
					return
				}
				fmt.Fprint(w, `{"holder":"other","token":"t","ttl_ms":60000}`)
			}))
			client, err := objectstore.NewClient(t.Context(),
				objectstore.Config{Endpoint: server.URL, AccessKeyID: "a", SecretAccessKey: "s"})
			require.NoError(t, err)
			found, err := Look(t.Context(), Config{Objects: client, Guard: bucket.Guard(t), Bucket: "b", Prefix: "l/"})
			require.NoError(t, err)
			assert.Equal(t, held, found != nil, "skew %s, age %s", skew, age)
			server.Close()
		}
	}
}

func TestDefaults(t *testing.T) {
	c := config(t, bucket.Open(t, "bucket"), "")
	c.TTL = 0
	l := acquire(t, c)
	assert.Equal(t, DefaultTTL, l.TTL)
	assert.Contains(t, l.Holder, "process ")
	require.NoError(t, l.Release(t.Context()))
	c.TTL = time.Millisecond
	assert.Equal(t, MinTTL, acquire(t, c).TTL)
}
