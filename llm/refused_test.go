package llm_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/resilience"
)

// A server that refuses in a form of its own was quoted as %!s(<nil>), or by
// what the SDK misses in the body.
func TestRefusalsInOtherFormsAreQuoted(t *testing.T) {
	const head = "error, status code: 401, status: 401 Unauthorized"
	page := "<html><head>\n<title>Sign in,\nplease</title></head>" + strings.Repeat("<p>x", 99)
	for name, row := range map[string]struct{ body, want string }{
		"detail":             {`{"detail":"token expired"}`, head + ", message: token expired"},
		"message":            {`{"message":"token expired","request_id":"7"}`, head + ", message: token expired"},
		"msg":                {`{"code":7,"msg":"token expired"}`, head + ", message: token expired"},
		"a text":             {`"token expired"`, head + ", message: token expired"},
		"an error in words":  {`{"error":"token expired"}`, head + ", message: token expired"},
		"several details":    {`{"detail":[{"loc":[1]}]}`, head + `, message: {"detail":[{"loc":[1]}]}`},
		"plain text":         {"token expired\n", head + ", message: token expired"},
		"a page":             {page, head + ", message: Sign in, please"},
		"a page, no title":   {"<html>who are you</html>", head + ", message: <html>who are you</html>"},
		"nothing":            {"", head},
		"white space":        {" \n", head},
		"an empty object":    {"{}", head},
		"the SDK's own form": {`{"error":{"message":"token expired"}}`, head + ", message: token expired"},
		"null":               {`{"error":null}`, head},
	} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, llm.Config{BaseURL: answering(t, http.StatusUnauthorized, row.body)})
			for i, call := range operations(newGuard(resilience.Config{}), nil) {
				err := operations(newGuard(resilience.Config{}), client)[i].do(t.Context())
				require.EqualError(t, err, row.want, call.name)
				assert.Equal(t, row.want, resilience.Transition{Cause: err}.CauseText())
				assert.Equal(t, resilience.Denied, llm.Classify(t.Context(), err).Outcome)
			}
		})
	}
}

// What is not JSON under a good status is quoted as well, without the key.
func TestAnswerThatIsNotJSONIsQuoted(t *testing.T) {
	const key = "sk-of-this-test"
	for body, want := range map[string]string{
		"hello, I am a proxy":               `the answer is not JSON; it begins with "hello, I am a proxy"`,
		"<html>\n" + key + "</html>":        `the answer is not JSON; it begins with "<html> ********</html>"`,
		"x" + strings.Repeat("y ", 500_000): `the answer is not JSON; it begins with "xy y `,
	} {
		client := newClient(t, llm.Config{BaseURL: answering(t, http.StatusOK, body), APIKey: key})
		_, err := newGuard(resilience.Config{}).CreateEmbeddings(t.Context(), client, texts("hello"))
		require.ErrorContains(t, err, want)
		var syntax *json.SyntaxError
		require.ErrorAs(t, err, &syntax)
		assert.Less(t, len(err.Error()), 300)
		assert.NotContains(t, err.Error(), key)
		assert.Equal(t, resilience.Failure, llm.Classify(t.Context(), err).Outcome)
	}
}

// What did not fit gave way to what the SDK misses: "invalid character 'u'".
func TestLongRefusalsKeepTheirStatusAndBeginning(t *testing.T) {
	const head = "error, status code: 503, status: 503 Service Unavailable, message: "
	for name, row := range map[string]struct{ body, want string }{
		"a proxy's text": {
			"upstream connect error or disconnect/reset before headers. retried and the latest reset reason: " +
				"remote connection failure, transport failure reason: delayed connect error: 111",
			head + "upstream connect error or disconnect/reset before headers.",
		},
		"a page":            {"<html>" + strings.Repeat("<p>no</p>", 1_000_000), head + "<html><p>no</p><p>no</p>"},
		"text without end":  {strings.Repeat("A", 10_000_000), head},
		"words without end": {strings.Repeat("not now ", 1_000_000), head + "not now not now"},
	} {
		client := newClient(t, llm.Config{BaseURL: answering(t, http.StatusServiceUnavailable, row.body)})
		_, err := newGuard(resilience.Config{}).CreateEmbeddings(t.Context(), client, texts("hello"))
		text := resilience.Transition{Cause: err}.CauseText()
		assert.Contains(t, text+" ", row.want, name)
		assert.LessOrEqual(t, len(text), 200, name)
	}
}
