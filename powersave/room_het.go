package powersave

import "slices"

// The components of a het job start together or not at all, so they ask for room together, in the name of their leader, as far as
// their gates have told what they are: slurmctld runs PrologSlurmctld before ResumeProgram.

// roomJob is the job in whose name room is asked for n: the first that waits for it, or the leader of its het job, unless one of them
// asked before their gates had told that they belong together.
func (e *Engine) roomJob(n *node) uint32 {
	job := n.jobs[0]
	leader := e.hets.leader[job]
	if leader == 0 || e.rooms.jobs[job] != nil || !slices.Contains(e.hets.of(leader), job) {
		return job
	}
	if r := e.rooms.jobs[leader]; r != nil && r.nodes != nil {
		if _, counted := r.nodes[n.name]; !counted {
			return job
		}
	}
	return leader
}

// roomGangs are the gangs of the job, and of the other components of its het job, that are known.
func (e *Engine) roomGangs(job uint32) (gangs []*gang) {
	for _, id := range e.hets.of(job) {
		if g := e.gangs[id]; g != nil {
			gangs = append(gangs, g)
		}
	}
	return gangs
}

// roomMembers are the other nodes of the first job of n, and of its het job, whose NodeSets ask for room: those that boot, and those that
// slurmctld has yet to power up.
func (e *Engine) roomMembers(n *node) (members []*node) {
	seen := map[*node]bool{n: true}
	add := func(m *node) {
		if m != nil && m.set == "" { // NodeSets that have just been read are taken up node by node
			m.set = e.setOf(m.name)
		}
		if m != nil && !seen[m] && e.sets[m.set].AskForRoom {
			members = append(members, m)
		}
		seen[m] = true
	}
	for _, g := range e.roomGangs(n.jobs[0]) {
		for _, name := range g.nodes {
			add(e.nodes[name])
		}
		for name := range g.whole.All() {
			if m := e.nodes[name]; m != nil && m.boot == nil {
				add(m)
			}
		}
	}
	parts := e.hets.of(n.jobs[0])
	for _, g := range e.gates {
		for i := 0; len(parts) > 1 && slices.Contains(parts, g.job) && i < len(g.nodes); i++ {
			add(g.nodes[i])
		}
	}
	return members
}

// leaveIdle makes jobs that have started anew on other nodes, which boot as well, wait no longer for n, since Slurm shows that nobody has
// it: it boots on like one that is powered up for nobody, and what room they need does not count it.
func (e *Engine) leaveIdle(n *node) {
	for len(n.jobs) > 0 && n.readSince(n.boot.read) && n.slurm.State.Any(NodeIdle) && slices.ContainsFunc(e.roomMembers(n), (*node).bootsForJob) {
		e.leave(n, n.jobs[0])
	}
}

// bootsForJob says that Slurm has shown that a job has the booting node.
func (n *node) bootsForJob() bool {
	return n.boot != nil && n.boot.release == nil && n.readSince(n.boot.read) && n.slurm.State.Any(NodePoweringUp) && n.slurm.State.Any(NodeAllocated|NodeMixed)
}
