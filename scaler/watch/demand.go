package watch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/scaler/ask"
)

// Demand is what the figures say of each NodeSet of Kubernetes. It is worked out once for each look at Slurm, however many ask: its lists are shared.
func (f Figures) Demand(cluster string) ask.Demand {
	d := f.demand()
	d.Cluster, d.Read = cluster, f.Read
	return d
}

// demanded goes through all jobs.
func (f *Figures) demanded() ask.Demand {
	d := ask.Demand{NodeSets: []ask.NodeSet{}, Pending: []ask.Pending{}, Never: []ask.Never{}}
	for _, name := range f.Own() {
		s, _ := f.NodeSet(name)
		d.NodeSets = append(d.NodeSets, ask.NodeSet{
			Name: name, Needed: s.Nodes(), PowerUp: s.New.Greedy, InUse: s.InUse, FreeingSoon: s.FreeingSoon, Jobs: s.Jobs,
		})
	}
	jobs := map[scaler.Why]int{}
	for _, j := range f.Report.Jobs {
		jobs[j.Why]++
	}
	for why, n := range jobs {
		d.Pending = append(d.Pending, ask.Pending{Why: string(why), Says: why.Says(), Counts: why.Counts(), Jobs: n})
	}
	slices.SortFunc(d.Pending, func(a, b ask.Pending) int {
		if a.Counts != b.Counts && a.Counts {
			return -1
		}
		if a.Counts != b.Counts {
			return 1
		}
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Why, b.Why))
	})
	for miss, n := range scaler.MissesOf(f.Report).Count() {
		d.Never = append(d.Never, ask.Never{Miss: miss, Jobs: n})
	}
	slices.SortFunc(d.Never, func(a, b ask.Never) int { return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Miss, b.Miss)) })
	return d
}

// TellDemand answers GET ask.DemandPath?cluster=NAME with an ask.Demand: 404 if there is no such cluster, 503 if it could not be read. The name may be left out
// where there is one cluster only.
func TellDemand(clusters map[string]Latester) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("cluster")
		if name == "" && len(clusters) == 1 {
			for name = range clusters {
			}
		}
		c, ok := clusters[name]
		switch {
		case name == "":
			http.Error(w, fmt.Sprintf("which cluster? There are %q", slices.Sorted(maps.Keys(clusters))), http.StatusBadRequest)
			return
		case !ok:
			http.Error(w, fmt.Sprintf("no cluster %q here", name), http.StatusNotFound)
			return
		}
		f, err := c.Latest()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(f.Demand(name))
	}
}
