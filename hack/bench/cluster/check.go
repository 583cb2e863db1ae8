package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

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
	// The first of everything is slower: slurmctld, the scheduler and the API server have just started.
	var l latencies
	if err := l.once(b, "batch", 10, true); err != nil {
		return c, err
	}
	if _, err := b.sides(ns, true); err != nil {
		return c, err
	}
	l = latencies{}
	for round := range rounds {
		if err := l.once(b, "batch", 10, true); err != nil {
			return c, err
		}
		f, err := b.sides(ns, round%2 == 0)
		if err != nil {
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

// sides has the bridge and a plain client create as many pods, in either order: whoever comes second meets what the first has left, for
// the API server and its database grow in a run.
func (b *bench) sides(ns *v1alpha1.NodeSet, bareFirst bool) (f fleet, err error) {
	f = fleet{Nodes: checkedNodes, Jobs: 1}
	direct := func() error {
		if err := b.quiet(); err != nil {
			return err
		}
		f.Direct, err = b.direct(ns, f.Nodes)
		return err
	}
	ours := func() error {
		if err := b.quiet(); err != nil {
			return err
		}
		return b.fleet(&f)
	}
	both := []func() error{direct, ours}
	if !bareFirst {
		slices.Reverse(both)
	}
	for _, one := range both {
		if err := one(); err != nil {
			return f, err
		}
	}
	fmt.Fprintf(os.Stderr, "bench: %d pods created by the bridge in %.2f s, directly in %.2f s\n", f.Nodes, f.Bridge.Created, f.Direct.Created)
	return f, nil
}
