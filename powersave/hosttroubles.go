package powersave

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Host is a Kubernetes node, as far as it can trouble the pods on it.
type Host struct {
	Name string
	// Trouble is HostCordoned, HostNotReady, HostGone, or what else is wrong with it ("tainted KEY"); "" if nothing is.
	Trouble string
	// Repels is a taint that keeps the pod of the node off it that has this host alone (NodeSet.Pinned), "tainted KEY": Trouble goes by the
	// pods that are there.
	Repels string
}

// Troubles of a Host.
const (
	HostCordoned = "cordoned"
	HostNotReady = "not ready"
	HostGone     = "gone"
)

const (
	// HostPrefix begins the reason of nodes that are drained because of their host; only those are put back.
	HostPrefix = ReasonPrefix + "host: "
	// silence is how long a host may be silent: a kubelet that restarts, a lease that comes late, a list older than the host.
	silence = 10 * time.Second
	// notResponding is slurmctld's own reason (ping_nodes.c, node_mgr.c).
	notResponding = "Not responding"
)

// HostTroubles remembers which hosts are in trouble, and since when. The zero value knows of none.
type HostTroubles struct{ in map[string]hostTrouble }

type hostTrouble struct {
	what, repels string
	since        time.Time // of what
}

func (t hostTrouble) silent() bool { return t.what == HostNotReady || t.what == HostGone }

// Take takes in the newest state of a host; false: it says nothing new.
func (t *HostTroubles) Take(now time.Time, h Host) bool {
	old, known := t.in[h.Name]
	if old.what == h.Trouble && old.repels == h.Repels {
		return false
	}
	if t.in == nil {
		t.in = map[string]hostTrouble{}
	}
	if !known || old.what != h.Trouble {
		old.since = now
	}
	t.in[h.Name] = hostTrouble{h.Trouble, h.Repels, old.since}
	if h.Trouble == "" && h.Repels == "" {
		delete(t.in, h.Name)
	}
	return true
}

// TakeAll takes in the complete list: hosts of pods that are missing in it are gone. It names those of which it says something new.
func (t *HostTroubles) TakeAll(now time.Time, hosts []Host, used map[string]bool) (changed []string) {
	listed := make(map[string]bool, len(hosts))
	for _, h := range hosts {
		listed[h.Name] = true
		if t.Take(now, h) {
			changed = append(changed, h.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if !listed[name] && t.Take(now, Host{Name: name, Trouble: HostGone}) {
			changed = append(changed, name)
		}
	}
	t.Forget(used)
	return changed
}

// Forget drops hosts that are gone and that no pod is on: they come and go, and must not be remembered for ever.
func (t *HostTroubles) Forget(used map[string]bool) {
	maps.DeleteFunc(t.in, func(name string, h hostTrouble) bool { return h.what == HostGone && !used[name] })
}

// Silent reports that nobody could confirm that a pod on the host ends.
func (t *HostTroubles) Silent(host string) bool { return t.in[host].silent() }

// Judge says what speaks against new jobs on a host, "" if nothing does, and whether its pods should leave it when their jobs have ended: not
// as long as it is silent. Silence counts after a while; for what was drained for its host already it counts at once. If it does not
// yet, until is when it will.
func (t *HostTroubles) Judge(now time.Time, host string, drained bool) (why string, leave bool, until time.Time) {
	h := t.in[host]
	if h.what == "" {
		return "", false, time.Time{}
	}
	if until := h.since.Add(silence); h.silent() && until.After(now) && !drained {
		return "", false, until
	}
	return undivided(host + " is " + h.what), !h.silent(), time.Time{}
}

// JudgeOwn does so for a node that boots on this host alone.
func (t *HostTroubles) JudgeOwn(now time.Time, host string, drained bool) (why string, until time.Time) {
	if h := t.in[host]; h.what == "" && h.repels != "" {
		return undivided(host + " is " + h.repels), time.Time{}
	}
	why, _, until = t.Judge(now, host, drained)
	return why, until
}

// DrainedForHost says that nobody but us keeps the node out of use, and that it is for its host, or its pod's end: slurmctld adds its own reasons
// to ours (node_mgr.c set_node_reason). Its state is to be looked at, too: reasons outlive drains.
func (s SlurmNode) DrainedForHost() bool { return s.drainedFor(HostPrefix) }

func (s SlurmNode) drainedFor(prefix string) bool {
	why, ours := strings.CutPrefix(s.Reason, prefix)
	_, more, added := strings.Cut(why, addedAfter)
	return ours && (!added || more == notResponding)
}

// Unspoken says that no person has written the node's reason, nor is to look at it: it is empty, ours, or slurmctld's about a node that does
// not answer.
func (s SlurmNode) Unspoken() bool {
	silent, is := strings.CutPrefix(s.Reason, notResponding)
	return mayWrite(s.Reason) || is && mayWrite(silent)
}
