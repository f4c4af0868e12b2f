package llm_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// What net/http refuses to send was a failure of the server: five of them
// opened the breaker, and nothing had left.
func TestRequestsThatNetHTTPRefusesAreIgnored(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{})
	azureHTTP, err := llm.NewHTTPClient(llm.Config{Breaker: newGuard(resilience.Config{}).Breaker})
	require.NoError(t, err)
	plain, azure := openai.DefaultConfig, func(key string) openai.ClientConfig {
		return openai.DefaultAzureConfig(key, s.URL)
	}
	ours := func(c *openai.ClientConfig) { c.HTTPClient = azureHTTP }
	at := func(base string) func(*openai.ClientConfig) { return func(c *openai.ClientConfig) { c.BaseURL = base } }
	of := func(organization string) func(*openai.ClientConfig) {
		return func(c *openai.ClientConfig) { c.OrgID = organization }
	}
	for name, row := range map[string]struct {
		config  openai.ClientConfig
		changes []func(*openai.ClientConfig)
	}{
		"line break in the key":            {config: plain("sk-of-this-test\n")},
		"carriage return in the key":       {config: plain("sk-of\rthis-test")},
		"null in the key":                  {config: plain("sk-of\x00this-test")},
		"line break in the Azure key":      {config: azure("sk\n")},
		"our HTTP client for Azure":        {azure("sk\n"), []func(*openai.ClientConfig){ours}},
		"line break in the organization":   {plain("sk"), []func(*openai.ClientConfig){of("o\n")}},
		"another scheme":                   {plain("sk"), []func(*openai.ClientConfig){at("ftp://host/v1")}},
		"another scheme, our HTTP client":  {plain("sk"), []func(*openai.ClientConfig){at("unix:///v1"), ours}},
		"no host":                          {plain("sk"), []func(*openai.ClientConfig){at("http:///v1")}},
		"control character in the address": {plain("sk"), []func(*openai.ClientConfig){at(s.URL + "\x7f")}},
	} {
		at(s.URL)(&row.config)
		for _, change := range row.changes {
			change(&row.config)
		}
		client := openai.NewClientWithConfig(row.config)
		for i, call := range operations(newGuard(resilience.Config{}), client) {
			guard := newGuard(resilience.Config{})
			for range 5 {
				require.Error(t, operations(guard, client)[i].do(t.Context()), "%s, %s", name, call.name)
			}
			assert.Equal(t, resilience.Closed, guard.Breaker.State(), "%s, %s", name, call.name)
			assert.Equal(t, uint64(5), guard.Breaker.Snapshot().Ignored, "%s, %s", name, call.name)
		}
	}
	assert.Zero(t, s.Stats().Requests)
}

// A server whose own words are those of net/http has answered.
func TestServerThatRefusesInTheWordsOfNetHTTPHasFailed(t *testing.T) {
	const words = `net/http: invalid header field value for \"X\"`
	s := llmtest.NewServer(t, llmtest.Options{})
	client := newClient(t, llm.Config{BaseURL: s.URL})
	for _, fault := range []llmtest.Fault{
		llmtest.Answer(200, `{"error":{"message":"`+words+`"}}`),
		llmtest.Answer(502, `{"error":{"message":"`+words+`"}}`),
		llmtest.Answer(502, words),
	} {
		s.Script(llmtest.All(fault))
		for i := range 4 {
			guard := newGuard(resilience.Config{})
			require.Error(t, operations(guard, client)[i].do(t.Context()))
			assertOutcome(t, guard, resilience.Failure)
		}
	}
}

// outer is what files, mounted secrets and editors put around a value.
var outer = []string{"%s\n", "%s\r\n", " %s", "\t%s ", "\ufeff%s", "\u200b%s\u00a0"}

func around(form, value string) string { return strings.Replace(form, "%s", value, 1) }

// A mounted secret ends in a newline.
func TestKeyIsTakenWithoutWhiteSpaceAroundIt(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Options{Key: "sk-of-this-test"})
	for _, form := range outer {
		key, base := around(form, "sk-of-this-test"), around(form, s.URL)
		for _, call := range operations(newGuard(resilience.Config{}), newClient(t,
			llm.Config{BaseURL: base, APIKey: key, Organization: around(form, "org")})) {
			require.NoError(t, call.do(t.Context()), "%q, %s", key, call.name)
		}
		t.Run("environment", func(t *testing.T) {
			t.Setenv("OPENAI_API_KEY", key)
			t.Setenv("OPENAI_BASE_URL", base)
			t.Setenv("OPENAI_ORG_ID", around(form, "org"))
			for _, call := range operations(newGuard(resilience.Config{}), newClient(t, llm.Config{})) {
				require.NoError(t, call.do(t.Context()), "%q, %s", key, call.name)
			}
		})
	}
}

func TestControlCharactersAreErrorsOfTheConfiguration(t *testing.T) {
	for _, inside := range []string{"\n", "\r\n", "\x00", "\x7f", "\u200b", "\u202e", "\ufeff", "\xff"} {
		value := "sk-of" + inside + "this-test"
		for name, cfg := range map[string]llm.Config{
			"APIKey": {APIKey: value}, "Organization": {Organization: value}, "BaseURL": {BaseURL: "http://h/" + value},
		} {
			_, err := llm.NewClient(cfg)
			require.ErrorContains(t, err, name, "%q", value)
			assert.NotContains(t, err.Error(), "this-test")
		}
		if inside == "\x00" {
			continue // no environment can hold it
		}
		for _, variable := range []string{"OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_BASE_URL"} {
			t.Run(variable, func(t *testing.T) {
				t.Setenv(variable, value)
				_, err := llm.NewClient(llm.Config{})
				require.ErrorContains(t, err, variable, "%q", value)
				assert.NotContains(t, err.Error(), "this-test")
			})
		}
	}
}

// What is blank must not become another server, nor the key of another one.
func TestBlankSettingsHaveNoDefault(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-of-another-server")
	_, err := llm.NewClient(llm.Config{BaseURL: " \n"})
	require.ErrorContains(t, err, "BaseURL is blank")
	s := llmtest.NewServer(t, llmtest.Options{Key: "sk-of-another-server"})
	client := newClient(t, llm.Config{BaseURL: s.URL, APIKey: "\n"})
	guard := newGuard(resilience.Config{})
	_, err = guard.ListModels(context.Background(), client)
	require.Error(t, err)
	assertOutcome(t, guard, resilience.Denied)
	assert.Equal(t, http.StatusUnauthorized, statusOf(t, err))
}

func statusOf(t *testing.T, err error) int {
	var api *openai.APIError
	require.ErrorAs(t, err, &api)
	return api.HTTPStatusCode
}
