package objectstore

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// ListObjectsV2 is ListObjectsV2 of the S3 client: one page of up to 1,000
// keys. XML has no way to write some keys, such as those with the character
// U+0001, so the store is asked to encode them (EncodingType) and the output
// has them as they are. Where in sets EncodingType itself, the output is the
// store's, encoded.
//
// Of a store that does not encode, such keys come with U+FFFD in place of the
// character, or make the page unreadable: an error that counts as nothing.
func (g Guard) ListObjectsV2(
	ctx context.Context, client Reader, in *s3.ListObjectsV2Input, optFns ...func(*s3.Options),
) (*s3.ListObjectsV2Output, error) {
	list := func(
		ctx context.Context, in *s3.ListObjectsV2Input, optFns ...func(*s3.Options),
	) (*s3.ListObjectsV2Output, error) {
		return listPlain(ctx, client, in, optFns)
	}
	return checked(ctx, g, "ListObjectsV2", in, optFns, list, noList)
}

// ListObjectsV2 is [Guard.ListObjectsV2] through [resilience.S3].
func ListObjectsV2(
	ctx context.Context, client Reader, in *s3.ListObjectsV2Input, optFns ...func(*s3.Options),
) (*s3.ListObjectsV2Output, error) {
	return Guard{}.ListObjectsV2(ctx, client, in, optFns...)
}

func listPlain(
	ctx context.Context, client Reader, in *s3.ListObjectsV2Input, optFns []func(*s3.Options),
) (*s3.ListObjectsV2Output, error) {
	if in.EncodingType != "" {
		return client.ListObjectsV2(ctx, in, optFns...)
	}
	asked := *in // the caller's input stays as it is
	asked.EncodingType = types.EncodingTypeUrl
	out, err := client.ListObjectsV2(ctx, &asked, optFns...)
	if err != nil {
		return out, unreadable(in, err)
	}
	if out.EncodingType == types.EncodingTypeUrl {
		out = decoded(in, out)
	}
	return out, nil
}

// unreadable tells a key that is not XML from an answer that is none at all.
// Go's XML reader has no other sign of it than its words.
func unreadable(in *s3.ListObjectsV2Input, err error) error {
	var syntax *xml.SyntaxError
	if !errors.As(err, &syntax) ||
		!strings.HasPrefix(syntax.Msg, "illegal character code") && syntax.Msg != "invalid UTF-8" {
		return err
	}
	return &localError{fmt.Errorf("objectstore: ListObjectsV2 %s: a key under %q has a character that XML does not have, "+
		"and the store does not encode keys; list with a prefix that leaves it out: %w",
		aws.ToString(in.Bucket), aws.ToString(in.Prefix), err)}
}

// decoded is an answer as it would be if XML could carry every key. What
// repeats the question is taken from there: some stores encode it, some do not.
func decoded(in *s3.ListObjectsV2Input, encoded *s3.ListObjectsV2Output) *s3.ListObjectsV2Output {
	out := *encoded
	out.EncodingType = ""
	for _, echo := range []struct{ out, in **string }{
		{&out.Prefix, &in.Prefix}, {&out.Delimiter, &in.Delimiter}, {&out.StartAfter, &in.StartAfter},
	} {
		if *echo.out != nil && *echo.in != nil {
			*echo.out = *echo.in
		}
	}
	decode := decoder(aws.ToString(in.Prefix), &out)
	out.Contents = slices.Clone(out.Contents)
	for i := range out.Contents {
		out.Contents[i].Key = decode(out.Contents[i].Key)
	}
	out.CommonPrefixes = slices.Clone(out.CommonPrefixes)
	for i := range out.CommonPrefixes {
		out.CommonPrefixes[i].Prefix = decode(out.CommonPrefixes[i].Prefix)
	}
	out.NextContinuationToken = token(&out)
	return &out
}

// decoder is how a store has encoded the keys of a page. S3 and most others
// write a space as "+" or "%20" and a plus as "%2B". All keys begin with the
// prefix that was asked for, which tells a store apart that leaves a plus as it
// is, and one that says that it encodes and does not; so does a character that
// is never left as it is.
func decoder(prefix string, out *s3.ListObjectsV2Output) func(*string) *string {
	for _, decode := range []func(string) (string, error){url.QueryUnescape, url.PathUnescape} {
		if fits(prefix, out, decode) {
			return func(s *string) *string {
				if s == nil {
					return nil
				}
				text, _ := decode(*s)
				return &text
			}
		}
	}
	return func(s *string) *string { return s }
}

func fits(prefix string, out *s3.ListObjectsV2Output, decode func(string) (string, error)) bool {
	good := func(s *string) bool {
		text, err := decode(aws.ToString(s))
		return err == nil && strings.HasPrefix(text, prefix) && !strings.ContainsFunc(aws.ToString(s), unescaped)
	}
	for _, o := range out.Contents {
		if !good(o.Key) {
			return false
		}
	}
	for _, p := range out.CommonPrefixes {
		if !good(p.Prefix) {
			return false
		}
	}
	return true
}

// token is the one for the next page. SeaweedFS's is the last key of this page,
// not encoded: what XML has made of it would skip keys.
func token(out *s3.ListObjectsV2Output) *string {
	text := aws.ToString(out.NextContinuationToken)
	if !strings.ContainsRune(text, unicode.ReplacementChar) {
		return out.NextContinuationToken
	}
	var last []*string
	if n := len(out.Contents); n > 0 {
		last = append(last, out.Contents[n-1].Key)
	}
	if n := len(out.CommonPrefixes); n > 0 {
		last = append(last, out.CommonPrefixes[n-1].Prefix)
	}
	for _, key := range last {
		if lossy(aws.ToString(key)) == text {
			return key
		}
	}
	return out.NextContinuationToken
}

// unescaped are the characters that no encoding leaves as they are.
func unescaped(r rune) bool { return r <= ' ' || r > '~' }

func noList(out *s3.ListObjectsV2Output) string {
	if out.Name == nil && out.IsTruncated == nil && out.KeyCount == nil &&
		len(out.Contents)+len(out.CommonPrefixes) == 0 {
		return "the answer is not one of S3: it is no list"
	}
	return ""
}
