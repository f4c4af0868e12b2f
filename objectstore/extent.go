package objectstore

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// extent is where the bytes of an answer begin and how long the object is, -1
// where the store does not say. There is a problem unless they are all its
// bytes, or all from the one that was asked for.
func extent(got *s3.GetObjectOutput, asked int64) (start, total int64, problem string) {
	status := statusOf(got)
	switch {
	case status != 0 && status != http.StatusOK && status != http.StatusPartialContent:
		return 0, 0, fmt.Sprintf("an object does not come with the status %d", status)
	case got.ContentLength != nil && *got.ContentLength < 0:
		return 0, 0, fmt.Sprintf("the Content-Length is %d", *got.ContentLength)
	case got.ContentRange != nil:
		return extentOf(*got.ContentRange, got.ContentLength, asked, status)
	case status == http.StatusPartialContent:
		return 0, 0, "a part of the object came, and no Content-Range says which"
	case got.ContentLength != nil:
		return 0, *got.ContentLength, ""
	}
	return 0, -1, ""
}

// extentOf is the extent that a Content-Range says. With the status 206 it is
// what was asked for, with 200 it is the whole.
func extentOf(text string, length *int64, asked int64, status int) (start, total int64, problem string) {
	start, last, total, ok := parseRange(text)
	switch {
	case !ok:
		return 0, 0, fmt.Sprintf("the Content-Range %q cannot be read", text)
	case start > last || last != total-1:
		return 0, 0, fmt.Sprintf("the Content-Range %q does not reach to the end of the object", text)
	case length != nil && *length != total-start:
		return 0, 0, fmt.Sprintf("the Content-Range is %q and the Content-Length %d", text, *length)
	case start == asked && (asked == 0 || status != http.StatusOK), start == 0 && status != http.StatusPartialContent:
		return start, total, ""
	}
	return 0, 0, fmt.Sprintf("the bytes from %d on were asked for, the Content-Range is %q", asked, text)
}

// contentRange is the form of those that say everything.
var contentRange = regexp.MustCompile(`^(?i:bytes) (\d+)-(\d+)/(\d+)$`)

func parseRange(text string) (start, last, total int64, ok bool) {
	m := contentRange.FindStringSubmatch(text)
	if m == nil {
		return 0, 0, 0, false
	}
	for i, n := range []*int64{&start, &last, &total} {
		var err error
		if *n, err = strconv.ParseInt(m[i+1], 10, 64); err != nil {
			return 0, 0, 0, false
		}
	}
	return start, last, total, true
}

// statusOf is the status of an answer, or 0 where it did not come over HTTP.
func statusOf(got *s3.GetObjectOutput) int {
	resp, ok := awsmiddleware.GetRawResponse(got.ResultMetadata).(*smithyhttp.Response)
	if !ok || resp == nil || resp.Response == nil {
		return 0
	}
	return resp.StatusCode
}
