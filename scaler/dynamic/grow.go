package dynamic

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/scaler"
)

// grow makes the nodes that the pending jobs and the floors need.
func (p *Planner) grow() {
	names := make([]string, 0, len(p.sets))
	for name := range p.sets {
		names = append(names, name)
	}
	slices.Sort(names)
	p.room = p.records()
	report := p.demand(names)
	for _, name := range names {
		s := p.sets[name]
		d := report[name]
		s.need, s.ready, s.asked, s.capped, s.out, s.full = d.New.Greedy, d.Ready, p.asked(d.PowerUp), false, false, false
		if s.Problem != "" {
			s.need, s.batch = 0, nil
			continue
		}
		n := s.floor(p.now) - p.count(name, p.counts)
		if most := p.mayPowerUp(s); n > most {
			n, s.capped = most, true
		}
		if p.due(s, d) {
			n = max(n, s.need)
		}
		if n > 0 {
			p.make(s, n)
		}
	}
}

// records is how many more slurmctld can make: it refuses a slurmd that would be one too many (node_conf.c create_node_record_at).
func (p *Planner) records() int {
	most := p.facts.Slurm.Queue.Select.MaxNodeCount
	if most == 0 {
		return math.MaxInt
	}
	room := most - len(p.facts.Slurm.Records)
	for _, n := range p.nodes {
		if n.rec == nil && (n.creating || live(n)) { // it will have one
			room--
		}
	}
	return max(0, room)
}

// mayPowerUp is how many more nodes of the set spec.maxPoweredUp lets us bring up, for jobs and for the floor.
func (p *Planner) mayPowerUp(s *set) int {
	if s.MaxPoweredUp == 0 {
		return math.MaxInt
	}
	return max(0, s.MaxPoweredUp-p.count(s.Name, p.up))
}

// mostOf is how many nodes the set can have at best, and what keeps it from more; empty: its names.
func (p *Planner) mostOf(s *set) (most int, why string) {
	most = s.Nodes.Len()
	if limit := p.facts.Slurm.Queue.Select.MaxNodeCount; limit > 0 {
		others := 0
		for _, rec := range p.facts.Slurm.Records {
			if n := p.nodes[rec.Name]; n == nil || n.set != s.Name {
				others++
			}
		}
		if left := max(0, limit-others); left < most {
			most, why = left, fmt.Sprintf("MaxNodeCount of slurm.conf is %d, and %d are others", limit, others)
		}
	}
	if s.MaxPoweredUp > 0 && s.MaxPoweredUp < most {
		most, why = s.MaxPoweredUp, fmt.Sprintf("spec.maxPoweredUp is %d", s.MaxPoweredUp)
	}
	return most, why
}

// asked picks those nodes that a job, or a reservation, wants by name: no other would do for them.
func (p *Planner) asked(names []string) map[string]bool {
	asked := map[string]bool{}
	for _, name := range names {
		if p.claims[name].grip >= gripNode {
			asked[name] = true
		}
	}
	return asked
}

// floor is how many nodes are to exist at least.
func (s *set) floor(now time.Time) int {
	want, _ := s.FloorAt(now) // Slurm is read often enough to look again in time
	if s.MaxPoweredUp > 0 {
		return min(want, s.MaxPoweredUp)
	}
	return want
}

// due reports whether the demand is to be met now: it has been the same for a while, or has waited long enough.
func (p *Planner) due(s *set, d scaler.NodeSetDemand) bool {
	if s.need == 0 {
		s.batch = nil
		return false
	}
	seen := [3]int64{int64(s.need), d.Jobs, d.CPUs}
	switch {
	case s.batch == nil:
		s.batch = &batch{since: p.now, changed: p.now, seen: seen}
	case s.batch.seen != seen:
		s.batch.changed, s.batch.seen = p.now, seen
	}
	if p.now.Sub(s.batch.changed) < p.cfg.Quiet && p.now.Sub(s.batch.since) < p.cfg.Most {
		return false
	}
	s.batch = nil
	return true
}

// count is how many nodes of the NodeSet are so.
func (p *Planner) count(set string, so func(*node) bool) (n int) {
	for _, other := range p.nodes {
		if other.set == set && other.listed && so(other) {
			n++
		}
	}
	return n
}

// offerings counts the pods of a NodeSet by offering.
func (p *Planner) offerings(set string) powersave.Use {
	if p.used == nil {
		p.used = map[string]powersave.Use{}
		for name := range p.sets {
			p.used[name] = powersave.Use{}
		}
		for _, n := range p.nodes {
			switch in := p.used[n.set]; {
			case in == nil:
			case n.pod != nil:
				in.Add(n.pod.Offering, n.pod.Phase == powersave.PodTerminating)
			case n.creating:
				in.Add(n.attempt.Offering, false)
			}
		}
	}
	return p.used[set]
}

// spare reports that the node could be made to serve: it is drained and has its pod, or a record and nothing else.
func (p *Planner) spare(n *node) bool {
	if n.rec == nil || !n.listed || !p.told(n) || n.retryAt.After(p.now) || n.rec.State.Any(inUse|powered) {
		return false
	}
	if n.pod != nil {
		trouble, _ := p.host(n)
		return p.drained(n) && !p.forUpdate(n) && live(n) && p.welcomed(n) && !n.rec.State.Any(notServing) && !p.forHost(n) && trouble == ""
	}
	// A record keeps its shape, and slurmctld refuses a slurmd that offers less.
	d := p.sets[n.set].Dynamic
	fits := n.rec.CPUs <= int(d.CPUs) && n.rec.RealMemory <= d.Memory
	return !n.creating && fits && p.ours(n) && (p.drained(n) || n.rec.State.Any(powersave.NodeDown) && n.rec.Unspoken())
}

// taken reports that a new node cannot have the name. That of a pod which is gone is free when a read begun since has shown
// whether the pod has left a record: a record without our comment is known only by what is remembered of that pod.
func (p *Planner) taken(n *node) bool {
	return n.pod != nil || n.rec != nil || n.creating || n.asking || n.goneRead >= p.reading
}

// demand reckons what the pending jobs need, with what exists as it is now.
func (p *Planner) demand(sets []string) map[string]scaler.NodeSetDemand {
	s := p.facts.Slurm.Queue
	s.NodeSets = nil
	var cloud []powersave.NodeSet
	for _, set := range p.facts.Sets {
		if set.Dynamic == nil {
			s.NodeSets = append(s.NodeSets, scaler.NodeSet{Name: set.Name})
			cloud = append(cloud, set)
		}
	}
	shapes, parts := map[string]*scaler.Shape{}, map[string][]string{}
	max, open := map[string]int{}, map[string]bool{}
	fresh, wake := map[string]int{}, map[string]int{} // names without a record, and how many nodes may be brought up at all
	for _, name := range sets {
		set := p.sets[name]
		shapes[name], parts[name] = shapeOf(set.Dynamic), partitionsOf(name, set.Dynamic, s.Partitions)
		choice := p.breakers.Look(p.now, set.NodeSet, p.offerings(name))
		open[name] = choice.OK && set.Problem == ""
		if set.refuse = ""; !choice.OK {
			set.refuse = choice.Why
		}
		if open[name] {
			wake[name] = p.mayPowerUp(set)
			fresh[name] = set.Nodes.Len()
			for _, n := range p.nodes {
				if n.set == name && n.listed && (p.taken(n) || n.retryAt.After(p.now)) {
					fresh[name]--
				}
			}
		}
	}
	nodes := make([]scaler.Node, 0, len(s.Nodes))
	have := map[string]bool{}
	for _, sn := range s.Nodes {
		have[sn.Name] = true
		n := p.nodes[sn.Name]
		switch {
		case n == nil:
			for _, set := range cloud {
				if set.Nodes.Contains(sn.Name) {
					sn.NodeSet = set.Name
				}
			}
		case n.set != "" && (n.pod != nil || n.rec != nil && p.ours(n)):
			sn.NodeSet = n.set
			max[n.set]++
			switch {
			case n.creating, n.change == powersave.StateUndrain:
				sn.State = scaler.NodeBooting
			case n.change != powersave.StateNone:
				sn.State = scaler.NodeUnusable
			case live(n) && (!joinedNow(n) && n.joined != n.pod.UID || p.drained(n) && !p.welcomed(n)):
				sn.State = scaler.NodeBooting
			case p.spare(n):
				sn.State = scaler.NodeUnusable
				if open[n.set] && wake[n.set] > 0 {
					sn.State = scaler.NodeOff
					wake[n.set]--
				}
			case !live(n):
				sn.State = scaler.NodeUnusable
			}
		}
		nodes = append(nodes, sn)
	}
	for name, n := range p.nodes {
		boots := n.creating || live(n) && n.joined != n.pod.UID
		if have[name] || n.set == "" || !boots {
			continue
		}
		max[n.set]++
		nodes = append(nodes, scaler.Node{Name: name, NodeSet: n.set, Partitions: parts[n.set], State: scaler.NodeBooting, Shape: shapes[n.set]})
	}
	s.Nodes = nodes
	for _, name := range sets {
		s.NodeSets = append(s.NodeSets, scaler.NodeSet{
			Name: name, Max: max[name] + min(fresh[name], wake[name], p.room), Shape: shapes[name], Partitions: parts[name],
		})
	}
	all := scaler.Demand(p.now, s)
	p.miss(all, s, len(sets))
	report := map[string]scaler.NodeSetDemand{}
	for _, d := range all.NodeSets {
		report[d.Name] = d
	}
	return report
}

// make brings count nodes up: those that are asked for by name, then those that are drained and still run, then names that are free.
func (p *Planner) make(s *set, count int) {
	var asked, running, records []*node
	for _, n := range p.nodes {
		switch {
		case n.set != s.Name || !p.spare(n):
		case s.asked[n.name]:
			asked = append(asked, n)
		case n.pod != nil:
			running = append(running, n)
		default:
			records = append(records, n)
		}
	}
	byName := func(a, b *node) int { return compareNames(a.name, b.name) }
	slices.SortFunc(asked, byName)
	slices.SortFunc(running, byName)
	slices.SortFunc(records, byName)
	bring := func(nodes []*node) bool {
		for _, n := range nodes {
			switch {
			case count == 0:
				return false
			case n.pod != nil:
				p.wake(n, "it is needed again")
			case !p.create(s, n):
				return false
			}
			count--
		}
		return true
	}
	if !bring(asked) || !bring(running) {
		return
	}
	for name := range s.Nodes.All() {
		if count == 0 {
			return
		}
		if n := p.nodes[name]; n != nil && (p.taken(n) || n.retryAt.After(p.now)) {
			continue
		}
		if p.room == 0 {
			s.full = bring(records) && count > 0
			return
		}
		p.room--
		if !p.create(s, p.node(name)) {
			return
		}
		count--
	}
	s.out = bring(records) && count > 0
}

// create asks for a pod; false: no more are to be made now.
func (p *Planner) create(s *set, n *node) bool {
	choice := p.breakers.Pick(p.now, s.NodeSet, p.offerings(s.Name))
	if !choice.OK {
		s.refuse = choice.Why
		return false
	}
	n.creating, n.attempt, n.tried, n.bootAt, n.goneRead = true, choice.Attempt, true, p.now, 0
	n.strayAt, n.times = time.Time{}, powersave.Timeline{Requested: p.now}
	p.used[s.Name].Add(choice.Offering, false)
	p.do(CreatePod{Node: n.name, NodeSet: s.Name, Offering: choice.Offering, Generation: p.now.UnixNano()})
	return !choice.Probe()
}

// shrink drains idle nodes that nobody needs, those that have been idle longest first.
func (p *Planner) shrink() {
	for name, s := range p.sets {
		if s.Problem != "" || p.unclear != "" {
			continue
		}
		idle := cmp.Or(s.Dynamic.IdleTime, p.cfg.IdleTime)
		var can []*node
		free := 0
		for _, n := range p.nodes {
			if n.set != name || !live(n) || !p.exists(n) {
				continue
			}
			if n.joined != n.pod.UID {
				free++ // will be
				continue
			}
			if n.rec == nil || !p.told(n) || n.idleAt.IsZero() || p.busy(n) {
				continue
			}
			free++
			if p.claims[n.name].grip < gripNode && p.welcomed(n) && (p.now.Sub(n.idleAt) >= idle || !n.listed) {
				can = append(can, n)
			}
		}
		slices.SortFunc(can, func(a, b *node) int {
			return cmp.Or(compareBool(a.listed, b.listed), a.rec.LastBusy.Compare(b.rec.LastBusy), a.idleAt.Compare(b.idleAt), compareNames(b.name, a.name))
		})
		surplus := min(p.count(name, p.counts)-s.floor(p.now), free-s.ready)
		for _, n := range can {
			if n.listed {
				if surplus <= 0 {
					break
				}
				surplus--
				p.drain(n, fmt.Sprintf("idle for %v", idle))
				continue
			}
			p.drain(n, "spec.nodeNames does not have it any more")
		}
	}
	for _, n := range p.nodes { // their pods would go with it, unless somebody wanted them to stay
		if n.pod != nil && p.sets[n.pod.NodeSet] == nil && live(n) && n.rec != nil && p.told(n) && p.welcomed(n) && !n.idleAt.IsZero() &&
			p.now.Sub(n.idleAt) >= p.cfg.IdleTime && p.claims[n.name].grip < gripNode && p.unclear == "" {
			p.drain(n, "its NodeSet is gone")
		}
	}
}

// shapeOf is what a node offers.
func shapeOf(d *powersave.Dynamic) *scaler.Shape {
	return &scaler.Shape{
		CPUs: uint32(d.CPUs), Sockets: uint32(d.Sockets), Cores: uint32(d.Cores), Threads: uint32(d.Threads), Memory: uint64(d.Memory),
		Gres: d.Gres, Features: d.Features, Weight: uint32(d.Weight),
	}
}

// partitionsOf are those that nodes of a NodeSet are in. Unless it says so itself: those with Nodes=ALL, and those with the line "NodeSet=<name> Feature=<name>" that a
// Controller writes for it.
func partitionsOf(set string, d *powersave.Dynamic, all []scaler.Partition) []string {
	if len(d.Partitions) > 0 {
		return d.Partitions
	}
	var names []string
	for _, p := range all {
		if p.AllNodes || slices.Contains(d.Features, set) && slices.Contains(p.NodeSets, set) {
			names = append(names, p.Name)
		}
	}
	return names
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// compareNames orders n2 before n10.
func compareNames(a, b string) int {
	pa, pb := strings.TrimRight(a, "0123456789"), strings.TrimRight(b, "0123456789")
	return cmp.Or(cmp.Compare(pa, pb), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}
