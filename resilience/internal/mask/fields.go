package mask

import (
	"bytes"
	"strings"
)

// Names are compared in lower case, without separators, plural and digits.
var (
	// secretInside marks a name wherever it is, as in SECRET_ACCESS_KEY_OLD.
	secretInside = []string{
		"password", "passwd", "passphrase", "secret", "apikey", "accesskey", "privatekey",
	}
	// secretAtEnd marks a name that ends in it, as x-amz-security-token.
	secretAtEnd = []string{
		"token", "pwd", "passcode", "signature", "signatureprovided", "credential", "authorization", "cookie",
		"bearer", "jwt", "accountkey", "authkey", "encryptionkey", "functionskey", "masterkey", "sessionkey",
		"sharedkey", "signingkey", "storagekey", "subscriptionkey",
	}
)

// ordinary are the words that follow a sensitive name in a message: "token:
// signature is invalid", "ExpiredToken: The provided token has expired".
var ordinary = wordSet(`a an and are at auth authentication authorization bad cannot check connection contains context
	could credential credentials delete denied dial does empty end eof error exceeded expected expired failed failure
	field forbidden format from get got has have head header http https illegal in incorrect input insufficient invalid
	is it its json key keys length limit lookup malformed may missing must net nil no none not null of on only open
	operation or parse parsing permission please post provided put read realm request required revoked rpc scheme
	should signature status that the this timeout tls to token tokens too type unable unauthorized undefined
	unexpected unknown unsupported value was while with write wrong you your`)

// fillers stand between a name and its separator: "API key provided: x".
var fillers = wordSet("given header is provided received sent supplied used value was")

// schemes are ordinary words too.
var schemes = wordSet("key signature token")

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		set[word] = true
	}
	return set
}

// maskFields masks what follows a sensitive name, and Bearer and Basic.
func (v *view) maskFields() {
	for i := 0; i < len(v.text); {
		if !isAlnum(v.text[i]) {
			i++
			continue
		}
		end := i
		for isName(v.at(end)) {
			end++
		}
		next := v.maskField(i, end)
		if next == end {
			next = v.maskScheme(i, end)
		}
		i = next
	}
}

// field is a name in the text and what it says of its value.
type field struct {
	start, end int    // of the name
	name       string // normalized
	separator  byte   // '=', ':', ' ', or '>' of an XML element
	spaced     bool   // by a colon and a space, as in prose
	value      int    // where the value begins
}

// maskField masks the value of the name at start and returns where it begins,
// or end if that is not a sensitive name with a value.
func (v *view) maskField(start, end int) int {
	f := field{start: start, end: end, name: v.nameOf(start, end)}
	if !f.sensitive(v) || !f.separate(v) {
		return end
	}
	from := f.value
	var to int
	switch c := v.at(from); {
	case isQuote(c):
		to = v.closingQuote(from)
		from++
	case bytes.HasPrefix(v.text[from:], []byte("[]string{")): // an http.Header
		to = v.closingBracket(from + len("[]string"))
	case c == '[' || c == '{':
		to = v.closingBracket(from)
	case f.separator == '>':
		to = v.elementEnd(from)
	case f.spaced && v.ordinaryAt(from) && !(f.isHeader() && schemes[v.wordAt(from)]):
		return end
	default:
		to = f.valueEnd(v)
	}
	v.mask(from, to)
	return f.value // what is masked may be the name of another field
}

// nameOf is the name between start and end, with the words before it that "key"
// and "id" belong to.
func (v *view) nameOf(start, end int) string {
	name := normalized(v.text[start:end])
	for range 2 {
		if name != "key" && name != "id" && name != "keyid" || v.at(start-1) != ' ' || !isAlnum(v.at(start-2)) {
			break
		}
		before := start - 1
		for start = before; isName(v.at(start - 1)); {
			start--
		}
		name = normalized(v.text[start:before]) + name
	}
	return name
}

func normalized(name []byte) string {
	var short strings.Builder
	for _, c := range name {
		if isAlnum(c) {
			short.WriteByte(lower(c))
		}
	}
	text := strings.TrimRight(short.String(), "0123456789")
	if strings.HasSuffix(text, "ss") || strings.HasSuffix(text, "tokens") {
		return text
	}
	return strings.TrimSuffix(text, "s")
}

func (f *field) sensitive(v *view) bool {
	for _, part := range secretInside {
		if strings.Contains(f.name, part) {
			return true
		}
	}
	for _, part := range secretAtEnd {
		if strings.HasSuffix(f.name, part) {
			return true
		}
	}
	before, after := v.at(f.start-1), v.at(f.end)
	switch f.name {
	case "pass", "auth":
		return after == '=' || isQuote(after)
	case "key":
		return (before == '?' || before == '&') && after == '='
	}
	if !strings.HasSuffix(f.name, "sig") {
		return false
	}
	return f.end-f.start == len("sig") || !isAlnum(v.text[f.end-4]) || v.text[f.end-3] == 'S' // not as in config
}

// isHeader reports whether the value may be of several words.
func (f *field) isHeader() bool {
	return strings.HasSuffix(f.name, "authorization") || strings.HasSuffix(f.name, "cookie")
}

// separate finds the separator behind the name and the value behind that.
func (f *field) separate(v *view) bool {
	i := f.end
	if isQuote(v.at(i)) {
		i = v.pairValue(i + 1)
	}
	i = v.skip(i, "[]()0123456789") // user[password]=x, token[0]=x
	i = v.skip(i, " \x01")
	spaces := i - f.end
	if word := v.wordAt(i); fillers[word] {
		if after := v.skip(i+len(word), " \x01"); strings.IndexByte(`:="'`+"`", v.at(after)) >= 0 {
			i = after
		}
	}
	switch c := v.at(i); {
	case c == '=' || c == ':':
		f.separator, i = c, v.skip(i, "=:>")
		if f.separator == ':' && v.at(i+1) == '|' { // a block of YAML
			i = v.skip(i+1, "|-+")
		}
	case c == '>' && i == f.end && (v.at(f.start-1) == '<' || v.at(f.start-1) == ':'):
		f.separator, i = c, i+1
	case spaces == 1 && f.spaceSeparates(v, i):
		f.separator = ' '
	default:
		return false
	}
	f.value = v.skip(i, " \x01")
	f.spaced = f.separator == ':' && f.value > i
	return f.value < len(v.text)
}

// pairValue is the end of a key named value if i is between it and a sensitive
// one, and i if not: {"name": "cookie", "value": "x"}.
func (v *view) pairValue(i int) int {
	at := v.skip(i, ", \x01")
	if at > i && isQuote(v.at(at)) && v.wordAt(at+1) == "value" && isQuote(v.at(at+len("'value"))) {
		return at + len("'value'")
	}
	return i
}

// spaceSeparates reports whether the value is at i behind a mere space: --token
// x, or a quoted one. What is quoted behind "secret" is often its name.
func (f *field) spaceSeparates(v *view, i int) bool {
	if isQuote(v.at(i)) {
		return isAlnum(v.at(i+1)) && !strings.HasSuffix(f.name, "secret")
	}
	return v.at(f.start-1) == '-' && v.at(f.start-2) == '-'
}

// wordAt is the run of letters at i, in lower case.
func (v *view) wordAt(i int) string {
	end := i
	for c := v.at(end); isAlnum(c) && !isDigit(c); c = v.at(end) {
		end++
	}
	return strings.ToLower(string(v.text[min(i, end):end]))
}

// ordinaryAt reports whether the word at i is one of a sentence, or a status as
// in "401 Unauthorized".
func (v *view) ordinaryAt(i int) bool {
	if v.skip(i, "0123456789") == i+len("401") && v.at(i+len("401")) == ' ' && v.wordAt(i+len("401 ")) != "" {
		return true
	}
	word := v.wordAt(i)
	end := v.skip(i+len(word), `.,;:!?)"'`)
	return ordinary[word] && (end == len(v.text) || v.text[end] == ' ' || v.text[end] == soft)
}

// closingQuote is the end of the quoted value that opens at i: a quote of the
// same spelling, since one with more backslashes belongs to the value.
func (v *view) closingQuote(i int) int {
	spelling := v.spelling(i)
	for j := i + 1; j < len(v.text); j++ {
		if v.text[j] == v.text[i] && v.spelling(j) == spelling && !isAlnum(v.at(j+1)) {
			return j
		}
	}
	return len(v.text)
}

// closingBracket is the end of a list or an object, behind its bracket.
func (v *view) closingBracket(i int) int {
	depth := 0
	for ; i < len(v.text); i++ {
		switch v.text[i] {
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return i
}

func (v *view) elementEnd(i int) int {
	if end := v.find(i, "<"); end >= 0 {
		return end
	}
	return len(v.text)
}

// valueEnd is the end of a value without quotes. In an Authorization header a
// scheme comes first and commas separate what follows, in cookies semicolons.
func (f *field) valueEnd(v *view) int {
	end := v.bareEnd(f.value)
	if !f.isHeader() || end == f.value {
		return end
	}
	separators, scheme := ";", strings.HasSuffix(f.name, "authorization")
	if scheme {
		separators = ","
		if string(v.text[f.value:end]) == stars {
			return end
		}
	}
	for {
		closed := v.skip(end, `"'`)
		next := v.skip(closed, separators)
		continues := next > closed || scheme
		scheme = false
		next = v.skip(next, " \x01")
		to := v.bareEnd(next)
		if !continues || next == end || to == next || v.at(to) == ':' {
			return end
		}
		end = to
	}
}

// bareEnd is the end of a value without quotes that begins at i: white space or
// a separator before the next field. Closing punctuation is not part of it; a
// quoted parameter is.
func (v *view) bareEnd(i int) int {
	end := i
	for end < len(v.text) && v.text[end] != ' ' && !v.nextField(end) {
		if v.text[end] == '=' && isQuote(v.at(end+1)) {
			end = v.closingQuote(end+1) - 1
		}
		end++
	}
	for to := end; to > i; to-- {
		if !isPunctuation(v.text[to-1]) {
			return to
		}
	}
	return end
}

// nextField reports whether the byte at i ends a value before another field.
func (v *view) nextField(i int) bool {
	switch v.text[i] {
	case '<':
		return v.at(i+1) == '/'
	case '&':
		return v.namesField(i+1, "=")
	case ',', ';', '|':
		next := v.at(i + 1)
		return next == ' ' || isQuote(next) || v.namesField(i+1, "=:")
	}
	return false
}

func (v *view) namesField(i int, separators string) bool {
	end := i
	for isName(v.at(end)) || end > i && strings.IndexByte(".[]", v.at(end)) >= 0 {
		end++
	}
	return end > i && strings.IndexByte(separators, v.at(end)) >= 0
}

// maskScheme masks the credential behind the scheme at start and returns where
// it begins, or end if that is not a scheme.
func (v *view) maskScheme(start, end int) int {
	name := normalized(v.text[start:end])
	bearer := strings.HasSuffix(name, "bearer")
	from := v.skip(end, " +\x01")
	if !bearer && name != "basic" || from == end || from == len(v.text) {
		return end
	}
	if isQuote(v.text[from]) {
		to := v.closingQuote(from)
		v.mask(from+1, to)
		return from
	}
	to := v.bareEnd(from)
	if bearer && (v.ordinaryAt(from) || v.isParameter(from, to)) || !bearer && !v.likeBase64(from, to) {
		return end
	}
	v.mask(from, to)
	return from
}

// isParameter tells realm="x" in a challenge from a token.
func (v *view) isParameter(from, to int) bool {
	for i := from; i < to; i++ {
		if c := v.text[i]; !isName(c) {
			return i > from && c == '=' && isQuote(v.at(i+1))
		}
	}
	return false
}

// likeBase64 tells user:password in base64 from a word, as in "basic auth".
func (v *view) likeBase64(from, to int) bool {
	for i := from; i < to; i++ {
		if c := v.text[i]; isDigit(c) || c == '=' || i > from && 'A' <= c && c <= 'Z' {
			return to-from >= 4 && string(v.text[from:to]) != "HTTP"
		}
	}
	return string(v.text[from:to]) == stars
}
