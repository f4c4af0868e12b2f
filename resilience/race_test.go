//go:build race

package resilience_test

func init() { *schedules /= 10 }
