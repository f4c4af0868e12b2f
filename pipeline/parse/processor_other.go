//go:build !unix && !windows

package parse

import "time"

var started = time.Now()

// processorTime takes the process for one that always has a processor.
func processorTime() time.Duration { return time.Since(started) }
