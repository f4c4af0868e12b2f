package sqlitestore_test

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

const purgeDim = 16

// trace is what would be left of a row in a file: the first eight bytes of a
// word that no other row has, as it stands in a text, and of a vector.
type trace [8]byte

func traceOf[T string | []byte](bytes T) (t trace) {
	copy(t[:], bytes)
	return t
}

// traced makes a row of about size bytes and lists what would be left of it.
func traced(r *rand.Rand, id, size int) (row, []trace) {
	text := []string{word(r), word(r)}
	chinese := make([]rune, 5)
	for i := range chinese {
		chinese[i] = rune(0x4e00 + r.IntN(0x5000))
	}
	left := []trace{traceOf(text[0]), traceOf(text[1]), traceOf(string(chinese))}
	text[1] += "ness" // the index has its stem
	for len(text) < size/6 {
		text = append(text, fmt.Sprintf("w%03d", r.IntN(1000)))
	}
	vector := make([]float32, purgeDim)
	var bytes []byte
	for i := range vector {
		vector[i] = float32(r.NormFloat64())
		bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(vector[i]))
	}
	heading := word(r)
	return row{
		id: fmt.Sprintf("id%d", id), doc: fmt.Sprintf("doc%d", id/7), heading: heading,
		text: strings.Join(text, " ") + " " + string(chinese), vector: vector,
	}, append(left, traceOf(heading), traceOf(bytes))
}

// word is made at random, so that the index cannot store it as another word's
// beginning and the rest.
func word(r *rand.Rand) string {
	letters := make([]byte, 10)
	for i := range letters {
		letters[i] = 'a' + byte(r.IntN(26))
	}
	return string(letters)
}

// requireNoTrace looks through every file of a folder.
func requireNoTrace(t *testing.T, folder string, gone map[trace]int) {
	t.Helper()
	require.Zero(t, traces(t, folder, gone), "traces of deleted rows")
}

func traces(t *testing.T, folder string, gone map[trace]int) (found int) {
	t.Helper()
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(folder, file.Name()))
		require.NoError(t, err)
		for len(content) >= len(trace{}) {
			if id, ok := gone[traceOf(content[:len(trace{})])]; ok {
				found++
				t.Logf("%s has %q of row %d", file.Name(), content[:len(trace{})], id)
			}
			content = content[1:]
		}
	}
	return found
}

// purgeable is a file with rows to delete.
type purgeable struct {
	t      *testing.T
	folder string
	store  *sqlitestore.Store
	random *rand.Rand
	rows   map[int][]trace
	gone   map[trace]int
	next   int
}

func newPurgeable(t *testing.T) *purgeable {
	t.Helper()
	p := &purgeable{
		t: t, folder: t.TempDir(), random: rand.New(rand.NewPCG(3, 7)), rows: map[int][]trace{}, gone: map[trace]int{},
	}
	var err error
	p.store, err = sqlitestore.Open(p.path())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.store.Close()) })
	require.NoError(t, p.store.CreateCollection(t.Context(), rowSchema(purgeDim), 1))
	require.NoError(t, p.store.CreateIndex(t.Context(), coll, "vector", cosineIndex(), false))
	require.NoError(t, p.store.LoadCollection(t.Context(), coll, false))
	return p
}

func (p *purgeable) path() string { return filepath.Join(p.folder, "rows.db") }

func (p *purgeable) add(n int) {
	p.t.Helper()
	var list []row
	for range n {
		one, left := traced(p.random, p.next, 100+p.random.IntN(1500))
		list, p.rows[p.next] = append(list, one), left
		p.next++
	}
	_, err := p.store.Upsert(p.t.Context(), coll, "", columns(purgeDim, list...)...)
	require.NoError(p.t, err)
}

// remove deletes n rows, anywhere in the file.
func (p *purgeable) remove(n int) {
	p.t.Helper()
	ids := slices.Sorted(maps.Keys(p.rows))
	p.random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	var keys []string
	for _, id := range ids[:n] {
		keys = append(keys, fmt.Sprintf("id%d", id))
		left := p.rows[id]
		delete(p.rows, id)
		for _, one := range left {
			p.gone[one] = id
		}
	}
	require.NoError(p.t, p.store.DeleteByPks(p.t.Context(), coll, "", entity.NewColumnVarChar("id", keys)))
}

// requireSound checks that the rows which stay are whole.
func (p *purgeable) requireSound() {
	p.t.Helper()
	db, err := sql.Open("sqlite", "file:"+p.path())
	require.NoError(p.t, err)
	defer db.Close()
	var verdict string
	require.NoError(p.t, db.QueryRow("PRAGMA integrity_check").Scan(&verdict))
	require.Equal(p.t, "ok", verdict)
	_, err = db.Exec("INSERT INTO t1(t1) VALUES('integrity-check')")
	require.NoError(p.t, err)
	for id := range p.rows {
		set, err := p.store.Query(p.t.Context(), coll, nil, fmt.Sprintf(`id == "id%d"`, id), []string{"text", "vector"})
		require.NoError(p.t, err)
		require.Equal(p.t, 1, set.Len())
		text, _ := set.GetColumn("text").GetAsString(0)
		hits := textHitsUpTo(p.t, p.store, text[:10])
		require.Equal(p.t, []string{fmt.Sprintf("id%d", id)}, hits)
		vector := set.GetColumn("vector").(*entity.ColumnFloatVector).Data()[0]
		near, err := p.store.Search(p.t.Context(), coll, nil, "", nil, []entity.Vector{entity.FloatVector(vector)},
			"vector", entity.COSINE, 1, nil)
		require.NoError(p.t, err)
		require.Equal(p.t, hits, near[0].IDs.(*entity.ColumnVarChar).Data())
	}
}

// A process that reads an earlier state needs what was deleted since: a purge
// says that it cannot remove it, after the busy timeout of five seconds.
func TestPurgeWhileAnotherProcessReads(t *testing.T) {
	t.Parallel()
	p := newPurgeable(t)
	p.add(50)
	reader, err := sql.Open("sqlite", "file:"+p.path())
	require.NoError(t, err)
	defer reader.Close()
	reading, err := reader.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	var rows int
	require.NoError(t, reading.QueryRow("SELECT count(*) FROM c1").Scan(&rows))
	p.remove(20)
	err = p.store.Purge(t.Context(), coll)
	assertCode(t, codes.Unavailable, err)
	require.ErrorContains(t, err, "another process reads the file")
	require.NoError(t, reading.Rollback())
	require.NoError(t, p.store.Purge(t.Context(), coll))
	requireNoTrace(t, p.folder, p.gone)
	p.requireSound()
}

// Rows move between pages when others are added and deleted; what was deleted
// is nowhere, and what was not is all there.
func TestPurgeLeavesNothingOfDeletedRows(t *testing.T) {
	p := newPurgeable(t)
	p.add(1500)
	p.remove(1)
	require.NotZero(t, traces(t, p.folder, p.gone), "the log and the index have the words")
	for range 6 {
		p.add(200)
		p.remove(100)
		p.remove(250)
		require.NoError(t, p.store.Purge(t.Context(), coll))
		requireNoTrace(t, p.folder, p.gone)
	}
	p.requireSound()
	p.remove(len(p.rows))
	require.NoError(t, p.store.Purge(t.Context(), coll))
	requireNoTrace(t, p.folder, p.gone)
}
