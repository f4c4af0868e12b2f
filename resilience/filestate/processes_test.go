package filestate_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/fleettest"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/resilience/filestate"
)

// counterFile is the environment variable that makes the test binary add ones
// to the number under the key "n" of the file that it names, and print each
// sum, until the number in counterTimes, or until it is killed.
const (
	counterFile  = "FILESTATE_TEST_COUNTER"
	counterTimes = "FILESTATE_TEST_TIMES"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(counterFile); path != "" {
		times, _ := strconv.Atoi(os.Getenv(counterTimes))
		if err := count(path, times); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func count(path string, times int) error {
	store, err := filestate.New(path, filestate.Config{})
	for range times {
		var n int
		if err == nil {
			n, err = increment(store)
		}
		if err != nil {
			return err
		}
		fmt.Println(n)
	}
	return err
}

func increment(store *filestate.Store) (int, error) {
	there, err := store.Load(context.Background(), "n")
	for err == nil {
		n, _ := strconv.Atoi(string(there.Value))
		there, err = store.Swap(context.Background(), "n", there.Version, []byte(strconv.Itoa(n+1)), 0)
		if err == nil {
			return n + 1, nil
		}
		if errors.Is(err, resilience.ErrConflict) {
			err = nil
		}
	}
	return 0, err
}

func counter(t *testing.T, path string, times int) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), program)
	c.Env = append(os.Environ(), counterFile+"="+path, counterTimes+"="+strconv.Itoa(times))
	c.Stderr = os.Stderr
	return c
}

func TestProcessesTakeTurns(t *testing.T) {
	path := newPath(t)
	var all []*exec.Cmd
	for range 3 {
		c := counter(t, path, 50)
		require.NoError(t, c.Start())
		all = append(all, c)
	}
	for _, c := range all {
		require.NoError(t, c.Wait())
	}
	assert.Equal(t, "150", fleettest.Value(t, open(t, path, filestate.Config{}), "n"))
}

// What a process that is killed has been told is there after, and the file is
// whole: at most the one write in flight may have happened in silence.
func TestKilledWritersLoseNothing(t *testing.T) {
	path := newPath(t)
	known := 0
	for i := range 20 {
		c := counter(t, path, 1_000_000)
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		lines := bufio.NewScanner(out)
		for range 5 + i { // then it is somewhere in its next write
			require.True(t, lines.Scan())
		}
		require.NoError(t, c.Process.Kill())
		for ok := true; ok; ok = lines.Scan() {
			known, err = strconv.Atoi(lines.Text())
			require.NoError(t, err)
		}
		require.Error(t, c.Wait())

		n, err := strconv.Atoi(fleettest.Value(t, open(t, path, filestate.Config{}), "n"))
		require.NoError(t, err)
		assert.Contains(t, []int{known, known + 1}, n)
		known = n
	}
	assert.NoFileExists(t, path+".broken")
}
