package powersave

import (
	"fmt"
	"slices"
	"time"
)

// deadlineOf is how long the nodes of a job may take, from the request on: spec.boot.deadline, else ResumeTimeout less a
// tenth (at least 5 s), so that we give the nodes back before slurmctld does it one by one. 0: slurmctld decides alone.
func (e *Engine) deadlineOf(set string, resumeTimeout time.Duration) time.Duration {
	if d := e.sets[set].Deadline; d > 0 {
		return d
	}
	return untilResumeTimeout(resumeTimeout)
}

func untilResumeTimeout(t time.Duration) time.Duration { return max(t-max(t/10, 5*time.Second), t/2) }

// setDeadlines is for the gangs that were remembered before the NodeSets, and their deadlines, were known.
func (e *Engine) setDeadlines() {
	for _, g := range e.gangs {
		g.deadline = time.Time{}
		for _, name := range g.nodes {
			if d := e.deadlineOf(e.setOf(name), e.nodes[name].boot.resumeTimeout); d > 0 && g.asked.Add(d).After(g.deadline) {
				g.deadline = g.asked.Add(d)
			}
		}
	}
}

// due is when the job has waited for n for too long, and since when it waits then; zero: slurmctld decides alone. That counts
// ResumeTimeout from each node's own power-up: what a later slice of ResumeRate powers up has more time.
func (e *Engine) due(g *gang, n *node) (at, since time.Time) {
	d := e.deadlineOf(n.set, n.boot.resumeTimeout)
	if d <= 0 {
		return time.Time{}, time.Time{}
	}
	since = g.joined[n.name]
	at = since.Add(d)
	if up, d := n.poweredUpAt(), untilResumeTimeout(n.boot.resumeTimeout); d > 0 && !up.IsZero() && up.Add(d).Before(at) {
		return up.Add(d), up
	}
	return at, since
}

// poweredUpAt is when the newest request that powers n up was made; zero: none is known.
func (n *node) poweredUpAt() (at time.Time) {
	for _, r := range n.boot.requests {
		if r.names(n.name) {
			at = later(at, r.Started)
		}
	}
	return at
}

// overdue gives back the jobs waiting for n whose deadline has passed, and n itself when no job waits for it.
func (e *Engine) overdue(n *node) {
	for _, id := range slices.Clone(n.jobs) {
		g := e.gangs[id]
		if g == nil {
			continue
		}
		switch at, since := e.due(g, n); {
		case at.IsZero():
		case at.After(e.now):
			e.wakeAt(n, at)
		case e.mayGiveBack(n):
			m := e.probeOf(g, n)
			if m != n && !e.mayGiveBack(m) {
				continue
			}
			e.excuse(m, at, since)
			e.giveBack(m, []uint32{id}, e.late(m, at.Sub(since)))
		}
	}
	after := e.deadlineOf(n.set, n.boot.resumeTimeout)
	if len(n.jobs) > 0 || n.boot.release != nil || after == 0 {
		return
	}
	if t := n.boot.accepted.Add(after + e.othersFirst(n.boot)); t.After(e.now) {
		e.wakeAt(n, t)
		return
	}
	if e.mayGiveBack(n) {
		e.excuse(n, n.boot.accepted.Add(after), n.boot.accepted)
		e.giveBack(n, nil, e.late(n, after))
	}
}

// probeOf is the node of the job that has failed when n, which waits for how it fares, is late: the probe of a breaker; else n itself.
func (e *Engine) probeOf(g *gang, n *node) *node {
	if n.boot.attempt != nil || n.pod != nil {
		return n
	}
	for _, name := range g.nodes {
		if m := e.nodes[name]; m.set == n.set && m.boot.attempt != nil && m.boot.attempt.Probe() {
			return m
		}
	}
	return n
}

// excuse has the breakers hear nothing of a boot that is late at that time because it had to wait for a probe, or a pod to end, for more than
// a quarter of its time.
func (e *Engine) excuse(n *node, at, since time.Time) {
	b := n.boot
	if b.letAt.Sub(since) <= at.Sub(since)/4 {
		return
	}
	if b.attempt != nil {
		e.breakers.ProbeGone(*b.attempt)
	}
	b.attempt, b.blamed = nil, true
}

// mayGiveBack says that both sides tell what is to be known of the boot in hand of n: Kubernetes can be read, and Slurm has shown n since it
// was asked for. It has Slurm read otherwise, also if the boot was asked for while another bridge saw to it: that may have given its jobs back.
func (e *Engine) mayGiveBack(n *node) bool {
	if e.blind { // when it can be read again, all is decided anew
		return false
	}
	if n.readSince(n.boot.read) || n.boot.times.Requested.After(e.found.begun) {
		return true
	}
	e.reads.want(e.now)
	return false
}

// late says why the boot in hand of n has not succeeded in that time, by which it had to.
func (e *Engine) late(n *node, after time.Duration) Verdict {
	trouble, reason := n.trouble()
	if trouble == TroubleNone && n.pod != nil {
		if why, _, _ := e.hosts.Judge(e.now, n.pod.Host, false); e.hosts.Silent(n.pod.Host) && why != "" {
			trouble, reason = TroubleLost, why
		}
	}
	if trouble == TroubleNone {
		reason = n.boot.story(n)
		trouble = TroubleBootstrap
		if p := n.boot.phase(n); p == PhaseAccepted || p == PhaseCreating || p == PhasePending {
			trouble = TroubleCapacity
		}
	}
	if after > 0 {
		reason = fmt.Sprintf("not up after %s: %s", after.Round(time.Second), reason)
	}
	return Verdict{Trouble: trouble, Reason: reason}
}
