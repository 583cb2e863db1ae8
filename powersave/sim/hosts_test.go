package sim_test

import (
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// The model of Kubernetes' hosts: what befalls them, what becomes of their pods, and a watch of their own. And of the mark that
// keeps pods from being evicted.

const hostCount = 3

// hostNames by index; the first are those of NodeSet b, if its nodes have hosts of their own.
var hostNames = [hostCount]string{"n4", "n5", "h2"}

// home is the only host that the node runs on; nil: it has none of its own.
func (w *world) home(index int) *machine {
	if i := index - setNodes[0].Len(); w.pinned && 0 <= i && i < setNodes[1].Len() {
		return &w.machines[i]
	}
	return nil
}

// homeless says since when the node could not boot, for its own host; zero: it could. Silence counts after a while.
func (w *world) homeless(index int) (since time.Time) {
	m := w.home(index)
	if m == nil || m.trouble == "" {
		return time.Time{}
	}
	if m.trouble == powersave.HostNotReady || m.trouble == powersave.HostGone {
		return m.since.Add(silent)
	}
	return m.since
}

// machine is a host, as Kubernetes shows it.
type machine struct {
	trouble string
	since   time.Time
	told    string // by the watch
	marked  []mark // verdicts on its hardware
	tainted bool   // for the last of them
}

// silent is how long the engine waits for a silent host.
const silent = 10 * time.Second

func (w *world) hostTrouble(i int) string {
	switch {
	case w.on(loseHost, i):
		return powersave.HostGone
	case w.on(cordon, i), w.on(emptyHost, i):
		return powersave.HostCordoned
	case w.on(taintHost, i):
		return "tainted example.com/repair"
	case w.machines[i].tainted:
		return "tainted slurmtide.io/bad-hardware"
	case w.on(silenceHost, i):
		return powersave.HostNotReady
	}
	return ""
}

// doHost begins a step that befalls a host.
func (w *world) doHost(st *step) {
	i := st.node
	w.reviewHost(i)
	w.after(st.long, func() { w.reviewHost(i) })
	switch st.what {
	case emptyHost:
		w.emptyHost(i)
	case loseHost:
		for _, p := range w.pods {
			if p != nil && p.host && p.at == i {
				p.dead = true
				w.lost(w.nodes[p.index], p.UID)
				w.after(w.some(15*time.Second, loseHost, p.index), func() { w.vanish(p) })
			}
		}
	default:
	}
}

// emptyHost is kubectl drain: pods that are not marked are evicted, again and again.
func (w *world) emptyHost(i int) {
	if !w.on(emptyHost, i) {
		return
	}
	for _, p := range w.pods {
		if p != nil && p.host && p.at == i && !p.Busy && !p.dead && p.Phase != powersave.PodFailed {
			w.terminate(p, powersave.OwnGrace)
		}
	}
	w.after(5*time.Second, func() { w.emptyHost(i) })
}

func (w *world) reviewHost(i int) {
	m := &w.machines[i]
	if trouble := w.hostTrouble(i); trouble != m.trouble {
		w.logf("%s is %s", hostNames[i], trouble)
		m.trouble, m.since = trouble, w.now
		if trouble == "" {
			w.placeAll()
		}
	}
	w.tellHost(i)
}

// tellHost is the watch of hosts, which knows nothing of the order in which pods are told.
func (w *world) tellHost(i int) {
	m := &w.machines[i]
	switch {
	case !w.hostsListed || m.told == m.trouble:
	case w.any(watchGap):
		w.at(w.endOf(watchGap, 0), func() { w.tellHost(i) })
	default:
		m.told = m.trouble
		w.deliverHosts(powersave.HostSeen{Host: powersave.Host{Name: hostNames[i], Trouble: m.trouble}})
	}
}

func (w *world) deliverHosts(ev powersave.Event) {
	if at := w.now.Add(w.delay(20*time.Millisecond, watchSlow, 1, 5*time.Second)); at.After(w.hostsAt) {
		w.hostsAt = at
	}
	w.tell(w.hostsAt.Sub(w.now), ev)
}

func (w *world) listHosts(life int) {
	switch {
	case life != w.life:
		return
	case w.any(watchGap):
		w.at(w.endOf(watchGap, 0), func() { w.listHosts(life) })
		return
	}
	w.hostsListed, w.hostsAt = true, w.now
	var ev powersave.HostsRead
	for i := range w.machines {
		m := &w.machines[i]
		m.told = m.trouble
		if m.trouble != powersave.HostGone {
			ev.Hosts = append(ev.Hosts, powersave.Host{Name: hostNames[i], Trouble: m.trouble})
		}
	}
	w.deliverHosts(ev)
}

// leftToTimeout says that the node's name may not be freed before SuspendTimeout: its own host was in trouble when its pod had gone.
func (w *world) leftToTimeout(n *node) bool {
	m := w.home(n.index)
	return m != nil && (m.trouble != "" || w.now.Sub(m.since) < suspendTimeout)
}

// bind gives the pod a host that takes pods.
func (w *world) bind(p *pod) bool {
	from := int(w.some(hostCount*time.Millisecond, cordon, p.index) / time.Millisecond)
	for i := range hostCount {
		p.at = (from + i) % hostCount
		if m := &w.machines[p.at]; m.trouble == "" && (w.home(p.index) == nil || w.home(p.index) == m) {
			p.host, p.Host = true, hostNames[p.at]
			return true
		}
	}
	return false
}

func (w *world) markPod(a powersave.MarkPod, life int) {
	n := w.node(a.Node)
	answer := powersave.PodMarked{MarkPod: a}
	p := w.pods[n.index]
	switch {
	case w.on(markFails, n.index), w.any(kubeAway):
		answer.Err = "timeout"
	case p == nil || p.UID != a.UID:
	default:
		p.Busy = a.Busy
		w.watch(p)
		if w.on(markLost, n.index) {
			answer.Err = "timeout"
		}
	}
	w.tellLife(life, w.delay(5*time.Millisecond, createSlow, n.index, 10*time.Second), answer)
}

// What must hold.

const hostReason = powersave.ReasonPrefix + "host: "

// mayTend looks at updates that concern hosts.
func (w *world) mayTend(n *node, u powersave.NodeUpdate) {
	p := w.pods[n.index]
	if p == nil || !p.alive() || !p.host || !w.now.After(w.rough) {
		return
	}
	m, drain := &w.machines[p.at], u.State == powersave.StateDrain && strings.HasPrefix(u.Reason, hostReason) && p.Phase != powersave.PodTerminating
	long := w.now.Sub(m.since)
	switch {
	case drain && m.trouble == "" && long > stale && w.now.Sub(p.born) > stale:
		w.breaks("drains a healthy node", "%s on %s: %s", n.name, p.Host, u.Reason)
	case drain && m.trouble == powersave.HostNotReady && long < silent && strings.Contains(u.Reason, powersave.HostNotReady): // else it is for what was before
		w.breaks("drains for a moment's silence", "%s on %s", n.name, p.Host)
	case u.State == powersave.StatePowerDown && len(n.jobs) == 0 && m.trouble == powersave.HostNotReady && long > stale && strings.HasPrefix(n.reason, hostReason):
		w.breaks("powers down what it cannot see go", "%s on %s", n.name, p.Host)
	}
}

// patrolHost looks whether a node whose host or pod is in trouble takes jobs, and is put back when that is over.
func (w *world) patrolHost(n *node, p *pod) {
	if p == nil && n.flags.Any(powersave.NodePoweredDown) && !n.flags.Any(powersave.NodeDrain) { // most of the time
		n.goneSince, n.fineSince, n.markSince = w.now, w.now, w.now
		return
	}
	known := n.ours() && w.hostsListed && (n.set() == 0 || !w.any(changeSets))
	serves := known && n.serves() && !n.down
	var bad time.Time
	switch {
	case p == nil:
	case p.Phase == powersave.PodTerminating:
		bad = p.endAt
	case p.host && w.machines[p.at].trouble != "":
		if bad = w.machines[p.at].since; p.dead || w.machines[p.at].trouble == powersave.HostNotReady {
			bad = bad.Add(silent)
		}
	}
	if since := latest(bad, n.since); !bad.IsZero() && serves && w.now.Sub(n.reasonAt) > idle && !n.taken() && !n.flags.Any(powersave.NodeDrain|powersave.NodePowerDown) && w.smooth(since, prompt) {
		w.breaks("takes jobs on a bad host", "%s since %.3f", w.show(n), bad.Sub(start).Seconds())
	}
	epilogs := n.flags.Any(powersave.NodePowerDown) && n.newest() == nil // for which slurmctld waits (power_save.c _node_state_suspendable)
	if !serves || n.uid == "" || n.taken() || epilogs || p != nil && (p.alive() || w.unconfirmed(p)) {
		n.goneSince = w.now
	} else if w.smooth(n.goneSince, 25*time.Second) && (p == nil || p.Phase == powersave.PodFailed) {
		w.breaks("counts on a pod that is gone", "%s since %.3f", w.show(n), n.goneSince.Sub(start).Seconds())
	}
	fine := known && n.flags.Any(powersave.NodeDrain) && strings.HasPrefix(n.reason, hostReason) && !n.taken()
	least := prompt
	if n.down {
		n.lastDown = w.now
	}
	switch {
	case p == nil && w.home(n.index) != nil && w.home(n.index).trouble != "":
		fine = false
	case p == nil && n.flags.Any(powersave.NodePoweredDown):
		least = idle
	case p == nil || !p.alive() || p.stays || !p.host || w.machines[p.at].trouble != "" || !serves || n.flags.Any(powersave.NodePowerDown):
		fine = false
	case n.lastDown.Equal(n.fineSince): // somebody else has brought it back from DOWN, of which nothing tells
		least = idle
	}
	if !fine {
		n.fineSince = w.now
	} else if w.smooth(n.fineSince, least) {
		w.breaks("stays drained", "%s since %.3f", w.show(n), n.fineSince.Sub(start).Seconds())
	}
	if !serves || p == nil || !p.alive() || p.stays || n.cleaning != nil || (len(n.jobs) > 0) == p.Busy {
		n.markSince = w.now
	} else if w.smooth(latest(n.markSince, n.changed, w.watchFrom), w.untilMarked(n, p)) {
		w.breaks("mark is wrong", "pod %s of %s since %.3f: busy=%v with %d jobs", p.UID, n.name, n.markSince.Sub(start).Seconds(), p.Busy, len(n.jobs))
	}
}

// patrolHome looks whether a node that is off leaves Slurm's choice when the host that it has alone is in trouble, and comes back.
func (w *world) patrolHome(n *node, p *pod) {
	m, drained := w.home(n.index), n.flags.Any(powersave.NodeDrain)
	if m == nil {
		return
	}
	if since := &w.homeSince[n.index]; p != nil || !n.ours() || !w.hostsListed || w.any(changeSets) || n.flags&^powersave.NodeDrain != powersave.NodePoweredDown || n.down || len(n.jobs) > 0 || n.taken() || n.forgotten ||
		drained != w.homeDrain[n.index] {
		*since, w.homeDrain[n.index] = w.now, drained
	}
	bad, since := w.homeless(n.index), latest(w.homeSince[n.index], n.reasonAt)
	switch {
	case !bad.IsZero() && !drained && w.smooth(latest(bad, since), idle):
		w.breaks("offers a node that has no host", "%s since %.3f, its host is %s", w.show(n), bad.Sub(start).Seconds(), m.trouble)
	case m.trouble == "" && drained && strings.HasPrefix(n.reason, closedReason) && strings.Contains(n.reason, " is ") && w.smooth(latest(m.since, since), idle):
		w.breaks("stays closed", "%s, and its host has been well since %.3f", w.show(n), m.since.Sub(start).Seconds())
	}
}

// unconfirmed says that a pod is being deleted, and that its host, being silent, tells nobody whether its slurmd has ended.
func (w *world) unconfirmed(p *pod) bool {
	return p.Phase == powersave.PodTerminating && p.host && !p.dead && w.on(silenceHost, p.at)
}

// untilMarked is how long the mark may be behind: a start gate has Slurm read, else the next read is that of an idle bridge. It has
// to be less than what nodes may be idle.
func (w *world) untilMarked(n *node, p *pod) time.Duration {
	if !p.Busy && slices.ContainsFunc(n.jobs, func(j *slurmJob) bool { return j.gateLife == w.life && w.now.Sub(j.gateAt) > prompt }) {
		return prompt
	}
	return config.PollIdle + 2*time.Second
}

func latest(times ...time.Time) (t time.Time) {
	for _, o := range times {
		if o.After(t) {
			t = o
		}
	}
	return t
}
