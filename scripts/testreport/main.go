// Command testreport reads the output of `go test -json` on its standard input,
// prints what a person wants of it and closes with the reasons of the tests
// that were skipped and one line that counts:
//
//	skipped   7: needs Milvus, which make test-servers installs
//	123 passed, 0 failed, 7 skipped
//
// A package is one line, a test is shown only if it failed. The exit code is 1
// if anything failed or if nothing ran, and if a test was skipped: a skip is a
// test that everybody believes in and nobody runs. -allow-skip takes a regular
// expression; skips that gave a reason which matches it are fine.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout)) }

func run(args []string, in io.Reader, out io.Writer) int {
	flags := flag.NewFlagSet("testreport", flag.ContinueOnError)
	flags.SetOutput(out)
	allow := flags.String("allow-skip", "^$", "regular `expression` of reasons that are good ones")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	reason, err := regexp.Compile(*allow)
	if err != nil {
		fmt.Fprintln(out, err)
		return 2
	}
	r := report{
		out: out, allow: reason, said: make(map[string]*strings.Builder), failures: make(map[string]bool),
		skips: make(map[string]int),
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		r.line(lines.Bytes())
	}
	return r.close(lines.Err())
}

// event is one line of go test -json; see go doc test2json.
type event struct {
	Action, Package, ImportPath, Test, Output, FailedBuild string
	Elapsed                                                float64
}

type report struct {
	out                     io.Writer
	allow                   *regexp.Regexp
	said                    map[string]*strings.Builder // output by package and test
	passed, failed, skipped int
	unfinished              int
	failures                map[string]bool // packages in which a failure was counted
	skips                   map[string]int  // by reason
	unwanted                int             // skips without a good reason
}

func (r *report) line(text []byte) {
	var e event
	if json.Unmarshal(text, &e) != nil {
		fmt.Fprintf(r.out, "%s\n", text) // of the go command itself
		return
	}
	key := cmp.Or(e.Package, e.ImportPath) + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		r.keep(key, e.Output)
	case "pass", "fail", "skip":
		r.ended(e, key)
	case "build-fail":
		r.failed++
		fmt.Fprint(r.out, r.take(key))
	}
}

func (r *report) keep(key, output string) {
	if r.said[key] == nil {
		r.said[key] = &strings.Builder{}
	}
	r.said[key].WriteString(output)
}

func (r *report) take(key string) string {
	defer delete(r.said, key)
	if r.said[key] == nil {
		return ""
	}
	return r.said[key].String()
}

func (r *report) ended(e event, key string) {
	said := r.take(key)
	switch {
	case e.Test == "":
		r.packageEnded(e, said)
	case e.Action == "pass":
		r.passed++
	case e.Action == "fail":
		r.failed++
		r.failures[e.Package] = true
		fmt.Fprintf(r.out, "FAIL %s\n%s", key, said)
	default:
		r.skippedTest(key, said)
	}
}

// packageEnded counts a package that failed without a failed test or build,
// such as one that ran out of time or crashed, as a failure of its own.
func (r *report) packageEnded(e event, said string) {
	fmt.Fprintf(r.out, "%-4s %s %.1fs\n", e.Action, e.Package, e.Elapsed)
	if e.Action != "fail" {
		return
	}
	fmt.Fprint(r.out, said)
	if !r.failures[e.Package] && e.FailedBuild == "" {
		r.failed++
	}
}

func (r *report) skippedTest(key, said string) {
	r.skipped++
	reason := reasonOf(said)
	r.skips[reason]++
	if !r.allow.MatchString(reason) {
		r.unwanted++
		fmt.Fprintf(r.out, "SKIP without a good reason: %s\n%s", key, said)
	}
}

var position = regexp.MustCompile(`^\S+\.go:\d+: `)

// reasonOf is what a test said last before it was skipped, without the place.
func reasonOf(said string) string {
	reason := "no reason"
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "--- ") && !strings.HasPrefix(line, "=== ") {
			reason = position.ReplaceAllString(line, "")
		}
	}
	return reason
}

func (r *report) close(err error) int {
	if err != nil {
		fmt.Fprintln(r.out, "testreport:", err)
	}
	for _, key := range slices.Sorted(maps.Keys(r.said)) { // of tests that never ended
		if !strings.HasSuffix(key, " ") {
			r.unfinished++
			fmt.Fprintf(r.out, "UNFINISHED %s\n%s", key, r.said[key])
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(r.skips)) {
		fmt.Fprintf(r.out, "skipped %3d: %s\n", r.skips[reason], reason)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	if err != nil || r.failed+r.unwanted+r.unfinished > 0 || r.passed == 0 {
		return 1
	}
	return 0
}
