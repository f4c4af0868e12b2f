package statuspage

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	cookieName = "penstock_session"
	// sessionLength is how long a login lasts.
	sessionLength = 12 * time.Hour
)

// policy allows what the page itself brings, and nothing inline.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// headers go with every answer.
var headers = map[string]string{
	"Content-Security-Policy":      policy,
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
	"Cache-Control":                "no-store",
}

// guard decides which requests are answered.
type guard struct {
	token   string
	anyHost bool
	hosts   []string
	key     []byte // signs sessions, new with each process
}

func newGuard(config Config) *guard {
	g := &guard{token: config.Token, anyHost: config.AnyHost, key: make([]byte, 32)}
	_, _ = rand.Read(g.key) // never fails, by its documentation
	for _, host := range config.Hosts {
		g.hosts = append(g.hosts, strings.ToLower(host))
	}
	return g
}

// strict sets the headers and refuses requests for a host that is not ours: a
// name elsewhere that was pointed at the loopback address.
func (g *guard) strict(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		if !g.knows(r.Host) {
			http.Error(w, "unknown host name; add it with --allow-host", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g *guard) knows(host string) bool {
	if g.anyHost {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if slices.Contains(g.hosts, host) {
		return true
	}
	return IsLoopback(host)
}

// IsLoopback reports whether a host name or address is this machine's own.
func IsLoopback(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}

// protect lets only those through who have the token. People are sent to the
// login form.
func (g *guard) protect(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case g.lets(r):
			next(w, r)
		case strings.Contains(r.Header.Get("Accept"), "text/html"):
			http.Redirect(w, r, "/login", http.StatusSeeOther)
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="penstock"`)
			http.Error(w, "token required: Authorization: Bearer …", http.StatusUnauthorized)
		}
	}
}

// lets reports whether a request has what it needs.
func (g *guard) lets(r *http.Request) bool {
	if g.token == "" {
		return true
	}
	scheme, bearer, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") && g.isToken(bearer) {
		return true
	}
	cookie, err := r.Cookie(cookieName)
	return err == nil && g.isSession(cookie.Value, time.Now())
}

// isToken compares hashes, so that neither the content nor the length of the
// token shows in the time it takes.
func (g *guard) isToken(candidate string) bool {
	want, got := sha256.Sum256([]byte(g.token)), sha256.Sum256([]byte(candidate))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// session is the value of a cookie that is good until a time. The token is not
// in it.
func (g *guard) session(until time.Time) string {
	text := strconv.FormatInt(until.Unix(), 10)
	mac := hmac.New(sha256.New, g.key)
	mac.Write([]byte(text))
	return text + "." + hex.EncodeToString(mac.Sum(nil))
}

func (g *guard) isSession(value string, now time.Time) bool {
	text, _, _ := strings.Cut(value, ".")
	until, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !now.Before(time.Unix(until, 0)) {
		return false
	}
	return hmac.Equal([]byte(value), []byte(g.session(time.Unix(until, 0))))
}

func (g *guard) cookie(r *http.Request, value string, age time.Duration) *http.Cookie {
	return &http.Cookie{
		Name: cookieName, Value: value, Path: "/", MaxAge: int(age.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https"),
	}
}
