package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

// The scripts pin what a user sees: output, files and exit codes. Where a test
// in Go checks how, a script checks what.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "array": array, "holds": holds, "killed": killed, "mounted": mounted,
		},
	})
}

// exits runs the command and requires its exit code: exits 65 ingest docs.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARG…")
	}
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, not %s", code, args[0])
	}
}

// mounted sets a variable to the content of a file, as a mounted secret does:
// mounted PENSTOCK_LLM_API_KEY key.txt.
func mounted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mounted VARIABLE FILE")
	}
	ts.Setenv(args[0], ts.ReadFile(args[1]))
}

// array writes a JSON array of records, each of which is a chunk; one that is
// cut off is not closed: array 2500 pangolins docs/x.json cut.
func array(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: array RECORDS WORD FILE [cut]")
	}
	records, err := strconv.Atoi(args[0])
	ts.Check(err)
	name := ts.MkAbs(args[2])
	ts.Check(os.MkdirAll(filepath.Dir(name), 0o755))
	file, err := os.Create(name)
	ts.Check(err)
	defer file.Close()
	out := bufio.NewWriter(file)
	fmt.Fprint(out, "[")
	for i := range records {
		fmt.Fprintf(out, "{\"id\":%d,\"t\":\"record %d about %s", i, i, args[1])
		for k := range 60 {
			fmt.Fprintf(out, " w%d", i*7+k)
		}
		fmt.Fprint(out, "\"},\n")
	}
	fmt.Fprint(out, `{"id":-1,"t":`)
	if len(args) == 3 {
		fmt.Fprint(out, `"the last"}]`)
	}
	ts.Check(out.Flush())
}

// holds requires the number of rows of the collection "documents", notes of
// unfinished documents included: holds 1; ! holds 1.
func holds(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: holds ROWS")
	}
	if n := strconv.Itoa(rowsAt(ts, ts.MkAbs(".penstock/vectors.db"))); (n == args[0]) == neg {
		ts.Fatalf("%s rows", n)
	}
}

// rowsAt counts the rows of the collection "documents"; it may not exist yet.
func rowsAt(ts *testscript.TestScript, file string) int {
	store, err := sqlitestore.Open(file)
	ts.Check(err)
	defer store.Close()
	ctx := context.Background()
	there, err := store.HasCollection(ctx, "documents")
	ts.Check(err)
	if !there {
		return 0
	}
	answer, err := store.Query(ctx, "documents", nil, "", []string{rows.Field.ID})
	ts.Check(err)
	return answer.Len()
}

// killed runs the command and kills it once the collection "documents" has
// grown: killed ingest docs.
func killed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || args[0] != "ingest" {
		ts.Fatalf("usage: killed ingest ARG…")
	}
	file := ts.MkAbs(".penstock/vectors.db")
	before := 0
	if _, err := os.Stat(file); err == nil {
		before = rowsAt(ts, file)
	}
	cmd := exec.Command(os.Args[0], args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{beCommand + "=1", "PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME")}
	ts.Check(cmd.Start())
	for {
		if _, err := os.Stat(file); err == nil && rowsAt(ts, file) > before+1 { // beside the note
			break
		}
	}
	ts.Check(cmd.Process.Kill())
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		ts.Fatalf("it came to its end: %v", err)
	}
}
