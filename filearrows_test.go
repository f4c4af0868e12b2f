package penstock_test

import (
	"cmp"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// upwards says how many uses between the files of a package of the pipeline may
// run up in the best order of the files. A package that is not named has no
// circle of files at all.
var upwards = map[string]int{
	"pipeline/chunk":  1,
	"pipeline/embed":  1,
	"pipeline/enrich": 1,
	"pipeline/parse":  6,
	"pipeline/source": 3,
	"pipeline/state":  1,
}

func TestFilesUseEachOtherDownwards(t *testing.T) {
	dirs := map[string]bool{}
	for _, f := range files(t) {
		dirs[f.dir] = dirs[f.dir] || !f.test && under(f.dir, "pipeline")
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if !dirs[dir] {
			continue
		}
		arrows := fileArrows(t, dir)
		order, up := arrows.upward()
		t.Logf("%s: %d arrows between %d files, %d run up in %v", dir, arrows.count(), len(arrows), up, order)
		assert.LessOrEqual(t, up, upwards[dir], "%s: files use each other in a circle: %v", dir, arrows.circles())
	}
}

// uses says, for each file of a package, which other files declare the types,
// functions, methods, variables and constants that it uses.
type uses map[string]map[string]bool

// fileArrows are the uses between the files of one package, tests left out.
// Types that come from other packages are not followed: what a package declares
// is found without them.
func fileArrows(t *testing.T, dir string) uses {
	t.Helper()
	fset := token.NewFileSet()
	var syntax []*ast.File
	arrows := uses{}
	for _, f := range files(t) {
		if f.dir == dir && !f.test {
			parsed, err := parser.ParseFile(fset, f.path, f.text, parser.SkipObjectResolution)
			require.NoError(t, err)
			syntax = append(syntax, parsed)
			arrows[path.Base(f.path)] = map[string]bool{}
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	check := types.Config{Importer: nothing{}, Error: func(error) {}}
	pkg, _ := check.Check(dir, fset, syntax, info) // it misses the other packages
	for use, object := range info.Uses {
		if object.Pkg() != pkg || !declaredByItself(object) {
			continue
		}
		from, to := path.Base(fset.Position(use.Pos()).Filename), path.Base(fset.Position(object.Pos()).Filename)
		if from != to {
			arrows[from][to] = true
		}
	}
	return arrows
}

// nothing imports no package.
type nothing struct{}

func (nothing) Import(string) (*types.Package, error) { return nil, errors.New("not followed") }

// declaredByItself holds for methods and for what stands at the top level, not
// for fields and what functions declare inside.
func declaredByItself(object types.Object) bool {
	f, isFunc := object.(*types.Func)
	return isFunc && f.Signature().Recv() != nil || object.Parent() == object.Pkg().Scope()
}

// circles are the groups of files that use each other in a circle.
func (u uses) circles() [][]string {
	reached := map[string]map[string]bool{}
	for from := range u {
		reached[from] = map[string]bool{}
		u.reach(from, reached[from])
	}
	var found [][]string
	done := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(u)) {
		if done[name] || !reached[name][name] {
			continue
		}
		var group []string
		for _, other := range slices.Sorted(maps.Keys(u)) {
			if reached[name][other] && reached[other][name] {
				group, done[other] = append(group, other), true
			}
		}
		found = append(found, group)
	}
	return found
}

func (u uses) reach(from string, reached map[string]bool) {
	for to := range u[from] {
		if !reached[to] {
			reached[to] = true
			u.reach(to, reached)
		}
	}
}

func (u uses) count() int {
	n := 0
	for _, to := range u {
		n += len(to)
	}
	return n
}

// upward orders the files so that few of them use one above, and returns the
// order, from the top, with those arrows. It is 0 exactly where no circle is.
func (u uses) upward() (order []string, up int) {
	order = slices.SortedFunc(maps.Keys(u), func(a, b string) int {
		reachA, reachB := map[string]bool{}, map[string]bool{}
		u.reach(a, reachA)
		u.reach(b, reachB)
		return cmp.Or(len(reachB)-len(reachA), len(u[b])-len(u[a]), cmp.Compare(a, b))
	})
	for better := true; better; {
		better = false
		for i := range order {
			if to := u.bestPlace(order, i); to != i {
				name := order[i]
				order = slices.Insert(slices.Delete(order, i, i+1), to, name)
				better = true
			}
		}
	}
	for i, from := range order {
		for _, to := range order[:i] {
			if u[from][to] {
				up++
			}
		}
	}
	return order, up
}

// bestPlace is where a file of the order has the fewest arrows that run up; its
// own place if none is better.
func (u uses) bestPlace(order []string, at int) int {
	best, least := at, 0
	for _, step := range []int{-1, 1} {
		gain := 0
		for i := at + step; i >= 0 && i < len(order); i += step {
			above, below := order[i], order[at] // once it has moved past i
			if step < 0 {
				above, below = below, above
			}
			gain += one(u[below][above]) - one(u[above][below])
			if gain < least {
				best, least = i, gain
			}
		}
	}
	return best
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
