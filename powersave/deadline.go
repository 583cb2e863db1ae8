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
	up := n.poweredUpAt()
	since = later(g.joined[n.name], up) // it may have lost the node, and been given it again
	at = since.Add(d)
	if d := untilResumeTimeout(n.boot.resumeTimeout); d > 0 && !up.IsZero() && up.Add(d).Before(at) {
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
	var few [8]uint32 // without memory of its own: each look at a boot comes here
	for _, id := range append(few[:0], n.jobs...) {
		g := e.gangs[id]
		if g == nil {
			continue
		}
		switch at, since := e.due(g, n); {
		case at.IsZero():
		case at.After(e.now):
			e.wakeAt(n, at)
		case e.missed(n, at):
			m := e.probeOf(g, n)
			if m != n && !e.missed(m, at) {
				continue
			}
			if e.tiedToOthers(id) {
				if !m.shortOf(at, since) { // the next are not to be tried in the same way
					e.failed(m, e.whyLate(m, false))
				}
				continue
			}
			e.giveBackLate(m, []uint32{id}, at, since)
		}
	}
	after := e.deadlineOf(n.set, n.boot.resumeTimeout)
	if len(n.jobs) > 0 || n.boot.release != nil || after == 0 {
		return
	}
	at := n.boot.accepted.Add(after + e.othersFirst(n.boot))
	if at.After(e.now) {
		e.wakeAt(n, at)
		return
	}
	if e.missed(n, at) {
		e.giveBackLate(n, nil, n.boot.accepted.Add(after), n.boot.accepted)
	}
}

// tiedToOthers says that slurmctld could take the job off none of its nodes without another that has time left. When that is late, too, they are
// given back together.
func (e *Engine) tiedToOthers(job uint32) bool {
	tied, known := e.tied[job]
	if !known { // each of its nodes asks
		if e.tied == nil {
			e.tied = map[uint32]bool{}
		}
		tied = e.shareAll(e.withSiblings([]uint32{job}))
		e.tied[job] = tied
	}
	return tied
}

// shareAll says that all nodes of these jobs are shared with others that have time left.
func (e *Engine) shareAll(jobs []uint32) bool {
	for _, id := range jobs {
		g := e.gangs[id]
		if g == nil {
			continue
		}
		for _, name := range g.nodes {
			n := e.nodes[name]
			tied := slices.ContainsFunc(n.jobs, func(other uint32) bool {
				if slices.Contains(jobs, other) {
					return false
				}
				at, _ := e.due(e.gangs[other], n)
				return at.IsZero() || at.After(e.now) || n.readAt.Before(at)
			})
			if !tied && n.set != "" {
				return false
			}
		}
	}
	return true
}

// missed says that n is still not up at the time by which it had to be: Slurm, read since, shows so. While it cannot be read slurmctld's own
// ResumeTimeout is the last resort.
func (e *Engine) missed(n *node, at time.Time) bool {
	switch {
	case !e.mayGiveBack(n):
		return false
	case n.readAt.Before(at):
		e.reads.want(e.now)
		return false
	}
	return true
}

// probeOf is the node of the job that has failed when n, which waits for how it fares, is late: the probe of a breaker, if it is late, too;
// else n itself.
func (e *Engine) probeOf(g *gang, n *node) *node {
	if n.boot.attempt != nil || n.pod != nil {
		return n
	}
	for _, name := range g.nodes {
		if m := e.nodes[name]; m.set == n.set && m.boot.attempt != nil && m.boot.attempt.Probe() {
			if at, _ := e.due(g, m); !at.After(e.now) {
				return m
			}
		}
	}
	return n
}

// shortOf says that a boot that had to be done by then has had less than three quarters of the time since: it had to wait for a probe, for a
// pod to end, for Kubernetes, or for the bridge.
func (n *node) shortOf(at, since time.Time) bool {
	began := n.boot.clearAt
	if n.pod != nil && !n.outdated() && (n.pod.Created.After(began) || n.boot.times.Asked.IsZero()) { // or it was there before
		began = n.pod.Created
	}
	return at.After(since) && began.Sub(since) > at.Sub(since)/4
}

// giveBackLate gives the jobs back because n was not up by that time, which had begun then.
func (e *Engine) giveBackLate(n *node, jobs []uint32, at, since time.Time) {
	v := e.late(n, at, since)
	v.Reason = fmt.Sprintf("not up after %s: %s", at.Sub(since).Round(time.Second), v.Reason)
	e.giveBack(n, jobs, v)
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

// late says why the boot in hand of n has not succeeded between these times. Breakers hear nothing of one that had not enough time.
func (e *Engine) late(n *node, at, since time.Time) Verdict {
	short := n.shortOf(at, since)
	v := e.whyLate(n, short)
	if b := n.boot; short {
		if b.attempt != nil {
			e.breakers.ProbeGone(*b.attempt)
		}
		b.attempt, b.blamed = nil, true
	}
	return v
}

// whyLate is what Kubernetes says of the boot, or else how far it came; short: it had not enough time.
func (e *Engine) whyLate(n *node, short bool) Verdict {
	if trouble, reason := e.trouble(n); trouble != TroubleNone {
		return Verdict{Trouble: trouble, Reason: reason}
	}
	if n.pod != nil {
		if why, _, _ := e.hosts.Judge(e.now, n.pod.Host, false); e.hosts.Silent(n.pod.Host) && why != "" {
			return Verdict{Trouble: TroubleLost, Reason: why}
		}
	}
	v := Verdict{Trouble: TroubleBootstrap, Reason: n.boot.story(n)}
	switch b, p := n.boot, n.boot.phase(n); {
	case short, n.former(), (p == PhaseAccepted || p == PhaseCreating) && !b.queued && b.waits == "": // nothing says that the next boot will fail
		v.Trouble = TroubleLost
	case p == PhaseAccepted, p == PhaseCreating, p == PhasePending:
		v.Trouble = TroubleCapacity
	}
	return v
}
