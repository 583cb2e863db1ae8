package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
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

// side is the world as one of several bridges reaches it.
type side struct {
	*world
	name    string
	dir     string
	bridge  *Bridge
	stop    func()
	created []string // nodes
	deleted []string // UIDs
	written int      // statuses
	marked  []string

	away  bool          // the API server takes no pods from here
	takes time.Duration // how old an answer of Slurm is when it arrives
}

func (s *side) Create(ctx context.Context, a powersave.CreatePod) (string, error) {
	away := false
	s.look(func() { away = s.away })
	if away {
		return "", errors.New("the API server is away")
	}
	uid, err := s.world.Create(ctx, a)
	if err == nil {
		s.look(func() { s.created = append(s.created, a.Node) })
	}
	return uid, err
}

func (s *side) Delete(ctx context.Context, node, uid string) (bool, error) {
	s.look(func() { s.deleted = append(s.deleted, uid) })
	return s.world.Delete(ctx, node, uid)
}

func (s *side) UpdateStatus(ctx context.Context, c powersave.NodeSetCounts) error {
	s.look(func() { s.written++ })
	return s.world.UpdateStatus(ctx, c)
}

func (s *side) Mark(ctx context.Context, a powersave.MarkPod) error {
	s.look(func() { s.marked = append(s.marked, a.Node) })
	return s.world.Mark(ctx, a)
}

func (s *side) Nodes(ctx context.Context, names ...string) ([]powersave.SlurmNode, error) {
	nodes, err := s.world.Nodes(ctx, names...)
	var takes time.Duration
	s.look(func() { takes = s.takes })
	time.Sleep(takes)
	return nodes, err
}

// sides starts two bridges with a spool each; neither leads.
func (w *world) sides(t *testing.T, dirs [2]string) (a, b *side) {
	t.Helper()
	start := func(name, dir string) *side {
		s := &side{world: w, name: name, dir: dir}
		s.bridge, s.stop = w.startWith(t, dir, Config{Slurm: s, Kubernetes: s})
		return s
	}
	return start("a", dirs[0]), start("b", dirs[1])
}

func (s *side) lease(holder string) {
	s.bridge.Lease(Lease{Name: "lease", Identity: s.name, Holder: holder, Leading: holder == s.name})
}

func twoDirs(t *testing.T) (dirs [2]string) {
	t.Helper()
	for i := range dirs {
		dirs[i] = t.TempDir()
		require.NoError(t, chmod700(dirs[i]))
	}
	return dirs
}

func TestOneOfTwoBridgesReconciles(t *testing.T) {
	dirs := twoDirs(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.run("cpu-8", "cpu-9")
		w.set(off, "cpu-9") // an orphan
		a, b := w.sides(t, dirs)
		defer b.stop()
		pass(90 * time.Second)
		w.look(func() {
			assert.Empty(t, a.deleted, "nobody has the lease yet")
			assert.Zero(t, a.written+b.written)
		})

		a.lease("a")
		b.lease("a")
		pass(30 * time.Second)
		w.look(func() {
			assert.Equal(t, []string{"old-cpu-9"}, a.deleted)
			assert.Equal(t, []string{"cpu-8"}, a.marked)
			assert.NotZero(t, a.written)
			assert.Empty(t, b.deleted)
			assert.Empty(t, b.marked)
		})

		// The active slurmctld is the other one: its bridge does all of it.
		w.set(booting, "cpu-0", "cpu-1")
		submit(t, b.dir, spool.KindResume, "cpu-[0-1]", jobFile)
		b.bridge.Poked()
		reply := b.bridge.Gate(t.Context(), spool.GateRequest{JobID: 7, Nodes: "cpu-[0-1]"})
		assert.True(t, reply.Ready, reply.Reason)
		pass(time.Second)
		w.look(func() { assert.ElementsMatch(t, []string{"cpu-0", "cpu-1"}, b.created) })
		w.set(leaving, "cpu-0", "cpu-1")
		submit(t, b.dir, spool.KindSuspend, "cpu-[0-1]", "")
		pass(5 * time.Second)
		w.look(func() {
			assert.Len(t, b.deleted, 2)
			assert.Equal(t, off, w.slurm["cpu-0"])
			assert.Equal(t, 1, w.statuses["cpu"].PoweredUp, "the leader counts what the other bridge does: %v", w.statuses)
			assert.NotContains(t, strings.Join(w.log, " "), "drain", "nor takes it for evictions")
			assert.Equal(t, []string{"old-cpu-9"}, a.deleted)
			assert.Empty(t, a.created)
			assert.Zero(t, b.written)
		})
		assert.Equal(t, 0, pending(t, b.bridge))

		// The leader goes, and the other one takes over.
		a.stop()
		w.set(off, "cpu-8")
		b.lease("b")
		pass(90 * time.Second)
		w.look(func() {
			assert.Contains(t, b.deleted, "old-cpu-8")
			assert.NotZero(t, b.written)
		})
	})
}

func TestLateSuspendSparesTheBootOfAnotherBridge(t *testing.T) {
	dirs := twoDirs(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.run("cpu-0")
		a, b := w.sides(t, dirs)
		defer a.stop()
		defer b.stop()
		a.lease("a")
		b.lease("a")
		pass(10 * time.Second)
		w.look(func() { a.takes = 4 * time.Second }) // what it reads now arrives when the node has begun its next life
		w.set(leaving, "cpu-0")
		for _, s := range []*side{a, b} {
			submit(t, s.dir, spool.KindSuspend, "cpu-0", "")
			s.bridge.Poked()
		}
		pass(time.Second)
		w.look(func() { require.Equal(t, off, w.slurm["cpu-0"]) })
		w.set(booting, "cpu-0")
		submit(t, b.dir, spool.KindResume, "cpu-0", "")
		b.bridge.Poked()
		pass(2 * time.Second)
		var uid string
		w.look(func() {
			require.Equal(t, []string{"cpu-0"}, b.created)
			uid = w.pods["cpu-0"].UID
		})

		pass(time.Minute)
		w.look(func() {
			assert.NotContains(t, a.deleted, uid)
			assert.Equal(t, uid, w.pods["cpu-0"].UID)
			assert.Equal(t, up, w.slurm["cpu-0"])
		})
		assert.Equal(t, 0, pending(t, a.bridge)+pending(t, b.bridge))
	})
}

func TestOrderThatWasTakenBackMakesNoPod(t *testing.T) {
	for name, away := range map[string]time.Duration{"soon": 2 * time.Second, "late": 40 * time.Second} {
		t.Run(name, func(t *testing.T) {
			dirs := twoDirs(t)
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				a, b := w.sides(t, dirs)
				defer a.stop()
				defer b.stop()
				a.lease("b")
				b.lease("b")
				pass(5 * time.Second)
				w.look(func() { a.away = true })
				w.set(booting, "cpu-0", "cpu-1")
				submit(t, a.dir, spool.KindResume, "cpu-[0-1]", jobFile)
				a.bridge.Poked()
				pass(time.Second)
				w.set(leaving, "cpu-0", "cpu-1") // by the other slurmctld, which has taken over
				submit(t, b.dir, spool.KindSuspend, "cpu-[0-1]", "")
				b.bridge.Poked()
				pass(away)
				w.look(func() { a.away = false })
				pass(2 * time.Minute)
				w.look(func() {
					assert.Empty(t, a.created)
					assert.Empty(t, w.pods)
					assert.Equal(t, off, w.slurm["cpu-0"])
				})
				assert.Equal(t, 0, pending(t, a.bridge)+pending(t, b.bridge))
			})
		})
	}
}

func TestBothBridgesBootTheSameNode(t *testing.T) {
	dirs := twoDirs(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		a, b := w.sides(t, dirs)
		defer a.stop()
		defer b.stop()
		a.lease("a")
		b.lease("a")
		pass(5 * time.Second)
		w.set(booting, "cpu-0", "cpu-1")
		submit(t, a.dir, spool.KindResume, "cpu-[0-1]", jobFile) // slurmctld dies, and the next one orders it again
		submit(t, b.dir, spool.KindResume, "cpu-[0-1]", jobFile)
		a.bridge.Poked()
		b.bridge.Poked()
		pass(30 * time.Second)
		w.look(func() {
			assert.Equal(t, up, w.slurm["cpu-0"])
			assert.Equal(t, up, w.slurm["cpu-1"])
			assert.Len(t, w.pods, 2)
		})
		assert.Equal(t, 0, pending(t, a.bridge)+pending(t, b.bridge))
	})
}

func TestLeaseIsTold(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		registry := prometheus.NewRegistry()
		var log bytes.Buffer
		b, stop := w.startWith(t, dir, Config{Slurm: w, Kubernetes: w, Metrics: NewMetrics(registry), Log: slog.New(slog.NewTextHandler(&log, nil))})
		synctest.Wait()
		status := func() Lease {
			raw, err := b.Status(t.Context())
			require.NoError(t, err)
			var st Status
			require.NoError(t, json.Unmarshal(raw, &st))
			return st.Lease
		}
		metric := func() float64 {
			families, err := registry.Gather()
			require.NoError(t, err)
			for _, f := range families {
				if f.GetName() == "slurmtide_bridge_leading" {
					return f.GetMetric()[0].GetGauge().GetValue()
				}
			}
			return -1
		}
		for _, step := range []struct {
			lease Lease
			want  string
		}{
			{Lease{Error: `the right "get leases.coordination.k8s.io" is missing`}, `level=WARN msg="the lease cannot be had: .*get leases.coordination.k8s.io`},
			{Lease{Error: `the right "get leases.coordination.k8s.io" is missing`}, ``},
			{Lease{Holder: "other"}, `level=INFO msg="the lease can be had again"`},
			{Lease{Holder: "third"}, `level=INFO msg="the lease is another bridge's.*holder=third`},
			{Lease{Holder: "me"}, ``},
			{Lease{Holder: "me", Leading: true}, `level=INFO msg="this bridge has the lease: it reconciles"`},
			{Lease{Holder: "me", Leading: true, Error: "no answer"}, `level=WARN msg="the lease could not be renewed; tried again".*no answer`},
			{Lease{Holder: "me", Error: "no answer"}, `level=WARN msg="this bridge has lost the lease: .*no answer`},
		} {
			log.Reset()
			step.lease.Name, step.lease.Identity = "lease", "me"
			b.Lease(step.lease)
			synctest.Wait()
			if step.want == "" {
				assert.Empty(t, log.String())
			} else {
				assert.Regexp(t, step.want, log.String())
			}
			assert.Equal(t, step.lease, status())
			assert.InDelta(t, map[bool]float64{true: 1}[step.lease.Leading], metric(), 0)
		}
		stop()
	})
}
