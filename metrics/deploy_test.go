package metrics_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/resilience"
)

const deploy = "../deploy"

func TestPromtoolTestsTheRules(t *testing.T) {
	promtool := upstreams.Program(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", "circuit_breaker.rules.yml", "ingest.rules.yml"},
		{"test", "rules", "circuit_breaker.test.yml", "ingest.test.yml"},
		{"check", "config", "prometheus.yml"},
	} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = filepath.Join(deploy, "prometheus")
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "promtool %s\n%s", strings.Join(args, " "), out)
	}
}

type rules struct {
	Groups []struct {
		Rules []struct{ Record, Alert, Expr string }
	}
}

func readRules(t *testing.T) rules {
	t.Helper()
	var all rules
	for _, name := range []string{"circuit_breaker.rules.yml", "ingest.rules.yml"} {
		text, err := os.ReadFile(filepath.Join(deploy, "prometheus", name))
		require.NoError(t, err)
		var r rules
		require.NoError(t, yaml.Unmarshal(text, &r))
		require.NotEmpty(t, r.Groups)
		all.Groups = append(all.Groups, r.Groups...)
	}
	return all
}

func TestEachAlertHasATest(t *testing.T) {
	var text []byte
	for _, name := range []string{"circuit_breaker.test.yml", "ingest.test.yml"} {
		one, err := os.ReadFile(filepath.Join(deploy, "prometheus", name))
		require.NoError(t, err)
		text = append(text, one...)
	}
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			assert.Contains(t, string(text), rule.Alert+rule.Record)
		}
	}
}

func TestRulesUseMetricsThatExist(t *testing.T) {
	known := exposed(t)
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			if rule.Record != "" {
				known[rule.Record] = labelsOf(rule.Expr)
			}
			checkExpr(t, known, rule.Alert+rule.Record, rule.Expr)
		}
	}
}

func TestDashboardUsesMetricsThatExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deploy, "grafana", "penstock.json"))
	require.NoError(t, err)
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &board))
	known := exposed(t)
	var asked strings.Builder
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			checkExpr(t, known, panel.Title, target.Expr)
			asked.WriteString(target.Expr)
		}
	}
	for _, variable := range board.Templating.List {
		checkExpr(t, known, variable.Name, variable.Definition)
	}
	for name := range known {
		family := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		// its transitions are shown
		shown := strings.Contains(asked.String(), family) || family == "circuit_breaker_opened_total"
		assert.True(t, shown, "no panel shows %s", family)
	}
}

// exposed are the series names of the live default registry with their labels.
func exposed(t *testing.T) map[string][]string {
	t.Helper()
	metrics.DeclareOperations(resilience.LLM, "create_embeddings")
	names := ours(t)
	families, err := prometheus.Gatherers{prometheus.DefaultGatherer, sharedBreaker(t)}.Gather()
	require.NoError(t, err)
	known := make(map[string][]string)
	for _, f := range families {
		if !slices.Contains(names, f.GetName()) {
			continue
		}
		labels := []string{"job", "instance"}
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		known[f.GetName()] = labels
		if f.GetMetric()[0].GetHistogram() != nil {
			delete(known, f.GetName())
			known[f.GetName()+"_sum"], known[f.GetName()+"_count"] = labels, labels
			known[f.GetName()+"_bucket"] = append(slices.Clone(labels), "le")
		}
	}
	return known
}

var (
	selector = regexp.MustCompile(`([a-z_]+:)*(circuit_breaker|ingest)_[a-z_0-9]+(:[a-z_0-9]+)*(\{[^}]*\})?`)
	grouping = regexp.MustCompile(`by \(([^)]*)\)`)
	matcher  = regexp.MustCompile(`([a-z_]+)(=~|!~|!=|=)"`)
)

// labelsOf are those that the outermost aggregation keeps.
func labelsOf(expr string) []string {
	by := grouping.FindStringSubmatch(expr)
	if by == nil {
		return nil
	}
	return regexp.MustCompile(`, *`).Split(by[1], -1)
}

// checkExpr holds the names and the labels of an expression against the known
// series. A label in by(…) must belong to a series of the expression.
func checkExpr(t assert.TestingT, known map[string][]string, where, expr string) {
	var all []string
	for _, found := range selector.FindAllString(expr, -1) {
		name, matchers, _ := strings.Cut(found, "{")
		labels, exists := known[name]
		if !assert.True(t, exists, "%s: there is no series %s", where, name) {
			continue
		}
		all = append(all, labels...)
		for _, m := range matcher.FindAllStringSubmatch(matchers, -1) {
			assert.Contains(t, labels, m[1], "%s: %s has no such label", where, name)
		}
	}
	for _, by := range grouping.FindAllStringSubmatch(expr, -1) {
		for _, label := range regexp.MustCompile(`, *`).Split(by[1], -1) {
			assert.Contains(t, all, label, "%s: nothing in %s has the label", where, expr)
		}
	}
}

// TestCheckExprFindsFaults keeps the checks above honest.
func TestCheckExprFindsFaults(t *testing.T) {
	known := map[string][]string{"circuit_breaker_state": {"upstream"}}
	for expr, good := range map[string]bool{
		`circuit_breaker_state{upstream="s3"} > 0`:      true,
		`max by (upstream) (circuit_breaker_state)`:     true,
		`circuit_breaker_state{name="s3"}`:              false,
		`circuit_breaker_status`:                        false,
		`max by (upstream, op) (circuit_breaker_state)`: false,
	} {
		var found faults
		checkExpr(&found, known, "probe", expr)
		assert.Equal(t, good, found == 0, expr)
	}
}

type faults int

// Errorf implements assert.TestingT.
func (f *faults) Errorf(string, ...any) { *f++ }

func TestManualListsEachMetric(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	for _, name := range ours(t) {
		assert.Contains(t, string(text), "`"+name+"`")
	}
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			assert.Contains(t, string(text), rule.Alert)
		}
	}
}
