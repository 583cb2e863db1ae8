package powersave_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// A floor and Slurm's power saving do not fight, whatever jobs come and floors are set, however late answers are, and if now and then one is an error.
func TestFloorDoesNotFightPowerSaving(t *testing.T) {
	totals := map[string]int{}
	for seed := range uint64(300) {
		w := newFloorWorld(t, seed)
		w.run(5*time.Minute, true)
		// Jobs end, the floor stays: what is too much goes, and then nothing happens any more.
		w.run(w.suspendTime+time.Minute, false)
		require.Equal(t, w.floor, w.on(), "seed %d: %s", seed, w)
		quiet := w.counts["suspended"] + w.counts["power_up"] + w.counts["power_down"]
		w.run(4*w.suspendTime, false)
		require.Equal(t, w.floor, w.on(), "seed %d: %s", seed, w)
		require.Equal(t, quiet, w.counts["suspended"]+w.counts["power_up"]+w.counts["power_down"], "seed %d: a floor that is kept is left alone: %s", seed, w)
		for what, n := range w.counts {
			totals[what] += n
		}
	}
	for _, what := range []string{"suspended", "power_up", "power_down", "renew", "failed", "job", "raised", "lowered"} {
		require.NotZero(t, totals[what], "%s never came", what)
	}
	t.Log(totals)
}

// A bridge that has just begun goes by the SuspendTime that the status tells, until a request does. A renewal that failed is tried again after a second.
func TestFloorAfterRestart(t *testing.T) {
	for was, want := range map[time.Duration]time.Duration{0: 10 * time.Second, 8 * time.Second: 2 * time.Second, 40 * time.Second: 10 * time.Second} {
		e, now := powersave.New(powersave.Config{Alone: true}), epoch
		var renewed []time.Duration
		var read func() powersave.SlurmRead
		var take func([]powersave.Action)
		take = func(actions []powersave.Action) {
			for _, a := range actions {
				switch a := a.(type) {
				case powersave.ReadSlurm:
					take(e.Step(now, read()))
				case powersave.UpdateNodes:
					require.Equal(t, powersave.StateRenew, a.Update.State)
					renewed = append(renewed, now.Sub(epoch))
					answer := powersave.NodesUpdated{Update: a.Update}
					if n := len(renewed); n == 3 || n == 4 {
						answer.Err = "no answer"
					}
					take(e.Step(now, answer))
				}
			}
		}
		read = func() powersave.SlurmRead {
			return powersave.SlurmRead{Complete: true, Nodes: []powersave.SlurmNode{{Name: "cpu-0", State: powersave.NodeIdle | powersave.NodeCloud, LastBusy: epoch, BootTime: epoch}}}
		}
		take(e.Step(now, powersave.NodeSetsRead{NodeSets: []powersave.NodeSet{{Name: "cpu", UID: "u", Nodes: slurmconf.NewHostlist("cpu-0"), Floor: 1, SuspendTimeWas: was}}}))
		take(e.Step(now, powersave.PodSeen{Pod: powersave.Pod{Node: "cpu-0", NodeSet: "cpu", UID: "p", Phase: powersave.PodRunning, Created: now}}))
		take(e.Step(now, powersave.PodsRead{}))
		for now.Before(epoch.Add(time.Minute)) {
			now = now.Add(100 * time.Millisecond)
			take(e.Step(now, powersave.Tick{}))
		}
		require.Greater(t, len(renewed), 5)
		require.InDelta(t, time.Second, renewed[3]-renewed[2], float64(200*time.Millisecond), "%v: %v", was, renewed)
		require.InDelta(t, time.Second, renewed[4]-renewed[3], float64(200*time.Millisecond), "%v: %v", was, renewed)
		require.InDelta(t, want, renewed[2]-renewed[1], float64(500*time.Millisecond), "%v: %v", was, renewed)
	}
}

// floorWorld is slurmctld with its power saving, Kubernetes where boots go well, and an engine; one NodeSet.
type floorWorld struct {
	t           *testing.T
	rnd         *rand.Rand
	seed        uint64
	engine      *powersave.Engine
	now         time.Time
	later       []laterEvent // by time
	nodes       []*floorNode
	floor       int
	floorAt     time.Time // when it was set
	suspendTime time.Duration
	requests    int64
	counts      map[string]int
	told        bool           // requests say what SuspendTime is
	failed      map[string]int // calls in a row, by kind
	log         []string
}

type laterEvent struct {
	at time.Time
	do func()
}

type floorNode struct {
	name     string
	state    powersave.NodeState // IDLE or ALLOCATED, and power words
	job      uint32
	lastBusy time.Time
	pod      string
}

func newFloorWorld(t *testing.T, seed uint64) *floorWorld {
	w := &floorWorld{
		t: t, seed: seed, failed: map[string]int{}, rnd: rand.New(rand.NewPCG(seed, 0)), engine: powersave.New(powersave.Config{Alone: true}), now: epoch, counts: map[string]int{},
	}
	w.suspendTime = powersave.SuspendTimeSafe + time.Duration(w.rnd.IntN(50))*time.Second
	w.told = w.rnd.IntN(4) > 0
	for i := range 8 {
		w.nodes = append(w.nodes, &floorNode{name: fmt.Sprintf("cpu-%d", i), state: powersave.NodeIdle | powersave.NodeCloud | powersave.NodePoweredDown})
	}
	w.setFloor(w.rnd.IntN(4))
	w.step(powersave.PodsRead{})
	return w
}

func (w *floorWorld) String() string { return strings.Join(w.log[max(0, len(w.log)-60):], "\n") }

func (w *floorWorld) logf(format string, args ...any) {
	w.log = append(w.log, w.now.Sub(epoch).String()+" "+fmt.Sprintf(format, args...))
}

// upTo is a time between a tenth of most and most.
func (w *floorWorld) upTo(most time.Duration) time.Duration {
	return most/10 + time.Duration(w.rnd.Int64N(int64(most-most/10)))
}

func (w *floorWorld) after(d time.Duration, do func()) {
	e := laterEvent{w.now.Add(d), do}
	at, _ := slices.BinarySearchFunc(w.later, e, func(a, b laterEvent) int {
		if a.at.After(b.at) {
			return 1
		}
		return -1
	})
	w.later = slices.Insert(w.later, at, e)
}

func (w *floorWorld) node(name string) *floorNode {
	return w.nodes[slices.IndexFunc(w.nodes, func(n *floorNode) bool { return n.name == name })]
}

func (w *floorWorld) setFloor(n int) {
	switch {
	case n > w.floor:
		w.counts["raised"]++
	case n < w.floor:
		w.counts["lowered"]++
	}
	w.floor, w.floorAt = n, w.now
	w.logf("floor %d", n)
	var names []string
	for _, n := range w.nodes {
		names = append(names, n.name)
	}
	w.step(powersave.NodeSetsRead{NodeSets: []powersave.NodeSet{{Name: "cpu", UID: "u", Nodes: slurmconf.NewHostlist(names...), Floor: n}}})
}

// on counts the nodes that are up, or on their way.
func (w *floorWorld) on() (on int) {
	for _, n := range w.nodes {
		if !n.state.Any(powersave.NodePoweredDown|powersave.NodePoweringDown|powersave.NodePowerDown) || n.state.Any(powersave.NodePowerUp) || n.job != 0 {
			on++
		}
	}
	return on
}

// run lets time pass; with changes, jobs come and floors are set meanwhile.
func (w *floorWorld) run(d time.Duration, changes bool) {
	end := w.now.Add(d)
	second := w.now
	for w.now.Before(end) {
		next := second.Add(time.Second)
		if len(w.later) > 0 && w.later[0].at.Before(next) {
			next = w.later[0].at
		}
		if wake := w.engine.NextWake(); !wake.IsZero() && wake.Before(next) {
			next = wake
		}
		if next.After(w.now) {
			w.now = next
		}
		for len(w.later) > 0 && !w.later[0].at.After(w.now) {
			e := w.later[0]
			w.later = w.later[1:]
			e.do()
		}
		if !w.now.Before(second.Add(time.Second)) {
			second = w.now
			if changes {
				w.change()
			}
			w.powerSave()
		}
		w.step(powersave.Tick{})
	}
}

func (w *floorWorld) change() {
	switch w.rnd.IntN(30) {
	case 0:
		w.setFloor(w.rnd.IntN(6))
	case 1, 2:
		w.submit(1 + w.rnd.IntN(4))
	case 3: // a job, and KEDA raises the floor for it
		n := 1 + w.rnd.IntN(4)
		w.after(w.upTo(2*time.Second), func() { w.submit(n) })
		w.after(w.upTo(time.Second), func() { w.setFloor(max(w.floor, 1)) })
	}
}

// submit gives a job nodes, those that are up first, as slurmctld does.
func (w *floorWorld) submit(nodes int) {
	var free []*floorNode
	for _, n := range w.nodes {
		if n.job == 0 && !n.state.Any(powersave.NodePoweringDown|powersave.NodePowerDown|powersave.NodePoweringUp|powersave.NodePowerUp) {
			free = append(free, n)
		}
	}
	slices.SortStableFunc(free, func(a, b *floorNode) int {
		return int(a.state&powersave.NodePoweredDown) - int(b.state&powersave.NodePoweredDown)
	})
	if len(free) < nodes {
		return
	}
	w.counts["job"]++
	w.requests++
	job := uint32(w.requests)
	var names []string
	for _, n := range free[:nodes] {
		n.job, n.state = job, n.state&^powersave.NodeIdle|powersave.NodeAllocated
		names = append(names, n.name)
	}
	w.logf("job %d on %v", job, names)
	w.after(w.upTo(40*time.Second), func() { w.finish(job) })
}

func (w *floorWorld) finish(job uint32) {
	for _, n := range w.nodes {
		if n.job == job && n.state.Any(powersave.NodePoweringUp|powersave.NodePoweredDown) { // it has yet to start
			w.after(time.Second, func() { w.finish(job) })
			return
		}
	}
	for _, n := range w.nodes {
		if n.job == job {
			n.job, n.state, n.lastBusy = 0, n.state&^powersave.NodeAllocated|powersave.NodeIdle, w.now
		}
	}
	w.logf("job %d ends", job)
}

// powerSave is slurmctld's thread of that name (power_save.c).
func (w *floorWorld) powerSave() {
	up, down := map[uint32][]string{}, []string(nil)
	for _, n := range w.nodes {
		switch {
		case n.state.Any(powersave.NodePoweredDown) && (n.job != 0 || n.state.Any(powersave.NodePowerUp)):
			n.state = n.state&^(powersave.NodePoweredDown|powersave.NodePowerUp) | powersave.NodePoweringUp
			up[n.job] = append(up[n.job], n.name)
		case n.job != 0 || n.state.Any(powersave.NodePoweredDown|powersave.NodePoweringDown|powersave.NodePoweringUp):
		case n.state.Any(powersave.NodePowerDown):
			n.state = n.state&^powersave.NodePowerDown | powersave.NodePoweringDown
			down = append(down, n.name)
		case w.now.Sub(n.lastBusy) > w.suspendTime:
			n.state |= powersave.NodePoweringDown
			down = append(down, n.name)
			w.counts["suspended"]++
			w.logf("SuspendTime takes %s", n.name)
			if w.now.Sub(w.floorAt) > powersave.SuspendTimeSafe {
				require.GreaterOrEqual(w.t, w.on(), w.floor, "seed %d: %s was the floor's: %s", w.seed, n.name, w)
			}
		}
	}
	for _, job := range slices.Sorted(maps.Keys(up)) {
		w.request(spool.KindResume, job, up[job])
	}
	w.request(spool.KindSuspend, 0, down)
}

func (w *floorWorld) request(kind spool.Kind, job uint32, names []string) {
	if len(names) == 0 {
		return
	}
	w.requests++
	r := powersave.Request{
		ID: fmt.Sprint("r", w.requests), Sequence: w.requests, Kind: kind, Started: w.now, Nodes: slurmconf.NewHostlist(names...),
	}
	if w.told {
		r.SuspendTime = w.suspendTime
	}
	if job != 0 {
		r.Jobs = []powersave.Job{{ID: job, Nodes: r.Nodes}}
	}
	w.logf("%s %v job=%d", kind, names, job)
	w.after(w.upTo(200*time.Millisecond), func() { w.step(powersave.RequestAccepted{Request: r}) })
}

func (w *floorWorld) step(ev powersave.Event) {
	for _, a := range w.engine.Step(w.now, ev) {
		switch a := a.(type) {
		case powersave.ReadSlurm:
			w.read(a.Nodes)
		case powersave.UpdateNodes:
			w.update(a.Update)
		case powersave.CreatePod:
			w.create(a)
		case powersave.DeletePod:
			n := w.node(a.Node)
			require.True(w.t, n.job == 0 && n.state.Any(powersave.NodePoweringDown|powersave.NodePoweredDown), "seed %d: the pod of %s, %s, is deleted: %s", w.seed, n.name, n.state, w)
			w.after(w.upTo(time.Second), func() {
				n.pod = ""
				w.step(powersave.PodDeleted{Node: a.Node, UID: a.UID, Gone: true})
			})
		}
	}
}

// fails says whether a call comes to nothing; never three of a kind in a row: see SuspendTimeSafe.
func (w *floorWorld) fails(kind string) bool {
	if w.failed[kind] == 2 || w.rnd.IntN(10) >= 3 {
		w.failed[kind] = 0
		return false
	}
	w.failed[kind]++
	w.counts["failed"]++
	return true
}

// read answers late, with what was true when it was asked, or when it is answered.
func (w *floorWorld) read(names []string) {
	look := func() powersave.SlurmRead {
		read := powersave.SlurmRead{Complete: len(names) == 0}
		for _, n := range w.nodes {
			if len(names) == 0 || slices.Contains(names, n.name) {
				read.Nodes = append(read.Nodes, powersave.SlurmNode{Name: n.name, State: n.state, LastBusy: n.lastBusy, BootTime: n.lastBusy})
			}
		}
		return read
	}
	early, fails := look(), w.fails("read")
	late := w.rnd.IntN(2) == 0
	w.after(w.upTo(500*time.Millisecond), func() {
		switch {
		case fails:
			w.step(powersave.SlurmReadFailed{Err: "no answer"})
		case late:
			w.step(look())
		default:
			w.step(early)
		}
	})
}

func (w *floorWorld) update(u powersave.NodeUpdate) {
	w.counts[string(u.State)]++
	if u.State != powersave.StateRenew {
		w.logf("asked: %s", u)
	}
	fails, done := w.fails(string(u.State)), w.rnd.IntN(2) == 0 // an error may come after it was done
	w.after(w.upTo(500*time.Millisecond), func() {
		if !fails || done {
			for _, name := range u.Nodes {
				w.node(name).change(u.State, w.now)
			}
		}
		w.after(w.upTo(500*time.Millisecond), func() {
			ev := powersave.NodesUpdated{Update: u}
			if fails {
				ev.Err = "no answer"
			}
			w.step(ev)
		})
	})
}

// change is node_mgr.c update_node.
func (n *floorNode) change(to powersave.StateChange, now time.Time) {
	switch to {
	case powersave.StateRenew:
		if (powersave.SlurmNode{State: n.state}).PlainlyIdle() {
			n.lastBusy = now
		}
	case powersave.StatePowerUp:
		if n.state.Any(powersave.NodePoweredDown) {
			n.state |= powersave.NodePowerUp
		}
	case powersave.StatePowerDown:
		n.state |= powersave.NodePowerDown
	case powersave.StateResume:
		if n.state.Any(powersave.NodePoweringDown) {
			n.state = n.state&^powersave.NodePoweringDown | powersave.NodePoweredDown
		}
	default:
	}
}

// create makes a pod whose slurmd registers a while later.
func (w *floorWorld) create(a powersave.CreatePod) {
	w.requests++
	n, uid := w.node(a.Node), fmt.Sprint("u", w.requests)
	w.after(w.upTo(300*time.Millisecond), func() {
		n.pod = uid
		w.step(powersave.PodCreated{Node: n.name, UID: uid, Generation: a.Generation})
		pod := powersave.Pod{Node: n.name, NodeSet: "cpu", UID: uid, Generation: a.Generation, Request: a.Request, Phase: powersave.PodRunning, Created: w.now, Busy: a.Job != 0}
		w.step(powersave.PodSeen{Pod: pod})
		w.after(w.upTo(4*time.Second), func() {
			if n.pod == uid && n.state.Any(powersave.NodePoweringUp) {
				n.state &^= powersave.NodePoweringUp
				n.lastBusy = w.now
				w.logf("%s registers", n.name)
			}
		})
	})
}
