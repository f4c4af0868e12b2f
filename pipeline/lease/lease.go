// Package lease lets one process at a time hold a resource, using objects in a
// bucket. It needs no service other than S3, and no synchronized clocks.
//
//	l, err := lease.Acquire(ctx, lease.Config{Objects: client, Bucket: "b", Prefix: "nightly/lease/"})
//	go l.Keep(ctx, func(err error) { … })   // renews it; err says that it is lost
//	…
//	err = l.Release(ctx)
//
// # How it works
//
// A lease is a sequence of numbered objects below its prefix. Acquiring,
// renewing and releasing it each create the next number, with If-None-Match
// "*", so that exactly one of several contenders succeeds. The object with the
// highest number is the current one: it names the holder and its TTL, and
// whether the lease was released. Older objects are deleted.
//
// A lease that was not renewed within its TTL has expired, and the next
// contender takes it. Its age is the difference of two times from the store
// itself, the object's Last-Modified and the Date of the answer, plus one
// second for rounding: the clocks of the machines do not matter. The holder
// counts its TTL from before it sent the renewal, on a monotonic clock, so it
// knows that a lease has lapsed before another process can take it.
//
// A lease that lapsed because the store did not answer in time, and that no
// other process took meanwhile, is held again after the next successful
// renewal: the free number proves it.
//
// # Requirements on the store
//
// The store must support conditional creates and consistent listings, as S3,
// SeaweedFS and package filestore do. Acquire detects a store that ignores
// If-None-Match, and returns [*UnsafeError].
package lease

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
)

const (
	// DefaultTTL is how long a lease is held without renewal.
	DefaultTTL = time.Minute
	// MinTTL is the shortest TTL: the store's times have a resolution of one
	// second.
	MinTTL = 3 * time.Second
	// rounding is the error of the difference of two times of the store.
	rounding = time.Second
	// attempts is how often a contender tries again after losing a race.
	attempts = 3
)

// ObjectStore is the part of an object store that a lease needs.
type ObjectStore interface {
	objectstore.Reader
	objectstore.Writer
}

// Config says where a lease is. Objects and Bucket are required.
type Config struct {
	Objects ObjectStore
	Guard   objectstore.Guard // zero: through resilience.S3
	Bucket  string
	Prefix  string // of the lease's keys; end it with a slash
	// Holder identifies the holder to others. Default: process and machine.
	Holder string
	// TTL is how long the lease is held without renewal. Default: DefaultTTL;
	// the minimum is MinTTL.
	TTL time.Duration
}

// HeldError reports that another process holds the lease.
type HeldError struct {
	Place  string // s3://bucket/prefix
	Holder string
	Until  time.Time // when it expires unless it is renewed
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%s is held by another run (%s) until %s, or longer if that run continues; run again then",
		e.Place, e.Holder, e.Until.UTC().Format(time.RFC3339))
}

// stop defers the caller until the lease may be free.
func (e *HeldError) stop() *stop.Error { return stop.Later("", e.Until, e) }

// LostError reports that the lease is no longer held.
type LostError struct {
	Place string
	// Holder is the process that took it, empty if it has only lapsed.
	Holder string
	At     time.Time // when to come again
	Err    error     // why the last renewal failed, if it is known
}

func (e *LostError) Error() string {
	switch {
	case e.Holder != "":
		return fmt.Sprintf("%s was taken over by another run (%s)", e.Place, e.Holder)
	case e.Err != nil:
		return fmt.Sprintf("%s could not be renewed in time: %v", e.Place, e.Err)
	}
	return e.Place + " could not be renewed in time"
}

// Unwrap returns the error of the last renewal.
func (e *LostError) Unwrap() error { return e.Err }

// Stop defers the caller until the lease may be free.
func (e *LostError) Stop() *stop.Error { return stop.Later("", e.At, e) }

// UnsafeError reports that the store overwrites objects despite If-None-Match.
type UnsafeError struct{ Place string }

func (e *UnsafeError) Error() string {
	return e.Place + ": the object store ignores If-None-Match, so two runs could hold this at once; use a store that honours it, or a local folder"
}

// record is the content of a lease's object.
type record struct {
	Holder   string `json:"holder"`
	Token    string `json:"token"`
	TTL      int64  `json:"ttl_ms"`
	Released bool   `json:"released,omitempty"`
	At       string `json:"at"` // by the holder's clock, for people
}

func (r record) ttl() time.Duration { return time.Duration(r.TTL) * time.Millisecond }

// left returns how much longer a record of the given age is valid; zero or less
// means that it has expired.
func (r record) left(age time.Duration) time.Duration { return r.ttl() + rounding - age }

// Lease is a lease that was acquired. Renew, Keep and Release are for one
// goroutine at a time; the other methods for any.
type Lease struct {
	Config
	token  string
	clean  bool
	epoch  int64 // the number under which it was taken
	number int64 // of the newest object of ours

	mu       sync.Mutex
	deadline time.Time
	over     *LostError // once another has it
}

// Acquire takes the lease if it is free, released or expired. The error is a
// [*stop.Error] that wraps a [*HeldError] or an [*UnsafeError], or that of the
// call that failed, a [*stop.CallError].
func Acquire(ctx context.Context, config Config) (*Lease, error) {
	config.Holder = cmp.Or(config.Holder, thisProcess())
	config.TTL = max(cmp.Or(config.TTL, DefaultTTL), MinTTL)
	l := &Lease{Config: config, token: rand.Text()}
	for range attempts {
		newest, err := l.newest(ctx)
		if err != nil {
			return nil, err
		}
		if left := newest.left(newest.age); newest.number > 0 && !newest.Released && left > 0 {
			return nil, l.heldBy(newest).stop()
		}
		won, err := l.take(ctx, newest)
		if err != nil {
			return nil, err
		}
		if won {
			return l, nil
		}
	}
	quicker := &HeldError{Place: l.place(), Holder: "another process took it first", Until: time.Now().Add(config.TTL)}
	return nil, quicker.stop()
}

func (l *Lease) heldBy(s sighting) *HeldError {
	return &HeldError{Place: l.place(), Holder: s.Holder, Until: time.Now().Add(s.left(s.age))}
}

// take creates the number after the newest, and checks that the store refuses a
// second creation.
func (l *Lease) take(ctx context.Context, newest sighting) (won bool, err error) {
	l.clean = newest.number == 0 || newest.Released
	won, err = l.advance(ctx, newest.number+1, false)
	if !won || err != nil {
		return false, err
	}
	l.epoch = l.number
	won, err = l.create(ctx, l.number, false)
	if won {
		unsafe := &UnsafeError{Place: l.place()}
		return false, &stop.Error{Kind: stop.Configuration, Upstream: service.ObjectStore, Err: unsafe}
	}
	return err == nil, err
}

// advance creates a number and checks that it is the current one.
func (l *Lease) advance(ctx context.Context, number int64, released bool) (won bool, err error) {
	start := time.Now()
	won, err = l.create(ctx, number, released)
	if !won || err != nil {
		return false, err
	}
	all, err := l.list(ctx)
	if err != nil {
		return false, err
	}
	if all.last() != number {
		return false, nil
	}
	l.number = number
	if !released {
		l.setDeadline(start.Add(l.TTL))
	}
	l.sweep(ctx, all)
	return true, nil
}

// Renew extends the lease by another TTL. A [*LostError] means that another
// process has it; any other error changes nothing.
func (l *Lease) Renew(ctx context.Context) error {
	for range attempts {
		won, err := l.advance(ctx, l.number+1, false)
		if won || err != nil {
			return err
		}
		newest, err := l.newest(ctx)
		if err != nil {
			return err
		}
		if newest.Token != l.token {
			return l.lose(newest).Stop()
		}
		l.number = newest.number // a renewal of which no answer came
	}
	return l.contended("the lease cannot be renewed")
}

// contended defers the caller until others may have come to an end.
func (l *Lease) contended(what string) error {
	later := time.Now().Add(cmp.Or(l.TTL, DefaultTTL))
	return stop.Later("", later, fmt.Errorf("%s: %s", l.place(), what))
}

func (l *Lease) lose(to sighting) *LostError {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = &LostError{
		Place: l.place(), Holder: cmp.Or(to.Holder, "unknown process"),
		At: time.Now().Add(max(to.left(to.age), 0)),
	}
	return l.over
}

// Release releases the lease, so that the next process need not wait. It does
// nothing if the lease is no longer held.
func (l *Lease) Release(ctx context.Context) error {
	if l.Lost() != nil {
		return nil
	}
	l.setDeadline(time.Time{}) // before anybody can have it
	_, err := l.advance(ctx, l.number+1, true)
	return err
}

// Remove deletes the lease with all its objects. Use it only for a lease that
// no other process will ever acquire: its numbers start again.
func (l *Lease) Remove(ctx context.Context) error {
	all, err := l.list(ctx)
	if err != nil {
		return err
	}
	l.setDeadline(time.Time{})
	return l.remove(ctx, all.numbers)
}

// Lost reports whether the lease is lost, and to which process; nil means that
// it is held.
func (l *Lease) Lost() *LostError {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over == nil && !time.Now().Before(l.deadline) {
		return &LostError{Place: l.place(), At: time.Now().Add(l.TTL)}
	}
	return l.over
}

// Epoch returns a number greater than that of every earlier holder.
func (l *Lease) Epoch() int64 { return l.epoch }

// Clean reports whether the lease was new or released; otherwise the previous
// holder let it expire, and may still assume that it holds it.
func (l *Lease) Clean() bool { return l.clean }

func (l *Lease) setDeadline(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = at
}

// Keep renews the lease three times per TTL until ctx is done or another
// process has taken it. It calls tell with a [*LostError] when the lease has
// lapsed or was taken, and with nil when a lapsed lease is held again.
func (l *Lease) Keep(ctx context.Context, tell func(error)) {
	ticker := time.NewTicker(l.TTL / 3)
	defer ticker.Stop()
	k := keeper{lease: l, tell: tell}
	for {
		lapse := time.NewTimer(l.remaining())
		select {
		case <-ctx.Done():
			lapse.Stop()
			return
		case <-lapse.C:
			k.check()
			if !k.wait(ctx, ticker.C) {
				return
			}
		case <-ticker.C:
			lapse.Stop()
		}
		if !k.renew(ctx) {
			return
		}
	}
}

func (l *Lease) remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(time.Until(l.deadline), 0)
}

// keeper is a Keep.
type keeper struct {
	lease  *Lease
	tell   func(error)
	lapsed bool
	last   error // of the last renewal
}

// check reports once that the lease has lapsed.
func (k *keeper) check() {
	if lost := k.lease.Lost(); lost != nil && !k.lapsed {
		k.lapsed = true
		lost.Err = k.last
		k.tell(lost.Stop())
	}
}

func (k *keeper) wait(ctx context.Context, tick <-chan time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-tick:
		return true
	}
}

// renew tries once; false means that another process has the lease.
func (k *keeper) renew(ctx context.Context) bool {
	k.check()
	limited, cancel := context.WithTimeout(ctx, k.lease.TTL/3)
	defer cancel()
	err := k.lease.Renew(limited)
	k.last = err
	if _, lost := errors.AsType[*LostError](err); lost {
		k.tell(err)
		return false
	}
	if err == nil && k.lapsed {
		k.lapsed = false
		k.tell(nil)
	}
	return true
}

// sighting is the current object.
type sighting struct {
	record
	number int64         // zero: not found
	age    time.Duration // by the store's own clock
}

// newest reads the current object, again if it is replaced meanwhile.
func (l *Lease) newest(ctx context.Context) (sighting, error) {
	for range attempts {
		all, err := l.list(ctx)
		if err != nil || all.last() == 0 {
			return sighting{}, err
		}
		s := sighting{number: all.last()}
		if !all.modified.IsZero() { // a store that does not say is taken to have it from now
			s.age = all.now.Sub(all.modified)
		}
		s.record, err = l.read(ctx, s.number)
		if objectstore.StatusCode(err) != http.StatusNotFound {
			return s, err
		}
	}
	return sighting{}, l.contended("the lease changes faster than it can be read")
}

// Look returns the holder of a lease without taking it, or nil if it is free.
func Look(ctx context.Context, config Config) (*HeldError, error) {
	l := &Lease{Config: config}
	newest, err := l.newest(ctx)
	if err != nil || newest.number == 0 || newest.Released || newest.left(newest.age) <= 0 {
		return nil, err
	}
	return l.heldBy(newest), nil
}

func (l *Lease) key(number int64) string { return fmt.Sprintf("%s%019d", l.Prefix, number) }

func (l *Lease) place() string { return "s3://" + l.Bucket + "/" + strings.TrimSuffix(l.Prefix, "/") }

// create creates an object; won is false if it already exists.
func (l *Lease) create(ctx context.Context, number int64, released bool) (won bool, err error) {
	content, err := json.Marshal(record{
		Holder: l.Holder, Token: l.token, TTL: l.TTL.Milliseconds(), Released: released,
		At: time.Now().UTC().Format(time.RFC3339Nano),
	})
	if err != nil {
		return false, err
	}
	err = l.call(ctx, "put_object", func(guard objectstore.Guard) error {
		_, err := guard.PutObject(ctx, l.Objects, &s3.PutObjectInput{
			Bucket: aws.String(l.Bucket), Key: aws.String(l.key(number)), Body: bytes.NewReader(content),
			IfNoneMatch: aws.String("*"), ContentType: aws.String("application/json"),
		})
		return err
	})
	if code := objectstore.StatusCode(err); code == http.StatusPreconditionFailed || code == http.StatusConflict {
		return false, nil
	}
	return err == nil, err
}

// recordBytes bounds the size of a record.
const recordBytes = 64 << 10

// read reads a record. A record that cannot be decoded still counts as held.
func (l *Lease) read(ctx context.Context, number int64) (record, error) {
	r := record{Holder: "unknown process", TTL: DefaultTTL.Milliseconds()}
	var content []byte
	err := l.call(ctx, "get_object", func(guard objectstore.Guard) error {
		in := &s3.GetObjectInput{Bucket: aws.String(l.Bucket), Key: aws.String(l.key(number))}
		out, err := guard.GetObject(ctx, l.Objects, in)
		if err != nil {
			return err
		}
		content, err = io.ReadAll(io.LimitReader(out.Body, recordBytes))
		return errors.Join(err, out.Body.Close())
	})
	if err != nil {
		return r, err
	}
	var found record
	if json.Unmarshal(content, &found) == nil && found.TTL > 0 {
		return found, nil
	}
	return r, nil
}

// listing holds the existing numbers.
type listing struct {
	numbers  []int64
	modified time.Time // of the last
	now      time.Time // by the store's clock
}

func (l listing) last() int64 {
	if len(l.numbers) == 0 {
		return 0
	}
	return l.numbers[len(l.numbers)-1]
}

func (l *Lease) list(ctx context.Context) (listing, error) {
	var all listing
	in := &s3.ListObjectsV2Input{Bucket: aws.String(l.Bucket), Prefix: aws.String(l.Prefix)}
	for {
		var page *s3.ListObjectsV2Output
		err := l.call(ctx, "list_objects_v2", func(guard objectstore.Guard) (err error) {
			page, err = guard.ListObjectsV2(ctx, l.Objects, in)
			return err
		})
		if err != nil {
			return all, err
		}
		all.add(l.Prefix, page)
		if !aws.ToBool(page.IsTruncated) {
			return all, nil
		}
		in.ContinuationToken = page.NextContinuationToken
	}
}

func (l *listing) add(prefix string, page *s3.ListObjectsV2Output) {
	var ok bool
	if l.now, ok = awsmiddleware.GetServerTime(page.ResultMetadata); !ok {
		l.now = time.Now() // a store in this process
	}
	for _, object := range page.Contents {
		number, err := strconv.ParseInt(strings.TrimPrefix(aws.ToString(object.Key), prefix), 10, 64)
		if err == nil && number > l.last() {
			l.numbers = append(l.numbers, number)
			l.modified = aws.ToTime(object.LastModified)
		}
	}
}

// sweep deletes old objects except the last one before the current: a contender
// may be about to create it. Errors do not matter.
func (l *Lease) sweep(ctx context.Context, all listing) {
	old := slices.DeleteFunc(slices.Clone(all.numbers), func(n int64) bool { return n >= l.number-1 })
	if len(old) > 0 {
		_ = l.remove(ctx, old)
	}
}

func (l *Lease) remove(ctx context.Context, numbers []int64) error {
	objects := make([]types.ObjectIdentifier, len(numbers))
	for i, number := range numbers {
		objects[i].Key = aws.String(l.key(number))
	}
	return l.call(ctx, "delete_objects", func(guard objectstore.Guard) error {
		in := &s3.DeleteObjectsInput{Bucket: aws.String(l.Bucket), Delete: &types.Delete{Objects: objects}}
		_, err := guard.DeleteObjects(ctx, l.Objects, in)
		return err
	})
}

// call is one call of the object store; its error is a [*stop.CallError].
func (l *Lease) call(ctx context.Context, operation string, fn func(objectstore.Guard) error) error {
	return service.Objects(l.Guard).CallObjects(ctx, operation, fn)
}

func thisProcess() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("process %d on %s since %s", os.Getpid(), host, time.Now().UTC().Format(time.RFC3339))
}
