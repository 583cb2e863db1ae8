package page

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/scaler/ask"
)

// Demand is what pending jobs ask for, by the scaler.
type Demand struct {
	Error    string            `json:"error,omitempty"` // why there are no figures
	NodeSets List[ask.NodeSet] `json:"nodeSets"`
	Pending  []ask.Pending     `json:"pending"`
	Never    List[ask.Never]   `json:"never"`
}

// demand is what the page shows of the scaler's answer.
func demand(d ask.Demand, err error) *Demand {
	if err != nil {
		return &Demand{Error: err.Error(), NodeSets: listed[ask.NodeSet](nil, 0), Pending: []ask.Pending{}, Never: listed[ask.Never](nil, 0)}
	}
	sets := slices.Clone(d.NodeSets)
	if len(sets) > mostNodeSets { // those for which jobs wait must not be among those that are left out
		slices.SortStableFunc(sets, func(a, b ask.NodeSet) int {
			return cmp.Or(cmp.Compare(b.PowerUp, a.PowerUp), cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(b.Needed, a.Needed))
		})
	}
	out := &Demand{NodeSets: listed(sets, mostNodeSets), Pending: append([]ask.Pending{}, d.Pending...), Never: listed(d.Never, mostMisses)}
	slices.SortFunc(out.NodeSets.Items, func(a, b ask.NodeSet) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

const (
	scalerEvery = 2 * time.Second
	scalerWait  = 5 * time.Second
)

// follow asks the scaler while somebody watches, until ctx is done: beside the looks at the bridge, which must not wait for it.
func (p *Page) follow(ctx context.Context) {
	every := time.NewTicker(p.scalerEvery)
	defer every.Stop()
	for {
		if p.live.watched() {
			asked, cancel := context.WithTimeout(ctx, scalerWait)
			p.demanded.Store(demand(p.Demand(asked)))
			cancel()
		} else {
			p.demanded.Store(nil) // the next who watches must not see what was
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}
