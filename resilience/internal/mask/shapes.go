package mask

import (
	"bytes"
	"strings"
)

// shapes are the beginnings of keys of well-known services. The rest is at
// least rest bytes of letters, digits and the characters in also.
var shapes = []struct {
	start string
	rest  int
	also  string
}{
	// OpenAI, Anthropic and servers that follow them; Stripe.
	{"sk-", 8, "_-*"},
	{"sk_live_", 8, ""},
	{"sk_test_", 8, ""},
	{"rk_live_", 8, ""},
	{"whsec_", 8, ""},
	// AWS, Google.
	{"AKIA", 16, ""},
	{"ASIA", 16, ""},
	{"AIza", 20, "_-"},
	{"ya29.", 8, "_-."},
	// GitHub, GitLab.
	{"ghp_", 8, ""},
	{"gho_", 8, ""},
	{"ghu_", 8, ""},
	{"ghs_", 8, ""},
	{"ghr_", 8, ""},
	{"github_pat_", 8, "_"},
	{"glpat-", 8, "_-"},
	// Slack.
	{"xoxa-", 8, "-"},
	{"xoxb-", 8, "-"},
	{"xoxc-", 8, "-%"},
	{"xoxd-", 8, "-%"},
	{"xoxe-", 8, "-"},
	{"xoxe.", 8, "-."},
	{"xoxo-", 8, "-"},
	{"xoxp-", 8, "-"},
	{"xoxr-", 8, "-"},
	{"xoxs-", 8, "-"},
	{"xapp-", 8, "-"},
	// Servers of models, registries of packages, mail, Vault, age.
	{"hf_", 8, ""},
	{"gsk_", 8, ""},
	{"r8_", 8, ""},
	{"nvapi-", 8, "_-"},
	{"pplx-", 8, ""},
	{"xai-", 16, "_-"},
	{"npm_", 20, ""},
	{"pypi-", 20, "_-"},
	{"SG.", 16, "_-."},
	{"hvs.", 8, "_-"},
	{"AGE-SECRET-KEY-", 8, ""},
	// A JSON Web Token, or JSON in base64.
	{"eyJ", 8, "_-.="},
}

// maskShapes masks keys that are known by their beginning.
func (v *view) maskShapes() {
	for i := 0; i < len(v.text); i++ {
		if isAlnum(v.text[i]) && !isAlnum(v.at(i-1)) {
			if end := v.shapeEnd(i); end > i {
				v.mask(i, end)
				i = end - 1
			}
		}
	}
}

// shapeEnd is the end of the key that begins at i, or i.
func (v *view) shapeEnd(i int) int {
	for _, s := range shapes {
		if v.text[i] != s.start[0] || !bytes.HasPrefix(v.text[i:], []byte(s.start)) {
			continue
		}
		from := i + len(s.start)
		end, digits := from, 0
		for c := v.at(end); c != 0 && (isAlnum(c) || strings.IndexByte(s.also, c) >= 0); c = v.at(end) {
			if end++; isDigit(c) || c == '*' {
				digits++
			}
		}
		short := s.start == "sk-" && digits > 0 && end-from >= 4
		if end-from >= s.rest && v.at(end) != '_' || short {
			return end
		}
	}
	return i
}

// maskPrivateKeys masks blocks of PEM, up to the end of the text if a block has
// no end.
func (v *view) maskPrivateKeys() {
	text := bytes.ReplaceAll(v.text, []byte{soft}, []byte{' '})
	for i := 0; ; {
		begin := bytes.Index(text[i:], []byte("BEGIN "))
		if begin < 0 {
			return
		}
		begin += i
		i = begin + len("BEGIN ")
		label, _, ok := bytes.Cut(text[i:], []byte("--"))
		if !ok || len(label) > 40 || !bytes.Contains(label, []byte("PRIVATE KEY")) {
			continue
		}
		i = privateKeyEnd(text, i+len(label))
		v.mask(len(bytes.TrimRight(text[:begin], "- ")), i)
	}
}

// privateKeyEnd is the end of a block whose body begins at i, with the dashes.
func privateKeyEnd(text []byte, i int) int {
	end := bytes.Index(text[i:], []byte("END "))
	if end < 0 {
		return len(text)
	}
	i += end
	for _, dashes := range []bool{false, true} {
		for i < len(text) && (text[i] == '-') == dashes {
			i++
		}
	}
	return i
}

// maskUserinfo masks the user info of URLs, run by run.
func (v *view) maskUserinfo() {
	for i := 0; i < len(v.text); i++ {
		end := i
		for end < len(v.text) && !v.breaks(end) {
			end++
		}
		v.maskRun(i, end)
		i = end
	}
	v.maskBadPort()
}

// breaks reports whether byte i ends a run. An escaped quote may be part of a
// password.
func (v *view) breaks(i int) bool {
	return breaksRun(v.text[i]) && (v.text[i] == ' ' || len(v.spelling(i)) == 1)
}

func (v *view) maskRun(from, to int) {
	separator := []byte("://")
	at := bytes.Index(v.text[from:to], separator)
	if at < 0 {
		v.maskBare(from, to)
		return
	}
	v.maskBare(from, from+at)
	for at >= 0 {
		from += at + len(separator)
		at = bytes.Index(v.text[from:to], separator)
		end := to
		if at >= 0 {
			end = from + at
		}
		v.maskURL(from, end)
	}
}

// maskURL masks the user info of a URL from what follows its scheme. A slash or
// a question mark in a password should be escaped but is not always: a port
// that is not a number is the beginning of a password.
func (v *view) maskURL(from, to int) {
	rest := v.text[from:to]
	end := bytes.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	port := oddPort(rest[:end])
	switch {
	case bytes.IndexByte(rest[:end], '@') >= 0 || port >= 0 && bytes.IndexByte(rest, '@') >= 0:
		v.mask(from, from+lastAt(rest))
	case port >= 0:
		v.mask(from+port, from+end)
	default:
		v.maskBare(from+end, to)
	}
}

// oddPort is where the port of an authority begins if it is not a number, or
// -1. Further hosts and punctuation may follow a port.
func oddPort(authority []byte) int {
	colon := bytes.IndexByte(authority, ':')
	if colon < 0 || authority[0] == '[' {
		return -1
	}
	digits := len(bytes.TrimLeft(authority[colon+1:], "0123456789"))
	if digits == 0 || isPunctuation(authority[len(authority)-digits]) {
		return -1
	}
	return colon + 1
}

// lastAt is the last @ before the query, or the first if it is behind that.
func lastAt(rest []byte) int {
	at := bytes.IndexByte(rest, '@')
	tail := rest[at:]
	if query := bytes.IndexByte(tail, '?'); query >= 0 && bytes.IndexByte(tail[query:], '=') >= 0 {
		tail = tail[:query]
	}
	return at + bytes.LastIndexByte(tail, '@')
}

// maskBare masks user:password@host without a scheme.
func (v *view) maskBare(from, to int) {
	run := v.text[from:to]
	at := bytes.LastIndexByte(run, '@')
	colon := bytes.IndexByte(run, ':')
	if colon < 0 || at < colon || bytes.HasPrefix(run[at:], []byte("@sha")) {
		return
	}
	user := bytes.LastIndexAny(run[:colon], `/=([{,;&'\`) + 1
	password := run[colon+1 : at]
	port, _, path := bytes.Cut(password, []byte("/"))
	if path && len(port) > 0 && len(bytes.Trim(port, "0123456789")) == 0 || string(run[user:colon]) == "mailto" {
		return
	}
	v.mask(from+user, from+at)
}

// maskBadPort masks what net/url takes for a port: in u:secret/x@host it is the
// beginning of the password.
func (v *view) maskBadPort() {
	const before = "invalid port "
	for i := v.find(0, before); i >= 0; i = v.find(i+1, before) {
		if open := i + len(before); isQuote(v.at(open)) {
			end := v.closingQuote(open)
			if len(bytes.Trim(v.text[open+1:end], ":0123456789")) > 0 {
				v.mask(open+1, end)
			}
		}
	}
}
