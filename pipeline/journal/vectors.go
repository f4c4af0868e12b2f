package journal

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Vectors looks up embeddings that were paid for, by the hash of the text that
// was embedded; what is not known is not in the result. space names the model
// and its dimensions.
func (j *Journal) Vectors(ctx context.Context, space string, keys []string) (map[string][]float32, error) {
	found := make(map[string][]float32)
	statement, err := j.db.PrepareContext(ctx, "SELECT vector FROM vector WHERE space=? AND key=?")
	if err != nil {
		return nil, j.wrap(err)
	}
	for _, key := range keys {
		var blob []byte
		err := statement.QueryRowContext(ctx, space, key).Scan(&blob)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err == nil {
			found[key], err = decode(blob)
		}
		if err != nil {
			return nil, j.wrap(errors.Join(err, statement.Close()))
		}
	}
	return found, j.wrap(statement.Close())
}

// KeepVectors remembers embeddings, in one transaction.
func (j *Journal) KeepVectors(ctx context.Context, space string, vectors map[string][]float32) error {
	return j.write(ctx, func(tx *sql.Tx) error {
		statement, err := tx.PrepareContext(ctx, "INSERT OR REPLACE INTO vector VALUES (?,?,?)")
		if err != nil {
			return err
		}
		for key, vector := range vectors {
			if _, err := statement.ExecContext(ctx, space, key, encode(vector)); err != nil {
				return errors.Join(err, statement.Close())
			}
		}
		return statement.Close()
	})
}

// encode writes a vector as little-endian float32.
func encode(vector []float32) []byte {
	blob := make([]byte, 0, 4*len(vector))
	for _, x := range vector {
		blob = binary.LittleEndian.AppendUint32(blob, math.Float32bits(x))
	}
	return blob
}

func decode(blob []byte) ([]float32, error) {
	if len(blob) == 0 || len(blob)%4 != 0 {
		return nil, fmt.Errorf("a cached vector of %d bytes is damaged", len(blob))
	}
	vector := make([]float32, len(blob)/4)
	for i := range vector {
		vector[i] = math.Float32frombits(binary.LittleEndian.Uint32(blob[4*i:]))
	}
	return vector, nil
}
