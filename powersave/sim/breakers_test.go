package sim_test

import (
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// What must hold while a NodeSet, or an offering, is known to have no room, or a mistake. The simulator works out by itself, from verdicts
// and times, when no pod may be made, and when one alone may be.

// breaker is what is certain of the engine's. Where nothing is, it counts as closed.
type breaker struct {
	life     int       // of the bridge; the next one knows nothing of it
	forGood  bool      // until the spec is changed
	openedAt time.Time // zero: it is closed
	until    time.Time
	probe    *node // that tries it
	as       attempt
	doubt    int // the bridge's life in which it may have opened unseen
}

func (w *world) doubt(b *breaker) { *b = breaker{doubt: w.life} }

// doubtAll is for what ends boots in a way that cannot be seen.
func (w *world) doubtAll(n *node) {
	if n.ours() {
		w.doubt(&w.ofSet[n.set()])
		w.movesOn(n)
	}
}

// breaking is what the bridge has been told, and has done, that matters to breakers and sightings.
type breaking struct {
	ofSet      [2]breaker
	ofOffering [2]breaker // of NodeSet a
	toldSpec   [2]int64
	toldAt     [2]time.Time // when that was news
	tried      [nodeCount]attempt
	openSince  [nodeCount]time.Time // in Slurm's choice, though its NodeSet is closed
	offSince   [nodeCount]time.Time // plainly off
	homeSince  [nodeCount]time.Time // plainly off, and drained or not as now, with a host of its own
	homeDrain  [nodeCount]bool
	strays     [nodeCount]stray
	replaced   [nodeCount]int // the bridge's life in which it has had a pod go that had failed, or had no room, for another
}

// attempt is the newest pod that was asked for a node.
type attempt struct {
	life, epoch int
	generation  int64
	offering    string
}

// stray is what complete reads have shown of a node, one after the other.
type stray struct {
	life        int
	how         powersave.NodeState // it powers up, or is off
	first, last time.Time           // when they were asked for
}

// toldSets notes what the bridge is told of NodeSets.
func (w *world) toldSets(sets []powersave.NodeSet) {
	var known [2]bool
	for _, s := range sets {
		i := int(s.Name[0] - 'a')
		if known[i] = true; s.SpecGeneration != w.toldSpec[i] {
			w.toldSpec[i], w.toldAt[i] = s.SpecGeneration, w.now
		}
	}
	w.toldOfB(known[1])
	for i := range known {
		if !known[i] {
			w.toldAt[i], w.ofSet[i] = w.now, breaker{}
		}
	}
}

// breakerOf is the one that lack of room belongs to.
func (w *world) breakerOf(set int, offering string) *breaker {
	for i, name := range offerings {
		if offering == name {
			return &w.ofOffering[i]
		}
	}
	return &w.ofSet[set]
}

// opens notes what a verdict means for the pods to come. What is not the first for the node, may be of an older spec, or comes late, is left out,
// and so is what Greedy NodeSets and those that ask for room say of room, since they may have known it for longer.
func (w *world) opens(n *node, a powersave.BootFailed) {
	p, t := w.pods[n.index], &w.tried[n.index]
	blamed := w.blamed(n)
	ofPod := p != nil && p.UID == a.UID && p.Phase != powersave.PodTerminating
	w.probed(n, false)
	offering := t.offering
	if ofPod {
		offering = p.Offering
	}
	*t = attempt{life: -w.life, epoch: n.epoch} // another pod for it takes leave anew
	b, forGood := w.breakerOf(n.set(), offering), false
	switch a.Verdict.Trouble {
	case powersave.TroubleImage, powersave.TroubleConfig:
		b, forGood = &w.ofSet[n.set()], true
	case powersave.TroubleCapacity:
		ofPod = ofPod && w.strategy[n.set()] != powersave.Greedy && !w.asks[n.set()] && w.home(n.index) == nil
	default:
		ofPod = false
	}
	told := w.toldAt[n.set()]
	switch open := b.life == w.life && b.openedAt.After(told); {
	case open && (b.forGood || !forGood):
		return
	case blamed, !ofPod, strings.HasPrefix(a.Verdict.Reason, "not up after"), !told.IsZero() && w.now.Sub(told) < time.Minute,
		w.late(n):
		w.doubt(b)
		return
	case b.doubt == w.life:
		return
	}
	if b.life != w.life { // nobody knows of a probe of the bridge before
		b.probe = nil
	}
	*b = breaker{life: w.life, forGood: forGood, openedAt: w.now, until: w.now.Add(backoff), probe: b.probe, as: b.as}
}

// late says that a job of the node may be, which is not told as long as it shares all it has with others, though the try counts as failed.
func (w *world) late(n *node) bool {
	return n.set() == 1 && w.schedule.deadline > 0 && w.now.Sub(n.bootReq) >= w.schedule.deadline
}

// blamed says that a verdict on the boot of the node has been told, or that it was to go with a job on which one has been told, but that update may
// have failed, or may be late. Who gets it later goes along.
func (w *world) blamed(n *node) bool {
	t := w.tried[n.index]
	return t.life == -w.life && t.epoch == n.epoch || n.forced == (attempt{life: w.life, epoch: n.epoch})
}

// saidBefore says that this bridge has told the same verdict before, on the same pod, or on that of another node with which this one was to be given
// back, as one without a pod shows. Who got the node since, before slurmctld gave the boot up, goes along.
func (w *world) saidBefore(a powersave.BootFailed) bool {
	said := slices.ContainsFunc(w.nodes[:], func(n *node) bool {
		return n.verdictLife == w.life && n.verdict.Verdict == a.Verdict && (a.UID == "" && n.name != a.Node || a.UID != "" && n.verdict.UID == a.UID)
	})
	n := w.node(a.Node)
	n.verdict, n.verdictLife = a, w.life
	return said
}

// movesOn notes that a boot goes on with another offering.
func (w *world) movesOn(n *node) {
	w.probed(n, false)
	w.doubt(w.breakerOf(n.set(), w.tried[n.index].offering))
	if p := w.pods[n.index]; p != nil {
		w.doubt(w.breakerOf(n.set(), p.Offering))
	}
	w.tried[n.index] = attempt{}
}

// probed notes that a node has registered, or that its boot has ended otherwise.
func (w *world) probed(n *node, registered bool) {
	for _, b := range []*breaker{&w.ofSet[n.set()], w.breakerOf(n.set(), w.tried[n.index].offering)} {
		switch {
		case b.probe != n:
		case registered:
			*b = breaker{}
		default:
			w.doubt(b)
		}
	}
	if registered { // its next boot may be of the same generation
		w.tried[n.index] = attempt{}
	}
}

// mayTry looks whether a pod may be made at all. One that is made once more for the same boot has leave.
func (w *world) mayTry(n *node, a powersave.CreatePod) {
	now, last := attempt{life: w.life, epoch: n.epoch, generation: a.Generation, offering: a.Offering}, w.tried[n.index]
	again := last.life == now.life && last.generation == now.generation && last.offering == now.offering
	if last.life == w.life && last.offering != a.Offering {
		w.movesOn(n)
	}
	w.tried[n.index] = now
	if again && last.epoch == now.epoch || w.asks[n.set()] { // whose leave is older, too
		return
	}
	for _, b := range []*breaker{&w.ofSet[n.set()], w.breakerOf(n.set(), a.Offering)} {
		m := b.probe
		switch {
		case b.openedAt.IsZero() || b.life != w.life || m == n:
		case again: // it was powered up anew: either that went by unseen, or its boot has the generation of a pod that was found, and leave of its own
			w.doubt(b)
		case m != nil && (m.epoch != b.as.epoch || !m.flags.Any(powersave.NodePoweringUp) || w.tried[m.index] != b.as || w.strategy[n.set()] == powersave.Greedy),
			m != nil && w.late(m): // nobody knows what came of it
			w.doubt(b)
		case m != nil:
			w.breaks("makes pods beside the probe", "%s, while %s tries NodeSet %s%s", a.Node, m.name, a.NodeSet, a.Offering)
		case !b.openedAt.After(w.toldAt[n.set()]), !b.forGood && !w.now.Before(b.until):
			b.probe, b.as = n, now
		case b.forGood:
			w.breaks("tries again what only people can mend", "%s of NodeSet %s, whose mistake was found at %.3f", a.Node, a.NodeSet, b.openedAt.Sub(start).Seconds())
		default:
			w.breaks("tries again too soon", "%s of NodeSet %s%s, which had no room at %.3f", a.Node, a.NodeSet, a.Offering, b.openedAt.Sub(start).Seconds())
		}
	}
}

const closedReason = powersave.ReasonPrefix + "closed: "

// patrolClosed looks whether nodes that cannot boot are out of Slurm's choice, and come back when their time has come.
func (w *world) patrolClosed(n *node, p *pod) {
	if !n.ours() || p != nil || n.set() == 1 && w.any(changeSets) || n.flags&^powersave.NodeDrain != powersave.NodePoweredDown || n.down || len(n.jobs) > 0 || n.taken() || n.forgotten || !w.homeless(n.index).IsZero() {
		w.openSince[n.index], w.offSince[n.index] = w.now, w.now
		return
	}
	b, told := &w.ofSet[n.set()], w.toldAt[n.set()]
	since, off, closed := w.openSince[n.index], w.offSince[n.index], n.flags.Any(powersave.NodeDrain)
	switch {
	case !closed:
		if b.life != w.life || !b.forGood || !b.openedAt.After(told) || b.probe != nil {
			w.openSince[n.index] = w.now
		} else if w.smooth(b.openedAt, prompt) && !since.After(b.openedAt) || w.smooth(since, idle) { // what is there anew shows with a read of all nodes
			w.breaks("is not closed", "%s, whose NodeSet has had a mistake since %.3f", w.show(n), b.openedAt.Sub(start).Seconds())
		}
		return
	case !strings.HasPrefix(n.reason, closedReason):
	case strings.HasSuffix(n.reason, "Z"):
		if at, err := time.Parse(time.DateOnly+" 15:04:05Z", start.Format(time.DateOnly)+n.reason[strings.LastIndex(n.reason, " "):]); err != nil {
			w.breaks("does not say when", "%s", w.show(n))
		} else if w.smooth(latest(at, n.reasonAt), prompt) && !off.After(at) || w.smooth(off, idle) && !at.After(off) {
			w.breaks("stays closed", "%s", w.show(n))
		}
	case w.smooth(latest(told, n.reasonAt, w.lifeAt, off), idle) && told.After(n.reasonAt):
		w.breaks("stays closed", "%s, and the NodeSet was changed at %.3f", w.show(n), told.Sub(start).Seconds())
	}
	w.openSince[n.index] = w.now
}

// sighted notes what a complete read has told the bridge.
func (w *world) sighted(ev powersave.Event, asked time.Time) {
	read, ok := ev.(powersave.SlurmRead)
	if !ok || !read.Complete || len(read.Nodes) == 0 {
		return
	}
	var shown [nodeCount]powersave.NodeState
	for i := range shown {
		shown[i] = powersave.NodePoweredDown // slurmctld does not know it
	}
	for _, s := range read.Nodes {
		shown[w.node(s.Name).index] = s.State
	}
	for i, state := range shown {
		s, how := &w.strays[i], powersave.NodeState(0)
		switch {
		case state.Any(powersave.NodePoweringUp):
			how = powersave.NodePoweringUp
		case state.Any(powersave.NodePoweredDown | powersave.NodePoweringDown):
			how = powersave.NodePoweredDown
		}
		if s.how != how || s.life != w.life {
			*s = stray{life: w.life, how: how, first: asked}
		}
		s.last = asked
	}
}

// mayFind looks at what the bridge does by itself: it takes two complete reads.
func (w *world) mayFind(n *node, how powersave.NodeState, what string) {
	if s := w.strays[n.index]; s.life != w.life || s.how != how || s.last.Sub(s.first) < config.Sightings {
		w.breaks("acts on one sighting", "%s %s, which is %s", what, n.name, n.state())
	}
}
