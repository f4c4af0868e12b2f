package objectstore

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// mayBeFolder reports whether a store may make a folder of a key and drop the
// body. SeaweedFS does: it answers well, with the MD5 of what it dropped, and
// takes a backslash for a slash.
func mayBeFolder(key string) bool { return strings.HasSuffix(key, "/") || strings.HasSuffix(key, `\`) }

// unanswerable are the answers to the question that say nothing of the object's
// bytes: the caller may write and not read, the store has no such question, or
// a condition that the caller puts on every request is not met.
var unanswerable = map[int]bool{
	http.StatusNotModified:        true,
	http.StatusUnauthorized:       true,
	http.StatusForbidden:          true,
	http.StatusMethodNotAllowed:   true,
	http.StatusPreconditionFailed: true,
	http.StatusNotImplemented:     true,
}

// written is an object as the answer to its writing describes it.
type written struct {
	target
	etag *string
	size int64 // what was sent; negative for a copy
}

// kept asks for an object whose body may have been dropped, if the client can.
// Where the caller may not ask or the store has no answer, nothing is learnt
// and the write stands.
func (w written) kept(ctx context.Context, client any, in s3.HeadObjectInput, optFns []func(*s3.Options)) error {
	api, ok := client.(interface {
		HeadObject(
			ctx context.Context, in *s3.HeadObjectInput, optFns ...func(*s3.Options),
		) (*s3.HeadObjectOutput, error)
	})
	if !ok || w.size == 0 || !mayBeFolder(w.key) {
		return nil
	}
	in.Bucket, in.Key = aws.String(w.bucket), aws.String(w.key)
	out, err := api.HeadObject(ctx, &in, optFns...)
	switch {
	case err == nil:
		return w.broken(w.lacks(out))
	case unanswerable[StatusCode(err)]:
		return nil
	case StatusCode(err) == http.StatusNotFound:
		return w.broken("it was answered well and the object is not there, unless somebody else has deleted it since")
	}
	return fmt.Errorf("objectstore: %s %s/%s was answered well, and whether the bytes were kept is not known: %w",
		w.op, w.bucket, w.key, err)
}

// lacks is what is missing of the object. One that has bytes and another ETag
// is somebody else's, who wrote it meanwhile.
func (w written) lacks(out *s3.HeadObjectOutput) string {
	if out.ContentLength == nil {
		return ""
	}
	const folder = "to this store a key with a slash at its end is a folder"
	has, same := *out.ContentLength, bare(out.ETag) == bare(w.etag)
	switch {
	case has == w.size, has > 0 && !same:
		return ""
	case w.size >= 0:
		return fmt.Sprintf("%d bytes were sent and %d kept: %s", w.size, has, folder)
	case has == 0 && !same:
		return "no bytes were kept: " + folder
	}
	return ""
}

// bare is an ETag without its quotes, which some answers lack.
func bare(etag *string) string { return strings.Trim(aws.ToString(etag), `"`) }
