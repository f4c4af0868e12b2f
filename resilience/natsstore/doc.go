// Package natsstore keeps the records of shared breakers in a key-value bucket
// of NATS JetStream.
//
//	nc, err := nats.Connect("nats://nats:4222", nats.RetryOnFailedConnect(true),
//		nats.MaxReconnects(-1), nats.PingInterval(2*time.Second))
//	js, err := jetstream.New(nc)
//	store := natsstore.New(js, "prod", natsstore.Config{Replicas: 3})
//	fleet := resilience.NewFleet(store, resilience.FleetConfig{})
//
// # The connection
//
// It is yours: its addresses, credentials and TLS are as you made them, and you
// close it after the fleet. A call ends with its context, and fails at once
// while the connection is lost. By default a program does not start while NATS
// is down, and a client gives up after 60 attempts to connect again, and
// notices after some minutes that a connection is cut without a word; until
// then the store is down for it. Set all three options, as above. NATS 2.10 or
// newer has what the store needs.
//
// # The bucket
//
// The first call makes it if it does not exist, the first after it was deleted
// makes it again. `nats kv get BUCKET KEY` shows a record; bytes of a key other
// than letters, digits, "-" and "_" are written as =XX. A closed breaker has no
// record: a removed one leaves a marker, for an hour. A user with these rights
// is enough, without CREATE in a bucket that exists:
//
//	publish:   $KV.prod.>  $JS.API.STREAM.INFO.KV_prod  $JS.API.STREAM.CREATE.KV_prod
//	           $JS.API.STREAM.MSG.GET.KV_prod  $JS.API.CONSUMER.CREATE.KV_prod.>
//	subscribe: _INBOX.>
//
// A call that lacks one ends with its context: NATS does not answer it.
//
// Records expire in a bucket that this package has made on NATS 2.11 or newer,
// elsewhere they stay. A keep is rounded up to seconds.
//
// A bucket with replicas refuses a write while another one to the same key is
// under way. The store then waits for what became of that, some milliseconds.
//
// A version is the sequence number of its message in the bucket. The first of a
// bucket that this package makes is the time in microseconds, so versions do
// not return after a bucket was deleted. They do in a bucket that was made by
// other means, and in one whose server has lost its last writes with its
// machine: give the bucket replicas.
//
// # The clock
//
// NATS has no question for the time. The store takes the time of the server
// from an answer about the bucket, with its first call and then with a call
// when it is 30 s old, and counts from there. Now is late by the time that
// answer took, and never early, unless the server's clock was set back in those
// 30 s.
//
// # Pushes
//
// A watch is an ephemeral consumer, from which the server sends a heartbeat
// each 2 s; that is all that an idle fleet costs. The watch ends with an error
// at once when the connection breaks, when a message is missing, and when it
// was told nothing for 4.5 s, as after the deletion of the bucket.
package natsstore
