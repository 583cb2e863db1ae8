package traces

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
)

// passes has what a loop of mode Dynamic tells become entries and traces.
type passes struct {
	*told
	dynamic *history.Dynamic
}

func (p *passes) pass(n int, said []history.Entry, boots ...powersave.Boot) {
	entries := p.dynamic.Pass(ms(n), history.Pass{Boots: boots, Said: said})
	p.entries = append(p.entries, entries...)
	p.Add(entries...)
}

func dynamic(node string, phase powersave.Phase, at powersave.Timeline) powersave.Boot {
	return powersave.Boot{Node: node, NodeSet: "dyn", UID: "uid-" + node, Host: "host-a", Phase: phase, Times: at}
}

// TestDynamic: each boot of mode Dynamic is a trace, also one that the next bridge sees end: one that registers, one that fails, one that is given up.
func TestDynamic(t *testing.T) {
	p := &passes{told: newTold(t), dynamic: history.NewDynamic(nil)}
	at := powersave.Timeline{Requested: ms(0), Created: ms(30), Scheduled: ms(300)}
	pending := dynamic("dyn-2", powersave.PhasePending, powersave.Timeline{Requested: ms(100), Created: ms(140)})
	pending.Host = ""
	p.pass(500, nil, dynamic("dyn-0", powersave.PhaseStarting, at), dynamic("dyn-1", powersave.PhaseStarting, at), pending)
	registered := at
	registered.Running, registered.Registered = ms(900), ms(1500)
	p.pass(1600, nil, dynamic("dyn-0", powersave.PhaseRegistered, registered), dynamic("dyn-1", powersave.PhaseStarting, at), pending)
	p.restart()
	p.dynamic = history.NewDynamic(p.entries)
	require.Len(t, p.collector.Spans(), 1+4, "the boot that has ended")
	assert.Empty(t, p.open)
	p.pass(20_000, []history.Entry{
		{Time: ms(19_000), What: history.BootFailed, Node: "dyn-1", PodUID: "uid-dyn-1", Class: "image", Reason: "ErrImagePull"},
		{Time: ms(19_500), What: history.PodDeleted, Node: "dyn-2", PodUID: "uid-dyn-2", Reason: "the NodeSet backs off: image"},
		{Time: ms(19_600), What: history.BootFailed, Node: "dyn-3", NodeSet: "dyn", Class: "quota", Reason: "exceeded quota"},
	}, dynamic("dyn-0", powersave.PhaseRegistered, at))
	p.pass(30_000, nil)
	p.stop()
	golden.Compare(t, "testdata/dynamic.txt", p.collector.Text(noon))
	traced := map[string]string{}
	for _, s := range p.collector.Spans() {
		if s.Parent == "" {
			traced[s.Attributes["slurm.node.name"]] = s.Trace
		}
	}
	require.Len(t, traced, 4)
	assert.Equal(t, p.TraceID("uid-dyn-0"), traced["dyn-0"], "the pod's UID leads there")
}

// TestNothingIsKeptOfDynamic has many boots come and go, and one that takes long.
func TestNothingIsKeptOfDynamic(t *testing.T) {
	p := &passes{told: newTold(t), dynamic: history.NewDynamic(nil)}
	long := dynamic("long", powersave.PhaseStarting, powersave.Timeline{Requested: ms(0), Created: ms(0)})
	for i := range 100 {
		b := dynamic("dyn-0", powersave.PhaseRegistered, powersave.Timeline{Requested: ms(i * 60_000), Created: ms(i * 60_000), Registered: ms(i*60_000 + 1000)})
		b.UID = fmt.Sprint("uid-", i)
		p.pass(i*60_000+2000, nil, b, long)
	}
	long.Phase = powersave.PhaseRegistered
	p.pass(100*60_000, nil, long)
	p.stop()
	assert.Empty(t, p.past)
	assert.LessOrEqual(t, len(p.ended), 12)
	boots := map[string]int{}
	for _, s := range p.collector.Spans() {
		if s.Parent == "" {
			boots[s.Attributes["slurm.node.name"]+" "+s.Attributes["slurmtide.outcome"]]++
		}
	}
	assert.Equal(t, map[string]int{"dyn-0 registered": 100, "long registered": 1}, boots)
}
