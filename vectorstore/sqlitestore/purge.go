package sqlitestore

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/penstock-go/penstock/internal/shred"
)

// mergePages is how much of a full-text index is merged in one transaction, so
// that other writers wait for a fraction of a second only.
const mergePages = 1000

// firstTombstone is the lowest ID of a page of an FTS5 index that lists deleted
// rows, whose words are still in the index: FTS5 numbers such a page like one
// of segment 65,536 or higher.
const firstTombstone = 65536 << 37

// Purge removes what deleted rows have left in the file, so that none of their
// bytes stays: words in the full-text index, copies in unused parts of pages,
// and the log. It costs the more the larger the file is (about 10 ms per
// megabyte), so call it once when a deletion is over. Rows that were deleted
// before stay hidden, whether it succeeds or not. It is Unavailable if another
// process reads the file for longer than five seconds; call it again then.
func (s *Store) Purge(ctx context.Context, collName string) error {
	c, err := s.collection(ctx, collName)
	if err == nil && len(c.text) > 0 {
		err = s.mergeDeleted(ctx, c)
	}
	if err == nil {
		err = shred.Rest(ctx, s.write)
	}
	if errors.Is(err, shred.ErrBusy) {
		err = faultf(codes.Unavailable, "%v", err)
	}
	return s.wrap(ctx, "Purge", err)
}

func (s *Store) collection(ctx context.Context, name string) (*collection, error) {
	tx, err := s.read.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	return loadMeta(ctx, tx, name)
}

// mergeDeleted merges the full-text index until no segment has deleted rows. An
// index without content cannot remove the words of a row: they go when the
// segments that hold them are merged.
func (s *Store) mergeDeleted(ctx context.Context, c *collection) error {
	find := fmt.Sprintf("SELECT EXISTS (SELECT 1 FROM %s_data WHERE id >= %d)", c.fulltext(), int64(firstTombstone))
	merge := fmt.Sprintf("INSERT INTO %[1]s(%[1]s, rank) VALUES('merge', -%[2]d)", c.fulltext(), mergePages)
	for {
		var found bool
		if err := s.write.QueryRowContext(ctx, find).Scan(&found); err != nil || !found {
			return err
		}
		if _, err := s.write.ExecContext(ctx, merge); err != nil {
			return err
		}
	}
}
