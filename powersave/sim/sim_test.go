// Package sim_test drives powersave.Engine with a model of Slurm and a model of Kubernetes through
// random schedules: late, reordered, doubled, failed and lost calls, crashes of the bridge,
// administrators who interfere. What must hold whatever happens is checked all the time; what must
// come to pass is checked after the faults have stopped. A schedule follows from its seed.
package sim_test

import (
	"container/heap"
	"flag"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

var (
	seeds = flag.Int("seeds", 300, "how many schedules to try")
	first = flag.Uint64("first", 1, "seed of the first schedule")
	trace = flag.Bool("show", false, "print what happens in the first schedule")
)

const (
	chaos  = 150 * time.Second // with faults and new jobs
	calm   = 300 * time.Second // until all must be back at zero
	patrol = 90 * time.Second  // an orphan may live, or a power-up stay without a pod: idle poll, sightings and a bit
	stale  = 15 * time.Second  // what a decision to delete may be behind Slurm: one slow read and a bit
)

func TestSchedules(t *testing.T) {
	found := map[string][]uint64{}
	sample := map[string]string{}
	for i := range *seeds {
		seed := *first + uint64(i)
		var out io.Writer
		if *trace && i == 0 {
			out = os.Stdout
		}
		w := run(seed, out)
		if i%50 == 0 && run(seed, nil).hash.Sum64() != w.hash.Sum64() {
			w.breaks("determinism", "the same seed gave other actions")
		}
		for promise, how := range w.broken {
			if found[promise] = append(found[promise], seed); len(found[promise]) == 1 {
				sample[promise] = how
			}
		}
	}
	for _, promise := range slices.Sorted(maps.Keys(found)) {
		list := found[promise]
		t.Errorf("%s in %d of %d schedules, seeds %v: %s", promise, len(list), *seeds, list[:min(len(list), 5)], sample[promise])
	}
}

// world holds the clock, the queue of what is to happen, and the engine under test.
type world struct {
	*rand.Rand
	now, start time.Time
	queue      events
	order      int
	out        io.Writer
	hash       hash.Hash64       // of all actions
	broken     map[string]string // promises, and how each was broken first

	engine         *powersave.Engine // nil while the bridge is down
	life           int               // counts starts of the bridge; answers of an earlier life are lost
	wake           int
	spins          int
	kubeAway       time.Time // until then no call to the API server works
	slurmAway      time.Time // nor one to slurmrestd
	reads          []time.Time
	setsAt         time.Time
	setB           bool // NodeSet b exists
	setGone        bool // it was away once
	listed         bool // this life's watch of pods has begun
	watchFrom      time.Time
	watchAt        time.Time // when the last news arrive
	spool          []powersave.Request
	epochs         map[string]map[string]int // request: node: power epoch it was made for
	sequence       int64
	lastID, gateID int

	slurm
	pods map[string]*pod
	uids int
}

func run(seed uint64, out io.Writer) *world {
	w := &world{
		Rand: rand.New(rand.NewPCG(seed, 1)), start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), out: out, hash: fnv.New64a(),
		setB: true, epochs: map[string]map[string]int{}, pods: map[string]*pod{}, broken: map[string]string{},
	}
	w.now = w.start
	w.init()
	w.startBridge()
	w.after(w.upTo(time.Second), w.power)
	w.after(w.upTo(time.Second), w.patrol)
	for range 4 + w.IntN(12) {
		w.after(w.upTo(chaos), w.submit)
	}
	for range w.IntN(25) {
		w.after(w.upTo(chaos), w.interfere)
	}
	for range w.IntN(3) {
		w.after(w.upTo(chaos), w.outage)
	}
	for range w.IntN(3) {
		w.after(w.upTo(chaos), w.crash)
	}
	for len(w.queue) > 0 && w.queue[0].at.Before(w.start.Add(chaos+calm)) {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
	}
	w.final()
	return w
}

// faulty says whether faults may still happen.
func (w *world) faulty() bool { return w.now.Before(w.start.Add(chaos)) }

// quiet says that the bridge has had time to recover from every fault.
func (w *world) quiet() bool {
	return w.now.After(w.start.Add(chaos+45*time.Second)) && w.engine != nil && w.listed && w.now.Sub(w.watchFrom) > 20*time.Second
}

func (w *world) chance(p float64) bool   { return w.faulty() && w.Float64() < p }
func (w *world) ago(t time.Time) float64 { return w.now.Sub(t).Seconds() }
func (w *world) upTo(d time.Duration) time.Duration {
	return time.Duration(w.Int64N(int64(d))).Truncate(time.Millisecond)
}

// delay is mostly short; while there are faults it is sometimes long.
func (w *world) delay(usual, worst time.Duration) time.Duration {
	if w.chance(0.08) {
		return w.upTo(worst)
	}
	return w.upTo(usual)
}

func (w *world) logf(format string, args ...any) {
	if w.out != nil {
		fmt.Fprintf(w.out, "%8.3f  %s\n", w.ago(w.start), fmt.Sprintf(format, args...))
	}
}

// breaks notes a broken promise.
func (w *world) breaks(promise, format string, args ...any) {
	if w.broken[promise] == "" {
		w.broken[promise] = fmt.Sprintf("at %.3f ", w.ago(w.start)) + fmt.Sprintf(format, args...)
		w.logf("BROKEN: %s: %s", promise, w.broken[promise])
	}
}

// after lets f happen in d.
func (w *world) after(d time.Duration, f func()) {
	w.order++
	heap.Push(&w.queue, event{w.now.Add(d), w.order, f})
}

// teller hands the engine an event after a while.
type teller func(time.Duration, powersave.Event)

// answerer returns a teller whose news get lost when the bridge ends before they arrive.
func (w *world) answerer() teller {
	life := w.life
	return func(d time.Duration, ev powersave.Event) {
		w.after(d, func() {
			if life == w.life {
				w.step(ev)
			}
		})
	}
}

func (w *world) tell(d time.Duration, ev powersave.Event) { w.answerer()(d, ev) }

func (w *world) step(ev powersave.Event) {
	if w.engine == nil {
		return
	}
	if _, tick := ev.(powersave.Tick); !tick {
		w.logf("  <- %T %+v", ev, ev)
	}
	for _, a := range w.engine.Step(w.now, ev) {
		fmt.Fprintf(w.hash, "%v%T%v", w.now.UnixNano(), a, a)
		w.logf("  -> %T %+v", a, a)
		w.act(a)
	}
	w.wake++
	next := w.engine.NextWake()
	if next.IsZero() {
		return
	}
	if w.spins++; next.After(w.now) {
		w.spins = 0
	} else if w.spins > 5 {
		w.breaks("busy loop", "NextWake stays at %v", next)
		return
	}
	wake := w.wake
	w.after(max(next.Sub(w.now), 0), func() {
		if wake == w.wake {
			w.step(powersave.Tick{})
		}
	})
}

// The bridge.

func (w *world) startBridge() {
	w.logf("bridge starts")
	w.engine, w.listed = powersave.New(powersave.Config{}), false
	w.life++
	w.spins = 0
	for _, r := range slices.Clone(w.spool) {
		w.step(powersave.RequestAccepted{Request: r})
	}
	w.setsAt = w.now.Add(w.delay(time.Second, 40*time.Second))
	w.tellSets(w.setsAt.Sub(w.now))
	life := w.life
	w.after(w.setsAt.Sub(w.now)+w.delay(time.Second, 40*time.Second), func() { w.listPods(life) })
}

func (w *world) tellSets(d time.Duration) {
	life := w.life
	w.after(d, func() {
		if life != w.life {
			return
		}
		sets := []powersave.NodeSet{{Name: "a", Nodes: slurmconf.NewHostlist("n0", "n1", "n2", "n3")}}
		if w.setB {
			sets = append(sets, powersave.NodeSet{Name: "b", Nodes: slurmconf.NewHostlist("n4", "n5")})
		}
		w.step(powersave.NodeSetsRead{NodeSets: sets})
	})
}

func (w *world) crash() {
	if w.engine == nil {
		return
	}
	w.logf("bridge crashes")
	w.engine = nil
	w.life++
	for _, n := range w.nodes {
		n.creating = 0
	}
	for _, j := range w.jobs {
		j.gate = 0 // its start-gate notices and lets the job go
	}
	w.after(w.delay(5*time.Second, time.Minute), w.startBridge)
}

// outage takes away the API server or slurmrestd for a while.
func (w *world) outage() {
	until := w.now.Add(min(w.upTo(time.Minute), max(0, w.start.Add(chaos-40*time.Second).Sub(w.now)))) // reads may then pause for 30 s
	if w.IntN(3) > 0 {
		w.kubeAway = until
	} else {
		w.slurmAway = until
	}
	w.logf("an API is away: Kubernetes until %.3f, slurmrestd until %.3f", w.kubeAway.Sub(w.start).Seconds(), w.slurmAway.Sub(w.start).Seconds())
}

// program is a run of ResumeProgram, SuspendProgram or ResumeFailProgram.
func (w *world) program(kind spool.Kind, nodes []*node) {
	if len(nodes) == 0 {
		return
	}
	r := powersave.Request{Kind: kind, Started: w.now}
	epochs := map[string]int{}
	var names []string
	for _, n := range nodes {
		names = append(names, n.name)
		epochs[n.name] = n.epoch
		if kind == spool.KindResume && n.job != nil && !slices.ContainsFunc(r.Jobs, func(j powersave.Job) bool { return j.ID == n.job.id }) {
			r.Jobs = append(r.Jobs, powersave.Job{ID: n.job.id, Nodes: hostlist(n.job.nodes)})
		}
	}
	if w.chance(0.03) {
		names = append(names, names[0])
	}
	if w.chance(0.02) {
		names = append(names, "ghost")
	}
	r.Nodes = slurmconf.NewHostlist(names...)
	w.after(w.delay(50*time.Millisecond, 10*time.Second), func() {
		w.sequence = max(w.sequence+1, w.now.UnixNano())
		w.lastID++
		r.Sequence, r.ID = w.sequence, fmt.Sprintf("%s%d", kind, w.lastID)
		w.epochs[r.ID] = epochs
		w.after(w.delay(10*time.Millisecond, 2*time.Second), func() { // until the file is there
			w.spool = append(w.spool, r)
			slices.SortFunc(w.spool, func(a, b powersave.Request) int { return int(a.Sequence - b.Sequence) })
			w.logf("spool %s nodes=%v", r.ID, names)
			w.tell(w.delay(5*time.Millisecond, 2*time.Second), powersave.RequestAccepted{Request: r})
			if w.chance(0.05) {
				w.after(w.upTo(5*time.Second), func() {
					if slices.ContainsFunc(w.spool, func(o powersave.Request) bool { return o.ID == r.ID }) {
						w.step(powersave.RequestAccepted{Request: r})
					}
				})
			}
		})
	})
}

func (w *world) act(a powersave.Action) {
	tell := w.answerer()
	switch a := a.(type) {
	case powersave.CreatePod:
		w.nodes[a.Node].creating++
		w.after(w.delay(50*time.Millisecond, 20*time.Second), func() { w.create(a, tell) })
	case powersave.DeletePod:
		w.mayDelete(a)
		w.after(w.delay(50*time.Millisecond, time.Minute), func() { w.remove(a, tell) })
	case powersave.UpdateNodes:
		w.after(w.delay(20*time.Millisecond, 5*time.Second), func() { w.update(a.Update, tell) })
	case powersave.ReadSlurm:
		w.read(a, tell)
	case powersave.FinishRequest:
		w.finish(a.ID)
	case powersave.AnswerGate:
		w.answerGate(a)
	}
}

func (w *world) finish(id string) {
	i := slices.IndexFunc(w.spool, func(r powersave.Request) bool { return r.ID == id })
	if i < 0 {
		return // it came once more just before it was finished, which does no harm
	}
	r := w.spool[i]
	w.spool = slices.Delete(w.spool, i, i+1)
	for name, epoch := range w.epochs[id] {
		n, p := w.nodes[name], w.pods[name]
		switch {
		case n.epoch != epoch:
		case r.Kind == spool.KindResume && n.flags.Any(powersave.NodePoweringUp) && n.base != powersave.NodeDown:
			w.breaks("finished early", "%s, but %s is %s", id, name, n.state())
		case r.Kind != spool.KindResume && p != nil && p.Phase != powersave.PodTerminating && !p.lost && w.now.Sub(p.Created) > stale && n.base != powersave.NodeAllocated && n.ours():
			w.breaks("finished early", "%s, but %s is %s with pod %s", id, name, n.state(), p.UID)
		}
	}
}

func (w *world) answerGate(a powersave.AnswerGate) {
	for _, j := range w.jobs {
		if j.gate != a.ID {
			continue
		}
		j.gate = 0
		for _, n := range j.nodes {
			if a.Ready && n.ours() && !w.setGone && !n.left.After(j.asked) && n.job == j && !n.since.After(j.asked) && !n.serves() {
				w.breaks("gate answered early", "job %d, but %s is %s", j.id, n.name, n.state())
			}
		}
	}
}

// mayDelete is the promise that matters most.
func (w *world) mayDelete(a powersave.DeletePod) {
	n := w.nodes[a.Node]
	if p := w.pods[a.Node]; p == nil || p.UID != a.UID || p.Phase == powersave.PodTerminating || p.Phase == powersave.PodFailed {
		return
	}
	if n.uid == a.UID && n.serves() && n.base != powersave.NodeDown && w.now.Sub(n.since) > stale && w.now.Sub(n.changed) > stale {
		w.breaks("deletes a pod in use", "%s of %s, which is %s since %.3f: %s", a.UID, a.Node, n.state(), n.since.Sub(w.start).Seconds(), a.Why)
	}
}

// patrol looks every second whether what must not last does.
func (w *world) patrol() {
	w.after(time.Second, w.patrol)
	for _, name := range w.names {
		n, p := w.nodes[name], w.pods[name]
		off := n.flags.Any(powersave.NodePoweredDown) && p != nil && p.Phase != powersave.PodTerminating
		bare := n.flags.Any(powersave.NodePoweringUp) && p == nil && n.ours()
		if w.engine == nil || w.faulty() || !off && !bare {
			n.oddSince = w.now
		} else if w.now.Sub(n.oddSince) > patrol {
			w.breaks("orphan stays", "%s is %s, pod %+v", name, n.state(), p)
		}
	}
	for _, r := range w.spool {
		up := r.Kind == spool.KindResume && w.quiet()
		for name := range r.Nodes.All() {
			n := w.nodes[name]
			up = up && (n == nil || n.serves() && w.now.Sub(n.since) > stale+10*time.Second)
		}
		if up {
			w.breaks("request stays", "%s, and all its nodes serve", r.ID)
		}
	}
	for _, j := range w.jobs {
		up := j.gate != 0 && w.quiet()
		for _, n := range j.nodes {
			up = up && n.serves()
		}
		if !up {
			j.upSince = w.now
		} else if w.now.Sub(j.upSince) > stale+10*time.Second { // no read for 15 s after one that took long
			w.breaks("gate stays", "job %d", j.id)
		}
	}
}

// final checks that all has come to rest.
func (w *world) final() {
	if len(w.spool) > 0 {
		w.breaks("request never finished", "%s of %s", w.spool[0].ID, w.spool[0].Nodes)
	}
	for _, name := range w.names {
		if n := w.nodes[name]; w.pods[name] != nil || !n.flags.Any(powersave.NodePoweredDown) {
			w.breaks("not back at zero", "%s is %s, pod %+v", name, n.state(), w.pods[name])
		}
	}
	if !w.engine.Settled() {
		w.breaks("not settled", "%d gates", w.engine.Status(w.now).Gates)
	}
	if g := w.engine.Gangs(); len(g) > 0 {
		w.breaks("gangs kept", "%v", g)
	}
	late := 0
	for _, at := range w.reads {
		if w.now.Sub(at) < time.Minute {
			late++
		}
	}
	if late > 2 {
		w.breaks("reads while idle", "%d in the last minute", late)
	}
}

type event struct {
	at    time.Time
	order int
	do    func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at.Before(q[j].at) || q[i].at.Equal(q[j].at) && q[i].order < q[j].order
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(e any)   { *q = append(*q, e.(event)) }
func (q *events) Pop() any {
	e := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return e
}
