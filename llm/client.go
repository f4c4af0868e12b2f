package llm

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sashabaranov/go-openai"
	"golang.org/x/net/http/httpguts"

	"github.com/penstock-go/penstock/httpdoor"
	"github.com/penstock-go/penstock/internal/cafile"
	"github.com/penstock-go/penstock/internal/secret"
	"github.com/penstock-go/penstock/resilience"
)

// Config is where an OpenAI-compatible server is and how patient its client is.
// The zero value is OpenAI itself with the key in OPENAI_API_KEY.
type Config struct {
	// BaseURL ends before "/embeddings", usually in "/v1". Default: the
	// environment's OPENAI_BASE_URL, or https://api.openai.com/v1. This and the
	// next two are taken without white space around them.
	BaseURL string
	// APIKey is sent as a bearer token; a "Bearer " that it was copied with is
	// cut off. Default: the environment's OPENAI_API_KEY; without either, or
	// where it is blank, no key is sent. A control character in it is an error
	// of NewClient.
	APIKey string
	// Organization is sent as OpenAI-Organization, and checked as APIKey is.
	// Default: the environment's OPENAI_ORG_ID.
	Organization string
	// DialTimeout bounds the connection, TLS included. Default 10 s.
	DialTimeout time.Duration
	// Timeout bounds a call whose answer is not written by a model, such as
	// embeddings and the list of models, from its start to the last byte of the
	// answer. Default 2 min.
	Timeout time.Duration
	// ChatTimeout is Timeout for chat, whose model may think for minutes. Of a
	// stream it bounds the wait for the headers, and each silence before the
	// first content: a text, reasoning, a refusal or a tool call. Default 10
	// min, as in OpenAI's own clients.
	ChatTimeout time.Duration
	// StreamIdleTimeout bounds each silence of a stream after that content; a
	// comment breaks a silence. Default 5 min.
	StreamIdleTimeout time.Duration
	// Breaker is that of requests which no door has counted: files, batches,
	// and whatever else the SDK can do. Default resilience.LLM. A call through
	// a door counts on the door's breaker alone.
	Breaker *resilience.Breaker
	// MaxResponseBytes bounds an answer, decompressed, and a stream as a whole.
	// Default 64 MiB.
	MaxResponseBytes int64
	// MaxConns bounds the connections. Default 64.
	MaxConns int
	// CAFile is a PEM file of the certificate authorities to trust instead of
	// the system's.
	CAFile string
}

// NewClient makes an SDK client without the SDK's traps: everything is bounded
// in time and size, nothing is retried, no redirect is followed (the SDK would
// take one for an empty answer), and the server's Retry-After reaches the
// breaker. It opens no connection. The error says what is wrong with the
// configuration.
//
// Nothing goes around the breaker: each request that no door has counted, such
// as the upload of a file, is a call of Config.Breaker, and refused while it is
// open.
//
// Proxies come from the environment, as net/http has them. Connections speak
// HTTP/1.1, since HTTP/2 in net/http repeats requests by itself.
func NewClient(c Config) (*openai.Client, error) {
	httpClient, err := NewHTTPClient(c)
	if err != nil {
		return nil, err
	}
	key, keyErr := apiKey(c.APIKey)
	organization, orgErr := setting("Organization", c.Organization, "OPENAI_ORG_ID")
	base, baseErr := setting("BaseURL", c.BaseURL, "OPENAI_BASE_URL")
	if err := cmp.Or(keyErr, orgErr, baseErr); err != nil {
		return nil, err
	}
	sdk := openai.DefaultConfig(key)
	sdk.BaseURL, sdk.OrgID, sdk.HTTPClient = cmp.Or(base, sdk.BaseURL), organization, httpClient
	if err := checkBaseURL(sdk.BaseURL); err != nil {
		return nil, err
	}
	cmp.Or(c.Breaker, resilience.LLM).Locate(strings.TrimRight(sdk.BaseURL, "/"))
	return openai.NewClientWithConfig(sdk), nil
}

// setting is a value of the configuration, or of the environment where that is
// empty.
func setting(field, value, variable string) (string, error) {
	name := field
	if value == "" {
		name, value = variable, os.Getenv(variable)
	}
	trimmed, err := secret.Trim("llm: "+name, value)
	if err == nil && trimmed == "" && field == "BaseURL" && value != "" {
		return "", fmt.Errorf("llm: %s is blank", name) // and not the default, which is another server
	}
	return trimmed, err
}

// apiKey is the key as it is sent behind "Bearer ", which is often copied with
// it.
func apiKey(value string) (string, error) {
	key, err := setting("APIKey", value, "OPENAI_API_KEY")
	bare := withoutScheme(key)
	if err == nil && bare == "" && key != "" {
		return "", errors.New("llm: APIKey or OPENAI_API_KEY is the scheme alone; the key belongs behind it")
	}
	return bare, err
}

// withoutScheme is a key without "Authorization:" and "Bearer " before it, in
// any case.
func withoutScheme(key string) string {
	for {
		rest, isHeader := cutFold(key, "authorization:")
		if !isHeader {
			rest, _ = cutFold(key, "bearer")
			if rest == key || rest != "" && strings.TrimSpace(rest[:1]) != "" {
				return key
			}
		}
		key = strings.TrimSpace(rest)
	}
}

// cutFold is strings.CutPrefix in any case.
func cutFold(text, prefix string) (string, bool) {
	if hasPrefixFold(text, prefix) {
		return text[len(prefix):], true
	}
	return text, false
}

// NewHTTPClient makes the HTTP client of NewClient, for SDK configurations of
// another kind:
//
//	cfg := openai.DefaultAzureConfig(key, endpoint)
//	cfg.HTTPClient, err = llm.NewHTTPClient(llm.Config{})
//	client := openai.NewClientWithConfig(cfg)
//
// BaseURL, APIKey and Organization are not used here. net/http refuses a key
// with a line break in it before it sends anything, which counts as nothing.
func NewHTTPClient(c Config) (*http.Client, error) {
	t, err := c.bounded()
	if err != nil {
		return nil, err
	}
	return c.guarded(t), nil
}

// guarded is a client with a breaker above t.
func (c Config) guarded(t *transport) *http.Client {
	return &http.Client{
		Transport: httpdoor.Transport(t, httpdoor.Config{
			Breaker: cmp.Or(c.Breaker, resilience.LLM), Classify: ofResponse,
		}),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// bounded is the transport with the limits of c.
func (c Config) bounded() (*transport, error) {
	if min(c.DialTimeout, c.Timeout, c.ChatTimeout, c.StreamIdleTimeout) < 0 || c.MaxResponseBytes < 0 ||
		c.MaxConns < 0 {
		return nil, errors.New("llm: timeouts and limits must not be negative")
	}
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	c.MaxConns = cmp.Or(c.MaxConns, 64)
	authorities, err := cafile.Pool(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("llm: %w", err)
	}
	pooled := c.transport(authorities)
	fresh := pooled.Clone()
	fresh.DisableKeepAlives = true
	return &transport{
		pooled: pooled, fresh: fresh,
		timeout: cmp.Or(c.Timeout, 2*time.Minute), chat: cmp.Or(c.ChatTimeout, 10*time.Minute),
		idle: cmp.Or(c.StreamIdleTimeout, 5*time.Minute), limit: cmp.Or(c.MaxResponseBytes, 64<<20),
	}, nil
}

// maxHeader is the most bytes of headers that an answer may have; net/http
// would read ten million.
const maxHeader = 256 << 10

func (c *Config) transport(authorities *x509.CertPool) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: c.DialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: c.DialTimeout,
		TLSClientConfig:     &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12},
		MaxConnsPerHost:     c.MaxConns,
		MaxIdleConnsPerHost: c.MaxConns,
		IdleConnTimeout:     90 * time.Second,
		Protocols:           protocols,

		MaxResponseHeaderBytes: maxHeader,
	}
}

func checkBaseURL(base string) error {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		// without the text: it may hold a secret
		return errors.New("llm: the base URL cannot be read; it looks like https://host/v1")
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return fmt.Errorf("llm: base URL%s: need http or https and a host, such as http://localhost:8080/v1", shown(u))
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return fmt.Errorf("llm: base URL%s: user, query and fragment have no place in it; the key goes into "+
			"Config.APIKey or OPENAI_API_KEY", shown(u))
	}
	return checkHost(u)
}

// shown is a URL in quotes after a space, without what may be a secret: user,
// query and fragment. It is empty for a URL without a host, all of which may be
// one.
func shown(u *url.URL) string {
	if u.Hostname() == "" {
		return ""
	}
	public := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return fmt.Sprintf(" %q", public.String())
}

// checkHost finds a host and a port to which nothing can be sent.
func checkHost(u *url.URL) error {
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("llm: base URL%s: port %s is not one of 1 to 65535", shown(u), port)
		}
	}
	host, err := httpguts.PunycodeHostPort(u.Host)
	if err != nil || !httpguts.ValidHostHeader(host) || strings.ContainsAny(host, "<>\"'") {
		return fmt.Errorf("llm: base URL%s: the name of the host is not valid", shown(u))
	}
	return nil
}
