package objectstore_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/objectstore/objectstoretest"
	"github.com/penstock-go/penstock/resilience"
)

// page answers with a page of these keys, as they are written in XML.
func page(encoding, prefix string, keys ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<ListBucketResult><Name>bucket</Name><Prefix>"+prefix+"</Prefix>")
		if encoding != "" {
			_, _ = io.WriteString(w, "<EncodingType>"+encoding+"</EncodingType>")
		}
		for _, key := range keys {
			element := "<Contents><Key>%s</Key></Contents>"
			if strings.HasSuffix(key, "/") {
				element = "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>"
			}
			fmt.Fprintf(w, element, key)
		}
		_, _ = io.WriteString(w, "</ListBucketResult>")
	}
}

func keysOf(out *s3.ListObjectsV2Output) (keys []string) {
	for _, o := range out.Contents {
		keys = append(keys, aws.ToString(o.Key))
	}
	for _, p := range out.CommonPrefixes {
		keys = append(keys, aws.ToString(p.Prefix))
	}
	return keys
}

// Stores encode keys in several ways, or say that they do and do not.
func TestKeysOfAListingAreWhatWasPut(t *testing.T) {
	for name, row := range map[string]struct {
		encoding, prefix string // the answer's
		keys             []string
		want             []string
	}{
		"as S3 does": {
			"url", "a%2B+/",
			[]string{"a%2B+/b+c", "a%2B+/%01", "a%2B+/%2520", "a%2B+/%C3%BC", "a%2B+/d%2F/"},
			[]string{"a+ /b c", "a+ /\x01", "a+ /%20", "a+ /ü", "a+ /d//"},
		},
		"as SeaweedFS does": {
			"url", "a+ /",
			[]string{"a%2B%20/b+c", "a%2B%20/%01", "a%2B%20/d%20e/"},
			[]string{"a+ /b c", "a+ /\x01", "a+ /d e/"},
		},
		"a plus left as it is": {
			"url", "a+ /",
			[]string{"a+%20/b%20c", "a+%20/b+c", "a+%20/%01/"},
			[]string{"a+ /b c", "a+ /b+c", "a+ /\x01/"},
		},
		"said and not done":  {"url", "a+ /", []string{"a+ /b%20c", "a+ /100%"}, []string{"a+ /b%20c", "a+ /100%"}},
		"neither":            {"", "a+ /", []string{"a+ /b%20c", "a+ /b+c"}, []string{"a+ /b%20c", "a+ /b+c"}},
		"encoded by request": {"url", "a", nil, nil},
	} {
		s := serve(t, page(row.encoding, row.prefix, row.keys...))
		g, _ := breaker(t, resilience.Config{})
		in := &s3.ListObjectsV2Input{Bucket: aws.String("bucket"), Prefix: aws.String("a+ /")}
		out, err := g.ListObjectsV2(t.Context(), plainClient(s.URL), in)
		require.NoError(t, err, name)
		assert.Equal(t, row.want, keysOf(out), name)
		assert.Empty(t, out.EncodingType, name)
		if row.encoding != "" {
			assert.Equal(t, "a+ /", aws.ToString(out.Prefix), name)
		}
		assert.Empty(t, in.EncodingType, "the caller's input stays as it is")
		assert.EqualValues(t, 1, s.requests.Load(), name)

		in.EncodingType = types.EncodingTypeUrl
		out, err = g.ListObjectsV2(t.Context(), plainClient(s.URL), in)
		require.NoError(t, err, name)
		assert.Equal(t, row.keys, keysOf(out), "%s, encoded by request", name)
		assert.Equal(t, row.encoding, string(out.EncodingType), name)
	}
}

// Without a prefix it is told by what no encoding leaves as it is.
func TestStoreThatOnlySaysThatItEncodes(t *testing.T) {
	g, _ := breaker(t, resilience.Config{})
	for _, row := range [][2][]string{
		{{"a b", "100%25", "a+b"}, {"a b", "100%25", "a+b"}},
		{{"ü", "100%25"}, {"ü", "100%25"}},
		{{"100%"}, {"100%"}},
		{{"100%25", "a+b"}, {"100%", "a b"}},
	} {
		s := serve(t, page("url", "", row[0]...))
		in := &s3.ListObjectsV2Input{Bucket: aws.String("bucket")}
		out, err := g.ListObjectsV2(t.Context(), plainClient(s.URL), in)
		require.NoError(t, err)
		assert.Equal(t, row[1], keysOf(out))
	}
}

// A page with a key that is not XML was a failure of the store.
func TestKeyThatIsNoXMLIsNoFailure(t *testing.T) {
	for _, key := range []string{"a\x01b", "a&#1;b", "a\xffb", "a\x00"} {
		s := serve(t, page("", "", key))
		g, b := breaker(t, resilience.Config{})
		_, err := g.ListObjectsV2(t.Context(), plainClient(s.URL), &s3.ListObjectsV2Input{Bucket: aws.String("bucket")})
		require.ErrorContains(t, err, "a character that XML does not have", "%q", key)
		counted := b.Snapshot()
		assert.Equal(t, [2]uint64{0, 1}, [2]uint64{counted.Failures, counted.Ignored}, "%q: %v", key, err)
	}
	s := serve(t, page("", "", "a</Key>"))
	g, b := breaker(t, resilience.Config{})
	_, err := g.ListObjectsV2(t.Context(), plainClient(s.URL), &s3.ListObjectsV2Input{Bucket: aws.String("bucket")})
	require.Error(t, err)
	assert.EqualValues(t, 1, b.Snapshot().Failures, "broken XML is another matter")
}

// SeaweedFS names the last key of a page in the token for the next one, as XML
// has it, and keys were skipped.
func TestTokenThatXMLHasChanged(t *testing.T) {
	answer := func(token string, keys ...string) *s3.ListObjectsV2Output {
		out := &s3.ListObjectsV2Output{EncodingType: types.EncodingTypeUrl, NextContinuationToken: &token}
		for _, key := range keys {
			out.Contents = append(out.Contents, types.Object{Key: aws.String(key)})
		}
		out.CommonPrefixes = append(out.CommonPrefixes, types.CommonPrefix{Prefix: aws.String("p%02/")})
		return out
	}
	g, _ := breaker(t, resilience.Config{})
	for _, row := range []struct {
		page *s3.ListObjectsV2Output
		want string
	}{
		{answer("a\ufffd", "a", "a%01"), "a\x01"},
		{answer("p\ufffd/", "a", "a%01"), "p\x02/"},
		{answer("b\ufffd", "b%EF%BF%BD"), "b\ufffd"},
		{answer("opaque \ufffd", "a%01"), "opaque \ufffd"},
		{answer("opaque", "a%01"), "opaque"},
	} {
		in := &s3.ListObjectsV2Input{Bucket: aws.String("bucket")}
		out, err := g.ListObjectsV2(t.Context(), paging{page: row.page}, in)
		require.NoError(t, err)
		assert.Equal(t, row.want, aws.ToString(out.NextContinuationToken))
		assert.Equal(t, types.EncodingTypeUrl, row.page.EncodingType, "the client's answer stays as it is")
	}
}

type paging struct {
	objectstore.Reader
	page *s3.ListObjectsV2Output
}

func (p paging) ListObjectsV2(
	context.Context, *s3.ListObjectsV2Input, ...func(*s3.Options),
) (*s3.ListObjectsV2Output, error) {
	return p.page, nil
}

// Every key comes back from a listing through the door as it was put, with
// pages of any size.
func testKeysReturn(t *testing.T, client objectstoretest.API, bucket string) {
	g, _ := breaker(t, resilience.Config{})
	want := map[string]bool{}
	for _, key := range []string{
		"sp ace", "pl+us", "pc%20t", "ünï", "c\x02", "c\x02a/b", "cab", "tab\tx", "nl\nx", "cr\rx",
		"del\x7f", "q?&=#:@$!*'();,~",
		"d+d/na me", "d d/na+me", "d%d/x%20y", "d\x01d/a\x01b", "<a>&\"", "\uffff", "\ufffd",
		"e /ü+ é", "deep/er/a b+c",
	} {
		key = "return/" + key
		want[key] = true
		in := &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader(key)}
		_, err := g.PutObject(t.Context(), client, in)
		require.NoError(t, err, "%q", key)
	}
	for _, size := range []int32{1000, 2, 3} {
		in := &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: aws.String("return/"), MaxKeys: aws.Int32(size)}
		got := map[string]bool{}
		for {
			page, err := g.ListObjectsV2(t.Context(), client, in)
			require.NoError(t, err)
			for _, key := range keysOf(page) {
				got[key] = true
			}
			if in.ContinuationToken = page.NextContinuationToken; in.ContinuationToken == nil {
				break
			}
		}
		assert.Equal(t, want, got, "pages of %d", size)
	}
	for key := range want {
		out, err := g.GetObject(t.Context(), client, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
		require.NoError(t, err, "%q", key)
		body, err := io.ReadAll(out.Body)
		require.NoError(t, err)
		require.NoError(t, out.Body.Close())
		assert.Equal(t, key, string(body))
	}
}

func TestKeysReturnFromTheEmbeddedStore(t *testing.T) { testKeysReturn(t, openStore(t), "bucket") }

func TestKeysReturnFromSeaweedFS(t *testing.T) {
	at := upstreams.SeaweedFS(t)
	client := clientFor(t, at)
	defer idle(client)
	testKeysReturn(t, client, at.Bucket)
}

// What SeaweedFS makes of text in headers: UTF-8 survives. Of a tab it says
// that the signature is wrong, so the door does not send it.
func TestSeaweedFSKeepsTextOfHeaders(t *testing.T) {
	at := upstreams.SeaweedFS(t)
	client := clientFor(t, at)
	defer idle(client)
	const text = `attachment; filename="ü 文.txt"`
	g, _ := breaker(t, resilience.Config{})
	in := &s3.PutObjectInput{
		Bucket: aws.String(at.Bucket), Key: aws.String("headers"), Body: strings.NewReader("text"),
		ContentDisposition: aws.String(text), CacheControl: aws.String(text), ContentLanguage: aws.String(text),
		ContentType: aws.String(text),
	}
	_, err := g.PutObject(t.Context(), client, in)
	require.NoError(t, err)
	head, err := g.HeadObject(t.Context(), client, &s3.HeadObjectInput{Bucket: in.Bucket, Key: in.Key})
	require.NoError(t, err)
	for _, got := range []*string{head.ContentDisposition, head.CacheControl, head.ContentLanguage, head.ContentType} {
		assert.Equal(t, text, aws.ToString(got))
	}
	in.Body, in.ContentDisposition = strings.NewReader("text"), aws.String("a\tb")
	_, err = client.PutObject(t.Context(), in)
	require.ErrorContains(t, err, "SignatureDoesNotMatch")
}
