package powersave

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// room is the newest request of one job.
type room struct {
	Room
	nodes   map[string]string // those it counts, with the offering of each; nil: an earlier bridge asked
	served  map[string]bool   // those whose pod has been made
	until   time.Time         // deadline of its job when it was made
	read    int               // reads asked for by then
	former  []string          // requests before it, whose pods may still wait for their hosts
	lost    []int64           // attempts before it, for fewer nodes, that failed as far as is known
	spent   bool              // its failure has been acted on
	named   int               // reads asked for when it got its name: only later ones can miss it
	asking  bool
	tries   int
	retryAt time.Time
	problem roomProblem
}

// roomProblem is why requests cannot be made, or read.
type roomProblem struct {
	text       string // "": they can
	trouble    Trouble
	everywhere bool // no change of a NodeSet can mend it
}

// hold has the boot wait for what the problem says, if there is one: one that is everywhere is as if its pod could not be made.
func (p roomProblem) hold(b *boot) {
	b.problem, b.createTrouble, b.alone, b.everywhere = p.text, p.trouble, p.everywhere, p.everywhere
	if p.everywhere {
		b.createTrouble = TroubleConfig
	}
}

// over says that the request has brought nothing and never will.
func (r *room) over() bool { return r.State == RoomFailed || r.State == RoomRevoked }

// roomFor names the Room that the pod of the boot in hand of n is to use, "" for none. Not ok: there is none yet, or never
// will be, and no pod is to be made now.
func (e *Engine) roomFor(n *node) (name string, ok bool) {
	b := n.boot
	e.leaveIdle(n)
	switch {
	case !e.sets[n.set].AskForRoom, len(n.jobs) == 0:
		return "", true
	case b.room != "": // its share is used: the next pod is one like any other
		return "", true
	case !e.rooms.read:
		b.waits = "reading ProvisioningRequests"
		e.rooms.problem.hold(b)
		return "", false
	}
	r, asked := e.roomOf(n)
	switch {
	case !asked:
		roomProblem{}.hold(b) // none of the last request
		return "", false
	case r == nil:
		return "", true
	case r.problem.text != "":
		e.askOnceMore(n, r)
		return "", false
	case r.over():
		r.spent = true
		v := Verdict{Trouble: TroubleCapacity, Reason: "ProvisioningRequest " + r.Name + " " + string(r.State) + ": " + cmp.Or(r.Message, "no reason given")}
		e.condemn(n, v)
		return "", false
	case r.State == RoomProvisioned:
		if b.tries == 0 {
			roomProblem{}.hold(b)
		}
		return r.Name, true
	}
	roomProblem{}.hold(b)
	b.waits = "waiting for room"
	if r.Name != "" {
		b.waits = "waiting for ProvisioningRequest " + r.Name
	}
	if r.Message != "" {
		b.waits += ": " + r.Message
	}
	switch {
	case e.rooms.problem.everywhere: // nobody can tell what becomes of it
		e.rooms.problem.hold(b)
	case r.Refused: // as the scheduler says it of a pod
		b.problem, b.createTrouble = b.waits, TroubleCapacity
	}
	return "", false
}

// askOnceMore deals with a request that could not be made.
func (e *Engine) askOnceMore(n *node, r *room) {
	r.problem.hold(n.boot)
	switch {
	case r.asking:
	case r.retryAt.After(e.now):
		e.wakeAt(n, r.retryAt)
	default:
		e.strike(r)
		e.sendRoom(r)
	}
}

// strike takes from a request that could not be made what its job needs no longer, as when it has started anew on other nodes. The next
// try has another name: the last one may have been made all the same.
func (e *Engine) strike(r *room) {
	wants := func(n *node) bool {
		if n.boot != nil {
			return len(n.jobs) > 0 && e.roomJob(n) == r.Job
		}
		if n.pod != nil { // it is up
			return false
		}
		return slices.ContainsFunc(e.roomGangs(r.Job), func(g *gang) bool { return g.whole.Contains(n.name) }) ||
			slices.ContainsFunc(e.gates, func(g *gate) bool { return slices.Contains(e.hets.of(r.Job), g.job) && slices.Contains(g.nodes, n) })
	}
	before := len(r.nodes)
	maps.DeleteFunc(r.nodes, func(name, _ string) bool { return !wants(e.nodes[name]) })
	if len(r.nodes) < before {
		e.rename(r)
	}
}

// rename has the next try to make a request go by another name.
func (e *Engine) rename(r *room) {
	r.lost = append(r.lost, r.Attempt)
	r.Attempt++
	e.rooms.attempts[r.Job] = r.Attempt
}

// roomOf is the request that counts n, asked for if there is none; nil without one: n came after it. Not asked: it has to
// wait until all pods of the job have a place to go.
func (e *Engine) roomOf(n *node) (r *room, asked bool) {
	b := n.boot
	r = e.rooms.jobs[e.roomJob(n)]
	switch {
	case r == nil, r.over() && (r.spent || r.nodes == nil), r.State == RoomExpired:
		return e.askRoom(n, r)
	case r.served[n.name]: // its share is used; it has been elsewhere since, or boots anew
		return e.askRoom(n, r)
	case r.nodes == nil:
		return r, true
	}
	offering, counted := r.nodes[n.name]
	switch {
	case counted && b.roomAttempt < r.Attempt: // the request has said where it goes
		if b.attempt.Offering != offering && !e.below(n.set, offering, e.use(n.set)) { // its place has been taken meanwhile
			return e.askRoom(n, r)
		}
		b.roomAttempt = r.Attempt
		if b.attempt.Offering != offering {
			e.breakers.ProbeGone(*b.attempt)
			b.attempt = new(e.sets[n.set].Attempt(offering))
			e.counted = nil
		}
	case counted && b.attempt.Offering != offering, !counted && !e.awaited(r): // it has moved on; they belong to an earlier start of the job
		return e.askRoom(n, r)
	case !counted && r.Name == "" && !r.asking: // asking has failed, as far as is known: the next try, by another name, counts it
		e.rename(r)
		r.nodes[n.name], b.roomAttempt = b.attempt.Offering, r.Attempt
	case !counted && r.Name == "":
		b.waits = "waiting for room"
		return nil, false
	case !counted:
		return nil, true // an autoscaler helps its pod like any other
	}
	return r, true
}

// useRoom notes that the pod about to be made takes its share of a request.
func (e *Engine) useRoom(n *node, name string) {
	n.boot.room = name
	e.serve(n)
}

// unuseRoom notes that the pod was not made after all.
func (e *Engine) unuseRoom(n *node) {
	if r := e.usedRoom(n); r != nil {
		delete(r.served, n.name)
	}
	n.boot.room = ""
}

// serve notes that the request whose share the boot in hand of n has used has no other for n.
func (e *Engine) serve(n *node) {
	if r := e.usedRoom(n); r != nil {
		if r.served == nil {
			r.served = map[string]bool{}
		}
		r.served[n.name] = true
	}
}

// usedRoom is the request whose share the boot in hand of n has used, nil without one.
func (e *Engine) usedRoom(n *node) *room {
	if len(n.jobs) == 0 || n.boot.room == "" {
		return nil
	}
	if r := e.rooms.jobs[e.roomJob(n)]; r != nil && r.Name == n.boot.room {
		return r
	}
	return nil
}

// awaited says whether a boot in hand waits for the request.
func (e *Engine) awaited(r *room) bool {
	for name := range r.nodes {
		if n := e.nodes[name]; n.boot != nil && n.boot.room == "" && n.boot.release == nil && len(n.jobs) > 0 && e.roomJob(n) == r.Job {
			return true
		}
	}
	return false
}

// askRoom asks for room for all pods of the first job of n that are still to be made, in place of the last request.
func (e *Engine) askRoom(n *node, last *room) (r *room, asked bool) {
	job := e.roomJob(n)
	nodes, refused := e.roomNodes(n)
	if refused != nil {
		n.boot.waits = "waiting for a place for all nodes of the job"
		e.breakers.ProbeGone(*n.boot.attempt) // others may fit meanwhile
		n.boot.attempt, e.counted = nil, nil
		e.wakeAt(n, e.now.Add(time.Second))
		if !e.worthWaiting(*refused, e.choices(refused.NodeSet, n.jobs)) && e.mayGiveBack(n) {
			e.giveBack(n, slices.Clone(n.jobs), refused.verdict())
		}
		return nil, false
	}
	r = &room{Room: Room{Job: job, Attempt: max(n.boot.generation, e.rooms.attempts[job]+1), State: RoomPending}, nodes: nodes, read: e.reads.count}
	for _, id := range e.hets.of(job) {
		if g := e.gangs[id]; g != nil {
			r.until = later(r.until, g.deadline)
		}
	}
	if last != nil {
		r.former = last.former
		if last.State == RoomProvisioned || last.State == RoomExpired {
			r.former = append(r.former, last.Name)
		} else {
			e.dropRoom(last.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.rooms.strays)) {
		if s := e.rooms.strays[name]; e.leading && s.job == job && s.since.Before(n.boot.accepted) {
			e.dropRoom(name) // of a start before this one, which an earlier bridge has not seen to its end
		}
	}
	if e.rooms.jobs == nil {
		e.rooms.jobs = map[uint32]*room{}
	}
	if e.rooms.attempts == nil || len(e.rooms.attempts) > manyJobs {
		e.rooms.attempts = map[uint32]int64{}
	}
	e.rooms.jobs[job], e.rooms.attempts[job], n.boot.roomAttempt = r, r.Attempt, r.Attempt
	e.sendRoom(r)
	return r, true
}

func (e *Engine) sendRoom(r *room) {
	q := RoomRequest{Job: r.Job, Attempt: r.Attempt}
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		set := RoomSet{NodeSet: e.nodes[name].set, Offering: r.nodes[name]}
		if !e.sets[set.NodeSet].AskForRoom { // any longer
			delete(r.nodes, name)
			continue
		}
		i := slices.IndexFunc(q.Sets, func(s RoomSet) bool { return s.NodeSet == set.NodeSet && s.Offering == set.Offering })
		if i < 0 {
			i, q.Sets = len(q.Sets), append(q.Sets, set)
		}
		q.Sets[i].Pods++
	}
	if len(q.Sets) == 0 {
		delete(e.rooms.jobs, r.Job)
		return
	}
	r.asking = true
	e.do(AskRoom{q})
}

// roomNodes are the nodes whose pods the first job of n needs still, also those that slurmctld has yet to power up for it, each
// with its offering: the one chosen already, unless the job was denied it, or what the breakers would
// say now. Not all fit if an offering's limit leaves no place: refused says why.
func (e *Engine) roomNodes(n *node) (nodes map[string]string, refused *Choice) {
	job := e.roomJob(n)
	nodes = map[string]string{n.name: n.boot.attempt.Offering}
	use := map[string]Use{}
	noted := 0 // when it was last noted which nodes those are
	for _, g := range e.roomGangs(job) {
		noted = max(noted, g.read)
	}
	for _, m := range e.roomMembers(n) {
		name := m.name
		if b := m.boot; b == nil {
			switch {
			case m.off != nil, m.pod != nil, m.read == 0, !m.slurm.State.Any(NodePoweredDown):
				continue // up, or nobody knows
			case m.readSince(noted) && m.slurm.State.Any(NodeIdle):
				continue // the job has it no longer
			}
		} else {
			if m.readSince(b.read) && m.slurm.State.Any(NodeIdle) {
				continue // the job has left it, as when it has started anew on other nodes
			}
			stays := m.pod != nil && m.pod.Phase != PodTerminating && m.pod.Phase != PodFailed && !b.moving && !m.outdated()
			if stays || b.release != nil || b.room != "" || len(m.jobs) == 0 || e.roomJob(m) != job {
				continue // it needs none, or another job asks for it
			}
			if a := b.attempt; a != nil && !e.denied(n.jobs[0], BreakerKey{m.set, a.Offering}) {
				nodes[name] = a.Offering
				continue
			}
		}
		if use[m.set] == nil {
			use[m.set] = maps.Clone(e.use(m.set))
		}
		c := e.breakers.Look(e.now, e.choices(m.set, n.jobs), use[m.set])
		offering := c.Offering
		switch {
		case c.OK:
		case m.set == n.set && n.boot.attempt.Probe() && e.below(m.set, n.boot.attempt.Offering, use[m.set]):
			offering = n.boot.attempt.Offering // the others follow the probe
		default:
			return nil, &c
		}
		use[m.set].Add(offering, false)
		nodes[name] = offering
	}
	return nodes, nil
}

func (e *Engine) roomAsked(ev RoomAsked) {
	r := e.rooms.jobs[ev.Job]
	if r == nil || r.Attempt != ev.Attempt {
		if ev.Err == "" { // its job has gone meanwhile
			e.dropRoom(ev.Name)
		}
		return
	}
	if ev.Err != "" && !r.asking { // said twice
		return
	}
	r.asking = false
	switch {
	case ev.Err == "":
		r.Name, r.named, r.problem = ev.Name, e.rooms.count, roomProblem{}
		e.wantRooms(e.now)
	case ev.OfJob:
		e.refuseRoom(r, ev.Err)
		return
	default:
		r.problem = roomProblem{ev.Err, ev.Trouble, ev.Everywhere}
		r.retryAt = e.now.Add(pause(r.tries))
		r.tries++
	}
	e.decideGang(ev.Job)
}

// refuseRoom gives back a job that no request can be made for. Nothing else suffers for it.
func (e *Engine) refuseRoom(r *room, err string) {
	r.State, r.spent = RoomFailed, true // whoever needs room of the job after that asks anew
	for _, g := range e.roomGangs(r.Job) {
		for _, name := range g.nodes {
			n := e.nodes[name]
			if _, counted := r.nodes[name]; !counted || n.boot.release != nil || n.pod != nil {
				continue
			}
			if n.boot.attempt != nil {
				e.breakers.ProbeGone(*n.boot.attempt)
			}
			n.boot.attempt, n.boot.blamed = nil, true
			e.giveBack(n, []uint32{g.job}, Verdict{Trouble: TroubleConfig, Reason: err})
			e.decide(n) // it may be another job's as well
			return
		}
	}
}
