package powersave

import (
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/powersave/spool"
)

// slurmctld gives a boot up at ResumeTimeout where our own deadline has not come before: the bridge was away, Kubernetes could not be read, or
// spec.boot.deadline is longer. The jobs are off the node then, and are told as those that we give back.

// known says that the boot in hand is the one that slurmctld has just ended: it was seen, its pod tells of it, or ResumeFailProgram was called
// after its request, lately.
func (e *Engine) known(n *node) bool {
	if !n.boot.unsure || n.pod != nil && !n.outdated() {
		return true
	}
	return n.off != nil && n.off.gaveUpAt().After(later(n.boot.times.Requested, e.now.Add(-backMost)))
}

// timesOut tells why slurmctld had to give the boot in hand of n up, at the earliest at that time. What a deadline of ours has told is not
// told once more. The boot ends next; the other nodes of its jobs boot for nobody.
func (e *Engine) timesOut(n *node, since time.Time) {
	b := n.boot
	if n.set == "" { // not ours
		return
	}
	if n.pod != nil {
		b.observe(n.pod, e.now)
	}
	jobs, v := slices.Clone(n.jobs), e.late(n, since, b.times.Requested)
	switch r := b.release; {
	case r != nil:
		jobs, v = n.lateComers(), r.verdict
	case len(jobs) == 0 && b.anothers(): // who has its request tells
		return
	default:
		v.Reason = "not up after ResumeTimeout: " + v.Reason
	}
	for _, g := range e.gates { // a job that got it just before
		if slices.Contains(g.nodes, n) && n.readSince(g.read) && !n.allocatedAnew() && !slices.Contains(jobs, g.job) && e.backOf(g.job) == nil {
			jobs = append(jobs, g.job)
		}
	}
	if jobs = e.withSiblings(jobs); b.release != nil && len(jobs) == 0 {
		return
	}
	e.tellWhy(n, jobs, v)
	if b.release == nil && !e.blind { // else it may have fared better than is known
		e.failed(n, v)
	}
	e.tookOff(n, jobs, v, since)
}

// tookOff takes in that slurmctld took the jobs off n, and with it off all that they had, when it gave the boot of n up.
func (e *Engine) tookOff(n *node, jobs []uint32, v Verdict, since time.Time) {
	for _, o := range e.backs {
		if slices.Contains(jobs, o.job) && !o.freed {
			o.freed, o.freedAt = true, since
			e.loses(o.job, backReason(o.job, n.name, v))
		}
	}
	e.endGates(jobs, v.String())
	for _, id := range jobs {
		if g := e.gangs[id]; g != nil && e.sets[n.set].Strategy != BestEffort {
			up := g.up
			e.powerDown(g, backReason(id, n.name, v))
			for _, name := range up { // whoever is on it now has got it since
				if d := e.nodes[name].dismissal; d != nil {
					d.taken, d.read = true, e.reads.count
				}
			}
		}
	}
	e.part(n, jobs, n.name+": "+v.String())
	for _, id := range jobs {
		g := e.gangs[id]
		if g == nil {
			continue
		}
		g.rest = nil
		for _, name := range slices.Clone(g.nodes) {
			if m := e.nodes[name]; m != n && m.boot.release == nil && !g.joined[name].After(since) { // else it has been given that since
				e.leave(m, id)
			}
		}
	}
}

// upTooLate sees to the jobs that slurmctld took off n when it gave its boot up, right before slurmd registered after all: slurmctld takes that,
// and n serves without them.
func (e *Engine) upTooLate(n *node, since time.Time) {
	var jobs []uint32
	switch b := n.boot; {
	case n.set == "":
		return
	case b != nil:
		for _, id := range n.jobs {
			if g := e.gangs[id]; g != nil && !g.joined[n.name].After(since) { // else it was given n since
				jobs = append(jobs, id)
			}
		}
	case since.After(n.upAsked) && !since.After(n.upSeen): // that was seen before ResumeFailProgram told
		jobs, n.upFor = n.upFor, nil
	}
	if len(jobs) == 0 {
		return
	}
	jobs = e.withSiblings(jobs)
	v := Verdict{Trouble: TroubleBootstrap, Reason: "not up after ResumeTimeout: slurmd registered right after it"}
	e.note(Warn, n, "", v.String())
	for _, id := range jobs {
		e.sendBack(id, v, time.Time{})
	}
	e.tookOff(n, jobs, v, since)
	if n.boot == nil {
		if n.slurm.State.Any(NodeIdle) && e.sets[n.set].Strategy != BestEffort {
			e.letGo(n, backReason(jobs[0], n.name, v))
		}
		return
	}
	for _, id := range jobs {
		if slices.Contains(n.jobs, id) {
			e.leave(n, id)
		}
	}
}

// gaveUpAt is when slurmctld gave the boot up, as the newest ResumeFailProgram says.
func (o *off) gaveUpAt() (at time.Time) {
	for _, r := range o.requests {
		if r.Kind == spool.KindResumeFail {
			at = later(at, r.Started)
		}
	}
	return at
}
