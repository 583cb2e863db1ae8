package watch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/scaler/ask"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// Figures is what one look at Slurm means. All of it is shared: do not change it.
type Figures struct {
	// Read is when Slurm was last seen to be like this.
	Read     time.Time
	Snapshot scaler.Snapshot // with the NodeSets, and whose each node is
	Report   scaler.Report
	// NodesOlder: jobs have changed since the nodes were read, so a job that has just started may be on nodes that are shown as they
	// were before. New figures follow.
	NodesOlder bool

	sets       map[string]int
	use        []Use
	gpus       []bool              // by NodeSet: its nodes have some
	own        int                 // as many NodeSets are Kubernetes' own; the others came by Watcher.With
	partitions map[string][]string // names of own NodeSets in it
	demand     func() ask.Demand   // without cluster and time
}

// Use is what runs on the nodes of a NodeSet.
type Use struct {
	Jobs, CPUs, GPUs int64 // a job on several NodeSets is one of the first's
}

// SetFigures is what is known of one NodeSet.
type SetFigures struct {
	scaler.NodeSetDemand
	Running Use
	HasGPUs bool // its nodes have some, or would
}

// NodeSet finds a NodeSet by its name; false if there is none.
func (f Figures) NodeSet(name string) (SetFigures, bool) {
	i, ok := f.sets[name]
	if !ok {
		return SetFigures{}, false
	}
	return SetFigures{f.Report.NodeSets[i], f.use[i], f.gpus[i]}, true
}

// Own are the names of the NodeSets that Kubernetes has, without those of Watcher.With, ordered.
func (f Figures) Own() []string {
	names := make([]string, f.own)
	for i := range names {
		names[i] = f.Snapshot.NodeSets[i].Name
	}
	return names
}

// InPartition returns the names of the NodeSets in Kubernetes that have nodes in the partition; false if Slurm has no such partition.
func (f Figures) InPartition(name string) ([]string, bool) {
	sets, ok := f.partitions[name]
	return sets, ok
}

// figure works everything out. It is pure. The first own NodeSets are Kubernetes' own.
func figure(now time.Time, s scaler.Snapshot, own int) *Figures {
	f := &Figures{
		Read: now, Snapshot: s, Report: scaler.Demand(now, s), own: own,
		sets: make(map[string]int, len(s.NodeSets)), use: make([]Use, len(s.NodeSets)), gpus: make([]bool, len(s.NodeSets)),
		partitions: make(map[string][]string, len(s.Partitions)),
	}
	f.demand = sync.OnceValue(f.demanded)
	for _, p := range s.Partitions {
		f.partitions[p.Name] = nil
	}
	gpus := cards{}
	for i, set := range s.NodeSets {
		f.sets[set.Name] = i
		f.gpus[i] = set.Shape != nil && gpus.count(set.Shape.Gres) > 0
		if i < own {
			f.join(set.Name, set.Partitions)
		}
	}
	owner := make(map[string]int, len(s.Nodes))
	for i := range s.Nodes {
		n := &s.Nodes[i]
		at, ok := f.sets[n.NodeSet]
		if !ok {
			continue
		}
		owner[n.Name] = at
		if at < own {
			f.join(n.NodeSet, n.Partitions)
		}
		f.use[at].CPUs += int64(n.AllocCPUs)
		f.use[at].GPUs += gpus.count(n.GresUsed)
		f.gpus[at] = f.gpus[at] || n.Shape != nil && gpus.count(n.Shape.Gres) > 0
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

// join notes that a NodeSet has nodes in the partitions.
func (f *Figures) join(set string, partitions []string) {
	for _, p := range partitions {
		if sets, ok := f.partitions[p]; ok && !slices.Contains(sets, set) {
			f.partitions[p] = append(sets, set)
		}
	}
}

// NotReadError says that there are no figures, or that they are too old to go by.
type NotReadError struct {
	Last  time.Time     // of the last good read; zero: there was none
	Age   time.Duration // since then
	Cause error         // why it cannot be read; nil: not known
}

func (e *NotReadError) Error() string {
	var b strings.Builder
	if errors.As(e.Cause, new(*HiddenJobsError)) {
		b.WriteString("Slurm's queue is not shown in full")
	} else if e.Last.IsZero() {
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
