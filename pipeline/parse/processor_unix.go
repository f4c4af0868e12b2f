//go:build unix

package parse

import (
	"syscall"
	"time"
)

// processorTime is how much processor time this process has used.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // then nothing is sure
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
