package upstreams

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A dying Go server prints thousands of goroutines after the one line that says
// why.
func TestWhatAServerDiedOfIsFound(t *testing.T) {
	assert.Nil(t, crash([]byte("all is well\nin a panic: no\n")))
	log := "started\npanic: out of time\n\ngoroutine 1 [running]:\n" + strings.Repeat("\tframe\n", 100)
	assert.True(t, strings.HasPrefix(string(crash([]byte(log))), "panic: out of time\n\ngoroutine 1"))
	assert.Equal(t, 30, strings.Count(string(crash([]byte(log))), "\n")-1)
	assert.Equal(
		t,
		"fatal error: all goroutines are asleep\n…\n",
		string(crash([]byte("fatal error: all goroutines are asleep"))),
	)
}

// A server that several tests share may die of a fault of its own in one of
// them. The next test gets another.
func TestSharedServerThatCrashedIsReplaced(t *testing.T) {
	s := &shared{spec: func() (Spec, error) { return redisSpec() }}
	first := s.process(t)
	assert.Same(t, first, s.process(t))
	require.NoError(t, signalGroup(first.pid, sigKill))
	require.Eventually(t, first.crashed, 10*time.Second, time.Millisecond)
	second := s.process(t)
	t.Cleanup(second.end)
	assert.NotSame(t, first, second)
	assert.False(t, second.crashed())
}

// A killed server cannot clean up.
func TestKilledServerLeavesNothing(t *testing.T) {
	litter := filepath.Join(t.TempDir(), "socket")
	p, err := launch(t.Context(), Spec{
		Name: "messy", Ports: 1,
		Command: func(string, []int) *exec.Cmd { return exec.Command("sh", "-c", "touch '"+litter+"'; sleep 1000") },
		Ready: func(context.Context, string) error {
			_, err := os.Stat(litter)
			return err
		},
		Litter: func([]int) []string { return []string{litter} },
	})
	require.NoError(t, err)
	p.end()
	assert.NoFileExists(t, litter)
	assert.NoDirExists(t, p.Dir)
}
