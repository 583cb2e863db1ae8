package bridge

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slurmtide/slurmtide/powersave"
)

var (
	outcomes      = []powersave.GangOutcome{powersave.GangReady, powersave.GangGivenBack, powersave.GangLeft}
	breakerStates = []powersave.BreakerState{powersave.BreakerOpen, powersave.BreakerHalfOpen, powersave.BreakerClosed}
)

// figures shows those of the engine's NodeSets, and of others, which it is not told of.
func (m *Metrics) figures(now time.Time, counts, others []powersave.NodeSetCounts, hosted []powersave.Hosted, gates int) {
	if m == nil {
		return
	}
	before := m.known
	m.nodeSets(counts, others, hosted)
	all := slices.Concat(counts, others)
	m.count(all)
	m.changed(before, all)
	m.seconds.set(now, hosted)
	m.gates.Set(float64(gates))
}

func (m *Metrics) count(all []powersave.NodeSetCounts) {
	m.nodes.Replace(func(set func(float64, ...string)) {
		for _, c := range all {
			for state, n := range map[string]int{"total": c.Nodes, "powered_up": c.PoweredUp, "booting": c.Booting, "ready": c.Ready, "failed": c.Failed, "unknown": c.Unknown} {
				set(float64(n), c.Name, state)
			}
		}
	})
	m.floor.Replace(func(set func(float64, ...string)) {
		for _, c := range all {
			if f := c.Floor; f != nil {
				set(float64(f.Wanted), c.Name, "wanted")
				set(float64(f.Held), c.Name, "held")
			}
		}
	})
	m.breakers.Replace(func(set func(float64, ...string)) {
		for _, c := range all {
			for _, b := range c.Breakers {
				if b.State != powersave.BreakerClosed {
					set(1, c.Name, b.Key.Offering, string(b.Class))
				}
			}
		}
	})
}

// nodeSets makes the series of NodeSets from the start, and takes away those of NodeSets that are gone.
func (m *Metrics) nodeSets(counts, others []powersave.NodeSetCounts, hosted []powersave.Hosted) {
	there, ours := map[string]bool{}, map[string]bool{}
	for _, c := range slices.Concat(counts, others) {
		there[c.Name] = true
		for _, state := range breakerStates {
			m.changes.WithLabelValues(c.Name, "", string(state))
		}
	}
	for _, c := range counts {
		ours[c.Name] = true
		m.boots.WithLabelValues(c.Name)
		m.slow.WithLabelValues(c.Name)
		m.started.WithLabelValues(c.Name)
		for _, class := range powersave.Troubles {
			m.verdicts.WithLabelValues(c.Name, string(class))
			m.givenBack.WithLabelValues(c.Name, string(class))
		}
		for _, outcome := range outcomes {
			m.gangs.WithLabelValues(c.Name, string(outcome))
		}
	}
	for _, h := range hosted {
		for _, state := range breakerStates {
			if there[h.NodeSet] {
				m.changes.WithLabelValues(h.NodeSet, h.Offering, string(state))
			}
		}
		for _, phase := range bootPhases {
			if ours[h.NodeSet] {
				m.phases.WithLabelValues(h.NodeSet, h.Offering, phase)
			}
		}
	}
	maps.Copy(m.strays, m.known)
	for name := range m.strays {
		if !there[name] {
			gone := prometheus.Labels{"nodeset": name}
			for _, v := range []*prometheus.CounterVec{m.boots, m.slow, m.verdicts, m.givenBack, m.started, m.gangs, m.changes} {
				v.DeletePartialMatch(gone)
			}
			m.phases.DeletePartialMatch(gone)
		}
	}
	m.known = there
	clear(m.strays)
}

// changed counts in what states breakers are that were in others when it looked last. Of a NodeSet that is new to it, or to the bridge, nothing counts.
func (m *Metrics) changed(before map[string]bool, counts []powersave.NodeSetCounts) {
	states := map[powersave.BreakerKey]powersave.BreakerState{}
	for _, c := range counts {
		for _, b := range c.Breakers {
			states[b.Key] = b.State
			if was := cmp.Or(m.states[b.Key], powersave.BreakerClosed); before[c.Name] && was != b.State {
				m.changes.WithLabelValues(c.Name, b.Key.Offering, string(b.State)).Inc()
			}
		}
	}
	for key, was := range m.states {
		if _, told := states[key]; !told && was != powersave.BreakerClosed && m.known[key.NodeSet] { // nothing is held against it any more
			m.changes.WithLabelValues(key.NodeSet, key.Offering, string(powersave.BreakerClosed)).Inc()
		}
	}
	m.states = states
}
