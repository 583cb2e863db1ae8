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
	Err     string
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
	read     bool // once; before, an earlier bridge may have asked already
	reading  bool
	asked    time.Time // when the newest read was asked for
	readAt   time.Time // when to read again; zero: not needed
	problem  string    // why they cannot be read
	trouble  Trouble
	strays   map[string]time.Time // first seen
	dropping map[string]bool
}

// room is the newest request of one job.
type room struct {
	Room
	sets    []RoomSet // nil: found, and not known what for
	named   time.Time // when it got its name
	asking  bool
	tries   int
	retryAt time.Time
	problem string // why it could not be asked for
	trouble Trouble
}

// roomFor names the Room that the pod of the boot in hand of n is to use, "" for none. Not ok: there is none yet, or never
// will be, and no pod is to be made now.
func (e *Engine) roomFor(n *node) (name string, ok bool) {
	b := n.boot
	if !e.sets[n.set].AskForRoom || len(n.jobs) == 0 {
		return "", true
	}
	if !e.rooms.read {
		b.waits, b.problem, b.createTrouble = "reading ProvisioningRequests", e.rooms.problem, e.rooms.trouble
		e.wantRooms(e.now)
		return "", false
	}
	r := e.rooms.jobs[n.jobs[0]]
	switch {
	case r == nil, r.State == RoomExpired, r.over() && (r.sets == nil || !r.covers(n.set, b.attempt.Offering)):
		r = e.askRoom(n, r)
	case r.over():
		e.condemn(n, Verdict{Trouble: TroubleCapacity, Reason: "ProvisioningRequest " + r.Name + " " + string(r.State) + ": " + cmp.Or(r.Message, "no reason given")})
		return "", false
	}
	switch {
	case r.problem != "":
		b.problem, b.createTrouble = r.problem, r.trouble
		switch {
		case r.asking:
		case r.retryAt.After(e.now):
			e.wakeAt(n, r.retryAt)
		default:
			e.sendRoom(r)
		}
		return "", false
	case r.State == RoomProvisioned:
		b.problem, b.createTrouble = "", TroubleNone
		if !r.covers(n.set, b.attempt.Offering) { // its offering was chosen after the request was made: an autoscaler helps it like any pod
			return "", true
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
	return "", false
}

// over says that the request has brought nothing and never will.
func (r *room) over() bool { return r.State == RoomFailed || r.State == RoomRevoked }

// covers says whether the request counts such pods.
func (r *room) covers(nodeSet, offering string) bool {
	return r.sets == nil || slices.ContainsFunc(r.sets, func(s RoomSet) bool { return s.NodeSet == nodeSet && s.Offering == offering })
}

// askRoom asks for room for all pods of the first job of n that are still to be made.
func (e *Engine) askRoom(n *node, last *room) *room {
	job := n.jobs[0]
	r := &room{Room: Room{Job: job, Attempt: n.boot.generation, State: RoomPending}, sets: e.roomSets(n, last)}
	if last != nil {
		r.Attempt = max(r.Attempt, last.Attempt+1)
		e.dropRoom(last.Name)
	}
	if e.rooms.jobs == nil {
		e.rooms.jobs = map[uint32]*room{}
	}
	e.rooms.jobs[job] = r
	e.sendRoom(r)
	return r
}

func (e *Engine) sendRoom(r *room) {
	r.asking = true
	e.do(AskRoom{RoomRequest{Job: r.Job, Attempt: r.Attempt, Sets: slices.Clone(r.sets)}})
}

// roomSets counts the pods that the first job of n needs still, also those of nodes that slurmctld has yet to power up for
// it. Where they will go is what the breakers would say now, unless it is chosen already, and not by the last request that
// came to nothing.
func (e *Engine) roomSets(n *node, last *room) (sets []RoomSet) {
	g := e.gangs[n.jobs[0]]
	names := slices.Values(g.nodes)
	if g.whole.Len() > 0 {
		names = g.whole.All()
	}
	inUse := map[string]map[string]int{}
	for name := range names {
		m := e.nodes[name]
		if m == nil || m.pod != nil || !e.sets[m.set].AskForRoom {
			continue
		}
		offering := ""
		switch {
		case m.boot == nil && (m.off != nil || m.read == 0 || !m.slurm.State.Any(NodePoweredDown)):
			continue // up, or nobody knows
		case m.boot != nil && (m.boot.release != nil || len(m.jobs) == 0 || m.jobs[0] != n.jobs[0]):
			continue // another job's
		case m.boot != nil && m.boot.attempt != nil && (last == nil || m == n || !last.covers(m.set, m.boot.attempt.Offering)):
			offering = m.boot.attempt.Offering
		default:
			if inUse[m.set] == nil {
				inUse[m.set] = maps.Clone(e.inUse(m.set))
			}
			c := e.breakers.Look(e.now, e.sets[m.set], inUse[m.set])
			if offering = c.Offering; !c.OK {
				if m.set != n.set || !n.boot.attempt.Probe() {
					continue // there is no place for it
				}
				offering = n.boot.attempt.Offering // the others follow the probe
			}
			if inUse[m.set] != nil {
				inUse[m.set][offering]++
			}
		}
		i := slices.IndexFunc(sets, func(s RoomSet) bool { return s.NodeSet == m.set && s.Offering == offering })
		if i < 0 {
			i, sets = len(sets), append(sets, RoomSet{NodeSet: m.set, Offering: offering})
		}
		sets[i].Pods++
	}
	return sets
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
	if ev.Err != "" {
		r.problem, r.trouble = ev.Err, ev.Trouble
		r.retryAt = e.now.Add(pause(r.tries))
		r.tries++
	} else {
		r.Name, r.named, r.problem, r.trouble = ev.Name, e.now, "", TroubleNone
		e.wantRooms(e.now)
	}
	e.decideGang(ev.Job)
}

func (e *Engine) roomsRead(ev RoomsRead) {
	e.rooms.reading = false
	waits := slices.Sorted(maps.Keys(e.gangs))
	if e.rooms.problem, e.rooms.trouble = ev.Err, ev.Trouble; ev.Err != "" {
		e.note(Warn, nil, "", "reading ProvisioningRequests failed: "+ev.Err)
		e.wantRooms(e.now.Add(e.cfg.PollWait))
		if !e.rooms.read {
			e.decideGangs(waits)
		}
		return
	}
	first := !e.rooms.read
	e.rooms.read = true
	listed := map[string]bool{}
	strays := map[string]time.Time{}
	changed := map[uint32]bool{}
	for _, seen := range ev.Rooms {
		listed[seen.Name] = true
		r := e.rooms.jobs[seen.Job]
		switch {
		case r != nil && r.Name == seen.Name:
			changed[seen.Job] = r.State != seen.State || r.Message != seen.Message
			r.Room = seen
		case r == nil && e.gangs[seen.Job] != nil && first: // asked for by an earlier bridge
			if e.rooms.jobs == nil {
				e.rooms.jobs = map[uint32]*room{}
			}
			e.rooms.jobs[seen.Job] = &room{Room: seen}
		default:
			strays[seen.Name] = e.now
			if since, known := e.rooms.strays[seen.Name]; known {
				strays[seen.Name] = since
			}
			if e.now.Sub(strays[seen.Name]) >= roomStray {
				e.dropRoom(seen.Name)
			}
		}
	}
	e.rooms.strays = strays
	for job, r := range e.rooms.jobs {
		if r.Name != "" && !listed[r.Name] && !r.named.After(e.rooms.asked) {
			r.State, r.Message, changed[job] = RoomRevoked, "somebody deleted it", true
		}
	}
	if first {
		e.decideGangs(waits)
		return
	}
	maps.DeleteFunc(changed, func(_ uint32, is bool) bool { return !is })
	e.decideGangs(slices.Sorted(maps.Keys(changed)))
}

func (e *Engine) decideGangs(jobs []uint32) {
	for _, job := range jobs {
		e.decideGang(job)
	}
}

// decideGang decides on all nodes the job waits for.
func (e *Engine) decideGang(job uint32) {
	g := e.gangs[job]
	if g == nil {
		return
	}
	for _, name := range slices.Clone(g.nodes) {
		e.decide(e.nodes[name])
	}
}

// roomKept says whether an autoscaler has made room for the pod of n: its host is on its way.
func (e *Engine) roomKept(n *node) bool {
	if len(n.jobs) == 0 {
		return false
	}
	r := e.rooms.jobs[n.jobs[0]]
	return r != nil && r.State == RoomProvisioned && r.covers(n.set, n.pod.Offering)
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

// planRooms drops the requests of jobs that wait no longer, and reads the others.
func (e *Engine) planRooms() {
	for _, job := range slices.Sorted(maps.Keys(e.rooms.jobs)) {
		if r := e.rooms.jobs[job]; e.gangs[job] == nil {
			delete(e.rooms.jobs, job)
			e.dropRoom(r.Name)
		}
	}
	if e.rooms.reading {
		return
	}
	switch {
	case len(e.rooms.jobs) > 0:
		e.wantRooms(e.now.Add(roomPoll))
	case !e.rooms.readAt.IsZero():
	case e.rooms.used:
		e.wantRooms(e.now.Add(roomStrayPoll))
	}
	if e.rooms.readAt.IsZero() || e.rooms.readAt.After(e.now) {
		return
	}
	e.rooms.reading, e.rooms.asked, e.rooms.readAt = true, e.now, time.Time{}
	e.do(ReadRooms{})
}
