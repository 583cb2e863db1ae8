package bridge

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// recorder is a side that keeps every status that is written.
type recorder struct {
	*side
	all []powersave.NodeSetCounts
}

func (r *recorder) UpdateStatus(ctx context.Context, c powersave.NodeSetCounts) error {
	r.look(func() { r.all = append(r.all, c) })
	return r.side.UpdateStatus(ctx, c)
}

// recorded starts a bridge that does not lead.
func (w *world) recorded(t *testing.T, name, dir string) *recorder {
	t.Helper()
	r := &recorder{side: &side{world: w, name: name, dir: dir}}
	r.bridge, r.stop = w.startWith(t, dir, Config{Slurm: r, Kubernetes: r})
	return r
}

// A bridge that begins to lead has read Slurm up to a minute ago, and the one before may have written what is newer.
func TestStatusOfANewLeader(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	run := func(name string, test func(t *testing.T, w *world, b *recorder)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				b := w.recorded(t, "b", dir)
				defer b.stop()
				pass(time.Second)
				w.run("cpu-0", "cpu-1", "cpu-2") // the leader's doing, which it has written: three nodes are up
				pass(10 * time.Second)
				b.look(func() { assert.Empty(t, b.all) })
				test(t, w, b)
			})
		})
	}
	run("Slurm answers late", func(t *testing.T, w *world, b *recorder) {
		w.look(func() { b.takes = 5 * time.Second })
		b.lease("b")
		pass(20 * time.Second)
		w.look(func() {
			require.NotEmpty(t, b.all)
			for _, c := range b.all {
				assert.Equal(t, 3, c.PoweredUp)
				assert.Zero(t, c.Unread)
			}
		})
	})
	run("Slurm does not answer", func(t *testing.T, w *world, b *recorder) {
		w.look(func() { w.slurmErr = errors.New("connection refused") })
		b.lease("b")
		pass(55 * time.Second)
		w.look(func() { assert.Empty(t, b.all) })
		pass(time.Minute)
		w.look(func() {
			require.NotEmpty(t, b.all, "that has to be told")
			for _, c := range b.all {
				assert.Contains(t, c.Stale, "Slurm cannot be read")
				assert.Equal(t, c.Nodes, c.Unread, "and the figures of before stay")
			}
			w.slurmErr, b.all = nil, nil
		})
		pass(time.Minute)
		w.look(func() {
			require.NotEmpty(t, b.all)
			assert.Equal(t, 3, b.all[len(b.all)-1].PoweredUp)
		})
	})
}

// What a bridge writes late that has led before, or somebody else, is put right, whether or not anything happens.
func TestStatusOfSomebodyElse(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.run("cpu-0")
		_, stop := w.start(t, dir)
		defer stop()
		pass(10 * time.Second)
		w.look(func() {
			require.Equal(t, 1, w.statuses["cpu"].PoweredUp)
			w.statuses["cpu"] = powersave.NodeSetCounts{Name: "cpu", PoweredUp: 7}
		})
		pass(statusCheck)
		w.look(func() { assert.Equal(t, 1, w.statuses["cpu"].PoweredUp) })
	})
}

// The nodes of offerings are counted by pods: before these are read there is nothing to say of them.
func TestStatusBeforePodsAreRead(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	for name, blind := range map[string]bool{"late": false, "not at all": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.set(up, "cpu-0")
				r := &recorder{side: &side{world: w, name: "a", dir: dir}}
				sp, err := spool.Open(dir)
				require.NoError(t, err)
				b := New(Config{Spool: sp, SpoolDir: dir, Slurm: r, Kubernetes: r, Engine: powersave.Config{Alone: true}, Log: slog.New(slog.DiscardHandler)})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- b.Run(ctx) }()
				defer func() { cancel(); require.NoError(t, <-done) }()
				b.NodeSets([]powersave.NodeSet{{
					Name: "cpu", Nodes: slurmconf.NewHostlist("cpu-0", "cpu-1"), Offerings: []powersave.Offering{{Name: "spot"}},
				}})
				pass(20 * time.Second)
				w.look(func() { assert.Empty(t, r.all) })
				if blind {
					b.WatchError(errors.New("pods is forbidden"))
					pass(20 * time.Second)
					w.look(func() {
						require.NotEmpty(t, r.all, "the rest is told")
						assert.Nil(t, r.all[0].Breakers, "and what it says of offerings stays")
						r.all = nil
					})
				}
				b.WatchError(nil)
				b.PodsSynced([]powersave.Pod{{Node: "cpu-0", NodeSet: "cpu", Offering: "spot", UID: "u", Generation: 1, Phase: powersave.PodReady}})
				pass(20 * time.Second)
				w.look(func() {
					require.NotEmpty(t, r.all)
					last := r.all[len(r.all)-1]
					assert.Equal(t, map[string]int{"spot": 1}, last.InUse)
					assert.NotNil(t, last.Breakers)
				})
			})
		})
	}
}
