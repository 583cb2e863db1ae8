package watch

import (
	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// leave notes which nodes have jobs no more, though their records may still show what those had.
func (r *reader) leave(jobs []scaler.Job) {
	now := withJobs(jobs)
	for name := range withJobs(r.snap.Jobs) {
		if !now[name] {
			if r.left == nil {
				r.left = map[string]bool{}
			}
			r.left[name] = true
		}
	}
	for name := range now {
		delete(r.left, name)
	}
}

// free shows those nodes as nobody's.
func (r *reader) free(nodes []scaler.Node) {
	for i := range nodes {
		if n := &nodes[i]; r.left[n.Name] {
			n.AllocCPUs, n.AllocMemory, n.GresUsed = 0, 0, ""
		}
	}
}

// withJobs are the nodes that jobs hold.
func withJobs(jobs []scaler.Job) map[string]bool {
	names := map[string]bool{}
	for i := range jobs {
		j := &jobs[i]
		if j.Nodes == "" {
			continue
		}
		list, err := slurmconf.ParseHostlist(j.Nodes)
		if err != nil {
			continue // the nodes' own records count
		}
		for name := range list.All() {
			names[name] = true
		}
	}
	return names
}
