package natsstore

import (
	"fmt"
	"strconv"
	"strings"
)

// token writes a key as one token of a subject.
func token(key string) string {
	if key == "" {
		return "="
	}
	var text strings.Builder
	for _, b := range []byte(key) {
		if plain(b) {
			text.WriteByte(b)
		} else {
			fmt.Fprintf(&text, "=%02X", b)
		}
	}
	return text.String()
}

func plain(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || b == '-' || b == '_'
}

// keyOf is the key that token wrote; false if it was written by others.
func keyOf(token string) (string, bool) {
	if token == "=" {
		return "", true
	}
	var key strings.Builder
	for len(token) > 0 {
		if plain(token[0]) {
			key.WriteByte(token[0])
			token = token[1:]
			continue
		}
		if token[0] != '=' || len(token) < 3 {
			return "", false
		}
		b, err := strconv.ParseUint(token[1:3], 16, 8)
		if err != nil {
			return "", false
		}
		key.WriteByte(byte(b))
		token = token[3:]
	}
	return key.String(), true
}
