package pipeline

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-go/penstock/pipeline/chunk"
	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/rows"
)

// policyHash is the hash of everything that decides what rows a content
// becomes. more is what enrichment adds.
func policyHash(c *Config, chunker *chunk.Chunker, format parse.Format, more ...string) string {
	parts := []string{
		"parse", format.Parser, strconv.Itoa(format.Version), "chunk", chunker.Policy(),
		"tokenizer", c.Tokenizer, "model", c.Model, strconv.Itoa(c.Dimensions),
	}
	for _, key := range slices.Sorted(maps.Keys(c.Meta)) {
		parts = append(parts, "meta", key, c.Meta[key])
	}
	return rows.PolicyHash(append(parts, more...)...)
}

// originalKey is where the content of a document is kept: under the hashes of
// its id and of itself, so that the same content is put once.
func originalKey(prefix, document, sha string) string {
	return strings.Join([]string{prefix + "originals", rows.DocumentHash(document), sha}, "/")
}

// sourceKey is where the name of a document is kept that is too long for
// metadata.
func sourceKey(prefix, document string) string { return originalKey(prefix, document, "source.txt") }
