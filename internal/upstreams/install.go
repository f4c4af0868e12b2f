package upstreams

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// missingError says that something which scripts/install-services installs is
// not to be had. Its text is the same wherever that thing is missed, so that a
// report of the skipped tests can count by it.
type missingError struct {
	what string
	by   string // what installs it
	err  error
}

func (e *missingError) Error() string {
	return fmt.Sprintf("needs %s, which %s installs", e.what, e.by)
}

func (e *missingError) Unwrap() error { return e.err }

const (
	byInstaller = "make test-servers"
	byApt       = "make test-servers APT=1" // unless somebody else installs Debian's packages
)

// errNone is why a test that needs a server does not run where
// PENSTOCK_SERVICES is "none".
var errNone = errors.New("PENSTOCK_SERVICES=none")

// none reports whether this run of the tests does without real servers,
// installed or not.
func none() bool { return os.Getenv("PENSTOCK_SERVICES") == "none" }

// check ends the test where err is not nil: it skips if a server is missing
// that nobody insists on, and fails otherwise.
func check(t testing.TB, err error) {
	t.Helper()
	switch missing := (*missingError)(nil); {
	case err == nil:
	case errors.As(err, &missing) && (none() || os.Getenv("PENSTOCK_REQUIRE_SERVICES") != "1"):
		t.Skip(err)
	case missing != nil:
		t.Fatal(fmt.Errorf("%w: %w", err, missing.err))
	default:
		t.Fatal(err)
	}
}

// Program returns the path of a program that scripts/install-services installs
// beside the servers, such as promtool or prometheus, under the first of its
// names that is there. A missing one is treated as the servers are.
func Program(t testing.TB, names ...string) string {
	t.Helper()
	var missing error
	for _, name := range names {
		path, err := program(name)
		if err == nil {
			return path
		}
		missing = cmp.Or(missing, err)
	}
	check(t, missing)
	return ""
}

// PythonDocs returns the folder with the HTML pages of the Python manual, about
// 500 documents that somebody else wrote.
func PythonDocs(t testing.TB) string {
	t.Helper()
	return path(t, "the Python manual", "python-docs")
}

// Samples returns the folder with the documents out of source packages: every
// format, the broken and the odd too, the same on every machine.
func Samples(t testing.TB) string {
	t.Helper()
	return filepath.Dir(path(t, "the corpus of documents", "corpus", "samples", "complete"))
}

// Manuals returns the folder with books and manuals as Debian has them, in
// EPUB, PDF and HTML.
func Manuals(t testing.TB) string {
	t.Helper()
	return path(t, "books and manuals", "corpus", "manuals")
}

// Airflow returns the path of Airflow's command.
func Airflow(t testing.TB) string {
	t.Helper()
	path, err := inEnvironment("Airflow", "airflow", "airflow")
	check(t, err)
	return path
}

func path(t testing.TB, what string, below ...string) string {
	t.Helper()
	path, err := installed(what, below...)
	check(t, err)
	return path
}

// Folder returns the absolute path of the folder with the servers, which need
// not exist. PENSTOCK_SERVICES may be relative to the root of the module.
func Folder() (string, error) {
	folder := cmp.Or(os.Getenv("PENSTOCK_SERVICES"), ".services")
	if filepath.IsAbs(folder) {
		return folder, nil
	}
	root, err := moduleRoot()
	return filepath.Join(root, folder), err
}

// moduleRoot is the nearest folder above the working directory, which is a
// package's folder in a test, that has both a go.mod and this package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, "go.mod")) && exists(filepath.Join(dir, "internal", "upstreams")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("not inside the module")
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// installed returns the path of something below the folder with the servers.
func installed(what string, below ...string) (string, error) {
	if none() {
		return "", &missingError{what, byInstaller, errNone}
	}
	folder, err := Folder()
	if err != nil {
		return "", err
	}
	path := filepath.Join(append([]string{folder}, below...)...)
	if _, err := os.Stat(path); err != nil {
		return "", &missingError{what, byInstaller, err}
	}
	return path, nil
}

// inEnvironment returns the path of a program of a Python environment that is
// complete: its stamp is written last.
func inEnvironment(what, environment, program string) (string, error) {
	stamp, err := installed(what, environment, "installed")
	return filepath.Join(filepath.Dir(stamp), "bin", program), err
}

func program(name string) (string, error) {
	if none() {
		return "", &missingError{name, byApt, errNone}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", &missingError{name, byApt, err}
	}
	return path, nil
}
