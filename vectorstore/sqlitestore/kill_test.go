package sqlitestore_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

const victimEnv = "SQLITESTORE_TEST_VICTIM"

// TestKilledWriterLeavesWholeCalls kills a process in the middle of writing,
// again and again, and looks whether each call is there in all tables or in
// none. It runs itself as the process to kill.
func TestKilledWriterLeavesWholeCalls(t *testing.T) {
	if path := os.Getenv(victimEnv); path != "" {
		writeForEver(t, path)
	}
	path := filepath.Join(t.TempDir(), "rows.db")
	st, err := sqlitestore.Open(path)
	require.NoError(t, err)
	require.NoError(t, st.CreateCollection(t.Context(), rowSchema(4), 1))
	require.NoError(t, st.CreateIndex(t.Context(), coll, "vector", cosineIndex(), false))
	require.NoError(t, st.LoadCollection(t.Context(), coll, false))
	require.NoError(t, st.Close())
	rounds := 6
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		killAfter(t, path, 1+3*round)
		checkWhole(t, path)
	}
}

const killBatch = 40

// writeForEver upserts one document after the other, killBatch rows a call, the
// same keys again after a while, and says so on stdout.
func writeForEver(t *testing.T, path string) {
	st, err := sqlitestore.Open(path)
	require.NoError(t, err)
	for i := 0; ; i++ {
		rows := make([]row, killBatch)
		for j := range rows {
			rows[j] = row{
				id: fmt.Sprintf("d%d-%d", i%7, j), doc: fmt.Sprint("d", i%7), ordinal: int64(i),
				text: fmt.Sprintf("call%d", i), vector: []float32{1, float32(i), 0, 0},
			}
		}
		if _, err := st.Upsert(t.Context(), coll, "", columns(4, rows...)...); err != nil {
			panic(err)
		}
		fmt.Println("wrote", i)
	}
}

func killAfter(t *testing.T, path string, calls int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWriterLeavesWholeCalls$")
	cmd.Env = append(os.Environ(), victimEnv+"="+path)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for n := 0; n < calls && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "wrote") {
			n++
		}
	}
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
}

func checkWhole(t *testing.T, path string) {
	t.Helper()
	st, err := sqlitestore.Open(path)
	require.NoError(t, err)
	defer st.Close()
	set, err := st.Query(t.Context(), coll, nil, "", []string{"doc", "ordinal", "vector", "text"})
	require.NoError(t, err)
	rows := map[string]map[int64]int{} // by document and call
	docs, calls := set.GetColumn("doc").(*entity.ColumnVarChar), set.GetColumn("ordinal").(*entity.ColumnInt64)
	vectors := set.GetColumn("vector").(*entity.ColumnFloatVector)
	for i, doc := range docs.Data() {
		call := calls.Data()[i]
		if rows[doc] == nil {
			rows[doc] = map[int64]int{}
		}
		rows[doc][call]++
		assert.Equal(t, []float32{1, float32(call), 0, 0}, vectors.Data()[i],
			"the vector is of another call than its row")
	}
	require.NotEmpty(t, rows)
	for doc, versions := range rows {
		require.Len(t, versions, 1, "document %s has rows of several calls", doc)
		for call, n := range versions {
			assert.Equal(t, killBatch, n, doc)
			assert.Len(t, textHitsUpTo(t, st, fmt.Sprint("call", call)), killBatch, "full text of %s", doc)
		}
	}
	near, err := st.Search(t.Context(), coll, nil, "", nil, []entity.Vector{entity.FloatVector{1, 0, 0, 0}},
		"vector", entity.COSINE, 4096, nil)
	require.NoError(t, err)
	assert.Equal(t, set.Len(), near[0].ResultCount, "vectors without rows, or rows without vectors")
}

func textHitsUpTo(t *testing.T, st *sqlitestore.Store, question string) []string {
	t.Helper()
	got, err := st.SearchText(t.Context(), coll, "", nil, question, 4096)
	require.NoError(t, err)
	return got[0].IDs.(*entity.ColumnVarChar).Data()
}
