package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

const (
	resultPass = "PASS"
	resultFail = "FAIL"
)

// report is out/demo.json. README.md describes the fields.
type report struct {
	Result     string       `json:"result"`
	FailedStep string       `json:"failedStep,omitempty"`
	Error      string       `json:"error,omitempty"`
	Started    time.Time    `json:"started"`
	Seconds    float64      `json:"seconds"`
	Slurm      string       `json:"slurm"`
	Kubernetes string       `json:"kubernetes"`
	Bridge     string       `json:"bridge"`
	CPUs       int          `json:"cpus"`
	Steps      []stepResult `json:"steps"`
	Jobs       []jobRun     `json:"jobs"`
	Boots      []bootTimes  `json:"boots"`
	PowerDowns []powerDown  `json:"powerDowns"`
	BootPhases []phase      `json:"bootPhases"`
	DownPhases []phase      `json:"powerDownPhases"`
}

// stepResult is how one step went.
type stepResult struct {
	Name    string  `json:"name"`
	OK      bool    `json:"ok"`
	Seconds float64 `json:"seconds"`
	Detail  string  `json:"detail"` // what was found, or the error
}

// bootTimes is one node's way up. Running is the pod's; JobRunning is when the job it was made for ran its first command there.
type bootTimes struct {
	Node string `json:"node"`
	Job  string `json:"job"`
	powersave.Timeline
	JobRunning time.Time `json:"jobRunning"`
}

// phase sums up when a phase began over several nodes, in seconds after the request.
type phase struct {
	Name   string  `json:"name"`
	Count  int     `json:"count"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// moment is one phase's name and beginning.
type moment struct {
	name string
	at   time.Time
}

func (b bootTimes) moments() []moment {
	return []moment{
		{"requested", b.Requested}, {"accepted", b.Accepted}, {"created", b.Created}, {"scheduled", b.Scheduled},
		{"running", b.Running}, {"registered", b.Registered}, {"job RUNNING", b.JobRunning},
	}
}

func (d powerDown) moments() []moment {
	return []moment{{"requested", d.Requested}, {"accepted", d.Accepted}, {"pod deleting", d.Deleting}, {"pod gone", d.Gone}, {"name free", d.Free}}
}

// fill adds what the facts tell of the jobs' nodes.
func (r *report) fill(f *facts) {
	r.Bridge = f.Bridge.Version
	r.Boots, r.PowerDowns = bootsOf(r.Jobs, f.Bridge.Engine.History), nil
	for _, d := range f.Downs {
		if !d.Requested.IsZero() {
			r.PowerDowns = append(r.PowerDowns, *d)
		}
	}
	r.BootPhases, r.DownPhases = phases(r.Boots), phases(r.PowerDowns)
}

// bootsOf picks from the bridge's history the boots that each job's nodes went through for it: requested after the job was submitted
// and finished before it ran everywhere. A job that found its node running has none there.
func bootsOf(jobs []jobRun, history []powersave.Boot) []bootTimes {
	var list []bootTimes
	for _, j := range jobs {
		for _, node := range j.Nodes {
			for _, b := range slices.Backward(history) {
				if b.Node == node && b.Times.Requested.After(j.Submitted) {
					list = append(list, bootTimes{Node: node, Job: j.Name, Timeline: b.Times, JobRunning: j.began[node]})
					break
				}
			}
		}
	}
	return list
}

// check says what is missing for the claim that every job came from zero and everything went back.
func (r *report) check() error {
	for _, j := range r.Jobs {
		for _, node := range j.Nodes {
			i := slices.IndexFunc(r.Boots, func(b bootTimes) bool { return b.Job == j.Name && b.Node == node })
			if i < 0 {
				return fmt.Errorf("node %s was not booted for job %s (%d): the job did not start from zero", node, j.Name, j.ID)
			}
			// Kubernetes may say that the container runs when the node has registered already.
			moments := slices.DeleteFunc(r.Boots[i].moments()[:6], func(m moment) bool { return m.name == "running" && m.at.IsZero() })
			if err := inOrder(moments); err != nil {
				return fmt.Errorf("boot of node %s for job %s: %w", node, j.Name, err)
			}
		}
	}
	for _, b := range r.Boots {
		i := slices.IndexFunc(r.PowerDowns, func(d powerDown) bool { return d.Node == b.Node })
		if i < 0 {
			return fmt.Errorf("node %s: no suspend request was seen, though its pod is gone", b.Node)
		}
		if r.PowerDowns[i].Gone.IsZero() || r.PowerDowns[i].Free.IsZero() {
			return fmt.Errorf("node %s: its pod's end or its return to Slurm was not seen", b.Node)
		}
	}
	return nil
}

// inOrder demands that every moment is known and none is before the one ahead of it.
func inOrder(moments []moment) error {
	for i, m := range moments {
		if m.at.IsZero() {
			return fmt.Errorf("the bridge has not recorded when it was %s", m.name)
		}
		if i > 0 && m.at.Before(moments[i-1].at) {
			return fmt.Errorf("it was %s before it was %s", m.name, moments[i-1].name)
		}
	}
	return nil
}

// phases sums up every moment after the first, in seconds after it.
func phases[T interface{ moments() []moment }](list []T) []phase {
	if len(list) == 0 {
		return nil
	}
	var all []phase
	for i := 1; i < len(list[0].moments()); i++ {
		var after []float64
		name := ""
		for _, item := range list {
			m := item.moments()
			name = m[i].name
			if !m[i].at.IsZero() {
				after = append(after, m[i].at.Sub(m[0].at).Seconds())
			}
		}
		if len(after) == 0 {
			continue
		}
		slices.Sort(after)
		n := len(after)
		all = append(all, phase{Name: name, Count: n, Min: after[0], Median: (after[(n-1)/2] + after[n/2]) / 2, Max: after[n-1]})
	}
	return all
}

// text is the summary for people.
func (r *report) text() string {
	var b strings.Builder
	first := func(name string) *jobRun {
		i := slices.IndexFunc(r.Jobs, func(j jobRun) bool { return j.Name == name })
		if i < 0 {
			return nil
		}
		return &r.Jobs[i]
	}
	if j := first("two-nodes"); j != nil {
		fmt.Fprintf(&b, "\nThe two-node job, alone and from zero, in seconds after sbatch:\n\n%s", indent(columns(firstJob(*j, r.Boots))))
	}
	if len(r.Jobs) > 0 {
		rows := [][]string{{"JOB", "NAME", "NODES", "FIRST TASK RUNNING", "LAST TASK RUNNING"}}
		for _, j := range r.Jobs {
			nodes := map[string]bool{}
			for _, n := range j.Nodes {
				nodes[n] = true
			}
			rows = append(rows, []string{fmt.Sprint(j.ID), j.Name, compress(nodes), figure(j.SecondsToRunning), figure(j.SecondsToAllRunning)})
		}
		fmt.Fprintf(&b, "\nAll jobs, in seconds after sbatch or srun (all but the first were submitted at once):\n\n%s", indent(columns(rows)))
	}
	for _, part := range []struct {
		title  string
		phases []phase
	}{
		{fmt.Sprintf("%d boots, in seconds after the resume request", len(r.Boots)), r.BootPhases},
		{fmt.Sprintf("%d power-downs, in seconds after the suspend request", len(r.PowerDowns)), r.DownPhases},
	} {
		if len(part.phases) == 0 {
			continue
		}
		rows := [][]string{{"PHASE", "MIN", "MEDIAN", "MAX"}}
		for _, p := range part.phases {
			rows = append(rows, []string{p.Name, figure(p.Min), figure(p.Median), figure(p.Max)})
		}
		fmt.Fprintf(&b, "\n%s:\n\n%s", part.title, indent(columns(rows)))
	}
	return b.String()
}

// firstJob is a row for each phase and a column for each node.
func firstJob(j jobRun, boots []bootTimes) [][]string {
	rows := [][]string{{"PHASE"}}
	for _, b := range boots {
		if b.Job != j.Name {
			continue
		}
		rows[0] = append(rows[0], b.Node)
		for i, m := range b.moments() {
			if len(rows) == i+1 {
				rows = append(rows, []string{m.name})
			}
			text := "-" // not seen
			if !m.at.IsZero() {
				text = figure(m.at.Sub(j.Submitted).Seconds())
			}
			rows[i+1] = append(rows[i+1], text)
		}
	}
	return rows
}

func figure(seconds float64) string { return fmt.Sprintf("%6.2f", seconds) }

func indent(lines []string) string { return "  " + strings.Join(lines, "\n  ") + "\n" }

// write puts the report into a file, which is complete or not there.
func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}
