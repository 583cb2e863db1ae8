package sim_test

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/slurmtide/slurmtide/powersave"
)

// schedule is all that happens to the world from outside: what users and administrators do, and what fails. It can be
// printed, and made smaller by leaving steps out. Everything else follows from it.
type schedule struct {
	seed      uint64 // of small delays
	probe     bool   // a job of all nodes follows
	long      bool   // the end is watched for longer
	patient   bool   // slurmctld finds out late that a slurmd is gone
	hosts     int    // pods that find room
	scaleUp   time.Duration
	scaleFail bool // the autoscaler gives up after scaleUp
	strategy  [2]powersave.BootStrategy
	deadline  time.Duration // spec.boot.deadline of NodeSet b
	offers    bool          // NodeSet a has offerings
	limits    [2]int        // theirs
	old       bool          // Slurm 24.11: a forced power-down leaves POWER_UP set
	asking                  // requests for room
	marks     bool          // hosts of bad hardware are marked
	leftDown  bool          // DOWN nodes are left to the bridge, as far as it minds them
	rolling   [2]int        // nodes of each NodeSet that may be out for an update; 0: none is replaced
	windows   [2]window     // in which they may be
	noGates   bool          // PrologSlurmctld is not the start-gate
	soon      bool          // Slurm itself hardly lets requeued jobs rest
	untold    bool          // the bridge is not told ResumeTimeout: the partition has its own
	pinned    bool          // the nodes of NodeSet b have hosts of their own
	steps     []step
}

// step happens at a time, to a node or to all, and mostly lasts for a while.
type step struct {
	at   time.Duration
	what kind
	node int // index
	long time.Duration
	n    int // nodes of a job, or actions after which the bridge is killed
	many int // tasks of an array, or components of a het job; 0: neither
	opts jobOptions
}

type jobOptions uint8

const (
	exclusive jobOptions = 1 << iota
	stays                // may not be requeued
	far                  // may use the node that is not ours
	powerDownOnIdle
	het
)

type kind uint8

const (
	// What users and administrators do.
	job kind = iota
	cancelJob
	requeueJob
	drain
	powerUp
	powerDown
	forceDown
	writeReason
	leaveConf
	reconfigure
	changeSets
	// What befalls pods.
	lessRoom
	noSpot
	noOwn
	quota
	noImage
	badConfig
	badSet
	crashing
	mute
	refused
	evict
	deletePod
	cordon
	emptyHost
	taintHost
	silenceHost
	loseHost
	slowHost
	slowSlurmd
	// What befalls Slurm's own work.
	slices1 // ResumeRate: a node a second
	slowEpilog
	prologError
	tellFails // as when a job_submit plugin refuses
	// From here on, what keeps the bridge from doing its work in time.
	firstRough
	bridgeCrash
	slurmctldRestart
	kubeAway
	slurmAway
	createFails
	createLost
	createSlow
	deleteFails
	deleteLost
	deleteSlow
	updateFails
	updateLost
	updateSlow
	markFails
	markLost
	readFails
	readSlow
	readEmpty
	watchSlow
	watchTwice
	watchGap
	programSlow
	programTwice
	programLost
	programOdd
	gateLate
	tellLost
	tellSlow
	tellTwice
	holdFails
	holdLost
	holdSlow
	finishFails
	// From here on, what concerns requests for room, bad hardware and nodes DOWN; only schedules that have them draw it.
	firstMore
	roomFails // the autoscaler finds none, for good
	roomTries // nor for now
	roomTakes // it takes its time
	roomRevoked
	roomDeleted
	badHardware
	noteHardware
	setDown
	deaf
	// Again what keeps the bridge from its work.
	firstMoreRough
	askFails
	askLost
	askSlow
	askTwice
	roomsMissing
	roomsFail
	roomsSlow
	dropFails
	dropLost
	dropSlow
	taintFails
	taintLost
	// From here on, what concerns updates; only schedules that have them draw it.
	firstUpdate
	newTemplate
	oldTemplate
	kinds
)

var kindNames = [kinds]string{
	job: "job", cancelJob: "the newest job on it is cancelled", requeueJob: "the newest job on it is requeued by hand", drain: "drained by hand", powerUp: "powered up by hand",
	powerDown: "powered down by hand", forceDown: "powered down by force, by hand", writeReason: "somebody writes a reason", leaveConf: "not in slurm.conf",
	reconfigure: "scontrol reconfigure", changeSets: "NodeSet b is away", lessRoom: "no room for new pods", noSpot: "no room on offering spot", noOwn: "no room on offering own", quota: "quota refuses pods", noImage: "image cannot be pulled",
	badConfig: "a secret is missing", badSet: "NodeSet a has a mistake", crashing: "slurmd crashes", mute: "slurmd does not register", refused: "slurmctld refuses the registration",
	evict: "pod evicted", deletePod: "pod deleted by somebody", cordon: "host cordoned", emptyHost: "host emptied", taintHost: "host tainted",
	silenceHost: "host silent", loseHost: "host gone", prologError: "a prolog fails", markFails: "marking pods fails", markLost: "marking pods is done, but seems to fail", slowHost: "pods start slowly", slowSlurmd: "slurmd is slow", slices1: "ResumeRate lets one node through a second", slowEpilog: "epilogs take long",
	bridgeCrash: "bridge killed", slurmctldRestart: "slurmctld away", kubeAway: "API server away", slurmAway: "slurmrestd away", createFails: "creating pods fails",
	createLost: "creating pods is done, but seems to fail", createSlow: "creating pods is slow", deleteFails: "deleting pods fails",
	deleteLost: "deleting pods is done, but seems to fail", deleteSlow: "deleting pods is slow", updateFails: "updating nodes fails",
	updateLost: "updating nodes is done, but seems to fail", updateSlow: "updating nodes is slow", readFails: "reading Slurm fails", readSlow: "reading Slurm is slow",
	readEmpty: "Slurm shows no nodes", watchSlow: "the watch lags", watchTwice: "the watch says things twice", watchGap: "the watch is broken, then lists anew",
	programSlow: "programs are slow", programTwice: "programs are called twice", programLost: "programs are killed before they write", programOdd: "programs name odd nodes",
	gateLate: "start-gates are slow", tellFails: "telling jobs fails", tellLost: "telling jobs is done, but seems to fail", tellSlow: "telling jobs is slow",
	tellTwice: "what became of telling jobs is said twice", holdFails: "holding jobs fails", holdLost: "holding jobs is done, but seems to fail", holdSlow: "holding jobs is slow", finishFails: "removing requests fails",
	roomFails: "the autoscaler finds no room", roomTries: "the autoscaler finds no room for now", roomTakes: "the autoscaler is slow", roomRevoked: "what room there is is revoked",
	roomDeleted: "requests for room are deleted by somebody", badHardware: "drained for bad hardware", noteHardware: "a note on its hardware", setDown: "set down by hand", deaf: "slurmd does not answer",
	askFails: "asking for room fails", askLost: "asking for room is done, but seems to fail", askSlow: "asking for room is slow", askTwice: "what became of asking for room is said twice",
	roomsMissing: "the API server knows no requests for room", roomsFail: "reading requests for room fails", roomsSlow: "reading requests for room is slow",
	dropFails: "dropping requests for room fails", dropLost: "dropping requests for room is done, but seems to fail", dropSlow: "dropping requests for room is slow",
	taintFails: "marking hosts fails", taintLost: "marking hosts is done, but seems to fail",
	newTemplate: "the template of both NodeSets is changed", oldTemplate: "the template is changed back",
}

// wide kinds concern the whole cluster, not a node.
func (k kind) wide() bool {
	switch k {
	case reconfigure, changeSets, lessRoom, noSpot, noOwn, badSet, slices1, slowEpilog, bridgeCrash, slurmctldRestart, kubeAway, slurmAway, readFails, readSlow, readEmpty, watchSlow,
		watchTwice, watchGap, programSlow, programTwice, programLost, programOdd, gateLate, tellFails, tellLost, tellSlow, tellTwice, holdFails, holdLost, holdSlow, finishFails:
		return true
	default:
		return k.ofRooms() || k == taintFails || k == taintLost || k > firstUpdate
	}
}

// ofRooms kinds concern requests for room.
func (k kind) ofRooms() bool {
	return k >= roomFails && k <= roomDeleted || k >= askFails && k <= dropSlow
}

// rough kinds keep the bridge from doing its work in time.
func (k kind) rough() bool {
	return k > firstRough && k < firstMore || k > firstMoreRough && k < firstUpdate
}

// ofHost kinds concern a host, whose index stands for the node's.
func (k kind) ofHost() bool { return k >= cordon && k <= loseHost }

const chaos = 60 * time.Second // until then steps happen

// plans draws schedules, the same of the same seed whether by Example or in Check. rapid makes a failing one smaller by leaving
// out what it drew and by lowering it, so whatever is zero here is what a reader likes best.
var plans = rapid.Custom(func(t *rapid.T) schedule {
	d := dice{t}
	s := schedule{seed: numbers.Draw(t, ""), probe: d.below(4) == 3, long: d.below(16) == 15, patient: d.below(2) == 1, hosts: nodeCount - d.below(6), old: d.often(5)}
	if d.often(3) {
		s.scaleUp, s.scaleFail = time.Second+d.upTo(50), d.often(5)
	}
	for i := range s.strategy {
		s.strategy[i] = []powersave.BootStrategy{"", powersave.AllOrNothing, powersave.Greedy, powersave.BestEffort}[d.below(4)]
	}
	if d.often(3) {
		s.deadline = 15*time.Second + d.upTo(30)
	}
	if d.often(4) {
		s.offers, s.limits = true, [2]int{d.below(4), d.below(5)}
	}
	s.steps = jobSteps.Draw(t, "")
	faults, rough := calmSteps, d.often(7)
	if rough {
		faults = roughSteps
	}
	for _, st := range faults.Draw(t, "") {
		if st.what != firstRough {
			s.steps = append(s.steps, st)
		}
	}
	s.drawMore(t, rough)
	if d.often(3) {
		s.steps = append(s.steps, kills.Draw(t, "")...)
	}
	s.noGates, s.soon = d.often(3), d.often(5)
	if d.often(3) {
		s.rolling = [2]int{1 + d.below(4), d.below(3)}
		s.steps = append(s.steps, updateSteps.Draw(t, "")...)
		s.drawWindows(t)
	}
	s.untold = d.often(2)
	if s.pinned = d.often(3); s.pinned {
		s.asks[1] = false
	}
	slices.SortStableFunc(s.steps, func(a, b step) int { return int(a.at - b.at) })
	return s
})

// drawMore comes last: schedules without what it draws stay as they were.
func (s *schedule) drawMore(t *rapid.T, rough bool) {
	d := dice{t}
	if d.often(3) {
		s.asks = [2]bool{d.often(7), d.often(7)}
		s.answerIn, s.booking, s.apart = d.upTo(8), d.upTo(40), d.often(2)
	}
	s.marks, s.leftDown = d.often(2), d.often(2)
	if !s.marks && !s.leftDown && !s.anyAsks() {
		return
	}
	for _, st := range moreSteps.Draw(t, "") {
		switch k := st.what; {
		case k == firstMore, k == firstMoreRough, k.rough() && !rough:
		case k.ofRooms() && !s.anyAsks(), (k == badHardware || k == noteHardware || k == taintFails || k == taintLost) && !s.marks, (k == setDown || k == deaf) && !s.leftDown:
		default:
			s.steps = append(s.steps, st)
		}
	}
}

// drawWindows draws those for updates.
func (s *schedule) drawWindows(t *rapid.T) {
	d := dice{t}
	for i := range s.windows {
		if s.rolling[i] == 0 || !d.often(5) {
			continue
		}
		v := &s.windows[i]
		v.first, v.long = d.upTo(60), 5*time.Second+d.upTo(85)
		if d.often(5) {
			v.every = v.long + 5*time.Second + d.upTo(60)
		}
	}
}

func (s *schedule) anyAsks() bool { return s.asks[0] || s.asks[1] }

var (
	coins   = rapid.Bool()
	millis  = rapid.IntRange(0, 999)
	numbers = rapid.Uint64()

	jobSteps = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		d := dice{t}
		st := step{at: d.upTo(45), what: job, node: d.below(6), n: 1 + d.below(4), long: 2*time.Second + d.upTo(20)}
		for _, o := range []struct {
			bit   jobOptions
			often int // of 10
		}{{exclusive, 6}, {stays, 2}, {far, 1}, {powerDownOnIdle, 1}} {
			if d.often(o.often) {
				st.opts |= o.bit
			}
		}
		switch d.below(8) {
		case 6: // tasks of an array are jobs of their own
			st.n, st.many = 1, 2+d.below(4)
		case 7:
			st.n, st.many, st.opts = 1+st.n/3, 2+d.below(2), st.opts|het
		}
		return st
	}), 1, 7)
	// A third of the schedules has no rough kinds, so that promises about speed are looked at closely.
	calmSteps, roughSteps = faultSteps(cancelJob, firstRough), faultSteps(cancelJob, firstMore)
	moreSteps             = faultSteps(firstMore, firstUpdate)
	updateSteps           = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		d := dice{t}
		return step{what: newTemplate + kind(d.below(2)), at: 5*time.Second + d.upTo(50), long: time.Second}
	}), 1, 3)
	// The bridge is killed at any time, or after any action from then on.
	kills = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		d := dice{t}
		st := step{what: bridgeCrash, at: d.upTo(54), n: d.below(10)}
		st.long = min(time.Second+d.upTo(6), chaos-st.at)
		return st
	}), 1, 3)
)

// faultSteps draws steps of the kinds from first on before last.
func faultSteps(first, last kind) *rapid.Generator[[]step] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		d := dice{t}
		st := step{what: first + kind(d.below(int(last-first))), at: d.upTo(54)}
		switch {
		case st.what.ofHost():
			st.node = d.below(hostCount)
		case !st.what.wide():
			st.node = d.below(nodeCount)
		}
		st.long = min(time.Second+d.upTo(25), chaos-st.at)
		return st
	}), 0, 9)
}

// dice draws evenly. rapid's own ranges prefer small numbers so much that late steps, and kinds that stand last, would hardly come.
type dice struct{ t *rapid.T }

func (d dice) below(n int) int {
	v, size := 0, bits.Len(uint(n-1))
	if n&(n-1) != 0 {
		size += 2 // nearly even is enough
	}
	for range size {
		if v *= 2; coins.Draw(d.t, "") {
			v++
		}
	}
	return v * n >> size
}

func (d dice) often(of10 int) bool { return d.below(10) >= 10-of10 }

func (d dice) upTo(seconds int) time.Duration {
	return time.Duration(d.below(seconds))*time.Second + time.Duration(millis.Draw(d.t, ""))*time.Millisecond
}

// plan is the schedule of a seed.
func plan(seed uint64) schedule { return plans.Example(int(seed)) }

func (s schedule) String() string {
	var b strings.Builder
	room := fmt.Sprintf("room for %d pods", s.hosts)
	switch {
	case s.scaleUp > 0 && s.scaleFail:
		room += fmt.Sprintf(", the autoscaler tries for %v and gives up", s.scaleUp)
	case s.scaleUp > 0:
		room += fmt.Sprintf(", the autoscaler needs %v", s.scaleUp)
	}
	fmt.Fprintf(&b, "seed %#x, %s, strategies %q and %q", s.seed, room, s.strategy[0], s.strategy[1])
	if s.deadline > 0 {
		fmt.Fprintf(&b, ", deadline of b %v", s.deadline)
	}
	if s.offers {
		fmt.Fprintf(&b, ", offerings with limits %v of a", s.limits)
	}
	for i, name := range setNames {
		if s.asks[i] {
			fmt.Fprintf(&b, ", NodeSet %s asks for room", name)
		}
	}
	if s.rolling != [2]int{} {
		fmt.Fprintf(&b, ", updates with %v nodes out", s.rolling)
	}
	for i, v := range s.windows {
		if v.long > 0 {
			fmt.Fprintf(&b, ", those of %s %s", setNames[i], v)
		}
	}
	if s.anyAsks() {
		fmt.Fprintf(&b, " (answered after %v", s.answerIn)
		if s.booking > 0 {
			fmt.Fprintf(&b, ", kept for %v", s.booking)
		}
		b.WriteString(")")
	}
	for _, o := range []struct {
		is   bool
		text string
	}{{s.apart, "the classes of requests differ"}, {s.marks, "hosts of bad hardware are marked"}, {s.leftDown, "nobody else minds DOWN nodes"}, {s.noGates, "no start-gates"}, {s.untold, "an untold ResumeTimeout"}, {s.soon, "a short requeue_delay"}, {s.pinned, "b has hosts of its own"}, {s.old, "Slurm 24.11"}, {s.probe, "a job of all nodes at the end"}, {s.long, "a long end"}, {s.patient, "long SlurmdTimeout"}} {
		if o.is {
			b.WriteString(", " + o.text)
		}
	}
	for _, st := range s.steps {
		fmt.Fprintf(&b, "\n%8.3f  %s", st.at.Seconds(), st)
	}
	return b.String()
}

func (st step) String() string {
	var b strings.Builder
	switch {
	case st.what.ofHost():
		b.WriteString(hostNames[st.node] + ": ")
	case !st.what.wide() && st.what != job:
		b.WriteString(nodeNames[st.node] + ": ")
	}
	b.WriteString(kindNames[st.what])
	if st.what == bridgeCrash && st.n > 0 {
		fmt.Fprintf(&b, " after %d more actions", st.n)
	}
	if st.what != job {
		fmt.Fprintf(&b, " (for %v)", st.long)
		return b.String()
	}
	switch {
	case st.opts&het != 0:
		fmt.Fprintf(&b, " with %d components", st.many)
	case st.many > 0:
		fmt.Fprintf(&b, " array with %d tasks", st.many)
	}
	fmt.Fprintf(&b, " of %d nodes from %s on, for %v", st.n, nodeNames[st.node], st.long)
	for i, word := range []string{"exclusive", "not to be requeued", "also elsewhere", "PowerDownOnIdle"} {
		if st.opts&(1<<i) != 0 {
			b.WriteString(", " + word)
		}
	}
	return b.String()
}
