package vectorstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"time"
	"unicode"

	grpc_retry "github.com/grpc-ecosystem/go-grpc-middleware/retry"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/penstock-go/penstock/grpcdoor"
	"github.com/penstock-go/penstock/internal/cafile"
	"github.com/penstock-go/penstock/internal/secret"
	"github.com/penstock-go/penstock/resilience"
)

const (
	defaultCallTimeout = 30 * time.Second
	maxMessage         = 64 << 20 // what the server takes
)

// Config is how to reach a Milvus server. Only Address is needed.
type Config struct {
	// Address is host:port or a URL; https:// switches TLS on. Without a port
	// it is 19530, or 443 with https.
	Address string
	// Username and Password, or APIKey, for servers that ask for them.
	Username, Password, APIKey string
	// Database, "" for the default one.
	Database string
	// CAFile is a PEM file of the authorities to trust instead of the
	// system's. It switches TLS on.
	CAFile string
	// TLS, when set, is used as it is and switches TLS on.
	TLS *tls.Config
	// Breaker is that of requests which no door of this package has counted:
	// the client's own methods, called directly. Default resilience.Milvus. A
	// call through a door counts on the door's breaker alone.
	Breaker *resilience.Breaker
	// CallTimeout bounds each request to the server, 30 seconds by default. A
	// context with an earlier deadline keeps it.
	CallTimeout time.Duration
	// DialOptions are appended to the kit's own. Replacing the interceptors or
	// the default call options takes the guarantees of NewClient away.
	DialOptions []grpc.DialOption
}

// NewClient makes a client of the SDK whose hidden retries are off, whose
// requests are checked and bounded in time, and whose errors say what the
// server said. It sends nothing: the connection is made by the first call, so
// that a server that is down is met at the door and counted. Close the client
// when it is no longer used.
//
// The SDK keeps the schemas that it has seen. Where it or the server refuses a
// call by one that has changed meanwhile (an alias has moved, a collection was
// made again), or the SDK cannot read an answer by it, the client asks for the
// schema of today and makes the request once more, in the same call. A write
// that the server may have taken is not sent again.
//
// Nothing goes around the breaker: what the client's own methods send, called
// without a door, is counted by Config.Breaker, request by request, and refused
// while it is open.
//
// The end of a context is that to errors.Is too, beside its gRPC status.
//
// Outer white space of the address, the keys, the password and the names is cut
// off.
//
// The context bounds the making of the client only. Errors are an
// [*ArgumentError] for a bad address, certificate file or key.
func NewClient(ctx context.Context, cfg Config) (client.Client, error) {
	cfg, err := cfg.trimmed()
	if err != nil {
		return nil, &ArgumentError{Op: "NewClient", Reason: err.Error()}
	}
	in := newInspector(cfg.timeout(), cfg.APIKey, cfg.Password, cfg.Username+":"+cfg.Password)
	sdk, err := cfg.sdk(in)
	if err != nil {
		return nil, &ArgumentError{Op: "NewClient", Reason: err.Error()}
	}
	c, err := client.NewClient(ctx, sdk)
	if err != nil {
		return nil, &ArgumentError{Op: "NewClient", Reason: err.Error()}
	}
	cmp.Or(cfg.Breaker, resilience.Milvus).Locate(sdk.Address)
	return milvus{c, in}, nil
}

// trimmed is cfg without the white space around what mounted files and
// variables hold. What no request can carry is an error.
func (cfg Config) trimmed() (Config, error) {
	for _, v := range []struct {
		name  string
		value *string
	}{
		{"the address", &cfg.Address},
		{"the user name", &cfg.Username},
		{"the API key", &cfg.APIKey},
		{"the password", &cfg.Password},
		{"the database", &cfg.Database},
	} {
		text, err := secret.Trim(v.name, *v.value)
		if err != nil {
			return cfg, err
		}
		*v.value = text
	}
	switch {
	case strings.ContainsFunc(cfg.Database+cfg.Address, func(r rune) bool { return r > unicode.MaxASCII }):
		return cfg, fmt.Errorf("the database %q at the address %q: both must be ASCII", cfg.Database, cfg.Address)
	case strings.Contains(cfg.Address, "@"):
		return cfg, errors.New("the address has a user in it; use Username and Password, or APIKey")
	}
	return cfg, nil
}

func (cfg Config) timeout() time.Duration {
	if cfg.CallTimeout <= 0 {
		return defaultCallTimeout
	}
	return cfg.CallTimeout
}

func (cfg Config) sdk(in *inspector) (client.Config, error) {
	if cfg.Address == "" {
		return client.Config{}, errors.New("no address; set Config.Address")
	}
	creds, err := cfg.credentials()
	if err != nil {
		return client.Config{}, err
	}
	out := client.Config{
		Address: withPort(cfg.Address), DBName: cfg.Database,
		Username: cfg.Username, Password: cfg.Password, APIKey: cfg.APIKey,
		// The SDK's second retrier repeats on rate limits, 75 times by default.
		RetryRateLimit: &client.RetryRateLimitOption{MaxRetry: 0},
		// The handshake that the SDK would do here leaks its connection when it
		// fails, and what it asks for is not needed.
		DisableConn: true,
		DialOptions: dialOptions(in, cmp.Or(cfg.Breaker, resilience.Milvus)),
	}
	if creds != nil {
		out.DialOptions = append(out.DialOptions, grpc.WithTransportCredentials(creds))
	}
	out.DialOptions = append(out.DialOptions, cfg.DialOptions...)
	return out, nil
}

func (cfg Config) credentials() (credentials.TransportCredentials, error) {
	switch {
	case cfg.TLS != nil:
		return credentials.NewTLS(cfg.TLS.Clone()), nil
	case cfg.CAFile == "":
		return nil, nil // the SDK chooses by the address
	}
	pool, err := cafile.Pool(cfg.CAFile)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}), nil
}

// dialOptions replace the SDK's. Those are alike but block the dial until the
// context ends and then do not say why.
func dialOptions(in *inspector, b *resilience.Breaker) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
			},
			MinConnectTimeout: 3 * time.Second,
		}),
		grpc.WithDefaultCallOptions(
			grpc_retry.Disable(), // the SDK's first retrier: six calls over 22 seconds
			grpc.MaxCallRecvMsgSize(math.MaxInt32),
		),
		grpc.WithChainUnaryInterceptor(
			grpcdoor.Unary(grpcdoor.Config{Breaker: b, Classify: Classify}), in.intercept,
		),
	}
}

// withPort adds Milvus's port to a host that has none; the SDK would leave gRPC
// to take 443.
func withPort(address string) string {
	rest, plain := address, true
	if scheme, after, ok := strings.Cut(address, "://"); ok {
		rest, plain = after, scheme == "http"
	}
	host, db, slash := strings.Cut(rest, "/")
	if _, _, err := net.SplitHostPort(host); err == nil || !plain {
		return address
	}
	out := strings.TrimSuffix(address, rest) + net.JoinHostPort(strings.Trim(host, "[]"), "19530")
	if slash {
		out += "/" + db
	}
	return out
}
