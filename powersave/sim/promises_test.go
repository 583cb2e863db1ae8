package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// What must hold whatever happens is looked at when the engine asks for something; what must not last, every second,
// counted from when nothing keeps the bridge from its work.

const (
	stale      = 15 * time.Second // what the engine knows may be behind: one slow read and a bit
	idle       = 35 * time.Second // what is only seen by reads while nothing happens
	prompt     = 10 * time.Second // what needs a few calls, all of which work
	inUseSlack = 6 * time.Second  // what the engine may take a read for, and a call
	orphan     = 60 * time.Second // an orphan may live, or a power-up stay without a pod
)

// mayDelete is the promise that matters most.
func (w *world) mayDelete(a powersave.DeletePod) {
	n := w.node(a.Node)
	if p := w.pods[n.index]; p == nil || p.UID != a.UID || p.Phase == powersave.PodTerminating && !p.stays || p.Phase == powersave.PodFailed {
		return
	}
	slack, runs := stale, slices.ContainsFunc(n.jobs, func(j *slurmJob) bool { return j.state == running })
	switch calm := w.now.After(w.rough); {
	case calm && runs: // nothing excuses that
		slack = -1
	case calm || runs:
		slack = inUseSlack
	}
	if n.uid == a.UID && n.serves() && !n.down && w.now.Sub(n.since) > slack && w.now.Sub(n.changed) > slack {
		w.breaks("deletes a pod in use", "%s of %s, which is %s since %.3f: %s", a.UID, a.Node, n.state(), n.since.Sub(start).Seconds(), a.Why)
	}
}

// mayUpdate looks at what slurmctld is told about a node.
func (w *world) mayUpdate(n *node, u powersave.NodeUpdate) {
	known := w.now.Sub(n.reasonAt) > stale
	switch {
	case u.Reason != "" && !strings.HasPrefix(u.Reason, powersave.ReasonPrefix):
		w.breaks("writes a reason without saying who", "%q on %s", u.Reason, n.name)
	case u.Reason != "" && n.foreign() && known:
		w.breaks("overwrites a reason", "%q of %s by %q", n.reason, n.name, u.Reason)
	case u.Reason == "" && !n.taken() && known && u.State == powersave.StatePowerDownForce && !n.flags.Any(powersave.NodePoweringDown):
		w.breaks("gives no reason", "%s %s", u.State, n.name)
	case u.Reason == "" && n.reason == "" && known && u.State == powersave.StatePowerDown && !n.flags.Any(powersave.NodePoweringDown):
		w.breaks("gives no reason", "%s %s", u.State, n.name)
	}
	if strings.Contains(u.Reason, "closed: ") && strings.Contains(u.Reason, apartErr) {
		w.breaks("closes a NodeSet for one job", "%s: %s", n.name, u.Reason)
	}
	w.mayTend(n, u)
	w.mayReplace(n, u)
	w.mayPutBack(n, u)
	if u.State != powersave.StateResume && u.State != powersave.StateUndrain {
		return
	}
	if n.flags.Any(powersave.NodeDrain) && n.foreign() && latest(n.drained, n.reasonAt).Before(n.looked) {
		w.breaks("loses a drain", "%s, which is %s: %q", n.name, n.state(), n.reason)
	}
	if n.flags.Any(powersave.NodeDrain) && known && w.now.Sub(n.drained) > stale && (n.taken() || n.reason == "") {
		w.breaks("undrains a node", "%s, which is %s: %q", n.name, n.state(), n.reason)
	}
	if !n.flags.Any(powersave.NodePoweringDown) || u.State != powersave.StateResume {
		return
	}
	if n.creating > 0 {
		w.breaks("frees a name that a pod is being made for", "%s", n.name)
	}
	if p := w.pods[n.index]; p != nil && p.alive() && w.now.Sub(p.Created) > stale {
		w.breaks("frees the name of a living pod", "%s, pod %s", n.name, p.UID)
	}
}

// mayAskForce looks at the jobs on nodes that boot, as far as their gates have told the bridge of them: whoever is taken off is told before.
// A bridge that has not heard of a job's start before this one may take this for that.
func (w *world) mayAskForce(u powersave.NodeUpdate) {
	if u.State != powersave.StatePowerDownForce {
		return
	}
	for _, name := range u.Nodes {
		n := w.node(name)
		if n.forced = (attempt{life: w.life, epoch: n.epoch}); w.slurmdGone(n) {
			n.goneAsked = w.now
		}
		for _, j := range n.jobs {
			gated := j.state == configuring && j.gate != 0 && j.gateLife == w.life && w.endOf(changeSets, 0).Before(j.gateAt) && (j.restarts == 0 || j.gateBefore == w.life)
			if gated && n.flags.Any(powersave.NodePoweringUp) && j.toldRun != j.restarts+1 && j.tellErrs == 0 {
				w.breaks("takes off a job that it has heard of", "job %d on %s", j.id, name)
			}
		}
	}
}

// mayForce looks at the jobs that giving back a node takes off it.
func (w *world) mayForce(n *node) {
	if !n.flags.Any(powersave.NodePoweringUp) && w.now.Sub(n.changed) > stale && n.serves() {
		w.breaks("takes down a node in use", "%s is %s", n.name, n.state())
	}
	for _, j := range n.jobs {
		if j.state != configuring && j.state != running {
			continue
		}
		for _, p := range j.parts {
			if p == j || w.bound(j, p) && w.knows(j) {
				w.mayTakeOff(p, n)
			}
		}
	}
}

// mayTakeOff looks at a job that loses all its nodes because n is given back.
func (w *world) mayTakeOff(j *slurmJob, n *node) {
	if j.toldRun != j.restarts+1 && j.tellErrs == 0 && w.now.Sub(j.asked) > stale && w.knows(j) {
		w.breaks("takes down a job that does not know why", "job %d on %s", j.id, n.name)
	}
	asked := j.asked // for the newest slice; what was up before that is not known to be of the gang
	for _, p := range j.parts {
		asked = latest(asked, p.asked)
	}
	// What a job had that was whole, the bridge need not remember; only when another component fails it learns whose it was.
	remembered := slices.Contains(j.nodes, n) || slices.ContainsFunc(w.spool, func(r spooled) bool {
		return !r.done && slices.ContainsFunc(r.Jobs, func(o powersave.Job) bool { return o.ID == j.id })
	})
	for _, m := range j.nodes {
		if !remembered && m.since.Before(w.lifeAt) {
			continue
		}
		if m != n && m.ours() && m.users == 1 && !j.unheard && w.now.After(w.rough) && w.endOf(powerUp, m.index).IsZero() &&
			!w.recently(m, stale, drain, prologError, badHardware) && (!m.taken() || !m.flags.Any(powersave.NodeDrain)) && // it was people's
			(m.set() == 0 || w.endOf(changeSets, 0).IsZero()) && (m.flags.Any(powersave.NodePoweringUp) || m.since.After(asked)) {
			m.half, m.halfSince, m.halfLife, m.halfKept = j, w.now, w.life, remembered
		}
	}
}

// knows says that the bridge has been told that the job has these nodes, by a resume file, or by a gate and a read.
func (w *world) knows(j *slurmJob) bool {
	return !j.unheard && w.endOf(changeSets, 0).Before(j.asked) && (!j.reported.IsZero() || !j.known.IsZero() && w.rough.Before(j.known))
}

// knowsLate says that the bridge can know of a job that was requeued at ResumeTimeout. One that was started since knows it from a request, which
// stays until the job is told; what only a gate told has gone with the bridge that heard it.
func (w *world) knowsLate(j *slurmJob) bool { return j.lateLife == w.life || !j.reported.IsZero() }

// mayHold looks at how long a job that was given back is to rest.
func (w *world) mayHold(j *slurmJob, a powersave.HoldJob, begin time.Time) {
	if a.Delay < 30*time.Second || a.Delay > 30*time.Minute {
		w.breaks("rests too short or too long", "job %d for %v", j.id, a.Delay)
	}
	if j.holdLife != w.life { // it knows what the record says
		j.holdLife = w.life
		if j.holds = min(j.holds, j.times-1); j.toldRun != j.restarts {
			j.holds = 0
		}
	}
	if least := leastRest(j.holds); begin.Sub(j.requeued) < least {
		w.breaks("rests no longer each time", "job %d for %v, the time before that %d times", j.id, begin.Sub(j.requeued), j.holds)
	}
	j.holds++
}

// leastRest is how long a job rests at least that was given back so many times before.
func leastRest(before int) time.Duration { return min(24*time.Second<<max(0, before), 24*time.Minute) }

// rests says that a job that was given back does. Who did not see to it himself knows what its record says.
func (w *world) rests(j *slurmJob) bool {
	if j.heldRun == j.restarts || j.backLife == w.life {
		return j.heldRun == j.restarts
	}
	return j.toldRun != j.restarts || !j.begin.Before(j.requeued.Add(leastRest(j.times-1)))
}

// mayStart looks whether a gate was told rightly that its job may start.
func (w *world) mayStart(j *slurmJob) {
	for _, n := range j.nodes {
		if n.ours() && !w.any(changeSets) && w.now.Sub(n.left) > time.Minute && j.state == configuring && !n.serves() && !n.since.After(j.asked) && n.set() == 0 {
			w.breaks("gate answered early", "job %d, but %s is %s", j.id, n.name, n.state())
		}
	}
}

// bootFailed looks at the verdict on a boot.
func (w *world) bootFailed(a powersave.BootFailed) {
	if a.Verdict.Trouble == powersave.TroubleNone || a.Verdict.Reason == "" {
		w.breaks("gives no reason", "verdict on %s: %q", a.Node, a.Verdict)
	}
	again := w.saidBefore(a)
	timedOut := !w.node(a.Node).downSince.IsZero() && (again || strings.HasPrefix(a.Verdict.Reason, "not up after ResumeTimeout"))
	told := a.Verdict.Trouble == powersave.TroubleRefused || timedOut || strings.Contains(a.Verdict.Reason, apartErr) // by Slurm, or by an answer
	// What was said of its pod before may be said again: who comes to that node late is given back for the same.
	seen := again && a.UID != ""
	if w.blind && !told && !seen && !w.blamed(w.node(a.Node)) {
		w.breaks("gives a boot up unread", "%s: %s", a.Node, a.Verdict)
	}
	w.mayTakeForGone(a)
	w.mayGiveUp(a)
	w.mayComeFirst(a)
	w.mayBlameRoom(a)
	w.opens(w.node(a.Node), a)
	w.backAt = w.now
	for _, id := range a.Jobs {
		w.job(id).failedAt = w.now
	}
	n := w.node(a.Node)
	if p := w.pods[n.index]; p == nil || !p.alive() || w.now.Sub(p.started) < prompt || p.started.Before(n.bootReq) { // one from before that slurmctld ignores
		return
	}
	if a.Verdict.Trouble != powersave.TroubleBootstrap || w.now.Sub(w.rough) < prompt || w.recently(n, resumeTimeout, quota, noImage, badConfig, badSet, crashing, mute, slowHost, slowSlurmd, refused, evict, lessRoom, leaveConf) {
		return
	}
	w.breaks("gives a healthy boot up", "%s, which is %s: %s", a.Node, n.state(), a.Verdict)
}

// mayComeFirst looks whether a NodeSet that is Greedy gives the youngest job back first: the one that was given its nodes last. A later
// slice makes no job younger. A power-up by hand of a node that boots already looks like another start.
func (w *world) mayComeFirst(a powersave.BootFailed) {
	n := w.node(a.Node)
	if w.strategy[n.set()] != powersave.Greedy || w.home(n.index) != nil || a.Verdict.Trouble != powersave.TroubleCapacity || strings.HasPrefix(a.Verdict.Reason, "not up after") || !w.now.After(w.rough) ||
		!w.endOf(powerUp, n.index).IsZero() && w.endOf(powerUp, n.index).After(w.lifeAt) {
		return
	}
	var asked time.Time
	for _, id := range a.Jobs {
		asked = latest(asked, w.job(id).gateAt, w.startedLast(w.job(id)))
	}
	for i, m := range w.nodes {
		p := w.pods[i]
		if m == n || !m.ours() || m.set() != n.set() || len(m.jobs) != 1 || p == nil || p.Phase != powersave.PodPending || p.Trouble != powersave.TroubleCapacity || w.now.Sub(p.troubleAt) < time.Second ||
			!w.endOf(powerUp, i).IsZero() {
			continue
		}
		if j := m.jobs[0]; len(a.Jobs) > 0 && j.state == configuring && j.first.After(asked) && j.gateAt.After(asked) && j.failedAt.Before(j.asked) && j.opts&het == 0 {
			w.breaks("gives the older job back first", "%s of jobs %v, but %s waits for job %d: %s", a.Node, a.Jobs, m.name, j.id, a.Verdict)
		}
	}
}

// recently says whether one of the faults has befallen the node of late.
func (w *world) recently(n *node, d time.Duration, faults ...kind) bool {
	return slices.ContainsFunc(faults, func(k kind) bool { return w.now.Sub(w.endOf(k, n.index)) < d })
}

// mayCreate looks whether anybody wants the pod.
func (w *world) mayCreate(n *node) {
	if n.flags.Any(powersave.NodePoweredDown) && !n.flags.Any(powersave.NodePowerUp) && len(n.jobs) == 0 && n.downReq.After(n.bootReq) && w.now.Sub(n.downReq) > stale &&
		!w.recently(n, stale+recovery, createSlow, readFails, readSlow, readEmpty, slurmAway, slurmctldRestart, leaveConf) {
		w.breaks("makes a pod that nobody wants", "%s since %.3f", w.show(n), n.downReq.Sub(start).Seconds())
	}
}

// mayBoot looks whether a request that was old when the bridge got it still stood.
func (w *world) mayBoot(n *node, a powersave.CreatePod) {
	for _, r := range w.spool {
		if got := latest(w.lifeAt, r.at); r.ID == a.Request && got.Sub(r.Started) > config.FreshFor && n.downReq.After(r.Started) && n.downReq.Before(got) &&
			n.flags.Any(powersave.NodePoweredDown|powersave.NodePoweringDown) && !n.flags.Any(powersave.NodePowerUp) && len(n.jobs) == 0 {
			w.breaks("carries out what Slurm has taken back", "%s for %s: %s", r.ID, w.show(n), n.state())
		}
	}
}

// patrol looks every second whether what must not last does.
func (w *world) patrol() {
	if w.engine == nil {
		for _, n := range w.nodes {
			n.oddSince = w.now
		}
		return
	}
	for i, n := range w.nodes {
		w.patrolNode(n, w.pods[i])
	}
	for _, j := range w.jobs {
		if j.state != over {
			w.patrolJob(j)
		}
	}
	if w.anyAsks() {
		w.patrolRooms()
	}
	if w.marks {
		w.patrolMarks()
	}
	for _, r := range w.spool {
		if w.smooth(r.at, resumeTimeout+suspendTimeout+recovery) {
			w.breaks("request stays", "%s since %.3f: %s", r.ID, r.at.Sub(start).Seconds(), w.picture())
		}
	}
}

func (w *world) patrolNode(n *node, p *pod) {
	off := n.flags.Any(powersave.NodePoweredDown) && p != nil && (p.Phase != powersave.PodTerminating || p.stays)
	bare := n.flags.Any(powersave.NodePoweringUp) && p == nil && n.ours() && n.refusedAt.IsZero()
	if !off && !bare {
		n.oddSince = w.now
	} else if w.smooth(n.oddSince, orphan) {
		w.breaks("orphan stays", "%s", w.show(n))
	}
	w.patrolHost(n, p)
	w.patrolHome(n, p)
	w.patrolUpdate(n, p)
	w.patrolClosed(n, p)
	w.patrolGone(n, p)
	if w.rolling != [2]int{} {
		w.patrolOutdated(n, p)
		w.patrolReserved(n, p)
	}
	if w.leftDown {
		w.patrolDown(n, p)
	}
	if n.down || n.flags.Any(powersave.NodeDrain) {
		n.judged = n.epoch
	}
	if !n.flags.Any(powersave.NodePoweringDown) || p != nil || n.judged == n.epoch || n.unheard == n.epoch || !n.ours() || w.leftToTimeout(n) ||
		n.set() == 1 && w.now.Sub(w.endOf(changeSets, 0)) < suspendTimeout {
		n.emptySince = w.now
	} else if w.smooth(n.emptySince, prompt) {
		w.breaks("name stays taken", "%s", w.show(n))
	}
	switch {
	case n.taken() && n.flags.Any(powersave.NodeDrain): // people decide what becomes of it
		n.half = nil
	case n.half != nil && n.halfLife != w.life && !n.halfKept:
		n.half = nil
	case n.half != nil && n.halfLife != w.life && n.half.state == over: // a job that may not be requeued: Slurm does not tell of it any more
		n.half = nil
	case n.half != nil && n.halfLife != w.life && n.flags.Any(powersave.NodePoweringUp): // who gave the job back is gone; it may be let go when it is up
		n.halfSince = w.now
	case n.down, p != nil && p.host && (p.dead || w.on(silenceHost, p.at)): // nobody could confirm that its pod ends
		n.halfSince = w.now
	}
	if n.half != nil && !n.flags.Any(powersave.NodePowerDown) && len(n.jobs) == 0 && w.sharp() && w.smooth(n.halfSince, prompt) {
		w.breaks("half a gang idles", "%s booted for job %d, which was given back at %.3f", w.show(n), n.half.id, n.halfSince.Sub(start).Seconds())
	}
}

// sharp says that both NodeSets give gangs back whole, and the bridge has not lost sight of them.
func (w *world) sharp() bool {
	return w.strategy[0] != powersave.BestEffort && w.strategy[1] != powersave.BestEffort
}

// deadline is how long a job may wait for its nodes.
func (w *world) deadline(j *slurmJob) (d time.Duration) {
	for _, n := range j.nodes {
		of := resumeTimeout - 5*time.Second
		if w.untold {
			of = resumeTimeout
		}
		switch own := w.schedule.deadline; {
		case n.set() != 1 || !n.ours() || own == 0:
		case w.endOf(changeSets, 0).IsZero():
			of = own
		default: // it may not have been known
			of = max(of, own)
		}
		d = max(d, of)
	}
	return d
}

func (w *world) patrolJob(j *slurmJob) {
	up, alone := true, false
	for _, n := range j.nodes {
		up = up && n.serves()
		alone = alone || n.ours() && !n.serves() && n.users == 1 // else it may have to wait with the others
	}
	switch {
	case j.gate == 0 || j.state != configuring || !up:
		j.upSince = w.now
	case w.smooth(j.upSince, prompt):
		w.breaks("gate stays", "job %d, whose nodes serve", j.id)
	}
	if j.gate != 0 && w.now.Sub(j.gateUntil) > prompt && w.engine != nil {
		w.breaks("gate stays", "job %d, whose gate was to be let go at %.3f", j.id, j.gateUntil.Sub(start).Seconds())
	}
	switch {
	case j.state == pending && j.gate != 0 && j.backLife == w.life && w.smooth(j.gateSince, prompt):
		w.breaks("gate stays", "job %d, which was requeued", j.id)
	case j.state == pending && j.backLife != 0 && !w.rests(j) && w.smooth(j.backAt, prompt):
		w.breaks("does not rest", "job %d, given back at %.3f", j.id, j.backAt.Sub(start).Seconds())
	case j.state == pending && j.lateRun == j.restarts && w.knowsLate(j) && j.toldRun != j.restarts && j.tellErrs == 0 && w.smooth(j.requeued, prompt):
		w.breaks("is not told why", "job %d, requeued at ResumeTimeout, at %.3f", j.id, j.requeued.Sub(start).Seconds())
	case j.state == configuring && alone && !j.unheard && !j.reported.IsZero() && w.smooth(j.reported, w.deadline(j)+prompt/3):
		w.breaks("gang waits", "job %d since %.3f: %s", j.id, j.reported.Sub(start).Seconds(), w.picture())
	}
	if j.state == configuring && !j.reported.IsZero() && !j.unheard {
		for _, n := range j.nodes {
			w.patrolMember(j, n, w.pods[n.index])
		}
	}
}

// patrolMember looks whether a node that cannot boot keeps its job waiting.
func (w *world) patrolMember(j *slurmJob, n *node, p *pod) {
	if !n.ours() || !n.flags.Any(powersave.NodePoweringUp) {
		return
	}
	if p == nil && n.set() == 0 && w.offers {
		return // other offerings are tried, and pods on them waited for
	}
	greedy := w.strategy[n.set()] == powersave.Greedy
	since, why := n.refusedAt, powersave.TroubleQuota
	switch {
	case p == nil && w.asks[n.set()] && (since.Before(w.lifeAt) || w.asksAnew(j, since)): // who was refused before may wait for room now
		since, why = w.roomTrouble(j), powersave.TroubleCapacity
	case p != nil && p.Room != "" && p.Trouble == powersave.TroubleCapacity:
		return // its host is on its way
	case p != nil:
		if p.Trouble == powersave.TroubleNone || p.Phase != powersave.PodPending && p.Phase != powersave.PodScheduled || !p.ScaleUp.IsZero() {
			return
		}
		since, why = p.troubleAt, p.Trouble
	}
	if since.IsZero() || greedy && (why == powersave.TroubleCapacity || why == powersave.TroubleQuota) {
		return
	}
	if since.Before(j.reported) {
		since = j.reported
	}
	if w.smooth(since, grace+prompt) {
		w.breaks("no is slow", "job %d waits for %s since %.3f: %s", j.id, w.show(n), since.Sub(start).Seconds(), why)
	}
}

// What people see.

func (w *world) show(n *node) string {
	s := n.name + " is " + n.state().String()
	if n.reason != "" {
		s += fmt.Sprintf(" (%s)", n.reason)
	}
	if p := w.pods[n.index]; p != nil {
		s += fmt.Sprintf(", pod %s %s %s", p.UID, p.Phase, p.Reason)
	}
	return strings.TrimSpace(s)
}

// picture shows what is not at rest.
func (w *world) picture() string {
	var out []string
	for i, n := range w.nodes {
		if w.pods[i] != nil || n.state() != powersave.NodeIdle|powersave.NodeCloud|powersave.NodePoweredDown {
			out = append(out, w.show(n))
		}
	}
	for _, j := range w.jobs {
		if j.state != over {
			out = append(out, fmt.Sprintf("job %d %s on %v", j.id, jobStates[j.state], hostlist(j.nodes)))
		}
	}
	return strings.Join(out, "; ")
}

func (w *world) logEvent(ev powersave.Event) {
	if _, tick := ev.(powersave.Tick); !tick {
		w.logf("  <- %s", story(ev))
	}
}

func (w *world) logAction(a powersave.Action) { w.logf("  -> %s", story(a)) }

// story is an event or action in short.
func story(what any) string {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", what), "powersave.")
	switch v := what.(type) {
	case powersave.PodSeen:
		return strings.TrimSpace(fmt.Sprintf("%s %s %s gen=%d %s %s %s", kind, v.Pod.Node, v.Pod.UID, v.Pod.Generation, v.Pod.Phase, v.Pod.Host, v.Pod.Reason))
	case powersave.PodsRead:
		var pods []string
		for _, p := range v.Pods {
			pods = append(pods, fmt.Sprintf("%s/%s/%s", p.Node, p.UID, p.Phase))
		}
		return fmt.Sprintf("%s %v", kind, pods)
	case powersave.SlurmRead:
		var nodes []string
		for _, n := range v.Nodes {
			if v.Complete && n.State == powersave.NodeIdle|powersave.NodeCloud|powersave.NodePoweredDown {
				continue
			}
			nodes = append(nodes, n.Name+"="+strings.Replace(n.State.String(), "+CLOUD", "", 1))
		}
		return fmt.Sprintf("%s complete=%v %s", kind, v.Complete, strings.Join(nodes, " "))
	case powersave.RequestAccepted:
		return fmt.Sprintf("%s %s %v jobs=%v", kind, v.Request.ID, v.Request.Nodes, v.Request.Jobs)
	case powersave.MarkPod:
		return fmt.Sprintf("%s %s %s busy=%v", kind, v.Node, v.UID, v.Busy)
	case powersave.PodMarked:
		return fmt.Sprintf("%s %s %s busy=%v %s", kind, v.Node, v.UID, v.Busy, v.Err)
	case powersave.NodeSetsRead:
		return fmt.Sprintf("%s %d", kind, len(v.NodeSets))
	case powersave.UpdateNodes:
		return fmt.Sprintf("%s %s %q", kind, v.Update, v.Update.Reason)
	case powersave.NodesUpdated:
		return fmt.Sprintf("%s %s %s", kind, v.Update, v.Err)
	case powersave.BootDone:
		return fmt.Sprintf("%s %s %s", kind, v.Boot.Node, v.Boot.UID)
	case powersave.DeletePod:
		return fmt.Sprintf("%s %s %s: %s", kind, v.Node, v.UID, v.Why)
	}
	return fmt.Sprintf("%s %+v", kind, what)
}
