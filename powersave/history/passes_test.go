package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slurmtide/slurmtide/powersave"
)

// passes feeds a Dynamic, at so many milliseconds after noon, with what is there.
type passes struct {
	*teller
	dynamic *Dynamic
	boots   map[string]powersave.Boot
	said    []Entry
	sets    []powersave.NodeSetCounts
}

func newPasses(t *testing.T) *passes {
	return &passes{teller: newTeller(t), dynamic: NewDynamic(nil), boots: map[string]powersave.Boot{}}
}

func (p *passes) pass(n int) {
	pass := Pass{Said: p.said, NodeSets: p.sets}
	for _, b := range p.boots {
		pass.Boots = append(pass.Boots, b)
	}
	slices.SortFunc(pass.Boots, func(a, b powersave.Boot) int { return strings.Compare(a.Node, b.Node) })
	p.entries = append(p.entries, p.dynamic.Pass(ms(n), pass)...)
	p.said = nil
}

// restart has the next bridge begin with what is in the file, and its planner find what there is.
func (p *passes) restart() {
	p.dynamic = NewDynamic(reread(p.t, p.entries))
	for node, b := range p.boots {
		if b.UID == "" {
			delete(p.boots, node)
			continue
		}
		b.Times = powersave.Timeline{Requested: b.Times.Created.Truncate(time.Second), Created: b.Times.Created.Truncate(time.Second)}
		p.boots[node] = b
	}
}

func reread(t require.TestingT, entries []Entry) (again []Entry) {
	for _, e := range entries {
		line, err := json.Marshal(e)
		require.NoError(t, err)
		var read Entry
		require.NoError(t, json.Unmarshal(line, &read))
		again = append(again, read)
	}
	return again
}

func (p *passes) make(n int, node, offering string) {
	p.boots[node] = powersave.Boot{Node: node, NodeSet: "dyn", Offering: offering, Phase: powersave.PhaseCreating, Times: powersave.Timeline{Requested: ms(n)}}
	p.pass(n)
}

// reach has a pod come so far, and the pass that shows it be some time later.
func (p *passes) reach(n int, node string, phase powersave.Phase) {
	b := p.boots[node]
	b.Phase = phase
	switch phase {
	case powersave.PhasePending:
		b.UID, b.Times.Created = "uid-"+node, ms(n)
	case powersave.PhaseStarting:
		b.Host, b.Times.Scheduled = "host-a", ms(n)
	case powersave.PhaseRunning:
		b.Times.Running = ms(n)
	case powersave.PhaseRegistered:
		b.Times.Registered = ms(n)
	default:
	}
	p.boots[node] = b
	p.pass(n + 200)
}

func (p *passes) boot(n int, node string) {
	p.make(n, node, "")
	p.reach(n+30, node, powersave.PhasePending)
	p.reach(n+300, node, powersave.PhaseStarting)
	p.reach(n+900, node, powersave.PhaseRunning)
	p.reach(n+1500, node, powersave.PhaseRegistered)
}

func (p *passes) say(n int, e Entry) {
	e.Time = ms(n)
	p.said = append(p.said, e)
}

// idle has a node go that has been idle.
func (p *passes) idle(n int, node string) {
	p.say(n, Entry{What: NodesUpdated, Node: node, State: string(powersave.StateDrain), Reason: "slurmtide: idle for 5m0s"})
	p.pass(n + 200)
	p.say(n+600, Entry{What: PodDeleted, Node: node, NodeSet: "dyn", PodUID: "uid-" + node, Reason: "drained: slurmtide: idle for 5m0s"})
	p.reach(n+700, node, powersave.PhaseRemoving)
	delete(p.boots, node)
	p.pass(n + 2000)
}

// What has become of a node stays to be told when it is gone.
func TestDynamicNodeUpAndDown(t *testing.T) {
	p := newPasses(t)
	p.boot(0, "dyn-0")
	p.idle(310_000, "dyn-0")
	p.restart()
	p.pass(400_000)
	p.tell(Answer{Subject: Subject{Node: "dyn-0"}, Time: ms(500_000), SlurmMissing: true})
	assert.Empty(t, p.dynamic.pods)
}

// One node serves and goes, one cannot boot, one is given up with it, one is refused before there is a pod, one boots.
func TestDynamicBoots(t *testing.T) {
	p := newPasses(t)
	p.boot(0, "dyn-0")
	p.make(5_000, "dyn-1", "spot")
	p.reach(5_040, "dyn-1", powersave.PhasePending)
	p.make(5_300, "dyn-2", "")
	p.reach(5_340, "dyn-2", powersave.PhasePending)
	short := powersave.TroubleCapacity
	p.say(16_000, Entry{What: BootFailed, Node: "dyn-1", PodUID: "uid-dyn-1", Class: string(short), Reason: "Unschedulable: 0/5 nodes are available"})
	p.say(16_020, Entry{What: PodDeleted, Node: "dyn-1", PodUID: "uid-dyn-1", Reason: "boot failed: capacity: Unschedulable: 0/5 nodes are available"})
	p.say(16_040, Entry{What: PodDeleted, Node: "dyn-2", PodUID: "uid-dyn-2", Reason: "the NodeSet backs off: capacity"})
	p.sets = []powersave.NodeSetCounts{{Name: "dyn", Breakers: []powersave.BreakerRecord{{
		Key: powersave.BreakerKey{NodeSet: "dyn"}, State: powersave.BreakerOpen, Class: short, Reason: "0/5 nodes are available", Until: ms(76_000), Tries: 1,
	}}}}
	p.pass(16_100)
	delete(p.boots, "dyn-1")
	delete(p.boots, "dyn-2")
	p.pass(17_000)
	p.make(80_000, "dyn-3", "")
	delete(p.boots, "dyn-3")
	p.say(80_100, Entry{What: BootFailed, Node: "dyn-3", NodeSet: "dyn", Class: "quota", Reason: "exceeded quota"})
	p.pass(80_500)
	p.make(90_000, "dyn-4", "")
	p.reach(90_040, "dyn-4", powersave.PhasePending)
	p.idle(310_000, "dyn-0")
	p.tell(Answer{Subject: Subject{NodeSet: "dyn"}, Time: ms(400_000)})

	a := Answer{Subject: Subject{Node: "dyn-1"}, Time: ms(400_000)}
	for _, e := range p.entries {
		if e.about(a.Subject) {
			a.Entries = append(a.Entries, e)
		}
	}
	s := Tell(a)
	assert.Equal(t, "capacity: Unschedulable: 0/5 nodes are available", s.Why)
	require.Len(t, s.Boots, 1)
	assert.Equal(t, Failed, s.Boots[0].Outcome)
	outcomes := map[string]Outcome{}
	for _, b := range Boots(reread(t, p.entries)) {
		outcomes[b.Node] = b.Outcome
	}
	assert.Equal(t, map[string]Outcome{"dyn-0": Registered, "dyn-1": Failed, "dyn-2": GivenUp, "dyn-3": Failed, "dyn-4": Booting}, outcomes)
}

// Kubernetes may say that a container runs after slurmctld has said that its slurmd has registered.
func TestDynamicContainerToldLate(t *testing.T) {
	p := newPasses(t)
	p.make(0, "dyn-0", "")
	p.reach(30, "dyn-0", powersave.PhasePending)
	p.reach(300, "dyn-0", powersave.PhaseStarting)
	p.reach(800, "dyn-0", powersave.PhaseRegistered)
	b := p.boots["dyn-0"]
	b.Times.Running = ms(1300)
	p.boots["dyn-0"] = b
	p.pass(1400)
	all := Boots(reread(t, p.entries))
	require.Len(t, all, 1)
	assert.Equal(t, []time.Time{ms(800), ms(1300)}, []time.Time{all[0].Registered.In(time.UTC), all[0].Started.In(time.UTC)})
}

// Of nodes that boot when a bridge comes to lead it tells from there on, of those that serve by then that they go.
func TestDynamicThatAnotherBridgeMade(t *testing.T) {
	p := newPasses(t)
	at := powersave.Timeline{Requested: ms(0), Created: ms(0)}
	p.boots["dyn-0"] = powersave.Boot{Node: "dyn-0", NodeSet: "dyn", UID: "u0", Host: "h", Phase: powersave.PhaseRegistered, Times: at}
	p.boots["dyn-1"] = powersave.Boot{Node: "dyn-1", NodeSet: "dyn", UID: "u1", Host: "h", Phase: powersave.PhaseStarting, Times: at}
	p.boots["dyn-2"] = powersave.Boot{Node: "dyn-2", NodeSet: "dyn", UID: "u2", Host: "h", Phase: powersave.PhaseRemoving, Times: at}
	whats := func() (list []string) {
		for _, e := range p.entries {
			list = append(list, fmt.Sprintf("%s %s %d", e.Node, e.What, e.Time.Sub(noon).Milliseconds()))
		}
		p.entries = nil
		return list
	}
	p.pass(5000)
	p.pass(5500)
	assert.Equal(t, []string{"dyn-1 PodCreated 0", "dyn-1 PodScheduled 5000"}, whats())
	clear(p.boots)
	p.pass(6000)
	assert.Equal(t, []string{"dyn-0 PodGone 6000", "dyn-1 PodGone 6000", "dyn-2 PodGone 6000"}, whats())
}

// A file of mode Cloud, or of a version before, says nothing of pods of mode Dynamic; and a breaker that the next bridge finds open is told of once.
func TestDynamicAmongOthers(t *testing.T) {
	cloud := twoNodes(t)
	d := NewDynamic(reread(t, cloud.entries))
	assert.Empty(t, d.pods)
	open := Pass{NodeSets: []powersave.NodeSetCounts{{Name: "dyn", Breakers: []powersave.BreakerRecord{{
		Key: powersave.BreakerKey{NodeSet: "dyn"}, State: powersave.BreakerOpen, Class: powersave.TroubleQuota, Until: ms(60_000),
	}}}}}
	entries := d.Pass(ms(0), open)
	entries = append(entries, d.Pass(ms(10), open)...)
	require.Len(t, entries, 1)
	entries = append(entries, NewDynamic(entries).Pass(ms(20), open)...)
	require.Len(t, entries, 2)
	open.NodeSets[0].Breakers[0].Until = ms(120_000)
	entries = append(entries, d.Pass(ms(60_000), open)...)
	s := Tell(Answer{Subject: Subject{NodeSet: "dyn"}, Found: Found{Entries: reread(t, entries)}, Time: ms(70_000)})
	assert.Len(t, s.Steps, 2)
}

// Of a node that has been up for long the file may have lost the beginning: that is not told anew.
func TestDynamicFileBeginsLater(t *testing.T) {
	p := newPasses(t)
	p.boot(0, "dyn-0")
	n := len(p.entries)
	for from := range p.entries {
		again := NewDynamic(p.entries[from:])
		b := p.boots["dyn-0"]
		b.Times = powersave.Timeline{Requested: ms(0), Created: ms(0)}
		assert.Empty(t, again.Pass(ms(9000), Pass{Boots: []powersave.Boot{b}}), "%d of %d entries", n-from, n)
	}
}

// However often passes come and bridges are started anew, each thing is told once, in order, and nothing is kept of pods that have gone. What each bridge has had time
// to tell is told as if there had been but one.
func TestDynamicTellsOnce(t *testing.T) {
	order := []powersave.Phase{
		powersave.PhaseCreating, powersave.PhasePending, powersave.PhaseStarting, powersave.PhaseRunning, powersave.PhaseRegistered, powersave.PhaseRemoving,
	}
	rapid.Check(t, func(rt *rapid.T) {
		killed := rapid.Bool().Draw(rt, "killed") // bridges end before they have told of what they have seen last
		p, plain := newPasses(t), newPasses(t)
		both := []*passes{p, plain}
		told := map[string]time.Time{} // by pod, when it was seen last
		n := 0
		advance := func(node string) {
			n += 1000
			b, there := p.boots[node]
			at := slices.Index(order, b.Phase)
			uid := b.UID
			if at == 0 {
				uid = fmt.Sprintf("%s-%d", node, n)
			}
			for _, p := range both {
				b := p.boots[node]
				switch {
				case !there:
					p.boots[node] = powersave.Boot{Node: node, NodeSet: "dyn", Phase: order[0], Times: powersave.Timeline{Requested: ms(n)}}
					continue
				case at == len(order)-1:
					delete(p.boots, node)
					continue
				}
				b.UID, b.Phase = uid, order[at+1]
				switch b.Phase {
				case powersave.PhasePending:
					b.Times.Created = ms(n)
				case powersave.PhaseStarting:
					b.Times.Scheduled, b.Host = ms(n), "host-a"
				case powersave.PhaseRunning:
					b.Times.Running = ms(n)
				case powersave.PhaseRegistered:
					b.Times.Registered = ms(n)
				default:
					p.say(n, Entry{What: PodDeleted, Node: node, PodUID: uid, Reason: "drained: slurmtide: idle for 5m0s"})
				}
				p.boots[node] = b
			}
			told[uid] = ms(n)
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			advance(rapid.SampledFrom([]string{"dyn-0", "dyn-1", "dyn-2"}).Draw(rt, "node"))
			if dies := rapid.IntRange(0, 3).Draw(rt, "restart") == 0; dies {
				if !killed {
					p.pass(n)
				}
				p.said = nil
				p.restart()
			}
			for range rapid.IntRange(1, 3).Draw(rt, "passes") {
				p.pass(n)
			}
			plain.pass(n)
			for node, b := range plain.boots { // a pod that was asked for is seen by the next bridge, or is not made
				if _, still := p.boots[node]; !still && b.UID == "" {
					delete(plain.boots, node)
				}
			}
		}
		for len(p.boots) > 0 {
			for _, node := range []string{"dyn-0", "dyn-1", "dyn-2"} {
				if _, there := p.boots[node]; there {
					advance(node)
				}
			}
			p.pass(n)
			plain.pass(n)
		}
		require.Empty(rt, p.dynamic.pods, "bounded")
		require.Empty(rt, p.dynamic.making, "bounded")
		once := map[string]bool{}
		last := map[string]int{}
		ranks := []What{PodCreated, PodScheduled, ContainerStarted, NodeRegistered, PodDeleted, PodGone}
		for _, e := range p.entries {
			id := string(e.What) + " " + e.PodUID
			require.False(rt, once[id], id)
			once[id] = true
			require.Less(rt, last[e.PodUID], slices.Index(ranks, e.What)+1, id)
			last[e.PodUID] = slices.Index(ranks, e.What) + 1
		}
		for uid := range told {
			require.True(rt, uid == "" || once["PodGone "+uid], uid)
		}
		if !killed {
			require.Equal(rt, reread(rt, plain.entries), reread(rt, p.entries))
		}
	})
}
