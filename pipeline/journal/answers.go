package journal

import (
	"context"
	"database/sql"
	"errors"
	"maps"
)

// Answers looks up what a chat model answered, by the hash of what it was
// asked; what is not known is not in the result. An empty text is an answer
// that was useless.
func (j *Journal) Answers(ctx context.Context, keys ...string) (map[string]string, error) {
	found := make(map[string]string)
	for _, key := range keys {
		var text string
		err := j.answer.QueryRowContext(ctx, key).Scan(&text)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, j.wrap(err)
		}
		found[key] = text
	}
	return found, nil
}

// KeepAnswers remembers answers that were paid for, in one transaction. One
// that is there is replaced.
func (j *Journal) KeepAnswers(ctx context.Context, answers map[string]string) error {
	return writeEach(ctx, j, maps.Keys(answers), func(do statement, key string) error {
		return do("INSERT OR REPLACE INTO answer VALUES (?,?)", key, answers[key])
	})
}
