// Package place tells Slurm where in the network its nodes are: a node is where the host is that its pod is bound to, and Slurm keeps that until it powers
// the node down (node_mgr.c, reset_node_topology). What is to be told follows from pods and hosts alone, so that nothing is kept and Slurm is not read: after a
// restart all of it is told once more, which changes nothing.
package place

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

const (
	// lookAgain is how often the hosts of nodes that are told of are looked at: labels of hosts hardly ever change.
	lookAgain = time.Minute
	// soon is when a place that is not known yet, or a node that Slurm does not know yet, is tried again; twice as long each time, up to seldom.
	soon   = 2 * time.Second
	seldom = 30 * time.Second
	// patience is how long a host may be unknown before people hear of it.
	patience = time.Minute
	// later is when something is that was refused, or a place that cannot be told from the host.
	later = time.Minute
	// together is how many nodes of a place are told of at once.
	together = 200
)

// Order is something to tell Slurm: the nodes of pods with these UIDs are at a place.
type Order struct {
	Place string
	Pods  []powersave.Pod
}

// Nodes are the names.
func (o Order) Nodes() []string {
	names := make([]string, 0, len(o.Pods))
	for _, p := range o.Pods {
		names = append(names, p.Node)
	}
	return names
}

// Trouble is a place that cannot be told from a host, or that Slurm refuses.
type Trouble struct {
	NodeSet string
	Kind    Kind
	Err     error
}

// Kind is what is wrong, whichever hosts or nodes it befalls: one trouble of a kind is told of a NodeSet within an hour.
type Kind struct {
	Reason string // of the Event
	Code   int    // of Slurm's error; 0: none; -1: what only the bridge knows
}

// Kinds of trouble with a place.
var (
	unplaced   = Kind{Reason: "PlaceUnknown"}
	unseen     = Kind{Reason: "PlaceUnknown", Code: -1}
	notOffered = Kind{Reason: "PlaceRefused", Code: -1}
)

// saidOf remembers what has been said, and when.
type saidOf map[saidKey]time.Time

type saidKey struct {
	nodeSet string
	kind    Kind
}

// sayAgain is how long a trouble is not told again. Events live as long.
const sayAgain = time.Hour

// once reports whether a trouble is to be told now.
func (s saidOf) once(now time.Time, t Trouble) bool {
	key := saidKey{t.NodeSet, t.Kind}
	if at, said := s[key]; said && now.Sub(at) < sayAgain {
		return false
	}
	s[key] = now
	return true
}

// refused is the trouble of every NodeSet in an order.
func (o Order) refused(kind Kind, err error) (all []Trouble) {
	for _, p := range o.Pods {
		if !slices.ContainsFunc(all, func(t Trouble) bool { return t.NodeSet == p.NodeSet }) {
			all = append(all, Trouble{p.NodeSet, kind, err})
		}
	}
	return all
}

// Places remembers which pods there are, and what Slurm has been told of them. It is not safe for use by several goroutines.
type Places struct {
	pods map[string]*pod // by node
}

type pod struct {
	powersave.Pod
	told string    // "": nothing
	due  time.Time // of the next look
	rest bool      // nothing is to be told of its NodeSet: not due until Look
	wait time.Duration
	// since is when a look found that nothing is known of the host, and all later ones; zero: something is.
	since time.Time
}

// waits says that there is nothing to look at, or no need to, until there is news. A node of mode Dynamic is unknown to Slurm until its slurmd has registered.
func (p *pod) waits() bool {
	return p.rest || p.Host == "" || p.Dynamic && (p.Phase == powersave.PodPending || p.Phase == powersave.PodScheduled)
}

// notYet has it tried again, less and less often.
func (p *pod) notYet(now time.Time) {
	p.wait = min(max(2*p.wait, soon), seldom)
	p.due = now.Add(p.wait)
}

// Take takes the newest state of a pod.
func (p *Places) Take(now time.Time, one powersave.Pod) {
	if p.pods == nil {
		p.pods = map[string]*pod{}
	}
	old := p.pods[one.Node]
	if old == nil || old.UID != one.UID || old.Host != one.Host || old.NodeSet != one.NodeSet {
		p.pods[one.Node] = &pod{Pod: one, due: now}
		return
	}
	old.Pod = one
}

// Gone takes that a pod is no more.
func (p *Places) Gone(node, uid string) {
	if old := p.pods[node]; old != nil && old.UID == uid {
		delete(p.pods, node)
	}
}

// Look has all places looked at now, and those told that are others than before.
func (p *Places) Look(now time.Time) {
	for _, one := range p.pods {
		one.due, one.rest = now, false
	}
}

// Again has everything told once more.
func (p *Places) Again(now time.Time) {
	p.Look(now)
	for _, one := range p.pods {
		one.told, one.since = "", time.Time{}
	}
}

// Of says where a host is, for nodes of a NodeSet; "" if nothing is to be told of them, as long as NodeSets are what they are. known is false if that may change by itself:
// little is known of the host yet. The error says what the host lacks.
type Of func(nodeSet, host string) (place string, known bool, err error)

// Due is what is to be told now, by place, and what cannot be.
func (p *Places) Due(now time.Time, of Of) (orders []Order, troubles []Trouble) {
	byPlace := map[string][]powersave.Pod{}
	for _, node := range slices.Sorted(maps.Keys(p.pods)) {
		one := p.pods[node]
		if now.Before(one.due) || one.waits() {
			continue
		}
		if one.Phase == powersave.PodTerminating || one.Phase == powersave.PodFailed {
			one.due = now.Add(lookAgain)
			continue
		}
		place, known, err := of(one.NodeSet, one.Host)
		if known || err != nil {
			one.since = time.Time{}
		} else if one.since.IsZero() {
			one.since = now
		}
		switch {
		case err != nil:
			troubles = append(troubles, Trouble{one.NodeSet, unplaced, err})
			one.due = now.Add(later)
		case !known && one.told != "": // the host has just gone, and the pod is about to
			one.due = now.Add(lookAgain)
		case !known:
			one.notYet(now)
			if now.Sub(one.since) >= patience {
				troubles = append(troubles, Trouble{one.NodeSet, unseen, fmt.Errorf("host %s cannot be seen: it is gone, or the bridge may not read nodes: give it the right to list and watch them", one.Host)})
			}
		case place == "":
			one.rest = true
		case place == one.told:
			one.due = now.Add(lookAgain)
		default:
			byPlace[place] = append(byPlace[place], one.Pod)
		}
	}
	for _, place := range slices.Sorted(maps.Keys(byPlace)) {
		for some := range slices.Chunk(byPlace[place], together) {
			orders = append(orders, Order{place, some})
		}
	}
	return orders, troubles
}

// Done takes what became of an order. unknown are the nodes that Slurm does not know: they have not registered yet, or are gone. err is what the others were refused with.
func (p *Places) Done(now time.Time, o Order, unknown []string, err error) {
	for _, told := range o.Pods {
		one := p.pods[told.Node]
		if one == nil || one.UID != told.UID {
			continue // another pod meanwhile
		}
		switch {
		case slices.Contains(unknown, told.Node):
			one.notYet(now)
		case err != nil:
			one.due = now.Add(later)
		default:
			one.told, one.due, one.wait = o.Place, now.Add(lookAgain), 0
		}
	}
}

// Next is when the next look is due; false: never, as things are.
func (p *Places) Next() (at time.Time, any bool) {
	for _, one := range p.pods {
		if !one.waits() && (!any || one.due.Before(at)) {
			at, any = one.due, true
		}
	}
	return at, any
}
