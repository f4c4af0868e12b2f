package mask_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/resilience/internal/mask"
)

var secrets = []struct{ text, want string }{
	// User info.
	{`Get "https://bob:hunter2@db.example.com:5432/x": EOF`, `Get "https://***@db.example.com:5432/x": EOF`},
	{"postgres://bob:xxxxx@db/x", "postgres://***@db/x"},
	{"redis://:hunter2@cache:6379", "redis://***@cache:6379"},
	{"https://ghtoken@github.com/a/b", "https://***@github.com/a/b"},
	{"https://u:p%40ss@h/x?email=a@b.com", "https://***@h/x?email=a@b.com"},
	{"postgres://bob:hun/ter2@db/x", "postgres://***@db/x"},
	{"postgres://bob:hun?ter2@db", "postgres://***@db"},
	{"postgres://bob:hun@ter2@db", "postgres://***@db"},
	{`parse "pg://bob:hun": invalid port ":hun" after host`, `parse "pg://bob:***": invalid port "***" after host`},
	{"amqp://a:b@h1,amqp://c:d@h2", "amqp://***@h1,amqp://***@h2"},
	{`https:\/\/bob:hunter2@h`, `https:\/\/***@h`},
	{"next=https%3A%2F%2Fbob%3Ahunter2%40h%2Fx", "next=https%3A%2F%2F***%40h%2Fx"},
	{"dial bob:hunter2@tcp(db:3306)/x", "dial ***@tcp(db:3306)/x"},
	{"dsn=bob:hunter2@db", "dsn=***@db"},
	{"https://h/?dsn=bob:hunter2@db", "https://h/?dsn=***@db"},
	{"https://bob:it's@h", "https://***@h"},
	{"https://bob:a%22b@h", "https://***@h"},

	// Fields.
	{"password=hunter2", "password=***"},
	{"PassWd: hunter2 x", "PassWd: *** x"},
	{`{"password":"correct horse","n":1}`, `{"password":"***","n":1}`},
	{`{"password":"a\"b","n":1}`, `{"password":"***","n":1}`},
	{`{'secret': 'x'}`, `{'secret': '***'}`},
	{`"{\"token\": \"x\", \"n\": 1}"`, `"{\"token\": \"***\", \"n\": 1}"`},
	{`{\\\"api_key\\\":\\\"x y\\\"}`, `{\\\"api_key\\\":\\\"***\\\"}`},
	{"%7B%22token%22%3A%22x%20y%22%7D", "%7B%22token%22%3A%22***%22%7D"},
	{"%2522token%2522%253A%2522x%2522", "%2522token%2522%253A%2522***%2522"},
	{"{&quot;secret&quot;:&quot;x y&quot;}", "{&quot;secret&quot;:&quot;***&quot;}"},
	{"GET /?a=1&token=abc&b=2", "GET /?a=1&token=***&b=2"},
	{"/?token=abc%26def&b=2", "/?token=***&b=2"},
	{"/?token=my%20pass%22word&b=2", "/?token=***&b=2"},
	{`/?a=1\u0026sig=abc\u0026b=2`, `/?a=1\u0026sig=***\u0026b=2`},
	{"/?a=1&amp;sig=abc&amp;b=2", "/?a=1&amp;sig=***&amp;b=2"},
	{"/?key=abc&x=1", "/?key=***&x=1"},
	{
		"https://b.s3/k?X-Amz-Credential=AK%2F2023%2Fs3&X-Amz-Date=1&X-Amz-Security-Token=x%2Fy&X-Amz-Signature=ab",
		"https://b.s3/k?X-Amz-Credential=***&X-Amz-Date=1&X-Amz-Security-Token=***&X-Amz-Signature=***",
	},
	{"https://a.blob/c?sv=2020&sig=a%2Fb%3D&se=1", "https://a.blob/c?sv=2020&sig=***&se=1"},
	{"AccountName=a;AccountKey=ab==;EndpointSuffix=x", "AccountName=a;AccountKey=***;EndpointSuffix=x"},
	{"x-api-key: abc", "x-api-key: ***"},
	{"api key: abc", "api key: ***"},
	{"AWS_SECRET_ACCESS_KEY=abc/def+x", "AWS_SECRET_ACCESS_KEY=***"},
	{"AWS access key id: foo", "AWS access key id: ***"},
	{"client_secret = abc", "client_secret = ***"},
	{"clientSecret: abc", "clientSecret: ***"},
	{"private key: abc", "private key: ***"},
	{"--token abc --n 1", "--token *** --n 1"},
	{`invalid API key "abc": x`, `invalid API key "***": x`},
	{"Incorrect API key provided: abc. See x", "Incorrect API key provided: ***. See x"},
	{"<SecretKey>a b</SecretKey>", "<SecretKey>***</SecretKey>"},
	{`{Password:abc User:bob}`, `{Password:*** User:bob}`},
	{"map[Authorization:[Bearer abc] Cookie:[a=b; c=d] Host:[h]]", "map[Authorization:*** Cookie:*** Host:[h]]"},
	{`"secrets": ["a", "b"], "n": 1`, `"secrets": ***, "n": 1`},
	{"user[password]=abc&n=1", "user[password]=***&n=1"},
	{"password=ab,cd;ef", "password=***"},
	{"password=abc, n=1", "password=***, n=1"},
	{`curl -H 'X-Api-Key: abc' x`, `curl -H 'X-Api-Key: ***' x`},
	{`password='it's' n`, `password='***' n`},
	{"token=a\u200bb\x00c d", "token=*** d"},
	{"password:\n\tabc x", "password: *** x"},
	{`"pass": "x", "auth":"y"`, `"pass": "***", "auth":"***"`},
	{`password is "hunter2" x`, `password is "***" x`},
	{`password=a\ b c`, `password=*** c`},
	{"password: |\n  abc\nx: y", "password: | *** x: y"},
	{"\x1b[1mpassword\x1b[0m: \x1b[31mabc\x1b[0m x", "[1mpassword [0m: [31m*** [0m x"},
	{"password=ab<cd", "password=***"},
	{"#access_token=abc&x=1", "#access_token=***&x=1"},
	{"//bob:hunter2@h/x", "//***@h/x"},
	{`password=***hunter2`, `password=***`},
	{"Credential=AK/2023, SignedHeaders=host, Signature=abc", "Credential=***, SignedHeaders=host, Signature=***"},
	{`{"name":"x-api-key","value":"a b"}`, `{"name":"x-api-key","value":"***"}`},
	{`{"Cookie":[]string{"a=b", "c d"}, "X":1}`, `{"Cookie":***, "X":1}`},
	{`"password": "never closed and`, `"password": "***`},

	// Headers and schemes.
	{"Authorization: Bearer abc\nHost: h", "Authorization: *** Host: h"},
	{"authorization: token abc", "authorization: ***"},
	{"Authorization: AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=c", "Authorization: ***"},
	{"Proxy-Authorization=Custom abc", "Proxy-Authorization=***"},
	{`Authorization: Digest username="b", realm="a b", response="c" x`, `Authorization: ***" x`},
	{"Cookie: a=b; c=d\r\nHost: h", "Cookie: *** Host: h"},
	{"Set-Cookie: sid=abc; Path=/; HttpOnly", "Set-Cookie: ***"},
	{"sent Bearer abc to h", "sent Bearer *** to h"},
	{"Bearer%20abc", "Bearer%20***"},
	{"BEARER   Abc.def-1", "BEARER ***"},
	{"Basic dXNlcjpwYXNz x", "Basic *** x"},

	// Shapes.
	{"key sk-abcdefghijklmnop is wrong", "key *** is wrong"},
	{"sk-abc123", "***"},
	{"sk-proj-Ab_c-d1234567", "***"},
	{"sk-ant-api03-abcdefgh", "***"},
	{"sk-ab******************yz.", "***."},
	{"the AKIAIOSFODNN7EXAMPLE key", "the *** key"},
	{"ASIAIOSFODNN7EXAMPLE", "***"},
	{"ghp_abcdefghijklmnopqrst", "***"},
	{"gho_abcdefghijklmnopqrst", "***"},
	{"github_pat_11ABC_defghijk", "***"},
	{"AIzaSyA-abcdefghijklmnopqrstuvwxyz012", "***"},
	{"xoxb-1234-5678-abcdef", "***"},
	{"hf_abcdefghijklmnopqrst", "***"},
	{"(eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln)", "(***)"},
	{"a -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- b", "a*** b"},
	{`-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\n`, `***\n`},
	{"-----BEGIN OPENSSH PRIVATE KEY-----\nMII and no end", "***"},
}

func TestSecretsAreMasked(t *testing.T) {
	for _, row := range secrets {
		assert.Equal(t, row.want, mask.String(row.text), "%q", row.text)
	}
}

func TestWordsOfTheUpstreamStay(t *testing.T) {
	for _, text := range []string{
		"",
		"token limit exceeded: 8192 tokens",
		"invalid API key",
		"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
		`{"usage":{"prompt_tokens":12,"total_tokens":40},"max_tokens":4096}`,
		"api error InvalidAccessKeyId: The AWS Access Key Id you provided does not exist in our records.",
		"ExpiredToken: The provided token has expired.",
		"SignatureDoesNotMatch: The request signature we calculated does not match the signature you provided.",
		"FATAL: password authentication failed for user \"bob\" (SQLSTATE 28P01)",
		"authorization: denied for user bob",
		"invalid token: signature is invalid",
		"status 503, request id: 4f2b9c1e-7f70-4f39-8f7e-0d9b3f1c2a77",
		"x-amz-request-id: 0A49CE4060975EAC, x-amz-id-2: abc/def=",
		"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		"pull nginx:1.25@sha256:9f86d081884c7d65",
		`Get "http://localhost:11434/v1/models": dial tcp 127.0.0.1:11434: connect: connection refused`,
		"mongodb://h1:27017,h2:27017/db: no reachable servers",
		"http://[::1]:9000/bucket/key: EOF",
		"https://registry.npmjs.org/@scope/pkg and http://h:80/@scope",
		"write to support@openai.com, mailto:bob@example.com",
		"objects/2024/token/secret.pdf: no such key",
		"key=docs/a.pdf bucket=b",
		"basic authentication is required; Basic plan, Basic HTTP",
		"Bearer token is missing, bearer authentication required",
		`WWW-Authenticate: Bearer realm="api", error="invalid_token"`,
		"sk-SK locale, task-force-of-many-people, risk-based-decisions",
		"hf_hub_download failed", "the secret \"my-config\" was not found",
		"unexpected token < in JSON at position 0", `Unexpected token '<', "<!DOCTYPE "...`,
		"oauth2: cannot fetch token: 401 Unauthorized", `failed to refresh token: Post "https://h/x": EOF`,
		"invalid signature: 403 Forbidden", "design: x, config: y",
		"rate_limit_exceeded: retry after 20s", "déjà vu 日本",
		`C:\temp\new\users`, "100% of 5%", "a & b", "2024-01-01T10:00:00Z INFO x",
	} {
		assert.Equal(t, text, mask.String(text))
	}
}

func TestTextIsOneLine(t *testing.T) {
	for text, want := range map[string]string{
		" a\r\n\tb  c\x00\x7f\u0085d ": "a b c d",
		"a\u202eb\u2066c\u2069":        "a b c",
		"a\u200b\ufeff\u00adb\u2060":   "a b",
		"a\u2028b\u00a0\u3000c":        "a b c",
		"a\xffb":                       "a\uFFFDb",
		"\x1b[2Ja":                     "[2Ja",
		"…":                            "…",
		"\n":                           "",
	} {
		assert.Equal(t, want, mask.String(text), "%q", text)
	}
}

func TestLongTextIsCutBetweenRunes(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{strings.Repeat("a", 200), strings.Repeat("a", 200)},
		{strings.Repeat("a", 201), strings.Repeat("a", 197) + "…"},
		{strings.Repeat("a", 196) + "日本", strings.Repeat("a", 196) + "…"},
		{strings.Repeat("a", 190) + " token=abcdefgh x", strings.Repeat("a", 190) + " token=…"},
		{strings.Repeat("a ", 50<<20), strings.Repeat("a ", 98) + "a…"},
		{strings.Repeat(" ", 100<<20) + "a", "…"},
	} {
		assert.Equal(t, row.want, mask.String(row.text))
	}
}

const planted = "Zq7XwV9jKp3RtY5mBn8L"

// templates are texts with a place for a secret.
var templates = []string{
	"https://bob:%s@h/x", "bob:%s@h", "postgres://%s@h",
	"password=%s", "PASSWORD: %s", "x-api-key: %s", "api key = %s", "AccountKey=%s;EndpointSuffix=x",
	`"password":"%s"`, `"secret" : '%s'`, `{\"token\": \"%s\"}`, "%%22token%%22:%%22%s%%22",
	"/?a=1&sig=%s&b=2", "/?X-Amz-Signature=%s", `?a\u0026access_token=%s\u0026b`, "<SecretKey>%s</SecretKey>",
	"map[Authorization:[Custom %s]]", `credentials: {"a":"%s"}`,
	"Authorization: Bearer %s", "authorization=Basic %s", `Authorization: Digest username="b", response="%s"`,
	"Cookie: sid=%s; b=c", "Cookie: a=b; sid=%s", "Bearer %s",
	"sk-%s", "github_pat_%s", "hf_%s", "eyJ%s.eyJ%s.%s",
	"-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----",
}

func plant(template, secret string) string {
	return strings.ReplaceAll(strings.ReplaceAll(template, "%s", secret), "%%", "%")
}

// leaks reports whether four bytes in a row of the planted secret are in text.
func leaks(text string) bool {
	for i := range len(planted) - 3 {
		if strings.Contains(text, planted[i:i+4]) {
			return true
		}
	}
	return false
}

// No part of a secret survives, wherever the end of what is shown, or of what
// is read, cuts it. Blanks and quoted secrets in front shrink, so that the end
// of what is read is shown.
func TestNoHalfOfASecretSurvivesACut(t *testing.T) {
	const window = 4 << 10
	for _, row := range []struct {
		filler string
		end    int
		behind string
	}{
		{"a ", mask.Limit, ""},
		{"a ", mask.Limit, " b"},
		{"aaaaaaaa", mask.Limit, " b"},
		{"token=c ", mask.Limit, " b"},
		{" ", window, strings.Repeat(" b", 50)},
		{"\"", window, strings.Repeat("b", window)},
	} {
		for _, template := range templates {
			text := plant(template, planted) + row.behind
			for before := max(2, row.end-len(text)+len(row.behind)-10); before <= row.end+5; before++ {
				front := strings.Repeat(row.filler, before/len(row.filler)+1)[:before-1] + " "
				got := mask.String(front + text)
				require.False(t, leaks(got) || len(got) > mask.Limit,
					"%q behind %d bytes of %q: %q", template, before, row.filler, got)
			}
		}
	}
}

// A secret as long as what is read, and longer.
func TestNoHalfOfALongSecretSurvives(t *testing.T) {
	for _, template := range templates {
		for _, n := range []int{10, 100, 204, 205, 206, 1000} {
			long := strings.ReplaceAll(plant(template, planted), planted, strings.Repeat(planted, n))
			require.False(t, leaks(mask.String("x "+long+" y")), "%q, %d times", template, n)
		}
	}
}

type broken struct{ text string }

func (b *broken) Error() string { return b.text }

func TestTextOfAnError(t *testing.T) {
	var none *broken
	assert.Empty(t, mask.Text(nil))
	assert.Equal(t, "*mask_test.broken: its Error method panicked", mask.Text(none))
	assert.Equal(t, "*errors.joinError: its Error method panicked", mask.Text(errors.Join(errors.New("a"), none)))
	assert.Equal(t, "one token=*** two", mask.Text(errors.Join(errors.New("one token=abc"), errors.New("two"))))
}

// Behind what an SDK could not read stands what the upstream said. Such an
// error gave way to its cause, and "502 Bad Gateway" was lost.
func TestTextThatSaysMoreThanItsCauseIsCut(t *testing.T) {
	unread := errors.New("invalid character '<' looking for beginning of value")
	const front = "error, status code: 502, message: "
	said := fmt.Errorf(front+"%w, body: <h1>502 Bad Gateway</h1>%s", unread, strings.Repeat(" nginx", 99))
	for _, err := range []error{said, fmt.Errorf("embed: %w", said), fmt.Errorf("in other words: %w", shown{said})} {
		assert.Contains(t, mask.Text(err), front+unread.Error()+", body: <h1>502 Bad Gateway</h1> nginx")
	}
}

// shown is an error that its text says more of.
type shown struct{ error }

func (e shown) Error() string { return strings.TrimSuffix(e.error.Error(), "x") + " nginx" }
func (e shown) Unwrap() error { return e.error }

func FuzzString(f *testing.F) {
	for i, template := range templates {
		f.Add(template, "x", uint8(i))
	}
	f.Add("\"\\", "…", uint8(0))
	f.Fuzz(func(t *testing.T, before, behind string, template uint8) {
		text := before + " " + plant(templates[int(template)%len(templates)], planted) + " " + behind
		for _, text := range []string{before, before + behind, text} {
			got := mask.String(text)
			assert.LessOrEqual(t, len(got), mask.Limit)
			assert.True(t, utf8.ValidString(got), "%q", got)
			assert.False(t, strings.ContainsFunc(got, unicode.IsControl), "%q", got)
			assert.Equal(t, got, mask.String(got), "again, from %q", text)
		}
		if got := mask.String(text); !leaks(before + behind) {
			assert.False(t, leaks(got), "%q: %q", text, got)
		}
	})
}

func BenchmarkString(b *testing.B) {
	for _, row := range []struct{ name, text string }{
		{"short", `Get "http://localhost:11434/v1/models": dial tcp 127.0.0.1:11434: connect: connection refused`},
		{"secret", `{"error":"Incorrect API key provided: sk-abcdefghijklmnop","token":"abc"}`},
		{"long", strings.Repeat("the upstream says: no. ", 1<<20)},
	} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mask.String(row.text)
			}
		})
	}
}

// Of an error of S3, whose text begins with ids of a hundred bytes, the answer
// of the server is left and not its ids.
func TestLongTextGivesWayToItsCause(t *testing.T) {
	long := strings.Repeat("id ", 100)
	said := errors.New("api error SlowDown: quota wall 4711 for api_key=hunter2")
	const shown = "api error SlowDown: quota wall 4711 for api_key=***"
	put := fmt.Errorf("put: %w", said)
	for _, row := range []struct {
		err  error
		want string
	}{
		{put, "put: " + shown},
		{fmt.Errorf("%s: %w", long, put), "put: " + shown},
		{fmt.Errorf("%s: %w", long, fmt.Errorf("%s: %w", long, said)), shown},
		{fmt.Errorf("%s: %w", long, errors.New(long)), mask.String(long)},
		{fmt.Errorf("%s: %w", long, errors.New("")), mask.String(long)},
		{errors.Join(errors.New(long), said), mask.String(long)},
	} {
		assert.Equal(t, row.want, mask.Text(row.err))
	}
}
