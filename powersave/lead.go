package powersave

import (
	"slices"
	"time"
)

// Leading tells the Engine whether it is the one that reconciles. Of several bridges of a cluster, one beside each slurmctld, one
// leads: it finds pods that nobody needs and power-ups that nobody serves, looks after nodes whose hosts or pods are in trouble,
// and closes NodeSets. What the programs ask for, every Engine carries out in full. Before the first Leading it does not lead,
// unless Config.Alone says so.
type Leading struct {
	Leading bool
	Others  bool // another bridge has led since we did, or before
}

func (Leading) event() {}

func (e *Engine) lead(ev Leading) {
	if e.leading == ev.Leading {
		return
	}
	e.leading = ev.Leading
	e.closed, e.closedRead, e.closedAgain = nil, time.Time{}, false
	e.dropFloors()
	e.dropUpdates()
	if !e.leading {
		e.dropUnrequested()
		return
	}
	if ev.Others {
		e.found = found{}
		for _, set := range e.sets {
			e.breakers.takeOver(set.Breakers)
		}
		e.recallBoots(true)
	}
	for _, n := range e.all() { // what was seen before may have been another's doing
		n.strayAt, n.strayOK = time.Time{}, false
		n.care.lostAt, n.care.downAt, n.care.why = time.Time{}, time.Time{}, ""
	}
	e.reads.wantComplete(e.now)
}

// dropUnrequested ends the orders that only a leader has; the next one finds what they were about. A boot that is being given
// back is seen to: its jobs have been told.
func (e *Engine) dropUnrequested() {
	for _, n := range slices.Clone(e.compactActive()) {
		if n.off != nil && len(n.off.requests) == 0 {
			e.dropOff(n)
		}
		if b := n.boot; b != nil && len(b.requests) == 0 && b.release == nil {
			if b.attempt != nil {
				e.breakers.ProbeGone(*b.attempt)
			}
			e.dropBoot(n, false)
		}
		e.decide(n)
	}
}

// othersFirst is how much longer the verdict on a boot waits that no request of ours began: another bridge may have its
// request, and knows the jobs that are to be told.
func (e *Engine) othersFirst(b *boot) time.Duration {
	if len(b.requests) > 0 || e.cfg.Alone {
		return 0
	}
	return 3 * e.cfg.Sightings
}

// othersWait says that another bridge may have the request for n, which boots without a pod, and wait with the pod on purpose: for
// a probe while it boots another node of the NodeSet, or for room. Without a request there is no job here to ask for room for.
func (e *Engine) othersWait(n *node) bool {
	set, probed := e.sets[n.set], n.strayAt.Add(3*e.cfg.Sightings)
	theirs := func(m *node) bool { return m.set == n.set && m.boot != nil && m.boot.anothers() }
	switch {
	case e.cfg.Alone:
		return false
	case n.readAt.Before(probed) && slices.ContainsFunc(e.compactActive(), theirs):
		e.reads.wantComplete(probed)
	case set.AskForRoom && (e.now.Sub(e.rooms.listed) > actOn || e.now.Before(e.rooms.othersAt.Add(e.cfg.Sightings))):
		if !e.rooms.reading {
			e.wantRooms(later(e.now, e.rooms.listed.Add(roomPoll)))
		}
		e.wakeAt(n, e.now.Add(roomPoll))
	case e.now.Sub(n.seenAt) > actOn:
		e.reads.wantComplete(e.now)
	default:
		return false
	}
	return true
}

// stillWanted says whether a pod may be made for the boot in hand of n. Slurm may have taken it back since it was
// asked for, and have told another bridge: before another try, and after a while, it is read.
func (e *Engine) stillWanted(n *node) bool {
	b := n.boot
	switch {
	case e.now.Sub(b.accepted) > e.cfg.FreshFor && !n.booting(e.now):
		e.lookAgain(n)
	case b.tries > 0 && !n.readSince(b.triedRead) && !e.reads.hang(e.now):
		e.reads.want(e.now)
		e.wakeAt(n, e.now.Add(e.cfg.PollSlow)) // it may fail
	default:
		return true
	}
	return false
}

// anothers says that the boot is watched for another bridge, or for one that is no more.
func (b *boot) anothers() bool { return b.foreign && len(b.requests) == 0 }

// setPod takes in a pod. Only reads asked for after it was seen tell whether Slurm uses it: another bridge may have made it for
// a power-up that is newer than all we know.
func (e *Engine) setPod(n *node, p Pod) {
	if n.pod == nil || n.pod.UID != p.UID {
		n.podRead = e.reads.count
	}
	n.setPod(p)
	if n.former() {
		e.placeEnds(n)
	}
}
