package dynamic

import (
	"fmt"
	"slices"

	"github.com/slurmtide/slurmtide/scaler"
)

// miss reports jobs that no NodeSet can ever run, each once. r is the report of s, whose last NodeSets are those of mode Dynamic, as far as they
// have free names now: what they will never have shows only with all of their names.
func (p *Planner) miss(r scaler.Report, s scaler.Snapshot, own int) {
	all := scaler.MissesOf(r)
	unknown := p.recheck && len(all) > 0
	for id := range all {
		unknown = unknown || p.misses[id] == ""
		all[id] = p.misses[id]
	}
	if p.recheck = false; unknown {
		s.NodeSets = slices.Clone(s.NodeSets)
		ours := s.NodeSets[len(s.NodeSets)-own:]
		for i := range ours {
			ours[i].Max, ours[i].MaxWhy = p.mostOf(p.sets[ours[i].Name])
		}
		all = scaler.MissesOf(scaler.Demand(p.now, s))
	}
	p.misses = p.misses.Tell(all, func(text string, args ...any) {
		for i := 1; i < len(args); i += 2 {
			text += fmt.Sprintf(", %v: %v", args[i-1], args[i])
		}
		p.do(Report{Warning: true, Text: text})
	})
}

// Misses are the jobs that no NodeSet can ever run, as of the last look at the queue.
func (p *Planner) Misses() scaler.Misses { return p.misses }
