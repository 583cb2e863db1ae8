package powersave

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// RoomRequest asks the cluster's autoscaler to make room for all pods of a job before they
// exist (spec.boot.provisioningRequest). Job and Attempt identify it.
type RoomRequest struct {
	Job     uint32
	Attempt int64 // grows with every request for the same job
	Sets    []RoomSet
}

// RoomSet is a number of equal pods.
type RoomSet struct {
	NodeSet, Offering string
	Pods              int
}

// RoomState says how far a RoomRequest is.
type RoomState string

// States of a RoomRequest. The autoscaler goes on trying while it is pending or accepted.
const (
	RoomPending     RoomState = "pending"     // no autoscaler has taken it up
	RoomAccepted    RoomState = "accepted"    // an autoscaler works on it
	RoomProvisioned RoomState = "provisioned" // there is room, and it is kept for some minutes
	RoomFailed      RoomState = "failed"      // there will be none
	RoomExpired     RoomState = "expired"     // it is not kept any longer; pods that have hosts stay there
	RoomRevoked     RoomState = "revoked"     // it was taken away
)

// Room is what has become of a RoomRequest.
type Room struct {
	Name    string // for CreatePod
	Job     uint32
	Attempt int64
	State   RoomState
	// Refused says that the autoscaler has found no room, or not for all, though it may go on trying.
	Refused bool
	Message string // the autoscaler's words
	Created time.Time
}

// AskRoom carries out a RoomRequest. Answered by RoomAsked.
type AskRoom struct{ Request RoomRequest }

// RoomAsked answers AskRoom; an empty Err means that the request of that Name exists.
type RoomAsked struct {
	Job     uint32
	Attempt int64
	Name    string
	Trouble Trouble
	// OfJob: it is the job that asks for what cannot be asked for; nothing is wrong with its NodeSets.
	OfJob bool
	Err   string
}

// ReadRooms asks what has become of all requests. At most one is under way. Answered by RoomsRead.
type ReadRooms struct{}

// RoomsRead answers ReadRooms: all requests of the cluster, or why they cannot be read.
type RoomsRead struct {
	Rooms   []Room
	Trouble Trouble
	Err     string
}

// DropRoom asks for a request to go. Answered by RoomDropped.
type DropRoom struct{ Name string }

// RoomDropped answers DropRoom; an empty Err means that it is gone.
type RoomDropped struct{ Name, Err string }

func (AskRoom) action()    {}
func (RoomAsked) event()   {}
func (ReadRooms) action()  {}
func (RoomsRead) event()   {}
func (DropRoom) action()   {}
func (RoomDropped) event() {}

const (
	roomPoll = 2 * time.Second // while an autoscaler works for us
	// roomStray is how long a request that no job of ours waits for is left alone: it may be another bridge's.
	roomStray     = 30 * time.Minute
	roomStrayPoll = 5 * time.Minute
)

// rooms holds the requests of the jobs that wait for one.
type rooms struct {
	used     bool // a NodeSet asks for room
	jobs     map[uint32]*room
	attempts map[uint32]int64 // the newest: a name must not be used again while its request is being dropped
	read     bool             // once; before, an earlier bridge may have asked already
	reading  bool
	count    int       // reads asked for
	readAt   time.Time // when to read again; zero: not needed
	problem  string    // why they cannot be read
	trouble  Trouble
	strays   map[string]time.Time // first seen
	dropping map[string]bool
}

// room is the newest request of one job.
type room struct {
	Room
	nodes   map[string]string // those it counts, with the offering of each; nil: an earlier bridge asked
	served  map[string]bool   // those whose pod has been made
	until   time.Time         // deadline of its job when it was made
	former  []string          // requests before it, whose pods may still wait for their hosts
	spent   bool              // its failure has been acted on
	named   int               // reads asked for when it got its name: only later ones can miss it
	asking  bool
	tries   int
	retryAt time.Time
	problem string
	trouble Trouble
}

// over says that the request has brought nothing and never will.
func (r *room) over() bool { return r.State == RoomFailed || r.State == RoomRevoked }

// roomFor names the Room that the pod of the boot in hand of n is to use, "" for none. Not ok: there is none yet, or never
// will be, and no pod is to be made now.
func (e *Engine) roomFor(n *node) (name string, ok bool) {
	b := n.boot
	switch {
	case !e.sets[n.set].AskForRoom, len(n.jobs) == 0:
		return "", true
	case b.room != "": // its share is used: the next pod is one like any other
		return "", true
	case !e.rooms.read:
		b.waits, b.problem, b.createTrouble = "reading ProvisioningRequests", e.rooms.problem, e.rooms.trouble
		return "", false
	}
	r, asked := e.roomOf(n)
	switch {
	case !asked:
		return "", false
	case r == nil:
		return "", true
	case r.problem != "":
		return "", e.roomProblem(n, r)
	case r.over():
		r.spent = true
		v := Verdict{Trouble: TroubleCapacity, Reason: "ProvisioningRequest " + r.Name + " " + string(r.State) + ": " + cmp.Or(r.Message, "no reason given")}
		e.condemn(n, v)
		return "", false
	case r.State == RoomProvisioned:
		if b.tries == 0 {
			b.problem, b.createTrouble = "", TroubleNone
		}
		return r.Name, true
	}
	b.problem, b.createTrouble = "", TroubleNone
	b.waits = "waiting for room"
	if r.Name != "" {
		b.waits = "waiting for ProvisioningRequest " + r.Name
	}
	if r.Message != "" {
		b.waits += ": " + r.Message
	}
	if r.Refused { // as the scheduler says it of a pod
		b.problem, b.createTrouble = b.waits, TroubleCapacity
	}
	return "", false
}

// roomProblem deals with a request that could not be made. It is never ok.
func (e *Engine) roomProblem(n *node, r *room) (ok bool) {
	n.boot.problem, n.boot.createTrouble = r.problem, r.trouble
	switch {
	case r.asking:
	case r.retryAt.After(e.now):
		e.wakeAt(n, r.retryAt)
	default:
		e.sendRoom(r)
	}
	return false
}

// roomOf is the request that counts n, asked for if there is none; nil without one: n came after it. Not asked: it has to
// wait until all pods of the job have a place to go.
func (e *Engine) roomOf(n *node) (r *room, asked bool) {
	b := n.boot
	r = e.rooms.jobs[n.jobs[0]]
	switch {
	case r == nil, r.over() && (r.spent || r.nodes == nil), r.State == RoomExpired:
		return e.askRoom(n, r)
	case r.nodes == nil:
		return r, true
	}
	offering, counted := r.nodes[n.name]
	switch {
	case counted && b.roomAttempt < r.Attempt: // the request has said where it goes
		b.roomAttempt = r.Attempt
		if b.attempt.Offering != offering {
			e.breakers.ProbeGone(*b.attempt)
			b.attempt = &Attempt{NodeSet: n.set, Offering: offering, Spec: e.sets[n.set].SpecGeneration}
			e.counted = nil
		}
	case counted && b.attempt.Offering != offering, !counted && !e.awaited(r): // it has moved on; they belong to an earlier start of the job
		return e.askRoom(n, r)
	case !counted:
		return nil, true // an autoscaler helps its pod like any other
	}
	return r, true
}

// useRoom notes that the pod about to be made takes its share of a request.
func (e *Engine) useRoom(n *node, name string) {
	n.boot.room = name
	if r := e.rooms.jobs[n.jobs[0]]; r.nodes != nil {
		if r.served == nil {
			r.served = map[string]bool{}
		}
		r.served[n.name] = true
	}
}

// awaited says whether a boot in hand waits for the request.
func (e *Engine) awaited(r *room) bool {
	for name := range r.nodes {
		if n := e.nodes[name]; n.boot != nil && n.boot.room == "" && n.boot.release == nil && len(n.jobs) > 0 && n.jobs[0] == r.Job {
			return true
		}
	}
	return false
}

// askRoom asks for room for all pods of the first job of n that are still to be made, in place of the last request.
func (e *Engine) askRoom(n *node, last *room) (r *room, asked bool) {
	job := n.jobs[0]
	nodes, fits := e.roomNodes(n, last)
	if !fits {
		n.boot.waits = "waiting for a place for all nodes of the job"
		e.wakeAt(n, e.now.Add(time.Second))
		return nil, false
	}
	r = &room{Room: Room{Job: job, Attempt: max(n.boot.generation, e.rooms.attempts[job]+1), State: RoomPending}, nodes: nodes}
	if g := e.gangs[job]; g != nil {
		r.until = g.deadline
	}
	if last != nil {
		r.former = last.former
		if last.State == RoomProvisioned || last.State == RoomExpired {
			r.former = append(r.former, last.Name)
		} else {
			e.dropRoom(last.Name)
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
	r.asking = true
	q := RoomRequest{Job: r.Job, Attempt: r.Attempt}
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		set := RoomSet{NodeSet: e.nodes[name].set, Offering: r.nodes[name]}
		i := slices.IndexFunc(q.Sets, func(s RoomSet) bool { return s.NodeSet == set.NodeSet && s.Offering == set.Offering })
		if i < 0 {
			i, q.Sets = len(q.Sets), append(q.Sets, set)
		}
		q.Sets[i].Pods++
	}
	e.do(AskRoom{q})
}

// roomNodes are the nodes whose pods the first job of n needs still, also those that slurmctld has yet to power up for it, each
// with its offering: the one chosen already, unless the last request came to nothing there, or what the breakers would
// say now. Not all fit if an offering's limit leaves no place.
func (e *Engine) roomNodes(n *node, last *room) (nodes map[string]string, fits bool) {
	g, job := e.gangs[n.jobs[0]], n.jobs[0]
	names := slices.Clone(g.nodes)
	for name := range g.whole.All() {
		if m := e.nodes[name]; m != nil && m.boot == nil {
			names = append(names, name)
		}
	}
	nodes = map[string]string{n.name: n.boot.attempt.Offering}
	inUse := map[string]map[string]int{}
	for _, name := range names {
		m := e.nodes[name]
		if m == n || !e.sets[m.set].AskForRoom {
			continue
		}
		if b := m.boot; b == nil {
			if m.off != nil || m.pod != nil || m.read == 0 || !m.slurm.State.Any(NodePoweredDown) {
				continue // up, or nobody knows
			}
		} else {
			stays := m.pod != nil && m.pod.Phase != PodTerminating && m.pod.Phase != PodFailed && !b.moving && m.pod.Generation >= b.generation
			if stays || b.release != nil || b.room != "" || len(m.jobs) == 0 || m.jobs[0] != job {
				continue // it needs none, or another job asks for it
			}
			if a := b.attempt; a != nil && (last == nil || !last.over() && !last.Refused || last.nodes[name] != a.Offering) {
				nodes[name] = a.Offering
				continue
			}
		}
		if inUse[m.set] == nil {
			inUse[m.set] = maps.Clone(e.inUse(m.set))
		}
		c := e.breakers.Look(e.now, e.sets[m.set], inUse[m.set])
		offering := c.Offering
		switch {
		case c.OK:
		case m.set == n.set && n.boot.attempt.Probe() && e.below(m.set, n.boot.attempt.Offering, inUse[m.set]):
			offering = n.boot.attempt.Offering // the others follow the probe
		default:
			return nil, false
		}
		if inUse[m.set] != nil {
			inUse[m.set][offering]++
		}
		nodes[name] = offering
	}
	return nodes, true
}

// below says whether the offering's limit leaves a place.
func (e *Engine) below(set, offering string, inUse map[string]int) bool {
	return !slices.ContainsFunc(e.sets[set].Offerings, func(o Offering) bool { return o.Name == offering && o.Limit > 0 && inUse[offering] >= o.Limit })
}

func (e *Engine) roomAsked(ev RoomAsked) {
	r := e.rooms.jobs[ev.Job]
	if r == nil || r.Attempt != ev.Attempt {
		if ev.Err == "" { // its job has gone meanwhile
			e.dropRoom(ev.Name)
		}
		return
	}
	r.asking = false
	switch {
	case ev.Err == "":
		r.Name, r.named, r.problem, r.trouble = ev.Name, e.rooms.count, "", TroubleNone
		e.wantRooms(e.now)
	case ev.OfJob:
		e.refuseRoom(r, ev.Err)
		return
	default:
		r.problem, r.trouble = ev.Err, ev.Trouble
		r.retryAt = e.now.Add(pause(r.tries))
		r.tries++
	}
	e.decideGang(ev.Job)
}

// refuseRoom gives back a job that no request can be made for. Nothing else suffers for it.
func (e *Engine) refuseRoom(r *room, err string) {
	g := e.gangs[r.Job]
	if g == nil {
		return
	}
	for _, name := range g.nodes {
		n := e.nodes[name]
		if _, counted := r.nodes[name]; !counted || n.boot.release != nil || n.pod != nil {
			continue
		}
		if n.boot.attempt != nil {
			e.breakers.ProbeGone(*n.boot.attempt)
		}
		n.boot.attempt, n.boot.blamed = nil, true
		e.giveBack(n, []uint32{r.Job}, Verdict{Trouble: TroubleConfig, Reason: err})
		return
	}
}

func (e *Engine) roomsRead(ev RoomsRead) {
	e.rooms.reading = false
	jobs := slices.Sorted(maps.Keys(e.gangs))
	before := e.rooms.problem
	if e.rooms.problem, e.rooms.trouble = ev.Err, ev.Trouble; ev.Err != "" {
		if ev.Err != before {
			e.note(Warn, nil, "", "reading ProvisioningRequests failed: "+ev.Err)
		}
		e.wantRooms(e.now.Add(e.cfg.PollWait))
		if !e.rooms.read {
			e.decideGangs(jobs)
		}
		return
	}
	first := !e.rooms.read
	e.rooms.read = true
	if first {
		e.adoptRooms(ev.Rooms)
	}
	listed := map[string]bool{}
	strays := map[string]time.Time{}
	for _, seen := range ev.Rooms {
		listed[seen.Name] = true
		r := e.rooms.jobs[seen.Job]
		switch {
		case r != nil && r.Name == seen.Name:
			r.Room = seen
		case r != nil && slices.Contains(r.former, seen.Name):
		default:
			since, known := e.rooms.strays[seen.Name]
			if !known {
				since = e.now
			}
			if strays[seen.Name] = since; e.leading && e.now.Sub(since) >= roomStray {
				e.dropRoom(seen.Name)
			}
		}
	}
	e.rooms.strays = strays
	for _, job := range slices.Sorted(maps.Keys(e.rooms.jobs)) {
		if r := e.rooms.jobs[job]; r.Name != "" && !listed[r.Name] && e.rooms.count > r.named {
			delete(e.rooms.jobs, job) // somebody deleted it: it is asked for again if a pod is still to be made
		}
	}
	e.decideGangs(jobs)
}

// adoptRooms takes over what an earlier bridge has asked for: the newest request of each job that waits.
func (e *Engine) adoptRooms(all []Room) {
	for _, seen := range all {
		if e.gangs[seen.Job] == nil || seen.Attempt <= e.rooms.attempts[seen.Job] {
			continue
		}
		if e.rooms.jobs == nil {
			e.rooms.jobs, e.rooms.attempts = map[uint32]*room{}, map[uint32]int64{}
		}
		r := &room{Room: seen, until: e.gangs[seen.Job].deadline}
		if last := e.rooms.jobs[seen.Job]; last != nil {
			r.former = append(last.former, last.Name)
		}
		e.rooms.jobs[seen.Job], e.rooms.attempts[seen.Job] = r, seen.Attempt
	}
}

func (e *Engine) decideGangs(jobs []uint32) {
	for _, job := range jobs {
		e.decideGang(job)
	}
}

// decideGang decides on those nodes of NodeSets that ask for room that the job waits for.
func (e *Engine) decideGang(job uint32) {
	g := e.gangs[job]
	if g == nil {
		return
	}
	for _, name := range slices.Clone(g.nodes) {
		if n := e.nodes[name]; e.sets[n.set].AskForRoom {
			e.decide(n)
		}
	}
}

// roomKept says whether an autoscaler has made room for the pod of n: its host is on its way. That the request has expired
// only means that nobody else can have it.
func (e *Engine) roomKept(n *node) bool {
	if n.pod.Room == "" {
		return false
	}
	for _, r := range e.rooms.jobs {
		if r.Name == n.pod.Room {
			return !r.over()
		}
	}
	return true
}

func (e *Engine) dropRoom(name string) {
	if name == "" || e.rooms.dropping[name] {
		return
	}
	if e.rooms.dropping == nil {
		e.rooms.dropping = map[string]bool{}
	}
	e.rooms.dropping[name] = true
	e.do(DropRoom{Name: name})
}

func (e *Engine) roomDropped(ev RoomDropped) {
	delete(e.rooms.dropping, ev.Name)
	if ev.Err != "" { // it is seen again as one that nobody waits for
		e.note(Warn, nil, "", ev.Err)
	}
}

func (e *Engine) wantRooms(t time.Time) {
	if e.rooms.readAt.IsZero() || t.Before(e.rooms.readAt) {
		e.rooms.readAt = t
	}
}

// roomsDue is when planRooms has something to do, for NextWake.
func (e *Engine) roomsDue() time.Time {
	if e.rooms.reading {
		return time.Time{}
	}
	return e.rooms.readAt
}

// planRooms drops the requests of jobs that wait no longer, and reads the others.
func (e *Engine) planRooms() {
	for _, job := range slices.Sorted(maps.Keys(e.rooms.jobs)) {
		r := e.rooms.jobs[job]
		if e.gangs[job] != nil || e.expected(r) {
			continue
		}
		delete(e.rooms.jobs, job)
		for _, name := range append(r.former, r.Name) {
			e.dropRoom(name)
		}
	}
	if e.rooms.reading {
		return
	}
	switch {
	case e.rooms.used && !e.rooms.read && e.rooms.problem == "":
		e.wantRooms(e.now)
	case len(e.rooms.jobs) > 0:
		e.wantRooms(e.now.Add(roomPoll))
	case e.rooms.readAt.IsZero() && (e.rooms.used || len(e.rooms.strays) > 0):
		e.wantRooms(e.now.Add(roomStrayPoll))
	}
	if e.rooms.readAt.IsZero() || e.rooms.readAt.After(e.now) {
		return
	}
	e.rooms.reading, e.rooms.readAt = true, time.Time{}
	e.rooms.count++
	e.do(ReadRooms{})
}

// expected says whether ResumeRate may still hold back a node that the request counts.
func (e *Engine) expected(r *room) bool {
	if !r.until.After(e.now) || r.over() {
		return false
	}
	for name := range r.nodes {
		if !r.served[name] && e.nodes[name].boot == nil && e.nodes[name].slurm.State.Any(NodePoweredDown) {
			return true
		}
	}
	return false
}
