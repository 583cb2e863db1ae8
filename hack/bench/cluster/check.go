package main

import "errors"

// check are figures for hack/bench/check, a value for each round.
type check struct {
	TenNodes  []float64 `json:"ten_nodes_s"` // 10-node batch job from zero
	TenPods   []float64 `json:"ten_pods_s"`  // as many bare pods
	Fleet     []float64 `json:"fleet_created_s"`
	FleetPods []float64 `json:"fleet_pods_created_s"`
	// Requests and Calls are the bridge's for the fleet, up and down.
	Requests []float64            `json:"kubernetes_requests_per_node"`
	Calls    []float64            `json:"slurm_calls_per_1000_nodes"`
	Hostlist map[string][]float64 `json:"hostlist_ratio"` // to scontrol, by task
}

// checkedNodes is how many pretended nodes are powered up in a round.
const checkedNodes = 500

func (b *bench) check(kwok, program string, rounds int) (c check, err error) {
	ns, stop, err := b.far(kwok, checkedNodes)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	c.Hostlist = map[string][]float64{}
	var l latencies
	if err := l.once(b, "batch", 10, true); err != nil { // the first of a slurmctld is slower
		return c, err
	}
	l = latencies{}
	for range rounds {
		if err := l.once(b, "batch", 10, true); err != nil {
			return c, err
		}
		f := fleet{Nodes: checkedNodes, Jobs: 1}
		if f.Direct, err = b.direct(ns, f.Nodes); err != nil {
			return c, err
		}
		if err := b.fleet(&f); err != nil {
			return c, err
		}
		requests := 0.0
		for _, n := range f.Requests {
			requests += n
		}
		c.Fleet, c.FleetPods = append(c.Fleet, f.Bridge.Created), append(c.FleetPods, f.Direct.Created)
		c.Requests, c.Calls = append(c.Requests, requests), append(c.Calls, f.SlurmCalls/checkedNodes*1000)
		lists, err := b.hostlists(program)
		if err != nil {
			return c, err
		}
		for _, h := range lists {
			c.Hostlist[h.Task] = append(c.Hostlist[h.Task], h.Ratio)
		}
	}
	c.TenNodes, c.TenPods = l.row("batch", 10, true).FromZero.Values, l.bare(10).Running.Values
	return c, nil
}
