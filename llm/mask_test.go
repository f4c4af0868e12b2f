package llm_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/hostile"
)

const (
	sentKey   = "sk-Of/This+Test=&<é>"
	digitsKey = "123456789012345678"
)

// escaped writes every character of a text as JSON may.
func escaped(text string) string {
	var b strings.Builder
	for _, r := range text {
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	return b.String()
}

// allEscaped writes every byte of a text as a URL may.
func allEscaped(text string) string {
	var b strings.Builder
	for i := range len(text) {
		fmt.Fprintf(&b, "%%%02x", text[i])
	}
	return b.String()
}

// forms are how a server may write the key that it was sent.
func forms(key string) []string {
	quoted, _ := json.Marshal(key)
	return []string{
		key, url.QueryEscape(key), url.PathEscape(key), strings.Trim(string(quoted), `"`), escaped(key),
		strings.ReplaceAll(key, "/", `\/`), base64.StdEncoding.EncodeToString([]byte(key)), allEscaped(key),
		html.EscapeString(key), strings.ToUpper(allEscaped(key)),
		strings.ToUpper(key), strings.ReplaceAll(allEscaped(key), "%", "%25"), url.QueryEscape(url.QueryEscape(key)),
		strings.NewReplacer("/", "&sol;", "+", "&plus;", "=", "&equals;", "&", "&amp;", "<", "&lt;",
			">", "&GT;").Replace(key),
		html.EscapeString(html.EscapeString(key)),
		strings.NewReplacer("-", `\x2d`, "/", `\x2F`, "=", `\\x3d`).Replace(key),
		byNumber(key, "&#%d;"), byNumber(key, "&#X00%X;"), strings.ReplaceAll(escaped(key), `\`, `\\\\`),
	}
}

// byNumber writes every character of a text as HTML may.
func byNumber(text, form string) string {
	var b strings.Builder
	for _, r := range text {
		fmt.Fprintf(&b, form, r)
	}
	return b.String()
}

// leaks reports whether an error, the spans and the breaker's own words show
// the key in any form.
func leaks(t *testing.T, g llm.Guard, key string, err error) {
	t.Helper()
	require.Error(t, err)
	shown := []string{err.Error(), fmt.Sprintf("%+v", err)}
	if g.Breaker.State() == resilience.Open {
		var open *resilience.OpenError
		require.ErrorAs(t, operations(g, nil)[3].do(t.Context()), &open)
		shown = append(shown, open.Error(), open.LastFailure().Error())
	}
	for _, span := range spans.GetSpans() {
		shown = append(shown, span.Status.Description, span.Name)
		for _, attr := range span.Attributes {
			shown = append(shown, attr.Value.String())
		}
	}
	for _, text := range shown {
		for _, form := range append(forms(key), strings.ToLower(key)) {
			assert.NotContains(t, text, form)
		}
	}
}

// keyed says a body under a status, with a key in it in each form.
func keyed(status, head, body, form string) hostile.Answer {
	fill := strings.NewReplacer("KEY", form)
	body = fill.Replace(body)
	return hostile.Text(fmt.Sprintf("HTTP/1.1 %s\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		fill.Replace(status), fill.Replace(head), len(body), body))
}

// Keys that servers say back went into errors, and from there into logs and
// spans.
func TestKeyIsMaskedWhereverItIsSaidBack(t *testing.T) {
	const text, page = "Content-Type: application/json\r\n", "Content-Type: text/html\r\n"
	rows := map[string]struct{ status, head, body string }{
		"Location":                {"302 Found", "Location: /login?t=KEY\r\n", ""},
		"Location, elsewhere":     {"307 Moved", "Location: https://other.test/KEY/v1?x=1\r\n", "{}"},
		"the status line":         {"401 bad key KEY", text, `{"error":{"message":"no"}}`},
		"the status line, a page": {"500 bad key KEY", page, `<p>`},
		"a success's status line": {"200 KEY", text, `{`},
		"a page":                  {"403 Forbidden", page, "<p>KEY</p>"},
		"half an error":           {"500 Oops", text, `{"error":{"message":"KEY`},
		"an error's type":         {"401 No", text, `{"error":{"message":"no","type":"KEY"}}`},
		"an error's code":         {"401 No", text, `{"error":{"message":"no","code":"KEY"}}`},
		"an error's messages":     {"400 No", text, `{"error":{"message":["no","KEY"]}}`},
		"an error of a wrong kind": {
			"400 No", text, `{"error":{"message":{"KEY":["KEY"]}}}`,
		},
		"an error as text":     {"429 Slow", text, `{"error":"KEY"}`},
		"an error beside":      {"200 OK", text, `{"data":[],"choices":[],"error":{"message":"KEY","code":"KEY"}}`},
		"an error in words":    {"200 OK", text, `{"error":"KEY"}`},
		"an error's fields":    {"200 OK", text, `{"error":{"detail":{"KEY":"KEY"}}}`},
		"a name for a value":   {"200 OK", text, `{"choices":"KEY","data":"KEY"}`},
		"no JSON":              {"200 OK", text, `KEY`},
		"a header that is bad": {"200 OK", "KEY\r\n", `{}`},
	}
	for status := range map[string]bool{
		"400 No": true, "401 No": true, "403 No": true, "404 No": true, "408 No": true, "429 No": true,
		"451 No": true, "500 No": true, "501 No": true, "503 No": true, "599 No": true,
	} {
		rows["status "+status] = struct{ status, head, body string }{
			status, text, `{"error":{"message":"bad key KEY, again KEY","type":"invalid"}}`,
		}
	}
	for _, key := range []string{sentKey, "sk-of-this-test", digitsKey} {
		for name, row := range rows {
			for _, form := range forms(key) {
				saysBack(t, name, key, keyed(row.status, row.head, row.body, form))
			}
		}
	}
}

// saysBack runs every operation against a server that says the key back.
func saysBack(t *testing.T, name, key string, answer hostile.Answer) {
	t.Run(name, func(t *testing.T) {
		client := newClient(t, llm.Config{BaseURL: hostile.Serve(t, answer), APIKey: key})
		for i := range 4 {
			spans.Reset()
			guard := newGuard(resilience.Config{FailMax: 1})
			leaks(t, guard, key, operations(guard, client)[i].do(t.Context()))
		}
	})
}

func TestKeyIsMaskedInStreams(t *testing.T) {
	for _, key := range []string{sentKey, "sk-Of-This-Test", digitsKey} {
		for _, form := range forms(key) {
			for _, event := range []string{
				`data: {"error":{"message":"wrong key KEY","code":"invalid_api_key"}}` + "\n\n",
				`data: {"error":{"message":"no","code":"KEY","type":"KEY","param":"KEY"}}` + "\n\n",
				`data: {"error":{"detail":["KEY"]}}` + "\n\n",
				`data: {"id":"1","choices":[],"error":"KEY"}` + "\n\n",
				`data: {"choices":[{"index":0,"delta":{"error":{"message":"KEY"}}}]}` + "\n\n",
				"event: error\ndata: KEY\n\n", "error: {\"message\":\"KEY\"}\n\n",
				"{\n\"error\": {\"message\":\"KEY\"}\n}\n", `{"error":{"message":"KEY"}}`,
				`data: {"id":"KEY","model":"KEY","choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n",
				`data: {"choices":[{"index":0,"delta":{},"finish_reason":"error: KEY"}]}` + "\n\n",
				`data: {"choices":[{"index":"KEY"}]}` + "\n\n", `data: {"choices":[{"index":KEY}]}` + "\n\n",
				"data: KEY\n\n", "KEY\n\n",
			} {
				for _, before := range []string{"", part(0, "a", "", "")} {
					spans.Reset()
					body := before + strings.ReplaceAll(event, "KEY", form)
					client := newClient(t, llm.Config{BaseURL: saying(t, eventStream, body), APIKey: key})
					guard := newGuard(resilience.Config{FailMax: 1})
					_, err := readWith(guard, client)
					leaks(t, guard, key, err)
				}
			}
		}
	}
}

func TestKeyIsMaskedInSpansOfGoodAnswers(t *testing.T) {
	const key = "sk-Of-This-Test"
	for i, body := range []string{
		`{"id":"KEY","model":"KEY","choices":[{"message":{"content":"a"},"finish_reason":"KEY"}]}`,
		`data: {"id":"KEY","model":"KEY","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"KEY"}]}` + "\n\n",
		`{"model":"KEY","data":[{"index":0,"embedding":[1,0]},{"index":1,"embedding":[0,1]}]}`,
	} {
		spans.Reset()
		client := newClient(t, llm.Config{
			BaseURL: saying(t, "application/json", strings.ReplaceAll(body, "KEY", key)), APIKey: key,
		})
		guard := newGuard(resilience.Config{})
		require.NoError(t, operations(guard, client)[i].do(t.Context()))
		leaks(t, guard, key, errors.New("nothing"))
	}
	request := ask("x")
	body := `{"choices":[{"message":{"content":"` + key + `"},"finish_reason":"stop"}]}`
	answer, err := newGuard(resilience.Config{}).CreateChatCompletion(t.Context(),
		newClient(t, llm.Config{BaseURL: saying(t, "application/json", body), APIKey: key}), request)
	require.NoError(t, err)
	assert.Equal(t, key, answer.Choices[0].Message.Content, "an answer is not masked")
}

// adding is a transport that puts a key into headers of another name.
type adding struct {
	http.RoundTripper
	header string
}

func (a adding) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(a.header, "sk-of-this-test")
	return a.RoundTripper.RoundTrip(r)
}

func TestKeyInAnyHeaderIsMasked(t *testing.T) {
	url := hostile.Serve(t, keyed("401 No", "", `{"error":{"message":"KEY"}}`, "sk-of-this-test"))
	for _, header := range []string{"Authorization", "Api-Key", "X-Api-Key"} {
		ours, err := llm.NewHTTPClient(llm.Config{Breaker: newGuard(resilience.Config{}).Breaker})
		require.NoError(t, err)
		ours.Transport = adding{ours.Transport, header}
		cfg := openai.DefaultConfig("")
		cfg.BaseURL, cfg.HTTPClient = url, ours
		guard := newGuard(resilience.Config{})
		leaks(t, guard, "sk-of-this-test", operations(guard, openai.NewClientWithConfig(cfg))[0].do(t.Context()))
	}
}

func TestKeyOfAzureIsMasked(t *testing.T) {
	const key = "azure-of-this-test"
	url := hostile.Serve(t, keyed("401 No", "", `{"error":{"message":"KEY"}}`, key))
	cfg := openai.DefaultAzureConfig(key, url)
	var err error
	cfg.HTTPClient, err = llm.NewHTTPClient(llm.Config{Breaker: newGuard(resilience.Config{}).Breaker})
	require.NoError(t, err)
	guard := newGuard(resilience.Config{})
	leaks(t, guard, key, operations(guard, openai.NewClientWithConfig(cfg))[0].do(t.Context()))
}
