package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// The model of ProvisioningRequests, and of the autoscaler that answers them: late, with no, for now or for good, or for a while only.

// asking is what a schedule says of them.
type asking struct {
	asks     [2]bool       // NodeSets whose pods wait for room
	answerIn time.Duration // the autoscaler needs so long at most
	booking  time.Duration // it keeps room for so long; 0: for ever
	apart    bool          // one request cannot be for both NodeSets
}

type autoscaler struct {
	rooms        []*room // all there ever were
	readingRooms bool
	roomsSeen    bool // this life of the bridge has read them
	roomReads    []time.Time
	overdueAt    [2]time.Time // when a boot of the NodeSet was given up last that had waited for too long for a place
}

type room struct {
	powersave.Room
	sets []powersave.RoomSet
	pods int
	life int // of the bridge that asked
	born time.Time
	stateAt,
	troubleAt, // refused, failed or revoked
	roomAt time.Time // when there was room first
	gone       bool
	told       int             // life of the bridge that knows its name
	dropping   bool            // the bridge has asked for it to go
	served     [nodeCount]bool // in the bridge's life servedLife
	servedLife int
	made       [nodeCount]int // the bridge's life that knows that there has been a pod
	busyAt     time.Time      // when its job last waited
}

const apartErr = "classes differ"

// live says that the autoscaler may still make room for it.
func (r *room) live() bool {
	return !r.gone && (r.State == powersave.RoomPending || r.State == powersave.RoomAccepted)
}

func (r *room) over() bool {
	return r.State == powersave.RoomFailed || r.State == powersave.RoomRevoked
}

func (w *world) room(name string) *room {
	for _, r := range slices.Backward(w.rooms) {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// together says that two jobs are one, or components of one het job, which ask together.
func (w *world) together(a, b uint32) bool {
	return a == b || w.job(a).leader() != 0 && w.job(a).leader() == w.job(b).leader()
}

// newestRoom of a job that exists, or else of the leader of its het job, in whose name room is asked for all whose gates have said what
// they belong to. nil if none does.
func (w *world) newestRoom(job uint32) (newest *room) {
	for _, r := range slices.Backward(w.rooms) {
		switch {
		case r.gone:
		case r.Job == job:
			return r
		case newest == nil && r.Job == w.job(job).leader():
			newest = r
		}
	}
	return newest
}

func roomName(q powersave.RoomRequest) string { return fmt.Sprintf("room-%d-%d", q.Job, q.Attempt) }

// What the bridge asks.

func (w *world) ask(a powersave.AskRoom, life int) {
	w.mayAsk(a.Request)
	w.after(w.delay(50*time.Millisecond, askSlow, int(a.Request.Job)%nodeCount, 15*time.Second), func() { w.makeRoom(a.Request, life) })
}

func (w *world) makeRoom(q powersave.RoomRequest, life int) {
	name := roomName(q)
	asked := powersave.RoomAsked{Job: q.Job, Attempt: q.Attempt}
	old := w.room(name)
	switch {
	case w.any(roomsMissing):
		asked.Err, asked.Trouble = "no such kind", powersave.TroubleConfig
	case w.any(askFails), w.any(kubeAway):
		asked.Err = "timeout"
	case w.apart && slices.ContainsFunc(q.Sets, func(s powersave.RoomSet) bool { return s.NodeSet != q.Sets[0].NodeSet }):
		asked.Err, asked.Trouble, asked.OfJob = apartErr, powersave.TroubleConfig, true
	case old != nil && !old.gone:
		asked.Name = name
	default:
		r := &room{Room: powersave.Room{Name: name, Job: q.Job, Attempt: q.Attempt, State: powersave.RoomPending, Created: w.now.Truncate(time.Second)},
			sets: q.Sets, life: life, born: w.now, stateAt: w.now, busyAt: w.now}
		for _, s := range q.Sets {
			r.pods += s.Pods
		}
		w.rooms = append(w.rooms, r)
		w.logf("%s is made for %v", name, q.Sets)
		w.after(w.some(time.Second, roomTakes, 0), func() {
			if r.State == powersave.RoomPending {
				r.State = powersave.RoomAccepted
			}
		})
		w.after(time.Second+w.some(w.answerIn+time.Millisecond, roomTakes, 1), func() { w.answerRoom(r) })
		if asked.Name = name; w.any(askLost) {
			asked.Name, asked.Err = "", "timeout"
		}
	}
	answer := func(d time.Duration) {
		if life != w.life {
			return
		}
		w.after(d, func() {
			if life != w.life {
				return
			}
			if r := w.room(asked.Name); r != nil {
				r.told = life
			}
			w.step(asked)
		})
	}
	answer(w.delay(5*time.Millisecond, askSlow, 0, 8*time.Second))
	if w.any(askTwice) {
		answer(w.some(5*time.Second, askTwice, 0))
	}
}

func (w *world) readRooms(life int) {
	if w.readingRooms {
		w.breaks("reads rooms twice at once", "")
	}
	w.readingRooms = true
	w.roomReads = append(w.roomReads, w.now)
	if i := len(w.roomReads) - 30; i >= 0 && w.now.Sub(w.roomReads[i]) < 10*time.Second {
		w.breaks("reads rooms too often", "30 times in %v", w.now.Sub(w.roomReads[i]))
	}
	w.after(w.delay(5*time.Millisecond, roomsSlow, 0, 8*time.Second), func() {
		var ev powersave.RoomsRead
		switch {
		case w.any(roomsMissing):
			ev.Err, ev.Trouble = "no such kind", powersave.TroubleConfig
		case w.any(roomsFail), w.any(kubeAway):
			ev.Err = "timeout"
		default:
			for _, r := range w.rooms {
				if !r.gone {
					ev.Rooms = append(ev.Rooms, r.Room)
				}
			}
		}
		if life != w.life {
			return
		}
		w.after(w.delay(5*time.Millisecond, roomsSlow, 1, 8*time.Second), func() {
			if life == w.life {
				w.readingRooms, w.roomsSeen = false, w.roomsSeen || ev.Err == ""
				w.step(ev)
			}
		})
	})
}

func (w *world) drop(a powersave.DropRoom, life int) {
	w.mayDrop(a.Name)
	w.after(w.delay(50*time.Millisecond, dropSlow, 0, 20*time.Second), func() {
		dropped := powersave.RoomDropped{Name: a.Name}
		if w.any(dropFails) || w.any(kubeAway) {
			dropped.Err = "timeout"
		} else if r := w.room(a.Name); r != nil {
			r.gone = true
			w.logf("%s is gone", r.Name)
			if w.any(dropLost) {
				dropped.Err = "timeout"
			}
		}
		w.tellLife(life, w.delay(5*time.Millisecond, dropSlow, 1, 8*time.Second), dropped)
	})
}

// What the autoscaler does, and those who meddle.

func (w *world) answerRoom(r *room) {
	if !r.live() {
		return
	}
	soldOut := slices.ContainsFunc(r.sets, func(s powersave.RoomSet) bool {
		return s.Offering == offerings[0] && w.any(noSpot) || s.Offering == offerings[1] && w.any(noOwn)
	})
	switch {
	case w.any(roomTakes):
	case w.any(roomFails):
		w.turnRoom(r, powersave.RoomFailed, "no such hosts")
	case w.any(roomTries), soldOut:
		if !r.Refused {
			r.Refused, r.Message, r.troubleAt = true, "none for now", w.now
			w.logf("%s: none for now", r.Name)
		}
		w.after(3*time.Second, func() { w.answerRoom(r) })
	default:
		r.Refused, r.roomAt = false, w.now
		w.turnRoom(r, powersave.RoomProvisioned, "")
		if w.booking > 0 {
			w.after(5*time.Second+w.booking, func() {
				if r.State == powersave.RoomProvisioned && !r.gone {
					w.turnRoom(r, powersave.RoomExpired, "")
				}
			})
		}
	}
}

func (w *world) turnRoom(r *room, to powersave.RoomState, message string) {
	r.State, r.Message, r.stateAt = to, message, w.now
	if r.over() {
		r.troubleAt = w.now
	}
	w.logf("%s is %s", r.Name, to)
}

func (w *world) answerRooms() {
	for _, r := range w.rooms {
		w.answerRoom(r)
	}
}

func (w *world) revokeRooms() {
	for _, r := range w.rooms {
		if !r.gone && !r.over() {
			w.turnRoom(r, powersave.RoomRevoked, "taken away")
		}
	}
}

func (w *world) deleteRooms() {
	for _, r := range w.rooms {
		if !r.gone {
			r.gone = true
			w.logf("%s is deleted", r.Name)
		}
	}
}

// booked says that a host was made for the pod.
func (w *world) booked(p *pod) bool {
	if p.Room == "" {
		return false
	}
	r := w.room(p.Room)
	return r != nil && !r.gone && r.State == powersave.RoomProvisioned
}

// What must hold.

// mayAsk looks at a request for room.
func (w *world) mayAsk(q powersave.RoomRequest) {
	name, j := roomName(q), w.job(q.Job)
	if j == nil || len(q.Sets) == 0 {
		w.breaks("asks for room for nobody", "%+v", q)
		return
	}
	for _, s := range q.Sets {
		i := slices.Index(setNames[:], s.NodeSet)
		if i < 0 || !w.asks[i] || s.Pods <= 0 {
			w.breaks("asks for room for nobody", "%+v", q)
			continue
		}
		has := 0
		for _, p := range j.parts {
			for _, n := range p.nodes {
				if n.ours() && n.set() == i {
					has++
				}
			}
		}
		// Who has been told of the present start by gates alone takes what boots on for others to be the job's still.
		for _, n := range w.nodes {
			if j.reported.IsZero() && n.ours() && n.set() == i && n.flags.Any(powersave.NodePoweringUp) && len(n.jobs) > 0 && !slices.Contains(n.jobs, j) {
				has++
			}
		}
		if j.state == configuring && w.now.Sub(j.asked) > stale && s.Pods > has {
			w.breaks("asks for too much room", "%+v, but job %d has %d nodes of it", q, j.id, has)
		}
	}
	w.mayAskForLess(q, j)
	for _, r := range w.rooms {
		switch {
		case r.Job != q.Job || r.gone:
		case r.Name == name && r.dropping && r.told == w.life:
			w.breaks("asks again for what it drops", "%s", name)
		case r.Name != name && r.live() && !r.dropping && (r.told == w.life || w.roomsSeen && r.born.Before(w.lifeAt)):
			w.breaks("asks twice", "%s, and there is %s", name, r.Name)
		}
	}
	if !w.roomsSeen {
		w.breaks("asks without looking", "%s", name)
	}
}

// mayAskForLess looks whether a job's first request counts the nodes that ResumeRate holds back.
func (w *world) mayAskForLess(q powersave.RoomRequest, j *slurmJob) {
	if j.state != configuring || j.unheard || j.reported.IsZero() || !w.now.After(w.rough) || !w.endOf(changeSets, 0).IsZero() ||
		slices.ContainsFunc(w.rooms, func(r *room) bool { return w.together(r.Job, q.Job) }) {
		return
	}
	asked, least := 0, 1
	for _, s := range q.Sets {
		asked += s.Pods
	}
	for _, m := range j.nodes {
		if m.ours() && w.asks[m.set()] && m.users == 1 && m.flags&(powersave.NodePoweredDown|powersave.NodePoweringUp|powersave.NodePowerUp) == powersave.NodePoweredDown && w.now.Sub(m.downReq) > time.Minute/2 && w.pods[m.index] == nil {
			least++
		}
	}
	if asked < least {
		w.breaks("asks for too little room", "%+v, but job %d needs %d", q, j.id, least)
	}
}

// mayUseRoom looks at the room that a pod is to use.
func (w *world) mayUseRoom(n *node, a powersave.CreatePod) {
	asks := w.asks[n.set()] && a.Job != 0
	r := w.room(a.Room)
	switch {
	case a.Room == "" && (!asks || n.roomed == a.Generation):
	case a.Room == "":
		if !slices.ContainsFunc(w.rooms, func(r *room) bool { return w.together(r.Job, a.Job) }) {
			w.breaks("makes a pod without asking for room", "%s for job %d", n.name, a.Job)
		}
	case !asks || r == nil || !w.together(r.Job, a.Job):
		w.breaks("uses room that is not its own", "%s for job %d: %q", n.name, a.Job, a.Room)
	case r.roomAt.IsZero():
		w.breaks("makes a pod before there is room", "%s for job %d: %s is %s", n.name, a.Job, r.Name, r.State)
	case r.made[n.index] == w.life && n.lastRoom == r:
		w.breaks("uses its room twice", "%s for job %d: %s", n.name, a.Job, r.Name)
	case r.State != powersave.RoomProvisioned && w.smooth(r.stateAt, prompt):
		w.breaks("uses room that is not kept", "%s for job %d: %s is %s since %.3f", n.name, a.Job, r.Name, r.State, r.stateAt.Sub(start).Seconds())
	default:
		if r.servedLife != w.life { // it may not know what was made, and came to nothing, before
			r.served, r.servedLife = [nodeCount]bool{}, w.life
		}
		n.roomed, r.served[n.index] = a.Generation, true
		used := 0
		for _, s := range r.served {
			if s {
				used++
			}
		}
		if used > r.pods && r.life == w.life { // of an earlier one's request it does not know which nodes it was for
			w.breaks("uses more room than it has", "%s for job %d: %s is for %d pods", n.name, a.Job, r.Name, r.pods)
		}
	}
}

func (w *world) mayDrop(name string) {
	r := w.room(name)
	if r == nil {
		w.breaks("drops what is not", "%q", name)
		return
	}
	r.dropping = true
	j := w.job(r.Job)
	if r.gone || r.over() || r.Refused || r.State == powersave.RoomExpired || j.state != configuring || w.now.Sub(j.asked) < stale || j.reported.IsZero() || j.unheard || j.failedAt.After(j.asked) || r.told != w.life ||
		!w.smooth(r.stateAt, prompt) {
		return
	}
	for _, n := range j.nodes {
		if n.ours() && w.asks[n.set()] && n.flags.Any(powersave.NodePoweringUp) && w.pods[n.index] == nil && n.creating == 0 && n.users == 1 && w.newestRoom(r.Job) == r && w.now.Sub(n.changed) > stale {
			w.breaks("drops room that a job waits for", "%s of job %d", r.Name, j.id)
		}
	}
}

// mayBlameRoom looks at verdicts on requests.
func (w *world) mayBlameRoom(a powersave.BootFailed) {
	if n := w.node(a.Node); n.ours() && a.Verdict.Trouble == powersave.TroubleCapacity && strings.HasPrefix(a.Verdict.Reason, "not up after") {
		w.overdueAt[n.set()] = w.now
	}
	rest, ours := strings.CutPrefix(a.Verdict.Reason, "ProvisioningRequest ")
	name, _, _ := strings.Cut(rest, " ")
	// One that was over may have been made once more by a call that came late.
	if ours && !slices.ContainsFunc(w.rooms, func(r *room) bool { return r.Name == name && r.over() }) {
		w.breaks("gives up though there may be room", "%s: %s", a.Node, a.Verdict)
	}
	p := w.pods[w.node(a.Node).index]
	if p == nil || p.Room == "" || a.UID != p.UID || a.Verdict.Trouble != powersave.TroubleCapacity || strings.HasPrefix(a.Verdict.Reason, "not up after") {
		return
	}
	if r := w.room(p.Room); !r.over() {
		w.breaks("gives up though there may be room", "%s of %s: %s", p.UID, r.Name, a.Verdict)
	}
}

// roomTrouble is since when there is no room for the job, as far as the bridge can know.
func (w *world) roomTrouble(j *slurmJob) time.Time {
	if w.offers && slices.ContainsFunc(j.parts, func(p *slurmJob) bool {
		return slices.ContainsFunc(p.nodes, func(n *node) bool { return n.ours() && n.set() == 0 })
	}) {
		return time.Time{} // others are tried, and what the job has elsewhere waits for them
	}
	if r := w.newestRoom(j.id); r != nil && !r.dropping && (r.Refused || r.over()) && r.told == w.life {
		return r.troubleAt
	}
	return time.Time{}
}

// asksAnew says that room is asked for once more since a pod of the job was refused, as when somebody has deleted the request.
func (w *world) asksAnew(j *slurmJob, refused time.Time) bool {
	r := w.newestRoom(j.id)
	return r != nil && !refused.IsZero() && r.born.After(refused)
}

// patrolRooms looks whether requests outlive their jobs, and jobs wait for what nobody asks for.
func (w *world) patrolRooms() {
	for _, r := range w.rooms {
		j := w.job(r.Job)
		switch {
		case r.gone, r.dropping, r.told != w.life:
		case slices.ContainsFunc(j.parts, func(p *slurmJob) bool { return p.state == configuring }):
			r.busyAt = w.now
		case w.smooth(latest(r.busyAt, r.born.Add(resumeTimeout)), prompt):
			w.breaks("room stays", "%s since %.3f: job %d is %s", r.Name, r.busyAt.Sub(start).Seconds(), j.id, jobStates[j.state])
		}
	}
	for i, n := range w.nodes {
		w.patrolRoom(n, w.pods[i])
	}
}

// patrolRoom looks whether a node waits though there is room, or though nobody has asked for any.
func (w *world) patrolRoom(n *node, p *pod) {
	if !n.ours() || !w.asks[n.set()] || w.limits != [2]int{} || n.users != 1 || len(n.jobs) != 1 || p != nil || n.creating > 0 || !n.flags.Any(powersave.NodePoweringUp) || !n.refusedAt.IsZero() ||
		n.jobs[0].state != configuring || n.jobs[0].reported.IsZero() || n.jobs[0].failedAt.After(n.jobs[0].asked) || !w.endOf(changeSets, 0).IsZero() ||
		w.now.Sub(w.overdueAt[n.set()]) < time.Minute || // whatever kept that waiting, others wait for what becomes of one try, as below
		slices.ContainsFunc(w.nodes[:], func(m *node) bool { // a NodeSet of the job may wait for what becomes of one try
			return m.ours() && slices.ContainsFunc(n.jobs[0].nodes, func(o *node) bool { return o.ours() && o.set() == m.set() }) && w.recently(m, time.Minute, lessRoom, noSpot, noOwn, quota, noImage, badConfig, badSet, crashing, mute, refused, slowSlurmd, slowHost, roomFails, roomTries, roomRevoked, roomsMissing)
		}) {
		n.roomlessAt = w.now
		return
	}
	r := w.newestRoom(n.jobs[0].id)
	switch {
	case r != nil && r.State == powersave.RoomProvisioned && w.smooth(latest(n.roomlessAt, r.stateAt), prompt):
		w.breaks("room is not used", "%s waits since %.3f, and there is %s", w.show(n), n.roomlessAt.Sub(start).Seconds(), r.Name)
	case (r == nil || r.State == powersave.RoomExpired && w.smooth(r.stateAt, prompt)) && w.smooth(latest(n.roomlessAt, w.endOf(roomDeleted, 0)), prompt):
		w.breaks("nobody asks for room", "%s waits since %.3f", w.show(n), n.roomlessAt.Sub(start).Seconds())
	}
}

// roomsLeft says whether requests stay that nobody waits for, and looks that they do so for no longer than is said.
func (w *world) roomsLeft() bool {
	for _, r := range w.rooms {
		if r.gone {
			continue
		}
		if w.rest > 37*60 { // half an hour, and the longest pause between two looks
			w.breaks("room stays", "%s, which nobody waits for", r.Name)
			return false
		}
		return true
	}
	return false
}
