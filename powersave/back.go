package powersave

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// back is a job on its way back to the queue, or to its end: first its record is told why, since a finished job takes no
// comment (job_mgr.c _update_job), then its nodes are released, then, pending, it is held off for a while.
type back struct {
	job     uint32
	request string // the newest that named it
	verdict Verdict
	nodes   []string // that it waited for
	// what the requests said of the start that came to nothing, the newest of which was started when it was asked for
	whole   slurmconf.Hostlist
	powered map[string]bool
	asked   time.Time
	attempt int // as GateOpened's; 0: unknown
	// notBefore is when the NodeSet that failed is tried again.
	notBefore time.Time
	begun     time.Time
	notified  bool // its user is being told at his terminal
	told      bool // its record says why, or would not take it
	freed     bool // slurmctld has taken it off the node that failed
	freedAt   time.Time
	asking    int // serial of the TellJob or HoldJob that is not answered yet; 0: none
	tries     int
	failedAt  time.Time // when telling it failed first since Slurm was away
	retryAt   time.Time
	until     time.Time
	times     int           // how often it has been given back in a row, says its record; 0: unknown
	rested    time.Duration // before it was found
}

const (
	holdFirst = 30 * time.Second
	holdMost  = 30 * time.Minute
	tellTries = 3
	tellMost  = 2 * time.Second
	// notifyTime is what scontrol notify takes, generously.
	notifyTime = 300 * time.Millisecond
	// backMost bounds how long a job is seen to while Slurm can be read: until then a requeued one has become pending.
	backMost = 2 * time.Minute
	// gateSlack is how much later than the first request of a job its gate may come.
	gateSlack = 2 * time.Second
	// manyJobs bounds the memory of jobs that were given back.
	manyJobs = 100_000
)

// sendBack begins to give a job back.
func (e *Engine) sendBack(job uint32, v Verdict, notBefore time.Time) {
	if e.backOf(job) == nil {
		b := &back{job: job, verdict: v, notBefore: notBefore, begun: e.now, retryAt: e.now, until: e.now.Add(backMost)}
		if g := e.gangs[job]; g != nil && len(g.requests) > 0 {
			b.request, b.whole, b.powered, b.asked = g.requests[len(g.requests)-1], g.whole, maps.Clone(g.powered), g.newest
		}
		for _, id := range e.hets.of(job) { // any of them takes it along
			if g := e.gangs[id]; g != nil {
				b.nodes, b.attempt = append(b.nodes, g.nodes...), max(b.attempt, g.attempt)
			}
		}
		e.backs = append(e.backs, b)
	}
	if g := e.gangs[job]; g != nil {
		g.given = true
	}
}

// startsAnew forgets that a job was given back, with the other components of its het job: it has been given nodes again before it could be
// held off, or before it could be taken off those that it had, and what its record says is of the attempt before. has are the nodes that it
// has now.
func (e *Engine) startsAnew(job uint32, has func(*node) bool, anew func(*back) bool) {
	if b := e.backOf(job); b == nil || !anew(b) {
		return
	}
	jobs := e.hets.of(job)
	e.tellAgain = true
	e.backs = slices.DeleteFunc(e.backs, func(b *back) bool {
		if !slices.Contains(jobs, b.job) {
			return false
		}
		for _, name := range b.nodes { // one that slurmctld would not let go of yet: now the job is to be told once more
			if n := e.nodes[name]; n.boot != nil && n.boot.release != nil && has(n) {
				e.comesLate(n, job)
			}
		}
		return true
	})
}

// hasAgain takes in that a job has been given n since that began to be given back with it, and is not seen to any more: it is to be told before
// it is taken off n.
func (e *Engine) hasAgain(n *node, job uint32, since time.Time) {
	r := n.boot.release
	if r != nil && since.After(r.at) && slices.Contains(r.jobs, job) && e.backOf(job) == nil {
		e.comesLate(n, job)
	}
}

// comesLate makes the job one that has got n after it was decided to give that back.
func (e *Engine) comesLate(n *node, job uint32) {
	r := n.boot.release
	r.jobs = slices.DeleteFunc(slices.Clone(r.jobs), func(id uint32) bool { return id == job })
	e.wakeAt(n, e.now)
}

// requestedAnew is startsAnew by a request: one start of a job has the same nodes in all of them, each of which is powered up once.
func (e *Engine) requestedAnew(j Job, r Request) {
	e.startsAnew(j.ID, func(n *node) bool { return j.Nodes.Contains(n.name) }, func(b *back) bool {
		if b.freed {
			return r.Started.After(b.freedAt)
		}
		if b.whole.Len() == 0 { // no request of that start is to come: all it had was up, or booted for others
			return r.Started.After(b.begun.Add(gateSlack)) && !e.gateWaitsOf(j.ID, b.attempt)
		}
		return r.Started.After(b.asked) && anotherStart(b.whole, b.powered, j, r) && !e.gateWaitsOf(j.ID, b.attempt)
	})
}

// anotherStart says that a later request is of another start of its job than those that named these nodes, and powered those up.
func anotherStart(whole slurmconf.Hostlist, powered map[string]bool, j Job, r Request) bool {
	switch {
	case whole.Len() == 0: // nothing is known of the other
		return false
	case !same(whole, j.Nodes):
		return true
	}
	for name := range powered {
		if r.Nodes.Contains(name) {
			return true
		}
	}
	return false
}

// gatedAnew is startsAnew by a gate, which says which attempt of the job it is of: slurmctld that is started anew runs PrologSlurmctld once
// more for the same (read_config.c). If either attempt is unknown, the gate of the same would have come long before.
func (e *Engine) gatedAnew(g *gate) {
	e.startsAnew(g.job, func(n *node) bool { return slices.Contains(g.nodes, n) }, func(b *back) bool {
		came := g.asked.Add(-gateSlack)
		switch {
		case g.attempt > 0 && b.attempt > 0:
			return g.attempt > b.attempt
		case b.freed:
			return came.After(b.freedAt)
		}
		return came.After(b.begun)
	})
}

// add notes that the job waited for these nodes, too.
func (b *back) add(nodes []string) {
	have := make(map[string]bool, len(b.nodes))
	for _, name := range b.nodes {
		have[name] = true
	}
	b.nodes = append(b.nodes, slices.DeleteFunc(slices.Clone(nodes), func(name string) bool { return have[name] })...)
}

func (e *Engine) backOf(job uint32) *back {
	for _, b := range e.backs {
		if b.job == job {
			return b
		}
	}
	return nil
}

// told says whether the records of all jobs on n that are given back say why.
func (e *Engine) told(n *node) bool {
	return !slices.ContainsFunc(e.backs, func(b *back) bool { return !b.told && b.isOn(n) })
}

// isOn says that the job may be on n: it waited for it, or its gate named it.
func (b *back) isOn(n *node) bool {
	return slices.Contains(b.nodes, n.name) || slices.Contains(n.gatedBy, b.job)
}

// leaving names the jobs that are given back and have waited for n: also those that left it to others.
func (e *Engine) leaving(n *node) (jobs []uint32) {
	for _, b := range e.backs {
		if slices.Contains(b.nodes, n.name) {
			jobs = append(jobs, b.job)
		}
	}
	return jobs
}

// freed notes that slurmctld has taken all jobs off a node. Those that have left it before may have started anew.
func (e *Engine) freed(n *node) {
	for _, b := range e.backs {
		if !b.freed && slices.Contains(b.nodes, n.name) {
			b.freed, b.tries = true, 0
			b.freedAt = e.now
			e.loses(b.job, backReason(b.job, n.name, b.verdict))
		}
	}
}

// stay sees to the jobs that are given back for which n has come up before slurmctld could be told: that takes them off another node. It
// forgets those for which everything else has come up, too: when they start again, that is another matter.
func (e *Engine) stay(n *node) {
	for _, b := range slices.Clone(e.backs) {
		if slices.Contains(b.nodes, n.name) {
			e.takeOff(b)
		}
	}
	e.backs = slices.DeleteFunc(e.backs, func(b *back) bool {
		return b.told && !b.freed && slices.Contains(b.nodes, n.name) && !slices.ContainsFunc(b.nodes, func(name string) bool {
			m := e.nodes[name]
			return m.boot != nil || m.forces > 0
		})
	})
}

// takeOff gives back one of the nodes that the job has left to boot on, when none is given back any more: slurmctld has it on them still.
func (e *Engine) takeOff(b *back) {
	if b.freed {
		return
	}
	var other *node
	for _, name := range b.nodes {
		switch n := e.nodes[name]; {
		case n.forces > 0, n.boot != nil && n.boot.release != nil:
			return
		case n.boot == nil, n.set == "", n.drainedByPeople():
		case !slices.ContainsFunc(n.jobs, func(id uint32) bool { return e.backOf(id) == nil }):
			other = n
		}
	}
	if other != nil {
		e.release(other, b.verdict, backReason(b.job, "", b.verdict), append(slices.Clone(other.jobs), b.job))
	}
}

// askBacks asks for what is due for the jobs given back.
func (e *Engine) askBacks() {
	if e.reads.failures > 0 {
		for _, b := range e.backs {
			b.until = e.now.Add(backMost)
		}
	}
	e.backs = slices.DeleteFunc(e.backs, func(b *back) bool {
		over := !b.until.After(e.now)
		e.tellAgain = e.tellAgain || over
		return over
	})
	for _, b := range e.backs {
		if b.asking > 0 || b.retryAt.After(e.now) || b.told && !b.freed {
			continue
		}
		if b.notified && !b.told {
			e.hasTold(b)
			continue
		}
		e.serial++
		b.asking = e.serial
		if !b.told {
			e.do(TellJob{Job: b.job, Serial: b.asking, Reason: ReasonPrefix + b.verdict.String(), Taken: b.freed})
			continue
		}
		e.do(HoldJob{Job: b.job, Serial: b.asking, Request: b.request, Delay: max(e.holdFor(b), b.notBefore.Sub(e.now))})
	}
}

// next is when askBacks has something to do for the job.
func (b *back) next() time.Time {
	if b.asking > 0 || b.told && !b.freed {
		return b.until
	}
	return b.retryAt
}

// holdFor is how long a job is to rest, the longer the more often it was given back: what its record says of that outlives us.
func (e *Engine) holdFor(b *back) time.Duration {
	return max(holdFirst, restAfter(b.job, max(b.times, e.givenBack[b.job]+1))-b.rested)
}

func (e *Engine) jobTold(ev JobTold) {
	b := e.backOf(ev.Job)
	if b == nil || b.asking != ev.Serial { // it is of a start before this one
		return
	}
	e.partsTold(b, ev.Parts)
	b.asking, b.times = 0, max(b.times, ev.Times)
	b.tries++
	for _, id := range e.hets.of(b.job) { // they start as one
		if o := e.backOf(id); o != nil {
			o.attempt = cmp.Or(o.attempt, ev.Attempt)
		}
	}
	if ev.Err != "" {
		if e.toldInVain(b) {
			return
		}
		e.note(Warn, nil, "", fmt.Sprintf("telling job %d why it is given back failed: %s", ev.Job, ev.Err))
	}
	if ev.Interactive && e.notifyUser(ev.Job, b.verdict.String()) {
		b.notified, b.retryAt = true, e.now.Add(notifyTime)
		return
	}
	e.hasTold(b)
}

// toldInVain takes in that the job could not be told, and says whether it is to be told once more: up to tellTries times while Slurm can be
// read, and until a read shows that it answers otherwise. Nothing is taken from the job before that.
func (e *Engine) toldInVain(b *back) bool {
	if e.reads.failures > 0 {
		b.tries, b.failedAt, b.retryAt = 0, time.Time{}, e.now.Add(tellMost)
		e.reads.want(e.now)
		return true
	}
	if b.failedAt.IsZero() {
		b.failedAt = e.now
	}
	switch answers := e.reads.ended.After(b.failedAt); {
	case b.tries < tellTries:
		b.retryAt = e.now.Add(min(pause(b.tries), tellMost))
	case !answers:
		b.retryAt = e.now.Add(retryFirst)
	default:
		return false
	}
	e.reads.wantComplete(e.now) // nothing else may ask for one
	return true
}

// hasTold lets the releases go on that waited for the job to be told.
func (e *Engine) hasTold(b *back) {
	b.told, e.tellAgain = true, true
	for _, n := range slices.Clone(e.compactActive()) {
		if n.boot != nil && n.boot.release != nil && b.isOn(n) {
			e.decide(n)
		}
	}
}

func (e *Engine) jobHeld(ev JobHeld) {
	b := e.backOf(ev.Job)
	if b == nil || b.asking != ev.Serial {
		return
	}
	b.asking = 0
	if ev.Err != "" {
		b.tries++
		b.retryAt = e.now.Add(min(pause(b.tries), tellMost))
		return
	}
	if ev.Again { // whatever comes of that is another matter
		e.backs = slices.DeleteFunc(e.backs, func(o *back) bool { return o == b })
		e.rememberAgain()
		e.joinGates()
		return
	}
	if len(e.givenBack) >= manyJobs {
		clear(e.givenBack)
	}
	e.givenBack[ev.Job]++
	if !e.found.done {
		if len(e.found.held) == 0 || len(e.found.held) >= manyJobs {
			e.found.held = map[uint32]bool{}
		}
		e.found.held[ev.Job] = true
	}
	e.backs = slices.DeleteFunc(e.backs, func(o *back) bool { return o == b })
}

// backoff doubles from first with every failure up to most, and spreads what failed together by a fifth either way.
func backoff(first, most time.Duration, failures int, seed uint64) time.Duration {
	d := min(first<<min(failures, 20), most)
	h := fnv.New64a()
	fmt.Fprint(h, seed, failures)
	spread := float64(h.Sum64()%1000)/1000*0.4 - 0.2
	return max(first, min(most, d+time.Duration(spread*float64(d))))
}
