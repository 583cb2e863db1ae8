package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/hack/demo/printed"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// offWord stands for a node at rest, which has no pod and no boot.
const offWord = "off"

// view is what people see of the facts.
type view struct {
	Elapsed time.Duration
	Title   string
	Jobs    []jobRow
	Nodes   []nodeRow
}

type jobRow struct{ ID, Name, State, Nodes string }

type nodeRow struct {
	Name  string
	Slurm string // its state, or offWord
	Pod   string // its pod's phase
	Boot  string // phase of the boot or power-down in flight, or registered
	Age   string // of what Boot says; changes all the time
}

func newView(f *facts, elapsed time.Duration, title string) view {
	v := view{Elapsed: elapsed, Title: title, Jobs: jobRows(f.Slurm.Jobs)}
	type boot struct{ phase, age string }
	boots := map[string]boot{}
	for _, b := range f.Bridge.Engine.History {
		if _, up := f.Pods[b.Node]; up {
			boots[b.Node] = boot{string(b.Phase), seconds(b.Times.Registered.Sub(b.Times.Requested))}
		}
	}
	for _, b := range slices.Concat(f.Bridge.Engine.Boots, f.Bridge.Engine.Offs) {
		began := b.Times.Requested
		if began.IsZero() {
			began = b.Times.Accepted
		}
		boots[b.Node] = boot{string(b.Phase), seconds(f.Bridge.Engine.Time.Sub(began))}
	}
	for _, n := range f.Slurm.Nodes {
		row := nodeRow{Name: n.Name, Slurm: n.Words(), Pod: f.Pods[n.Name].Phase, Boot: boots[n.Name].phase, Age: boots[n.Name].age}
		if n.Off() {
			row.Slurm = offWord
		}
		v.Nodes = append(v.Nodes, row)
	}
	return v
}

// jobRows shows the tasks of an array that are in the same state as one row.
func jobRows(jobs []printed.Job) []jobRow {
	var rows []jobRow
	at := map[string]int{} // array and state to row
	count := map[int]int{}
	nodes := map[int]map[string]bool{}
	for _, j := range jobs {
		row := jobRow{ID: j.Label(), Name: j.Name, State: j.State()}
		i := len(rows)
		if j.ArrayTask.Set {
			row.ID = fmt.Sprintf("%d_*", j.ArrayID.Number)
			key := row.ID + row.State
			if known, ok := at[key]; ok {
				i = known
			}
			at[key] = i
		}
		if i == len(rows) {
			rows = append(rows, row)
			nodes[i] = map[string]bool{}
		}
		count[i]++
		for _, n := range j.NodeNames() {
			nodes[i][n] = true
		}
	}
	for i := range rows {
		if strings.HasSuffix(rows[i].ID, "_*") {
			rows[i].State = fmt.Sprintf("%d %s", count[i], rows[i].State)
		}
		rows[i].Nodes = compress(nodes[i])
	}
	return rows
}

// table is the view as lines of at most width columns and at most height lines. Nodes at rest share the last line.
func (v view) table(width, height int) []string {
	lines := []string{fmt.Sprintf("%s  %s", seconds(v.Elapsed), v.Title), ""}
	jobs := [][]string{{"JOB", "NAME", "STATE", "NODES"}}
	for _, j := range v.Jobs {
		jobs = append(jobs, []string{j.ID, j.Name, j.State, j.Nodes})
	}
	lines = append(append(lines, columns(jobs)...), "")
	nodes := [][]string{{"NODE", "SLURM", "POD", "BOOT", ""}}
	off := map[string]bool{}
	for _, n := range v.Nodes {
		if n.Slurm == offWord && n.Pod == "" && n.Boot == "" {
			off[n.Name] = true
			continue
		}
		nodes = append(nodes, []string{n.Name, n.Slurm, dash(n.Pod), dash(n.Boot), n.Age})
	}
	lines = append(lines, columns(nodes)...)
	if len(off) > 0 {
		lines = append(lines, "off: "+compress(off))
	}
	if len(lines) > height {
		lines = append(lines[:max(0, height-1)], "...")
	}
	for i, l := range lines {
		lines[i] = cut(l, width)
	}
	return lines
}

// changes tells what is different from an earlier view, one line each, for people without a terminal.
func (v view) changes(before view) []string {
	var lines []string
	oldJobs := map[string]jobRow{}
	for _, j := range before.Jobs {
		oldJobs[j.ID+j.State] = j
	}
	for _, j := range v.Jobs {
		if oldJobs[j.ID+j.State] == j {
			continue
		}
		line := fmt.Sprintf("job %s %s: %s", j.ID, j.Name, j.State)
		if j.Nodes != "" {
			line += " on " + j.Nodes
		}
		lines = append(lines, line)
	}
	old := map[string]nodeRow{}
	for _, n := range before.Nodes {
		old[n.Name] = n
	}
	for _, column := range []struct {
		what  string
		value func(nodeRow) string
		gone  string // what an empty value means
	}{
		{"slurm", func(n nodeRow) string { return n.Slurm }, ""},
		{"pod", func(n nodeRow) string { return n.Pod }, "gone"},
		{"boot", func(n nodeRow) string { return n.Boot }, ""},
	} {
		changed := map[string]map[string]bool{} // value to nodes
		var order []string
		for _, n := range v.Nodes {
			value, was := column.value(n), column.value(old[n.Name])
			if value == "" {
				value = column.gone
			}
			if was == "" {
				was = column.gone
			}
			if value == was || value == "" || before.Nodes == nil && value == offWord {
				continue
			}
			if changed[value] == nil {
				changed[value] = map[string]bool{}
				order = append(order, value)
			}
			changed[value][n.Name] = true
		}
		for _, value := range order {
			lines = append(lines, fmt.Sprintf("%-5s %s: %s", column.what, compress(changed[value]), value))
		}
	}
	return lines
}

// columns aligns rows; every row has as many cells as the first.
func columns(rows [][]string) []string {
	widths := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			widths[i] = max(widths[i], len(cell))
		}
	}
	lines := make([]string, 0, len(rows))
	for _, r := range rows {
		var b strings.Builder
		for i, cell := range r {
			fmt.Fprintf(&b, "%-*s  ", widths[i], cell)
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

func cut(line string, width int) string {
	if len(line) <= width {
		return line
	}
	if width <= 3 {
		return line[:max(0, width)]
	}
	return line[:width-3] + "..."
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

// compress writes the names as a hostlist.
func compress[V any](names map[string]V) string {
	return slurmconf.CompressHostlist(slices.Sorted(maps.Keys(names)))
}
