package main

import (
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// airflow is an Airflow of its own, with the DAG of the examples and a database
// in SQLite.
type airflow struct {
	program, home string
	env           []string
}

func newAirflow(t *testing.T, env ...string) *airflow {
	t.Helper()
	dags, err := filepath.Abs(filepath.Join(root, "examples", "airflow"))
	require.NoError(t, err)
	a := &airflow{program: upstreams.Airflow(t), home: t.TempDir()}
	path := filepath.Join(a.home, "path")
	require.NoError(t, os.Mkdir(path, 0o755))
	require.NoError(t, os.Symlink(os.Args[0], filepath.Join(path, "ingest")))
	a.env = append(os.Environ(),
		"AIRFLOW_HOME="+a.home, "AIRFLOW__CORE__DAGS_FOLDER="+dags, "AIRFLOW__CORE__LOAD_EXAMPLES=False",
		"PATH="+path+":"+os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1", beCommand+"=1",
		"INGEST_INPUTS="+filepath.Join(a.home, "docs"), "PENSTOCK_STATE="+filepath.Join(a.home, "state"))
	a.env = append(a.env, env...)
	out, err := a.command(t, "db", "migrate").CombinedOutput()
	require.NoError(t, err, string(out))
	return a
}

func (a *airflow) command(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), a.program, args...)
	cmd.Dir, cmd.Env = a.home, a.env
	return cmd
}

// taskRun is what Airflow has in its database of the one task of a DAG run.
type taskRun struct {
	state string
	tries int
	log   string
}

// test runs the DAG once, with the retries of its task.
func (a *airflow) test(t *testing.T) taskRun {
	t.Helper()
	out, err := a.command(t, "dags", "test", "documents").CombinedOutput()
	if err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, string(out))
	}
	db, err := sql.Open("sqlite", filepath.Join(a.home, "airflow.db"))
	require.NoError(t, err)
	defer db.Close()
	run := taskRun{log: string(out)}
	err = db.QueryRowContext(t.Context(),
		"SELECT state, try_number FROM task_instance ORDER BY start_date DESC LIMIT 1").Scan(&run.state, &run.tries)
	require.NoError(t, err, run.log)
	return run
}

// The DAG of the guide in a real Airflow: a run that an upstream ends is
// retried when the run says so and pays for no embedding twice, one that finds
// nothing new is skipped, and one that needs a person fails at its first try.
func TestAirflow(t *testing.T) {
	model := llmtest.NewServer(t, llmtest.Options{})
	a := newAirflow(t, append(atModel(model.URL), "PENSTOCK_MAX_PAUSE=1s")...)
	c := &command{dir: a.home}
	corpus(t, c, 20)

	model.Script(llmtest.Rule{First: 2, Last: 2, Fault: llmtest.RateLimit("3")})
	run := a.test(t)
	require.Equal(t, "success", run.state, run.log)
	assert.Equal(t, 2, run.tries, run.log)
	assert.Contains(t, run.log, "Retry policy decision")
	assert.LessOrEqual(t, model.Stats().Repeated, 1,
		"no text is embedded twice, the second try's check of the model excepted")

	run = a.test(t)
	assert.Equal(t, "skipped", run.state, run.log)

	c.write(t, "docs/broken.pdf", "%PDF-1.7 and nothing else")
	run = a.test(t)
	assert.Equal(t, "failed", run.state, run.log)
	assert.Equal(t, 1, run.tries, run.log)
}
