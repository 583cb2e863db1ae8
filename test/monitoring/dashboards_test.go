package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// board is a dashboard of Grafana, as far as it is looked at.
type board struct {
	UID         string `json:"uid"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Templating  struct {
		List []struct {
			Name       string      `json:"name"`
			Type       string      `json:"type"`
			Query      string      `json:"query"`
			Datasource *datasource `json:"datasource"`
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct {
		X int `json:"x"`
		Y int `json:"y"`
		W int `json:"w"`
		H int `json:"h"`
	} `json:"gridPos"`
	Datasource  *datasource `json:"datasource"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
}

func boards(t *testing.T, look func(file string, b board)) {
	t.Helper()
	files, err := filepath.Glob(root + "helm/*/dashboards/*.json")
	require.NoError(t, err)
	require.Len(t, files, 4)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var b board
		require.NoError(t, json.Unmarshal(text, &b), file)
		look(file, b)
	}
}

// units are those that panels may have.
var units = []string{"short", "s", "h", "bytes", "percentunit", "ops", "reqps"}

var (
	variable = regexp.MustCompile(`\$\{?([a-z][a-z_]*)\}?`)
	legend   = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)
)

// amiss is what is wrong with a dashboard's form.
func amiss(b board) (found []string) {
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if b.UID == "" || b.Title == "" || b.Description == "" {
		say("it lacks uid, title or description")
	}
	defined, used := map[string]bool{}, map[string]bool{}
	use := func(text string) {
		for _, m := range variable.FindAllStringSubmatch(text, -1) {
			used[m[1]] = true
			if !defined[m[1]] {
				say("$%s is no variable of it, or of a later one", m[1])
			}
		}
	}
	ours := datasource{"prometheus", "${datasource}"}
	for i, v := range b.Templating.List {
		if (i == 0) != (v.Name == "datasource" && v.Type == "datasource" && v.Query == "prometheus") {
			say("the first variable is not the data source")
		}
		if i > 0 {
			if v.Type != "query" || v.Datasource == nil || *v.Datasource != ours {
				say("variable %s does not ask ${datasource}", v.Name)
			}
			use(v.Query)
		}
		defined[v.Name] = true
	}
	used["datasource"] = true
	ids, titles := map[int]bool{}, map[string]bool{}
	cells := map[[2]int]string{}
	for _, p := range b.Panels {
		if p.ID <= 0 || ids[p.ID] {
			say("%s: id %d is there twice, or none", p.Title, p.ID)
		}
		if p.Title == "" || titles[p.Title] {
			say("%s: the title is there twice, or empty", p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		g := p.GridPos
		if g.X < 0 || g.Y < 0 || g.W <= 0 || g.H <= 0 || g.X+g.W > 24 {
			say("%s: it is off the grid", p.Title)
		}
		over := ""
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" {
					over = other
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if over != "" {
			say("%s: it lies over %s", p.Title, over)
		}
		if p.Type == "row" {
			continue
		}
		if !strings.HasSuffix(p.Description, ".") {
			say("%s: nothing describes it", p.Title)
		}
		if !strings.Contains(" "+strings.Join(units, " ")+" ", " "+p.FieldConfig.Defaults.Unit+" ") || p.FieldConfig.Defaults.Unit == "" {
			say("%s: its unit is %q", p.Title, p.FieldConfig.Defaults.Unit)
		}
		if p.Datasource == nil || *p.Datasource != ours {
			say("%s: it does not ask ${datasource}", p.Title)
		}
		if len(p.Targets) == 0 {
			say("%s: it shows nothing", p.Title)
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if target.RefID == "" || refs[target.RefID] {
				say("%s: refId %s is there twice, or empty", p.Title, target.RefID)
			}
			refs[target.RefID] = true
			use(strings.ReplaceAll(strings.ReplaceAll(target.Expr, "$__rate_interval", ""), "$__range", ""))
			for _, f := range asked.FindAllString(target.Expr, -1) {
				if !strings.Contains(f, `namespace=~"$namespace"`) {
					say("%s: %s is of all namespaces", p.Title, f)
				}
			}
			if p.Type == "stat" {
				continue
			}
			if target.LegendFormat == "" {
				say("%s: %s has no legend", p.Title, target.RefID)
			}
			var by []string
			for _, m := range grouped.FindAllStringSubmatch(target.Expr, -1) {
				by = append(by, m[1])
			}
			for _, m := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(strings.Join(by, ",")) {
					say("%s: its legend has %s, by which nothing is grouped", p.Title, m[1])
				}
			}
		}
	}
	for name := range defined {
		if !used[name] {
			say("nothing asks for variable %s", name)
		}
	}
	return found
}

func TestDashboards(t *testing.T) {
	uids := map[string]string{}
	boards(t, func(file string, b board) {
		assert.Empty(t, amiss(b), file)
		assert.Empty(t, uids[b.UID], "%s has the uid of another one", file)
		assert.NotContains(t, uids, b.Title, "%s has the title of another one", file)
		uids[b.UID], uids[b.Title] = file, file
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.False(t, bytes.Contains(text, []byte("\t")) || !bytes.HasSuffix(text, []byte("]\n}\n")), "%s: spaces, and an end of the last line", file)
		page, err := os.ReadFile(root + "docs/monitoring.md")
		require.NoError(t, err)
		assert.Contains(t, string(page), "| "+b.Title+" | `"+strings.TrimPrefix(filepath.ToSlash(file), root)+"` |", "docs/monitoring.md lists all dashboards")
	})
}

func TestAmiss(t *testing.T) {
	text, err := os.ReadFile(root + "helm/slurmtide/dashboards/slurmtide.json")
	require.NoError(t, err)
	for _, test := range []struct {
		want   string
		change func(b *board)
	}{
		{"it lacks uid, title or description", func(b *board) { b.UID = "" }},
		{"variable kind does not ask ${datasource}", func(b *board) { b.Templating.List[2].Datasource.UID = "mine" }},
		{"$later is no variable of it, or of a later one", func(b *board) { b.Templating.List[2].Query += "$later" }},
		{"nothing asks for variable more", func(b *board) {
			b.Templating.List = append(b.Templating.List, b.Templating.List[1])
			b.Templating.List[3].Name = "more"
		}},
		{"Who leads: id 1 is there twice, or none", func(b *board) { b.Panels[3].ID = 1 }},
		{"Failures: the title is there twice, or empty", func(b *board) { b.Panels[3].Title = "Failures" }},
		{"Failures: it is off the grid", func(b *board) { b.Panels[2].GridPos.X = 17 }},
		{"Who leads: it lies over Objects handled", func(b *board) { b.Panels[3].GridPos.Y = 3 }},
		{"Who leads: nothing describes it", func(b *board) { b.Panels[3].Description = "" }},
		{`Who leads: its unit is "cows"`, func(b *board) { b.Panels[3].FieldConfig.Defaults.Unit = "cows" }},
		{"Who leads: it does not ask ${datasource}", func(b *board) { b.Panels[3].Datasource = nil }},
		{"Who leads: it shows nothing", func(b *board) { b.Panels[3].Targets = nil }},
		{"Who leads: refId A is there twice, or empty", func(b *board) { b.Panels[3].Targets = append(b.Panels[3].Targets, b.Panels[3].Targets[0]) }},
		{"Who leads: A has no legend", func(b *board) { b.Panels[3].Targets[0].LegendFormat = "" }},
		{"Who leads: its legend has pod, by which nothing is grouped", func(b *board) { b.Panels[3].Targets[0].LegendFormat = "{{pod}}" }},
		{"Who leads: slurmtide_controller_leading is of all namespaces", func(b *board) { b.Panels[3].Targets[0].Expr = "max by (job, works_in) (slurmtide_controller_leading)" }},
	} {
		var b board
		require.NoError(t, json.Unmarshal(text, &b))
		test.change(&b)
		assert.Contains(t, amiss(b), test.want)
	}
}
