package bridge

import (
	"slices"
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
			const told, forced = `job 7, admin comment "project 12; slurmtide: capacity: Unschedulable"`, "power_down_force cpu-1 slurmtide: capacity: Unschedulable"
			assert.Less(t, slices.Index(w.log, told), slices.Index(w.log, forced), "a job that has ended takes no comment: %q", w.log)
			assert.Contains(t, w.log, told)
			assert.Contains(t, w.log, "power_down cpu-0 slurmtide: job 7 given back: cpu-1: capacity: Unschedulable", "the node that came up goes when no job is on it")
			assert.Contains(t, w.log, "job 7, begin 2000-01-01T00:01:12Z")
			assert.Contains(t, w.log, "drain cpu-[2-9] slurmtide: closed: capacity: Unschedulable; tried again at 00:01:12Z")
			assert.Equal(t, []string{"cpu cpu-1 BootFailed node cpu-1: capacity: Unschedulable (jobs given back: 7)"}, w.warnings)
		})
		assert.Equal(t, map[string]float64{"class=capacity nodeset=cpu": 1}, samples(t, registry, "slurmtide_boot_failures_total"))
		submit(t, dir, spool.KindSuspend, "cpu-1", "")
		pass(5 * time.Second)
		assert.Equal(t, 0, pending(t, b))
		w.look(func() { assert.NotContains(t, w.pods, "cpu-1") })
	})
}

func TestComment(t *testing.T) {
	for name, test := range map[string]struct{ old, want string }{
		"empty":         {"", "slurmtide: capacity: x"},
		"ours":          {"slurmtide: image: y", "slurmtide: capacity: x"},
		"foreign":       {"billing 4", "billing 4; slurmtide: capacity: x"},
		"foreign, ours": {"billing 4; slurmtide: image: y", "billing 4; slurmtide: capacity: x"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, comment(test.old, "slurmtide: capacity: x"))
		})
	}
}
