package powersave

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// gang is a job whose nodes were powered up for it, however many requests that took. It is whole when every node has
// registered, and is given back when one cannot.
type gang struct {
	job      uint32
	whole    slurmconf.Hostlist   // all its nodes, as far as a request said
	powered  map[string]bool      // those that requests power up
	attempt  int                  // as its gate's; 0: unknown
	nodes    []string             // those whose boot is in hand
	up       []string             // those that registered for it
	rest     []string             // those it waits for without a boot in hand
	read     int                  // reads asked for when rest was noted
	requests []string             // that named it
	denied   []BreakerKey         // offerings that are taken to have no room for so many
	since    time.Time            // when it was first heard of
	asked    time.Time            // start of the request, or arrival of the gate, by which it joined a boot last: it may have been named since
	newest   time.Time            // start of the newest request that named it, whether it joined a boot by that or not
	deadline time.Time            // of what came last
	joined   map[string]time.Time // when it was to have each of nodes
	parted   string               // why: slurmctld has taken a node from it that was not up yet
	lost     bool                 // it has left one that was up
	set      string               // NodeSet of the first node that it waited for
	missed   bool                 // one that it waited for has not come up for it
	given    bool                 // it is given back
}

// remember notes which nodes a job waits for: those with a boot in hand. The others of the job
// serve already, belong to others, or come with a later slice.
func (e *Engine) remember(j Job, r Request) {
	e.requestedAnew(j, r)
	e.leaveFormer(j, r.Started)
	for name := range j.Nodes.All() {
		if n := e.nodes[name]; n != nil && n.boot != nil && !e.hasLeft(n, j.ID, r.Started) && !n.poweredUpSince(j.ID, r.Started) {
			e.hasAgain(n, j.ID, r.Started)
			e.join(n, j.ID, r.Started, r.ResumeTimeout)
		}
	}
	g := e.gangs[j.ID]
	if g == nil {
		return
	}
	if r.Started.After(g.newest) && anotherStart(g.whole, g.powered, j, r) {
		g.since, g.powered = r.Started, nil // others have waited for longer
		for _, id := range e.hets.of(j.ID) {
			if o := e.gangs[id]; o != nil {
				o.attempt = 0 // until a gate tells
			}
		}
	}
	g.whole, g.read = j.Nodes, e.reads.count
	if !slices.Contains(g.requests, r.ID) {
		g.requests = append(g.requests, r.ID)
	}
	g.newest = later(g.newest, r.Started)
	if g.powered == nil {
		g.powered = map[string]bool{}
	}
	for name := range j.Nodes.All() {
		if r.Nodes.Contains(name) {
			g.powered[name] = true
		}
	}
	g.rest = e.restOf(g)
	if reason := e.lossOf(j, r.Started); reason != "" {
		g.parted, g.rest = reason, nil
	}
	if b := e.backOf(j.ID); b != nil && !b.freed {
		g.rest = nil
		e.follow(g, b)
	}
}

// rememberAgain is for the requests that came before the NodeSets and Slurm were read, as after a restart, or before it was known that
// their job has started anew: a job's nodes may boot for a request that came after the one that names it, or for none.
func (e *Engine) rememberAgain() {
	requests := slices.SortedFunc(maps.Values(e.requests), func(a, b *request) int { return cmp.Compare(a.Sequence, b.Sequence) })
	for _, r := range requests {
		for _, j := range r.Jobs {
			e.remember(j, r.Request)
		}
	}
}

// follow deals with the nodes that were powered up for a job that is being given back, as giveBack does with those before them.
func (e *Engine) follow(g *gang, b *back) {
	for _, name := range slices.Clone(g.nodes) {
		n := e.nodes[name]
		if !slices.Contains(b.nodes, name) {
			b.nodes = append(b.nodes, name)
		}
		others := slices.ContainsFunc(n.jobs, func(id uint32) bool { return e.backOf(id) == nil })
		switch r := n.boot.release; {
		case r != nil && slices.Contains(r.jobs, g.job):
		case r != nil:
			r.jobs = append(slices.Clone(r.jobs), g.job)
		case others, n.set == "", e.bootsOn(n):
			e.leave(n, g.job)
		default:
			e.release(n, b.verdict, backReason(g.job, "", b.verdict), slices.Clone(n.jobs))
		}
	}
}

// join makes the job wait for the boot in hand of n.
func (e *Engine) join(n *node, job uint32, asked time.Time, resumeTimeout time.Duration) {
	g := e.gangs[job]
	if g == nil {
		g = &gang{job: job, since: asked, set: n.set}
		e.gangs[job] = g
	}
	g.rest = slices.DeleteFunc(g.rest, func(name string) bool { return name == n.name })
	if !slices.Contains(n.jobs, job) {
		g.parted, g.lost, g.missed = "", false, false
		g.given = g.given && e.backOf(job) != nil
		n.jobs, g.nodes = append(n.jobs, job), append(g.nodes, n.name)
	} else if !g.deadline.IsZero() { // else its gate came before the request, which knows ResumeTimeout
		return
	}
	if g.joined == nil {
		g.joined = map[string]time.Time{}
	}
	g.asked, g.joined[n.name] = asked, asked
	n.boot.resumeTimeout = cmp.Or(n.boot.resumeTimeout, resumeTimeout)
	if d := e.deadlineOf(n.set, resumeTimeout); d > 0 && asked.Add(d).After(g.deadline) {
		g.deadline = asked.Add(d)
	}
}

// forget removes the node from the gangs that waited for it. When it was the last one of a gang, that gang is whole.
func (e *Engine) forget(n *node, registered bool) {
	for _, id := range n.jobs {
		g := e.gangs[id]
		if g == nil {
			continue
		}
		g.nodes = slices.DeleteFunc(g.nodes, func(name string) bool { return name == n.name })
		if registered && n.set != "" {
			g.up = append(g.up, n.name)
		}
		g.missed, g.set = g.missed || !registered, cmp.Or(g.set, n.set)
		if len(g.nodes) == 0 {
			e.dropGang(id)
			if registered {
				delete(e.givenBack, id)
			}
		}
	}
	n.upFor = nil
	if registered && n.set != "" {
		n.upFor = n.jobs
	}
	n.jobs = nil
}

// release is a boot that is being given back: slurmctld is told to power the node down at once, which requeues the jobs
// on it, or ends those that cannot be requeued (node_mgr.c update_node, kill_running_job_by_node_ptr). SuspendProgram,
// which it calls then, does the rest.
type release struct {
	verdict  Verdict
	at       time.Time
	reason   string   // for the node
	jobs     []uint32 // given back with it
	culprit  bool     // it is itself what failed
	updating bool
	tries    int
	retryAt  time.Time
}

// condemn acts on the verdict that the boot of n cannot succeed: every job that waits for it is given back.
func (e *Engine) condemn(n *node, v Verdict) {
	if !e.mayGiveBack(n) {
		return
	}
	r := e.gangsRoom(n, v)
	if e.failed(n, v); r != nil && e.roomElsewhere(n, r, v) || r == nil && e.elsewhere(n, v) {
		return
	}
	if e.sets[n.set].Strategy == Greedy && (v.Trouble == TroubleCapacity && !e.sets[n.set].Pinned || v.Trouble == TroubleQuota) && !e.youngest(n) {
		// A younger job is given back first: what it held may be enough, as soon as its pods are gone.
		d, _ := e.patience(n, v.Trouble)
		n.boot.troubleAt = e.now.Add(max(0, graceDefault-d))
		e.wakeAt(n, n.boot.troubleAt.Add(d))
		e.overdue(n)
		return
	}
	e.giveBack(n, slices.Clone(n.jobs), v)
}

// youngest says whether no job that waits for capacity in the NodeSet came after those of n. Of those that came with one request the
// one with the largest number is the youngest.
func (e *Engine) youngest(n *node) bool {
	newest := func(n *node) (g *gang) {
		for _, id := range n.jobs {
			if o := e.gangs[id]; o.youngerThan(g) {
				g = o
			}
		}
		return g
	}
	mine := newest(n)
	for _, other := range e.compactActive() {
		if other.set != n.set || other.boot == nil || other.boot.release != nil {
			continue
		}
		if newest(other).youngerThan(mine) {
			if t, _ := e.trouble(other); t == TroubleCapacity || t == TroubleQuota || other.boot.moving { // to where there may be as little
				return false
			}
		}
	}
	return true
}

// youngerThan goes by when the jobs were first heard of: later slices do not make one younger. No job (nil) is younger than any.
func (g *gang) youngerThan(o *gang) bool {
	if g == nil || o == nil {
		return g != nil
	}
	return g.since.After(o.since) || g.since.Equal(o.since) && g.job > o.job
}

// giveBack releases all nodes of the jobs at once because culprit cannot boot. Nodes that other jobs wait for are kept,
// except the culprit itself when there is nothing to wait for.
func (e *Engine) giveBack(culprit *node, jobs []uint32, v Verdict) {
	e.failed(culprit, v)
	jobs = e.withSiblings(jobs)
	others := sharedBeyond(culprit, jobs)
	e.tellWhy(culprit, jobs, v)
	if !others {
		e.release(culprit, v, v.String(), jobs)
	}
	var gangs []*gang // leaving the last node of one forgets those of its het job that are whole
	for _, id := range jobs {
		if g := e.gangs[id]; g != nil {
			gangs = append(gangs, g)
		}
	}
	spared := e.spared(gangs, jobs)
	for _, g := range gangs {
		id := g.job
		g.rest = nil
		why := backReason(id, culprit.name, v)
		for _, name := range slices.Clone(g.nodes) {
			m := e.nodes[name]
			shared := sharedBeyond(m, jobs)
			switch {
			case m == culprit && !others:
			case m == spared && others:
				e.release(m, v, why, jobs)
			case shared, m.set == "", e.bootsOn(m):
				e.leave(m, id)
			default:
				e.closeFull(m)
				e.release(m, v, why, jobs)
			}
		}
		if e.sets[culprit.set].Strategy != BestEffort {
			e.powerDown(g, why)
		}
		if len(g.nodes) == 0 {
			e.dropGang(id)
		}
	}
}

// tellWhy tells the world, and the jobs, why culprit does not boot.
func (e *Engine) tellWhy(culprit *node, jobs []uint32, v Verdict) {
	b := culprit.boot
	failed := BootFailed{
		Node: culprit.name, NodeSet: culprit.set, Offering: e.offeringOf(culprit), UID: b.uid, Request: b.request(), Jobs: jobs, Verdict: v,
	}
	if r := b.release; r != nil && !r.culprit && r.verdict == v { // it is another's
		failed.Offering, failed.UID = "", ""
	}
	e.do(failed)
	e.note(Warn, culprit, b.request(), v.String())
	for _, id := range jobs {
		e.sendBack(id, v, e.breakers.Look(e.now, e.sets[culprit.set], nil).Until)
	}
}

// sharedBeyond says that the boot of n is waited for by a job that is none of these.
func sharedBeyond(n *node, jobs []uint32) bool {
	return slices.ContainsFunc(n.jobs, func(id uint32) bool { return !slices.Contains(jobs, id) })
}

// spared is a node of the gangs that would boot on, when no other is released: then it has to be, or slurmctld would take the jobs
// off nothing.
func (e *Engine) spared(gangs []*gang, jobs []uint32) (spared *node) {
	for _, g := range gangs {
		for _, name := range g.nodes {
			switch n := e.nodes[name]; {
			case sharedBeyond(n, jobs), n.set == "":
			case !e.bootsOn(n):
				return nil
			case spared == nil:
				spared = n
			}
		}
	}
	return spared
}

// bootsOn says that the node is not given back with a job that cannot have it: it is there for whichever job comes next.
func (e *Engine) bootsOn(n *node) bool {
	set := e.sets[n.set]
	return set.Strategy == BestEffort && (n.pod != nil || !set.AskForRoom)
}

// turnedAway ends the boot of n because slurmctld refused its slurmd. slurmctld has drained the node and taken its jobs off
// it (node_mgr.c validate_node_specs); the rest of the gang is released.
func (e *Engine) turnedAway(n *node) {
	_, reason := e.trouble(n)
	v := Verdict{Trouble: TroubleRefused, Reason: reason}
	e.giveBack(n, slices.Clone(n.jobs), v)
	e.endGates(e.leaving(n), v.String())
	e.failBoot(n)
}

func (e *Engine) release(n *node, v Verdict, reason string, jobs []uint32) {
	if n.boot.release != nil {
		return
	}
	n.boot.release = &release{verdict: v, at: e.now, reason: reason, jobs: jobs, culprit: reason == v.String()}
	n.boot.problem = reason
	e.placeEnds(n)
	e.pursueRelease(n)
}

// pursueRelease tells slurmctld, once it has shown just now that no slurmd has registered.
func (e *Engine) pursueRelease(n *node) {
	r := n.boot.release
	late := n.lateComers()
	drained := n.booting(e.now) && n.drainedByPeople()
	if (len(late) > 0 || drained) && !r.culprit && !r.updating && r.tries == 0 { // late comers, or people, may have it
		n.boot.release, n.boot.problem, n.boot.createTrouble = nil, "", TroubleNone // whose reason the release has written over
		for _, id := range r.jobs {
			e.leave(n, id)
		}
		e.reads.want(e.pollFor(n))
		return
	}
	if len(late) > 0 && !n.booting(e.now) { // it may be up by now, and theirs
		e.lookAgain(n)
		return
	}
	if len(late) > 0 {
		r.jobs = append(slices.Clone(r.jobs), late...)
		if a := n.boot.attempt; a != nil && !r.culprit { // nothing is known of its own
			e.breakers.ProbeGone(*a)
		}
		n.boot.attempt, n.boot.blamed = nil, true
		e.giveBack(n, late, r.verdict)
	}
	switch {
	case r.updating, !e.told(n):
	case r.retryAt.After(e.now):
		e.wakeAt(n, r.retryAt)
	case !n.booting(e.now):
		e.lookAgain(n)
	case !n.readSince(n.gated) && n.gatedBeyond(r): // who may have got it is to be told first
		e.reads.want(e.now)
	default:
		r.updating = true
		e.releasing = append(e.releasing, n)
	}
}

// lateComers names the jobs that got n after it was decided to give it back.
func (n *node) lateComers() (late []uint32) {
	for _, id := range n.jobs {
		if !slices.Contains(n.boot.release.jobs, id) {
			late = append(late, id)
		}
	}
	return late
}

// lookAgain has Slurm read soon: at once when what it showed is old, else in a second, since it shows neither a booting
// node nor another that decides.
func (e *Engine) lookAgain(n *node) {
	t := e.now
	if n.readSince(n.boot.read) && e.now.Sub(n.seenAt) <= actOn {
		t = e.reads.ended.Add(e.cfg.PollSlow)
	}
	e.reads.want(t)
}

// sendReleases asks for the updates of this step's releases, nodes with the same reason together. A reason that is not
// ours stays.
func (e *Engine) sendReleases() {
	var updates []NodeUpdate
	for _, n := range e.releasing {
		if !e.told(n) { // another job has turned out to be on it
			n.boot.release.updating = false
			continue
		}
		u := NodeUpdate{State: StatePowerDownForce}
		n.forcedAt = e.now
		if mayWrite(n.slurm.Reason) || n.slurm.Reason == notResponding { // which a slurmd before it may have left
			u.Reason = ReasonPrefix + n.boot.release.reason
		}
		updates = merge(updates, u, n.name)
		n.forces++
	}
	e.releasing = nil
	for _, u := range updates {
		e.do(UpdateNodes{u})
	}
}

// released takes in the answer to an update of sendReleases.
func (e *Engine) released(n *node, err string) {
	n.forces = max(0, n.forces-1)
	b := n.boot
	if n.forces > 0 { // the answer to an earlier one, which SuspendProgram has overtaken
		return
	}
	if b == nil || b.release == nil || !b.release.updating {
		if err == "" { // its slurmd registered meanwhile, and yet the jobs were taken off it
			e.freed(n)
		}
		return
	}
	r := b.release
	r.updating = false
	if err != "" {
		e.note(Warn, n, b.request(), "giving the node back failed: "+err)
		r.retryAt = e.now.Add(pause(r.tries))
		r.tries++
		e.decide(n)
		return
	}
	e.endGates(e.leaving(n), r.verdict.String())
	e.failBoot(n)
	// What was read until now says that the node is booting.
	n.believe, n.read = e.reads.count, 0
	e.reads.want(e.now.Add(e.cfg.PollSlow))
}

// merge adds the node to the update that is like u, or u to the updates.
func merge(updates []NodeUpdate, u NodeUpdate, name string) []NodeUpdate {
	i := slices.IndexFunc(updates, func(o NodeUpdate) bool { return o.State == u.State && o.Reason == u.Reason })
	if i < 0 {
		i, updates = len(updates), append(updates, u)
	}
	updates[i].Nodes = append(updates[i].Nodes, name)
	return updates
}
