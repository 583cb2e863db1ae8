package bridge

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
)

func TestJobIsGivenBackWhole(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.stuck = "cpu-1"
		w.jobs = map[uint32]powersave.SlurmJob{
			7: {ID: 7, State: powersave.JobRunning | powersave.JobConfiguring, AdminComment: "project 12; slurmtide: of long ago"},
		}
		registry := prometheus.NewRegistry()
		b, stop := w.startWith(t, dir, Config{Slurm: w, Kubernetes: w, Engine: powersave.Config{Alone: true}, Metrics: NewMetrics(registry)})
		defer stop()
		pass(time.Second)

		w.set(booting, "cpu-0", "cpu-1")
		gate := make(chan spool.GateReply, 1)
		go func() { gate <- b.Gate(t.Context(), spool.GateRequest{JobID: 7, Nodes: "cpu-[0-1]"}) }()
		submit(t, dir, spool.KindResume, "cpu-[0-1]", jobFile)
		b.Poked()
		began := time.Now()
		reply := <-gate
		assert.False(t, reply.Ready)
		assert.Equal(t, "capacity: Unschedulable", reply.Reason)
		assert.Less(t, time.Since(began), 15*time.Second)
		pass(5 * time.Second)

		w.look(func() {
			const told, forced = `job 7, admin comment "project 12; slurmtide: capacity: Unschedulable (attempt 1)"`, "power_down_force cpu-1 slurmtide: capacity: Unschedulable"
			assert.Less(t, slices.Index(w.log, told), slices.Index(w.log, forced), "a job that has ended takes no comment: %q", w.log)
			assert.Contains(t, w.log, told)
			assert.Contains(t, w.log, "power_down cpu-0 slurmtide: job 7 given back: cpu-1: capacity: Unschedulable", "the node that came up goes when no job is on it")
			assert.Contains(t, w.log, "job 7, begin 2000-01-01T00:01:12Z")
			assert.Contains(t, w.log, "drain cpu-[2-9] slurmtide: closed: capacity: Unschedulable; tried again at 00:01:12Z")
			assert.Equal(t, []string{"cpu cpu-1 BootFailed node cpu-1: capacity: Unschedulable (jobs given back: 7)"}, w.warnings)
		})
		assert.Equal(t, map[string]float64{"class=capacity nodeset=cpu": 1}, happened(t, registry, "slurmtide_boot_failures_total"))
		assert.Equal(t, map[string]float64{"class=capacity nodeset=cpu": 1}, happened(t, registry, "slurmtide_jobs_given_back_total"))
		assert.Equal(t, map[string]float64{"nodeset=cpu outcome=given_back": 1}, happened(t, registry, "slurmtide_gangs_total"))
		assert.Empty(t, happened(t, registry, "slurmtide_jobs_started_total"))
		assert.Equal(t, map[string]float64{"nodeset=cpu offering= state=open": 1}, happened(t, registry, "slurmtide_breaker_changes_total"))
		assert.Equal(t, map[string]float64{"class=capacity nodeset=cpu offering=": 1}, samples(t, registry, "slurmtide_breaker_open"))
		inHand := func() map[string]float64 { return samples(t, registry, "slurmtide_in_hand") }
		suspended := time.Now()
		submit(t, dir, spool.KindSuspend, "cpu-1", "")
		w.look(func() { w.slurmErr = errors.New("connection refused") }) // nothing is taken
		pass(5 * time.Second)
		assert.Equal(t, map[string]float64{"what=request": 1, "what=boot": 0, "what=power_down": 1}, inHand())
		oldest := samples(t, registry, "slurmtide_in_hand_oldest_timestamp_seconds")
		assert.InDelta(t, float64(suspended.Unix()), oldest["what=request"], 1)
		assert.InDelta(t, float64(suspended.Unix()), oldest["what=power_down"], 3)
		assert.NotContains(t, oldest, "what=boot")
		w.look(func() { w.slurmErr = nil })
		pass(time.Minute)
		assert.Equal(t, map[string]float64{"what=request": 0, "what=boot": 0, "what=power_down": 0}, inHand())
		assert.Empty(t, samples(t, registry, "slurmtide_in_hand_oldest_timestamp_seconds"))
		assert.Equal(t, 0, pending(t, b))
		w.look(func() { assert.NotContains(t, w.pods, "cpu-1") })
	})
}

// slurmctld gives a boot up at ResumeTimeout, and requeues the job: what has come to nothing is told to everybody all the same.
func TestJobIsRequeuedAtResumeTimeout(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.jobs = map[uint32]powersave.SlurmJob{
			7: {ID: 7, State: powersave.JobRunning | powersave.JobConfiguring, Restarts: 1, AdminComment: "slurmtide: capacity: x (attempt 1)"},
		}
		registry := prometheus.NewRegistry()
		b, stop := w.startWith(t, dir, Config{Slurm: w, Kubernetes: w, Engine: powersave.Config{Alone: true}, Metrics: NewMetrics(registry)})
		defer stop()
		pass(time.Second)
		w.set(booting, "cpu-0")
		w.set(booting|powersave.NodeNotResponding, "cpu-1") // which does not register
		submit(t, dir, spool.KindResume, "cpu-[0-1]", jobFile)
		b.Poked()
		pass(time.Minute)

		w.set(powersave.NodeDown|powersave.NodeCloud|powersave.NodePoweredDown, "cpu-1")
		w.set(powersave.NodeIdle|powersave.NodeCloud, "cpu-0")
		w.look(func() {
			w.reasons = map[string]string{"cpu-1": "ResumeTimeout reached"}
			j := w.jobs[7]
			j.State, j.Restarts = powersave.JobPending, 2
			w.jobs[7] = j
		})
		submit(t, dir, spool.KindResumeFail, "cpu-1", "")
		b.Poked()
		pass(5 * time.Second)
		w.look(func() {
			const why = "bootstrap: not up after ResumeTimeout: slurmd did not register"
			assert.Contains(t, w.log, `job 7, admin comment "slurmtide: `+why+` (attempt 2, 2 in a row in vain)"`)
			assert.Contains(t, w.log, "power_down cpu-0 slurmtide: job 7 given back: cpu-1: "+why)
			assert.Contains(t, w.log, "update of cpu-1 slurmtide: boot failed: slurmd did not register")
			assert.True(t, slices.ContainsFunc(w.log, func(s string) bool { return strings.HasPrefix(s, "job 7, begin ") }), "%s", w.log)
			assert.Equal(t, []string{"cpu cpu-1 BootFailed node cpu-1: " + why + " (jobs given back: 7)"}, w.warnings)
		})
		assert.Equal(t, map[string]float64{"class=bootstrap nodeset=cpu": 1}, happened(t, registry, "slurmtide_boot_failures_total"))
	})
}

// A drain that a person sets between the engine's read and the update that frees the name outlives that.
func TestDrainedBeforeItsNameIsFreed(t *testing.T) {
	w := newWorld()
	const drained = leaving | powersave.NodeDrain
	w.set(leaving, "cpu-0")
	w.set(drained, "cpu-1", "cpu-2")
	w.reasons = map[string]string{"cpu-1": "bad disk", "cpu-2": "slurmtide: host: h0 is cordoned"}
	b := New(Config{Slurm: w, Log: slog.New(slog.DiscardHandler)})
	for _, state := range []powersave.StateChange{powersave.StateResume, powersave.StateUndrain} {
		w.log = nil
		ours := powersave.NodeUpdate{Nodes: []string{"cpu-0", "cpu-2", "gone-0"}, State: state} // slurmctld itself says that it does not know a node
		kept := powersave.NodeUpdate{Nodes: []string{"cpu-1"}, State: state}
		all := powersave.NodeUpdate{Nodes: []string{"cpu-0", "cpu-1", "cpu-2", "gone-0"}, State: state}
		assert.Equal(t, []powersave.Event{
			powersave.NodesUpdated{Update: kept, Err: "somebody else has taken them out of use just now"}, powersave.NodesUpdated{Update: ours},
		}, b.update(t.Context(), all, nil))
		assert.Equal(t, []string{ours.String() + " "}, w.log)
		assert.Equal(t, []powersave.Event{powersave.NodesUpdated{Update: kept, Err: "somebody else has taken them out of use just now"}}, b.update(t.Context(), kept, nil))
		assert.Len(t, w.log, 1)
	}
	w.slurmErr = errors.New("slurmrestd is away")
	u := powersave.NodeUpdate{Nodes: []string{"cpu-0"}, State: powersave.StateResume}
	assert.Equal(t, []powersave.Event{powersave.NodesUpdated{Update: u, Err: "slurmrestd is away"}}, b.update(t.Context(), u, nil))
	assert.Len(t, w.log, 1, "nothing is put back unseen")
}

// What a person says of a node that ResumeTimeout has set DOWN, after the engine's read, is not written over: the node would be put back.
func TestSetDownBeforeItsReasonIsWritten(t *testing.T) {
	w := newWorld()
	const down = powersave.NodeDown | powersave.NodeCloud | powersave.NodePoweredDown
	w.set(down, "cpu-0", "cpu-1")
	w.set(powersave.NodeIdle|powersave.NodeCloud|powersave.NodePoweredDown, "cpu-2") // he has brought it back, and says why
	w.reasons = map[string]string{"cpu-0": "ResumeTimeout reached", "cpu-1": "bad disk", "cpu-2": "looked at by Ann"}
	b := New(Config{Slurm: w, Log: slog.New(slog.DiscardHandler)})
	all := powersave.NodeUpdate{Nodes: []string{"cpu-0", "cpu-1", "cpu-2"}, Reason: "slurmtide: boot failed: Unschedulable"}
	ours, kept := all, all
	ours.Nodes, kept.Nodes = []string{"cpu-0"}, []string{"cpu-1", "cpu-2"}
	assert.Equal(t, []powersave.Event{
		powersave.NodesUpdated{Update: kept, Err: "somebody else has taken them out of use just now"}, powersave.NodesUpdated{Update: ours},
	}, b.update(t.Context(), all, nil))
	assert.Equal(t, []string{ours.String() + " " + ours.Reason}, w.log)
}

// A NodeSet is closed: neither what a person has drained, nor what a job has got since the engine's read is taken out of use by us.
func TestDrainedBeforeItsNodeSetIsClosed(t *testing.T) {
	w := newWorld()
	const off = powersave.NodeIdle | powersave.NodeCloud | powersave.NodePoweredDown
	w.set(off, "cpu-0")
	w.set(off|powersave.NodeDrain, "cpu-1", "cpu-2")
	w.set(powersave.NodeAllocated|powersave.NodeCloud|powersave.NodePoweringUp, "cpu-3")
	w.reasons = map[string]string{"cpu-1": "bad disk", "cpu-2": "slurmtide: closed: capacity: Unschedulable"}
	b := New(Config{Slurm: w, Log: slog.New(slog.DiscardHandler)})
	all := powersave.NodeUpdate{Nodes: []string{"cpu-0", "cpu-1", "cpu-2", "cpu-3"}, State: powersave.StateDrain, Reason: "slurmtide: closed: quota: exceeded quota"}
	ours, kept := all, all
	ours.Nodes, kept.Nodes = []string{"cpu-0", "cpu-2"}, []string{"cpu-1", "cpu-3"}
	assert.Equal(t, []powersave.Event{
		powersave.NodesUpdated{Update: kept, Err: "somebody else has taken them out of use just now"}, powersave.NodesUpdated{Update: ours},
	}, b.update(t.Context(), all, nil))
	assert.Equal(t, []string{ours.String() + " " + ours.Reason}, w.log)
}

// A bridge that was killed before it held a job off finds it when it is back, and goes on counting.
func TestJobGivenBackBeforeRestartRests(t *testing.T) {
	const vain = "slurmtide: capacity: Unschedulable (attempt 3, 3 in a row in vain)"
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		now := time.Now()
		w.jobs = map[uint32]powersave.SlurmJob{
			7: {ID: 7, State: powersave.JobPending, Restarts: 3, AdminComment: vain, Submitted: now.Add(-10 * time.Second), Begin: now.Add(20 * time.Second)},
			8: {ID: 8, State: powersave.JobPending, Restarts: 3, AdminComment: vain, Submitted: now.Add(-10 * time.Second), Begin: now.Add(5 * time.Minute)},
			9: {ID: 9, State: powersave.JobPending},
			// Somebody wants it to start now.
			10: {ID: 10, State: powersave.JobPending, Restarts: 3, AdminComment: vain + " (rests until 2000-01-01T00:01:30Z)", Submitted: now.Add(-10 * time.Second), Begin: now},
		}
		_, stop := w.start(t, dir)
		defer stop()
		pass(10 * time.Second)
		w.look(func() {
			var begins []string
			for _, line := range w.log {
				if strings.Contains(line, "begin") {
					begins = append(begins, line)
				}
			}
			assert.Equal(t, []string{`job 7, admin comment "` + vain + ` (rests until 2000-01-01T00:01:35Z)", begin 2000-01-01T00:01:35Z`}, begins, "as long as after the third time, less the 10 s it has rested")
		})
	})
}

// What a job is that is to be held off says whether it rests, is to be asked for again, or has started anew.
func TestHoldJob(t *testing.T) {
	for name, c := range map[string]struct {
		state   powersave.JobState
		want    powersave.JobHeld
		updated bool
	}{
		"pending":             {powersave.JobPending, powersave.JobHeld{Job: 7}, true},
		"leaves its nodes":    {powersave.JobPending | powersave.JobCompleting, powersave.JobHeld{Job: 7}, true},
		"suspended":           {powersave.JobSuspended, powersave.JobHeld{Job: 7, Err: "job 7 is SUSPENDED"}, false},
		"waits for new nodes": {powersave.JobRunning | powersave.JobConfiguring, powersave.JobHeld{Job: 7, Again: true}, false},
		"runs again":          {powersave.JobRunning, powersave.JobHeld{Job: 7, Again: true}, false},
		"ended":               {powersave.JobCancelled, powersave.JobHeld{Job: 7}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.jobs = map[uint32]powersave.SlurmJob{7: {ID: 7, State: c.state}}
			held := New(Config{Slurm: w, Log: slog.New(slog.DiscardHandler)}).holdJob(t.Context(), powersave.HoldJob{Job: 7, Serial: 5, Delay: time.Minute})
			c.want.Serial = 5
			assert.Equal(t, c.want, held)
			assert.Equal(t, c.updated, len(w.log) > 0, "%s", w.log)
		})
	}
}

// All components of a het job are told, and the engine learns which they are.
func TestTellHetJob(t *testing.T) {
	w := newWorld()
	part := powersave.SlurmJob{State: powersave.JobRunning | powersave.JobConfiguring, Batch: true, HetJobID: 7, Restarts: 1}
	w.jobs = map[uint32]powersave.SlurmJob{}
	w.het = []uint32{8, 7}
	for i, id := range []uint32{7, 8} {
		part.ID, part.HetOffset, part.Nodes, part.AdminComment = id, i, []string{[]string{"cpu-0", "cpu-1"}[i]}, ""
		if id == 8 {
			part.AdminComment = "slurmtide: image: x (attempt 1)"
		}
		w.jobs[id] = part
	}
	b := New(Config{Slurm: w})
	told := b.tellJob(t.Context(), powersave.TellJob{Job: 8, Serial: 3, Reason: "slurmtide: capacity: y"})
	assert.Equal(t, powersave.JobTold{Job: 8, Serial: 3, Times: 2, Attempt: 2, Parts: []powersave.JobPart{{Job: 7, Nodes: []string{"cpu-0"}}, {Job: 8, Nodes: []string{"cpu-1"}}}}, told)
	assert.Equal(t, []string{
		`job 7, admin comment "slurmtide: capacity: y (attempt 2)"`,
		`job 8, admin comment "slurmtide: capacity: y (attempt 2, 2 in a row in vain)"`,
	}, w.log)
}

// A job that its record says to rest is not held off once more: somebody may have it start at once.
func TestHoldJobOnce(t *testing.T) {
	w := newWorld()
	w.jobs = map[uint32]powersave.SlurmJob{7: {ID: 7, State: powersave.JobPending, Restarts: 1, AdminComment: "slurmtide: image: x (attempt 1) (rests until 2000-01-01T00:01:30Z)"}}
	held := New(Config{Slurm: w, Log: slog.New(slog.DiscardHandler)}).holdJob(t.Context(), powersave.HoldJob{Job: 7, Serial: 5, Delay: time.Minute})
	assert.Equal(t, powersave.JobHeld{Job: 7, Serial: 5}, held)
	assert.Empty(t, w.log)
}
