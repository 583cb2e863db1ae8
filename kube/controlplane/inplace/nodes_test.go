package inplace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (s *slurm) Nodes(ctx context.Context) ([]Node, error) {
	if _, err := s.BootTime(ctx); err != nil {
		return nil, err
	}
	s.Lock()
	defer s.Unlock()
	s.listed++
	if s.dumb {
		return nil, errors.New("it does not say")
	}
	return slices.Clone(s.nodes), nil
}

// send is what follows when slurmctld has read its files: who answers starts anew.
func (s *slurm) send() {
	for i, n := range s.nodes {
		if !n.off() && !n.is("NOT_RESPONDING") && !s.lost {
			s.nodes[i].Start = time.Now().Truncate(time.Second)
		}
	}
}

// node changes one.
func (s *slurm) node(name string, change func(*Node)) {
	s.Lock()
	defer s.Unlock()
	change(&s.nodes[slices.IndexFunc(s.nodes, func(n Node) bool { return n.Name == name })])
}

func (s *slurm) times() (asked, listed int) {
	s.Lock()
	defer s.Unlock()
	return s.asked, s.listed
}

// up are nodes whose slurmd was started a minute ago.
func up(names ...string) (nodes []Node) {
	at := time.Now().Add(-time.Minute).Truncate(time.Second)
	for _, name := range names {
		nodes = append(nodes, Node{Name: name, State: "IDLE+CLOUD", Boot: at, Start: at})
	}
	return nodes
}

func TestWhoHasNotReadIt(t *testing.T) {
	since := time.Date(2026, 5, 1, 9, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return since.Add(time.Duration(seconds) * time.Second) }
	booted := map[string]bool{} // it was not up before
	was := map[string]bool{"cpu-0": true}
	tests := map[string]struct {
		state  string
		boot   time.Time
		start  time.Time
		up     map[string]bool
		asked  time.Time
		late   bool
		behind bool
		silent bool
		open   bool
	}{
		"started since":                    {state: "IDLE+CLOUD", boot: at(-99), start: at(0), up: was},
		"started before":                   {state: "ALLOCATED+CLOUD", boot: at(-99), start: at(-1), up: was, behind: true},
		"started since, unknown before":    {state: "IDLE+CLOUD", boot: at(-99), start: at(1)},
		"not heard of since":               {state: "IDLE+CLOUD", up: was, behind: true, silent: true},
		"does not answer":                  {state: "MIXED+CLOUD+NOT_RESPONDING", boot: at(-99), start: at(-50), up: was, behind: true, silent: true},
		"answers no more, but has it":      {state: "IDLE+CLOUD+NOT_RESPONDING", boot: at(-99), start: at(3), up: was},
		"drained":                          {state: "IDLE+CLOUD+DRAIN", boot: at(-99), start: at(-1), up: was, behind: true},
		"down and silent":                  {state: "DOWN+CLOUD+NOT_RESPONDING", boot: at(-99), start: at(-1), up: was, open: true},
		"down and not heard of":            {state: "DOWN+CLOUD", up: was, open: true},
		"down and answers":                 {state: "DOWN+CLOUD", boot: at(-99), start: at(-1), up: was, behind: true},
		"powered down":                     {state: "IDLE+CLOUD+POWERED_DOWN", start: at(-1), up: was},
		"powering down":                    {state: "IDLE+CLOUD+POWERING_DOWN", start: at(-1), up: was},
		"to be powered down":               {state: "IDLE+CLOUD+POWER_DOWN", start: at(-1), up: was, behind: true},
		"boots":                            {state: "ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP", start: at(-1), up: booted, open: true},
		"boots for long":                   {state: "ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP", up: booted, late: true},
		"boots, unknown before":            {state: "ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP"},
		"booted meanwhile":                 {state: "IDLE+CLOUD", boot: at(1), start: at(2), up: booted, behind: true},
		"booted later":                     {state: "IDLE+CLOUD", boot: at(2), start: at(2), up: booted},
		"booted meanwhile, and sent anew":  {state: "IDLE+CLOUD", boot: at(1), start: at(40), up: booted, asked: at(40)},
		"booted meanwhile, sent in vain":   {state: "IDLE+CLOUD", boot: at(1), start: at(2), up: booted, asked: at(40), behind: true},
		"sent anew, its clock 5 s behind":  {state: "IDLE+CLOUD", boot: at(1), start: at(35), up: booted, asked: at(40)},
		"of somebody else, never heard of": {state: "UNKNOWN", up: was, behind: true, silent: true},
		"for later":                        {state: "FUTURE"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := spread{since: since, up: test.up, asked: test.asked, began: since}
			now := at(50)
			if test.late {
				now = at(61)
			}
			behind, silent, open := s.unread(now, []Node{{Name: "cpu-0", State: test.state, Boot: test.boot, Start: test.start}})
			assert.Equal(t, test.behind, len(behind) > 0, "behind")
			assert.Equal(t, test.silent, len(silent) > 0, "silent")
			assert.Equal(t, test.open, open, "open")
		})
	}
}

func TestChangeIsWaitedForOnNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want("one")
		defer w.start()()
		wait(time.Second)
		w.slurm.Lock()
		w.slurm.nodes, w.slurm.lost = up("cpu-0", "cpu-1", "cpu-2"), true
		w.slurm.Unlock()
		w.slurm.node("cpu-2", func(n *Node) { n.State = "IDLE+CLOUD+POWERED_DOWN" })

		w.want("two")
		wait(5 * time.Second)
		want := Report{InForce: Hash(conf("two")), Behind: "cpu-[0-1]"}
		assert.Equal(t, want, w.last())
		for _, r := range w.reports() {
			assert.False(t, r.InForce == want.InForce && r.Behind == "", "never without the nodes")
		}
		w.slurm.node("cpu-1", func(n *Node) { n.Start = time.Now() })
		wait(5 * time.Second)
		want.Behind = "cpu-0"
		assert.Equal(t, want, w.last())
		w.slurm.node("cpu-0", func(n *Node) { n.Start = time.Now() })
		wait(5 * time.Second)
		want.Behind = ""
		assert.Equal(t, want, w.last())
		asked, listed := w.slurm.times()
		assert.Equal(t, 1, asked)
		wait(10 * time.Minute)
		_, now := w.slurm.times()
		assert.Equal(t, listed, now, "at rest nobody is asked")
	})
}

// slurmctld sends its files once: who did not get them then would go on without for ever.
func TestNodesThatMissedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want("one")
		stop := w.start()
		wait(time.Second)
		w.slurm.Lock()
		w.slurm.nodes, w.slurm.lost = up("cpu-0", "cpu-1"), true
		w.slurm.Unlock()
		w.want("two")
		wait(20 * time.Second)
		w.slurm.Lock()
		w.slurm.lost = false
		w.slurm.Unlock()
		assert.Equal(t, "cpu-[0-1]", w.last().Behind)
		w.slurm.node("cpu-1", func(n *Node) { n.State = "IDLE+CLOUD+NOT_RESPONDING" })
		wait(30 * time.Second)
		want := Report{InForce: Hash(conf("two")), Behind: "cpu-1", Silent: "cpu-1"}
		assert.Equal(t, want, w.last())
		wait(time.Minute)
		want.Late = true
		assert.Equal(t, want, w.last())
		wait(10 * time.Minute)
		asked, _ := w.slurm.times()
		assert.Equal(t, 2, asked, "once more, and not for ever")

		// slurmctld gives it up, but it may come back.
		w.slurm.node("cpu-1", func(n *Node) { n.State = "DOWN+CLOUD+NOT_RESPONDING" })
		wait(time.Minute)
		assert.Equal(t, Report{InForce: Hash(conf("two"))}, w.last())
		w.slurm.node("cpu-1", func(n *Node) { n.State = "IDLE+CLOUD" })
		wait(time.Minute)
		assert.Equal(t, "cpu-1", w.last().Behind)

		// Another pod, and slurmctld, know since when.
		stop()
		stop = w.newPod()
		defer func() { stop() }()
		wait(3 * time.Second)
		assert.Equal(t, "cpu-1", w.last().Behind, "cpu-0 has had it since")
		wait(time.Minute)
		assert.Equal(t, Report{InForce: Hash(conf("two"))}, w.last(), "it got it with the next ask")
	})
}

// Nothing is gained by sending it again to who does not answer.
func TestNodesThatAreSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want("one")
		defer w.start()()
		wait(time.Second)
		w.slurm.Lock()
		w.slurm.nodes = up("cpu-0", "cpu-1")
		w.slurm.Unlock()
		w.slurm.node("cpu-1", func(n *Node) { n.State = "IDLE+CLOUD+NOT_RESPONDING" })
		w.want("two")
		wait(5 * time.Minute)
		assert.Equal(t, Report{InForce: Hash(conf("two")), Behind: "cpu-1", Silent: "cpu-1", Late: true}, w.last())
		asked, _ := w.slurm.times()
		assert.Equal(t, 1, asked)
	})
}

// A node that boots while slurmctld reads may have fetched what was there before.
func TestNodesThatBootMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want("one")
		defer w.start()()
		wait(time.Second)
		w.slurm.Lock()
		w.slurm.nodes = up("cpu-0", "cpu-1")
		w.slurm.Unlock()
		w.slurm.node("cpu-1", func(n *Node) { n.State = "ALLOCATED+CLOUD+POWERING_UP" })
		w.want("two")
		wait(3 * time.Second)
		assert.Equal(t, Report{InForce: Hash(conf("two"))}, w.last(), "nobody waits for what boots")
		w.slurm.node("cpu-1", func(n *Node) { n.State, n.Start = "ALLOCATED+CLOUD", time.Now() })
		wait(3 * time.Second)
		assert.Equal(t, "cpu-1", w.last().Behind)
		wait(askForNodes + 20*time.Second)
		assert.Equal(t, Report{InForce: Hash(conf("two"))}, w.last())
		asked, _ := w.slurm.times()
		assert.Equal(t, 2, asked)
	})
}

// Another pod with the same configuration has nothing to look at, and one with another one does.
func TestNodesAndAnotherPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want("one")
		stop := w.start()
		wait(time.Second)
		w.slurm.Lock()
		w.slurm.nodes = up("cpu-0")
		w.slurm.lost = true // a slurmctld that starts sends nothing
		w.slurm.Unlock()
		stop()
		w.told = nil
		stop = w.newPod()
		wait(5 * time.Second)
		assert.Equal(t, []Report{{InForce: Hash(conf("one"))}}, w.reports())
		stop()
		w.want("two")
		w.told = nil
		stop = w.newPod()
		wait(5 * time.Second)
		assert.Equal(t, []Report{{InForce: Hash(conf("two")), Behind: "cpu-0"}}, w.reports())
		stop()

		// Files that were in place for a moment may have come to nodes: what was noted of those before them does not hold.
		w.slurm.Lock()
		w.slurm.nodes = nil
		w.slurm.Unlock()
		w.restart()
		stop = w.run()
		wait(5 * time.Second)
		assert.Equal(t, Report{InForce: Hash(conf("two"))}, w.last())
		stop()
		w.slurm.Lock()
		w.slurm.nodes = up("cpu-0")
		w.slurm.Unlock()
		w.want("one")
		w.restart()
		require.NoError(t, w.Init(t.Context()))
		w.want("two")
		w.told = nil
		stop = w.newPod()
		wait(5 * time.Second)
		assert.Equal(t, []Report{{InForce: Hash(conf("two")), Behind: "cpu-0"}}, w.reports())
		stop()

		// What is noted may be lost, or that it cannot be noted.
		require.NoError(t, os.Remove(filepath.Join(w.Kept, nodesFile)))
		require.NoError(t, os.Mkdir(filepath.Join(w.Kept, nodesFile), 0o700))
		w.restart()
		stop = w.run()
		wait(5 * time.Second)
		assert.Contains(t, w.last().NodesError, "reading which nodes have the configuration")
		require.NoError(t, os.Remove(filepath.Join(w.Kept, nodesFile)))
		wait(10 * time.Second)
		assert.Equal(t, Report{InForce: Hash(conf("two")), Behind: "cpu-0"}, w.last())
		stop()
	})
}

func TestNodesIn(t *testing.T) {
	const at = "2026-05-01T09:00:0"
	nodes, err := nodesIn("NodeName=cpu-0 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 NodeAddr=10.1.0.7 NodeHostName=cpu-0 Version=26.05.3 OS=Linux 6.1.0 #1 SMP  RealMemory=900 " +
		"State=IDLE+CLOUD ThreadsPerCore=1 Partitions=cpu  BootTime=" + at + "1 SlurmdStartTime=" + at + "2 LastBusyTime=" + at + "3 Reason=State=DOWN SlurmdStartTime=None [root@x] Comment= BootTime=None\n" +
		"NodeName=cpu-1 State=IDLE+CLOUD+POWERED_DOWN BootTime=None SlurmdStartTime=None LastBusyTime=Unknown\n")
	require.NoError(t, err)
	second := time.Date(2026, 5, 1, 9, 0, 0, 0, time.UTC)
	assert.Equal(t, []Node{
		{Name: "cpu-0", State: "IDLE+CLOUD", Boot: second.Add(time.Second), Start: second.Add(2 * time.Second)},
		{Name: "cpu-1", State: "IDLE+CLOUD+POWERED_DOWN"},
	}, nodes)
	nodes, err = nodesIn("No nodes in the system\n")
	require.NoError(t, err)
	assert.Empty(t, nodes)
	for _, bad := range []string{"NodeName=a State=IDLE BootTime=None", "NodeName=a BootTime=None SlurmdStartTime=None", "NodeName=a State=IDLE BootTime=soon SlurmdStartTime=None"} {
		_, err := nodesIn(bad)
		require.ErrorContains(t, err, "reading what scontrol tells of node a")
	}
}

func TestNames(t *testing.T) {
	var all []string
	for i := range maxNodes + 7 {
		all = append(all, "cpu-"+string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
	assert.Contains(t, names(all), " and 7 more")
	assert.Equal(t, "cpu-[1-2]", names([]string{"cpu-1", "cpu-2"}))
}
