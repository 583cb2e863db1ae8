package powersave

import "slices"

// hets remembers which jobs are components of one het job, which their gates tell, or else their records when one of them is given
// back: slurmctld takes a het job off its nodes as a whole (job_mgr.c _het_job_on_node).
type hets struct {
	leader map[uint32]uint32
	parts  map[uint32][]uint32 // by leader
}

// add notes what a gate tells. It is news once.
func (h *hets) add(job, leader uint32) (news bool) {
	if leader == 0 || h.leader[job] != 0 {
		return false
	}
	if h.leader == nil || len(h.leader) >= manyJobs {
		h.leader, h.parts = map[uint32]uint32{}, map[uint32][]uint32{}
	}
	h.leader[job] = leader
	h.parts[leader] = append(h.parts[leader], job)
	return true
}

// of names the components of the het job that the job is part of; it alone when that is none.
func (h *hets) of(job uint32) []uint32 {
	if parts := h.parts[h.leader[job]]; len(parts) > 0 {
		return parts
	}
	return []uint32{job}
}

// withSiblings adds the other components of het jobs.
func (e *Engine) withSiblings(jobs []uint32) []uint32 {
	all := slices.Clone(jobs)
	for _, id := range jobs {
		for _, other := range e.hets.of(id) {
			if !slices.Contains(all, other) {
				all = append(all, other)
			}
		}
	}
	return all
}

// partsTold takes in which components the het job has that b is part of: they go along. What has come up for one that is whole, which
// is not remembered any more, goes as well.
func (e *Engine) partsTold(b *back, parts []JobPart) {
	if len(parts) < 2 || b.freed {
		return
	}
	for _, p := range parts {
		e.hets.add(p.Job, parts[0].Job)
	}
	e.goAlong(e.hets.of(b.job))
	for _, p := range parts {
		var up []*node
		for _, name := range p.Nodes {
			n := e.nodes[name]
			if n == nil || n.boot != nil || !slices.Contains(n.upFor, p.Job) || !serving(n.slurm.State) {
				continue
			}
			if e.sets[n.set].Strategy == BestEffort {
				up = nil
				break
			}
			up = append(up, n)
		}
		for _, n := range up {
			e.letGo(n, backReason(p.Job, "", b.verdict))
		}
	}
}

// goAlong gives back the components of a het job that were not known to belong to one that is being given back until now.
func (e *Engine) goAlong(parts []uint32) {
	i := slices.IndexFunc(parts, func(id uint32) bool {
		b := e.backOf(id)
		return b != nil && !b.freed
	})
	if i < 0 {
		return
	}
	first := e.backOf(parts[i])
	for _, id := range parts { // any of them takes it along
		if id == first.job {
			continue
		}
		if g := e.gangs[id]; g != nil {
			first.add(g.nodes)
		}
		if b := e.backOf(id); b != nil {
			first.add(b.nodes)
		}
	}
	for _, id := range parts {
		if b := e.backOf(id); b != nil {
			if !b.freed { // it was given back by itself
				b.nodes = slices.Clone(first.nodes)
			}
			continue
		}
		e.sendBack(id, first.verdict, first.notBefore)
		e.backOf(id).nodes = slices.Clone(first.nodes)
		if g := e.gangs[id]; g != nil {
			g.rest = nil
			e.follow(g, e.backOf(id))
			if !slices.ContainsFunc(g.up, func(name string) bool { return e.sets[e.nodes[name].set].Strategy == BestEffort }) {
				e.powerDown(g, backReason(id, "", first.verdict))
			}
		}
	}
}
