package scripts_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// installer runs install-services on a machine that has nothing: the programs
// on its PATH are those of a small system, and scripts that note what they are
// told.
type installer struct{ bin, services, calls string }

func newInstaller(t *testing.T) *installer {
	t.Helper()
	i := &installer{
		bin: t.TempDir(), services: filepath.Join(t.TempDir(), "services"),
		calls: filepath.Join(t.TempDir(), "calls"),
	}
	for _, name := range []string{
		"bash", "cat", "dirname", "env", "find", "grep", "head", "mkdir", "mktemp",
		"rm", "sed", "touch",
	} {
		path, err := exec.LookPath(name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(i.bin, name)))
	}
	i.program(t, "id", "echo 1000")
	i.program(t, "sudo", `exec "$@"`)
	i.program(t, "python3", "exit 1") // it has no venv
	i.program(t, "apt-cache", "exit 0")
	i.program(t, "apt-get", "exit 0")
	i.program(t, "sleep", "exit 0")
	i.program(t, "tee", "exit 1")
	return i
}

// program puts a script on the PATH that notes each call.
func (i *installer) program(t *testing.T, name, body string) {
	t.Helper()
	script := "#!/bin/sh\necho \"" + name + " $*\" >>'" + i.calls + "'\n" + body + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(i.bin, name), []byte(script), 0o755))
}

// run gives the exit code, what was said, and the calls of the noting programs.
func (i *installer) run(t *testing.T, args ...string) (code int, said, calls string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "./install-services", append(args, i.services)...)
	cmd.Env = []string{"PATH=" + i.bin}
	out, err := cmd.CombinedOutput()
	if err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
	}
	noted, err := os.ReadFile(i.calls)
	require.NoError(t, err)
	return cmd.ProcessState.ExitCode(), string(out), string(noted)
}

// debianPackages are those that a machine without any of them lacks. The one
// that is a file and not a program is looked for on the machine of the test.
const debianPackages = "redis-server prometheus prometheus-pushgateway chromium poppler-utils pandoc html2text " +
	"unrtf zsh fish mandoc groff-base( bash-completion)? python3-venv"

func TestInstallServicesSaysWhatIsMissing(t *testing.T) {
	code, said, calls := newInstaller(t).run(t)
	assert.Equal(t, 1, code)
	assert.Contains(t, said, "about 800 MB")
	assert.Regexp(t, "missing: "+debianPackages+"; on Debian: sudo apt-get install", said)
	assert.NotContains(t, calls, "sudo", "nothing is done as root unless told")
	assert.NotContains(t, calls, "apt-get -qq")
}

func TestInstallServicesInstallsPackagesWhenTold(t *testing.T) {
	code, said, calls := newInstaller(t).run(t, "--apt")
	assert.Equal(t, 1, code, "there is no Python")
	assert.NotContains(t, said, "missing:")
	assert.Contains(t, calls, "apt-get -qq update")
	assert.Regexp(t, "apt-get -qq install -y --no-install-recommends "+debianPackages+"\n", calls)
	assert.Contains(t, calls, "sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq install")
}

// Automatic updates hold the lock of dpkg for minutes on a new machine.
func TestInstallServicesWaitsForTheLock(t *testing.T) {
	i := newInstaller(t)
	held := filepath.Join(t.TempDir(), "held")
	require.NoError(t, os.WriteFile(held, bytes.Repeat([]byte("x\n"), 3), 0o600))
	i.program(t, "apt-get", `test -s '`+held+`' || exit 0
sed -i 1d '`+held+`'
echo "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 12 (unattended-upgr)" >&2
exit 100`)
	_, said, calls := i.run(t, "--apt")
	assert.Equal(t, 1, strings.Count(said, "another program holds the lock of apt: waiting for it"), said)
	assert.NotContains(t, said, "apt-get failed")
	assert.NotContains(t, said, "could not install redis-server")
	assert.Equal(t, 3, strings.Count(calls, "\nsleep 2\n"))
}

func TestInstallServicesSaysWhatAptSaid(t *testing.T) {
	i := newInstaller(t)
	i.program(t, "apt-get", `echo "E: Unable to locate package unrtf" >&2; exit 100`)
	code, said, calls := i.run(t, "--apt")
	assert.Equal(t, 1, code)
	assert.Contains(t, said, "E: Unable to locate package unrtf")
	assert.Contains(t, said, "apt-get could not install redis-server")
	assert.NotContains(t, calls, "sleep")
}

func TestInstallServicesRefusesWhatMakesNoSense(t *testing.T) {
	for _, row := range []struct {
		arg, env, says string
	}{
		{"--nope", "", "there is no --nope"},
		{"", "PENSTOCK_SERVICES=none", "PENSTOCK_SERVICES=none is for tests without servers"},
	} {
		cmd := exec.CommandContext(t.Context(), "./install-services")
		if row.arg != "" {
			cmd.Args = append(cmd.Args, row.arg)
		}
		cmd.Env = []string{"PATH=" + newInstaller(t).bin, row.env}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		assert.Equal(t, 64, exit.ExitCode())
		assert.Contains(t, string(out), row.says)
	}
}
