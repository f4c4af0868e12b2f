package upstreams

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// missingError says that a server is not on this machine.
type missingError struct {
	what string
	err  error
}

func (e *missingError) Error() string {
	return fmt.Sprintf("%s is not installed, run scripts/install-services: %v", e.what, e.err)
}

func (e *missingError) Unwrap() error { return e.err }

// check ends the test where err is not nil: it skips if a server is missing that
// nobody insists on, and fails otherwise.
func check(t testing.TB, err error) {
	t.Helper()
	switch missing := (*missingError)(nil); {
	case err == nil:
	case errors.As(err, &missing) && os.Getenv("PENSTOCK_REQUIRE_SERVICES") != "1":
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}

// Program returns the path of a program that scripts/install-services installs
// beside the servers, such as promtool or prometheus, and treats a missing one
// as the servers are treated.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := program(name)
	check(t, err)
	return path
}

// PythonDocs returns the folder with the HTML pages of the Python manual, about
// 500 documents that somebody else wrote.
func PythonDocs(t testing.TB) string {
	t.Helper()
	path, err := pythonDocs()
	check(t, err)
	return path
}

// Samples returns the folder with the documents out of source packages: every
// format, the broken and the odd too, the same on every machine.
func Samples(t testing.TB) string {
	t.Helper()
	folder, err := Folder()
	check(t, err)
	mark, err := installed("the corpus of documents", filepath.Join(folder, "corpus", "samples", "complete"))
	check(t, err)
	return filepath.Dir(mark)
}

// Manuals returns the folder with books and manuals as Debian has them, in EPUB,
// PDF and HTML.
func Manuals(t testing.TB) string {
	t.Helper()
	folder, err := Folder()
	check(t, err)
	path, err := installed("books and manuals", filepath.Join(folder, "corpus", "manuals"))
	check(t, err)
	return path
}

// Airflow returns the path of Airflow's command.
func Airflow(t testing.TB) string {
	t.Helper()
	folder, err := Folder()
	check(t, err)
	path, err := installed("Airflow", filepath.Join(folder, "airflow", "bin", "airflow"))
	check(t, err)
	return path
}

func pythonDocs() (string, error) {
	folder, err := Folder()
	if err != nil {
		return "", err
	}
	return installed("the Python manual", filepath.Join(folder, "python-docs"))
}

// Folder returns the absolute path of the folder with the servers, which need
// not exist.
func Folder() (string, error) {
	if folder := os.Getenv("PENSTOCK_SERVICES"); folder != "" {
		return filepath.Abs(folder)
	}
	root, err := moduleRoot()
	return filepath.Join(root, ".services"), err
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

// inVenv returns the path of a program of the Python environment.
func inVenv(name string) (string, error) {
	folder, err := Folder()
	if err != nil {
		return "", err
	}
	return installed(name, filepath.Join(folder, "venv", "bin", name))
}

func installed(what, path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", &missingError{what, err}
	}
	return path, nil
}

func program(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", &missingError{name, err}
	}
	return path, nil
}
