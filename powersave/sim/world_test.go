package sim_test

import (
	"fmt"
	"hash"
	"io"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// config makes the engine's waits short, so that a schedule needs fewer steps.
var config = powersave.Config{
	FreshFor: 10 * time.Second, PollFast: 800 * time.Millisecond, PollSlow: 3 * time.Second, PollIdle: 20 * time.Second, Sightings: 5 * time.Second,
	Alone: true, History: 1,
}

// nodeNames by index; the last is of no NodeSet.
var nodeNames = [...]string{"n0", "n1", "n2", "n3", "n4", "n5", "far"}

const (
	nodeCount = len(nodeNames)
	farNode   = nodeCount - 1
)

// badReasons is how the bridge knows bad hardware by default, in short.
var badReasons = regexp.MustCompile(`(?i)\b(gpu|xid)`)

func (w *world) config() powersave.Config {
	c := config
	if w.marks {
		c.BadHardware = badReasons
	}
	return c
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world holds the clock, the queue of what is to happen, and the engine under test.
type world struct {
	schedule
	now    time.Time
	passed time.Duration // since start
	queue  queue
	out    io.Writer
	hash   hash.Hash64                     // of all actions, if wanted
	broken map[string]string               // promises, and how each was broken first
	until  [kinds][nodeCount]time.Duration // since start
	rough  time.Time                       // until when the bridge may be late
	stopAt string                          // the promise whose breaking ends the run
	ended  bool
	rest   int       // seconds in which nothing happened
	last   *slurmJob // that needs all nodes, at the end

	engine     *powersave.Engine // nil while the bridge is down
	life       int               // counts starts of the bridge; answers of an earlier life are lost
	lifeAt     time.Time
	doomed     int // the bridge is killed after so many actions; 0: it is not
	deadFor    time.Duration
	stepped    int       // steps it has taken
	tick       func()    // is its next when nothing happens before
	each       func()    // second
	errands    []*errand // that are over
	spins      int
	reading    bool
	reads      []time.Time
	setsAt     time.Time
	blind      bool     // it has been told that Kubernetes cannot be read
	spec       [2]int64 // metadata.generation of the NodeSets
	toMend     [2]bool  // people have had something to change in its spec
	listed     bool     // this life's watch of pods has begun
	watchFrom  time.Time
	shown      [nodeCount]powersave.Pod // what this life's watch has told, once it has listed pods; without UID: none
	listedOnce bool                     // shown is of this life
	answered   [nodeCount]string        // the UID of the pod that an answer told of last
	unseen     []powersave.PodGone      // of those that came and went while the watch was broken
	watchAt    time.Time                // when the last news arrive

	gone        setGone
	hostsListed bool // the same of hosts
	hostsAt     time.Time
	spool       []spooled
	sequence    int64
	lastID      int

	slurm
	kube
	autoscaler
	hardware
	updating
	breaking
}

// begin makes the world new for a schedule, in the memory of the one before.
func (w *world) begin(s schedule) {
	*w = world{
		schedule: s, queue: queue{heap: w.queue.heap[:0]}, reads: w.reads[:0], spool: w.spool[:0], errands: w.errands,
		slurm: slurm{jobs: w.jobs[:0], toResume: w.toResume[:0], spare: w.spare},
	}
}

func (w *world) run() (ran *world) {
	ran = w
	defer func() {
		if p := recover(); p != nil {
			w.breaks("panics", "%v\n%s", p, debug.Stack())
		}
	}()
	s := &w.schedule
	w.now, w.rough = start, start
	w.tick, w.each = func() { w.step(powersave.Tick{}) }, w.second
	w.init()
	w.initWindows()
	w.startBridge()
	w.after(w.some(time.Second, 0, 0), w.each)
	for i := range s.steps {
		w.at(start.Add(s.steps[i].at), func() { w.do(&s.steps[i]) })
	}
	for !w.ended {
		e := w.queue.pop()
		w.passed, w.now = e.after, start.Add(e.after)
		e.do()
	}
	return w
}

// faulty says whether steps may still happen.
func (w *world) faulty() bool { return w.passed < chaos }

// smooth says that d has passed since t and since everything that could have kept the bridge from its work.
func (w *world) smooth(t time.Time, d time.Duration) bool {
	return w.engine != nil && w.listed && w.now.Sub(t) > d && w.now.Sub(w.rough) > min(d, prompt)
}

// recovery is what the bridge may need after a fault: the longest pauses before it tries again.
const recovery = 22 * time.Second

// startup is what a bridge needs until it has read all it has to know, after the NodeSets.
const startup = 5 * time.Second

func (w *world) roughFor(d time.Duration) { w.roughUntil(w.now.Add(d + recovery)) }

func (w *world) roughUntil(t time.Time) {
	w.rough, w.gone.other = latest(w.rough, t), latest(w.gone.other, t)
}

// on says whether a fault is present.
func (w *world) on(k kind, node int) bool { return w.passed < w.until[k][node] }
func (w *world) any(k kind) bool          { return w.on(k, 0) }

// endOf is when the fault ends, or has ended; zero: there was none.
func (w *world) endOf(k kind, node int) time.Time {
	if w.until[k][node] == 0 {
		return time.Time{}
	}
	return start.Add(w.until[k][node])
}

// some is a delay up to d that depends on nothing but the schedule's seed, the time, and where it is asked for.
func (w *world) some(d time.Duration, site kind, node int) time.Duration {
	x := w.seed ^ uint64(w.now.UnixNano())*0x9e3779b97f4a7c15 ^ uint64(site)<<8 ^ uint64(node)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return time.Duration((x^x>>31)%uint64(d/time.Millisecond)) * time.Millisecond
}

// delay is short unless the fault is present.
func (w *world) delay(usual time.Duration, slow kind, node int, worst time.Duration) time.Duration {
	if w.on(slow, node) {
		usual = worst
	}
	return w.some(usual, slow, node)
}

func (w *world) logf(format string, args ...any) {
	if w.out != nil {
		fmt.Fprintf(w.out, "%8.3f  %s\n", w.now.Sub(start).Seconds(), fmt.Sprintf(format, args...))
	}
}

// breaks notes a broken promise.
func (w *world) breaks(promise, format string, args ...any) {
	if w.broken[promise] != "" {
		return
	}
	if w.broken == nil {
		w.broken = map[string]string{}
	}
	w.broken[promise] = fmt.Sprintf("at %.3f ", w.now.Sub(start).Seconds()) + fmt.Sprintf(format, args...)
	w.ended = w.ended || promise == w.stopAt
	w.logf("BROKEN: %s: %s", promise, w.broken[promise])
}

func (w *world) after(d time.Duration, f func()) { w.queue.push(w.passed+d, f) }
func (w *world) at(t time.Time, f func())        { w.queue.push(t.Sub(start), f) }

// tell hands the engine an event after a while. It gets lost when the bridge ends before it arrives.
func (w *world) tell(d time.Duration, ev powersave.Event) { w.tellLife(w.life, d, ev) }

func (w *world) tellLife(life int, d time.Duration, ev powersave.Event) {
	if life == w.life {
		w.later(d, life, ev, nil)
	}
}

// errand is what reaches the engine, or leaves it, a while later. Its memory is used again.
type errand struct {
	life int
	ev   powersave.Event
	do   func() // what the engine asked for; nil: ev is for the engine
	run  func()
}

func (w *world) later(d time.Duration, life int, ev powersave.Event, do func()) {
	var e *errand
	if n := len(w.errands); n > 0 {
		e, w.errands = w.errands[n-1], w.errands[:n-1]
	} else {
		e = &errand{}
		e.run = func() { w.runErrand(e) }
	}
	e.life, e.ev, e.do = life, ev, do
	w.after(d, e.run)
}

func (w *world) runErrand(e *errand) {
	life, ev, do := e.life, e.ev, e.do
	e.ev, e.do = nil, nil
	w.errands = append(w.errands, e)
	switch {
	case do != nil && (life == w.life || w.some(2*time.Millisecond, bridgeCrash, life%nodeCount) > 0):
		do()
	case do == nil && life == w.life:
		w.step(ev)
	}
}

func (w *world) step(ev powersave.Event) {
	if w.engine == nil {
		return
	}
	if w.out != nil {
		w.logEvent(ev)
	}
	if u, ok := ev.(powersave.KubernetesUnread); ok {
		w.blind = u.Err != ""
	}
	if told, ok := ev.(powersave.JobTold); ok {
		w.heard(told)
	}
	actions := w.engine.Step(w.now, ev)
	for _, a := range actions {
		if w.hash != nil {
			fmt.Fprintf(w.hash, "%v%T%v", w.now.UnixNano(), a, a)
		}
		if w.out != nil {
			w.logAction(a)
		}
		if w.act(a); w.strikes(a) {
			return
		}
	}
	w.stepped++
	w.queue.stopAlarm()
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
	if next.Before(w.now) {
		next = w.now
	}
	w.queue.setAlarm(next.Sub(start), w.tick)
}

func (w *world) act(a powersave.Action) {
	life := w.life
	switch a := a.(type) {
	case powersave.CreatePod:
		n := w.node(a.Node)
		if n == nil || !n.ours() || a.NodeSet != setNames[n.set()] {
			w.breaks("makes a pod for a node of another", "%s of %q", a.Node, a.NodeSet)
			return
		}
		w.mayBoot(n, a)
		w.mayTry(n, a)
		if a.Request == "" && a.Generation != n.generation && w.replaced[n.index] != life { // else a boot that it has found, by sightings or by a pod, goes on
			w.mayFind(n, powersave.NodePoweringUp, "boots")
		}
		w.replaced[n.index] = 0
		w.mayUseRoom(n, a)
		n.creating++
		w.call(w.delay(50*time.Millisecond, createSlow, n.index, 20*time.Second), func() { w.create(a, n, life) })
	case powersave.DeletePod:
		w.mayDelete(a)
		n := w.node(a.Node)
		switch {
		case a.Why == "orphan":
			w.mayFind(n, powersave.NodePoweredDown, "removes the pod of")
		case strings.HasPrefix(a.Why, "pod failed"):
			w.replaced[n.index] = life
		}
		if a.Why == "no room on its offering" {
			w.replaced[n.index] = life
			w.movesOn(n)
		}
		w.call(w.delay(50*time.Millisecond, deleteSlow, n.index, 30*time.Second), func() { w.remove(a, n, life) })
	case powersave.UpdateNodes:
		w.mayAskForce(a.Update)
		w.mayAskBack(a.Update)
		if w.anyWindows() {
			w.mayAskReplace(a.Update)
		}
		w.call(w.delay(20*time.Millisecond, updateSlow, w.node(a.Update.Nodes[0]).index, updateTakes), func() { w.update(a.Update, life) })
	case powersave.MarkPod:
		w.call(w.delay(50*time.Millisecond, createSlow, w.node(a.Node).index, 10*time.Second), func() { w.markPod(a, life) })
	case powersave.ReadSlurm:
		w.read(a, life)
	case powersave.FinishRequest:
		w.finish(a.ID)
	case powersave.AnswerGate:
		w.answerGate(a)
	case powersave.TellJob:
		w.mayTell(a)
		w.call(w.delay(50*time.Millisecond, tellSlow, 0, 8*time.Second), func() { w.tellJob(a, life) })
	case powersave.ReadBacks:
		w.readBacks(life)
	case powersave.HoldJob:
		w.call(w.delay(50*time.Millisecond, holdSlow, 0, 8*time.Second), func() { w.holdJob(a, w.now.Add(a.Delay), life) })
	case powersave.Report:
		if strings.HasSuffix(a.Text, ": trying another offering") {
			w.movesOn(w.node(a.Node))
		}
	case powersave.BootDone:
		w.probed(w.node(a.Boot.Node), true)
		for _, id := range a.Boot.Jobs {
			w.job(id).holds = 0 // a slice that is up may be all of it
		}
	case powersave.BootFailed:
		w.bootFailed(a)
	case powersave.AskRoom:
		w.ask(a, life)
	case powersave.ReadRooms:
		w.readRooms(life)
	case powersave.DropRoom:
		w.drop(a, life)
	case powersave.TaintHost:
		w.mark(a, life)
	}
}

// call does later what the bridge asks for. If the bridge is killed before, that may never leave it.
func (w *world) call(d time.Duration, do func()) {
	w.later(d, w.life, nil, do)
}

// strikes counts the actions that are left to a bridge that is to be killed, and kills it after the last.
func (w *world) strikes(a powersave.Action) bool {
	switch a.(type) {
	case powersave.ReadSlurm, powersave.ReadRooms, powersave.Report, powersave.BootDone, powersave.BootFailed, powersave.GangDone: // they change nothing outside
		return false
	}
	if w.doomed == 0 {
		return false
	}
	if w.doomed--; w.doomed > 0 {
		return false
	}
	w.crash(w.deadFor)
	return true
}

// The bridge.

func (w *world) startBridge() {
	w.logf("bridge starts")
	w.engine, w.listed, w.listedOnce, w.unseen, w.hostsListed, w.reading, w.watchAt = powersave.New(w.config()), false, false, nil, false, false, w.now
	w.shown = [nodeCount]powersave.Pod{}
	w.readingRooms, w.roomsSeen, w.blind, w.looking, w.refused, w.figuresOf = false, false, false, false, [2]string{}, -1
	w.life++
	w.lifeAt = w.now
	w.spins = 0
	for _, r := range slices.Clone(w.spool) {
		w.step(powersave.RequestAccepted{Request: r.Request})
	}
	if w.engine == nil {
		return
	}
	sets := w.some(time.Second, changeSets, 0)
	if w.life > 1 {
		sets = w.some(8*time.Second, changeSets, 0)
		w.roughUntil(w.now.Add(sets + startup))
	}
	w.setsAt = w.now.Add(sets)
	w.tellSets(sets)
	life := w.life
	w.after(sets+w.some(2*time.Second, watchGap, 0), func() { w.listPods(life) })
	w.after(w.some(4*time.Second, cordon, 0), func() { w.listHosts(life) })
}

// mend is what people do about the image and the configuration of a NodeSet.
func (w *world) mend(set int) {
	w.spec[set]++
	w.toMend[set] = true
	w.tellSets(max(0, w.setsAt.Sub(w.now)))
}

func (w *world) tellSets(d time.Duration) {
	life := w.life
	w.after(d, func() {
		if life == w.life {
			sets := w.sets()
			w.toldSets(sets)
			w.step(powersave.NodeSetsRead{NodeSets: sets})
		}
	})
}

var setNames = [...]string{"a", "b"}

var setNodes = [...]slurmconf.Hostlist{slurmconf.NewHostlist("n0", "n1", "n2", "n3"), slurmconf.NewHostlist("n4", "n5")}

const (
	grace   = 6 * time.Second
	backoff = 6 * time.Second // of breakers, at first
)

func (w *world) sets() []powersave.NodeSet {
	set := func(i int, name string) powersave.NodeSet {
		return powersave.NodeSet{
			Name: name, UID: name, Nodes: setNodes[i], Strategy: w.strategy[i], UnschedulableGrace: grace, SpecGeneration: w.spec[i],
			BackoffInitial: backoff, BackoffMax: 4 * backoff, AskForRoom: w.asks[i], Revision: w.revisionNow(), Rolling: w.strategyOf(i), Window: w.openAt[i],
		}
	}
	sets := []powersave.NodeSet{set(0, setNames[0])}
	for i, name := range offerings {
		if w.offers {
			sets[0].Offerings = append(sets[0].Offerings, powersave.Offering{Name: name, Limit: w.limits[i]})
		}
	}
	if w.any(badSet) {
		sets[0].Problem = "spec.template is wrong"
	}
	if !w.any(changeSets) {
		sets = append(sets, set(1, setNames[1]))
		sets[1].Deadline, sets[1].Pinned = w.schedule.deadline, w.pinned
	}
	return sets
}

func (w *world) crash(d time.Duration) {
	if w.engine == nil {
		return
	}
	w.logf("bridge crashes")
	w.engine, w.doomed = nil, 0
	w.life++
	w.roughUntil(w.now.Add(d))
	for _, n := range w.nodes {
		n.creating = 0
	}
	for i := range w.spool {
		w.spool[i].done = false
	}
	for _, j := range w.jobs {
		if j.gate != 0 { // its start-gate notices and lets the job go
			j.gate, j.waits = 0, false
		}
	}
	w.after(d, w.startBridge)
}
