package upstreams

import (
	"fmt"
	"os"
	"os/exec"
)

// reaper reads process groups from a pipe. The pipe ends with the process that
// holds the other end, however that process ends, and then the last group named
// is killed and its files removed.
const reaper = `
while read -r line; do group=$line; done
[ -z "$group" ] || kill -s KILL -- "-$group" 2>/dev/null
rm -rf -- "$@" || { sleep 1; rm -rf -- "$@"; }`

// lifeline ties a server and its files to the life of this process.
type lifeline struct {
	pipe *os.File
	pid  int // of the reaper
}

func newLifeline(files ...string) (*lifeline, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	cmd := exec.Command("sh", append([]string{"-c", reaper, "reaper"}, files...)...)
	cmd.Stdin, cmd.SysProcAttr = read, ownGroup()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &lifeline{write, cmd.Process.Pid}, cmd.Process.Release()
}

// guard names the process group that must not outlive this process, 0 for none.
func (l *lifeline) guard(group int) error {
	line := "\n"
	if group != 0 {
		line = fmt.Sprintln(group)
	}
	_, err := l.pipe.WriteString(line)
	return err
}

func (l *lifeline) end() {
	_ = l.pipe.Close()
	reap(l.pid)
}
