package powersave_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// BenchmarkTenThousandNodesFail has 1,000 jobs on 10,000 nodes for which there is no room: all are given back at once. Steps and
// NextWake are timed.
func BenchmarkTenThousandNodesFail(b *testing.B) {
	for _, strategy := range []powersave.BootStrategy{powersave.AllOrNothing, powersave.Greedy} {
		b.Run(string(strategy), func(b *testing.B) { failTenThousand(b, strategy) })
	}
}

func failTenThousand(b *testing.B, strategy powersave.BootStrategy) {
	const gangs = 1000
	var spent, longest time.Duration
	steps := 0
	for b.Loop() {
		w := newFailing(b, gangs, strategy)
		w.run()
		spent, longest, steps = spent+w.spent, max(longest, w.longest), steps+w.steps
		if w.held != gangs || w.off != 10*gangs || !w.engine.Settled() {
			b.Fatalf("%d of %d jobs rest, %d nodes are off, settled=%v", w.held, gangs, w.off, w.engine.Settled())
		}
	}
	b.ReportMetric(float64(spent.Microseconds())/float64(steps), "us/step")
	b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
}

// failing does what the engine asks for at once; pods find no host.
type failing struct {
	b         *testing.B
	engine    *powersave.Engine
	now       time.Time
	events    []powersave.Event // to come
	states    map[string]powersave.NodeState
	names     []string
	leaving   []string // powered down since SuspendProgram was called last
	held, off int
	requests  int

	steps          int
	spent, longest time.Duration
}

const (
	failingOff     = powersave.NodeIdle | powersave.NodeCloud | powersave.NodePoweredDown
	failingBoots   = powersave.NodeAllocated | powersave.NodeCloud | powersave.NodePoweringUp
	failingLeaving = powersave.NodeIdle | powersave.NodeCloud | powersave.NodePoweringDown
)

func newFailing(b *testing.B, gangs int, strategy powersave.BootStrategy) *failing {
	w := &failing{b: b, engine: powersave.New(powersave.Config{Alone: true}), now: epoch, states: map[string]powersave.NodeState{}}
	all, err := slurmconf.ParseHostlist(fmt.Sprintf("n-[0-%d]", 10*gangs-1))
	if err != nil {
		b.Fatal(err)
	}
	for name := range all.All() {
		w.names, w.states[name] = append(w.names, name), failingBoots
	}
	w.events = []powersave.Event{powersave.NodeSetsRead{NodeSets: []powersave.NodeSet{{Name: "n", Nodes: all, Strategy: strategy}}}, powersave.PodsRead{}}
	for j := range gangs {
		nodes := slurmconf.NewHostlist(w.names[10*j : 10*j+10]...)
		job := powersave.Job{ID: uint32(j + 1), Nodes: nodes}
		w.request(powersave.Request{Kind: spool.KindResume, Nodes: nodes, Jobs: []powersave.Job{job}, ResumeTimeout: time.Minute})
		w.events = append(w.events, powersave.GateOpened{ID: uint64(j + 1), JobID: job.ID, Nodes: nodes})
	}
	return w
}

func (w *failing) request(r powersave.Request) {
	w.requests++
	r.ID, r.Sequence, r.Started = fmt.Sprint("r", w.requests), w.now.UnixNano()+int64(w.requests), w.now.Add(time.Duration(w.requests)*time.Microsecond)
	w.events = append(w.events, powersave.RequestAccepted{Request: r})
}

// run goes on until all nodes are off.
func (w *failing) run() {
	for len(w.events) > 0 || len(w.leaving) > 0 || !w.engine.Settled() {
		switch {
		case len(w.events) > 0:
			ev := w.events[0]
			w.events = w.events[1:]
			w.step(ev)
		case len(w.leaving) > 0: // slurmctld's next round
			w.now = w.now.Add(time.Second)
			w.request(powersave.Request{Kind: spool.KindSuspend, Nodes: slurmconf.NewHostlist(w.leaving...)})
			w.leaving = nil
		default:
			w.now = w.engine.NextWake()
			w.step(powersave.Tick{})
		}
	}
}

func (w *failing) step(ev powersave.Event) {
	w.now = w.now.Add(10 * time.Microsecond)
	began := time.Now()
	actions := w.engine.Step(w.now, ev)
	w.engine.NextWake()
	took := time.Since(began)
	w.steps++
	w.spent, w.longest = w.spent+took, max(w.longest, took)
	for _, a := range actions {
		w.act(a)
	}
}

func (w *failing) act(a powersave.Action) {
	switch a := a.(type) {
	case powersave.CreatePod:
		uid := "u" + a.Node
		w.events = append(w.events, powersave.PodCreated{Node: a.Node, UID: uid, Generation: a.Generation}, powersave.PodSeen{Pod: powersave.Pod{
			Node: a.Node, UID: uid, Generation: a.Generation, Phase: powersave.PodPending, Trouble: powersave.TroubleCapacity, Reason: "Unschedulable", Message: "no room",
		}})
	case powersave.DeletePod:
		w.events = append(w.events, powersave.PodDeleted{Node: a.Node, UID: a.UID}, powersave.PodGone{Node: a.Node, UID: a.UID})
	case powersave.TellJob:
		w.events = append(w.events, powersave.JobTold{Job: a.Job, Serial: a.Serial})
	case powersave.HoldJob:
		w.held++
		w.events = append(w.events, powersave.JobHeld{Job: a.Job, Serial: a.Serial})
	case powersave.ReadSlurm:
		names := a.Nodes
		if len(names) == 0 {
			names = w.names
		}
		ev := powersave.SlurmRead{Complete: len(a.Nodes) == 0}
		for _, name := range names {
			ev.Nodes = append(ev.Nodes, powersave.SlurmNode{Name: name, State: w.states[name]})
		}
		w.events = append(w.events, ev)
	case powersave.UpdateNodes:
		for _, name := range a.Update.Nodes {
			switch a.Update.State {
			case powersave.StatePowerDownForce:
				w.states[name] = failingLeaving
				w.leaving = append(w.leaving, name)
			case powersave.StateResume:
				w.states[name] = failingOff
				w.off++
			default: // drained: the NodeSet is closed
			}
		}
		w.events = append(w.events, powersave.NodesUpdated{Update: a.Update})
	default:
	}
}
