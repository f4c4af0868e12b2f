package penstock_test

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// surface says how many exported names a package may have at its top level,
// constants included. Another name is a decision: raise the number here, and
// say in CHANGELOG.md what the name is for.
var surface = map[string]int{
	"grpcdoor":                    7,
	"httpdoor":                    11,
	"llm":                         19,
	"llm/staticmodel":             3,
	"metrics":                     12,
	"objectstore":                 25,
	"objectstore/filestore":       2,
	"objectstore/objectstoretest": 2,
	"pipeline":                    52,
	"pipeline/block":              10,
	"pipeline/chunk":              11,
	"pipeline/embed":              8,
	"pipeline/enrich":             15,
	"pipeline/journal":            17,
	"pipeline/lease":              10,
	"pipeline/modelserver":        13,
	"pipeline/parse":              11,
	"pipeline/rows":               10,
	"pipeline/service":            8,
	"pipeline/source":             19,
	"pipeline/state":              10,
	"pipeline/stop":               30,
	"pipeline/version":            14,
	"resilience":                  40,
	"resilience/fallback":         9,
	"resilience/filestate":        4,
	"resilience/inflight":         4,
	"resilience/natsstore":        4,
	"resilience/redisstore":       3,
	"resilience/storetest":        4,
	"resilience/trip":             5,
	"testutil":                    20,
	"testutil/hostile":            7,
	"testutil/llmtest":            28,
	"vectorstore":                 53,
	"vectorstore/sqlitestore":     3,
	"vectorstore/vectorstoretest": 1,
}

func TestSurface(t *testing.T) {
	names := exportedNames(files(t))
	for _, dir := range slices.Sorted(maps.Keys(names)) {
		limit, ok := surface[dir]
		t.Logf("%-32s %3d of %3d", dir, len(names[dir]), limit)
		if assert.True(t, ok, "%s is a public package: say in surface how many names it may export", dir) {
			assert.LessOrEqual(t, len(names[dir]), limit, "%s exports %s", dir, strings.Join(names[dir], ", "))
		}
	}
	for dir := range surface {
		assert.Contains(t, names, dir, "surface names a package that is gone")
	}
}

// exportedNames lists what each public package exports at its top level.
func exportedNames(all []file) map[string][]string {
	names := map[string][]string{}
	for _, f := range all {
		if f.test || f.nested || !public(f) {
			continue
		}
		names[f.dir] = append(names[f.dir], topLevel(f.syntax)...)
	}
	for dir, all := range names {
		names[dir] = slices.Compact(slices.Sorted(slices.Values(all))) // a file for each system says a name again
	}
	return names
}

func public(f file) bool {
	return f.syntax.Name.Name != "main" && !slices.Contains(strings.Split(f.dir, "/"), "internal")
}

// topLevel are the exported names that a file declares outside methods.
func topLevel(f *ast.File) []string {
	var names []string
	add := func(all ...*ast.Ident) {
		for _, name := range all {
			if name.IsExported() {
				names = append(names, name.Name)
			}
		}
	}
	for _, declaration := range f.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					add(s.Name)
				case *ast.ValueSpec:
					add(s.Names...)
				}
			}
		}
	}
	return names
}
