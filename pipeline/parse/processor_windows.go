package parse

import (
	"syscall"
	"time"
)

// processorTime is how much processor time this process has used.
func processorTime() time.Duration {
	var created, exited, kernel, user syscall.Filetime
	self, err := syscall.GetCurrentProcess()
	if err == nil {
		err = syscall.GetProcessTimes(self, &created, &exited, &kernel, &user)
	}
	if err != nil {
		return 0 // then nothing is sure
	}
	return ofFiletime(kernel) + ofFiletime(user)
}

// ofFiletime reads a length of time: Filetime.Nanoseconds counts from 1970.
func ofFiletime(t syscall.Filetime) time.Duration {
	return time.Duration(int64(t.HighDateTime)<<32+int64(t.LowDateTime)) * 100
}
