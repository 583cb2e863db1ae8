package loop

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/scaler/ahead"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// slurm has nodes cpu-0 and cpu-1, powered down, and jobs.
type slurm struct {
	mu    sync.Mutex
	jobs  []scaler.Job
	state scaler.NodeState
	asked int

	reservations map[string]scaler.Reservation
	fails        error // reading them
	resvAsked    int
}

func (s *slurm) QueuePartitions(context.Context) ([]scaler.Partition, error) {
	return []scaler.Partition{{Name: "cpu"}}, nil
}

func (s *slurm) QueueNodes(context.Context) ([]scaler.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	var nodes []scaler.Node
	for i := range 2 {
		nodes = append(nodes, scaler.Node{Name: fmt.Sprintf("cpu-%d", i), Partitions: []string{"cpu"}, State: s.state, Shape: &scaler.Shape{CPUs: 4, Memory: 1000}})
	}
	return nodes, nil
}

func (s *slurm) QueueJobs(context.Context, time.Time) ([]scaler.Job, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs, time.Now(), nil
}

func (s *slurm) QueueReservations(context.Context) (map[string]scaler.Reservation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resvAsked++
	if s.fails != nil {
		return nil, s.fails
	}
	return maps.Clone(s.reservations), nil
}

func (s *slurm) set(state scaler.NodeState, jobs ...scaler.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.jobs = state, jobs
}

// world is a Loop that runs, and what it says.
type world struct {
	*slurm
	*Loop
	registry *prometheus.Registry

	told   sync.Mutex
	wishes []powersave.WarmWish
	first  time.Time // when there was a wish for the first time
}

// run starts a Loop until the test ends; it is to be called in a bubble.
func run(t *testing.T) *world {
	w := &world{slurm: &slurm{state: scaler.NodeOff}, registry: prometheus.NewRegistry()}
	w.Loop = New(Config{Slurm: w.slurm, Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(w.registry), Tell: func(told powersave.WarmWished) {
		w.told.Lock()
		defer w.told.Unlock()
		if w.wishes = told.Wishes; len(w.wishes) > 0 && w.first.IsZero() {
			w.first = time.Now()
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); assert.NoError(t, w.Run(ctx)) }()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func (w *world) now() []powersave.WarmWish {
	w.told.Lock()
	defer w.told.Unlock()
	return w.wishes
}

// results is slurmtide_look_ahead_results_total, as far as there are any.
func (w *world) results(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := w.registry.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "slurmtide_look_ahead_results_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			if n := m.GetCounter().GetValue(); n > 0 {
				all[m.GetLabel()[1].GetValue()] = n
			}
		}
	}
	return all
}

// two is a pending job for two whole nodes.
func two(id uint32, change func(*scaler.Job)) scaler.Job {
	j := scaler.Job{ID: id, Priority: 1, Request: scaler.Request{Partitions: "cpu", MinNodes: 2, Tasks: 2, CPUs: 8, CPUsPerTask: 4, Memory: 1000}}
	change(&j)
	return j
}

func TestNodesAreWishedForAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now().Add(5 * time.Minute)
		pending := two(7, func(j *scaler.Job) { j.Reason, j.Begin = "BeginTime", begin })
		w := run(t)
		s, l, told := w.slurm, w.Loop, w.now
		s.set(scaler.NodeOff, pending)
		results := func() map[string]float64 { return w.results(t) }

		set := powersave.NodeSet{Name: "cpu", Nodes: slurmconf.NewHostlist("cpu-0", "cpu-1")}
		l.Lead(true)
		l.TakeNodeSets([]powersave.NodeSet{set})
		time.Sleep(time.Minute)
		assert.Zero(t, s.asked, "off by default")

		set.LookAhead = &powersave.LookAhead{MaxNodes: 5}
		l.TakeNodeSets([]powersave.NodeSet{set})
		l.Counts([]powersave.NodeSetCounts{{Name: "cpu", BootTimes: powersave.BootTimes{time.Second, 2 * time.Second, time.Second, 25 * time.Second, time.Second}}})
		time.Sleep(time.Until(begin) - 31*time.Second)
		assert.Empty(t, told())
		time.Sleep(3 * time.Second)
		assert.Equal(t, []powersave.WarmWish{{NodeSet: "cpu", Nodes: 2, Names: []string{"cpu-0", "cpu-1"}, Until: begin.Add(ahead.Grace)}}, told())
		assert.WithinDuration(t, begin.Add(-30*time.Second), w.first, time.Second, "a boot and five seconds ahead")

		time.Sleep(time.Until(begin) + time.Second)
		s.set(scaler.NodeUp, scaler.Job{ID: 7, State: scaler.JobRunning, Nodes: "cpu-[0-1]", End: begin.Add(time.Hour)})
		time.Sleep(10 * time.Second)
		assert.Empty(t, told())
		assert.Equal(t, map[string]float64{"hit": 2}, results())

		pending.ID, pending.Begin = 8, time.Now().Add(20*time.Second)
		s.set(scaler.NodeOff, pending)
		time.Sleep(5 * time.Second)
		assert.Len(t, told(), 1)
		l.Lead(false)
		time.Sleep(time.Second)
		assert.Empty(t, told())
		asked := s.asked
		time.Sleep(time.Minute)
		assert.Equal(t, asked, s.asked, "only a leader asks")
	})
}
