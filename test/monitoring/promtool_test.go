//go:build promtool

package monitoring

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// promtool runs promtool, and returns what it said.
func promtool(t *testing.T, args ...string) (said string, ok bool) {
	t.Helper()
	cmd := exec.Command(root+"hack/prometheus.sh", append([]string{"promtool"}, args...)...)
	out, err := cmd.CombinedOutput()
	require.NotNil(t, cmd.ProcessState, "%v", err)
	return string(out), err == nil
}

func TestCheck(t *testing.T) {
	for _, file := range ruleFiles(t) {
		said, ok := promtool(t, "check", "rules", "--lint-fatal", file)
		assert.True(t, ok, "%s: %s", file, said)
	}
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	require.NoError(t, os.WriteFile(wrong, []byte("groups: [{name: a, rules: [{alert: A, expr: 'sum by (a) ('}]}]"), 0o644))
	said, ok := promtool(t, "check", "rules", "--lint-fatal", wrong)
	assert.False(t, ok, said)
}

// unitFile is that of promtool's tests of a file of alerts.
func unitFile(file string) string { return filepath.Join("testdata", filepath.Base(file)) }

// Each alert fires when it should, and when it should not it does not.
func TestAlertsFire(t *testing.T) {
	for _, file := range ruleFiles(t) {
		said, ok := promtool(t, "test", "rules", unitFile(file))
		assert.True(t, ok, said)
	}
}

// changed runs the tests of a file whose rules are others, and returns the alerts whose tests fail.
func changed(t *testing.T, file string, change func(*rule)) map[string]bool {
	t.Helper()
	read := readRules(t, file)
	for _, g := range read.Groups {
		for i := range g.Rules {
			change(&g.Rules[i])
		}
	}
	dir := t.TempDir()
	text, err := yaml.Marshal(read)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), text, 0o644))
	tests, err := os.ReadFile(unitFile(file))
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^rule_files: .*$`)
	require.Len(t, line.FindAll(tests, -1), 1)
	tests = line.ReplaceAll(tests, []byte("rule_files: [rules.yaml]"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tests.yaml"), tests, 0o644))
	said, ok := promtool(t, "test", "rules", filepath.Join(dir, "tests.yaml"))
	failed := map[string]bool{}
	for _, m := range regexp.MustCompile(`expr: "ALERTS\{alertname=\\?"(\w+)`).FindAllStringSubmatch(said, -1) {
		failed[m[1]] = true
	}
	require.Equal(t, ok, len(failed) == 0, said)
	return failed
}

var limit = regexp.MustCompile(`([<>] *)(\d+(?:\.\d+)?)`)

// The tests of each alert see when it never fires, when it always does, when it waits longer or not as long, and when its limit is another one.
func TestTestsOfAlerts(t *testing.T) {
	scale := func(factor float64) func(*rule) {
		return func(r *rule) {
			r.Expr = limit.ReplaceAllStringFunc(r.Expr, func(text string) string {
				parts := limit.FindStringSubmatch(text)
				number, _ := strconv.ParseFloat(parts[2], 64)
				return parts[1] + strconv.FormatFloat(number*factor, 'f', -1, 64)
			})
		}
	}
	wait := func(factor time.Duration, by time.Duration) func(*rule) {
		return func(r *rule) {
			d, _ := time.ParseDuration(r.For)
			r.For = (d*factor + by).String()
		}
	}
	every := func(rule) bool { return true }
	limited := func(r rule) bool {
		for _, m := range limit.FindAllStringSubmatch(r.Expr, -1) {
			if number, _ := strconv.ParseFloat(m[2], 64); number > 0 {
				return true
			}
		}
		return false
	}
	for name, test := range map[string]struct {
		change func(*rule)
		whom   func(rule) bool
	}{
		"never":   {func(r *rule) { r.Expr = "vector(1) > 2" }, every},
		"always":  {func(r *rule) { r.Expr, r.For = "vector(1)", "0s" }, every},
		"later":   {wait(1, time.Minute), every},
		"earlier": {wait(1, -time.Minute), every},
		"higher":  {scale(1.3), limited},
		"lower":   {scale(0.75), limited},
	} {
		t.Run(name, func(t *testing.T) {
			for _, file := range ruleFiles(t) {
				failed := changed(t, file, test.change)
				for _, g := range readRules(t, file).Groups {
					for _, r := range g.Rules {
						if test.whom(r) {
							assert.True(t, failed[r.Alert], "the tests of %s do not notice", r.Alert)
						}
					}
				}
			}
		})
	}
}

// promtool understands every expression of the dashboards, with something in place of Grafana's variables.
func TestExpressions(t *testing.T) {
	var all group
	all.Name = "dashboards"
	boards(t, func(_ string, b board) {
		for _, p := range b.Panels {
			for _, target := range p.Targets {
				expr := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$__interval", "1m").Replace(target.Expr)
				all.Rules = append(all.Rules, rule{Alert: "A" + strconv.Itoa(len(all.Rules)), Expr: expr})
			}
		}
	})
	require.NotEmpty(t, all.Rules)
	text, err := yaml.Marshal(ruleFile{Groups: []group{all}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "all.yaml")
	require.NoError(t, os.WriteFile(file, bytes.ReplaceAll(text, []byte("for: \"\""), []byte("for: 0s")), 0o644))
	said, ok := promtool(t, "check", "rules", "--lint-fatal", file)
	assert.True(t, ok, said)
}

// TestNodeHours: of several bridges each counts the nodes of mode Cloud, and that which leads those of mode Dynamic. The panel has each hour once, also when the lease has changed hands.
func TestNodeHours(t *testing.T) {
	expr := ""
	boards(t, func(_ string, b board) {
		for _, p := range b.Panels {
			if p.Title == "Node hours of the last hour" {
				require.Len(t, p.Targets, 1)
				expr = strings.NewReplacer("$__rate_interval", "2m", "$namespace", ".+", "$job", ".+", "$nodeset", ".+").Replace(p.Targets[0].Expr)
			}
		}
	})
	require.NotEmpty(t, expr)
	once := "count((" + expr + ") > 0.95 < 1.02)" // a Prometheus before 3.0 has 61 minutes in an hour
	series := func(pod, nodeSet, values string) map[string]string {
		return map[string]string{"series": `slurmtide_node_seconds_total{namespace="a",job="tide",pod="` + pod + `",nodeset="` + nodeSet + `",offering="",use="idle"}`, "values": values}
	}
	text, err := yaml.Marshal(map[string]any{"evaluation_interval": "1m", "tests": []any{map[string]any{
		"interval": "30s",
		"input_series": []any{ // one node of each for two hours; the bridge in pod a is gone after one
			series("a", "cpu", "0+30x120 stale"), series("a", "dyn", "0+30x120 stale"), series("b", "cpu", "0+30x240"), series("b", "dyn", "_x120 0+30x120"),
		},
		"promql_expr_test": []any{
			map[string]any{"expr": once, "eval_time": "90m", "exp_samples": []any{map[string]any{"labels": "{}", "value": 2}}},
			map[string]any{"expr": once, "eval_time": "60m", "exp_samples": []any{map[string]any{"labels": "{}", "value": 2}}},
		},
	}}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "hours.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o644))
	said, ok := promtool(t, "test", "rules", file)
	assert.True(t, ok, said)
}
