package objectstore_test

import (
	"cmp"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// noAmbient keeps the machine's AWS settings out of a test.
func noAmbient(t *testing.T) {
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION",
		"AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func newClient(t *testing.T, cfg objectstore.Config, optFns ...func(*s3.Options)) *s3.Client {
	t.Helper()
	if cfg.AccessKeyID == "" {
		cfg.AccessKeyID, cfg.SecretAccessKey = "key", "secret"
	}
	cfg.Breaker = cmp.Or(cfg.Breaker, testutil.NewBreaker(t, "below", resilience.Config{}))
	client, err := objectstore.NewClient(t.Context(), cfg, optFns...)
	require.NoError(t, err)
	return client
}

func TestNewClientRefusesBadConfig(t *testing.T) {
	noAmbient(t)
	for name, cfg := range map[string]objectstore.Config{
		"no region":            {},
		"endpoint no URL":      {Endpoint: "localhost:9000"},
		"endpoint ftp":         {Endpoint: "ftp://host"},
		"endpoint with secret": {Endpoint: "http://user:pass@host"},
		"half a key":           {Region: "eu-west-1", AccessKeyID: "key"},
		"negative timeout":     {Region: "eu-west-1", DialTimeout: -1},
	} {
		_, err := objectstore.NewClient(t.Context(), cfg)
		var input *objectstore.InputError
		assert.ErrorAs(t, err, &input, name)
		assert.NotContains(t, err.Error(), "pass", name)
	}
	_, err := objectstore.NewClient(t.Context(), objectstore.Config{Region: "eu-west-1", CAFile: "/no/such/file"})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestNewClientDefaults(t *testing.T) {
	noAmbient(t)
	atAWS := newClient(t, objectstore.Config{Region: "eu-west-1"}).Options()
	assert.False(t, atAWS.UsePathStyle)
	assert.Equal(t, aws.RequestChecksumCalculationWhenSupported, atAWS.RequestChecksumCalculation)
	elsewhere := newClient(t, objectstore.Config{Endpoint: "http://localhost:1"}).Options()
	assert.True(t, elsewhere.UsePathStyle)
	assert.Equal(t, "us-east-1", elsewhere.Region)
	assert.Equal(t, aws.RequestChecksumCalculationWhenRequired, elsewhere.RequestChecksumCalculation)
	assert.Equal(t, aws.ResponseChecksumValidationWhenRequired, elsewhere.ResponseChecksumValidation)
	assert.Equal(t, 1, elsewhere.Retryer.MaxAttempts())
	assert.False(
		t,
		newClient(t, objectstore.Config{Endpoint: "http://localhost:1", VirtualHost: true}).Options().UsePathStyle,
	)
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://localhost:2")
	assert.True(
		t,
		newClient(t, objectstore.Config{}).Options().UsePathStyle,
		"an endpoint from the environment is one too",
	)
}

func TestNewClientMakesOneAttempt(t *testing.T) {
	s := serve(t, says(500, "InternalError"))
	_, err := newClient(t, objectstore.Config{Endpoint: s.URL}).PutObject(t.Context(), put("key", "text"))
	require.Error(t, err)
	assert.Equal(t, int32(1), s.requests.Load())
}

// TestNoTrailerInTheObject: with the SDK's default checksums the body on the
// wire is not the object.
func TestNoTrailerInTheObject(t *testing.T) {
	var body string
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body = string(b) + r.Header.Get("Content-Encoding")
	})
	g, _ := breaker(t, resilience.Config{})
	in := put("key", "")
	in.Body = io.MultiReader(strings.NewReader("te"), strings.NewReader("xt"))
	_, err := g.PutObject(t.Context(), newClient(t, objectstore.Config{Endpoint: s.URL}), in)
	require.NoError(t, err)
	assert.Equal(t, "text", body)
}

func TestMissingCredentialsAreDenied(t *testing.T) {
	noAmbient(t)
	s := serve(t, says(200, ""))
	client, err := objectstore.NewClient(t.Context(), objectstore.Config{Endpoint: s.URL})
	require.NoError(t, err)
	g, b := breaker(t, resilience.Config{})
	for range 6 {
		_, err = g.PutObject(t.Context(), client, put("key", "text"))
		var missing *objectstore.CredentialsError
		require.ErrorAs(t, err, &missing)
	}
	assert.Equal(t, uint64(6), b.Snapshot().Denied)
	assert.Zero(t, s.requests.Load())
}

func TestCustomCA(t *testing.T) {
	s := httptest.NewTLSServer(says(404, "NoSuchKey"))
	t.Cleanup(s.Close)
	s.Config.ErrorLog = nil
	file := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	require.NoError(t, os.WriteFile(file, block, 0o600))
	g, b := breaker(t, resilience.Config{})
	_, err := g.GetObject(t.Context(), newClient(t, objectstore.Config{Endpoint: s.URL, CAFile: file}), get("key"))
	require.Error(t, err)
	assert.Equal(t, uint64(1), b.Snapshot().Successes, "a 404 over TLS: %v", err)
	_, err = g.GetObject(t.Context(), newClient(t, objectstore.Config{Endpoint: s.URL}), get("key"))
	require.ErrorContains(t, err, "certificate")
	assert.Equal(t, uint64(1), b.Snapshot().Failures)
	noAmbient(t)
	t.Setenv("AWS_CA_BUNDLE", file)
	_, err = g.GetObject(t.Context(), newClient(t, objectstore.Config{Endpoint: s.URL}), get("key"))
	require.ErrorContains(t, err, "NoSuchKey")
}

func TestTimeouts(t *testing.T) {
	const short = 50 * time.Millisecond
	hang := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	stall := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "01234")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	for _, row := range []struct {
		name   string
		answer http.HandlerFunc
		cfg    objectstore.Config
	}{
		{"no headers", hang, objectstore.Config{HeaderTimeout: short}},
		{"silent connection", hang, objectstore.Config{IdleTimeout: short}},
		{"body stalls", stall, objectstore.Config{IdleTimeout: short}},
	} {
		s := serve(t, row.answer)
		row.cfg.Endpoint = s.URL
		g, b := breaker(t, resilience.Config{})
		out, err := g.GetObject(t.Context(), newClient(t, row.cfg), get("key"))
		if err == nil {
			_, err = io.ReadAll(out.Body)
			_ = out.Body.Close()
		}
		require.Error(t, err, row.name)
		assert.Equal(t, uint64(1), b.Snapshot().Failures, "%s: %v", row.name, err)
	}
	s := serve(t, hang)
	g, b := breaker(t, resilience.Config{})
	_, err := g.HeadBucket(
		t.Context(),
		newClient(t, objectstore.Config{Endpoint: s.URL, CallTimeout: time.Second}), // a busy machine signs slowly
		&s3.HeadBucketInput{Bucket: aws.String("bucket")},
	)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, uint64(1), b.Snapshot().Failures)
}

// TestSlowUploadOutlivesTheIdleTimeout: the SDK's read timeout runs while an
// upload is being sent, and would end it here.
func TestSlowUploadOutlivesTheIdleTimeout(t *testing.T) {
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	client := newClient(t, objectstore.Config{Endpoint: s.URL, IdleTimeout: 500 * time.Millisecond})
	g, _ := breaker(t, resilience.Config{})
	in := put("key", "")
	in.Body, in.ContentLength = &slowBody{Reader: strings.NewReader(strings.Repeat("x", 96<<10))}, aws.Int64(96<<10)
	_, err := g.PutObject(t.Context(), client, in, v4Unsigned)
	require.NoError(t, err)
}

// slowBody gives 8 KiB each 50 ms: a busy machine is late by some of these.
type slowBody struct {
	*strings.Reader
	ticker *time.Ticker
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.ticker == nil {
		b.ticker = time.NewTicker(50 * time.Millisecond)
	}
	<-b.ticker.C
	return b.Reader.Read(p[:min(len(p), 8<<10)])
}

func v4Unsigned(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, swapPayloadHash)
}

func TestServiceErrorsOfCredentialsAreNotS3s(t *testing.T) {
	// A failing token service answers with errors of the same types as S3's.
	sts := serve(t, says(500, "InternalError"))
	_, cause := plainClient(sts.URL).PutObject(t.Context(), put("key", "text"), noRetry)
	err := &objectstore.CredentialsError{Err: cause}
	assert.Equal(t, resilience.Denied, objectstore.Classify(t.Context(), err).Outcome)
	assert.True(t, errors.Is(err, cause))
}

var swapPayloadHash = v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware

// Over HTTP/2 a caller that paused for longer than IdleTimeout between two
// reads of a body had a failed connection.
func TestConnectionsSpeakHTTP1(t *testing.T) {
	spoken := ""
	note := func(_ http.ResponseWriter, r *http.Request) { spoken = r.Proto }
	s := httptest.NewUnstartedServer(http.HandlerFunc(note))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	require.NoError(t, os.WriteFile(file, text, 0o600))
	client := newClient(t, objectstore.Config{Endpoint: s.URL, CAFile: file})
	defer idle(client)
	g, _ := breaker(t, resilience.Config{})
	require.NoError(t, headBucket(t.Context(), client, "bucket")(g))
	assert.Equal(t, "HTTP/1.1", spoken)
}

func TestEndpointIsThatOfAServer(t *testing.T) {
	noAmbient(t)
	try := func(endpoint string) error {
		_, err := objectstore.NewClient(t.Context(), objectstore.Config{
			Endpoint: endpoint, AccessKeyID: "a", SecretAccessKey: "b",
		})
		return err
	}
	for _, endpoint := range []string{
		"http://localhost", "http://localhost:8333/", "https://a_b.example:65535", "http://[::1]:8333", "http://[::1]",
		"http://127.0.0.1:1", "http://ü.example",
	} {
		require.NoError(t, try(endpoint), endpoint)
	}
	for _, endpoint := range []string{
		"localhost:8333", "http://", "https://:8333", "http://*", "http://*.example", "http://a,b", "http://(a)",
		"http://localhost:0", "http://localhost:65536", "http://localhost:99999", "http://localhost:x",
		"http://localhost?x=1", "http://localhost/?", "http://localhost#f", "http://localhost/#",
		"http://u:p@localhost", "http://[x]", "http://a b", "ftp://localhost",
	} {
		var input *objectstore.InputError
		require.ErrorAs(t, try(endpoint), &input, endpoint)
	}
}
