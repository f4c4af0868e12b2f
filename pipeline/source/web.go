package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

// web reads http and https addresses.
type web struct {
	options Options
	client  *http.Client
}

const maxRedirects = 5

func newWeb(options Options) *web {
	w := &web{options: options}
	dialer := &net.Dialer{Timeout: 10 * time.Second, ControlContext: w.control}
	transport := &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: options.Timeout,
		IdleConnTimeout: 30 * time.Second, DisableCompression: true, // an ETag is of one encoding
	}
	if options.AllowPrivate { // behind a proxy the addresses cannot be seen
		transport.Proxy = http.ProxyFromEnvironment
	}
	w.client = &http.Client{Transport: transport, CheckRedirect: checkRedirect}
	return w
}

func checkRedirect(next *http.Request, via []*http.Request) error {
	next.Header.Del("Referer") // a signature may be in it
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	return nil
}

// PrivateAddressError reports that a name resolves to a non-public address.
type PrivateAddressError struct{ Address netip.Addr }

func (e *PrivateAddressError) Error() string {
	return fmt.Sprintf("it resolves to %s, which is not a public address; use --allow-private to allow it", e.Address)
}

// control sees the address of each connection after its name was resolved, so
// that neither a name nor a redirect leads elsewhere.
func (w *web) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	if w.options.AllowPrivate {
		return nil
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if !public(to.Addr()) {
		return &PrivateAddressError{Address: to.Addr()}
	}
	return nil
}

// special are the networks that are global by their form and not public by
// their purpose (RFC 6890, and the translation prefixes that lead to any IPv4).
var special = networks(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "240.0.0.0/4", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23",
	"2001:db8::/32", "2002::/16",
)

func networks(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

func public(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if !addr.IsGlobalUnicast() || addr.IsPrivate() {
		return false
	}
	for _, network := range special {
		if network.Contains(addr) {
			return false
		}
	}
	return true
}

func (w *web) root(input string) root {
	address, err := url.Parse(input)
	if err == nil && address.Host == "" {
		err = errors.New("an address needs a host")
	}
	if err != nil {
		// The error of url.Parse repeats the input, and secrets may be in it.
		return root{input: clean(input), err: errors.New("not a valid address")}
	}
	return root{input: publicName(address), remote: &page{web: w, address: address}}
}

// clean removes possible secrets from an address that cannot be parsed.
func clean(input string) string {
	scheme, rest, _ := strings.Cut(input, "://")
	rest, _, _ = strings.Cut(rest, "?")
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		rest = rest[at+1:]
	}
	return scheme + "://" + rest
}

// secrets are parameters that are secret or expire, by the one that shows that
// an address is signed: those of S3 and CloudFront, of Azure, and tokens.
var secrets = []struct {
	sign   string // "" for always
	family []string
}{
	{"", []string{"token", "access_token", "api_key", "apikey", "x-amz-*", "x-goog-*", "x-oss-*", "x-cos-*"}},
	{"signature", []string{
		"signature", "expires", "awsaccesskeyid", "googleaccessid", "ossaccesskeyid",
		"key-pair-id", "policy",
	}},
	{"sig", []string{"sig", "se", "sp", "sv", "sr", "st", "spr", "sip", "skoid", "sktid", "skt", "ske", "sks", "skv"}},
}

// secret reports whether a parameter must not be in an ID. has says which
// parameters the address has.
func secret(name string, has map[string]bool) bool {
	for _, s := range secrets {
		if s.sign != "" && !has[s.sign] {
			continue
		}
		for _, pattern := range s.family {
			prefix, open := strings.CutSuffix(pattern, "*")
			if name == pattern || open && strings.HasPrefix(name, prefix) {
				return true
			}
		}
	}
	return false
}

// publicName returns an address without userinfo, fragment and signature.
func publicName(address *url.URL) string {
	name := *address
	name.User, name.Fragment, name.RawFragment = nil, "", ""
	name.Scheme, name.Host = strings.ToLower(name.Scheme), strings.ToLower(name.Host)
	pairs := strings.Split(name.RawQuery, "&")
	has := map[string]bool{}
	for _, pair := range pairs {
		has[parameter(pair)] = true
	}
	name.RawQuery = strings.Join(slices.DeleteFunc(pairs, func(pair string) bool {
		return pair == "" || secret(parameter(pair), has)
	}), "&")
	return name.String()
}

// parameter returns the name of a parameter in lower case.
func parameter(pair string) string {
	key, _, _ := strings.Cut(pair, "=")
	if decoded, err := url.QueryUnescape(key); err == nil {
		key = decoded
	}
	return strings.ToLower(key)
}

// page is the document at an address.
type page struct {
	web     *web
	address *url.URL
}

func (p *page) key() string        { return publicName(p.address) }
func (p *page) covers(string) bool { return false }

func (p *page) list(w *walker) (more bool) {
	return w.emit(p.again(identity(p.web.options.Prefix, p.key()), ""))
}

func (p *page) again(id, _ string) Item {
	return Item{ID: id, Location: p.key(), Size: -1, Version: p.version, Open: p.open}
}

// version is now, or unknown where that fails.
func (p *page) version(ctx context.Context) string {
	version, _ := p.now(ctx, -1) // which is empty then
	return version
}

// now requests the headers only. The size is what counts where the server does
// not say it: many answer HEAD without.
func (p *page) now(ctx context.Context, size int64) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.web.options.Timeout)
	defer cancel()
	answer, err := p.send(ctx, http.MethodHead)
	if err != nil {
		return "", err
	}
	_ = answer.Body.Close() // it is empty
	if answer.ContentLength >= 0 {
		size = answer.ContentLength
	}
	return versionOf(answer.Header.Get("ETag"), size), nil
}

func (p *page) send(ctx context.Context, method string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, p.address.String(), http.NoBody)
	if err != nil {
		return nil, errors.New("not a valid address")
	}
	request.Header.Set("User-Agent", "penstock")
	answer, err := p.web.client.Do(request)
	if err != nil {
		return nil, unreached(err)
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close() // nothing is read from it
		return nil, refused(answer)
	}
	return answer, nil
}

// unreached removes the address, which may hold secrets, from an error of the
// client, and distinguishes a refused address from an unavailable one.
func unreached(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if private, ok := errors.AsType[*PrivateAddressError](err); ok {
		return private
	}
	return &AwayError{Err: err}
}

func refused(answer *http.Response) error {
	err := fmt.Errorf("the server answers %s", answer.Status)
	switch code := answer.StatusCode; {
	case code >= http.StatusInternalServerError, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return &AwayError{Err: err}
	case code == http.StatusNotFound, code == http.StatusGone:
		return missing{err}
	}
	return err
}

// missing is the error of a document that is not there.
type missing struct{ error }

func (missing) Is(target error) bool { return target == fs.ErrNotExist }

func (p *page) open(ctx context.Context) (Content, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer, err := p.send(ctx, http.MethodGet)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	limit := p.web.options.MaxDownload
	if answer.ContentLength > limit {
		return nil, &TooLargeError{Limit: limit}
	}
	body := &patient{from: answer.Body, wait: p.web.options.Timeout, give: cancel}
	content, err := spool(body, limit)
	if err != nil {
		return nil, body.explain(err)
	}
	content.version = versionOf(answer.Header.Get("ETag"), content.size)
	content.current = func(ctx context.Context) (string, error) { return p.now(ctx, content.size) }
	return content, nil
}

// patient reads a body and gives up if nothing arrives for too long.
type patient struct {
	from io.Reader
	wait time.Duration
	give func()
	read error // what the body broke off with
}

func (p *patient) Read(buffer []byte) (int, error) {
	timer := time.AfterFunc(p.wait, p.give)
	defer timer.Stop()
	n, err := p.from.Read(buffer)
	if err != io.EOF {
		p.read = err
	}
	return n, err
}

// explain distinguishes an interrupted download from a local error.
func (p *patient) explain(err error) error {
	if p.read != nil && errors.Is(err, p.read) {
		return &AwayError{Err: fmt.Errorf("the download was interrupted: %w", err)}
	}
	return err
}
