package pipeline_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/objectstore/filestore"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/testutil/llmtest"
	"github.com/penstock-go/penstock/vectorstore"
)

// machine is a pipeline over the stores of a world, with a journal, breakers
// and a configuration of its own.
type machine struct {
	*world
	config pipeline.Config
}

func (w *world) machine() *machine {
	w.t.Helper()
	j, err := journal.Open(w.t.Context(), w.t.TempDir())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { assert.NoError(w.t, j.Close()) })
	m := &machine{world: w, config: w.config}
	m.config.Journal, m.config.Report = j, nil
	m.config.ObjectGuard.Breaker = testutil.NewBreaker(w.t, "s3", resilience.Config{})
	m.config.VectorGuard.Breaker = testutil.NewBreaker(w.t, "milvus", resilience.Config{})
	m.config.LLMGuard.Breaker = testutil.NewBreaker(w.t, "llm", resilience.Config{})
	return m
}

func (m *machine) pass() pipeline.Summary {
	p, err := pipeline.New(m.config)
	if !assert.NoError(m.t, err) {
		return pipeline.Summary{}
	}
	summary, _ := p.Run(m.t.Context(), m.documents()) // a deferral, where the race was lost
	return summary
}

// stalled is a machine that stops before its first call of a kind, as one that
// is suspended; "PutObject" is the original's. It has reached that once the
// returned channel is closed, and continues when resume is called, which waits
// for its end.
func (w *world) stalled(method string) (m *machine, reached <-chan struct{}, resume func() pipeline.Summary) {
	at, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	m = w.machine()
	wait := func() { once.Do(func() { close(at); <-release }) }
	m.config.Objects = &slowObjects{Store: w.objects, put: func() {
		if method == "PutObject" {
			wait()
		}
	}}
	m.config.Vectors = &hooked{Store: w.store, before: on(method, func(context.Context, call) error {
		wait()
		return nil
	})}
	ended := make(chan pipeline.Summary, 1)
	go func() { ended <- m.pass() }()
	return m, at, func() pipeline.Summary { close(release); return <-ended }
}

// slowObjects is an object store that tells before it takes an object.
type slowObjects struct {
	*filestore.Store

	put func()
}

func (s *slowObjects) PutObject(
	ctx context.Context, in *s3.PutObjectInput, opts ...func(*s3.Options),
) (*s3.PutObjectOutput, error) {
	s.put()
	return s.Store.PutObject(ctx, in, opts...)
}

// requireSettled checks that the store holds one version of a document, whole,
// and the one that its file has now.
func (w *world) requireSettled(name string) {
	w.t.Helper()
	content, err := os.ReadFile(filepath.Join(w.dir, "docs", name))
	list := w.rowsOf("docs/" + name)
	if os.IsNotExist(err) {
		require.Empty(w.t, list)
		return
	}
	require.NoError(w.t, err)
	sum := sha256.Sum256(content)
	var marks []string
	for _, row := range list {
		if row.IsMark() {
			marks = append(marks, row.SHA)
			require.Equal(w.t, row.Chunks, len(list))
		}
	}
	require.Equal(w.t, []string{hex.EncodeToString(sum[:])}, marks)
}

func (w *world) remove(name string) {
	w.t.Helper()
	require.NoError(w.t, os.Remove(filepath.Join(w.dir, "docs", name)))
}

// delete deletes a document from the stores.
func (m *machine) delete(name string) {
	m.t.Helper()
	p, err := pipeline.New(m.config)
	require.NoError(m.t, err)
	_, err = p.Delete(m.t.Context(), "docs/"+name)
	require.NoError(m.t, err)
}

func raceWorld(t *testing.T) *world {
	w := newWorld(t, llmtest.Options{})
	w.write("other.txt", "Another document, so that the collection is there.")
	w.machine().pass()
	return w
}

func twoValves(version string) string {
	return "# First\n\nThe " + version + " says that valve 1 was opened.\n\n# Second\n\nAnd that valve 2 was, says the " + version + ".\n"
}

// A machine that was stopped finishes an older version after a newer one,
// wherever it was stopped.
func TestRaceOfAnOlderVersion(t *testing.T) {
	for _, stop := range []string{"PutObject", "Query", "UpsertNotes", "Upsert", "DeleteByPks"} {
		t.Run(stop, func(t *testing.T) {
			t.Parallel()
			w := raceWorld(t)
			w.write("a.md", twoValves("zeroth version"))
			w.machine().pass()
			w.write("a.md", twoValves("first version"))
			late, reached, resume := w.stalled(stop)
			<-reached
			w.write("a.md", twoValves("second version"))
			w.machine().pass()
			w.requireSettled("a.md")
			summary := resume()
			t.Logf("%d ingested, %d deferred", summary.Ingested, summary.Deferred)
			late.config.Vectors = w.store
			late.pass()
			w.requireSettled("a.md")
			w.requireComplete(2)
			assert.Empty(t, w.notes())
		})
	}
}

// A deletion is not undone by a machine that was stopped.
func TestRaceOfADeletion(t *testing.T) {
	for _, stop := range []string{"PutObject", "Query", "UpsertNotes", "Upsert", "DeleteByPks"} {
		for _, before := range []string{"", twoValves("zeroth version")} {
			t.Run(stop+strings.ToLower(before[:min(len(before), 3)]), func(t *testing.T) {
				t.Parallel()
				w := raceWorld(t)
				if before != "" {
					w.write("a.md", before)
					w.machine().pass()
				}
				w.write("a.md", twoValves("first version"))
				late, reached, resume := w.stalled(stop)
				<-reached
				w.remove("a.md")
				w.machine().delete("a.md")
				summary := resume()
				t.Logf("%d ingested, %d deferred", summary.Ingested, summary.Deferred)
				late.config.Vectors = w.store
				late.pass()
				w.requireSettled("a.md")
				w.requireComplete(1)
				assert.Empty(t, w.notes())
				assert.Len(t, w.originals(), 1, "of the other document")
			})
		}
	}
}

// Rows that the newest version keeps are deleted by a machine that was stopped:
// it notices, and its next pass writes them again.
func TestRaceOfALateDeletion(t *testing.T) {
	w := raceWorld(t)
	w.write("a.md", twoValves("first version"))
	w.machine().pass()
	w.write("a.md", twoValves("second version"))
	late, reached, resume := w.stalled("DeleteByPks")
	<-reached
	w.write("a.md", twoValves("first version"))
	w.machine().pass()
	w.requireSettled("a.md")
	assert.Equal(t, 1, resume().Deferred)
	late.config.Vectors = w.store
	assert.Equal(t, 1, late.pass().Ingested)
	w.requireSettled("a.md")
	w.requireComplete(2)
}

// A machine's own journal calls unchanged what another has replaced. Verify
// finds that, and a machine without a journal, as each pass of a fleet is, puts
// it right.
func TestRaceOfTwoJournals(t *testing.T) {
	w := raceWorld(t)
	w.write("a.md", twoValves("first version"))
	one, other := w.machine(), w.machine()
	one.pass()
	w.write("a.md", twoValves("second version"))
	other.pass()
	w.write("a.md", twoValves("first version"))
	assert.Equal(t, 2, one.pass().Unchanged)

	p, err := pipeline.New(one.config)
	require.NoError(t, err)
	v, err := p.Verify(t.Context(), pipeline.VerifyOptions{}, func(f pipeline.Fault) {
		assert.Equal(t, "docs/a.md", f.ID)
		assert.Equal(t, pipeline.FaultMissing, f.Kind)
	})
	require.NoError(t, err)
	assert.Equal(t, 1, v.Missing)

	w.machine().pass()
	w.requireSettled("a.md")
	w.requireComplete(2)
}

// Several machines ingest one version at the same time.
func TestRaceOfOneVersion(t *testing.T) {
	w := raceWorld(t)
	w.write("a.md", manyValves(0))
	var all sync.WaitGroup
	for range 4 {
		m := w.machine()
		all.Go(func() { m.pass() })
	}
	all.Wait()
	w.machine().pass()
	w.requireSettled("a.md")
	w.requireComplete(2)
	assert.Empty(t, w.notes())
}

// A source that is removed while it is ingested leaves nothing of the version
// that was read, and the one before as it was.
func TestRaceOfARemovedSource(t *testing.T) {
	for _, stop := range []string{"UpsertNotes", "Upsert"} {
		for name, content := range map[string]func(int) string{
			"small": func(v int) string { return threeValves(fmt.Sprint("version ", v)) }, "large": manyValves,
		} {
			for _, before := range []bool{false, true} {
				t.Run(fmt.Sprint(stop, " ", name, " ", before), func(t *testing.T) {
					t.Parallel()
					w := raceWorld(t)
					if before {
						w.write("a.md", content(0))
						w.machine().pass()
					}
					expected := w.visible()
					w.write("a.md", content(1))
					_, reached, resume := w.stalled(stop)
					<-reached
					w.remove("a.md")
					assert.Equal(t, 1, resume().Gone)
					assert.Equal(t, expected, w.visible())
					assert.Len(t, w.rows(), len(w.requireComplete(len(expected))))
					assert.Empty(t, w.notes())
				})
			}
		}
	}
}

// A file that grows while it is ingested is ingested as it was read. The next
// run takes the rest.
func TestRaceOfAGrowingFile(t *testing.T) {
	w := raceWorld(t)
	w.write("a.md", threeValves("first version"))
	late, reached, resume := w.stalled("Upsert")
	<-reached
	w.write("a.md", threeValves("first version")+"# Fourth\n\nAppended.\n")
	summary := resume()
	assert.Zero(t, summary.Deferred)
	assert.Len(t, w.rowsOf("docs/a.md"), 3)
	late.config.Vectors = w.store
	assert.Equal(t, 1, late.pass().Ingested)
	assert.Len(t, w.rowsOf("docs/a.md"), 4)
	w.requireSettled("a.md")
}

var _ vectorstore.Store = (*hooked)(nil)
