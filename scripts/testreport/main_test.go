package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

const (
	passed  = `{"Action":"pass","Package":"p","Test":"TestA"}`
	failing = `{"Action":"output","Package":"p","Test":"TestB","Output":"want 1\n"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}`
	rootSkip = `{"Action":"output","Package":"p","Test":"TestC","Output":"=== RUN   TestC\n"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:12: root reads every folder\n"}
{"Action":"output","Package":"p","Test":"TestC","Output":"--- SKIP: TestC (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestC"}`
	crashed = `{"Action":"output","Package":"p","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p"}`
	broken = `{"Action":"build-output","ImportPath":"p","Output":"syntax error\n"}
{"Action":"build-fail","ImportPath":"p"}
{"Action":"fail","Package":"p","FailedBuild":"p"}`
	unfinished = `{"Action":"output","Package":"p","Test":"TestD","Output":"waiting\n"}`
)

func TestReport(t *testing.T) {
	for _, row := range []struct {
		name, in, want string
		code           int
	}{
		{"all pass", passed, "1 passed, 0 failed, 0 skipped\n", 0},
		{"nothing ran", "", "0 passed, 0 failed, 0 skipped\n", 1},
		{"a failure shows its output", passed + "\n" + failing, "want 1\n", 1},
		{"a failure is counted once", failing, "\n0 passed, 1 failed, 0 skipped\n", 1},
		{
			"a package that crashed", passed + "\n" + crashed, "panic: test timed out\n1 passed, 1 failed, 0 skipped\n",
			1,
		},
		{"a package that does not build", broken, "syntax error\nfail p 0.0s\n0 passed, 1 failed, 0 skipped\n", 1},
		{
			"a skip with a good reason", passed + "\n" + rootSkip,
			"skipped   1: root reads every folder\n1 passed, 0 failed, 1 skipped\n", 0,
		},
		{
			"skips are counted by reason",
			rootSkip + "\n" + strings.ReplaceAll(rootSkip, "TestC", "TestE") + "\n" + passed,
			"skipped   2: root reads every folder\n1 passed", 0,
		},
		{
			"a skip that gives no reason", `{"Action":"skip","Package":"p","Test":"TestC"}`,
			"skipped   1: no reason\n", 1,
		},
		{
			"a skip without one", passed + "\n" + strings.ReplaceAll(rootSkip, "root reads", "I fear"),
			"SKIP without a good reason: p TestC\n=== RUN   TestC\n    c_test.go:12: I fear every folder\n", 1,
		},
		{"a test that never ended", passed + "\n" + unfinished, "UNFINISHED p TestD\nwaiting\n", 1},
		{
			"each package counts",
			strings.Join([]string{
				passed, failing, broken, strings.ReplaceAll(crashed, `"p"`, `"q"`),
				strings.ReplaceAll(crashed, `"p"`, `"r"`),
			}, "\n"), "1 passed, 4 failed, 0 skipped\n", 1,
		},
		{"lines of the go command", "go: downloading x\n" + passed, "go: downloading x\n", 0},
	} {
		var out strings.Builder
		code := run([]string{"-allow-skip", "^root reads"}, strings.NewReader(row.in), &out)
		assert.Equal(t, row.code, code, row.name)
		assert.Contains(t, out.String(), row.want, row.name)
	}
}

func TestBadExpressionIsAUsageError(t *testing.T) {
	var out strings.Builder
	assert.Equal(t, 2, run([]string{"-allow-skip", "("}, strings.NewReader(passed), &out))
}
