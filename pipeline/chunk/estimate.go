package chunk

import "unicode"

// lettersPerToken is how many letters of a word one token stands for, beyond
// the first token: common words are one token, long ones come in pieces.
const lettersPerToken = 6

// EstimateTokens guesses how many tokens a model will see, for when its own
// tokenizer is not at hand: one for each word and for each six further letters,
// and one for each sign of punctuation and each rune of a script without
// spaces. It counts rather more than WordPiece and BPE do for English.
func EstimateTokens(text string) int {
	tokens, letters := 0, 0
	for _, r := range text {
		switch {
		case isSpace(r):
			letters = 0
		case isWordRune(r):
			if letters%lettersPerToken == 0 {
				tokens++
			}
			letters++
		default:
			tokens++
			letters = 0
		}
	}
	return tokens
}

func isSpace(r rune) bool { return r == ' ' || r == '\n' || r == '\t' || unicode.IsSpace(r) }

func isWordRune(r rune) bool {
	if r < 0x80 {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	}
	return unicode.In(r, unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Arabic, unicode.Hebrew, unicode.Mn)
}
