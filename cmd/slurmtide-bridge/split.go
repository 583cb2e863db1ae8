package main

import (
	"slices"

	"github.com/slurmtide/slurmtide/kube/pods"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/bridge"
	"github.com/slurmtide/slurmtide/powersave/place"
	aheadloop "github.com/slurmtide/slurmtide/scaler/ahead/loop"
	"github.com/slurmtide/slurmtide/scaler/dynamic/loop"
)

// split tells the bridge of what has power states, the loop of mode Dynamic of what has none, and the one of places of both.
type split struct {
	pods.Handler // the bridge
	dynamic      *loop.Loop
	ahead        *aheadloop.Loop
	places       *place.Loop
	claims       *pods.Claims
}

func newSplit(b *bridge.Bridge, l *loop.Loop, a *aheadloop.Loop, p *place.Loop, c *pods.Claims) split {
	return split{b, l, a, p, c}
}

// NodeSets gives the loop all of them: pending jobs may find their nodes in those of mode Cloud.
func (s split) NodeSets(sets []powersave.NodeSet) {
	s.dynamic.NodeSets(slices.Clone(sets))
	s.ahead.TakeNodeSets(slices.Clone(sets))
	s.places.NodeSets()
	s.claims.NodeSets()
	s.Handler.NodeSets(slices.DeleteFunc(sets, func(n powersave.NodeSet) bool { return n.Dynamic != nil }))
}

func (s split) PodsSynced(all []powersave.Pod) {
	var cloud, dynamic []powersave.Pod
	for _, p := range all {
		s.places.Pod(p)
		if p.Dynamic {
			dynamic = append(dynamic, p)
		} else {
			cloud = append(cloud, p)
		}
	}
	s.Handler.PodsSynced(cloud)
	s.dynamic.PodsSynced(dynamic)
}

func (s split) Pod(p powersave.Pod) {
	s.places.Pod(p)
	if p.Dynamic {
		s.dynamic.Pod(p)
		return
	}
	s.Handler.Pod(p)
}

// PodGone goes to all: who never knew the UID does nothing.
func (s split) PodGone(node, uid string) {
	s.Handler.PodGone(node, uid)
	s.dynamic.PodGone(node, uid)
	s.places.PodGone(node, uid)
}

// Hosts trouble the nodes of both modes.

func (s split) HostsSynced(all []powersave.Host) {
	s.Handler.HostsSynced(all)
	s.dynamic.HostsSynced(all)
}

func (s split) Host(h powersave.Host) {
	s.Handler.Host(h)
	s.dynamic.Host(h)
}

func (s split) HostsUnread(err error) {
	s.Handler.HostsUnread(err)
	s.dynamic.HostsUnread(err)
}
