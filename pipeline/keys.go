package pipeline

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"

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

// policyWithin is a policy with the limits that a document was parsed within.
func policyWithin(policy string, limits parse.Limits) string {
	return rows.PolicyHash(policy, "limits", limits.String())
}

// shelf is where the originals of one destination are: what their keys begin
// with. The key of an original names destination, document and content, so that
// the same content is put once, and a destination deletes its own originals and
// no others.
type shelf string

// destinationDigits is how much of a destination's hash is in a key: 128 bits,
// which no two destinations share. A folder of the earlier layout has the 64
// digits of a document in this place, so the two are told apart by length.
const destinationDigits = 32

// newShelf is the shelf of a collection by its ID, which is empty for one
// without a record. Two machines with embedded vectors and one bucket have
// destinations of one name and different collections; a restored copy of a
// collection has its ID and another destination.
func newShelf(prefix, destination, collection string) shelf {
	sum := sha256.Sum256(fmt.Appendf(nil, "penstock destination 1\n%d %s\n%d %s",
		len(destination), destination, len(collection), collection))
	return oldShelf(prefix) + shelf(hex.EncodeToString(sum[:])[:destinationDigits]) + "/"
}

// oldShelf is where originals were before their keys named the destination.
// They are read and copied, and never deleted: nobody knows who else needs
// them.
func oldShelf(prefix string) shelf { return shelf(prefix + "originals/") }

// folder is what the keys of all originals of a document begin with.
func (s shelf) folder(document string) string { return string(s) + rows.DocumentHash(document) + "/" }

// original is where a content of a document is kept.
func (s shelf) original(document, sha string) string { return s.folder(document) + sha }

// name is where the name of a document is kept that is too long for metadata.
func (s shelf) name(document string) string { return s.folder(document) + nameObject }

const nameObject = "source.txt"
