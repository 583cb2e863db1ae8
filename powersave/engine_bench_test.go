package powersave_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// BenchmarkTenThousandNodes boots 10,000 nodes for 1,000 jobs and reports the time to plan
// the request and the mean time of every later step.
func BenchmarkTenThousandNodes(b *testing.B) { bootTenThousand(b, nil) }

// BenchmarkTenThousandNodesOfferings is the same with offerings that have limits.
func BenchmarkTenThousandNodesOfferings(b *testing.B) {
	bootTenThousand(b, []powersave.Offering{{Name: "spot", Limit: 5000}, {Name: "demand", Limit: 9000}})
}

func bootTenThousand(b *testing.B, offerings []powersave.Offering) {
	all, err := slurmconf.ParseHostlist("n-[0-9999]")
	if err != nil {
		b.Fatal(err)
	}
	var jobs []powersave.Job
	for j := range 1000 {
		h, err := slurmconf.ParseHostlist(fmt.Sprintf("n-[%d-%d]", j*10, j*10+9))
		if err != nil {
			b.Fatal(err)
		}
		jobs = append(jobs, powersave.Job{ID: uint32(j + 1), Nodes: h})
	}
	off := make([]powersave.SlurmNode, 0, 10000)
	up := make([]powersave.SlurmNode, 0, 10000)
	for n := range all.All() {
		off = append(off, powersave.SlurmNode{Name: n, State: powersave.NodeIdle | powersave.NodeCloud | powersave.NodePoweredDown})
		up = append(up, powersave.SlurmNode{Name: n, State: powersave.NodeAllocated | powersave.NodeCloud})
	}
	var plan, rest time.Duration
	steps := 0
	for b.Loop() {
		e := powersave.New(powersave.Config{Alone: true})
		now := epoch
		step := func(ev powersave.Event) []powersave.Action {
			now = now.Add(time.Millisecond)
			return e.Step(now, ev)
		}
		step(powersave.NodeSetsRead{NodeSets: []powersave.NodeSet{{Name: "n", Nodes: all, Offerings: offerings}}})
		step(powersave.PodsRead{})
		step(powersave.SlurmRead{Complete: true, Nodes: off})
		began := time.Now()
		actions := step(powersave.RequestAccepted{Request: powersave.Request{ID: "r", Sequence: 1, Kind: spool.KindResume, Started: now, Nodes: all, Jobs: jobs}})
		plan += time.Since(began)
		creates := 0
		began = time.Now()
		for _, a := range actions {
			c, ok := a.(powersave.CreatePod)
			if !ok {
				continue
			}
			creates++
			uid := "u" + c.Node
			step(powersave.PodCreated{Node: c.Node, UID: uid, Generation: 1})
			step(powersave.PodSeen{Pod: powersave.Pod{Node: c.Node, UID: uid, Generation: 1, Phase: powersave.PodScheduled}})
			step(powersave.PodSeen{Pod: powersave.Pod{Node: c.Node, UID: uid, Generation: 1, Phase: powersave.PodRunning}})
			steps += 3
		}
		step(powersave.SlurmRead{Complete: true, Nodes: up})
		step(powersave.SlurmRead{Complete: true, Nodes: up})
		rest += time.Since(began)
		if creates != 10000 || !e.Settled() {
			b.Fatalf("%d pods created, settled: %v", creates, e.Settled())
		}
	}
	b.ReportMetric(float64(plan.Microseconds())/1000/float64(b.N), "plan-ms/op")
	b.ReportMetric(float64(rest.Microseconds())/float64(steps), "us/step")
}

// BenchmarkWideWish has 10,000 idle nodes that are all wished for: a complete read of them.
func BenchmarkWideWish(b *testing.B) {
	all, err := slurmconf.ParseHostlist("n-[0-9999]")
	if err != nil {
		b.Fatal(err)
	}
	var idle []powersave.SlurmNode
	var pods []powersave.Pod
	for n := range all.All() {
		idle = append(idle, powersave.SlurmNode{Name: n, State: powersave.NodeIdle | powersave.NodeCloud})
		pods = append(pods, powersave.Pod{Node: n, UID: "u" + n, Generation: 1, Phase: powersave.PodReady})
	}
	e := powersave.New(powersave.Config{Alone: true})
	now := epoch
	step := func(ev powersave.Event) []powersave.Action {
		now = now.Add(10 * time.Second)
		return e.Step(now, ev)
	}
	step(powersave.NodeSetsRead{NodeSets: []powersave.NodeSet{{Name: "n", Nodes: all}}})
	step(powersave.PodsRead{Pods: pods})
	step(powersave.SlurmRead{Complete: true, Nodes: idle})
	step(powersave.WarmWished{Wishes: []powersave.WarmWish{{NodeSet: "n", Nodes: len(idle), Names: all.Expand(), Until: now.Add(1000 * time.Hour)}}})
	for b.Loop() {
		renewed := 0
		step(powersave.Tick{}) // Slurm is to be read
		for _, a := range step(powersave.SlurmRead{Complete: true, Nodes: idle}) {
			if u, ok := a.(powersave.UpdateNodes); ok {
				renewed += len(u.Update.Nodes)
				step(powersave.NodesUpdated{Update: u.Update})
			}
		}
		if renewed != len(idle) {
			b.Fatalf("%d of %d nodes are held", renewed, len(idle))
		}
	}
}
