package powersave

import (
	"fmt"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/powersave/spool"
)

// off is the order to remove the node's pod.
type off struct {
	kind      spool.Kind // KindSuspend also stands for pods that reconciling found orphaned
	requests  []*request
	accepted  time.Time
	read      int  // as in boot
	confirmed bool // Slurm, read after acceptance, showed that it does not use the node
	updating  bool // an update of the node is batched or under way
	updated   bool
	tries     int
	retryAt   time.Time
	why       string
	unbooted  bool   // no slurmd has registered since slurmctld gave the boot up
	uid, host string // of the pod that is to go
	times     OffTimes
}

// orderOff makes req the node's newest order, unless a newer boot stands.
func (e *Engine) orderOff(n *node, req *request) {
	if b := n.boot; b != nil {
		// The sequence alone does not tell: programs overtake each other before they get their number.
		if b.generation > req.Sequence && b.times.Requested.After(req.Started) {
			e.do(Report{Level: Info, Node: n.name, NodeSet: n.set, Request: req.ID,
				Text: fmt.Sprintf("%s from before the present boot ignored", req.Kind)})
			e.settled(req)
			return
		}
	}
	if o := n.off; o != nil {
		o.requests = append(o.requests, req)
		o.accepted, o.kind, o.why = e.now, req.Kind, string(req.Kind)
		o.unbooted = o.unbooted || req.Kind == spool.KindResumeFail
		e.askAgain(n)
		return
	}
	n.off = &off{kind: req.Kind, requests: []*request{req}, accepted: e.now, read: e.reads.count, why: string(req.Kind),
		unbooted: req.Kind == spool.KindResumeFail}
	n.off.times.Requested, n.off.times.Accepted = req.Started, e.now
	e.placeEnds(n)
	e.activate(n)
}

// askAgain makes the off in hand wait for Slurm to confirm it once more.
func (e *Engine) askAgain(n *node) {
	o := n.off
	o.read, o.confirmed, o.updating, o.updated = e.reads.count, false, false, false
	e.freeable = slices.DeleteFunc(e.freeable, func(f *node) bool { return f == n })
}

func (o *off) newest() int64 {
	var s int64
	for _, r := range o.requests {
		s = max(s, r.Sequence)
	}
	return s
}

func (e *Engine) dropOff(n *node) {
	requests := n.off.requests
	n.off = nil
	e.freeable = slices.DeleteFunc(e.freeable, func(f *node) bool { return f == n })
	for _, r := range requests {
		e.settled(r)
	}
}

func (e *Engine) decideOff(n *node) {
	o := n.off
	if !n.readSince(o.read) || n.pod != nil && !n.readSince(n.podRead) || e.now.Sub(n.seenAt) > actOn {
		e.reads.want(e.now)
		return
	}
	state := n.slurm.State
	switch {
	case n.missing, state.Any(NodeFuture):
	case state.Any(NodePoweringUp), !state.Any(poweredOff):
		// Also when it was confirmed before: a slurmd that outlived SuspendTimeout can register again.
		// POWER_DOWN alone is a newer wish, for which SuspendProgram will be called again.
		e.note(Info, n, o.request(), fmt.Sprintf("%s ignored: Slurm shows %s", o.kind, state))
		if o.unbooted && serving(state) {
			e.upTooLate(n, o.gaveUpAt())
		}
		e.dropOff(n)
		e.decide(n)
		return
	case o.confirmed, o.unbooted:
		// After ResumeTimeout no slurmd has registered, so no job runs; yet Slurm counts the one that
		// is being requeued as on the node until its PrologSlurmctld has ended.
	case state.Any(inUse):
		return // a job is just ending: look again
	}
	if !o.confirmed {
		o.confirmed = true
		setOnce(&o.times.Confirmed, e.now)
		if n.boot != nil { // Slurm has ended it
			if e.known(n) {
				n.failed = n.boot.story(n)
				if o.unbooted {
					e.timesOut(n, o.gaveUpAt())
				}
			}
			e.failBoot(n)
		}
		if n.failed != "" {
			o.why, n.failed = "boot failed: "+n.failed, ""
		}
	}
	if n.pod != nil {
		o.uid, o.host = n.pod.UID, n.pod.Host
		e.delete(n, o.why)
		if n.hangs() && state.Any(NodePoweringDown) {
			e.reads.wantComplete(e.now.Add(e.cfg.PollSlow)) // closeSets is to take it out of Slurm's choice as soon as it is off
		}
		return
	}
	if n.creating {
		return // a pod may come yet
	}
	if o.uid != "" {
		setOnce(&o.times.PodGone, e.now)
	}
	if o.updated || !o.needsUpdate(n) {
		e.offDone(n)
		e.decide(n)
		return
	}
	if o.updating {
		return
	}
	if o.retryAt.After(e.now) {
		e.wakeAt(n, o.retryAt)
		return
	}
	o.updating = true
	if len(e.freeable) == 0 {
		e.freeAt = e.now.Add(freeBatch)
	}
	e.freeable = append(e.freeable, n)
}

func (e *Engine) offDone(n *node) {
	o := n.off
	defer e.dropOff(n)
	if n.shut(e.now) {
		e.reads.wantComplete(e.now.Add(e.cfg.PollSlow)) // closeSets is to take it out of Slurm's choice
	}
	if n.care.replace {
		e.reads.wantComplete(e.now.Add(e.cfg.PollSlow)) // the next one's turn
	}
	if n.set == "" && o.uid == "" { // not ours
		return
	}
	done := Off{Node: n.name, NodeSet: n.set, Request: o.request(), Why: o.why, UID: o.uid, Host: o.host, Times: o.times}
	done.Times.Finished = e.now
	if len(e.offHistory) == e.cfg.History {
		e.offHistory = slices.Delete(e.offHistory, 0, 1)
	}
	e.offHistory = append(e.offHistory, done)
}

func (o *off) request() string {
	if len(o.requests) == 0 {
		return ""
	}
	return o.requests[0].ID
}
