package filestore

import (
	"fmt"
	"strconv"
	"strings"
)

// span is a run of bytes in an object.
type span struct {
	start, length int64
	partial       bool
}

func (b span) header(total int64) *string {
	if !b.partial {
		return nil
	}
	h := fmt.Sprintf("bytes %d-%d/%d", b.start, b.start+b.length-1, total)
	return &h
}

// parseRange parses "bytes=a-b", "bytes=a-" and "bytes=-n". Like S3 it returns
// the whole object for an invalid header, and 416 InvalidRange for a range
// outside the object.
func parseRange(op, header string, size int64) (span, error) {
	whole := span{length: size}
	spec, ok := strings.CutPrefix(header, "bytes=")
	first, last, dash := strings.Cut(spec, "-")
	if !ok || !dash || strings.Contains(spec, ",") {
		return whole, nil
	}
	start, end, ok := bounds(first, last, size)
	if !ok {
		return whole, nil
	}
	if start >= size || end < start {
		return span{}, failure(op, 416, "InvalidRange",
			fmt.Sprintf("the range %q lies outside the object's %d bytes", header, size))
	}
	return span{start: start, length: end - start + 1, partial: true}, nil
}

// bounds returns the first and last byte of a range, the last within size.
func bounds(first, last string, size int64) (start, end int64, ok bool) {
	if first == "" {
		n, err := strconv.ParseInt(last, 10, 64)
		return max(0, size-n), size - 1, err == nil && n >= 0
	}
	start, err := strconv.ParseInt(first, 10, 64)
	if err != nil || start < 0 {
		return 0, 0, false
	}
	if last == "" {
		return start, size - 1, true
	}
	end, err = strconv.ParseInt(last, 10, 64)
	return start, min(end, size-1), err == nil && end >= start
}
