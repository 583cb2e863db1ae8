package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// Dynamic makes entries of what becomes of nodes of mode Dynamic: from pass to pass it compares how far they are. It has no clock. What it knows
// already it does not tell again, be it of earlier passes or of entries that a bridge before has left.
type Dynamic struct {
	pods   map[string]*passed   // by UID
	making map[string]time.Time // by node: since when there is to be a pod
	passes int
	breakers
}

// passed is a pod, with what has been told of it.
type passed struct {
	Entry // what entries of it have in common
	told  map[What]bool
	up    bool // of its boot there is no more to tell
	pass  int  // in which it was there last
}

// Pass is what one pass tells.
type Pass struct {
	Boots    []powersave.Boot // all nodes that have a pod, or are to get one
	NodeSets []powersave.NodeSetCounts
	// Said is what was done and said since the pass before, as far as it is known there: Time, What, Node, PodUID and what is particular to it.
	Said []Entry
}

// NewDynamic returns one that goes on where entries end, in the order of their writing.
func NewDynamic(past []Entry) *Dynamic {
	d := &Dynamic{pods: map[string]*passed{}, making: map[string]time.Time{}, breakers: breakers{}}
	for i := range past {
		e := &past[i]
		if !e.Dynamic || e.PodUID == "" {
			continue
		}
		if e.What == PodGone {
			delete(d.pods, e.PodUID)
			continue
		}
		p := d.pods[e.PodUID]
		if p == nil {
			p = newPassed(e.Node, e.PodUID)
			d.pods[e.PodUID] = p
		}
		p.NodeSet, p.Offering, p.Host = cmp.Or(e.NodeSet, p.NodeSet), cmp.Or(e.Offering, p.Offering), cmp.Or(e.Host, p.Host)
		p.told[PodCreated], p.told[e.What] = true, true // the file may begin later
	}
	return d
}

func newPassed(node, uid string) *passed {
	return &passed{Entry: Entry{Dynamic: true, Node: node, PodUID: uid, Request: uid}, told: map[What]bool{}}
}

// Pass returns what there is to tell, in the order in which it happened.
func (d *Dynamic) Pass(now time.Time, p Pass) []Entry {
	var out []Entry
	d.passes++
	making := map[string]time.Time{}
	for i := range p.Boots {
		b := &p.Boots[i]
		if b.UID == "" {
			making[b.Node] = b.Times.Requested
			continue
		}
		pod := d.pod(b)
		if pod.pass = d.passes; !pod.up {
			out = append(out, pod.reached(now, b)...)
		}
	}
	for _, e := range p.Said {
		if pod := d.pods[e.PodUID]; pod == nil || !pod.told[e.What] {
			out = append(out, d.said(e))
		}
	}
	d.making = making
	var gone []Entry
	for uid, pod := range d.pods {
		if pod.pass != d.passes {
			e := pod.Entry
			e.Time, e.What = now, PodGone
			gone = append(gone, e)
			delete(d.pods, uid)
		}
	}
	slices.SortFunc(gone, func(a, b Entry) int { return byNumber(a.Node, b.Node) })
	out = append(out, gone...)
	slices.SortStableFunc(out, func(a, b Entry) int { return a.Time.Compare(b.Time) })
	return append(out, d.changes(now, p.NodeSets)...)
}

// pod returns that of a boot.
func (d *Dynamic) pod(b *powersave.Boot) *passed {
	pod := d.pods[b.UID]
	if pod == nil {
		pod = newPassed(b.Node, b.UID)
		d.pods[b.UID] = pod
		if b.Times.Registered.IsZero() && (b.Phase == powersave.PhaseRegistered || b.Phase == powersave.PhaseRemoving) { // another bridge had it boot
			pod.told[PodCreated], pod.up = true, true
		}
	}
	pod.NodeSet, pod.Offering, pod.Host = b.NodeSet, b.Offering, cmp.Or(b.Host, pod.Host)
	return pod
}

// reached tells of the phases in which a pod was not seen before. Those that it is past, and of which nobody knows when, are left out.
func (pod *passed) reached(now time.Time, b *powersave.Boot) (out []Entry) {
	for _, p := range []struct {
		what  What
		phase powersave.Phase
		at    time.Time
	}{
		{PodCreated, powersave.PhasePending, b.Times.Created}, {PodScheduled, powersave.PhaseStarting, b.Times.Scheduled},
		{ContainerStarted, powersave.PhaseRunning, b.Times.Running}, {NodeRegistered, powersave.PhaseRegistered, b.Times.Registered},
	} {
		if pod.told[p.what] || p.at.IsZero() && b.Phase != p.phase {
			continue
		}
		pod.told[p.what] = true
		e := pod.Entry
		if e.What, e.Time = p.what, p.at; p.at.IsZero() {
			e.Time = now
		}
		if p.what == PodCreated {
			e.Host, e.Requested, e.Asked = "", b.Times.Requested, b.Times.Requested
		}
		out = append(out, e)
	}
	pod.up = pod.told[NodeRegistered] && pod.told[ContainerStarted] // the kubelet may say that one late
	return out
}

// said completes an entry.
func (d *Dynamic) said(e Entry) Entry {
	e.Dynamic = true
	switch pod := d.pods[e.PodUID]; {
	case pod != nil:
		e.NodeSet, e.Offering, e.Host, e.Request = pod.NodeSet, pod.Offering, pod.Host, pod.Request
		pod.told[e.What] = true
	case e.PodUID != "":
		e.Request = e.PodUID
	case e.What == BootFailed: // no pod was made
		e.Requested = d.making[e.Node]
		e.Request = fmt.Sprintf("%s/%d", e.Node, e.Time.UnixNano())
	}
	return e
}
