package watch

import (
	"fmt"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// Figures is what one look at Slurm means. All of it is shared: do not change it.
type Figures struct {
	// Read is when Slurm was last seen to be like this.
	Read     time.Time
	Snapshot scaler.Snapshot // with the NodeSets, and whose each node is
	Report   scaler.Report
	sets     map[string]int
	use      []Use
}

// Use is what runs on the nodes of a NodeSet.
type Use struct {
	Jobs, CPUs, GPUs int64 // a job on several NodeSets is one of the first's
}

// SetFigures is what is known of one NodeSet.
type SetFigures struct {
	scaler.NodeSetDemand
	Running Use
}

// NodeSet finds a NodeSet by its name; false if there is none.
func (f Figures) NodeSet(name string) (SetFigures, bool) {
	i, ok := f.sets[name]
	if !ok {
		return SetFigures{}, false
	}
	return SetFigures{f.Report.NodeSets[i], f.use[i]}, true
}

// figure works everything out. It is pure.
func figure(now time.Time, s scaler.Snapshot) *Figures {
	f := &Figures{Read: now, Snapshot: s, Report: scaler.Demand(now, s), sets: make(map[string]int, len(s.NodeSets)), use: make([]Use, len(s.NodeSets))}
	for i, set := range s.NodeSets {
		f.sets[set.Name] = i
	}
	owner := make(map[string]int, len(s.Nodes))
	gpus := map[string]int64{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		at, ok := f.sets[n.NodeSet]
		if !ok {
			continue
		}
		owner[n.Name] = at
		used, known := gpus[n.GresUsed]
		if !known {
			used = gpusUsed(n.GresUsed)
			gpus[n.GresUsed] = used
		}
		f.use[at].CPUs += int64(n.AllocCPUs)
		f.use[at].GPUs += used
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.State != scaler.JobRunning {
			continue
		}
		nodes, err := slurmconf.ParseHostlist(j.Nodes)
		if err != nil {
			continue
		}
		for name := range nodes.All() {
			if at, ok := owner[name]; ok {
				f.use[at].Jobs++
				break
			}
		}
	}
	return f
}

func gpusUsed(gres string) int64 {
	if gres == "" {
		return 0
	}
	all, err := slurmconf.ParseGres(gres)
	if err != nil {
		return 0
	}
	var n int64
	for _, g := range all {
		if g.Name == "gpu" {
			n += g.Count
		}
	}
	return n
}

// NotReadError says that there are no figures, or that they are too old to go by.
type NotReadError struct {
	Last  time.Time     // of the last good read; zero: there was none
	Age   time.Duration // since then
	Cause error         // why it cannot be read; nil: not known
}

func (e *NotReadError) Error() string {
	var b strings.Builder
	if e.Last.IsZero() {
		b.WriteString("Slurm's queue has not been read yet")
	} else {
		fmt.Fprintf(&b, "Slurm's queue was last read %v ago", e.Age.Round(time.Second))
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *NotReadError) Unwrap() error { return e.Cause }
