package statuspage

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/websocket"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// browser is a tab of a headless Chromium, driven over its debugging protocol.
type browser struct {
	t    *testing.T
	tab  *websocket.Conn
	last int
}

// chromium starts a browser and gives the address of its debugging protocol. It
// treats a missing one as a missing server.
func chromium(t *testing.T) (host string) {
	t.Helper()
	program := upstreams.Program(t, "chromium", "chromium-browser", "google-chrome")
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--user-data-dir="+t.TempDir(), "--remote-debugging-port=0", "--remote-allow-origins=*", "about:blank")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	address := make(chan string, 1)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			if _, found, ok := strings.Cut(lines.Text(), "DevTools listening on ws://"); ok {
				host, _, _ := strings.Cut(found, "/")
				address <- host
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-drained
		_ = cmd.Wait() // it was killed
	})
	select {
	case host = <-address:
	case <-time.After(time.Minute):
		require.FailNow(t, "Chromium did not start")
	}
	return host
}

// newTab opens a tab.
func newTab(t *testing.T, host string) *browser {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+host+"/json/new?about:blank", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	var tab struct{ WebSocketDebuggerURL string }
	require.NoError(t, json.NewDecoder(response.Body).Decode(&tab))
	conn, err := websocket.Dial(tab.WebSocketDebuggerURL, "", "http://"+host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() }) // the browser may be gone
	b := &browser{t: t, tab: conn}
	b.call("Page.enable", nil)
	return b
}

// call sends a command and gives its result.
func (b *browser) call(method string, params map[string]any) json.RawMessage {
	b.t.Helper()
	result, fault := b.send(method, params)
	require.Empty(b.t, fault, method)
	return result
}

func (b *browser) send(method string, params map[string]any) (result json.RawMessage, fault string) {
	b.t.Helper()
	b.last++
	require.NoError(b.t, b.tab.SetDeadline(time.Now().Add(time.Minute)))
	require.NoError(b.t, websocket.JSON.Send(b.tab, map[string]any{"id": b.last, "method": method, "params": params}))
	for {
		var answer struct {
			ID            int
			Result, Error json.RawMessage
		}
		require.NoError(b.t, websocket.JSON.Receive(b.tab, &answer), method)
		if answer.ID == b.last {
			return answer.Result, string(answer.Error)
		}
	}
}

// eval gives the value of an expression, awaited if it is a promise.
func (b *browser) eval(expression string) any {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	result := b.call("Runtime.evaluate",
		map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true})
	require.NoError(b.t, json.Unmarshal(result, &answer))
	require.Empty(b.t, string(answer.ExceptionDetails), expression)
	return answer.Result.Value
}

// until waits until an expression holds.
func (b *browser) until(expression string) {
	b.t.Helper()
	held := b.eval(fmt.Sprintf(`new Promise((done) => {
		const end = Date.now() + 30000;
		const look = () => { if (%[1]s) done(true); else if (Date.now() > end) done(false); else setTimeout(look, 10); };
		look();
	})`, expression))
	require.Equal(b.t, true, held, "never: %s\n%v", expression, b.eval("document.body?.innerText"))
}

func (b *browser) open(address string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": address})
	b.until(fmt.Sprintf("location.href.startsWith(%q) && document.readyState === 'complete'", address))
}

func (b *browser) view(width int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600})
	b.call("Emulation.setEmulatedMedia",
		map[string]any{"features": []map[string]any{{"name": "prefers-color-scheme", "value": scheme}}})
}

// inBrowser serves a page with something in every list and gives its address.
func inBrowser(t *testing.T) (*fixture, string) {
	f := newFixture(t, nil)
	long := "docs/" + strings.Repeat("a-long-name-without-a-space_", 12)
	f.journal.problems = []journal.Problem{
		{
			ID: "docs/" + attack, Status: journal.DeadLetter, Stage: "parse", Kind: "malformed",
			Reason: attack, At: time.Now(),
		},
		{
			ID: long, Status: journal.Deferred, Stage: "embed", Kind: "stopped",
			Reason: strings.Repeat("x", 500), At: time.Now(),
		},
	}
	f.searcher.hits = []pipeline.Hit{{Source: long, Heading: attack, Text: attack + strings.Repeat("y", 900)}}
	f.PassBegins(time.Now())
	f.Document(pipeline.Document{Result: pipeline.DeadLetter})
	f.PassEnds(pipeline.Summary{}, nil, time.Now(), time.Now().Add(time.Minute))
	fail(f.milvus, attack)
	f.s3.ForceOpen(attack)
	f.s3.Reset()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { f.Run(ctx); close(ended) }()
	server := httptest.NewServer(f)
	t.Cleanup(func() { cancel(); <-ended; server.Close() })
	return f, server.URL
}

const stateOf = `document.querySelector('[data-upstream=%s]').dataset.state === %q`

func TestInABrowser(t *testing.T) {
	host := chromium(t)
	for name, test := range map[string]func(*testing.T, *browser){
		"states": browseStates, "layout": browseLayout, "without scripts": browseWithoutScripts,
		"connection lost": browseReconnect, "situations": browseSituations, "drawings": browseDrawings,
	} {
		t.Run(name, func(t *testing.T) { test(t, newTab(t, host)) })
	}
}

// Through the states of a breaker.
func browseStates(t *testing.T, b *browser) {
	f, address := inBrowser(t)
	b.open(address + "/")
	b.until(`document.getElementById('link').textContent === 'live'`)
	for _, step := range []struct {
		do          func()
		state, news string
	}{
		{func() { f.s3.Trip("drill") }, "open", "Object store is open"},
		{func() { f.s3.Reset() }, "closed", "Object store is closed"},
		{func() { f.s3.ForceOpen("maintenance") }, "open", "Object store is open, forced open"},
		{func() { f.s3.Reset() }, "closed", "Object store is closed"},
	} {
		step.do()
		b.until(fmt.Sprintf(stateOf, "s3", step.state))
		assert.Equal(t, step.news, b.eval(`document.getElementById('news').textContent`), "a screen reader hears it")
	}
	early := &stop.Error{Kind: stop.Denied, Upstream: "llm", Err: errKey}
	f.PassBegins(time.Now())
	f.PassEnds(pipeline.Summary{Stopped: early.Report(nil)}, early, time.Now(), time.Now())
	b.until(`document.getElementById('news').textContent === 'The model server has refused the credentials or the quota'`)
	f.llm.Trip("drill")
	left := `Number(/^in (\d+) s$/.exec(document.querySelector('[data-upstream=llm] [data-until]')?.textContent)?.[1])`
	b.until(left + ` > 0`)
	b.until(fmt.Sprintf(`%s < %v`, left, b.eval(left))) // it counts down
}

// Nothing runs over the edge of the window, in no width and no scheme, and
// nothing that a document brings becomes markup.
func browseLayout(t *testing.T, b *browser) {
	f, address := inBrowser(t)
	f.llm.Trip("drill")
	b.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": `
		window.violations = [];
		document.addEventListener("securitypolicyviolation", (e) => violations.push(e.violatedDirective + " " + e.blockedURI));
		window.alert = (text) => violations.push("alert " + text);`})
	back := map[string]any{}
	for _, path := range []string{"/", "/search?q=pumps", "/problems", "/problems?status=deferred", "/changes"} {
		b.open(address + path)
		for _, width := range []int{320, 390, 768, 1440} {
			for _, scheme := range []string{"light", "dark"} {
				b.view(width, scheme)
				assert.LessOrEqual(t, b.eval(`document.documentElement.scrollWidth`), float64(width), "%s at %d",
					path, width)
				back[scheme] = b.eval(`getComputedStyle(document.body).backgroundColor`)
			}
		}
		assert.Empty(t, b.eval(`violations.join("; ")`), path)
	}
	assert.Equal(t, map[string]any{"light": "rgb(246, 247, 248)", "dark": "rgb(17, 22, 27)"}, back)

	b.open(address + "/")
	b.until(`document.getElementById('link').textContent === 'live'`)
	assert.Contains(t, b.eval(`document.getElementById('problems').innerText`), "docs/"+attack, "a name stays text")
	assert.Contains(t, b.eval(`document.getElementById('timeline').textContent`), "forced open", "a title too")
	assert.Equal(t, true, b.eval(`Array.from(document.querySelectorAll("rect title"), (e) => e.textContent)
		.some((text) => text.endsWith(`+strconv.Quote(attack)+`))`))
	assert.InDelta(t, 1, b.eval(`document.scripts.length`), 0)
	assert.Empty(t, b.eval(`violations.join("; ")`))
}

// open serves the page of a night and opens it.
func (n *night) open(t *testing.T, b *browser) {
	n.clock.Set(threeOClock)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { n.Run(ctx); close(ended) }()
	server := httptest.NewServer(n)
	t.Cleanup(func() { cancel(); <-ended; server.Close() })
	b.open(server.URL + "/")
	b.until(`document.getElementById('link').textContent === 'live'`)
}

// Each situation fits into a telephone, and what is drawn is said in words too.
func browseSituations(t *testing.T, b *browser) {
	for name, situation := range situations {
		situation(t).open(t, b)
		for _, width := range []int{320, 1280} {
			b.view(width, "dark")
			at := fmt.Sprintf("%s at %d", name, width)
			assert.LessOrEqual(t, b.eval(`document.documentElement.scrollWidth`), float64(width), at)
			cut := b.eval(`Array.from(document.querySelectorAll("main *:not(.hidden)"))
				.filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML).join()`)
			assert.Empty(t, cut, at)
		}
		title := b.eval(`document.title`).(string)
		heading := b.eval(`document.querySelector("h1").textContent`).(string)
		assert.Contains(t, heading, strings.TrimSuffix(title, " · penstock"), name)
		assert.Equal(t, true, b.eval(`Array.from(document.querySelectorAll("svg"), (e) => e.ariaLabel)
			.every((label) => label.startsWith("The last "))`), name)
	}
}

// The strips have colors without inline styles, an outage can be seen on a
// telephone, and the wheel stands still where motion is unwanted.
func browseDrawings(t *testing.T, b *browser) {
	situations["open"](t).open(t, b)
	b.view(320, "light")
	const outage = `document.querySelector("svg.strip rect.open")`
	assert.Equal(t, "rgb(179, 38, 30)", b.eval(`getComputedStyle(`+outage+`).fill`))
	assert.GreaterOrEqual(t, b.eval(outage+`.getBoundingClientRect().width`), 2.0)
	assert.Contains(t, b.eval(outage+`.querySelector("title").textContent`),
		"open since 2026-03-01 02:43:12 UTC, 16 probes")
	b.view(320, "dark")
	assert.Equal(t, "rgb(255, 143, 134)", b.eval(`getComputedStyle(`+outage+`).fill`))

	situations["running"](t).open(t, b)
	const wheel = `getComputedStyle(document.querySelector(".spin")).animationName`
	assert.Equal(t, "spin", b.eval(wheel))
	b.call("Emulation.setEmulatedMedia",
		map[string]any{"features": []map[string]any{{"name": "prefers-reduced-motion", "value": "reduce"}}})
	assert.Equal(t, "none", b.eval(wheel))
}

// The essentials are there without scripts, and the page is loaded again.
func browseWithoutScripts(t *testing.T, b *browser) {
	f, address := inBrowser(t)
	f.llm.Trip("drill")
	b.open(address + "/healthz")
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true})
	b.call("Page.navigate", map[string]any{"url": address + "/"})
	look := func() string {
		result, fault := b.send("Runtime.evaluate",
			map[string]any{"expression": `document.body?.innerText`, "returnByValue": true})
		if fault != "" { // it is being loaded
			return ""
		}
		var answer struct{ Result struct{ Value string } }
		require.NoError(t, json.Unmarshal(result, &answer))
		return answer.Result.Value
	}
	shows := func(want string) {
		t.Helper()
		again := time.NewTicker(50 * time.Millisecond) // look can end the test, on its own goroutine alone
		defer again.Stop()
		late := time.After(30 * time.Second)
		for !strings.Contains(look(), want) {
			select {
			case <-late:
				require.Fail(t, "never shown", want)
			case <-again.C:
			}
		}
	}
	for _, want := range []string{
		"Calls are refused at once", "Probe in ", "The model server has been failing since ",
		"The next probe is in ", "What to do", "docs/" + attack, "This page reloads",
		"Search the ingested documents",
	} {
		shows(want)
	}
	f.llm.Reset()
	f.s3.ForceOpen("maintenance")
	shows("Held open: only a reset closes it.")
}

// The connection breaks: the page says so, and comes back by itself.
func browseReconnect(t *testing.T, b *browser) {
	f, _ := inBrowser(t)
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" && asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		f.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	b.open(server.URL + "/")
	b.until(`document.getElementById('link').textContent === 'disconnected, reconnecting'`)
	b.until(`document.getElementById('link').textContent === 'live'`)
}
