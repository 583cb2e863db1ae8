package powersave

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Phase says how far a boot is.
type Phase string

// Phases of a boot, in order.
const (
	PhaseAccepted   Phase = "accepted"   // read from the spool
	PhaseCreating   Phase = "creating"   // Kubernetes was asked for the pod
	PhasePending    Phase = "pending"    // the pod has no host yet
	PhaseStarting   Phase = "starting"   // scheduled; image and container are being prepared
	PhaseRunning    Phase = "running"    // slurmd runs and has not registered
	PhaseRegistered Phase = "registered" // slurmctld accepted the node
	PhaseRemoving   Phase = "removing"   // the pod is being deleted
	PhaseFreeing    Phase = "freeing"    // the pod is gone, Slurm is being told
)

// BootPhases are those of a boot that is under way, furthest behind first: the pod of an earlier boot may have to go.
var BootPhases = []Phase{PhaseRemoving, PhaseAccepted, PhaseCreating, PhasePending, PhaseStarting, PhaseRunning}

// Timeline holds when the Engine saw each phase of a boot begin. Requested is the start of
// ResumeProgram, the others are the bridge's clock; zero means not yet, or not seen.
type Timeline struct {
	Requested  time.Time `json:"requested"`
	Accepted   time.Time `json:"accepted"`
	Asked      time.Time `json:"asked,omitzero"`
	Created    time.Time `json:"created,omitzero"`
	Scheduled  time.Time `json:"scheduled,omitzero"`
	Running    time.Time `json:"running,omitzero"`
	Registered time.Time `json:"registered,omitzero"`
}

// Boot describes a boot, or a power-down, in flight or finished.
type Boot struct {
	Node       string   `json:"node"`
	NodeSet    string   `json:"nodeSet,omitempty"`
	Offering   string   `json:"offering,omitempty"`
	Generation int64    `json:"generation"`
	Request    string   `json:"request,omitempty"`
	Jobs       []uint32 `json:"jobs,omitempty"`
	Phase      Phase    `json:"phase"`
	Problem    string   `json:"problem,omitempty"`
	UID        string   `json:"podUID,omitempty"`
	Host       string   `json:"host,omitempty"`
	Times      Timeline `json:"times"`
}

// Off describes a finished power-down.
type Off struct {
	Node    string   `json:"node"`
	NodeSet string   `json:"nodeSet,omitempty"`
	Request string   `json:"request,omitempty"` // empty: reconciling found an orphan
	Why     string   `json:"why"`
	UID     string   `json:"podUID,omitempty"` // empty: there was no pod
	Host    string   `json:"host,omitempty"`
	Times   OffTimes `json:"times"`
}

// OffTimes holds when the Engine saw each phase of a power-down end. Requested is the start of
// SuspendProgram or ResumeFailProgram, the others are the bridge's clock; zero means that it did not happen.
type OffTimes struct {
	Requested time.Time `json:"requested,omitzero"`
	Accepted  time.Time `json:"accepted"`
	Confirmed time.Time `json:"confirmed,omitzero"` // Slurm showed that it does not use the node
	PodGone   time.Time `json:"podGone,omitzero"`
	Freed     time.Time `json:"freed,omitzero"` // slurmctld took the node's name back
	Finished  time.Time `json:"finished"`
}

// Note is a problem worth remembering.
type Note struct {
	Time    time.Time `json:"time"`
	Node    string    `json:"node,omitempty"`
	Request string    `json:"request,omitempty"`
	Text    string    `json:"text"`
}

// NodeSetCounts is what a NodeSet's status shows.
type NodeSetCounts struct {
	Name string `json:"name"`
	// Generation of the NodeSet's spec that the figures speak of; 0: not known.
	Generation int64 `json:"generation,omitempty"`
	// Nodes is the number of names, PoweredUp those that Slurm has on or turns on, Booting those
	// of them whose slurmd has not registered, Ready those that serve, Failed those that are
	// down or whose boot has a problem, Unknown those that slurmctld has no record of.
	Nodes     int    `json:"nodes"`
	PoweredUp int    `json:"poweredUp"`
	Booting   int    `json:"booting"`
	Ready     int    `json:"ready"`
	Failed    int    `json:"failed"`
	Unknown   int    `json:"unknown"`
	Problem   string `json:"problem,omitempty"`
	// Unread is how many of Nodes no read of Slurm has told of: the figures leave them out.
	Unread int `json:"unread,omitempty"`
	// Stale says that the figures are old, and why: Slurm has not been read for a minute. Empty: they are not.
	Stale string `json:"stale,omitempty"`
	// Partitions are those for whose pending jobs its nodes are made, in mode Dynamic; nil: not known, or mode Cloud, where slurm.conf says it.
	Partitions []string `json:"partitions,omitempty"`
	// InUse is how many nodes each offering has.
	InUse map[string]int `json:"inUse,omitempty"`
	// Breakers of the NodeSet and its offerings, as Breakers.Snapshot returns them; nil: not known.
	Breakers []BreakerRecord `json:"breakers,omitempty"`
	Floor    *FloorCounts    `json:"floor,omitempty"` // nil: it has none
	// BootTimes of its newest boots.
	BootTimes BootTimes     `json:"bootTimes,omitempty"`
	Update    *UpdateCounts `json:"update,omitempty"` // nil: its revision, or its pods, are not known
}

// Status is a picture of the Engine.
type Status struct {
	Time           time.Time       `json:"time"`
	KubernetesRead bool            `json:"kubernetesRead"`
	SlurmRead      time.Time       `json:"slurmRead,omitzero"` // newest complete read
	SlurmError     string          `json:"slurmError,omitempty"`
	SlurmReads     int             `json:"slurmReads"`
	NodeSets       []NodeSetCounts `json:"nodeSets"`
	Boots          []Boot          `json:"boots"` // in flight
	Offs           []Boot          `json:"offs"`  // power-downs in flight
	Requests       int             `json:"requests"`
	Gates          int             `json:"gates"`
	Pods           int             `json:"pods"`
	Notes          []Note          `json:"notes"`
	History        []Boot          `json:"history,omitempty"`
	FinishedOffs   []Off           `json:"finishedOffs,omitempty"`
}

// Status describes the state at now; it changes nothing.
func (e *Engine) Status(now time.Time) Status {
	st := Status{
		Time: now, KubernetesRead: e.podsRead && e.setsRead, SlurmRead: e.reads.complete, SlurmError: e.reads.lastErr, SlurmReads: e.reads.count,
		NodeSets: append([]NodeSetCounts{}, e.Counts()...), Boots: []Boot{}, Offs: []Boot{}, Requests: len(e.requests), Gates: len(e.gates) + len(e.heldGates),
		Notes: append([]Note{}, e.notes...), History: slices.Clone(e.history), FinishedOffs: slices.Clone(e.offHistory),
	}
	for _, n := range e.all() {
		if n.pod != nil {
			st.Pods++
		}
	}
	for _, n := range e.active {
		switch {
		case n.off != nil:
			st.Offs = append(st.Offs, n.offStatus())
		case n.boot != nil:
			st.Boots = append(st.Boots, n.bootStatus(e.offeringOf(n)))
		}
	}
	return st
}

// Counts returns the figures of every NodeSet, by name. Nil: which there are has not been read yet.
func (e *Engine) Counts() []NodeSetCounts {
	if !e.setsRead {
		return nil
	}
	list := make([]NodeSetCounts, len(e.sets))
	counts := make(map[string]*NodeSetCounts, len(list))
	for i, name := range slices.Sorted(maps.Keys(e.sets)) {
		s := e.sets[name]
		list[i] = NodeSetCounts{
			Name: name, Generation: s.SpecGeneration, Nodes: s.Nodes.Len(), Problem: s.Problem, Stale: e.Unread(),
			Breakers: e.breakers.Snapshot(name), BootTimes: e.bootTimes[name],
		}
		counts[name] = &list[i]
	}
	for _, n := range e.all() {
		c := counts[n.set]
		if c == nil {
			continue
		}
		if o := e.offeringOf(n); o != "" {
			if c.InUse == nil {
				c.InUse = map[string]int{}
			}
			c.InUse[o]++
		}
		if n.read == 0 {
			if n.readAt.IsZero() {
				c.Unread++
			}
			continue
		}
		state := n.slurm.State
		up := !n.missing && !state.Any(poweredOff|NodeFuture) || n.boot != nil
		switch {
		case n.missing:
			c.Unknown++
		case state.Any(NodeDown) || n.boot != nil && n.boot.problem != "":
			c.Failed++
		case n.boot != nil || state.Any(NodePoweringUp):
			c.Booting++
		case serving(state):
			c.Ready++
		}
		if up {
			c.PoweredUp++
		}
	}
	e.floorCounts(counts)
	e.updateCounts(counts)
	return list
}

// InHand says how many there are of something under way, and since when the oldest waits; zero: there is none.
type InHand struct {
	Number int
	Oldest time.Time
}

func (h *InHand) add(since time.Time) {
	if h.Number == 0 || since.Before(h.Oldest) {
		h.Oldest = since
	}
	h.Number++
}

// InHand tells of requests since their program started, boots since ResumeProgram, and power-downs since the Engine knows of them.
func (e *Engine) InHand() (requests, boots, powerDowns InHand) {
	for _, r := range e.requests {
		requests.add(r.Started)
	}
	for _, n := range e.active {
		switch {
		case n.off != nil:
			powerDowns.add(n.off.accepted)
		case n.boot != nil:
			boots.add(n.boot.times.Requested)
		}
	}
	return requests, boots, powerDowns
}

// Reads says how well the two APIs can be read.
type Reads struct {
	Slurm      bool      // the last read of Slurm went well
	SlurmAt    time.Time // newest complete read; zero: none yet
	Kubernetes bool      // NodeSets and pods have been read, and can be
}

// Reads describes the present state.
func (e *Engine) Reads() Reads {
	return Reads{Slurm: e.SlurmRead() && e.reads.lastErr == "", SlurmAt: e.reads.complete, Kubernetes: e.podsRead && e.setsRead && !e.blind}
}

// SlurmRead reports whether Slurm has been read completely at least once.
func (e *Engine) SlurmRead() bool { return !e.reads.complete.IsZero() }

// UnreadAfter is how long reads of Slurm may fail before what is known of it is called old: nobody renews idle time meanwhile, for instance.
const UnreadAfter = time.Minute

// Unread says since when Slurm cannot be read; empty: it can, or reads have failed for less than a minute.
func (e *Engine) Unread() string {
	r := &e.reads
	switch {
	case r.failures == 0 || e.now.Sub(r.failing) <= UnreadAfter:
		return ""
	case r.wholeAt.IsZero():
		return "Slurm cannot be read, and could not since the bridge began"
	}
	return "Slurm cannot be read; the last time was at " + r.wholeAt.UTC().Format("15:04:05Z")
}

// Requests returns the IDs of the requests in hand for the nodes, or else of those that their pods were made for. They are for the log.
func (e *Engine) Requests(nodes ...string) []string {
	ids := []string{}
	add := func(id string) {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, name := range nodes {
		switch n := e.nodes[name]; {
		case n == nil:
		case n.off != nil && len(n.off.requests) > 0:
			for _, r := range n.off.requests {
				add(r.ID)
			}
		case n.boot != nil && len(n.boot.requests) > 0:
			add(n.boot.request())
		case n.pod != nil:
			add(n.pod.Request)
		}
	}
	return ids
}

// Settled reports that no request, boot, power-down or gate is in hand.
func (e *Engine) Settled() bool {
	return len(e.requests)+len(e.compactActive())+len(e.gates)+len(e.heldGates)+len(e.dismissed) == 0
}

// Gangs returns the jobs that wait for nodes, each with the nodes still missing.
func (e *Engine) Gangs() map[uint32][]string {
	out := make(map[uint32][]string, len(e.gangs))
	for id, g := range e.gangs {
		if len(g.nodes) > 0 {
			out[id] = slices.Clone(g.nodes)
		}
	}
	return out
}

func (n *node) bootStatus(offering string) Boot {
	b := n.boot
	out := Boot{
		Node: n.name, NodeSet: n.set, Offering: offering, Generation: b.generation, Request: b.request(), Jobs: slices.Clone(n.jobs),
		Phase: b.phase(n), Problem: cmp.Or(b.problem, b.waits), Times: b.times,
	}
	if n.pod != nil {
		out.UID, out.Host = n.pod.UID, n.pod.Host
	}
	return out
}

func (n *node) offStatus() Boot {
	o := n.off
	out := Boot{Node: n.name, NodeSet: n.set, Generation: o.newest(), Request: o.request(), Phase: PhaseRemoving, Times: Timeline{Accepted: o.accepted}}
	if len(o.requests) > 0 {
		out.Times.Requested = o.requests[0].Started
	}
	if n.pod != nil {
		out.UID, out.Host = n.pod.UID, n.pod.Host
	} else if o.confirmed {
		out.Phase = PhaseFreeing
	}
	return out
}

func (b *boot) phase(n *node) Phase {
	p := n.pod
	switch {
	case p == nil && n.creating:
		return PhaseCreating
	case p == nil:
		return PhaseAccepted
	case p.Phase == PodPending:
		return PhasePending
	case p.Phase == PodScheduled:
		return PhaseStarting
	case p.Phase == PodTerminating:
		return PhaseRemoving
	default:
		return PhaseRunning
	}
}

// observe notes when the pod was first seen in each phase.
func (b *boot) observe(p *Pod, now time.Time) {
	if p.Generation < b.generation {
		return
	}
	if b.uid != p.UID { // the times of a pod that was replaced say nothing of this one
		b.uid = p.UID
		b.times.Created, b.times.Scheduled, b.times.Running = time.Time{}, time.Time{}, time.Time{}
	}
	if !b.moving {
		b.room = cmp.Or(p.Room, b.room)
	}
	setOnce(&b.times.Created, now)
	switch p.Phase {
	case PodScheduled:
		setOnce(&b.times.Scheduled, now)
	case PodRunning, PodReady:
		setOnce(&b.times.Scheduled, now)
		setOnce(&b.times.Running, now)
	default:
	}
}

func setOnce(t *time.Time, now time.Time) {
	if t.IsZero() {
		*t = now
	}
}

// story tells how far the boot came, for the reason on a failed node.
func (b *boot) story(n *node) string {
	if told := cmp.Or(b.problem, b.waits); told != "" {
		return told
	}
	if b.unsure && n.pod == nil {
		return "what has become of its pod is not known"
	}
	return map[Phase]string{
		PhaseAccepted: "no pod was created",
		PhaseCreating: "Kubernetes did not answer",
		PhasePending:  "pod was not scheduled",
		PhaseStarting: "pod did not start",
		PhaseRunning:  "slurmd did not register",
		PhaseRemoving: "the pod of an earlier boot did not go",
	}[b.phase(n)]
}
