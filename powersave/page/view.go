package page

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/bridge"
	"github.com/slurmtide/slurmtide/powersave/history"
)

// How long the lists of a View are at most.
const (
	mostNodeSets = 200
	mostJobs     = 30
	mostBooting  = 40
	mostOver     = 40
	mostBreakers = 50
	mostVerdicts = 30
	mostNotes    = 20
	mostMisses   = 20
)

// View is what the page shows. Nothing in it changes by the mere passing of time: ages are worked out where they are shown.
type View struct {
	Cluster string `json:"cluster"`
	Version string `json:"version"`
	// Trouble is what the bridge itself cannot do; empty: all is well.
	Trouble  []string `json:"trouble"`
	Lease    string   `json:"lease"`
	Leading  bool     `json:"leading"`
	Requests int      `json:"requests"` // in the spool, not finished
	Gates    int      `json:"gates"`
	Pods     int      `json:"pods"`

	Nodes    Nodes           `json:"nodes"` // of all NodeSets
	NodeSets List[NodeSet]   `json:"nodeSets"`
	Jobs     List[Job]       `json:"jobs"` // that wait for nodes
	Booting  List[Boot]      `json:"booting"`
	Over     List[Boot]      `json:"over"` // boots that have ended, the newest first
	Phases   []Phase         `json:"phases"`
	Seconds  []Seconds       `json:"seconds"` // by NodeSet
	NotTried List[NotTried]  `json:"notTried"`
	Verdicts List[Verdict]   `json:"verdicts"`
	Backs    List[GivenBack] `json:"givenBack"`
	Notes    List[Note]      `json:"notes"`
	Scaler   bool            `json:"scaler"` // one is asked for the demand
	Demand   *Demand         `json:"demand,omitempty"`
}

// List is the beginning of a list.
type List[T any] struct {
	Items   []T `json:"items"`
	LeftOut int `json:"leftOut,omitempty"` // how many more there are
}

func listed[T any](all []T, most int) List[T] {
	if len(all) <= most {
		return List[T]{Items: append([]T{}, all...)}
	}
	return List[T]{Items: slices.Clone(all[:most]), LeftOut: len(all) - most}
}

// Nodes are counts of nodes; each is in one but for All, which is their sum.
type Nodes struct {
	All     int `json:"all"`
	Ready   int `json:"ready"`
	Booting int `json:"booting"`
	Failed  int `json:"failed"`
	Off     int `json:"off"`     // and those that are on their way there, or drained
	Unknown int `json:"unknown"` // slurmctld has no record of them
	Unread  int `json:"unread"`  // no read of Slurm has told of them yet
}

func nodes(c powersave.NodeSetCounts) Nodes {
	n := Nodes{All: c.Nodes, Ready: c.Ready, Booting: c.Booting, Failed: c.Failed, Unknown: c.Unknown, Unread: c.Unread}
	n.Off = max(0, n.All-n.Ready-n.Booting-n.Failed-n.Unknown-n.Unread)
	return n
}

func (n *Nodes) add(o Nodes) {
	n.All += o.All
	n.Ready += o.Ready
	n.Booting += o.Booting
	n.Failed += o.Failed
	n.Off += o.Off
	n.Unknown += o.Unknown
	n.Unread += o.Unread
}

// NodeSet is a line of the table of NodeSets.
type NodeSet struct {
	Name  string `json:"name"`
	Nodes Nodes  `json:"nodes"`
	// Floor is how many nodes stay up without jobs, Held how many of them do, Ahead how many come for jobs that are yet to start; nil: it has none.
	Floor *Floor `json:"floor,omitempty"`
	// Problems are reasons for which it does not do all that it is to.
	Problems []string `json:"problems,omitempty"`
	Outdated int      `json:"outdated,omitempty"` // pods of an older template
}

// Floor is what a NodeSet keeps up.
type Floor struct {
	Wanted int `json:"wanted"`
	Held   int `json:"held"`
	Ahead  int `json:"ahead,omitempty"`
}

// Job waits for nodes.
type Job struct {
	ID      uint32    `json:"id"`
	Since   time.Time `json:"since"`
	Boots   int       `json:"boots"`        // under way
	Up      int       `json:"up,omitempty"` // nodes that have registered for it since; 0 also where that is not known
	Phases  []int     `json:"phases"`       // of them, in the order of powersave.BootPhases
	Last    string    `json:"last"`
	Problem string    `json:"problem,omitempty"`
}

// NotTried is a breaker that is not closed.
type NotTried struct {
	NodeSet  string    `json:"nodeSet"`
	Offering string    `json:"offering,omitempty"`
	Probing  bool      `json:"probing,omitempty"` // one boot tries, the others wait for it
	Class    string    `json:"class"`
	Reason   string    `json:"reason"`
	Until    time.Time `json:"until,omitzero"` // zero: until the spec changes, or the probe is over
	Failures int       `json:"failures"`
	Do       string    `json:"do,omitempty"`
}

// Look makes the view of a snapshot and of the newest entries of the history. over are the boots that both tell of, the newest first.
func Look(cluster string, st bridge.Status, entries []history.Entry) (v View, over []Boot) {
	e := st.Engine
	v = View{
		Cluster: cluster, Version: st.Version, Trouble: trouble(st), Lease: st.Lease.Text(), Leading: st.Lease.Leading,
		Requests: st.Spool.Depth, Gates: e.Gates, Pods: e.Pods, Phases: phases,
	}
	sets := make([]NodeSet, 0, len(e.NodeSets))
	var shut []NotTried
	for _, c := range e.NodeSets {
		n := nodes(c)
		v.Nodes.add(n)
		s := NodeSet{Name: c.Name, Nodes: n, Problems: problems(c)}
		if f := c.Floor; f != nil {
			s.Floor = &Floor{Wanted: f.Wanted, Held: f.Held, Ahead: f.Ahead}
		}
		if c.Update != nil {
			s.Outdated = c.Update.Outdated
		}
		sets = append(sets, s)
		for _, b := range c.Breakers {
			if b.State != powersave.BreakerClosed {
				shut = append(shut, NotTried{
					NodeSet: c.Name, Offering: b.Key.Offering, Probing: b.State == powersave.BreakerHalfOpen, Class: string(b.Class), Reason: b.Reason,
					Until: b.Until, Failures: b.Failures, Do: history.Advice(string(b.Class), len(c.Partitions) > 0),
				})
			}
		}
	}
	if len(sets) > mostNodeSets { // those that need somebody must not be among those that are left out
		slices.SortStableFunc(sets, func(a, b NodeSet) int { return cmp.Compare(needs(b), needs(a)) })
	}
	v.NodeSets = listed(sets, mostNodeSets)
	slices.SortFunc(v.NodeSets.Items, func(a, b NodeSet) int { return cmp.Compare(a.Name, b.Name) })
	v.NotTried = listed(shut, mostBreakers)

	over = boots(e, entries)
	v.Jobs = jobs(e.Waiting(), over, e.History)
	v.Booting = booting(st)
	v.Over = listed(over, mostOver)
	v.Seconds = seconds(over)
	v.Verdicts = verdicts(entries)
	v.Backs = givenBack(entries)
	v.Notes = notes(e.Notes)
	return v, over
}

// engineKeeps is how many boots the engine's history has. An older one may have been put out of it.
const engineKeeps = 1000

// jobs are those that wait. What came up for one since before the engine's history begins cannot be counted: of thousands some would be missing.
func jobs(waiting []powersave.Waiting, over []Boot, kept []powersave.Boot) List[Job] {
	some := listed(waiting, mostJobs)
	out := List[Job]{Items: []Job{}, LeftOut: some.LeftOut}
	at := map[uint32]int{}
	for i, w := range some.Items {
		if len(kept) < engineKeeps || !kept[0].Times.Registered.After(w.Since) {
			at[w.Job] = i
		}
		out.Items = append(out.Items, Job{ID: w.Job, Since: w.Since, Boots: w.Boots, Phases: w.Phases, Last: string(w.Last), Problem: w.Problem})
	}
	for i := range over {
		b := &over[i]
		for _, id := range b.Jobs {
			if n, waits := at[id]; waits && b.Outcome == history.Registered && !b.ended.Before(out.Items[n].Since) {
				out.Items[n].Up++
			}
		}
	}
	return out
}

// trouble is what the bridge cannot do.
func trouble(st bridge.Status) []string {
	e, all := st.Engine, []string{}
	switch {
	case e.SlurmError != "":
		all = append(all, "Slurm cannot be read, so nothing is taken down: "+e.SlurmError)
	case e.SlurmRead.IsZero():
		all = append(all, "Slurm has not been read yet")
	}
	switch {
	case st.KubernetesError != "":
		all = append(all, "Kubernetes cannot be read, so nothing is taken down: "+st.KubernetesError)
	case !e.KubernetesRead:
		all = append(all, "Kubernetes has not been read yet: pods and NodeSets have not been listed")
	}
	if !st.Lease.Leading && st.Lease.Error != "" {
		all = append(all, "The lease cannot be had, so only requests of this spool are carried out: "+st.Lease.Error)
	}
	if st.Spool.Bad > 0 {
		all = append(all, "Requests that could not be read have been set aside in the spool's directory bad")
	}
	return all
}

// problems says why a NodeSet does not do all that it is to. What is not tried has a table of its own.
func problems(c powersave.NodeSetCounts) []string {
	var all []string
	if c.Problem != "" {
		all = append(all, "it cannot be used: "+c.Problem)
	}
	if c.Stale != "" {
		all = append(all, "its figures are old: "+c.Stale)
	}
	if f := c.Floor; f != nil && f.Held < f.Wanted {
		all = append(all, strings.TrimSuffix("its floor is not reached: "+string(f.Why)+": "+f.Text, ": "))
	}
	if f := c.Floor; f != nil && f.AheadText != "" {
		all = append(all, "nodes ahead of jobs: "+f.AheadText)
	}
	if u := c.Update; u != nil && u.Outdated > 0 && (u.Text != "" || u.Refused != "") {
		all = append(all, strings.TrimSuffix("update: "+u.Text+"; not reserved in Slurm: "+u.Refused, "; not reserved in Slurm: "))
	}
	return all
}

// needs says how much a NodeSet needs somebody to look at it.
func needs(s NodeSet) int {
	switch {
	case len(s.Problems) > 0 || s.Nodes.Failed > 0:
		return 3
	case s.Nodes.Booting > 0:
		return 2
	case s.Nodes.Ready > 0:
		return 1
	}
	return 0
}
