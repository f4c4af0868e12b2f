package natsstore

import "time"

func now() time.Time { return time.Now() }
