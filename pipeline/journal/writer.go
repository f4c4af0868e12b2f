package journal

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
)

// Writer names this journal as a writer to a destination: a random name of 16
// hex digits that is made the first time and travels with the journal. It tells
// what a run before left in the stores from what another journal's run is
// writing. unfinished is what SetUnfinished noted last.
func (j *Journal) Writer(ctx context.Context, destination string) (id string, unfinished bool, err error) {
	find := func() error {
		return j.db.QueryRowContext(ctx, "SELECT id, unfinished FROM writer WHERE destination=?",
			destination).Scan(&id, &unfinished)
	}
	if err = find(); !errors.Is(err, sql.ErrNoRows) {
		return id, unfinished, j.wrap(err)
	}
	var name [8]byte
	_, _ = rand.Read(name[:]) // never fails, by its documentation
	_, err = j.db.ExecContext(ctx, "INSERT OR IGNORE INTO writer VALUES (?,?,0)", destination,
		hex.EncodeToString(name[:]))
	if err == nil {
		err = find()
	}
	return id, unfinished, j.wrap(err)
}

// SetUnfinished notes whether rows of unfinished document versions may be in
// the stores, for the next run to remove. Call Writer first.
func (j *Journal) SetUnfinished(ctx context.Context, destination string, unfinished bool) error {
	_, err := j.db.ExecContext(ctx, "UPDATE writer SET unfinished=? WHERE destination=?", unfinished, destination)
	return j.wrap(err)
}
