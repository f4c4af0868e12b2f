package objectstore_test

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/hostile"
)

// The usual mounted secret ends in a line break: nothing was sent, and five of
// these "failures" opened the breaker.
func TestKeysLoseOuterWhiteSpace(t *testing.T) {
	noAmbient(t)
	var got *http.Request
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { got = r })
	check := func(name string, cfg objectstore.Config) {
		client, err := objectstore.NewClient(t.Context(), cfg)
		require.NoError(t, err, name)
		g, b := breaker(t, resilience.Config{})
		require.NoError(t, headBucket(t.Context(), client, "bucket")(g), name)
		assert.Contains(t, got.Header.Get("Authorization"), "Credential=the-key/", name)
		assert.Contains(t, got.Header.Get("Authorization"), "/eu-west-9/s3/", name)
		assert.Equal(t, "the-token", got.Header.Get("X-Amz-Security-Token"), name)
		credentials, err := client.Options().Credentials.Retrieve(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "the-secret", credentials.SecretAccessKey, name)
		assert.EqualValues(t, 1, b.Snapshot().Successes, name)
	}
	check("config", objectstore.Config{
		Endpoint:    s.URL + "\n",
		AccessKeyID: " the-key\n", SecretAccessKey: "\ufeffthe-secret\r\n", SessionToken: "the-token\n\n",
		Region: "eu-west-9\n",
	})
	t.Setenv("AWS_ENDPOINT_URL_S3", s.URL+"\n")
	t.Setenv("AWS_REGION", "eu-west-9\n")
	t.Setenv("AWS_ACCESS_KEY_ID", "the-key\n")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "the-secret\n")
	t.Setenv("AWS_SESSION_TOKEN", "the-token\r\n")
	check("environment", objectstore.Config{})
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
		t.Setenv(name, "")
	}
	role := serve(t, roleSays("the-key\\n", " the-secret", "the-token\\r\\n"))
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", role.URL)
	check("container", objectstore.Config{})
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
	profile(t, "the-key\ufeff", "the-secret", "the-token")
	check("shared file", objectstore.Config{})
}

// roleSays answers as the credentials service of a container does.
func roleSays(id, secret, token string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"AccessKeyId":"%s","SecretAccessKey":"%s","Token":"%s","Expiration":"2100-01-01T00:00:00Z"}`,
			id, secret, token)
	}
}

// profile writes a shared file.
func profile(t *testing.T, id, secret, token string) {
	file := filepath.Join(t.TempDir(), "credentials")
	text := "[default]\naws_access_key_id = " + id + "\naws_secret_access_key = " + secret +
		"\naws_session_token = " + token + "\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
}

// A control character inside is not white space that somebody added: the key is
// another one, and no header can carry it.
func TestKeysWithControlCharactersAreRefusedBeforeAnyCall(t *testing.T) {
	noAmbient(t)
	s := serve(t, says(200, ""))
	refused := func(name string, cfg objectstore.Config) {
		cfg.Endpoint, cfg.Region = s.URL, cmp.Or(cfg.Region, "eu-west-1")
		_, err := objectstore.NewClient(t.Context(), cfg)
		var input *objectstore.InputError
		require.ErrorAs(t, err, &input, name)
		assert.Contains(t, err.Error(), name)
		assert.NotContains(t, err.Error(), "half", "the error has no part of the key")
	}
	const broken = "half\nhalf"
	refused("AccessKeyID", objectstore.Config{AccessKeyID: broken, SecretAccessKey: "b"})
	refused("SecretAccessKey", objectstore.Config{AccessKeyID: "a", SecretAccessKey: broken})
	refused("SessionToken", objectstore.Config{AccessKeyID: "a", SecretAccessKey: "b", SessionToken: broken})
	refused("Region", objectstore.Config{Region: broken})
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://half\nhalf")
	_, err := objectstore.NewClient(t.Context(), objectstore.Config{AccessKeyID: "a", SecretAccessKey: "b"})
	require.ErrorContains(t, err, "the endpoint must be")
	t.Setenv("AWS_ENDPOINT_URL_S3", "")
	refused("AccessKeyID is nothing but white space", objectstore.Config{AccessKeyID: " \n", SecretAccessKey: "\n"})
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
		t.Setenv("AWS_ACCESS_KEY_ID", "a")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
		t.Setenv("AWS_SESSION_TOKEN", "c")
		t.Setenv(name, broken)
		refused(name+" of the environment has the control character U+000A", objectstore.Config{})
	}
	own := objectstore.Config{Endpoint: s.URL, AccessKeyID: "a", SecretAccessKey: "b"}
	_, err = objectstore.NewClient(t.Context(), own)
	require.NoError(t, err, "the environment is not used")
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
		t.Setenv(name, "")
	}
	own.AccessKeyID, own.SecretAccessKey = "", ""
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	t.Setenv("AWS_SESSION_TOKEN", "\n")
	_, err = objectstore.NewClient(t.Context(), own)
	require.NoError(t, err, "a token that is not there")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_SESSION_TOKEN", "")
	profile(t, "a", "half\x01half", "")
	refused(`AWS_SECRET_ACCESS_KEY of the profile "default"`, objectstore.Config{})
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "")

	role := serve(t, roleSays("a", "half\\nhalf", "c"))
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", role.URL)
	client, err := objectstore.NewClient(t.Context(), objectstore.Config{Endpoint: s.URL})
	require.NoError(t, err, "nobody has been asked yet")
	g, b := breaker(t, resilience.Config{})
	err = headBucket(t.Context(), client, "bucket")(g)
	var missing *objectstore.CredentialsError
	require.ErrorAs(t, err, &missing)
	assert.Contains(t, err.Error(), "AWS_SECRET_ACCESS_KEY, from CredentialsEndpointProvider, has the control character U+000A")
	assert.EqualValues(t, 1, b.Snapshot().Denied)
	assert.Zero(t, s.requests.Load())
}

// Stores repeat headers in their errors, and errors reach logs and spans.
func TestSecretsOfARequestAreNotInItsError(t *testing.T) {
	token, key := strings.Repeat("token/+", 20), strings.Repeat("k", 32)
	encoded := base64.StdEncoding.EncodeToString([]byte(key))
	client := func(url string) *s3.Client {
		return newClient(t, objectstore.Config{
			Endpoint: url, AccessKeyID: "key", SecretAccessKey: "secret", SessionToken: token,
		})
	}
	for name, answer := range map[string]http.HandlerFunc{
		"body":     func(w http.ResponseWriter, r *http.Request) { repeat(w, 403, everything(r)) },
		"failure":  func(w http.ResponseWriter, r *http.Request) { repeat(w, 500, everything(r)) },
		"in a 200": func(w http.ResponseWriter, r *http.Request) { repeat(w, 200, everything(r)) },
		"late": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "\n\n")
			repeat(w, 0, everything(r))
		},
		"request ID": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Amz-Request-Id", r.Header.Get("X-Amz-Security-Token"))
			w.Header().Set("X-Amz-Id-2", r.Header.Get("X-Amz-Server-Side-Encryption-Customer-Key"))
			w.WriteHeader(403)
		},
	} {
		s := serve(t, answer)
		g, b := breaker(t, resilience.Config{FailMax: 100})
		in := &s3.CopyObjectInput{
			Bucket: aws.String("b"), Key: aws.String("k"), CopySource: aws.String("b/from"),
			SSECustomerAlgorithm: aws.String("AES256"), SSECustomerKey: &encoded, SSECustomerKeyMD5: aws.String("m"),
			CopySourceSSECustomerAlgorithm: aws.String("AES256"), CopySourceSSECustomerKey: &encoded,
			CopySourceSSECustomerKeyMD5: aws.String("m"),
		}
		spans.Reset()
		_, err := g.CopyObject(t.Context(), client(s.URL), in)
		require.Error(t, err, name)
		span := fmt.Sprintf("%+v", spans.GetSpans())
		assert.EqualValues(t, 1, b.Snapshot().Calls, name)
		for _, secret := range []string{token, key, encoded} {
			assert.NotContains(t, err.Error(), secret, name)
			assert.NotContains(t, span, secret, name)
		}
		assert.Contains(t, err.Error(), "********", name)
	}
	url := hostile.Serve(t, hostile.Text("HTTP/1.1 200 OK\r\n"+token+"\r\n\r\n"))
	_, err := client(url).HeadBucket(t.Context(), &s3.HeadBucketInput{Bucket: aws.String("b")})
	require.Error(t, err)
	assert.NotContains(t, err.Error(), token)
}

// The secret key is never sent, but the store has it, and may quote it.
func TestTheSecretKeyIsNotInAnError(t *testing.T) {
	const own, of = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "another secret key"
	static := credentials.NewStaticCredentialsProvider("id", of, "")
	for name, option := range map[string]func(*s3.Options){
		own: func(*s3.Options) {},
		of:  func(o *s3.Options) { o.Credentials = static },
	} {
		for _, status := range []int{200, 403, 500} {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) { repeat(w, status, "your key is "+name) })
			client, err := objectstore.NewClient(t.Context(), objectstore.Config{
				Endpoint: s.URL, AccessKeyID: "key", SecretAccessKey: own,
			}, option)
			require.NoError(t, err)
			g, _ := breaker(t, resilience.Config{})
			spans.Reset()
			_, err = g.CopyObject(t.Context(), client, &s3.CopyObjectInput{
				Bucket: aws.String("b"), Key: aws.String("k"), CopySource: aws.String("b/from"),
			})
			require.ErrorContains(t, err, "your key is ********")
			assert.NotContains(t, fmt.Sprintf("%+v %+v", err, spans.GetSpans()), name)
		}
	}
}

func everything(r *http.Request) string {
	raw, _ := base64.StdEncoding.DecodeString(r.Header.Get("X-Amz-Server-Side-Encryption-Customer-Key"))
	all := []string{string(raw)}
	for _, values := range r.Header {
		all = append(all, values...)
	}
	return strings.Join(all, " ")
}

func repeat(w http.ResponseWriter, status int, text string) {
	if status > 0 {
		w.WriteHeader(status)
	}
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", text, text)
}

// An answer is decoded before its text is an error's, and a secret that is
// escaped or split in the XML was whole there.
func TestSecretsThatXMLWritesInAnotherWayAreMasked(t *testing.T) {
	const token = "FwoGZXIvYXdzEBYaD+abc/def==ghijklmnop"
	each := func(form string) string {
		var b strings.Builder
		for _, r := range token {
			fmt.Fprintf(&b, form, r)
		}
		return b.String()
	}
	some := func(oldnew ...string) string { return strings.NewReplacer(oldnew...).Replace(token) }
	const half = "FwoGZXIvYX"
	rest := strings.TrimPrefix(token, half)
	for name, form := range map[string]string{
		"decimal":         each("&#%d;"),
		"hexadecimal":     each("&#x%04X;"),
		"some characters": some("/", "&#x2F;", "+", "&#43;", "=", "&#61;"),
		"CDATA":           "<![CDATA[" + token + "]]>",
		"CDATA, split":    "<![CDATA[" + half + "]]>" + rest,
		"two of them":     "<![CDATA[" + half + "]]><![CDATA[" + rest + "]]>",
		"comment":         half + "<!-- x -->" + rest,
		"instruction":     half + "<?x y?>" + rest,
		"element":         half + "<b>bold</b>" + rest,
		"percent":         some("+", "%2b", "/", "%2f", "=", "%3d"),
		"percent in XML":  some("+", "&#37;2B", "/", "&#37;2f", "=", "%3D"),
		"JSON":            some("/", `\/`),
		"base64url":       some("+", "-", "/", "_"),
	} {
		for _, status := range []int{200, 403, 500} {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				fmt.Fprintf(w, "<?xml version=\"1.0\"?>\n<Error xmlns=\"u\"><Code>%s</Code>"+
					"<Message>a &lt; b: %s</Message><RequestId>%s</RequestId></Error>", form, form, form)
			})
			client := newClient(t, objectstore.Config{
				Endpoint: s.URL, AccessKeyID: "key", SecretAccessKey: "secret", SessionToken: token,
			})
			g, _ := breaker(t, resilience.Config{})
			_, err := g.CopyObject(t.Context(), client, &s3.CopyObjectInput{
				Bucket: aws.String("b"), Key: aws.String("k"), CopySource: aws.String("b/from"),
			})
			at := fmt.Sprintf("%s, %d: %v", name, status, err)
			require.Error(t, err, at)
			assert.NotContains(t, err.Error(), "ghijklmnop", at)
			assert.Contains(t, err.Error(), "a < b: ********", at)
		}
	}
}
