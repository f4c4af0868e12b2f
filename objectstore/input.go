package objectstore

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// subject is what an input of an operation is about. One that does not name it,
// or names what a store takes for something else, is an *InputError: with the
// bucket in the path, DeleteObject of the key "reports" in the bucket ""
// deletes the bucket "reports".
func subject(op string, in any) (target, error) {
	v := reflect.Indirect(reflect.ValueOf(in))
	if !v.IsValid() {
		return target{op: op}, &InputError{op, "the input is nil"}
	}
	bucket, key := member(v, "Bucket"), member(v, "Key")
	problem := noBucket("Bucket", bucket)
	if problem == "" && v.FieldByName("Key").IsValid() {
		problem = noKey("Key", key)
	}
	t := about(op, bucket, key)
	if problem != "" {
		return t, &InputError{op, problem}
	}
	switch in := in.(type) {
	case *s3.CopyObjectInput:
		return t, copyable(op, in.CopySource)
	case *s3.DeleteObjectsInput:
		return t, deletable(op, in)
	}
	return t, nil
}

// refuse is a call that ends with err before anything is sent, and is ignored:
// spans and counters show that somebody made a mistake.
func refuse[T any](ctx context.Context, g Guard, t target, err error) (T, error) {
	return call(ctx, g, t, func(context.Context) (v T, _ error) { return v, err })
}

// noBucket is why a field names no bucket, or "". An ARN may have slashes; the
// SDK reads it.
func noBucket(field string, bucket *string) string {
	name := aws.ToString(bucket)
	switch {
	case name == "":
		return field + " is empty; name a bucket"
	case name == ".", name == "..", strings.ContainsAny(name, `/\`) && !arn.IsARN(name):
		return fmt.Sprintf("%s: %q is not the name of a bucket", field, name)
	}
	return ""
}

// noKey is why a field names no object, or "". A key of slashes alone is the
// bucket to some stores, and the segments "." and ".." lead to another object,
// in stores and in what is before them. SeaweedFS takes a backslash for a
// slash.
func noKey(field string, key *string) string {
	name := aws.ToString(key)
	if name == "" {
		return field + " is empty; name an object"
	}
	empty := true
	for segment := range strings.FieldsFuncSeq(name, isSlash) {
		empty = false
		if segment == "." || segment == ".." {
			return fmt.Sprintf(`%s: %q has a segment "." or "..", which leads to another object`, field, name)
		}
	}
	if empty {
		return fmt.Sprintf("%s: %q does not name an object, but a folder", field, name)
	}
	return ""
}

func isSlash(r rune) bool { return r == '/' || r == '\\' }

// copyable refuses a source that does not name a bucket and a key: of one,
// SeaweedFS makes an empty object.
func copyable(op string, source *string) error {
	const field = "CopySource"
	path, _, _ := strings.Cut(aws.ToString(source), "?") // the version
	if text, err := url.PathUnescape(path); err == nil {
		path = text
	}
	bucket, key, found := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if arn.IsARN(path) {
		bucket, key, found = strings.Cut(path, "/object/")
	}
	problem := cmp.Or(noBucket(field, &bucket), noKey(field, &key))
	if !found {
		problem = fmt.Sprintf("%s: %q has no slash", field, aws.ToString(source))
	}
	if problem != "" {
		return &InputError{op, problem + `; it is "bucket/key", percent-encoded`}
	}
	return nil
}

// deletable refuses keys that name nothing, and those that the XML of the
// request would change into others: stores then say that these are deleted, and
// nothing is.
func deletable(op string, in *s3.DeleteObjectsInput) error {
	if in.Delete == nil {
		return &InputError{op, "Delete is nil; name the keys in it"}
	}
	for i, o := range in.Delete.Objects {
		if problem := noKey(fmt.Sprintf("Delete.Objects[%d].Key", i), o.Key); problem != "" {
			return &InputError{op, problem}
		}
		if key := aws.ToString(o.Key); lossy(key) != key {
			return &InputError{op, fmt.Sprintf("XML cannot carry the key %q; delete it with DeleteObject", key)}
		}
	}
	return nil
}

// lossy is text as it comes out of XML: characters that XML does not have are
// the replacement character.
func lossy(text string) string {
	return strings.Map(func(r rune) rune {
		if inXML(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

func inXML(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= ' ' && r != 0xFFFE && r != 0xFFFF
}
