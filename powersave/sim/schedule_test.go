package sim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// schedule is all that happens to the world from outside: what users and administrators do, and what fails. It can be
// printed, and shrunk by leaving steps out. Everything else follows from it.
type schedule struct {
	seed      uint64 // of small delays
	hosts     int    // pods that find room
	scaleUp   time.Duration
	scaleFail bool // the autoscaler gives up after scaleUp
	strategy  [2]powersave.BootStrategy
	deadline  time.Duration // spec.boot.deadline of NodeSet b
	old       bool          // Slurm 24.11: a forced power-down leaves POWER_UP set
	steps     []step
}

// step happens at a time, to a node or to all, and mostly lasts for a while.
type step struct {
	at   time.Duration
	what kind
	node int // index
	long time.Duration
	n    int // nodes of a job
	opts jobOptions
}

type jobOptions uint8

const (
	exclusive jobOptions = 1 << iota
	requeue
	far // may use the node that is not ours
	powerDownOnIdle
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
	quota
	noImage
	badConfig
	badSet
	crashing
	mute
	refused
	evict
	slowHost
	slowSlurmd
	// What befalls Slurm's own work.
	slices1 // ResumeRate: a node a second
	slowEpilog
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
	kinds
)

var kindNames = [kinds]string{
	job: "job", cancelJob: "the newest job on it is cancelled", requeueJob: "the newest job on it is requeued by hand", drain: "drained by hand", powerUp: "powered up by hand",
	powerDown: "powered down by hand", forceDown: "powered down by force, by hand", writeReason: "somebody writes a reason", leaveConf: "not in slurm.conf",
	reconfigure: "scontrol reconfigure", changeSets: "NodeSet b is away", lessRoom: "no room for new pods", quota: "quota refuses pods", noImage: "image cannot be pulled",
	badConfig: "a secret is missing", badSet: "NodeSet a has a mistake", crashing: "slurmd crashes", mute: "slurmd does not register", refused: "slurmctld refuses the registration",
	evict: "pod evicted", slowHost: "pods start slowly", slowSlurmd: "slurmd is slow", slices1: "ResumeRate lets one node through a second", slowEpilog: "epilogs take long",
	bridgeCrash: "bridge killed", slurmctldRestart: "slurmctld away", kubeAway: "API server away", slurmAway: "slurmrestd away", createFails: "creating pods fails",
	createLost: "creating pods is done, but seems to fail", createSlow: "creating pods is slow", deleteFails: "deleting pods fails",
	deleteLost: "deleting pods is done, but seems to fail", deleteSlow: "deleting pods is slow", updateFails: "updating nodes fails",
	updateLost: "updating nodes is done, but seems to fail", updateSlow: "updating nodes is slow", readFails: "reading Slurm fails", readSlow: "reading Slurm is slow",
	readEmpty: "Slurm shows no nodes", watchSlow: "the watch lags", watchTwice: "the watch says things twice", watchGap: "the watch is broken, then lists anew",
	programSlow: "programs are slow", programTwice: "programs are called twice", programLost: "programs are killed before they write", programOdd: "programs name odd nodes",
	gateLate: "start-gates are slow", tellFails: "telling jobs fails", tellLost: "telling jobs is done, but seems to fail", tellSlow: "telling jobs is slow",
	tellTwice: "what became of telling jobs is said twice", holdFails: "holding jobs fails", holdLost: "holding jobs is done, but seems to fail", holdSlow: "holding jobs is slow",
}

// wide kinds concern the whole cluster, not a node.
func (k kind) wide() bool {
	switch k {
	case reconfigure, changeSets, lessRoom, badSet, slices1, slowEpilog, bridgeCrash, slurmctldRestart, kubeAway, slurmAway, readFails, readSlow, readEmpty, watchSlow,
		watchTwice, watchGap, programSlow, programTwice, programLost, programOdd, gateLate, tellFails, tellLost, tellSlow, tellTwice, holdFails, holdLost, holdSlow:
		return true
	default:
		return false
	}
}

const chaos = 60 * time.Second // until then steps happen

// plan makes the schedule of a seed. A third of them has no rough kinds, so that promises about speed are looked at closely.
func plan(seed uint64) schedule {
	r := rand.New(rand.NewPCG(seed, 1))
	upTo := func(d time.Duration) time.Duration {
		return time.Duration(r.Int64N(int64(d/time.Millisecond))).Abs() * time.Millisecond
	}
	s := schedule{seed: r.Uint64(), hosts: 2 + r.IntN(6), old: r.IntN(2) == 0}
	if r.IntN(3) == 0 {
		s.scaleUp, s.scaleFail = time.Second+upTo(50*time.Second), r.IntN(2) == 0
	}
	for i := range s.strategy {
		s.strategy[i] = []powersave.BootStrategy{"", powersave.AllOrNothing, powersave.Greedy, powersave.BestEffort}[r.IntN(4)]
	}
	if r.IntN(3) == 0 {
		s.deadline = 15*time.Second + upTo(30*time.Second)
	}
	for range 2 + r.IntN(5) {
		opts := jobOptions(0)
		for _, o := range []struct {
			bit   jobOptions
			often int // of 10
		}{{exclusive, 6}, {requeue, 8}, {far, 1}, {powerDownOnIdle, 1}} {
			if r.IntN(10) < o.often {
				opts |= o.bit
			}
		}
		s.steps = append(s.steps, step{at: upTo(chaos * 3 / 4), what: job, node: r.IntN(6), n: 1 + r.IntN(4), long: 2*time.Second + upTo(20*time.Second), opts: opts})
	}
	last := kinds
	if r.IntN(3) == 0 {
		last = firstRough
	}
	for range r.IntN(10) {
		st := step{at: upTo(chaos * 9 / 10), what: cancelJob + kind(r.IntN(int(last-cancelJob)))}
		if st.what == firstRough {
			continue
		}
		if !st.what.wide() {
			st.node = r.IntN(7)
		}
		st.long = min(time.Second+upTo(25*time.Second), chaos-st.at)
		s.steps = append(s.steps, st)
	}
	slices.SortStableFunc(s.steps, func(a, b step) int { return int(a.at - b.at) })
	return s
}

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
	if s.old {
		b.WriteString(", Slurm 24.11")
	}
	for _, st := range s.steps {
		fmt.Fprintf(&b, "\n%8.3f  %s", st.at.Seconds(), st)
	}
	return b.String()
}

func (st step) String() string {
	var b strings.Builder
	if !st.what.wide() && st.what != job {
		b.WriteString(nodeNames[st.node] + ": ")
	}
	b.WriteString(kindNames[st.what])
	if st.what != job {
		fmt.Fprintf(&b, " (for %v)", st.long)
		return b.String()
	}
	fmt.Fprintf(&b, " of %d nodes from %s on, for %v", st.n, nodeNames[st.node], st.long)
	for i, word := range []string{"exclusive", "requeue", "also elsewhere", "PowerDownOnIdle"} {
		if st.opts&(1<<i) != 0 {
			b.WriteString(", " + word)
		}
	}
	return b.String()
}

// shrink leaves out what is not needed to break the promise, then makes the rest shorter and rounder.
func shrink(s schedule, promise string) schedule {
	tries := 0
	breaks := func(c schedule) bool {
		if tries++; tries > 3000 {
			return false
		}
		return (&world{schedule: c, stopAt: promise}).run().broken[promise] != ""
	}
	for size := max(1, len(s.steps)/2); size > 0; {
		left := false
		for i := 0; i < len(s.steps); {
			c := s
			c.steps = slices.Delete(slices.Clone(s.steps), i, min(i+size, len(s.steps)))
			if breaks(c) {
				s, left = c, true
			} else {
				i += size
			}
		}
		if !left || size > 1 {
			size /= 2
		}
	}
	try := func(change func(*schedule)) {
		c := s
		c.steps = slices.Clone(s.steps)
		change(&c)
		if fmt.Sprint(c) != fmt.Sprint(s) && breaks(c) {
			s = c
		}
	}
	try(func(c *schedule) { c.seed = 0 })
	try(func(c *schedule) { c.scaleUp = 0 })
	try(func(c *schedule) { c.hosts = 7 })
	try(func(c *schedule) { c.deadline = 0 })
	try(func(c *schedule) { c.old = false })
	for i := range s.strategy {
		try(func(c *schedule) { c.strategy[i] = "" })
	}
	for i := range s.steps {
		for s.steps[i].what == job && s.steps[i].n > 1 {
			n := s.steps[i].n
			if try(func(c *schedule) { c.steps[i].n-- }); s.steps[i].n == n {
				break
			}
		}
		for _, bit := range []jobOptions{far, powerDownOnIdle, exclusive} {
			try(func(c *schedule) { c.steps[i].opts &^= bit })
		}
		for _, unit := range []time.Duration{10 * time.Second, time.Second, 100 * time.Millisecond} {
			try(func(c *schedule) { c.steps[i].at = c.steps[i].at.Truncate(unit) })
			try(func(c *schedule) { c.steps[i].long = c.steps[i].long.Round(unit) })
		}
	}
	return s
}
