package redisstore

import (
	"errors"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// StoreError says what could not be done in Redis. Err is the client's error.
type StoreError struct {
	Op  string // "load", "swap" or "watch"
	Key string // in Redis; the channel for a watch
	Err error
}

func (e *StoreError) Error() string {
	return "redisstore: cannot " + e.Op + " " + strconv.Quote(e.Key) + ": " + e.Err.Error() + e.advice()
}

func (e *StoreError) Unwrap() error { return e.Err }

func (e *StoreError) advice() string {
	for prefix, advice := range map[string]string{
		"NOPERM":    "; grant the user the commands, keys and channel that the package's documentation lists",
		"NOAUTH":    "; give the client its user and password",
		"WRONGPASS": "; give the client its user and password",
		"READONLY":  "; the client must reach the master",
		"WRONGTYPE": "; something else uses the prefix",
		"OOM":       "; raise maxmemory, or give the breakers a server of their own",
	} {
		if redis.HasErrorPrefix(e.Err, prefix) {
			return advice
		}
	}
	return ""
}

var (
	errForeign = errors.New("what is there is not the record of a breaker; something else uses the prefix")
	errAnswer  = errors.New("the script's answer cannot be read")
	errRing    = errors.New("a Ring keeps pushes on the shard of their key; use a client of one server, " +
		"of Sentinel or of a Cluster")
	errQuiet       = errors.New("the server has not answered a ping; changes may have been missed")
	errReconnected = errors.New("the connection was replaced; changes may have been missed")
	errScanHangs   = errors.New("a server has not answered while its records were read")
)
