package bridge

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
)

// What the engine is not told of is asked of those who are.
func TestExplainDynamic(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		engine := w.engine
		engine.Alone = true
		b, stop := w.startWith(t, dir, Config{
			Slurm: w, Kubernetes: w, Engine: engine,
			Others: func() []powersave.NodeSetCounts {
				return []powersave.NodeSetCounts{{Name: "dyn", Nodes: 10, Partitions: []string{"dyn"}}, {Name: "other", Partitions: []string{"other"}}}
			},
			OthersBoots: func() []powersave.Boot {
				return []powersave.Boot{{Node: "dyn-0", NodeSet: "dyn", Phase: powersave.PhaseRegistered}, {Node: "dyn-1", NodeSet: "dyn", Phase: powersave.PhasePending}, {Node: "o-1", NodeSet: "other"}}
			},
		})
		defer stop()
		pass(time.Second)
		w.mu.Lock()
		w.jobs = map[uint32]powersave.SlurmJob{8: {ID: 8, State: powersave.JobPending, Partition: "metal,dyn"}, 9: {ID: 9, State: powersave.JobRunning, Partition: "dyn"}}
		w.mu.Unlock()
		for s, want := range map[history.Subject]struct {
			boots   int
			sets    int
			dynamic bool
		}{
			{Node: "dyn-1"}:    {1, 1, true},
			{NodeSet: "dyn"}:   {2, 1, true},
			{NodeSet: "other"}: {1, 1, true},
			{NodeSet: "cpu"}:   {0, 1, false},
			{Node: "cpu-0"}:    {0, 0, false},
			{Job: 7}:           {0, 0, false},
			{Job: 8}:           {0, 1, true},
			{Job: 9}:           {0, 0, false},
		} {
			a := explain(t, b, s)
			assert.Len(t, a.Boots, want.boots, s)
			assert.Len(t, a.NodeSets, want.sets, s)
			assert.Equal(t, want.dynamic, a.Dynamic, s)
			if s.Job != 8 {
				assert.Empty(t, a.Making, s)
				continue
			}
			require.Len(t, a.Making, 1, "dyn-0 serves, and o-1 is of another NodeSet")
			assert.Equal(t, "dyn-1", a.Making[0].Node)
			assert.Equal(t, "metal,dyn", a.Slurm[0].Partition)
		}
	})
}

// What passes of the loop tell is kept, told and traced like the rest, once, whichever bridge of the spool sees it.
func TestHistoryOfDynamic(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		b, stop := w.startTold(t, dir)
		time.Sleep(time.Second)
		boot := powersave.Boot{Node: "dyn-0", NodeSet: "dyn", Phase: powersave.PhaseCreating, Times: powersave.Timeline{Requested: time.Now()}}
		pass := func(b *Bridge, phase powersave.Phase, said ...history.Entry) {
			boot.Phase, boot.UID = phase, "u"
			for range 2 {
				b.Passed(time.Now(), history.Pass{Boots: []powersave.Boot{boot}, Said: said})
				said = nil
				time.Sleep(time.Second)
			}
		}
		pass(b, powersave.PhasePending)
		pass(b, powersave.PhaseStarting)
		stop()
		b, stop = w.startTold(t, dir)
		time.Sleep(time.Second)
		pass(b, powersave.PhaseStarting)
		pass(b, powersave.PhaseRegistered)
		pass(b, powersave.PhaseRemoving, history.Entry{Time: time.Now(), What: history.PodDeleted, Node: "dyn-0", PodUID: "u", Reason: "drained: slurmtide: idle for 5m0s"})
		const up = "NodeMade PodCreated PodScheduled "
		s := history.Tell(explain(t, b, history.Subject{Node: "dyn-0"}))
		assert.Equal(t, up+"BridgeStarted NodeRegistered PodDeleted", told(s))
		stop()
		b, stop = w.startTold(t, dir)
		defer stop()
		time.Sleep(time.Second)
		for range 2 {
			b.Passed(time.Now(), history.Pass{NodeSets: []powersave.NodeSetCounts{{Name: "dyn", Breakers: []powersave.BreakerRecord{{
				Key: powersave.BreakerKey{NodeSet: "dyn"}, State: powersave.BreakerOpen, Class: powersave.TroubleQuota,
			}}}}})
		}
		s = history.Tell(explain(t, b, history.Subject{Node: "dyn-0"}))
		assert.Equal(t, up+"BridgeStarted NodeRegistered PodDeleted BridgeStarted PodGone", told(s))
		require.Len(t, s.Boots, 1)
		assert.Equal(t, history.Registered, s.Boots[0].Outcome)
		s = history.Tell(explain(t, b, history.Subject{NodeSet: "dyn"}))
		assert.Equal(t, "BridgeStarted BridgeStarted BridgeStarted Breaker", told(s))
		assert.Len(t, s.Boots, 1)
	})
}

// ear counts what it is told.
type ear struct{ heard atomic.Int64 }

func (e *ear) Add(entries ...history.Entry)  { e.heard.Add(int64(len(entries))) }
func (e *ear) Finished(time.Time, string)    {}
func (e *ear) TraceID(request string) string { return request }

// Without a history passes are traced, if somebody wants that, and without either nothing is kept of them.
func TestPassedWithoutHistory(t *testing.T) {
	for _, traced := range []*ear{nil, {}} {
		dir := t.TempDir()
		require.NoError(t, chmod700(dir))
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			c := Config{Slurm: w, Kubernetes: w, Engine: powersave.Config{Alone: true}}
			if traced != nil {
				c.Traces = traced
			}
			b, stop := w.startWith(t, dir, c)
			b.Passed(time.Now(), history.Pass{Boots: []powersave.Boot{{Node: "dyn-0", UID: "u", Phase: powersave.PhasePending}}})
			stop()
			if traced == nil {
				assert.Nil(t, b.dynamics)
				return
			}
			assert.EqualValues(t, 1, traced.heard.Load(), "the pod")
		})
	}
}
