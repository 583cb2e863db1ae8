package bridge

import (
	"errors"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

// A pod that nobody wants is deleted only when both Slurm and Kubernetes can be read.
func TestNothingIsTakenDownUnread(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.pods["cpu-0"] = powersave.Pod{Node: "cpu-0", NodeSet: "cpu", UID: "orphan", Generation: 1, Phase: powersave.PodReady}
		w.slurmErr = errors.New("connection refused")
		registry := prometheus.NewRegistry()
		b, stop := w.startWith(t, dir, Config{Slurm: w, Kubernetes: w, Engine: powersave.Config{Alone: true}, Metrics: NewMetrics(registry)})
		defer stop()
		readable := func(slurm, kubernetes float64) {
			assert.Equal(t, map[string]float64{"api=slurm": slurm, "api=kubernetes": kubernetes}, samples(t, registry, "slurmtide_readable"))
		}
		deleted := func() (deleted []string) {
			w.look(func() { deleted = w.deletes })
			return deleted
		}
		pass(5 * time.Minute)
		assert.Empty(t, deleted(), "Slurm cannot be read")
		readable(0, 1)
		b.WatchError(errors.New("no route to host"))
		pass(time.Second)
		w.look(func() { w.slurmErr = nil })
		pass(5 * time.Minute)
		assert.Empty(t, deleted(), "Kubernetes cannot be read")
		readable(1, 0)
		b.WatchError(errors.New("no route to host"))
		b.WatchError(nil)
		pass(5 * time.Second)
		assert.Empty(t, deleted(), "one sighting")
		readable(1, 1)
		pass(30 * time.Second)
		assert.Equal(t, []string{"orphan"}, deleted())
	})
}

// A bridge that could not read Slurm since it began says so after a minute, and not before.
func TestStatusWithoutSlurm(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.slurmErr = errors.New("connection refused")
		_, stop := w.start(t, dir)
		defer stop()
		status := func() (c powersave.NodeSetCounts, told bool) {
			w.look(func() { c, told = w.statuses["cpu"] })
			return c, told
		}
		pass(55 * time.Second)
		_, told := status()
		assert.False(t, told)
		pass(time.Minute)
		c, _ := status()
		assert.Equal(t, "Slurm cannot be read, and could not since the bridge began", c.Stale)
		assert.Equal(t, c.Nodes, c.Unread)
		w.look(func() { w.slurmErr = nil })
		pass(time.Minute)
		c, _ = status()
		assert.Empty(t, c.Stale)
		assert.Zero(t, c.Unread)
	})
}

// A host is marked until that has worked.
func TestHostIsMarked(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.engine.BadHardware = regexp.MustCompile("Xid")
		w.pods["cpu-0"] = powersave.Pod{Node: "cpu-0", NodeSet: "cpu", UID: "u", Generation: 1, Phase: powersave.PodReady, Host: "h1"}
		w.set(up|powersave.NodeDrain, "cpu-0")
		w.reasons = map[string]string{"cpu-0": "GPU Xid 79"}
		w.taintErr = errors.New("away")
		_, stop := w.start(t, dir)
		defer stop()
		pass(10 * time.Second)
		w.look(func() {
			assert.Greater(t, len(w.tainted), 2)
			assert.Equal(t, powersave.TaintHost{Host: "h1", Node: "cpu-0", NodeSet: "cpu", UID: "u", Reason: "GPU Xid 79"}, w.tainted[0])
			w.tainted, w.taintErr = nil, nil
		})
		pass(time.Hour)
		w.look(func() { assert.Len(t, w.tainted, 1) })
	})
}
