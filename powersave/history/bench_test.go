package history

import (
	"fmt"
	"testing"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// BenchmarkBurst is what the bridge's loop pays for the history of 10,000 boots for 1,000 jobs.
func BenchmarkBurst(b *testing.B) {
	q := powersave.Request{ID: "r1", Kind: spool.KindResume}
	var names []string
	for i := range 10_000 {
		names = append(names, fmt.Sprint("cpu-", i))
	}
	q.Nodes = slurmconf.NewHostlist(names...)
	for i := range 1000 {
		q.Jobs = append(q.Jobs, powersave.Job{ID: uint32(i + 1), Nodes: slurmconf.NewHostlist(names[10*i : 10*i+10]...)})
	}
	for b.Loop() {
		r := NewRecorder()
		n := len(r.Step(noon, powersave.RequestAccepted{Request: q}, nil))
		for _, name := range names {
			n += len(r.Step(noon, powersave.Tick{}, []powersave.Action{powersave.CreatePod{Node: name, NodeSet: "cpu", Request: "r1"}}))
			for _, phase := range []powersave.PodPhase{powersave.PodPending, powersave.PodScheduled, powersave.PodRunning} {
				n += len(r.Step(noon, powersave.PodSeen{Pod: powersave.Pod{Node: name, UID: name, Request: "r1", Phase: phase}}, nil))
			}
			n += len(r.Step(noon, powersave.Tick{}, []powersave.Action{powersave.BootDone{Boot: powersave.Boot{Node: name, UID: name}}}))
		}
		if n != 1000+40_000 {
			b.Fatal(n)
		}
	}
}

// BenchmarkDynamic is a pass in which nothing is new, of 10,000 nodes.
func BenchmarkDynamic(b *testing.B) {
	var p Pass
	for i := range 10_000 {
		p.Boots = append(p.Boots, powersave.Boot{Node: fmt.Sprint("dyn-", i), NodeSet: "dyn", UID: fmt.Sprint("uid-", i), Host: "host", Phase: powersave.PhaseRegistered,
			Times: powersave.Timeline{Requested: ms(0), Created: ms(0), Scheduled: ms(1), Running: ms(2), Registered: ms(3)}})
	}
	d := NewDynamic(nil)
	d.Pass(ms(0), p)
	b.ReportAllocs()
	for b.Loop() {
		if len(d.Pass(ms(0), p)) > 0 {
			b.Fatal("told twice")
		}
	}
}
