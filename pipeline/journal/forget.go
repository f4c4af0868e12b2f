package journal

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/internal/shred"
)

// Past is what a row that a document no longer has was made with.
type Past struct {
	Document string   // its ID
	Text     string   // hash of the text that was embedded
	Answers  []string // hashes of what a chat model was asked
}

// Keys of the table past.
const (
	pastText   = "text "
	pastAnswer = "answer "
)

// owner stands for a document in the table past, which need not name it.
func owner(destination, id string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s", len(destination), destination, id))
	return hex.EncodeToString(sum[:])
}

// NotePast remembers, for Forget, under which hashes there may be vectors and
// answers about earlier versions of documents. Call it before the rows that say
// so are deleted.
func (j *Journal) NotePast(ctx context.Context, destination string, past ...Past) error {
	return writeEach(ctx, j, slices.Values(past), func(do statement, p Past) error {
		keys := []string{pastText + p.Text}
		for _, key := range p.Answers {
			keys = append(keys, pastAnswer+key)
		}
		for _, key := range keys {
			if err := do("INSERT OR IGNORE INTO past VALUES (?,?)", owner(destination, p.Document), key); err != nil {
				return err
			}
		}
		return nil
	})
}

// HoldsPaid reports whether the journal keeps any vector, and any answer.
func (j *Journal) HoldsPaid(ctx context.Context) (vectors, answers bool, err error) {
	err = j.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM vector), EXISTS (SELECT 1 FROM answer)").
		Scan(&vectors, &answers)
	return vectors, answers, j.wrap(err)
}

// Forget drops all that is known about documents, in one transaction: how they
// stand, a summary of the last run that names one of them, and the vectors and
// answers that NotePast told of.
func (j *Journal) Forget(ctx context.Context, destination string, ids ...string) error {
	spaces, err := j.spaces(ctx)
	if err != nil {
		return err
	}
	return j.write(ctx, func(tx *sql.Tx) error {
		for _, id := range ids {
			if err := forgetDocument(ctx, tx, destination, id); err != nil {
				return err
			}
			if err := j.forgetPast(ctx, tx, spaces, owner(destination, id)); err != nil {
				return err
			}
		}
		return nil
	})
}

func forgetDocument(ctx context.Context, tx *sql.Tx, destination, id string) error {
	quoted, err := json.Marshal(id)
	if err != nil {
		return err
	}
	for _, step := range []struct{ query, id string }{
		{"DELETE FROM document WHERE destination=? AND id=?", id},
		{"DELETE FROM problem WHERE destination=? AND id=?", id},
		{"DELETE FROM run WHERE destination=? AND instr(summary, ?)>0", strings.Trim(string(quoted), `"`)},
	} {
		if _, err := tx.ExecContext(ctx, step.query, destination, step.id); err != nil {
			return err
		}
	}
	return nil
}

func (j *Journal) forgetPast(ctx context.Context, tx *sql.Tx, spaces []string, owner string) error {
	keys, err := j.past(ctx, tx, owner)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if text, ok := strings.CutPrefix(key, pastText); ok {
			for _, space := range spaces {
				if err := j.forgetVector(ctx, tx, space, text); err != nil {
					return err
				}
			}
			continue
		}
		answer := strings.TrimPrefix(key, pastAnswer)
		if _, err := tx.ExecContext(ctx, "DELETE FROM answer WHERE key=?", answer); err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx, "DELETE FROM past WHERE owner=?", owner)
	return err
}

func (j *Journal) past(ctx context.Context, tx *sql.Tx, owner string) ([]string, error) {
	rows, err := tx.QueryContext(ctx, "SELECT key FROM past WHERE owner=?", owner)
	if err != nil {
		return nil, err
	}
	return all(j, rows, func(row scanner) (key string, err error) {
		err = row.Scan(&key)
		return key, err
	})
}

func (j *Journal) forgetVector(ctx context.Context, tx *sql.Tx, space, text string) error {
	done, err := tx.ExecContext(ctx, "DELETE FROM vector WHERE space=? AND key=?", space, text)
	if err != nil || !j.tracked {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		return err
	}
	for _, step := range []string{
		"DELETE FROM paid WHERE space=? AND key=?",
		"INSERT OR REPLACE INTO changed(name, a, b) VALUES ('vector', ?, ?)",
	} {
		if _, err := tx.ExecContext(ctx, step, space, text); err != nil {
			return err
		}
	}
	return nil
}

// spaces lists the embedding spaces of the vectors that are kept, with a read
// of a row for each.
func (j *Journal) spaces(ctx context.Context) (list []string, err error) {
	for after := ""; ; {
		var space sql.NullString
		err := j.db.QueryRowContext(ctx, "SELECT min(space) FROM vector WHERE space>?", after).Scan(&space)
		if err != nil || !space.Valid {
			return list, j.wrap(err)
		}
		list, after = append(list, space.String), space.String
	}
}

// Purge removes from the file what is left of everything that was dropped
// before. It reads the whole file, so call it once when a deletion is over.
// The error satisfies errors.Is(err, ErrBusy) if another process reads the
// journal for longer than five seconds; call it again then.
func (j *Journal) Purge(ctx context.Context) error { return j.wrap(shred.Rest(ctx, j.db)) }

// ErrBusy says that Purge could not empty the log of the file.
var ErrBusy = shred.ErrBusy
