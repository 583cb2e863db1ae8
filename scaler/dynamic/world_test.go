package dynamic

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/slurmconf"
)

const owner = "slurmtide: NodeSet ns/"

// world is Slurm and Kubernetes as far as they matter: slurmctld starts jobs on idle nodes that are not drained, pods register.
type world struct {
	now     time.Time
	planner *Planner
	sets    []powersave.NodeSet

	records  map[string]*powersave.SlurmNode
	shape    scaler.Shape
	pods     map[string]*powersave.Pod
	jobs     []*job
	reserved map[string]string
	lastUID  int
	lastJob  uint32

	asked   int
	reading *Reading
	blind   bool
	todo    []Action // asked for, not carried out yet
	broken  []string // promises that were not kept
	reports []Report
	created int
	shown   map[string]bool // UIDs of pods that a planner was shown
	updates int             // of records' states
	hosts   map[string]string
	leaving map[string]bool // UIDs of pods that were to go from hosts in trouble
	most    int             // MaxNodeCount
	also    func(*Facts)    // adds to what the planner is shown
}

type job struct {
	id        uint32
	count     int
	wants     string // --nodelist
	avoids    string // --exclude
	held      bool
	suspended bool // its nodes show IDLE
	on        []string
	running   bool
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newWorld(names string, floor int, change ...func(*powersave.NodeSet)) *world {
	nodes, err := slurmconf.ParseHostlist(names)
	if err != nil {
		panic(err)
	}
	set := powersave.NodeSet{Name: "dyn", UID: "set", SpecGeneration: 1, Nodes: nodes, Floor: floor, Dynamic: &powersave.Dynamic{
		IdleTime: 30 * time.Second, CPUs: 2, Memory: 1000,
	}}
	for _, c := range change {
		c(&set)
	}
	return &world{
		now: start, planner: New(Config{Owner: owner}), sets: []powersave.NodeSet{set},
		records: map[string]*powersave.SlurmNode{}, pods: map[string]*powersave.Pod{}, reserved: map[string]string{},
		shape: scaler.Shape{CPUs: 2, Memory: 1000}, shown: map[string]bool{}, hosts: map[string]string{}, leaving: map[string]bool{},
	}
}

func (w *world) submit(count int, wants ...string) *job {
	w.lastJob++
	j := &job{id: w.lastJob, count: count, wants: strings.Join(wants, ",")}
	w.jobs = append(w.jobs, j)
	return j
}

func (w *world) end(j *job) {
	w.jobs = slices.DeleteFunc(w.jobs, func(o *job) bool { return o == j })
	for _, name := range j.on {
		if r := w.records[name]; r != nil && !r.State.Any(powersave.NodeDown) {
			r.State &^= powersave.NodeAllocated
			r.State |= powersave.NodeIdle
			r.LastBusy = w.now
		}
	}
}

// schedule does what slurmctld does.
func (w *world) schedule() {
	for _, j := range w.jobs {
		if j.running || j.held {
			continue
		}
		var on []string
		for _, name := range slices.Sorted(maps.Keys(w.records)) {
			r := w.records[name]
			usable := r.State.Any(powersave.NodeIdle) && !r.State.Any(powersave.NodeDrain|powersave.NodeDown|powersave.NodeNotResponding|powersave.NodeInvalidReg) && w.reserved[name] == ""
			if usable && !w.occupied(name) && (j.wants == "" || strings.Contains(","+j.wants+",", ","+name+",")) && !strings.Contains(","+j.avoids+",", ","+name+",") && len(on) < j.count {
				on = append(on, name)
			}
		}
		if len(on) < j.count {
			continue
		}
		j.on, j.running = on, true
		for _, name := range on {
			r := w.records[name]
			r.State &^= powersave.NodeIdle
			r.State |= powersave.NodeAllocated
		}
	}
}

// occupied reports that a job is on the node, and be it suspended.
func (w *world) occupied(name string) bool {
	return slices.ContainsFunc(w.jobs, func(j *job) bool { return slices.Contains(j.on, name) })
}

// suspend lets slurmctld suspend a job, or resume it: to do so it wants its nodes to be up.
func (w *world) suspend(j *job, suspended bool) {
	if !j.running || j.suspended == suspended {
		return
	}
	for _, name := range j.on {
		if r := w.records[name]; r == nil || r.State.Any(powersave.NodeDown) {
			return
		}
	}
	j.suspended = suspended
	for _, name := range j.on {
		r := w.records[name]
		r.State &^= powersave.NodeAllocated | powersave.NodeIdle
		if suspended {
			r.State |= powersave.NodeIdle
		} else {
			r.State |= powersave.NodeAllocated
		}
	}
}

// boot lets a pod get as far as registering.
func (w *world) boot(name string) {
	pod := w.pods[name]
	if pod == nil || pod.Phase == powersave.PodTerminating || pod.Phase == powersave.PodFailed {
		return
	}
	pod.Phase, pod.Trouble, pod.Host = powersave.PodRunning, powersave.TroubleNone, hostOf(pod.UID)
	r := w.records[name]
	if r == nil {
		r = &powersave.SlurmNode{Name: name, State: powersave.NodeIdle | powersave.NodeDynamicNorm, LastBusy: w.now, Partitions: []string{"all"}}
		w.records[name] = r
	}
	if r.InstanceID == pod.UID {
		return
	}
	r.InstanceID = pod.UID
	r.State &^= powersave.NodeDown | powersave.NodeNotResponding // ReturnToService=2
	if !r.State.Any(powersave.NodeAllocated) {
		r.State |= powersave.NodeIdle
	}
}

// hostOf is h0 or h1.
func hostOf(uid string) string { return fmt.Sprintf("h%d", uid[len(uid)-1]%2) }

// vanish takes a pod away, as somebody else may; if its node has a job, slurmctld does not know yet.
func (w *world) vanish(name string) { delete(w.pods, name) }

// read begins a read of Slurm and returns what it will say.
func (w *world) read() *Reading {
	w.asked++
	r := &Reading{Number: w.asked, Answered: w.now, Reservations: map[string]string{}, Queue: scaler.Snapshot{Partitions: []scaler.Partition{{Name: "all", AllNodes: true}}}}
	r.Queue.Select.MaxNodeCount = w.most
	for node, name := range w.reserved {
		r.Reservations[name+" of "+node] = node
	}
	for _, name := range slices.Sorted(maps.Keys(w.records)) {
		rec := *w.records[name]
		r.Records = append(r.Records, rec)
		n := scaler.Node{Name: name, Partitions: rec.Partitions, Shape: &w.shape}
		switch {
		case rec.State.Any(powersave.NodeDrain | powersave.NodeDown | powersave.NodeNotResponding):
		case w.reserved[name] != "":
			n.State, n.Reservation = scaler.NodeUp, w.reserved[name]
		default:
			n.State = scaler.NodeUp
		}
		if rec.State.Any(powersave.NodeAllocated) || w.occupied(name) { // suspended jobs keep what they have, here
			n.AllocCPUs = 2
		}
		r.Queue.Nodes = append(r.Queue.Nodes, n)
	}
	for _, j := range w.jobs {
		q := scaler.Job{ID: j.id, Priority: 1, Reason: "Resources"}
		if j.running {
			q.State, q.Nodes = scaler.JobRunning, slurmconf.CompressHostlist(j.on)
		}
		if j.held {
			q.Priority, q.Reason = 0, "JobHeldUser"
		}
		q.Request = scaler.Request{Partitions: "all", MinNodes: uint32(j.count), Tasks: uint32(j.count), CPUs: uint32(2 * j.count), CPUsPerTask: 2, RequiredNodes: j.wants, ExcludedNodes: j.avoids}
		r.Queue.Jobs = append(r.Queue.Jobs, q)
	}
	return r
}

// step shows the planner what there is, and notes what it wants.
func (w *world) step() {
	f := Facts{Sets: w.sets, Blind: w.blind, Slurm: w.reading, Asked: w.asked}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		f.Pods = append(f.Pods, *w.pods[name])
		w.shown[w.pods[name].UID] = w.shown[w.pods[name].UID] || !w.blind
	}
	if w.also != nil {
		w.also(&f)
	}
	for _, a := range w.planner.Step(w.now, f) {
		if r, ok := a.(Report); ok {
			w.reports = append(w.reports, r)
			continue
		}
		w.todo = append(w.todo, a)
		if d, ok := a.(DeletePod); ok && w.also != nil {
			pod, r := w.pods[d.Node], w.records[d.Node]
			w.leaving[d.UID] = pod != nil && w.hosts[pod.Host] != ""
			if pod != nil && pod.Phase != powersave.PodFailed && r != nil && r.Comment == owner+"dyn, pod "+d.UID && strings.HasPrefix(r.Reason, powersave.HostPrefix) && w.hosts[pod.Host] == powersave.HostNotReady {
				w.breaks("%+v: nobody could confirm that the pod ends: its host is silent", a)
			}
		}
	}
}

func (w *world) breaks(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

// names reports who names a node.
func (w *world) names(name string) string {
	if by := w.reserved[name]; by != "" {
		return "reservation " + by
	}
	for _, j := range w.jobs {
		if slices.Contains(j.on, name) || slices.Contains(strings.Split(j.wants+","+j.avoids, ","), name) {
			return fmt.Sprintf("job %d", j.id)
		}
	}
	return ""
}

// carry carries an action out, and checks that it does no harm. With fail it does not happen; with lost
// it happens, and the planner is told that it did not.
func (w *world) carry(a Action, fail, lost bool) {
	o := Outcome{}
	if fail || lost {
		o.Err = "made to fail"
	}
	if !fail {
		w.effect(a, &o)
	}
	w.planner.Done(w.now, w.asked, a, o)
}

func (w *world) effect(a Action, o *Outcome) {
	switch a := a.(type) {
	case CreatePod:
		if !w.sets[0].Nodes.Contains(a.Node) {
			w.breaks("%s is not a name of the NodeSet", a.Node)
		}
		if w.pods[a.Node] != nil {
			o.Err, o.Permanent = "exists", true
			return
		}
		if r := w.records[a.Node]; r != nil && !w.mine(r) {
			w.breaks("%+v: the node is somebody else's", a)
		}
		w.lastUID++
		w.created++
		w.pods[a.Node] = &powersave.Pod{Node: a.Node, NodeSet: a.NodeSet, UID: fmt.Sprintf("uid-%d", w.lastUID), Generation: a.Generation, Offering: a.Offering, Phase: powersave.PodPending, Created: w.now, Dynamic: true, Revision: w.sets[0].Revision}
	case DeletePod:
		pod, r := w.pods[a.Node], w.records[a.Node]
		if pod == nil || pod.UID != a.UID {
			return
		}
		if r != nil && pod.Phase != powersave.PodFailed && !MayGo(*r, a.UID) {
			o.Err = "not any more"
			return
		}
		if r != nil && r.InstanceID == a.UID && pod.Phase != powersave.PodFailed {
			if r.State.Any(powersave.NodeAllocated) || w.occupied(a.Node) {
				w.breaks("%+v: the node has a job", a)
			}
			// One that was given up while it booted may have registered meanwhile, on a record that stays drained.
			if by := w.reserved[a.Node]; by != "" && strings.HasSuffix(r.Comment, " "+a.UID) && !w.leaving[a.UID] && !r.State.Any(powersave.NodeDown|powersave.NodeNotResponding) {
				w.breaks("%+v: the node is named by %s", a, by)
			}
			if !r.State.Any(powersave.NodeDrain | powersave.NodeDown) {
				w.breaks("%+v: the node may get a job any moment: %v", a, r.State)
			}
		}
		delete(w.pods, a.Node)
	case Update:
		w.updates++
		for _, name := range a.Nodes {
			r := w.records[name]
			if r == nil {
				o.Err, o.Missing = "no such node", true
				continue
			}
			if !w.mine(r) {
				w.breaks("%v: the node is somebody else's", a)
			}
			if a.Comment != "" {
				r.Comment = a.Comment
			}
			w.mayReplace(name, a)
			switch a.State {
			case powersave.StateDrain:
				r.State |= powersave.NodeDrain
				r.Reason = a.Reason
			case powersave.StateUndrain:
				r.State &^= powersave.NodeDrain
				r.Reason = ""
			case powersave.StateDown:
				if pod := w.pods[name]; pod != nil && pod.UID == r.InstanceID && pod.Phase != powersave.PodFailed {
					w.breaks("%v: its pod runs", a)
				}
				r.State = r.State&^(powersave.NodeAllocated|powersave.NodeIdle|powersave.NodeCompleting) | powersave.NodeDown
				r.Reason = a.Reason
				for _, j := range w.jobs {
					if slices.Contains(j.on, name) {
						w.requeue(j)
					}
				}
			case powersave.StateResume:
				r.State = r.State&^powersave.NodeDown | powersave.NodeIdle
			default:
			}
		}
	case DeleteRecord:
		r := w.records[a.Node]
		if r == nil {
			o.Err, o.Missing = "no such node", true
			return
		}
		if !w.mine(r) {
			w.breaks("%+v: the node is somebody else's", a)
		}
		if r.State.Any(powersave.NodeAllocated) || w.reserved[a.Node] != "" || w.occupied(a.Node) {
			o.Err = "busy"
			w.breaks("%+v: in use", a)
			return
		}
		if by := w.names(a.Node); by != "" {
			w.breaks("%+v: the node is named by %s", a, by)
		}
		if pod := w.pods[a.Node]; pod != nil && pod.UID == r.InstanceID && pod.Phase != powersave.PodFailed {
			w.breaks("%+v: its pod runs", a)
		}
		delete(w.records, a.Node)
	case MarkPod:
		if pod := w.pods[a.Node]; pod != nil && pod.UID == a.UID {
			pod.Busy = a.Busy
		}
	}
}

func (w *world) requeue(j *job) {
	for _, name := range j.on {
		if r := w.records[name]; r != nil && r.State.Any(powersave.NodeAllocated) {
			r.State &^= powersave.NodeAllocated
			r.State |= powersave.NodeIdle
		}
	}
	j.on, j.running, j.suspended = nil, false, false
}

func (w *world) mine(r *powersave.SlurmNode) bool {
	return strings.HasPrefix(r.InstanceID, "uid-")
}

// second lets a second pass in which everything works.
func (w *world) second(boots bool) {
	w.now = w.now.Add(time.Second)
	w.schedule()
	w.reading = w.read()
	w.step()
	for _, a := range w.todo {
		w.carry(a, false, false)
	}
	w.todo = nil
	if boots {
		for _, name := range slices.Sorted(maps.Keys(w.pods)) {
			w.boot(name)
		}
	}
}

func (w *world) seconds(n int) {
	for range n {
		w.second(true)
	}
}

func (w *world) running() (n int) {
	for _, j := range w.jobs {
		if j.running {
			n++
		}
	}
	return n
}
