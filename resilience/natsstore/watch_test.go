package natsstore

import (
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience"
)

func FuzzKeys(f *testing.F) {
	for _, key := range []string{"", "=", "a b", "\x00", "ключ", "a=20b", ">", "*", "$KV"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		written := token(key)
		assert.Regexp(t, `^[-_=0-9A-Za-z]+$`, written)
		read, ok := keyOf(written)
		assert.True(t, ok)
		assert.Equal(t, key, read)
		if read, ok := keyOf(key); ok { // what others write may be read
			again, ok := keyOf(token(read))
			assert.True(t, ok)
			assert.Equal(t, read, again)
		}
	})
}

func message(number int) *nats.Msg {
	sequences := strconv.Itoa(100+number) + "." + strconv.Itoa(number)
	return &nats.Msg{
		Subject: "$KV.b.a", Data: []byte("1"), Sub: &nats.Subscription{},
		Reply: "$JS.ACK.KV_b.watch.1." + sequences + ".1700000000000000000.0",
	}
}

func beat(last string) *nats.Msg {
	return &nats.Msg{Header: nats.Header{"Status": {"100"}, "Nats-Last-Consumer": {last}}}
}

// A watch ends when a message is missing, and a heartbeat tells of one that was
// the last.
func TestMissingMessagesEndAWatch(t *testing.T) {
	for name, end := range map[string]*nats.Msg{
		"a gap":              message(4),
		"one twice":          message(2),
		"a later heartbeat":  beat("3"),
		"an older heartbeat": beat("1"),
		"no number":          beat(""),
	} {
		w := &watch{subjects: "$KV.b.", present: func() {}, changed: func(string, resilience.Record) {}}
		for _, m := range []*nats.Msg{beat("0"), message(1), message(2), beat("2")} {
			require.NoError(t, w.take(m), name)
		}
		require.ErrorIs(t, w.take(end), errMissed, name)
	}
	w := &watch{subjects: "$KV.b.", present: func() {}, changed: func(string, resilience.Record) {}}
	require.ErrorIs(t, w.take(&nats.Msg{Subject: "$KV.b.a", Sub: &nats.Subscription{}, Reply: "elsewhere"}), errAnswer)
}
