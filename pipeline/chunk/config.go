package chunk

import (
	"cmp"
	"errors"
	"fmt"
)

// Mode is a way to cut.
type Mode uint8

const (
	// Structure keeps together what the document keeps together: a chunk stays
	// within its section, and is cut between blocks before paragraphs, lines,
	// sentences, words and grapheme clusters, in this order.
	Structure Mode = iota
	// Fixed fills each chunk with words up to the budget, across blocks and
	// sections.
	Fixed
	// Rows makes each table row and each record a chunk of its own; everything
	// else is cut as Structure does.
	Rows
)

var modeNames = [...]string{"structure", "fixed", "rows"}

// String returns the mode in lower case.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return "unknown"
}

// Config says how to cut. A zero field means its default.
type Config struct {
	// Mode is the way to cut: Structure.
	Mode Mode
	// Tokens is the budget for the embedded text of a chunk, its heading path
	// included: 256. Small models are trained on passages of about that length
	// and the mean of more token vectors says less about each.
	Tokens int
	// Overlap is how many tokens of a chunk the next one of the same section
	// may begin with: an eighth of Tokens. It must be less than Tokens; a
	// negative value means none.
	Overlap int
	// MaxBytes is the hard limit for the Text and the Heading of a chunk, in
	// bytes: 8,192. It is at least 64.
	MaxBytes int
	// Count counts the tokens of a text as the embedding model does. It is
	// called about once for each sentence and once for each chunk. Nil means
	// EstimateTokens.
	Count func(text string) int
}

// ErrConfig is what New's errors wrap.
var ErrConfig = errors.New("chunk: bad configuration")

const (
	defaultTokens = 256
	minTokens     = 8
	minBytes      = 64
	defaultBytes  = 8192
)

func (c Config) withDefaults() (Config, error) {
	c.Tokens = cmp.Or(c.Tokens, defaultTokens)
	c.MaxBytes = cmp.Or(c.MaxBytes, defaultBytes)
	c.Overlap = max(0, cmp.Or(c.Overlap, c.Tokens/8))
	if c.Count == nil {
		c.Count = EstimateTokens
	}
	switch {
	case int(c.Mode) >= len(modeNames):
		return c, fmt.Errorf("%w: mode %d is unknown", ErrConfig, c.Mode)
	case c.Tokens < minTokens:
		return c, fmt.Errorf("%w: %d tokens a chunk are too few, the least is %d", ErrConfig, c.Tokens, minTokens)
	case c.MaxBytes < minBytes:
		return c, fmt.Errorf("%w: %d bytes a chunk are too few, the least is %d", ErrConfig, c.MaxBytes, minBytes)
	case c.Overlap >= c.Tokens:
		return c, fmt.Errorf("%w: an overlap of %d tokens must be less than the %d of a chunk", ErrConfig, c.Overlap,
			c.Tokens)
	}
	return c, nil
}
