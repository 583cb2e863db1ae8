package bridge

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/powersave/spool"
)

// startTold is start for a bridge that keeps a history.
func (w *world) startTold(t *testing.T, dir string) (b *Bridge, stop func()) {
	t.Helper()
	store := history.NewStore(dir, slog.New(slog.DiscardHandler), nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- store.Run(ctx) }()
	b, stopBridge := w.startWith(t, dir, Config{Slurm: w, Kubernetes: w, Engine: powersave.Config{Alone: true}, History: store, Version: "v1"})
	return b, func() {
		stopBridge()
		cancel()
		require.NoError(t, <-done)
	}
}

func explain(t *testing.T, b *Bridge, s history.Subject) history.Answer {
	t.Helper()
	question, err := json.Marshal(s)
	require.NoError(t, err)
	raw, err := b.Explain(t.Context(), question)
	require.NoError(t, err)
	var a history.Answer
	require.NoError(t, json.Unmarshal(raw, &a))
	return a
}

// told names the steps of a story. What the engine says beside comes at the same time, in any order.
func told(s history.Story) string {
	var whats []string
	for _, step := range s.Steps {
		if step.What != history.Reported {
			whats = append(whats, string(step.What))
		}
	}
	return strings.Join(whats, " ")
}

// TestHistoryOfAJob has a job run, its nodes go, and the bridge end; each tells its story after the next restart, too.
func TestHistoryOfAJob(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.jobs = map[uint32]powersave.SlurmJob{7: {ID: 7, State: powersave.JobRunning, Submitted: time.Now(), Begin: time.Now(), Nodes: []string{"cpu-0", "cpu-1"}}}
		b, stop := w.startTold(t, dir)
		pass(time.Second)
		w.set(booting, "cpu-0", "cpu-1")
		gate := make(chan spool.GateReply, 1)
		go func() { gate <- b.Gate(t.Context(), spool.GateRequest{JobID: 7, Nodes: "cpu-[0-1]"}) }()
		synctest.Wait()
		pass(300 * time.Millisecond)
		submit(t, dir, spool.KindResume, "cpu-[0-1]", jobFile)
		b.Poked()
		pass(500 * time.Millisecond)
		a := explain(t, b, history.Subject{Job: 7})
		assert.Len(t, a.Boots, 2, "in flight")
		assert.Len(t, explain(t, b, history.Subject{Node: "cpu-0"}).Boots, 1)
		assert.Len(t, explain(t, b, history.Subject{NodeSet: "cpu"}).Boots, 2)
		assert.True(t, (<-gate).Ready)
		pass(5 * time.Second)
		w.look(func() { delete(w.jobs, 7) })
		w.set(leaving, "cpu-0", "cpu-1")
		submit(t, dir, spool.KindSuspend, "cpu-[0-1]", "")
		pass(5 * time.Second)
		stop()

		b, stop = w.startTold(t, dir)
		defer stop()
		pass(time.Second)
		const booted = "GateWaits ProgramCalled RequestAccepted PodCreated PodScheduled ContainerStarted NodeRegistered "
		s := history.Tell(explain(t, b, history.Subject{Job: 7}))
		assert.Equal(t, "Submitted "+booted+"GateOpened Running", told(s))
		require.Len(t, s.Boots, 2)
		assert.Equal(t, time.Second, s.Boots[0].Started.Sub(s.Boots[0].Created))
		s = history.Tell(explain(t, b, history.Subject{Node: "cpu-1"}))
		assert.Equal(t, booted+"ProgramCalled RequestAccepted PodDeleted PodGone NodesUpdated", told(s))
		assert.Equal(t, []string{"Slurm shows node cpu-1 as IDLE+CLOUD+POWERED_DOWN"}, s.Now)
		require.Len(t, s.Boots, 1)
		assert.Equal(t, history.Registered, s.Boots[0].Outcome)
		s = history.Tell(explain(t, b, history.Subject{NodeSet: "cpu"}))
		assert.Equal(t, "BridgeStarted BridgeStarted", told(s))
		assert.Len(t, s.Boots, 2)
		for _, s := range []history.Subject{{Job: 8}, {Node: "cpu-77"}, {NodeSet: "gpu"}} {
			a := explain(t, b, s)
			assert.False(t, a.Known(), s)
		}
		_, err := b.Explain(t.Context(), json.RawMessage(`[`))
		require.ErrorContains(t, err, "reading what is asked for")
	})
}

func TestHistoryOfAJobGivenBack(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.stuck = "cpu-1"
		w.jobs = map[uint32]powersave.SlurmJob{7: {ID: 7, State: powersave.JobRunning | powersave.JobConfiguring, Submitted: time.Now()}}
		b, stop := w.startTold(t, dir)
		defer stop()
		pass(time.Second)
		w.set(booting, "cpu-0", "cpu-1")
		go b.Gate(t.Context(), spool.GateRequest{JobID: 7, Nodes: "cpu-[0-1]"})
		synctest.Wait()
		submit(t, dir, spool.KindResume, "cpu-[0-1]", jobFile)
		b.Poked()
		pass(20 * time.Second)
		w.look(func() { delete(w.jobs, 7) }) // what is known of its submission is from before it was given back
		a := explain(t, b, history.Subject{Job: 7})
		s := history.Tell(a)
		assert.Equal(t, "capacity: Unschedulable", s.Why)
		require.NotEmpty(t, s.Next)
		assert.Contains(t, s.Next[0], "Slurm may start it again at 2000-01-01T00:01:12Z")
		assert.Contains(t, s.Do, "add hosts")
		assert.Equal(t, "Submitted GateWaits ProgramCalled RequestAccepted PodCreated PodScheduled ContainerStarted NodeRegistered "+
			"BootFailed JobGivenBack GateGivenUp NodesUpdated JobRests", told(s))
		require.Len(t, s.Boots, 2)
		assert.Equal(t, history.Failed, s.Boots[1].Outcome)
		require.Len(t, a.NodeSets, 1)
		assert.Equal(t, "cpu", a.NodeSets[0].Name)
		assert.Contains(t, told(history.Tell(explain(t, b, history.Subject{NodeSet: "cpu"}))), " Breaker")
	})
}

// TestHistoryOfJustNow has nobody write it before it is asked for.
func TestHistoryOfJustNow(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		b, stop := w.startWith(t, dir, Config{Slurm: w, Kubernetes: w, History: history.NewStore(dir, slog.New(slog.DiscardHandler), nil)})
		defer stop()
		submit(t, dir, spool.KindResume, "cpu-0", "")
		b.Poked()
		synctest.Wait()
		assert.Contains(t, told(history.Tell(explain(t, b, history.Subject{Node: "cpu-0"}))), "RequestAccepted")
	})
}

// TestHistoryIsNeverInTheWay has a spool on which no history can be kept.
func TestHistoryIsNeverInTheWay(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "history.jsonl"), 0o700))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		b, stop := w.startTold(t, dir)
		defer stop()
		w.set(booting, "cpu-0", "cpu-1")
		submit(t, dir, spool.KindResume, "cpu-[0-1]", jobFile)
		b.Poked()
		pass(5 * time.Second)
		assert.Equal(t, 0, pending(t, b))
		assert.Empty(t, explain(t, b, history.Subject{Job: 7}).Entries)
	})
}
