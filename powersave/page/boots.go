package page

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/bridge"
	"github.com/slurmtide/slurmtide/powersave/history"
)

// Phase is a part of a boot's time.
type Phase struct {
	Name string `json:"name"`
	Text string `json:"text"` // what the time goes to
}

// phases are those of a boot, in order.
var phases = []Phase{
	{"request", "from ResumeProgram's start until the bridge has the request; in mode Dynamic there is none"},
	{"pod", "until Kubernetes has the pod; room that is asked for first, and the pod of an earlier boot, are in it"},
	{"host", "until the scheduler has found it a host"},
	{"container", "until the kubelet says that the container runs: image, volumes, network; it says so up to a second late"},
	{"registered", "until slurmctld has taken slurmd's registration"},
	{"others", "until all nodes of the job are there, and its start gate opens"},
}

// Boot is a line of the waterfall.
type Boot struct {
	Node     string    `json:"node"`
	NodeSet  string    `json:"nodeSet,omitempty"`
	Offering string    `json:"offering,omitempty"`
	Host     string    `json:"host,omitempty"`
	Jobs     []uint32  `json:"jobs,omitempty"`
	Began    time.Time `json:"began"`
	// Seconds are those of each of the phases; one that is under way, and those after it, have none.
	Seconds []float64 `json:"seconds"`
	// Now is what one under way is at, a powersave.Phase. Empty: it has ended.
	Now     string          `json:"now,omitempty"`
	Outcome history.Outcome `json:"outcome"`
	Problem string          `json:"problem,omitempty"`

	request string
	ended   time.Time
}

// took is how long a boot that has registered took until then.
func (b *Boot) took() float64 {
	return sum(b.Seconds[:min(len(b.Seconds), len(phases)-1)])
}

func sum(all []float64) (s float64) {
	for _, one := range all {
		s += one
	}
	return s
}

// split says how many seconds of a boot each phase had. What is not known of one in the middle counts for the next one that is known.
func split(began time.Time, reached ...time.Time) []float64 {
	out := []float64{}
	at, skipped := began, 0
	for _, t := range reached {
		if t.IsZero() {
			skipped++
			continue
		}
		for ; skipped > 0; skipped-- {
			out = append(out, 0)
		}
		out = append(out, rounded(max(0, t.Sub(at).Seconds())))
		if t.After(at) { // Kubernetes may tell of a container after slurmctld has told of its slurmd
			at = t
		}
	}
	return out
}

// rounded to milliseconds.
func rounded(s float64) float64 { return math.Round(s*1000) / 1000 }

func notAfter(t, end time.Time) time.Time {
	if !end.IsZero() && t.After(end) {
		return end
	}
	return t
}

// booting are the boots under way, those that take longest first.
func booting(st bridge.Status) List[Boot] {
	all := slices.Concat(st.Engine.Boots, st.Dynamic)
	slices.SortStableFunc(all, func(a, b powersave.Boot) int {
		return cmp.Or(a.Began().Compare(b.Began()), cmp.Compare(len(a.Node), len(b.Node)), cmp.Compare(a.Node, b.Node))
	})
	some := listed(all, mostBooting)
	out := List[Boot]{Items: []Boot{}, LeftOut: some.LeftOut}
	for _, b := range some.Items {
		t := b.Times
		out.Items = append(out.Items, Boot{
			Node: b.Node, NodeSet: b.NodeSet, Host: b.Host, Jobs: b.Jobs, Began: b.Began(), Now: string(b.Phase), Outcome: history.Booting, Problem: b.Problem,
			Seconds: split(b.Began(), t.Accepted, t.Created, t.Scheduled, t.Running),
		})
	}
	return out
}

// boots are those that have ended, the newest first: of the engine, which knows their times best, and of the history, which knows those that failed, and those of former bridges.
func boots(e powersave.Status, entries []history.Entry) []Boot {
	type key struct{ node, request string }
	known := map[key]bool{}
	for _, b := range e.Boots {
		known[key{b.Node, b.Request}] = true
	}
	gates := openings(entries)
	var all []Boot
	for _, b := range e.History {
		known[key{b.Node, b.Request}] = true
		t := b.Times
		all = append(all, Boot{
			Node: b.Node, NodeSet: b.NodeSet, Host: b.Host, Jobs: b.Jobs, Began: b.Began(), Outcome: history.Registered, request: b.Request, ended: t.Registered,
			Seconds: split(b.Began(), t.Accepted, t.Created, t.Scheduled, notAfter(t.Running, t.Registered), t.Registered, gates.opened(b.Jobs, t.Registered)),
		})
	}
	for _, b := range history.Boots(entries) {
		if known[key{b.Node, b.Request}] || b.Outcome == history.Booting || b.Requested.IsZero() || b.Accepted.IsZero() && !b.Dynamic {
			continue // the engine says it better, or its beginning is older than the entries
		}
		all = append(all, fromHistory(b, gates))
	}
	slices.SortStableFunc(all, func(a, b Boot) int {
		return cmp.Or(b.ended.Compare(a.ended), cmp.Compare(len(a.Node), len(b.Node)), cmp.Compare(a.Node, b.Node))
	})
	return all
}

// fromHistory is a boot as the history tells of it.
func fromHistory(b *history.Boot, gates gates) Boot {
	boot := Boot{
		Node: b.Node, NodeSet: b.NodeSet, Offering: b.Offering, Host: b.Host, Jobs: b.Jobs, Began: b.Began(), Outcome: b.Outcome, request: b.Request,
		Seconds: split(b.Began(), b.Accepted, b.Created, b.Scheduled, notAfter(b.Started, b.Registered), b.Registered, gates.opened(b.Jobs, b.Registered)),
	}
	switch {
	case b.Outcome == history.Booting:
		boot.Now = string(b.Outcome)
	case !b.Registered.IsZero():
		boot.ended = b.Registered
	default: // the rest went to the phase that it did not leave
		boot.ended = b.Ended
		boot.Seconds = append(boot.Seconds, rounded(max(0, b.Ended.Sub(b.Began()).Seconds()-sum(boot.Seconds))))
	}
	if b.Class != "" {
		boot.Problem = b.Class + ": " + b.Reason
	}
	return boot
}

// gates is by job from when to when its start gates waited, and were opened.
type gates map[uint32][]gate

type gate struct{ waited, opened time.Time }

func openings(entries []history.Entry) gates {
	all, since := gates{}, map[uint32]time.Time{}
	for i := range entries {
		e := &entries[i]
		if len(e.Jobs) == 0 {
			continue
		}
		job := e.Jobs[0]
		switch e.What {
		case history.GateWaits:
			since[job] = e.Time
		case history.GateOpened:
			if at, waits := since[job]; waits {
				all[job] = append(all[job], gate{at, e.Time})
			}
			delete(since, job)
		case history.GateGivenUp:
			delete(since, job)
		default:
		}
	}
	return all
}

// opened is when a gate opened that waited for a node which registered at that time; zero: none is known.
func (g gates) opened(jobs []uint32, registered time.Time) (first time.Time) {
	for _, job := range jobs {
		for _, gate := range g[job] {
			if !registered.Before(gate.waited) && !registered.After(gate.opened) && (first.IsZero() || gate.opened.Before(first)) {
				first = gate.opened
			}
		}
	}
	return first
}

// Seconds say where the time of a NodeSet's boots went.
type Seconds struct {
	NodeSet string `json:"nodeSet"`
	Boots   int    `json:"boots"` // how many it is of, the newest
	// Median of each phase until slurmd had registered.
	Median []float64 `json:"median"`
	// Half, P95 and Slowest are of the whole boots.
	Half    float64 `json:"half"`
	P95     float64 `json:"p95"`
	Slowest float64 `json:"slowest"`
	// SlowestNode is that of the slowest.
	SlowestNode string `json:"slowestNode"`
}

const (
	mostMeasured = 200 // boots of a NodeSet
	mostSeconds  = 50  // NodeSets
)

// seconds takes boots, the newest first.
func seconds(all []Boot) []Seconds {
	sets := map[string][]*Boot{}
	var order []string // those with the newest boots first
	for i := range all {
		b := &all[i]
		if b.Outcome != history.Registered || len(sets[b.NodeSet]) == mostMeasured {
			continue
		}
		if sets[b.NodeSet] == nil {
			order = append(order, b.NodeSet)
		}
		sets[b.NodeSet] = append(sets[b.NodeSet], b)
	}
	out := []Seconds{}
	for _, name := range order[:min(len(order), mostSeconds)] {
		boots := sets[name]
		slices.SortStableFunc(boots, func(a, b *Boot) int { return cmp.Compare(a.took(), b.took()) })
		slowest := boots[len(boots)-1]
		s := Seconds{
			NodeSet: name, Boots: len(boots), Half: rounded(boots[len(boots)/2].took()), P95: rounded(boots[(len(boots)*95+99)/100-1].took()),
			Slowest: rounded(slowest.took()), SlowestNode: slowest.Node,
		}
		for i := range phases[:len(phases)-1] {
			parts := make([]float64, len(boots))
			for j, b := range boots {
				parts[j] = b.Seconds[i]
			}
			slices.Sort(parts)
			s.Median = append(s.Median, parts[len(parts)/2])
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Seconds) int { return cmp.Compare(a.NodeSet, b.NodeSet) })
	return out
}
