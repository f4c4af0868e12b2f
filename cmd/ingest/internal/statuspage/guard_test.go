package statuspage

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
)

const testToken = "correct-horse-battery"

func TestHeadersOfEveryAnswer(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Token = testToken })
	bearer := with("Authorization", "Bearer "+testToken)
	for _, path := range []string{
		"/", "/search?q=x", "/problems", "/metrics", "/healthz", "/readyz", "/login",
		"/style.css", "/app.js", "/icon.svg", "/nowhere",
	} {
		h := f.get(path, bearer).Header()
		csp := h.Get("Content-Security-Policy")
		assert.Contains(t, csp, "default-src 'none'", path)
		assert.Contains(t, csp, "frame-ancestors 'none'", path)
		assert.NotContains(t, csp, "unsafe", path)
		assert.Equal(t, "nosniff", h.Get("X-Content-Type-Options"), path)
		assert.Equal(t, "no-referrer", h.Get("Referrer-Policy"), path)
		assert.Equal(t, "same-origin", h.Get("Cross-Origin-Resource-Policy"), path)
		assert.NotEmpty(t, h.Get("Content-Type"), path)
	}
}

func TestTokenIsRequired(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Token, c.AnyHost = testToken, true })
	for _, path := range []string{"/", "/search?q=x", "/problems", "/events", "/metrics"} {
		for name, change := range map[string]func(*http.Request){
			"nothing":       func(*http.Request) {},
			"another token": with("Authorization", "Bearer "+testToken+"x"),
			"a prefix":      with("Authorization", "Bearer "+testToken[:8]),
			"empty":         with("Authorization", "Bearer "),
			"basic":         with("Authorization", "Basic "+testToken),
			"a cookie":      with("Cookie", cookieName+"="+testToken),
			"in the query":  func(r *http.Request) { r.URL.RawQuery = "token=" + testToken },
		} {
			w := f.get(path, change)
			assert.Equal(t, http.StatusUnauthorized, w.Code, "%s with %s", path, name)
			assert.NotEmpty(t, w.Header().Get("WWW-Authenticate"))
		}
		w := f.get(path, with("Accept", "text/html,*/*"))
		assert.Equal(t, http.StatusSeeOther, w.Code, path)
		assert.Equal(t, "/login", w.Header().Get("Location"))
	}
	assert.Equal(t, "metrics", f.get("/metrics", with("Authorization", "bearer "+testToken)).Body.String())
	assert.Empty(t, f.searcher.asked)
}

func (f *fixture) post(path, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(url.Values{"token": {token}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return f.ask(r)
}

func TestLogin(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Token = testToken })
	wrong := f.post("/login", "guess")
	assert.Equal(t, http.StatusUnauthorized, wrong.Code)
	assert.Contains(t, wrong.Body.String(), "Wrong token.")
	assert.Empty(t, wrong.Result().Cookies())

	right := f.post("/login", testToken)
	require.Equal(t, http.StatusSeeOther, right.Code)
	require.Len(t, right.Result().Cookies(), 1)
	cookie := right.Result().Cookies()[0]
	assert.True(t, cookie.HttpOnly)
	assert.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
	assert.NotContains(t, cookie.Value, testToken)
	page := f.get("/", func(r *http.Request) { r.AddCookie(cookie) })
	assert.Equal(t, http.StatusOK, page.Code)
	assert.Contains(t, page.Body.String(), "Log out")

	other := newFixture(t, func(c *Config) { c.Token = testToken })
	assert.Equal(t, http.StatusUnauthorized, other.get("/", func(r *http.Request) { r.AddCookie(cookie) }).Code,
		"a session ends with the process")
	out := f.post("/logout", "")
	assert.Negative(t, out.Result().Cookies()[0].MaxAge)
}

func TestCookieIsSecureBehindTLS(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Token = testToken })
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	assert.False(t, f.guard.cookie(r, "x", time.Hour).Secure)
	r.Header.Set("X-Forwarded-Proto", "https")
	assert.True(t, f.guard.cookie(r, "x", time.Hour).Secure)
}

func TestSessions(t *testing.T) {
	g := newGuard(Config{Token: testToken})
	now := time.Unix(1_700_000_000, 0)
	good := g.session(now.Add(time.Minute))
	for _, row := range []struct {
		name, value string
		at          time.Time
		want        bool
	}{
		{"good", good, now, true},
		{"a moment before its end", good, now.Add(time.Minute - 1), true},
		{"at its end", good, now.Add(time.Minute), false},
		{"made longer", "9" + good, now, false},
		{"cut", good[:len(good)-1], now, false},
		{"no signature", strings.Split(good, ".")[0], now, false},
		{"empty", "", now, false},
		{"no number", "x.y", now, false},
	} {
		assert.Equal(t, row.want, g.isSession(row.value, row.at), row.name)
	}
}

// A page elsewhere that points its own name at 127.0.0.1 reads nothing.
func TestHostIsChecked(t *testing.T) {
	local := newFixture(t, func(c *Config) { c.Hosts = []string{"Status.example"} })
	anywhere := newFixture(t, func(c *Config) { c.Token, c.AnyHost = testToken, true })
	for host, want := range map[string]int{
		"127.0.0.1:8091": 200, "localhost": 200, "LOCALHOST:8091": 200, "[::1]:8091": 200,
		"127.9.9.9": 200, "a.localhost:1": 200,
		"status.example": 200, "status.example:443": 200,
		"evil.example": 421, "evil.example:8091": 421, "127.0.0.1.evil.example": 421,
		"localhost.evil.example": 421, "10.0.0.7": 421,
		"": 421, "[::2]": 421, "0.0.0.0:8091": 421,
	} {
		for _, path := range []string{"/", "/metrics", "/healthz", "/style.css"} {
			assert.Equal(t, want, local.get(path, func(r *http.Request) { r.Host = host }).Code, "%s at %q", path, host)
		}
		assert.Equal(t, 200,
			anywhere.get("/", with("Authorization", "Bearer "+testToken), func(r *http.Request) { r.Host = host }).Code)
	}
}

func TestReadOnly(t *testing.T) {
	f := newFixture(t, nil)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		for _, path := range []string{
			"/", "/search", "/problems", "/metrics", "/events", "/healthz",
			"/readyz", "/login", "/logout",
		} {
			r := httptest.NewRequest(method, path, nil)
			assert.GreaterOrEqual(t, f.ask(r).Code, 400, "%s %s", method, path)
		}
	}
}

const attack = `<script>alert("1")</script><img src=x onerror=alert(2)>`

// Nothing that a document, an upstream or a visitor brings becomes markup.
func TestNamesAndTextsStayText(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Destination = attack })
	f.journal.problems = []journal.Problem{
		{ID: "docs/" + attack, Status: journal.DeadLetter, Stage: attack, Kind: attack, Reason: attack},
		{ID: "else/" + attack, Status: journal.Deferred, Stage: "embed", Reason: attack},
	}
	f.searcher.hits = []pipeline.Hit{{
		Source: attack, Heading: attack,
		Text: attack + strings.Repeat(attack, 100), ID: attack,
	}}
	fail(f.llm, attack)
	f.milvus.ForceOpen(attack)
	f.PassBegins(time.Now())
	f.PassEnds(pipeline.Summary{Stopped: &pipeline.Stop{Kind: pipeline.StopFault, Reason: attack}}, nil,
		time.Now(), time.Now())
	bodies := map[string]string{}
	for _, path := range []string{
		"/", "/problems", "/problems?status=deferred", "/search?q=" + url.QueryEscape(attack),
		"/search?q=%22+autofocus+onfocus%3Dalert(1)+x%3D%22",
	} {
		bodies[path] = f.get(path).Body.String()
	}
	for _, part := range f.fragments(t.Context()) {
		bodies["event "+part.id] = part.html
	}
	for where, body := range bodies {
		assert.NotContains(t, body, "<script>", where)
		assert.NotContains(t, body, "<img src=x", where)
		assert.NotContains(t, body, `" autofocus`, where)
		if !strings.Contains(where, "autofocus") {
			assert.Contains(t, body, "&lt;script&gt;", where)
		}
	}
}
