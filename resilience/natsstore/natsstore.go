package natsstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-go/penstock/resilience"
)

const (
	// trustClock is how long the time of the server is counted on from one
	// answer.
	trustClock = 30 * time.Second
	// longestWait is how long a write waits at last for another one.
	longestWait = 500 * time.Millisecond
	// patience is how long an answer may take before the question is repeated.
	patience = time.Second
	// keepMarker is how long the trace of a removed record stays.
	keepMarker = time.Hour

	defaultAPI  = "$JS.API."
	operation   = "KV-Operation" // a header; what is deleted has "DEL"
	streamNames = "KV_"
)

// Config says how a bucket is made. It is not compared with one that exists.
// The zero value is the defaults.
type Config struct {
	// Replicas is how many servers of a cluster hold the bucket, 1 by default.
	Replicas int
	// Storage is jetstream.FileStorage by default.
	Storage jetstream.StorageType
}

// Store is a resilience.Store in a bucket. It is safe for concurrent use.
type Store struct {
	js     jetstream.JetStream
	bucket string
	config Config

	mu    sync.Mutex
	known *known
}

// known is what the server has said about the bucket.
type known struct {
	at      time.Time // when the answer came
	server  time.Time // the server's time in it
	expires bool      // whether messages can
}

// New returns the store in a bucket. It sends nothing. The store needs no
// closing.
func New(js jetstream.JetStream, bucket string, config Config) *Store {
	return &Store{js: js, bucket: bucket, config: config}
}

// String names the server and the bucket, for the log.
func (s *Store) String() string {
	server := s.js.Conn().ConnectedUrlRedacted()
	if server == "" { // it has not been reached
		server = strings.Join(s.js.Conn().Servers(), ",")
	}
	return "nats " + server + " " + s.bucket
}

// Load returns the record of key. Its error is the context's or a *StoreError.
func (s *Store) Load(ctx context.Context, key string) (resilience.Record, error) {
	r, err := s.load(ctx, key)
	if err != nil {
		return resilience.Record{}, s.fault(ctx, "load", key, err)
	}
	return r, nil
}

// Swap replaces the record of key if its version is the given one. Its error is
// resilience.ErrConflict, the context's or a *StoreError.
func (s *Store) Swap(
	ctx context.Context, key string, version uint64, value []byte, keep time.Duration,
) (resilience.Record, error) {
	var r resilience.Record
	var err error
	if version == 0 && len(value) == 0 {
		if r, err = s.load(ctx, key); err == nil && len(r.Value) > 0 {
			err = resilience.ErrConflict
		}
	} else {
		r, err = s.swap(ctx, key, version, value, keep)
	}
	switch {
	case err == nil, errors.Is(err, resilience.ErrConflict):
		return r, err
	default:
		return resilience.Record{}, s.fault(ctx, "swap", key, err)
	}
}

func (s *Store) fault(ctx context.Context, op, key string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &StoreError{op, s.bucket, key, err}
}

// swap writes once, and again if the bucket was gone, if what is in the way is
// the trace of a removed record, or if nothing is: the leader of a bucket with
// replicas refuses a write while another one is under way, which no reader has
// seen yet, and which may still fail.
func (s *Store) swap(
	ctx context.Context, key string, version uint64, value []byte, keep time.Duration,
) (there resilience.Record, err error) {
	expected := version
	for wait := time.Millisecond; ; wait *= 2 {
		k, err := s.learn(ctx)
		if err != nil {
			return there, err
		}
		sequence, err := s.publish(ctx, k, key, expected, value, keep)
		switch {
		case err == nil:
			return resilience.Record{Value: bytes.Clone(value), Version: sequence, Now: k.now()}, nil
		case isGone(err) && wait <= longestWait: // or has no leader yet
			s.forget()
		case !isConflict(err):
			return there, err
		default:
			if there, err = s.load(ctx, key); err != nil {
				return there, err
			}
			moved, trace := there.Version != expected, version == 0 && len(there.Value) == 0
			if moved && !trace || wait > longestWait {
				return there, resilience.ErrConflict
			}
			expected = there.Version
		}
		if err := pause(ctx, wait); err != nil {
			return there, err
		}
	}
}

func pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// load reads, and again if the bucket was gone.
func (s *Store) load(ctx context.Context, key string) (there resilience.Record, err error) {
	for wait := time.Millisecond; ; wait *= 2 {
		k, err := s.learn(ctx)
		if err != nil {
			return there, err
		}
		there, err = ask(ctx, func(ctx context.Context) (resilience.Record, error) { return s.get(ctx, key) })
		there.Now = k.now()
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return there, nil
		case !isGone(err) || wait > longestWait:
			return there, err
		}
		s.forget()
		if err := pause(ctx, wait); err != nil {
			return there, err
		}
	}
}

// isGone reports whether an error says that the bucket does not exist, or that
// no server leads it.
func isGone(err error) bool {
	return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrNoStreamResponse) ||
		errors.Is(err, nats.ErrNoResponders)
}

func isConflict(err error) bool {
	answer, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (answer.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		answer.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

func (s *Store) name() string { return streamNames + s.bucket }

func (s *Store) subjects() string { return "$KV." + s.bucket + "." }

// api is the prefix of JetStream's subjects.
func (s *Store) api() string {
	switch options := s.js.Options(); {
	case options.Domain != "":
		return "$JS." + options.Domain + ".API."
	case options.APIPrefix == "":
		return defaultAPI
	default:
		return strings.TrimSuffix(options.APIPrefix, ".") + "."
	}
}

// learn returns what is known about the bucket, and asks the server if that is
// too old.
func (s *Store) learn(ctx context.Context) (*known, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !s.js.Conn().IsConnected() { // what is published would be sent later
		return nil, errDisconnected
	}
	s.mu.Lock()
	k := s.known
	s.mu.Unlock()
	if k != nil && now().Sub(k.at) < trustClock {
		return k, nil
	}
	stream, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	info := stream.CachedInfo()
	if info.TimeStamp.IsZero() {
		return nil, errOldServer
	}
	k = &known{at: now(), server: info.TimeStamp, expires: info.Config.AllowMsgTTL}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = k
	return k, nil
}

func (s *Store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = nil
}

func (k *known) now() time.Time { return k.server.Add(now().Sub(k.at)) }

// ask repeats a question that is not answered within a second: a cluster drops
// those that come while a bucket has no leader, or while another process makes
// the bucket too.
func ask[T any](ctx context.Context, question func(context.Context) (T, error)) (answer T, err error) {
	for range 5 {
		asked, cancel := context.WithTimeout(ctx, patience)
		answer, err = question(asked)
		silent := err != nil && asked.Err() != nil && ctx.Err() == nil
		cancel()
		if !silent {
			break
		}
	}
	return answer, err
}

// open asks about the bucket, and makes it if it does not exist.
func (s *Store) open(ctx context.Context) (stream jetstream.Stream, err error) {
	look := func(ctx context.Context) (jetstream.Stream, error) { return s.js.Stream(ctx, s.name()) }
	for range 5 {
		stream, err = ask(ctx, look)
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return stream, err
		}
		if err = s.create(ctx); err != nil {
			return nil, err
		}
	}
	return ask(ctx, look)
}

// create makes the bucket, unless a racer does.
func (s *Store) create(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := s.js.CreateStream(asked, s.stream())
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) || asked.Err() != nil {
		return ctx.Err()
	}
	return err
}

// stream is a bucket as the client's library makes it, but for the sequence it
// begins at, and direct reads, which a replica that is behind may answer.
func (s *Store) stream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              s.name(),
		Description:       "shared circuit breakers",
		Subjects:          []string{s.subjects() + ">"},
		MaxMsgsPerSubject: 1,
		MaxBytes:          -1,
		MaxMsgs:           -1,
		MaxMsgSize:        -1,
		MaxConsumers:      -1,
		Discard:           jetstream.DiscardNew,
		Duplicates:        2 * time.Minute,
		Storage:           s.config.Storage,
		Replicas:          max(s.config.Replicas, 1),
		AllowRollup:       true,
		DenyDelete:        true,
		AllowMsgTTL:       true,
		FirstSeq:          uint64(max(now().UnixMicro(), 1)),
	}
}

func (s *Store) publish(
	ctx context.Context, k *known, key string, expected uint64, value []byte, keep time.Duration,
) (sequence uint64, err error) {
	m := nats.NewMsg(s.subjects() + token(key))
	if prefix := s.api(); prefix != defaultAPI { // of another domain
		m.Subject = prefix + m.Subject
	}
	m.Data = value
	if len(value) == 0 {
		keep = keepMarker
		m.Header.Set(operation, "DEL")
	}
	options := []jetstream.PublishOpt{
		jetstream.WithExpectLastSequencePerSubject(expected),
		jetstream.WithExpectStream(s.name()),
		jetstream.WithRetryAttempts(0),
	}
	if keep > 0 && k.expires {
		seconds := (keep + time.Second - 1) / time.Second
		options = append(options, jetstream.WithMsgTTL(seconds*time.Second))
	}
	ack, err := s.js.PublishMsg(ctx, m, options...)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// get reads the last message of a key from the bucket's leader: the library's
// own way may ask a replica that is behind.
func (s *Store) get(ctx context.Context, key string) (resilience.Record, error) {
	request, err := json.Marshal(map[string]string{"last_by_subj": s.subjects() + token(key)})
	if err != nil {
		return resilience.Record{}, err
	}
	m, err := s.js.Conn().RequestWithContext(ctx, s.api()+"STREAM.MSG.GET."+s.name(), request)
	if err != nil {
		return resilience.Record{}, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Sequence uint64 `json:"seq"`
			Header   []byte `json:"hdrs"`
			Data     []byte `json:"data"`
		} `json:"message"`
	}
	switch err := json.Unmarshal(m.Data, &answer); {
	case err != nil:
		return resilience.Record{}, errAnswer
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return resilience.Record{}, jetstream.ErrMsgNotFound
	case answer.Error != nil:
		return resilience.Record{}, answer.Error
	case answer.Message == nil:
		return resilience.Record{}, errAnswer
	}
	header := nats.Header{}
	if len(answer.Message.Header) > 0 {
		if header, err = nats.DecodeHeadersMsg(answer.Message.Header); err != nil {
			return resilience.Record{}, err
		}
	}
	return record(header, answer.Message.Data, answer.Message.Sequence), nil
}

// record is a message as a record. What is a deletion to the library has no
// value.
func record(header nats.Header, data []byte, sequence uint64) resilience.Record {
	if header.Get(operation) != "" || header.Get(jetstream.MarkerReasonHeader) != "" {
		data = nil
	}
	return resilience.Record{Value: data, Version: sequence}
}
