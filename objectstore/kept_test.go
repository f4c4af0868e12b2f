package objectstore_test

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
)

// writing is an operation that writes an object of so many bytes, and the ETag
// that the store agreeable answers with.
type writing struct {
	name string
	do   func(key string) error
	size int
	etag string
}

func writings(t *testing.T, g objectstore.Guard, client *s3.Client, bucket string) []writing {
	const ofText = "1cb251ec0d568de6a929b520c4aed8d1"
	small, big := filepath.Join(t.TempDir(), "small"), filepath.Join(t.TempDir(), "big")
	require.NoError(t, os.WriteFile(small, []byte("text"), 0o600))
	require.NoError(t, os.WriteFile(big, make([]byte, 17<<20), 0o600))
	at := aws.String(bucket)
	put := func(wrap func(...io.Reader) io.Reader) func(string) error {
		return func(key string) error {
			_, err := g.PutObject(
				t.Context(),
				client,
				&s3.PutObjectInput{Bucket: at, Key: aws.String(key), Body: wrap(strings.NewReader("text"))},
			)
			return err
		}
	}
	upload := func(file string) func(string) error {
		return func(key string) error {
			_, err := g.UploadFile(
				t.Context(),
				client,
				&transfermanager.UploadObjectInput{Bucket: at, Key: aws.String(key)},
				file,
			)
			return err
		}
	}
	return []writing{
		{"PutObject", put(func(r ...io.Reader) io.Reader { return r[0] }), 4, ofText},
		{"PutObject of a reader", put(io.MultiReader), 4, ofText},
		{"UploadFile", upload(small), 4, ofText},
		{"UploadFile in parts", upload(big), 17 << 20, "many-3"},
		{"CopyObject", func(key string) error {
			_, err := g.CopyObject(
				t.Context(),
				client,
				&s3.CopyObjectInput{Bucket: at, Key: aws.String(key), CopySource: aws.String(bucket + "/from")},
			)
			return err
		}, 4, "copied"},
	}
}

// agreeable answers well to whatever is written; head says what it has of it.
type agreeable struct {
	mu    sync.Mutex
	head  http.HandlerFunc
	heads []http.Header // of the questions
}

func (a *agreeable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	sum := md5.Sum(body)
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:])+`"`)
	switch query := r.URL.Query(); {
	case r.Method == http.MethodHead:
		a.mu.Lock()
		defer a.mu.Unlock()
		a.heads = append(a.heads, r.Header.Clone())
		a.head(w, r)
	case query.Has("uploads"):
		_, _ = io.WriteString(
			w,
			"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>",
		)
	case r.Method == http.MethodPost:
		_, _ = io.WriteString(w, `<CompleteMultipartUploadResult><ETag>"many-3"</ETag></CompleteMultipartUploadResult>`)
	case r.Header.Get("X-Amz-Copy-Source") != "":
		_, _ = io.WriteString(w, `<CopyObjectResult><ETag>copied</ETag></CopyObjectResult>`)
	}
}

// asked forgets the questions.
func (a *agreeable) asked() []http.Header {
	a.mu.Lock()
	defer a.mu.Unlock()
	heads := a.heads
	a.heads = nil
	return heads
}

func (a *agreeable) has(length int, etag string) {
	a.says(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"`+etag+`"`)
		w.Header().Set("Content-Length", strconv.Itoa(length))
	})
}

func (a *agreeable) says(head http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.head = head
}

// A store that makes a folder of a key kept nothing of the body, named the
// right ETag, and the object was reported as stored.
func TestStoreThatKeepsNothingOfABody(t *testing.T) {
	store := &agreeable{}
	s := serve(t, store.ServeHTTP)
	g, b := breaker(t, resilience.Config{FailMax: 1000})
	for _, w := range writings(t, g, plainClient(s.URL), "bucket") {
		for _, row := range []struct {
			name, key string
			set       func()
			ok        bool
		}{
			{"a folder", "a/", func() { store.has(0, "d41d8cd98f00b204e9800998ecf8427e-0") }, false},
			{"a folder by a backslash", `a\`, func() { store.has(0, "d41d8cd98f00b204e9800998ecf8427e-0") }, false},
			{"not there", "a/", func() { store.says(says(404, "")) }, false},
			{"whole", "a/", func() { store.has(w.size, w.etag) }, true},
			{"another's by now", "a/", func() { store.has(7, "another") }, true},
			{"not to be looked at", "a/", func() { store.says(says(403, "")) }, true},
			{"of a length that is not told", "a/", func() {
				store.says(func(w http.ResponseWriter,
					_ *http.Request,
				) {
					w.Header().Set("Transfer-Encoding", "chunked")
				})
			}, true},
		} {
			row.set()
			before := b.Snapshot()
			err := w.do(row.key)
			after := b.Snapshot()
			assert.Equal(t, before.Calls+1, after.Calls, "%s, %s", w.name, row.name)
			assert.Len(t, store.asked(), 1, "%s, %s", w.name, row.name)
			if row.ok {
				require.NoError(t, err, "%s, %s", w.name, row.name)
				continue
			}
			var broken *objectstore.ContractError
			require.ErrorAs(t, err, &broken, "%s, %s", w.name, row.name)
			assert.Equal(t, row.key, broken.Key)
			assert.Equal(t, before.Failures+1, after.Failures, "%s, %s", w.name, row.name)
		}
		store.says(says(500, "InternalError"))
		failures := b.Snapshot().Failures
		err := w.do("a/")
		require.ErrorContains(t, err, "whether the bytes were kept is not known", w.name)
		assert.Equal(t, 500, objectstore.StatusCode(err), w.name)
		assert.Equal(t, failures+1, b.Snapshot().Failures, w.name)
		_ = store.asked()
		require.NoError(t, w.do("a"), "%s: a key that no store takes for a folder", w.name)
		assert.Empty(t, store.asked(), w.name)
	}
}

// A good write was an error, and a denial or a failure at the breaker, where
// the question after it was not for the caller to ask or for the store to
// answer.
func TestQuestionThatHasNoAnswerIsNoError(t *testing.T) {
	store := &agreeable{}
	s := serve(t, store.ServeHTTP)
	g, b := breaker(t, resilience.Config{FailMax: 1})
	for _, w := range writings(t, g, plainClient(s.URL), "bucket") {
		for _, status := range []int{304, 401, 403, 405, 412, 501} {
			store.says(says(status, ""))
			before := b.Snapshot()
			require.NoError(t, w.do("a/"), "%s, %d", w.name, status)
			assert.Len(t, store.asked(), 1, "%s, %d", w.name, status)
			after := b.Snapshot()
			assert.Equal(t, before.Successes+1, after.Successes, "%s, %d", w.name, status)
			assert.Zero(t, after.Failures+after.Denied, "%s, %d", w.name, status)
		}
	}
	store.says(says(503, ""))
	_, err := g.PutObject(t.Context(), plainClient(s.URL), put("a/", "text"))
	require.ErrorContains(t, err, "whether the bytes were kept is not known")
	assert.EqualValues(t, 1, b.Snapshot().Failures)
}

// A condition that the caller's own middleware adds to each request goes with
// the question too, and the object that was just written does not meet it.
func TestCallersConditionOnTheQuestionIsNoError(t *testing.T) {
	store := &agreeable{}
	store.says(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == "*" {
			w.WriteHeader(http.StatusNotModified)
		}
	})
	s := serve(t, store.ServeHTTP)
	g, b := breaker(t, resilience.Config{})
	_, err := g.PutObject(
		t.Context(),
		plainClient(s.URL),
		put("a/", "text"),
		s3.WithAPIOptions(smithyhttp.AddHeaderValue("If-None-Match", "*")),
	)
	require.NoError(t, err)
	asked := store.asked()
	require.Len(t, asked, 1)
	assert.Equal(t, "*", asked[0].Get("If-None-Match"))
	assert.EqualValues(t, 1, b.Snapshot().Successes)
}

// What is not there may have been deleted by somebody else.
func TestObjectThatIsGoneMayHaveBeenDeleted(t *testing.T) {
	store := &agreeable{}
	store.says(says(404, ""))
	s := serve(t, store.ServeHTTP)
	g, _ := breaker(t, resilience.Config{})
	_, err := g.PutObject(t.Context(), plainClient(s.URL), put("a/", "text"))
	var broken *objectstore.ContractError
	require.ErrorAs(t, err, &broken)
	assert.Contains(t, broken.Problem, "deleted")
}

// Small objects have their own ETag in SeaweedFS's folders too. A copy of
// nothing may be a folder.
func TestFolderWithTheETagOfItsBody(t *testing.T) {
	store := &agreeable{}
	s := serve(t, store.ServeHTTP)
	g, _ := breaker(t, resilience.Config{FailMax: 1000})
	for _, w := range writings(t, g, plainClient(s.URL), "bucket") {
		store.has(0, w.etag)
		err := w.do("a/")
		if w.name == "CopyObject" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "bytes were sent and 0 kept", w.name)
	}
	_ = store.asked()
	in := put("a/", "")
	_, err := g.PutObject(t.Context(), plainClient(s.URL), in)
	require.NoError(t, err)
	in.Body = nil
	_, err = g.PutObject(t.Context(), plainClient(s.URL), in)
	require.NoError(t, err)
	assert.Empty(t, store.asked(), "of nothing nothing can be lost")
}

// The question is for the object that was written, with the key that reads it.
func TestQuestionIsForTheObjectThatWasWritten(t *testing.T) {
	store := &agreeable{}
	store.has(4, "e")
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Amz-Version-Id", "v7")
		if r.Method == http.MethodHead {
			assert.Equal(t, "v7", r.URL.Query().Get("versionId"))
		}
		store.ServeHTTP(w, r)
	})
	g, _ := breaker(t, resilience.Config{})
	in := put("a/", "text")
	in.ExpectedBucketOwner, in.RequestPayer = aws.String("owner"), "requester"
	_, err := g.PutObject(t.Context(), plainClient(s.URL), in)
	require.NoError(t, err)
	asked := store.asked()
	require.Len(t, asked, 1)
	assert.Equal(t, "owner", asked[0].Get("X-Amz-Expected-Bucket-Owner"))
	assert.Equal(t, "requester", asked[0].Get("X-Amz-Request-Payer"))
}

// writeOnly is a client that has no HeadObject.
type writeOnly struct{ objectstore.Writer }

func (writeOnly) PutObject(
	_ context.Context, in *s3.PutObjectInput, _ ...func(*s3.Options),
) (*s3.PutObjectOutput, error) {
	_, err := io.Copy(io.Discard, in.Body)
	return &s3.PutObjectOutput{ETag: aws.String("e")}, err
}

func TestClientThatCannotAskIsBelieved(t *testing.T) {
	g, _ := breaker(t, resilience.Config{})
	_, err := g.PutObject(t.Context(), writeOnly{}, put("a/", "text"))
	require.NoError(t, err)
}

// What SeaweedFS makes of keys that end in a slash, and that the embedded store
// keeps them as S3 does.
func TestSeaweedFSKeepsNothingUnderAFolder(t *testing.T) {
	at := upstreams.SeaweedFS(t)
	client := clientFor(t, at)
	defer idle(client)
	g, b := breaker(t, resilience.Config{FailMax: 1000})
	ctx, bucket := t.Context(), aws.String(at.Bucket)
	_, err := g.PutObject(
		ctx,
		client,
		&s3.PutObjectInput{Bucket: bucket, Key: aws.String("from"), Body: strings.NewReader("text")},
	)
	require.NoError(t, err)
	for i, w := range writings(t, g, client, at.Bucket) {
		for _, end := range []string{"/", "//", `\`} {
			key := "folder" + strconv.Itoa(i) + end
			failures := b.Snapshot().Failures
			err := w.do(key)
			var broken *objectstore.ContractError
			require.ErrorAs(t, err, &broken, "%s of %q", w.name, key)
			assert.Equal(t, failures+1, b.Snapshot().Failures, "%s of %q", w.name, key)
		}
		require.NoError(t, w.do("whole"+strconv.Itoa(i)), w.name)
	}
	_, err = g.PutObject(
		ctx,
		client,
		&s3.PutObjectInput{
			Bucket: bucket,
			Key:    aws.String("large/"),
			Body:   strings.NewReader(strings.Repeat("x", 3<<20)),
		},
	)
	var broken *objectstore.ContractError
	require.ErrorAs(t, err, &broken)
	once := &s3.PutObjectInput{Bucket: bucket, Key: aws.String("once/"), IfNoneMatch: aws.String("*")}
	for _, status := range []int{0, 412} {
		once.Body = strings.NewReader("text")
		_, err = g.PutObject(ctx, client, once)
		require.Error(t, err)
		assert.Equal(t, status, objectstore.StatusCode(err), "the folder stays")
	}
	_, err = g.PutObject(ctx, client, &s3.PutObjectInput{Bucket: bucket, Key: aws.String("marker/")})
	require.NoError(t, err, "a folder of nothing is whole")

	store := openStore(t)
	keep(t, store, "from", "text", nil)
	_, err = g.PutObject(ctx, store, put("a/", "text"))
	require.NoError(t, err)
	_, err = g.CopyObject(
		ctx,
		store,
		&s3.CopyObjectInput{Bucket: aws.String("bucket"), Key: aws.String(`b\`), CopySource: aws.String("bucket/from")},
	)
	require.NoError(t, err)
}
