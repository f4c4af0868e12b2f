// Package redisstore keeps the records of shared breakers in Redis, or in what
// speaks as it does, such as Valkey.
//
//	client := redis.NewUniversalClient(&redis.UniversalOptions{
//		Addrs: []string{"redis:6379"}, ContextTimeoutEnabled: true,
//	})
//	fleet := resilience.NewFleet(redisstore.New(client, "prod"), resilience.FleetConfig{})
//
// # The client
//
// It is yours: its addresses, user, password, TLS and pool are as you made
// them, and you close it after the fleet. One for a server, for Sentinel and
// for a Cluster fit. A Ring does not, since its pushes stay on the shard of
// their key.
//
// A call ends with its context, whatever the client's timeouts are, and is sent
// once, whatever its retries are. A client whose ContextTimeoutEnabled is false
// keeps the connection of a call that was given up for its ReadTimeout, 3 s by
// default: set it.
//
// # What is in Redis
//
// A record is one string, PREFIX:breaker:KEY, and changes are published to the
// channel PREFIX:breakers. A closed breaker has none. Scripts of one key each
// read and write them, so in a Cluster each record is on the shard of its key;
// readers are always sent to a master. Redis 5 or newer has what they need. A
// user with these rights is enough:
//
//	ACL SETUSER breakers on >SECRET resetchannels &prod:breakers ~prod:breaker:*
//	    +evalsha +eval +time +get +set +del +publish +subscribe +scan +ping
//
// and, for what clients say when they connect, +hello +client +select, and in a
// Cluster +cluster and +command.
//
// A version is max(the one before + 1, the server's time in microseconds). So
// versions do not return after FLUSHALL, unless the clock of the server, or of
// the replica that takes its place, is set back.
//
// # Pushes
//
// A watch subscribes and then reads all that there is, by SCAN, which visits
// each key of the database, others' too: some seconds for ten million. It pings
// its connection each 2.5 s, the only commands of a fleet that is idle. It ends
// with an error when it was told nothing for 4.5 s, when the connection breaks,
// or when the client has replaced it.
//
// In a Cluster PUBLISH reaches all nodes, whatever shard the key is on. Sharded
// channels would stay on one, so a watch would need a subscription for each
// shard, and another one whenever a slot moves. That is no gain for a few
// changes an hour. Redis does not promise a push: one is lost when the nodes
// cannot reach each other, or when a server fails between write and push.
package redisstore
