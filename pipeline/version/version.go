// Package version tells the rows of a document's complete version from the rest
// of what a store holds of it: those of a version that is still being written
// or was abandoned, and those of one that has been replaced.
//
// # How rows are told apart
//
// Before a run writes the first row of a document version, it leaves a [Note]
// in the collection: a row of its own, at [Place], that names the attempt. Each
// row that the attempt then writes carries its stamp, in the field that holds
// the content hash on a commit mark. The note is removed once the attempt has
// ended and the rows of the other versions are gone. So, for a document:
//
//   - without a note, every row belongs to a complete version;
//   - with an attempt whose commit mark is not there, the rows with its stamp
//     belong to no complete version, and all others do;
//   - with an attempt whose commit mark is there, the rows of that version are
//     those with its stamp and, where it has none for an ordinal, the row that
//     it shares with the version before. All others are stale.
//
// A deletion is an attempt as well: once it is noted, no row belongs to a
// complete version, unless an attempt that began later has its commit mark.
//
// An attempt never shares a row with one that was abandoned: it writes such a
// row again, with its own stamp. Of what it replaces, the commit marks go last.
// Rows written before there were stamps have none, and are told apart all the
// same.
package version

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/pipeline/rows"
)

// Attempt is one writing of a document version.
type Attempt struct {
	Doc    string `json:"doc"`    // rows.DocumentHash of the document
	Stamp  string `json:"stamp"`  // on every row that it writes but the commit mark
	SHA    string `json:"sha"`    // content hash, as the commit mark has it
	Policy string `json:"policy"` // of its rows
	At     int64  `json:"at"`     // when it began, in milliseconds since 1970
	// Before are the ids of the commit marks that were there when it began.
	Before []string `json:"before,omitempty"`
	// Kept is the id of a commit mark that was there before and is its own as
	// well. It is set once every row of the attempt is there.
	Kept string `json:"kept,omitempty"`
	// Deleted says that it removes the document, and writes no version.
	Deleted bool `json:"deleted,omitempty"`
}

// stampLength is how many hex digits a stamp has: 64 bits, which is enough to
// tell apart the few attempts that are under way at a time.
const stampLength = 16

// Stamp names an attempt of a document: the first name that is not taken.
// The same input has the same stamps, anywhere.
func Stamp(doc, sha, policy string, taken func(stamp string) bool) string {
	for n := 0; ; n++ {
		name := strings.Join([]string{"penstock attempt 1", doc, sha, policy, strconv.Itoa(n)}, "\n")
		sum := sha256.Sum256([]byte(name))
		if stamp := hex.EncodeToString(sum[:])[:stampLength]; !taken(stamp) {
			return stamp
		}
	}
}

// Same reports whether two attempts write the same version.
func (a Attempt) Same(b Attempt) bool {
	return a.Doc == b.Doc && a.SHA == b.SHA && a.Policy == b.Policy
}

// New reports whether a commit mark was not there when the attempt began.
func (a Attempt) New(mark rows.Row) bool { return mark.IsMark() && !slices.Contains(a.Before, mark.ID) }

// Place is the document hash of the rows that hold notes. It is the hash of no
// document.
var Place = rows.DocumentHash("\x00notes")

// noteBytes bounds the attempts of one note, in bytes of JSON, below the 65,536
// that Milvus takes in such a field.
const noteBytes = 60_000

// Note names attempts of one run that have not ended.
type Note struct {
	ID       string    `json:"-"` // primary key of its row
	Writer   string    `json:"writer"`
	Run      string    `json:"run"`
	At       time.Time `json:"at"` // when it was last written
	Attempts []Attempt `json:"attempts"`
}

// Row is the note as it is stored, with a vector that no text has.
func (n Note) Row(dimensions int) (*rows.Row, error) {
	meta, err := json.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("note of unfinished documents: %w", err)
	}
	vector := make([]float32, max(dimensions, 1))
	vector[0] = 1
	return &rows.Row{ID: n.ID, Doc: Place, Ordinal: -1, Meta: meta, Vector: vector}, nil
}

// Split divides a list of attempts so that each part fits into one note.
func Split(attempts []Attempt) (parts [][]Attempt) {
	size := noteBytes
	for _, a := range attempts {
		text, _ := json.Marshal(a) // strings alone: it cannot fail
		if size += len(text) + 1; size > noteBytes {
			parts, size = append(parts, nil), len(text)+1
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], a)
	}
	return parts
}

// Notes are the notes of a collection.
type Notes []Note

// Read takes the notes from rows read at [Place]; ID and Meta are needed. A
// note that cannot be read is an error: what it hides is unknown.
func Read(list []rows.Row) (Notes, error) {
	notes := make(Notes, len(list))
	for i, row := range list {
		if err := json.Unmarshal(row.Meta, &notes[i]); err != nil {
			return nil, fmt.Errorf("a note of unfinished documents (row %s) cannot be read; "+
				"if a newer version wrote it, use that version: %w", row.ID, err)
		}
		notes[i].ID = row.ID
	}
	return notes, nil
}

// Attempts are the attempts on each document, by its hash.
func (n Notes) Attempts() map[string][]Attempt {
	byDoc := map[string][]Attempt{}
	for _, note := range n {
		for _, a := range note.Attempts {
			if !slices.ContainsFunc(byDoc[a.Doc], a.equal) {
				byDoc[a.Doc] = append(byDoc[a.Doc], a)
			}
		}
	}
	return byDoc
}

func (a Attempt) equal(b Attempt) bool {
	return a.Same(b) && a.Stamp == b.Stamp && a.At == b.At && a.Kept == b.Kept && a.Deleted == b.Deleted &&
		slices.Equal(a.Before, b.Before)
}
