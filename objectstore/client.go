package objectstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"

	"github.com/penstock-go/penstock/internal/cafile"
	"github.com/penstock-go/penstock/resilience"
)

// Config is what [NewClient] needs to know. The zero value is AWS itself, with
// region and credentials from the environment, the shared files or the
// machine's role.
type Config struct {
	// Endpoint is the URL of another S3 server, without a path, a query or a
	// fragment. Default: the AWS_ENDPOINT_URL variables and files, then AWS.
	Endpoint string
	// Region default: the AWS chain, and us-east-1 where there is an Endpoint.
	Region string
	// VirtualHost puts the bucket in the host name at an Endpoint too. Default:
	// in the path there, in the host name at AWS.
	VirtualHost bool

	// AccessKeyID, SecretAccessKey and SessionToken replace the AWS chain
	// (environment, shared files, web identity, container, instance role).
	AccessKeyID, SecretAccessKey, SessionToken string

	// CAFile is a PEM file with the authorities to trust. Default:
	// AWS_CA_BUNDLE, then the system's.
	CAFile string

	// DialTimeout bounds the making of a connection. Default 5 s.
	DialTimeout time.Duration
	// TLSTimeout bounds its handshake. Default 10 s.
	TLSTimeout time.Duration
	// HeaderTimeout bounds the wait from the end of a request to the answer's
	// headers. Default 60 s.
	HeaderTimeout time.Duration
	// IdleTimeout bounds the silence of a connection in the middle of a request
	// or a body. It starts again with every byte, so it does not limit the size
	// of an object. Default 60 s.
	IdleTimeout time.Duration
	// CallTimeout bounds whole calls, those excepted that carry a body (such as
	// PutObject, UploadPart, GetObject) and those that put an object together,
	// while the store sends white space (CopyObject, UploadPartCopy,
	// CompleteMultipartUpload: one hour). Default 2 min.
	CallTimeout time.Duration
	// MaxConns bounds the connections to one host. Default 64.
	MaxConns int

	// Breaker is that of requests which no door has counted: operations without
	// a door, paginators, waiters, a transfer manager, and operations that are
	// called directly. Default resilience.S3. A call through a door counts on
	// the door's breaker alone.
	Breaker *resilience.Breaker
}

func (c Config) normal() (Config, error) {
	c.DialTimeout = orDefault(c.DialTimeout, 5*time.Second)
	c.TLSTimeout = orDefault(c.TLSTimeout, 10*time.Second)
	c.HeaderTimeout = orDefault(c.HeaderTimeout, time.Minute)
	c.IdleTimeout = orDefault(c.IdleTimeout, time.Minute)
	c.CallTimeout = orDefault(c.CallTimeout, 2*time.Minute)
	c.MaxConns = orDefault(c.MaxConns, 64)
	var err error
	if c, err = c.trimmed(); err != nil {
		return c, err
	}
	if min(c.DialTimeout, c.TLSTimeout, c.HeaderTimeout, c.IdleTimeout, c.CallTimeout) < 0 || c.MaxConns < 0 {
		return c, &InputError{"NewClient", "timeouts and MaxConns must not be negative"}
	}
	if (c.AccessKeyID == "") != (c.SecretAccessKey == "") {
		return c, &InputError{"NewClient", "AccessKeyID and SecretAccessKey go together"}
	}
	return c, reachable(c.Endpoint)
}

// reachable refuses an endpoint to which no request can be made; "" is AWS.
func reachable(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.User != nil || u.Scheme != "http" && u.Scheme != "https" ||
		strings.ContainsAny(endpoint, "?#") || !isHost(u.Hostname()) || !isPort(u.Port()) {
		const problem = "the endpoint must be http://host:port or https://host:port, " +
			"without credentials, a query or a fragment in it"
		return &InputError{"NewClient", problem}
	}
	return nil
}

// isHost reports whether name can be that of a host. Letters of other scripts
// are left to net/http.
func isHost(name string) bool {
	if strings.Contains(name, ":") {
		_, err := netip.ParseAddr(name)
		return err == nil
	}
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r < utf8.RuneSelf && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-._", r)
	})
}

func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && port > 0
}

// logged writes what the SDK has to say.
func logged(kind logging.Classification, format string, v ...any) {
	slog.Debug("objectstore: the AWS SDK", "kind", string(kind), "says", fmt.Sprintf(format, v...))
}

func orDefault[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

// NewClient makes an S3 client for production: HTTP/1.1, every wait bounded,
// the SDK's retries off, no redirect followed, and for servers other than AWS
// the bucket in the path and checksums only where S3 requires them, since older
// servers keep the SDK's checksum trailer inside the object. optFns come after
// all that.
//
// Endpoint, region, keys and session token lose outer white space, wherever
// they come from. A control character inside is an *InputError, or a
// *CredentialsError of the first call where they come from elsewhere than the
// Config, the environment and the shared files. What the SDK logs goes to
// log/slog at debug level.
//
// Nothing goes around the breaker: each request that no door has counted, such
// as one for the next page of a paginator, is a call of Config.Breaker, and
// refused while it is open. Where optFns set another Retryer, each of its
// attempts is one. The *resilience.OpenError is found by errors.As in the SDK's
// error. Signing a URL is no call.
//
// No request is made here; an error means that the configuration is wrong.
func NewClient(ctx context.Context, cfg Config, optFns ...func(*s3.Options)) (*s3.Client, error) {
	cfg, err := cfg.normal()
	if err != nil {
		return nil, err
	}
	opts, err := cfg.load()
	if err != nil {
		return nil, err
	}
	loaded, err := config.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("objectstore: cannot load the AWS configuration: %w", err)
	}
	if err = trim(key{"AWS_REGION", &loaded.Region, true}); err != nil {
		return nil, err
	}
	if err = cfg.checkKeys(loaded.ConfigSources); err != nil {
		return nil, err
	}
	signed := new(signers)
	if loaded.HTTPClient, err = cfg.bounded(loaded.HTTPClient, signed); err != nil {
		return nil, err
	}
	if loaded.Credentials != nil {
		loaded.Credentials = explained{loaded.Credentials}
	}
	optFns = append(append([]func(*s3.Options){cfg.apply}, optFns...),
		below{Guard{Breaker: cfg.Breaker}}.option, signed.option)
	client := s3.NewFromConfig(loaded, optFns...)
	if client.Options().Region == "" {
		return nil, &InputError{"NewClient", "no region; set Config.Region or AWS_REGION"}
	}
	if err = reachable(aws.ToString(client.Options().BaseEndpoint)); err != nil {
		return nil, err
	}
	cmp.Or(cfg.Breaker, resilience.S3).Locate(address(client.Options()))
	return client, nil
}

// address is where the store is, for breakers that are shared.
func address(o s3.Options) string {
	if o.BaseEndpoint != nil {
		return strings.TrimRight(*o.BaseEndpoint, "/")
	}
	return "https://s3." + o.Region + ".amazonaws.com"
}

// load is what goes through the AWS chain.
func (c Config) load() ([]func(*config.LoadOptions) error, error) {
	client := awshttp.NewBuildableClient().
		WithReadTimeout(0). // see quietConn
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = c.DialTimeout }).
		WithTransportOptions(c.transport)
	opts := []func(*config.LoadOptions) error{
		config.WithHTTPClient(client),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
		config.WithLogger(logging.LoggerFunc(logged)),
	}
	if c.Region != "" {
		opts = append(opts, config.WithRegion(c.Region))
	}
	if c.AccessKeyID != "" {
		opts = append(opts, config.WithCredentialsProvider(
			credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken)))
	}
	if c.CAFile != "" {
		pem, err := cafile.Read(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("objectstore: %w", err)
		}
		opts = append(opts, config.WithCustomCABundle(bytes.NewReader(pem)))
	}
	return opts, nil
}

// transport has HTTP/1.1 alone: over HTTP/2 the connection is read while nobody
// reads a body, so the silence of a caller who is slow would be the store's,
// and net/http repeats requests by itself. S3 has no operation that needs it.
func (c Config) transport(t *http.Transport) {
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	t.TLSNextProto = nil // what the SDK's transport has learned before
	if t.TLSClientConfig != nil {
		t.TLSClientConfig.NextProtos = nil
	}
	t.TLSHandshakeTimeout = c.TLSTimeout
	t.ResponseHeaderTimeout = c.HeaderTimeout
	t.IdleConnTimeout = min(90*time.Second, c.IdleTimeout/2)
	t.MaxConnsPerHost = c.MaxConns
	t.MaxIdleConnsPerHost = c.MaxConns
	t.MaxResponseHeaderBytes = 256 << 10 // not ten million
}

var errForeignClient = errors.New("objectstore: the AWS configuration replaced the HTTP client")

// bounded puts the silence limit on the client's connections. The result is
// no BuildableClient: of one, the SDK replaces the dialer, wraps the transport
// in one that cannot close its idle connections, and follows redirects of
// status 307 and 308 without an end.
func (c Config) bounded(client aws.HTTPClient, signed *signers) (aws.HTTPClient, error) {
	buildable, ok := client.(*awshttp.BuildableClient)
	if !ok {
		return nil, errForeignClient
	}
	transport := buildable.WithTransportOptions(func(t *http.Transport) {
		dial := t.DialContext
		t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &quietConn{conn, c.IdleTimeout}, nil
		}
	}).GetTransport()
	return &http.Client{
		Transport:     answers{transport, signed},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

func (c Config) apply(o *s3.Options) {
	if c.Endpoint != "" {
		o.BaseEndpoint = aws.String(c.Endpoint)
	}
	if o.BaseEndpoint != nil {
		o.BaseEndpoint = aws.String(strings.TrimSpace(*o.BaseEndpoint)) // that of the environment
		o.Region = orDefault(o.Region, "us-east-1")
		o.UsePathStyle = !c.VirtualHost
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	}
	o.APIOptions = append(o.APIOptions, c.bound)
}

// quietConn fails when nothing has moved on it for a while. The SDK's own read
// timeout looks at reads alone, and a read waits from the moment a connection
// falls idle: an upload that takes longer than the timeout fails in its
// middle, and so does a request on a connection that was idle for almost as
// long.
type quietConn struct {
	net.Conn
	limit time.Duration
}

func (c *quietConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.limit)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write moves the deadline of the read that waits for the answer.
func (c *quietConn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.limit)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// bodied are the operations that take as long as their body does.
var bodied = map[string]bool{
	"GetObject": true, "GetObjectAnnotation": true, "GetObjectTorrent": true, "SelectObjectContent": true,
	"PutObject": true, "PutObjectAnnotation": true, "UploadPart": true, "WriteGetObjectResponse": true,
}

// patient are the operations that a store answers with white space while it
// works, for hours if the objects are large. The connection's silence bounds
// them, and a limit for a store that sends nothing else.
var patient = map[string]bool{"CopyObject": true, "UploadPartCopy": true, "CompleteMultipartUpload": true}

const patience = time.Hour

// limit is the longest that an operation without a body of its own may take.
func (c Config) limit(op string) time.Duration {
	if patient[op] {
		return max(c.CallTimeout, patience)
	}
	return c.CallTimeout
}

// bound gives every other call a deadline.
func (c Config) bound(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("PenstockCallTimeout",
		func(
			ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
		) (middleware.InitializeOutput, middleware.Metadata, error) {
			if op := awsmiddleware.GetOperationName(ctx); !bodied[op] {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.limit(op))
				defer cancel()
			}
			return next.HandleInitialize(ctx, in)
		}), middleware.Before)
}
