package dynamic

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/scaler"
)

// Planner decides. Use it from one goroutine.
type Planner struct {
	cfg      Config
	breakers powersave.Breakers
	sets     map[string]*set
	nodes    map[string]*node

	now     time.Time
	facts   *Facts
	reading int  // number of the reading that was taken in last
	fresh   bool // the reading may be gone by to take something down
	look    bool // this step has a new reading
	claims  map[string]claim
	unclear string                   // why claims are not all there are
	used    map[string]powersave.Use // what offerings counted in this step
	misses  scaler.Misses
	room    int      // records that slurmctld can still make (MaxNodeCount)
	recheck bool     // NodeSets have changed since misses were looked for
	notes   []Action // what Done has to report
	out     []Action
}

// set is a NodeSet of mode Dynamic.
type set struct {
	powersave.NodeSet
	batch  *batch
	need   int             // nodes to be made, as last reckoned
	ready  int             // nodes that are there, or boot, which pending jobs will take
	asked  map[string]bool // nodes that pending jobs need by name, and that are not up
	capped bool            // fewer are made than the floor wants, for MaxPoweredUp
	out    bool            // fewer are made, for there is no name left
	full   bool            // fewer are made, for slurmctld takes no more nodes (MaxNodeCount)
	refuse string          // why none are made; empty: they are
	update progress
}

// batch is demand that is waited with.
type batch struct {
	since, changed time.Time
	seen           [3]int64
}

// node is what the Planner remembers of a name.
type node struct {
	name     string
	set      string // "" for a record of ours whose name no NodeSet has
	listed   bool   // spec.nodeNames has it
	pod      *powersave.Pod
	podRead  int // reads begun before the pod was first seen
	goneRead int // reads begun before the pod was seen to be gone; 0: nobody saw it
	goneUID  string
	creating bool // CreatePod is not answered, or its pod not yet seen
	attempt  powersave.Attempt
	tried    bool // attempt is one
	bootAt   time.Time
	times    powersave.Timeline // of the pod, for people
	made     bool               // by this planner: all its times are known
	joined   string             // UID of the pod that has registered
	replace  string             // UID of the pod that was drained for an update last
	trouble  powersave.Trouble
	since    time.Time // of trouble

	rec      *powersave.SlurmNode  // as last read; nil: none
	asking   bool                  // an update of the record is not answered
	change   powersave.StateChange // what was last asked for, until a read tells what came of it
	after    int                   // only reads begun after these tell of it
	deleting string                // UID
	marking  bool
	markAt   time.Time // not before
	endsAt   time.Time // since when the pod is on its way out
	retryAt  time.Time
	tries    int
	idleAt   time.Time // first read that showed it free
	silentAt time.Time // first read that showed it not responding
	strayAt  time.Time // first read that showed a record without a pod, or the other way round
	said     string
}

// New returns a Planner that knows nothing yet.
func New(cfg Config) *Planner {
	cfg.Quiet = cmp.Or(cfg.Quiet, time.Second)
	cfg.Most = cmp.Or(cfg.Most, 10*time.Second)
	cfg.IdleTime = cmp.Or(cfg.IdleTime, 5*time.Minute)
	cfg.Deadline = cmp.Or(cfg.Deadline, 5*time.Minute)
	cfg.Grace = cmp.Or(cfg.Grace, 10*time.Second)
	cfg.Sightings = cmp.Or(cfg.Sightings, 10*time.Second)
	cfg.SilentFor = cmp.Or(cfg.SilentFor, time.Minute)
	return &Planner{cfg: cfg, sets: map[string]*set{}, nodes: map[string]*node{}}
}

// Step looks at what there is, and returns what is to be done about it. now must not go backwards.
func (p *Planner) Step(now time.Time, f Facts) []Action {
	p.now, p.facts, p.out, p.notes, p.used = now, &f, p.notes, nil, nil
	p.takeSets()
	p.takePods()
	p.takeReading()
	if f.Slurm == nil {
		return p.out
	}
	names := slices.Sorted(maps.Keys(p.nodes))
	if p.look && p.fresh {
		p.grow()
	}
	for _, name := range names {
		p.decide(p.nodes[name])
	}
	if p.look && p.fresh {
		p.shrink()
		p.replace()
	}
	maps.DeleteFunc(p.nodes, func(_ string, n *node) bool {
		return n.pod == nil && n.rec == nil && n.goneRead < p.reading && !n.creating && !n.asking && !n.retryAt.After(now)
	})
	return p.out
}

// Hurry reports that the next read of Slurm is waited for.
func (p *Planner) Hurry() bool {
	for _, s := range p.sets {
		if s.batch != nil {
			return true
		}
	}
	for _, n := range p.nodes {
		if n.creating || n.asking || p.waits(n) {
			return true
		}
	}
	return false
}

// waits reports that something is to be done for the node as soon as Slurm shows what it is to.
func (p *Planner) waits(n *node) bool {
	switch {
	case n.retryAt.After(p.now):
		return false
	case n.change != powersave.StateNone: // done, but not read yet
		return true
	case n.pod == nil:
		return n.goneRead > 0 && n.goneRead >= p.reading
	case !n.endsAt.IsZero() && p.now.Sub(n.endsAt) > endsWithin: // its host does not answer
		return false
	}
	trouble, leave := p.host(n)
	return n.joined != n.pod.UID || p.drained(n) && p.free(n) && !p.forHost(n) && (trouble == "" || leave)
}

func (p *Planner) do(a Action) { p.out = append(p.out, a) }

// say reports something about a node, once.
func (p *Planner) say(warning bool, n *node, text string) {
	if n.said != text {
		n.said = text
		p.do(Report{Warning: warning, Node: n.name, NodeSet: n.set, Text: text})
	}
}

// takeSets takes in the NodeSets. Those that have not changed keep what is remembered of them.
func (p *Planner) takeSets() {
	changed := len(p.sets) != 0
	same := 0
	for _, s := range p.facts.Sets {
		if s.Dynamic == nil {
			continue
		}
		changed = true
		if old := p.sets[s.Name]; old != nil && old.UID == s.UID && old.SpecGeneration == s.SpecGeneration && old.Problem == s.Problem {
			same++
		}
	}
	if !changed || same == len(p.sets) && same == p.dynamicSets() {
		return
	}
	before := p.sets
	p.sets, p.recheck = map[string]*set{}, true
	var all []powersave.NodeSet
	for _, s := range p.facts.Sets {
		if s.Dynamic == nil {
			continue
		}
		all = append(all, s)
		p.sets[s.Name] = &set{NodeSet: s}
		if old := before[s.Name]; old != nil && old.UID == s.UID {
			p.sets[s.Name].batch = old.batch
		}
		if s.Problem != "" && (before[s.Name] == nil || before[s.Name].Problem != s.Problem) {
			p.do(Report{Warning: true, NodeSet: s.Name, Text: s.Problem})
		}
	}
	p.breakers.NodeSets(all)
	for _, n := range p.nodes {
		p.own(n)
	}
}

func (p *Planner) dynamicSets() (n int) {
	for _, s := range p.facts.Sets {
		if s.Dynamic != nil {
			n++
		}
	}
	return n
}

// own finds the NodeSet of a name. A pod stays with the NodeSet it was made for.
func (p *Planner) own(n *node) {
	n.set, n.listed = "", false
	for name, s := range p.sets {
		if s.Nodes.Contains(n.name) {
			n.set, n.listed = name, true
		}
	}
	if n.pod != nil && n.pod.NodeSet != n.set {
		n.set, n.listed = n.pod.NodeSet, false
	}
}

func (p *Planner) node(name string) *node {
	n := p.nodes[name]
	if n == nil {
		n = &node{name: name}
		p.nodes[name] = n
		p.own(n)
	}
	return n
}

func (p *Planner) takePods() {
	if p.facts.Blind {
		return
	}
	have := make(map[string]bool, len(p.facts.Pods))
	for i := range p.facts.Pods {
		pod := &p.facts.Pods[i]
		have[pod.Node] = true
		n := p.node(pod.Node)
		if n.pod == nil || n.pod.UID != pod.UID {
			if n.pod != nil { // gone, and not for us to see
				p.dropAttempt(n)
				n.goneUID, n.deleting = n.pod.UID, ""
			}
			n.seenFirst(pod, p.now)
			n.podRead, n.goneRead, n.creating, n.marking = p.facts.Asked, 0, false, false
			n.bootAt, n.trouble, n.said = p.now, powersave.TroubleNone, ""
			n.idleAt, n.silentAt, n.strayAt, n.markAt, n.endsAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}
			if !pod.Created.IsZero() && pod.Created.Before(p.now) {
				n.bootAt = pod.Created
			}
			if !n.tried {
				n.attempt, n.tried = powersave.NodeSet{Name: pod.NodeSet}.Attempt(pod.Offering), true
				if s := p.sets[pod.NodeSet]; s != nil {
					n.attempt = s.AttemptOf(*pod)
				}
			}
		}
		n.reach(pod, p.now)
		seen := *pod
		n.pod = &seen
		p.own(n)
		if n.endsAt.IsZero() && pod.Phase == powersave.PodTerminating {
			n.endsAt = p.now
		}
		if n.trouble != pod.Trouble {
			n.trouble, n.since = pod.Trouble, p.now
		}
	}
	for _, n := range p.nodes {
		if n.creating && p.now.Sub(n.bootAt) > createdWithin {
			n.creating = false // it was made, and went before anybody saw it
			p.dropAttempt(n)
		}
		if n.pod != nil && !have[n.name] {
			n.goneUID = n.pod.UID
			n.pod, n.goneRead, n.deleting, n.said = nil, max(1, p.facts.Asked), "", ""
			n.strayAt = time.Time{}
			p.dropAttempt(n)
			p.own(n)
		}
	}
}

// dropAttempt says that nothing came of the node's attempt: the next one may be the probe.
func (p *Planner) dropAttempt(n *node) {
	if n.tried {
		p.breakers.ProbeGone(n.attempt)
		n.tried = false
	}
}

// takeReading takes in a new read of Slurm.
func (p *Planner) takeReading() {
	r := p.facts.Slurm
	if r == nil {
		p.look, p.fresh = false, false
		return
	}
	p.fresh = !p.facts.Blind && p.now.Sub(r.Answered) <= ActOn
	if p.look = r.Number > p.reading; !p.look {
		return
	}
	p.reading = r.Number
	for _, n := range p.nodes {
		if r.Number > n.after {
			n.rec = nil
			if !n.asking {
				n.change = powersave.StateNone
			}
		}
	}
	for i := range r.Records {
		rec := &r.Records[i]
		n := p.nodes[rec.Name]
		if n == nil {
			if !strings.HasPrefix(rec.Comment, p.cfg.Owner) && p.setOf(rec.Name) == "" {
				continue
			}
			n = p.node(rec.Name)
		}
		if r.Number > n.after {
			n.rec = rec
		}
	}
	before := p.unclear
	if p.claims, p.unclear = claimsOf(p.now, r); p.unclear != "" && p.unclear != before {
		p.do(Report{Warning: true, Text: "nothing is taken down: " + p.unclear})
	}
	for _, n := range p.nodes {
		p.sight(n)
	}
}

func (p *Planner) setOf(name string) string {
	for set, s := range p.sets {
		if s.Nodes.Contains(name) {
			return set
		}
	}
	return ""
}

// sight keeps the times since when something is the way it is.
func (p *Planner) sight(n *node) {
	since := func(at *time.Time, so bool) {
		switch {
		case !so:
			*at = time.Time{}
		case at.IsZero():
			*at = p.now
		}
	}
	r := n.rec
	since(&n.strayAt, n.pod == nil && r != nil && !n.creating || n.pod != nil && r == nil && n.joined == n.pod.UID || n.pod != nil && n.pod.Phase == powersave.PodFailed)
	since(&n.silentAt, n.pod != nil && r != nil && n.joined == n.pod.UID && r.State.Any(notServing))
	since(&n.idleAt, n.pod != nil && r != nil && p.free(n) && !r.State.Any(notServing|judged|spoken))
}

// ours reports whether a record may be touched.
func (p *Planner) ours(n *node) bool {
	r := n.rec
	return r.State.Any(powersave.NodeDynamicNorm) && (strings.HasPrefix(r.Comment, p.cfg.Owner) ||
		n.listed && strings.HasPrefix(r.Reason, powersave.ReasonPrefix) || n.pod != nil && r.InstanceID == n.pod.UID || n.goneUID != "" && r.InstanceID == n.goneUID)
}

// free reports that no job is on the node.
func (p *Planner) free(n *node) bool { return !n.rec.State.Any(inUse) }

// drained reports that the node is drained, or draining, because we wanted it.
func (p *Planner) drained(n *node) bool {
	return n.rec != nil && n.rec.State.Any(powersave.NodeDrain) && strings.HasPrefix(n.rec.Reason, powersave.ReasonPrefix)
}

// downed reports that the node is down because we wanted it.
func (p *Planner) downed(n *node) bool {
	return n.rec != nil && n.rec.State.Any(powersave.NodeDown) && strings.HasPrefix(n.rec.Reason, powersave.ReasonPrefix)
}

// told reports that the reading tells of the node: nothing that would change it was asked for since.
func (p *Planner) told(n *node) bool { return !n.asking && p.reading > n.after }

// joinedNow reports whether the record is that of the node's pod, and its slurmd answers.
func joinedNow(n *node) bool {
	return n.rec != nil && n.rec.InstanceID == n.pod.UID && !n.rec.State.Any(notServing)
}

func (p *Planner) comment(n *node) string { return p.cfg.Owner + n.set + ", pod " + n.pod.UID }

func live(n *node) bool {
	return n.pod != nil && n.deleting == "" && n.pod.Phase != powersave.PodTerminating && n.pod.Phase != powersave.PodFailed
}

// exists reports that the node is there to serve, or will be: it counts for the floor.
func (p *Planner) exists(n *node) bool {
	switch {
	case n.creating:
		return true
	case !live(n):
		return false
	case n.change != powersave.StateNone:
		return n.change == powersave.StateUndrain
	}
	return !p.drained(n) || !p.welcomed(n)
}

// counts reports that the node counts for the floor: one that people, or slurmctld, keep out of use is replaced.
func (p *Planner) counts(n *node) bool {
	out := n.pod != nil && n.rec != nil && n.joined == n.pod.UID && p.told(n) && n.rec.State.Any(judged)
	return p.exists(n) && !out
}

// welcomed reports that the record says that it is the pod's. Until then a drain is one of the life before.
func (p *Planner) welcomed(n *node) bool { return n.rec.Comment == p.comment(n) }
