package powersave

import "slices"

// hets remembers which jobs are components of one het job, which only their gates tell: slurmctld takes a het job off its
// nodes as a whole (job_mgr.c _het_job_on_node).
type hets struct {
	leader map[uint32]uint32
	parts  map[uint32][]uint32 // by leader
}

func (h *hets) add(job, leader uint32) {
	if leader == 0 || h.leader[job] != 0 {
		return
	}
	if h.leader == nil || len(h.leader) >= manyJobs {
		h.leader, h.parts = map[uint32]uint32{}, map[uint32][]uint32{}
	}
	h.leader[job] = leader
	h.parts[leader] = append(h.parts[leader], job)
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
