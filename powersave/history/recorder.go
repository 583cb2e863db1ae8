package history

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
)

// Recorder makes entries of what the engine is told and decides. It has no clock. A nil *Recorder makes none.
// All methods but Due belong to one goroutine.
type Recorder struct {
	now     time.Time
	out     []Entry
	boots   map[string]*boot // by node: from its request until it has registered, failed, or is powered down
	gates   map[uint64]uint32
	gated   map[uint32]int       // by job: how many gates wait
	backs   map[uint32]string    // by job: why it is given back
	rests   map[uint32]time.Time // by job: the begin time that it is to get
	rooms   map[string]powersave.RoomState
	breaker breakers
	unread  map[string]bool // by API

	mu  sync.Mutex
	due map[uint32]time.Time // by job: when Slurm should be asked how it is
}

// boot is what entries of one boot have in common.
type boot struct {
	Entry
	phase  powersave.PodPhase
	asking bool // for the next pod, since Asked
	failed bool // what is left to tell is how its node and pod go
	done   bool // it has registered, and Kubernetes has not said yet that its container runs: that may come a second late
}

// live is the boot in hand of a node, or nil.
func (r *Recorder) live(node string) *boot {
	if b := r.boots[node]; b != nil && !b.failed && !b.done {
		return b
	}
	return nil
}

// NewRecorder returns a recorder that knows nothing yet.
func NewRecorder() *Recorder {
	return &Recorder{
		boots: map[string]*boot{}, gates: map[uint64]uint32{}, gated: map[uint32]int{}, backs: map[uint32]string{}, rests: map[uint32]time.Time{},
		rooms: map[string]powersave.RoomState{}, breaker: breakers{}, unread: map[string]bool{},
		due: map[uint32]time.Time{},
	}
}

// Step returns what there is to tell of one step of the engine.
func (r *Recorder) Step(now time.Time, ev powersave.Event, actions []powersave.Action) []Entry {
	if r == nil {
		return nil
	}
	r.now, r.out = now, nil
	r.event(ev, actions)
	for _, a := range actions {
		r.action(a, actions)
	}
	return r.out
}

func (r *Recorder) add(e Entry) {
	e.Time = r.now
	r.out = append(r.out, e)
}

func (r *Recorder) event(ev powersave.Event, actions []powersave.Action) {
	switch ev := ev.(type) {
	case powersave.RequestAccepted:
		r.request(ev.Request)
	case powersave.GateOpened:
		if atOnce := func(a powersave.Action) bool {
			g, is := a.(powersave.AnswerGate)
			return is && g.ID == ev.ID && g.Ready
		}; slices.ContainsFunc(actions, atOnce) {
			return // its nodes were up: there is no story
		}
		r.gates[ev.ID] = ev.JobID
		r.gated[ev.JobID]++
		r.add(Entry{What: GateWaits, Jobs: []uint32{ev.JobID}, Nodes: ev.Nodes.String(), Attempt: ev.Attempt})
	case powersave.GateClosed:
		r.ungate(ev.ID)
	case powersave.PodCreated:
		if b := r.live(ev.Node); b != nil {
			r.pod(b, powersave.Pod{UID: ev.UID, Phase: powersave.PodPending})
		}
	case powersave.PodSeen:
		r.podSeen(ev.Pod)
	case powersave.PodsRead:
		for _, p := range ev.Pods {
			r.podSeen(p)
		}
	case powersave.PodGone:
		e := Entry{What: PodGone, Node: ev.Node, PodUID: ev.UID}
		if b := r.boots[ev.Node]; b != nil {
			e.NodeSet, e.Jobs = b.NodeSet, b.Jobs
			if b.failed || b.done {
				delete(r.boots, ev.Node)
			}
		}
		r.add(e)
	case powersave.NodesUpdated:
		r.updated(ev)
	case powersave.RoomAsked:
		if ev.Err == "" {
			r.add(Entry{What: RoomAsked, Jobs: []uint32{ev.Job}})
		}
	case powersave.RoomsRead:
		for _, room := range ev.Rooms {
			if r.rooms[room.Name] != room.State && room.State != powersave.RoomPending {
				r.add(Entry{What: RoomState, Jobs: []uint32{room.Job}, State: string(room.State), Reason: room.Message})
			}
			r.rooms[room.Name] = room.State
		}
	case powersave.RoomDropped:
		delete(r.rooms, ev.Name)
	case powersave.JobTold:
		if ev.Err == "" {
			r.add(Entry{What: JobGivenBack, Jobs: []uint32{ev.Job}, Reason: r.backs[ev.Job], Attempt: ev.Attempt, Times: ev.Times})
			delete(r.backs, ev.Job)
		}
	case powersave.JobHeld:
		until := r.rests[ev.Job]
		delete(r.rests, ev.Job)
		if ev.Err == "" && !ev.Again && until.After(r.now) {
			r.add(Entry{What: JobRests, Jobs: []uint32{ev.Job}, Until: until})
		}
	case powersave.SlurmReadFailed:
		r.readable("Slurm", ev.Err)
	case powersave.SlurmRead:
		r.readable("Slurm", "")
	case powersave.KubernetesUnread:
		r.readable("Kubernetes", ev.Err)
	}
}

func (r *Recorder) action(a powersave.Action, all []powersave.Action) {
	switch a := a.(type) {
	case powersave.CreatePod:
		b := r.live(a.Node)
		if b == nil { // reconciling found that it is wanted
			b = r.boot(a.Node)
		}
		if !b.asking || b.Offering != a.Offering {
			b.asking, b.Asked = true, r.now
		}
		b.NodeSet, b.Offering = a.NodeSet, a.Offering
		if b.Request == "" {
			b.Request = a.Request
		}
		b.wait(a.Job)
	case powersave.DeletePod:
		e := Entry{What: PodDeleted, Node: a.Node, PodUID: a.UID, Reason: a.Why}
		if b := r.boots[a.Node]; b != nil {
			e.NodeSet, e.Jobs = b.NodeSet, b.Jobs
		}
		r.add(e)
	case powersave.BootDone:
		d := a.Boot
		e := Entry{What: NodeRegistered, Node: d.Node, NodeSet: d.NodeSet, Jobs: d.Jobs, Request: d.Request, PodUID: d.UID, Host: d.Host, Requested: d.Times.Requested}
		if b := r.boots[d.Node]; b != nil {
			e.Offering = b.Offering
			if b.done = b.phase != powersave.PodRunning; !b.done {
				delete(r.boots, d.Node)
			}
		}
		r.add(e)
		for _, job := range d.Jobs {
			if r.gated[job] == 0 { // else its gate says when it starts
				r.look(job)
			}
		}
	case powersave.BootFailed:
		b := r.boots[a.Node]
		r.add(Entry{
			What: BootFailed, Node: a.Node, NodeSet: a.NodeSet, Offering: a.Offering, PodUID: a.UID, Request: a.Request, Jobs: a.Jobs,
			Class: string(a.Verdict.Trouble), Reason: a.Verdict.Reason, Asked: b.asked(),
		})
		if b == nil {
			b = r.boot(a.Node)
			b.NodeSet, b.Jobs = a.NodeSet, a.Jobs
		}
		b.failed = true
	case powersave.AnswerGate:
		job, known := r.ungate(a.ID)
		if !known {
			return
		}
		what := GateGivenUp
		if a.Ready {
			what = GateOpened
			r.look(job)
		}
		r.add(Entry{What: what, Jobs: []uint32{job}, Reason: a.Reason})
	case powersave.TellJob:
		r.backs[a.Job] = a.Reason
	case powersave.HoldJob:
		r.rests[a.Job] = r.now.Add(a.Delay)
	case powersave.JobsLost:
		r.add(Entry{What: JobsLost, Node: a.Node, NodeSet: a.NodeSet, Reason: a.Why})
	case powersave.FloorShort:
		r.add(Entry{What: Floor, NodeSet: a.NodeSet, Class: string(a.Why), Reason: a.Text})
	case powersave.Report:
		r.report(a, all)
	}
}

// ungate forgets a gate, and says whose it was.
func (r *Recorder) ungate(id uint64) (job uint32, known bool) {
	if job, known = r.gates[id]; !known {
		return 0, false
	}
	delete(r.gates, id)
	if r.gated[job]--; r.gated[job] == 0 {
		delete(r.gated, job)
	}
	return job, true
}

// request begins the boots of a ResumeProgram's request, and tells which nodes it is about, for each of its jobs.
func (r *Recorder) request(q powersave.Request) {
	common := Entry{What: RequestAccepted, Request: q.ID, Kind: string(q.Kind), Requested: q.Started}
	taken := map[string]bool{}
	for _, j := range q.Jobs {
		var nodes []string
		for node := range j.Nodes.All() {
			if q.Nodes.Contains(node) {
				nodes = append(nodes, node)
				taken[node] = true
				r.begin(node, q).wait(j.ID)
			} else if b := r.live(node); b != nil { // it boots already, for another job or in another slice
				b.wait(j.ID)
			}
		}
		if len(nodes) > 0 {
			e := common
			e.Jobs, e.Nodes = []uint32{j.ID}, compress(nodes)
			r.add(e)
		}
	}
	if len(taken) == q.Nodes.Len() {
		return
	}
	var rest []string
	for node := range q.Nodes.All() {
		if taken[node] {
			continue
		}
		rest = append(rest, node)
		if q.Kind == spool.KindResume {
			r.begin(node, q)
		} else {
			delete(r.boots, node)
		}
	}
	e := common
	e.Nodes = compress(rest)
	r.add(e)
}

// begin returns the boot that a request asks for. Requests are accepted again after a restart, and in the same order.
func (r *Recorder) begin(node string, q powersave.Request) *boot {
	b := r.boots[node]
	if b == nil || b.Request != q.ID {
		b = r.boot(node)
		b.Request, b.Requested = q.ID, q.Started
	}
	return b
}

func (r *Recorder) boot(node string) *boot {
	b := &boot{Entry: Entry{Node: node}}
	r.boots[node] = b
	return b
}

// asked is since when Kubernetes has been asked for a pod that has not come; zero: it is not.
func (b *boot) asked() time.Time {
	if b == nil || !b.asking {
		return time.Time{}
	}
	return b.Asked
}

func (b *boot) wait(job uint32) {
	if job != 0 && !slices.Contains(b.Jobs, job) {
		b.Jobs = append(slices.Clone(b.Jobs), job) // entries that wait to be written have the former list
	}
}

// phases in the order in which a boot passes them, and the entry that tells of each.
var phases = []struct {
	phase powersave.PodPhase
	what  What
}{{powersave.PodPending, PodCreated}, {powersave.PodScheduled, PodScheduled}, {powersave.PodRunning, ContainerStarted}}

func (r *Recorder) podSeen(p powersave.Pod) {
	b := r.boots[p.Node]
	// Whose pod it is the request tells; of an earlier boot there is no more to tell than that it goes.
	if b == nil || b.failed || p.Request != b.Request || p.Phase == powersave.PodTerminating {
		return
	}
	b.NodeSet, b.Offering = p.NodeSet, p.Offering
	r.pod(b, p)
	if b.done && b.phase == powersave.PodRunning {
		delete(r.boots, p.Node)
	}
}

// pod tells of the phases that the pod has reached since it was seen last.
func (r *Recorder) pod(b *boot, p powersave.Pod) {
	if b.PodUID != p.UID {
		b.PodUID, b.phase = p.UID, ""
		if !b.asking { // not by this bridge
			b.Asked = time.Time{}
		}
		b.asking = false
	}
	if p.Host != "" {
		b.Host = p.Host
	}
	rank := func(phase powersave.PodPhase) int {
		if phase == powersave.PodReady {
			phase = powersave.PodRunning
		}
		for i, known := range phases {
			if known.phase == phase {
				return i
			}
		}
		return -1
	}
	now := rank(p.Phase)
	for i := rank(b.phase) + 1; i <= now; i++ {
		e := b.Entry
		e.What = phases[i].what
		if i == 0 {
			e.Host = ""
		} else {
			e.Requested, e.Asked = time.Time{}, time.Time{}
		}
		if e.What == ContainerStarted {
			e.Pull = p.Pull
		}
		r.add(e)
		b.phase = phases[i].phase
	}
}

// updated tells of changes that people see in Slurm. Renewed idle times are none.
func (r *Recorder) updated(ev powersave.NodesUpdated) {
	u := ev.Update
	if ev.Err != "" || u.State == powersave.StateRenew || u.State == powersave.StateNone {
		return
	}
	e := Entry{What: NodesUpdated, State: string(u.State), Reason: u.Reason, Nodes: compress(u.Nodes)}
	if len(u.Nodes) == 1 {
		e.Node, e.Nodes = u.Nodes[0], ""
	}
	set := map[string]bool{}
	for _, n := range u.Nodes {
		b := r.boots[n]
		if b == nil || b.done {
			continue
		}
		set[b.NodeSet] = true
		e.NodeSet = b.NodeSet
		for _, j := range b.Jobs {
			if !slices.Contains(e.Jobs, j) && len(e.Jobs) < maxJobs {
				e.Jobs = append(e.Jobs, j)
			}
		}
	}
	if len(set) > 1 {
		e.NodeSet = ""
	}
	r.add(e)
}

// maxJobs bounds the jobs that a change of nodes is told of.
const maxJobs = 64

// report keeps what the engine says of a node or NodeSet, unless an entry of the same step does.
func (r *Recorder) report(p powersave.Report, all []powersave.Action) {
	if p.Node == "" && p.NodeSet == "" {
		return
	}
	for _, a := range all {
		if f, is := a.(powersave.BootFailed); is && f.Node == p.Node && f.Verdict.String() == p.Text {
			return
		}
	}
	e := Entry{What: Reported, Node: p.Node, NodeSet: p.NodeSet, Request: p.Request, Reason: p.Text}
	if b := r.boots[p.Node]; b != nil && !b.done {
		e.Jobs, e.Offering, e.Asked = b.Jobs, b.Offering, b.asked()
	}
	r.add(e)
}

func (r *Recorder) readable(api, why string) {
	switch {
	case why != "" && !r.unread[api]:
		r.add(Entry{What: Unreadable, API: api, Reason: why})
	case why == "" && r.unread[api]:
		r.add(Entry{What: Readable, API: api})
	}
	r.unread[api] = why != ""
}

// Counts returns what the figures of NodeSets tell that is new: breakers that open and close.
func (r *Recorder) Counts(now time.Time, counts []powersave.NodeSetCounts) []Entry {
	if r == nil {
		return nil
	}
	return r.breaker.changes(now, counts)
}

// breakers are those of NodeSets and offerings, as last told.
type breakers map[powersave.BreakerKey]powersave.BreakerRecord

func (all breakers) changes(now time.Time, counts []powersave.NodeSetCounts) (out []Entry) {
	for _, c := range counts {
		for _, b := range c.Breakers {
			old, known := all[b.Key]
			all[b.Key] = b
			same := old.State == b.State && old.Until.Equal(b.Until)
			if same || !known && b.State == powersave.BreakerClosed {
				continue
			}
			e := Entry{Time: now, What: Breaker, NodeSet: b.Key.NodeSet, Offering: b.Key.Offering, State: string(b.State)}
			if b.State != powersave.BreakerClosed {
				e.Class, e.Reason, e.Until, e.Times = string(b.Class), strings.TrimSpace(b.Reason), b.Until, b.Tries
			}
			out = append(out, e)
		}
	}
	return out
}

// lookAfter is how long after a job's nodes have registered it should run.
const lookAfter = time.Second

// maxDue bounds the jobs that Slurm is to be asked about; of further ones their times of submission stay unknown.
const maxDue = 1000

// look has Slurm asked for a job soon: slurmctld forgets them when they have ended, and with them when they were submitted.
func (r *Recorder) look(job uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, waits := r.due[job]; waits || len(r.due) < maxDue {
		r.due[job] = r.now.Add(lookAfter)
	}
}

// Due returns at most so many jobs that Slurm is to be asked about now. It may be called from any goroutine.
func (r *Recorder) Due(now time.Time, most int) []uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var jobs []uint32
	for j, at := range r.due {
		if !at.After(now) {
			jobs = append(jobs, j)
		}
	}
	slices.Sort(jobs)
	jobs = jobs[:min(most, len(jobs))]
	for _, j := range jobs {
		delete(r.due, j)
	}
	return jobs
}

// Seen tells how Slurm shows a job.
func Seen(now time.Time, j powersave.SlurmJob) Entry {
	return Entry{
		Time: now, What: JobSeen, Jobs: []uint32{j.ID}, State: j.State.String(), Reason: j.StateReason, Nodes: compress(j.Nodes),
		Submitted: j.Submitted, Eligible: j.Begin, Attempt: j.Restarts + 1,
	}
}

// Begun is the first entry of a bridge.
func Begun(now time.Time, version string) Entry {
	return Entry{Time: now, What: BridgeStarted, State: version}
}
