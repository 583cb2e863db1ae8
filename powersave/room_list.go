package powersave

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	roomPoll = 2 * time.Second // while an autoscaler works for us
	// roomStray is how long a request that no job of ours waits for is left alone: it may be another bridge's.
	roomStray     = 30 * time.Minute
	roomStrayPoll = 5 * time.Minute
	dropTries     = 10 // within a minute and a half; then it is a stray
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
	problem  roomProblem
	strays   map[string]stray
	listed   time.Time // when they were read last
	othersAt time.Time // when a stray was last waited for
	drops    map[string]*drop
}

// stray is a request that no job of ours waits for.
type stray struct {
	job   uint32
	since time.Time // first seen
}

// drop is a request that is to go.
type drop struct {
	asking  bool
	tries   int
	retryAt time.Time
}

func (e *Engine) roomsRead(ev RoomsRead) {
	e.rooms.reading = false
	jobs := slices.Sorted(maps.Keys(e.gangs))
	before := e.rooms.problem
	if e.rooms.problem = (roomProblem{ev.Err, ev.Trouble, ev.Everywhere}); ev.Err != "" {
		if ev.Err != before.text {
			e.note(Warn, nil, "", "reading ProvisioningRequests failed: "+ev.Err)
		}
		e.wantRooms(e.now.Add(e.cfg.PollWait))
		if !e.rooms.read || ev.Everywhere {
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
	strays := map[string]stray{}
	e.rooms.listed = e.now
	for _, seen := range ev.Rooms {
		listed[seen.Name] = true
		r := e.rooms.jobs[seen.Job]
		switch {
		case r != nil && r.Name == seen.Name:
			r.Room = seen
		case r != nil && slices.Contains(r.former, seen.Name):
		case r != nil && slices.Contains(r.lost, seen.Attempt): // it was made all the same
			e.dropRoom(seen.Name)
		default:
			if seen.State == RoomPending || seen.State == RoomAccepted {
				e.rooms.othersAt = e.now
			}
			s, known := e.rooms.strays[seen.Name]
			if !known {
				s = stray{seen.Job, e.now}
			}
			if strays[seen.Name] = s; e.leading && e.now.Sub(s.since) >= roomStray {
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
	decided := map[uint32]bool{}
	for _, job := range jobs {
		if parts := e.hets.of(job); !decided[parts[0]] {
			decided[parts[0]] = true
			e.decideGang(job)
		}
	}
}

// decideGang decides on those nodes of NodeSets that ask for room that the job waits for.
func (e *Engine) decideGang(job uint32) {
	for _, g := range e.roomGangs(job) {
		for _, name := range slices.Clone(g.nodes) {
			if n := e.nodes[name]; e.sets[n.set].AskForRoom {
				e.decide(n)
			}
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
	if name == "" || e.rooms.drops[name] != nil {
		return
	}
	if e.rooms.drops == nil {
		e.rooms.drops = map[string]*drop{}
	}
	e.rooms.drops[name] = &drop{asking: true}
	e.do(DropRoom{Name: name})
}

func (e *Engine) roomDropped(ev RoomDropped) {
	d := e.rooms.drops[ev.Name]
	switch {
	case ev.Err == "" || d == nil:
		delete(e.rooms.drops, ev.Name)
		return
	case d.tries == 0:
		e.note(Warn, nil, "", ev.Err)
	case d.tries == dropTries-1:
		delete(e.rooms.drops, ev.Name)
		e.note(Warn, nil, "", fmt.Sprintf("%s; tried %d times, and again when nobody has waited for it for %s", ev.Err, dropTries, roomStray))
		return
	}
	d.asking, d.retryAt = false, e.now.Add(pause(d.tries))
	d.tries++
}

// retryDrops asks again for requests to go that would not.
func (e *Engine) retryDrops() {
	var due []string
	for name, d := range e.rooms.drops {
		if !d.asking && !d.retryAt.After(e.now) {
			due = append(due, name)
		}
	}
	slices.Sort(due)
	for _, name := range due {
		e.rooms.drops[name].asking = true
		e.do(DropRoom{Name: name})
	}
}

func (e *Engine) wantRooms(t time.Time) {
	if e.rooms.readAt.IsZero() || t.Before(e.rooms.readAt) {
		e.rooms.readAt = t
	}
}

// roomsDue is when planRooms has something to do, for NextWake.
func (e *Engine) roomsDue() (due time.Time) {
	if !e.rooms.reading {
		due = e.rooms.readAt
	}
	for _, d := range e.rooms.drops {
		if !d.asking && (due.IsZero() || d.retryAt.Before(due)) {
			due = d.retryAt
		}
	}
	return due
}

// planRooms drops the requests of jobs that wait no longer, and reads the others.
func (e *Engine) planRooms() {
	if r := &e.rooms; !r.used && r.readAt.IsZero() && len(r.jobs)+len(r.drops)+len(r.strays) == 0 {
		return // hardly anybody asks for room
	}
	var over []uint32
	for job, r := range e.rooms.jobs {
		if len(e.roomGangs(job)) == 0 && !e.expected(r) {
			over = append(over, job)
		}
	}
	slices.Sort(over)
	for _, job := range over {
		r := e.rooms.jobs[job]
		delete(e.rooms.jobs, job)
		for _, name := range append(r.former, r.Name) {
			e.dropRoom(name)
		}
	}
	e.retryDrops()
	if e.rooms.reading {
		return
	}
	switch {
	case e.rooms.used && !e.rooms.read && e.rooms.problem.text == "":
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
		n := e.nodes[name]
		if r.served[name] || n.boot != nil || !n.slurm.State.Any(NodePoweredDown) {
			continue
		}
		if n.slurm.State.Any(inUse) || !n.readSince(r.read) { // else its job has left it
			return true
		}
	}
	return false
}
