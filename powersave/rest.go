package powersave

import (
	"cmp"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// A gang may wait for nodes without a boot in hand: ResumeRate holds them back, or they boot for another job whose request has not
// come yet. Those are its rest. Which jobs hold them only the resume file of the gang's own nodes says.

// restOf names the nodes of the gang that have no boot in hand, and that Slurm last showed off or powering up, or has yet to show.
func (e *Engine) restOf(g *gang) (rest []string) {
	for name := range g.whole.All() {
		n := e.nodes[name]
		if n == nil || n.boot != nil || e.setOf(name) == "" { // NodeSets that have just been read are taken up node by node
			continue
		}
		if n.read == 0 || n.slurm.State.Any(NodePoweredDown|NodePoweringUp) {
			rest = append(rest, name)
		}
	}
	return rest
}

// gangsWithRest lists them by job.
func (e *Engine) gangsWithRest() (gangs []*gang) {
	for _, g := range e.gangs { // few of many
		if len(g.rest) > 0 {
			gangs = append(gangs, g)
		}
	}
	slices.SortFunc(gangs, func(a, b *gang) int { return cmp.Compare(a.job, b.job) })
	return gangs
}

// joinRest makes gangs wait for what of their rest has a boot in hand now: the request for it names the job alone that it was
// powered up for.
func (e *Engine) joinRest() {
	for _, g := range e.gangsWithRest() {
		for _, name := range slices.Clone(g.rest) {
			if n := e.nodes[name]; n.boot != nil && n.boot.release == nil && e.backOf(g.job) == nil {
				e.join(n, g.job, n.boot.times.Requested, n.boot.resumeTimeout)
			}
		}
	}
}

// pruneRest forgets what gangs wait for no longer, as a read shows.
func (e *Engine) pruneRest() {
	for _, g := range e.gangsWithRest() {
		over := !g.deadline.IsZero() && !g.deadline.After(e.now)
		g.rest = slices.DeleteFunc(g.rest, func(name string) bool {
			n := e.nodes[name]
			s := n.slurm.State
			return over || n.readSince(g.read) && (n.missing || !s.Any(NodePoweredDown|NodePoweringUp) || !s.Any(inUse))
		})
	}
}

// leaveFormer makes the job wait no longer for what it had before it was given these nodes: those go on booting for nobody until Slurm
// shows what becomes of them.
func (e *Engine) leaveFormer(j Job, started time.Time) {
	g := e.gangs[j.ID]
	if g == nil || !started.After(g.asked) {
		return
	}
	for _, name := range slices.Clone(g.nodes) {
		if n := e.nodes[name]; !j.Nodes.Contains(name) && n.boot.release == nil {
			e.leave(n, j.ID)
		}
	}
	g.missed = false // what it left was of its start before
}

func same(a, b slurmconf.Hostlist) bool { return a.Len() == b.Len() && a.Minus(b).Len() == 0 }

// loseRest notes that the job has its nodes no longer.
func (e *Engine) loseRest(job uint32) {
	if g := e.gangs[job]; g != nil {
		g.rest = nil
	}
}

// dropGang forgets a gang that waits for nothing. One that is whole so far is kept while more of it is to come, or while another
// component of its het job waits, since it is given back with that. The gate of one that has been given back waits for nothing of it.
func (e *Engine) dropGang(job uint32) {
	parts := e.hets.of(job)
	for _, id := range parts {
		if g := e.gangs[id]; g != nil && len(g.nodes)+len(g.rest) > 0 || len(parts) > 1 && e.gateWaits(id) && e.backOf(id) == nil {
			e.kept = append(e.kept, job)
			return
		}
	}
	for _, id := range parts {
		if g := e.gangs[id]; g != nil {
			delete(e.gangs, id)
			e.do(GangDone{Job: id, NodeSet: g.set, Outcome: g.outcome()})
		}
	}
	e.tellAgain = true
}

func (g *gang) outcome() GangOutcome {
	switch {
	case g.given:
		return GangGivenBack
	case g.missed, g.lost, g.parted != "":
		return GangLeft
	}
	return GangReady
}

// dropKept looks again at the gangs that dropGang has kept.
func (e *Engine) dropKept() {
	kept := e.kept
	e.kept = nil
	for _, id := range kept {
		if g := e.gangs[id]; g != nil && len(g.nodes) == 0 && !slices.Contains(e.kept, id) {
			e.dropGang(id)
		}
	}
}

// gateWaitsOf says that a gate of this attempt of the job waits: slurmctld does not start it anew before that is over.
func (e *Engine) gateWaitsOf(job uint32, attempt int) bool {
	return slices.ContainsFunc(e.gates, func(g *gate) bool { return g.job == job && g.attempt > 0 && g.attempt == attempt })
}

func (e *Engine) gateWaits(job uint32) bool {
	return slices.ContainsFunc(e.gates, func(g *gate) bool { return g.job == job })
}
