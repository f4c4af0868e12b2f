package penstock_test

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/penstock-go/penstock/"

// rule is about one folder or one family of modules.
type rule struct {
	of  string
	may []string
	why string
}

// arrows says which packages of this module a package may import, outside its
// tests, and why. A package takes the entry of its nearest folder here. An
// entry covers the folders below those it names.
var arrows = []rule{
	{
		"resilience",
		[]string{"resilience/trip", "resilience/internal/mask"},
		"the breaker is usable by a program that wants nothing else of us",
	},
	{"resilience/internal/mask", nil, "one way to show an upstream's error without its secrets"},
	{"resilience/trip", nil, "it is words: the rules by which a breaker opens"},
	{"resilience/fallback", []string{"resilience"}, "it answers in place of a breaker that refuses"},
	{"resilience/inflight", []string{"resilience"}, "it bounds the calls through a breaker"},
	{
		"resilience/storetest",
		[]string{"resilience"},
		"what every store of shared breakers must do, as a test that any of them can run",
	},
	{"resilience/redisstore", []string{"resilience"}, "a store knows keys, values and versions, and no breaker"},
	{"resilience/natsstore", []string{"resilience"}, "a store knows keys, values and versions, and no breaker"},
	{"resilience/filestate", []string{"resilience"}, "a store knows keys, values and versions, and no breaker"},

	{"internal/cafile", nil, "one reading of the operator's certificate authorities"},
	{"internal/inband", nil, "one reading of an error that says nothing"},
	{"internal/frozen", nil, "one way to read a database that cannot be written"},
	{"internal/shred", nil, "one way to leave nothing of deleted rows in a file"},
	{"internal/plain", nil, "one way to make text safe to show and to store"},
	{"internal/secret", nil, "one way to read keys and to keep them out of what is shown"},

	{"metrics", []string{"resilience"}, "it reads breakers and is told about calls, it drives nothing"},
	{"internal/trace", []string{"resilience"}, "it describes a call through a breaker"},
	{
		"internal/door",
		[]string{"resilience"},
		"the way of a call through a breaker, whatever the upstream, the tracer and the metrics are",
	},

	{
		"httpdoor",
		[]string{"resilience", "internal/door", "internal/inband"},
		"a client that wants a breaker below it wants no metrics and no SDK with it",
	},
	{
		"grpcdoor",
		[]string{"resilience", "internal/door"},
		"a connection that wants a breaker in it wants no metrics and no SDK with it",
	},
	{"internal/door/doortest", []string{"resilience", "metrics", "testutil"}, "what the tests of all doors need"},
	{
		"llm",
		[]string{
			"resilience", "metrics", "httpdoor", "internal/door", "internal/inband", "internal/trace",
			"internal/secret",
		},
		"a door guards one upstream and never calls another door",
	},
	{
		"objectstore",
		[]string{"resilience", "metrics", "httpdoor", "internal/door", "internal/trace", "internal/secret"},
		"a door guards one upstream and never calls another door",
	},
	{
		"vectorstore",
		[]string{
			"resilience", "metrics", "grpcdoor", "internal/door", "internal/trace", "internal/secret",
			"vectorstore/internal",
		},
		"a door guards one upstream and never calls another door",
	},

	{"llm/staticmodel", nil, "a backend knows the SDK's types and no breaker: guarding it is the door's work"},
	{"objectstore/filestore", nil, "a backend knows the SDK's types and no breaker: guarding it is the door's work"},
	{
		"vectorstore/sqlitestore",
		[]string{"vectorstore/internal", "internal/frozen", "internal/netfs", "internal/shred"},
		"a backend knows the SDK's types and no breaker: guarding it is the door's work",
	},
	{"vectorstore/internal", nil, "reads the SDK's options for the door and the backend alike"},

	{
		"objectstore/objectstoretest",
		[]string{"objectstore", "resilience"},
		"what every object store must do, as a test that any of them can run",
	},
	{
		"vectorstore/vectorstoretest",
		[]string{"vectorstore", "resilience"},
		"what every vector store must do, as a test that any of them can run",
	},

	{"pipeline/block", nil, "blocks are where parsers and chunks meet"},
	{"pipeline/parse", []string{"pipeline/block"}, "what a document says does not depend on any upstream"},
	{"pipeline/chunk", []string{"pipeline/block"}, "chunks are cut from blocks alone, whatever made them"},
	{
		"pipeline/journal",
		[]string{"internal/frozen", "internal/shred"},
		"the journal is a cache of what was done and does nothing itself",
	},
	{
		"pipeline/lease",
		[]string{"pipeline/service", "pipeline/stop", "objectstore", "resilience"},
		"a lease is objects in a bucket, which is reached through its door",
	},
	{
		"pipeline/state",
		[]string{
			"pipeline/service",
			"pipeline/stop",
			"pipeline/journal",
			"pipeline/lease",
			"objectstore",
			"resilience",
		},
		"it carries a journal to a bucket and back, under a lease",
	},
	{
		"pipeline/source",
		[]string{"pipeline/service", "pipeline/stop", "objectstore", "resilience"},
		"sources are folders, addresses and buckets; a bucket is reached through its door",
	},
	{"pipeline/stop", []string{"resilience"}, "how work ends is a leaf: every stage returns it"},
	{
		"pipeline/service",
		[]string{"pipeline/stop", "llm", "objectstore", "vectorstore", "resilience"},
		"one way for all stages to call an upstream through its door",
	},
	{
		"pipeline/modelserver",
		[]string{"pipeline/service", "pipeline/stop", "resilience"},
		"what a failed request says about a text does not depend on the model",
	},
	{"pipeline/embed", []string{
		"llm", "metrics", "resilience", "pipeline/modelserver", "pipeline/service",
		"pipeline/stop",
	}, "a stage knows its model and no run"},
	{"pipeline/enrich", []string{
		"llm", "metrics", "resilience", "pipeline/chunk", "pipeline/modelserver",
		"pipeline/rows", "pipeline/stop",
	}, "a stage knows its model and no run"},
	{"pipeline/version", []string{"pipeline/rows"}, "which rows are whole follows from the rows and the notes alone"},
	{"pipeline/rows", nil, "the scheme of ids and rows must not change with anything else"},
	{
		"pipeline",
		[]string{"pipeline", "llm", "objectstore", "vectorstore", "metrics", "resilience"},
		"the pipeline reaches upstreams through doors only",
	},

	{"cmd", []string{
		"pipeline", "llm", "objectstore", "vectorstore", "metrics", "resilience", "internal/trace",
		"internal/netfs", "internal/secret", "cmd/ingest/internal",
	}, "a command wires things together"},
	{"cmd/ingest/internal/complete", nil, "what may follow follows from the model of the command line alone"},
	{"cmd/ingest/internal/manual", nil, "a manual follows from the model of the command line alone"},
	{
		"cmd/ingest/internal/statuspage",
		[]string{"pipeline", "resilience"},
		"it shows what the pipeline and the breakers say and drives neither",
	},

	{
		"examples",
		[]string{"httpdoor", "llm", "objectstore", "vectorstore", "pipeline", "resilience"},
		"an example shows the surface that users have",
	},

	{"bench", []string{"resilience", "internal/upstreams", "testutil"}, "it measures the kit beside its rivals"},

	{"testutil", []string{"resilience", "testutil"}, "users test their own code with it, so it pulls in little"},
	{"testutil/llmtest", []string{"llm/staticmodel", "resilience", "testutil"}, "its vectors are real ones"},
	{"internal/netfs", nil, "it asks the operating system alone"},
	{"internal/upstreams", nil, "servers for tests know nothing of what is tested"},
	{
		"internal/fleettest",
		[]string{"resilience", "internal/upstreams", "internal/door/doortest"},
		"drills of a fleet's processes, for the tests of the stores that have a server",
	},
	{
		"internal/bucket",
		[]string{"objectstore", "resilience", "internal/upstreams"},
		"a store that fails on demand, for tests of packages that keep things in one",
	},
	{"scripts", nil, "tools of the house"},
}

// leaves may be imported by every package but those of resilience and testutil.
var leaves = []string{"internal/cafile", "internal/plain"}

// only says which packages may import a family of modules outside their tests.
var only = []rule{
	{"github.com/prometheus/", []string{"metrics"}, "one package speaks to Prometheus"},
	{
		"go.opentelemetry.io/",
		[]string{"internal/trace", "llm", "objectstore", "vectorstore", "cmd"},
		"one package makes spans, the doors describe them, the command exports them",
	},
	{
		"github.com/stretchr/testify",
		[]string{
			"objectstore/objectstoretest", "vectorstore/vectorstoretest", "resilience/storetest", "internal/fleettest",
		},
		"it is for tests",
	},
	{"go.uber.org/goleak", []string{"internal/door/doortest", "resilience/storetest"}, "it is for tests"},
	{
		"github.com/redis/go-redis",
		[]string{"resilience/redisstore", "cmd", "examples"},
		"one package speaks to Redis, programs connect to it",
	},
	{
		"github.com/nats-io/nats.go",
		[]string{"resilience/natsstore", "cmd", "examples"},
		"one package speaks to NATS, programs connect to it",
	},
	{"github.com/nats-io/nats-server", nil, "it is for tests"},
	{"github.com/Shopify/toxiproxy", []string{"internal/upstreams/network"}, "it is for tests"},
	{"testing", []string{
		"internal/upstreams", "internal/bucket", "internal/door/doortest", "testutil",
		"objectstore/objectstoretest",
		"vectorstore/vectorstoretest",
		"resilience/storetest",
		"internal/fleettest",
	}, "test helpers alone take a testing.TB"},
	{
		"github.com/sashabaranov/go-openai",
		[]string{"llm", "pipeline", "testutil", "cmd", "examples"},
		"the types of the LLM door",
	},
	{"github.com/milvus-io/", []string{"vectorstore", "pipeline", "cmd", "examples"}, "the types of the vector door"},
	{
		"github.com/aws/",
		[]string{"objectstore", "pipeline", "cmd", "examples", "internal/upstreams", "internal/bucket"},
		"the types of the object door; a signature in a health check",
	},
	{"modernc.org/sqlite", []string{"vectorstore/sqlitestore", "pipeline/journal"}, "where a file is a database"},
}

// file is one Go file of the module or of a nested one.
type file struct {
	path, dir string // slash-separated, from the root
	nested    bool   // belongs to a module of scripts/modules
	test      bool
	text      []byte
	syntax    *ast.File
}

func (f file) imports() []string {
	var all []string
	for _, spec := range f.syntax.Imports {
		name, _ := strconv.Unquote(spec.Path.Value)
		all = append(all, name)
	}
	return all
}

func (f file) generated() bool { return ast.IsGenerated(f.syntax) }

// tree is parsed once for all tests.
var tree struct {
	once  sync.Once
	files []file
}

func files(t *testing.T) []file {
	t.Helper()
	tree.once.Do(func() { tree.files = parseAll(t) })
	require.NotEmpty(t, tree.files)
	return tree.files
}

func parseAll(t *testing.T) []file {
	t.Helper()
	modules := nestedModules(t)
	var all []file
	require.NoError(t, fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return skipFolder(name, entry)
		case path.Ext(name) != ".go":
			return nil
		}
		f := parse(t, name)
		f.nested = slices.ContainsFunc(modules, func(module string) bool { return under(f.dir, module) })
		all = append(all, f)
		return nil
	}))
	return all
}

func skipFolder(name string, entry fs.DirEntry) error {
	hidden := strings.HasPrefix(entry.Name(), ".") && name != "."
	if hidden || entry.Name() == "testdata" {
		return fs.SkipDir
	}
	return nil
}

// nestedModules are the folders that scripts/modules lists.
func nestedModules(t *testing.T) []string {
	t.Helper()
	list, err := os.ReadFile("scripts/modules")
	require.NoError(t, err)
	var folders []string
	for line := range strings.Lines(string(list)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			folders = append(folders, line)
		}
	}
	return folders
}

func parse(t *testing.T, name string) file {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(name))
	require.NoError(t, err)
	syntax, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
	require.NoError(t, err)
	return file{path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"), text: text, syntax: syntax}
}

// under reports whether a folder is the other one or below it.
func under(folder, parent string) bool {
	return folder == parent || strings.HasPrefix(folder, parent+"/")
}

// mayImport reports whether target is one of the folders or below one of them,
// or a leaf.
func (r rule) mayImport(target string) bool {
	if slices.Contains(leaves, target) {
		return !under(r.of, "resilience") && !under(r.of, "testutil")
	}
	return slices.ContainsFunc(r.may, func(folder string) bool { return under(target, folder) })
}

func ruleOf(dir string) (nearest rule, ok bool) {
	for _, r := range arrows {
		if under(dir, r.of) && len(r.of) > len(nearest.of) {
			nearest, ok = r, true
		}
	}
	return nearest, ok
}

func TestImportsFollowTheArrows(t *testing.T) {
	for _, f := range files(t) {
		if f.test || f.dir == "." {
			continue
		}
		r, ok := ruleOf(f.dir)
		if !assert.True(t, ok, "%s: which packages may %s import? Say so in arrows, with the reason", f.path, f.dir) {
			continue
		}
		for _, name := range f.imports() {
			if target, own := strings.CutPrefix(name, module); own && target != f.dir {
				assert.True(t, r.mayImport(target), "%s imports %s; %s may not: %s", f.path, target, r.of, r.why)
			}
		}
	}
}

func TestOnlySomeImport(t *testing.T) {
	for _, f := range files(t) {
		if f.test || f.nested || f.dir == "." { // a module is nested so that it may
			continue
		}
		for _, name := range f.imports() {
			for _, r := range only {
				family := name == r.of || strings.HasPrefix(name, strings.TrimSuffix(r.of, "/")+"/")
				assert.False(t, family &&
					!slices.ContainsFunc(r.may, func(folder string) bool { return under(f.dir, folder) }),
					"%s imports %s: %s", f.path, name, r.why)
			}
		}
	}
}

// The stores of shared breakers have the libraries of their servers; no door
// imports one, so a program has those that it names.
func TestResilienceStandsOnTheStandardLibrary(t *testing.T) {
	alone := []string{"resilience", "resilience/fallback", "resilience/inflight", "resilience/trip"}
	for _, f := range files(t) {
		if f.test || !slices.Contains(alone, f.dir) && !under(f.dir, "resilience/internal") {
			continue
		}
		for _, name := range f.imports() {
			first, _, _ := strings.Cut(name, "/")
			own := strings.HasPrefix(name, module+"resilience")
			assert.True(t, own || !strings.Contains(first, "."), "%s imports %s: %s", f.path, name, arrows[0].why)
		}
	}
}

func TestEachPackageHasOneManual(t *testing.T) {
	manuals := map[string][]string{}
	for _, f := range files(t) {
		if f.test {
			continue
		}
		manuals[f.dir] = append(manuals[f.dir], nil...)
		if f.syntax.Doc != nil {
			manuals[f.dir] = append(manuals[f.dir], f.path)
		}
	}
	for dir, in := range manuals {
		assert.Len(t, in, 1, "%s must have its package comment in one file", dir)
	}
}

func TestPackageNamesSayWhatTheyAreAbout(t *testing.T) {
	for _, f := range files(t) {
		assert.NotContains(t, []string{"util", "utils", "common", "helper", "helpers", "misc", "base"},
			f.syntax.Name.Name, f.path)
	}
}

func TestFilesAreFormatted(t *testing.T) {
	for _, f := range files(t) {
		if f.generated() {
			continue
		}
		formatted, err := format.Source(f.text)
		require.NoError(t, err, f.path)
		assert.True(t, bytes.Equal(f.text, formatted), "gofmt -w %s", f.path)
	}
}

// A replace line works in this checkout alone: everybody who depends on the
// module builds without it.
func TestModuleHasNoReplace(t *testing.T) {
	for _, name := range []string{"go.mod", "tools.mod"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.NotRegexp(t, `(?m)^\s*replace\b|=>`, string(text), name)
	}
}

// What checks, tests and tidies the nested modules goes by the one list. There
// is no go.work, since -modfile does not work in a workspace.
func TestNestedModulesAreListed(t *testing.T) {
	var found []string
	require.NoError(t, fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return skipFolder(name, entry)
		}
		assert.NotEqual(t, "go.work", entry.Name(), name)
		if entry.Name() == "go.mod" && name != "go.mod" {
			found = append(found, path.Dir(name))
		}
		return nil
	}))
	assert.ElementsMatch(t, found, nestedModules(t),
		"scripts/modules must list each folder that has a go.mod, and no other")
	for _, folder := range found {
		text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
		require.NoError(t, err)
		up := strings.Repeat("../", strings.Count(folder, "/")+1)
		assert.Contains(t, string(text), "module "+module+folder+"\n")
		assert.Contains(t, string(text), "replace "+strings.TrimSuffix(module, "/")+" => "+up+"\n", folder)
	}
}

// The verdict on a call comes from its door, which tells it (Guard.Settled,
// Op.Settled). No error is classified a second time.
func TestOnlyDoorsClassify(t *testing.T) {
	doors := []string{
		"resilience", "httpdoor", "grpcdoor", "llm", "objectstore", "vectorstore", "internal/door", "examples",
	}
	for _, f := range files(t) {
		if f.test || f.nested || slices.ContainsFunc(doors, func(door string) bool { return under(f.dir, door) }) {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok {
				assert.NotEqual(
					t,
					"Classify",
					call.Sel.Name,
					"%s classifies an error; read its verdict (pipeline/stop)",
					f.path,
				)
			}
			return true
		})
	}
}
