package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/scaler/dynamic"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// world is a slurmctld that starts jobs of one node, and a Kubernetes whose pods register two seconds after they are made.
type world struct {
	mu       sync.Mutex
	loop     *Loop
	records  map[string]*powersave.SlurmNode
	pods     map[string]powersave.Pod
	pending  int
	running  map[string]bool // nodes with a job
	changed  time.Time       // of jobs
	down     error           // Slurm cannot be read
	uid      int
	reads    int
	calls    []string
	status   powersave.NodeSetCounts
	slow     time.Duration // what a read of the records takes
	never    bool          // pods do not register
	selects  int           // reads of the configuration
	wants    uint32        // CPUs of a job, if not 2
	excludes string        // nodes that a held job names
	reserved map[string]string
}

func (w *world) call(format string, args ...any) {
	w.calls = append(w.calls, fmt.Sprintf(format, args...))
}

func (w *world) schedule() {
	for _, name := range slices.Sorted(maps.Keys(w.records)) {
		r := w.records[name]
		if w.pending > 0 && r.State.Has(powersave.NodeIdle) && !r.State.Any(powersave.NodeDrain) {
			w.pending--
			w.running[name] = true
			r.State = r.State&^powersave.NodeIdle | powersave.NodeAllocated
			w.changed = time.Now()
		}
	}
}

func (w *world) Records(context.Context) (list []powersave.SlurmNode, nodes []scaler.Node, err error) {
	time.Sleep(w.slow)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down != nil {
		return nil, nil, w.down
	}
	w.reads++
	for _, name := range slices.Sorted(maps.Keys(w.records)) {
		r := *w.records[name]
		list = append(list, r)
		n := scaler.Node{Name: name, Partitions: []string{"all"}, State: scaler.NodeUp, Shape: &scaler.Shape{CPUs: 2, Memory: 1000}}
		if r.State.Any(powersave.NodeDrain) {
			n.State = scaler.NodeUnusable
		}
		if w.running[name] {
			n.AllocCPUs = 2
		}
		nodes = append(nodes, n)
	}
	return list, nodes, nil
}

func (w *world) QueuePartitions(context.Context) ([]scaler.Partition, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return []scaler.Partition{{Name: "all", AllNodes: true}}, w.down
}

func (w *world) QueueJobs(_ context.Context, since time.Time) ([]scaler.Job, time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down != nil {
		return nil, time.Time{}, w.down
	}
	if !since.IsZero() && w.changed.Before(since) {
		return nil, time.Time{}, nil
	}
	var jobs []scaler.Job
	for i := range w.pending {
		cpus := cmp.Or(w.wants, 2)
		jobs = append(jobs, scaler.Job{ID: uint32(i + 1), Priority: 1, Request: scaler.Request{Partitions: "all", MinNodes: 1, Tasks: 1, CPUs: cpus, CPUsPerTask: cpus}})
	}
	if w.excludes != "" {
		jobs = append(jobs, scaler.Job{ID: 2000, Request: scaler.Request{Partitions: "all", MinNodes: 1, Tasks: 1, CPUs: 1, CPUsPerTask: 1, ExcludedNodes: w.excludes}})
	}
	for name := range w.running {
		jobs = append(jobs, scaler.Job{ID: 1000, State: scaler.JobRunning, Nodes: name})
	}
	return jobs, time.Now(), nil
}

func (w *world) Select(context.Context) (scaler.Select, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.selects++
	return scaler.Select{NoMemory: true}, true, nil
}

func (w *world) Reservations(context.Context) (map[string]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.reserved), nil
}

func (w *world) Nodes(_ context.Context, names ...string) (list []powersave.SlurmNode, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		if r := w.records[name]; r != nil {
			list = append(list, *r)
		} else {
			err = noSuchNode{name}
		}
	}
	return list, err
}

type noSuchNode struct{ name string }

func (e noSuchNode) Error() string          { return "no node " + e.name }
func (e noSuchNode) MissingNodes() []string { return []string{e.name} }

func (w *world) UpdateNodes(_ context.Context, u powersave.NodeUpdate) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down != nil {
		return w.down
	}
	slices.Sort(u.Nodes)
	w.call("update %s %s%s", u.State, slurmconf.CompressHostlist(u.Nodes), u.Reason)
	for _, name := range u.Nodes {
		r := w.records[name]
		if u.Comment != "" {
			r.Comment = u.Comment
			w.schedule() // only now slurmctld looks at the queue
		}
		if u.State == powersave.StateDrain {
			r.State |= powersave.NodeDrain
			r.Reason = u.Reason
		}
	}
	return nil
}

func (w *world) DeleteNode(_ context.Context, name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.call("forget %s", name)
	delete(w.records, name)
	return nil
}

func (w *world) Create(_ context.Context, a powersave.CreatePod) (string, error) {
	w.mu.Lock()
	w.uid++
	p := powersave.Pod{Node: a.Node, NodeSet: a.NodeSet, UID: fmt.Sprintf("uid-%d", w.uid), Generation: a.Generation, Request: a.Request, Phase: powersave.PodPending, Host: "h", Created: time.Now(), Dynamic: true}
	w.pods[a.Node] = p
	w.call("create %s", a.Node)
	w.mu.Unlock()
	w.loop.Pod(p)
	time.AfterFunc(2*time.Second, func() {
		w.mu.Lock()
		now, ok := w.pods[a.Node]
		if ok = ok && !w.never; ok && now.UID == p.UID {
			p.Phase = powersave.PodRunning
			w.pods[a.Node] = p
			w.records[a.Node] = &powersave.SlurmNode{Name: a.Node, State: powersave.NodeIdle | powersave.NodeDynamicNorm, InstanceID: p.UID}
		}
		w.mu.Unlock()
		if ok {
			w.loop.Pod(p)
		}
	})
	return p.UID, nil
}

func (w *world) Delete(_ context.Context, node, uid string) (bool, error) {
	w.mu.Lock()
	w.call("delete %s", node)
	delete(w.pods, node)
	w.mu.Unlock()
	w.loop.PodGone(node, uid)
	return false, nil
}

func (w *world) Mark(_ context.Context, a powersave.MarkPod) error {
	w.mu.Lock()
	p := w.pods[a.Node]
	p.Busy = a.Busy
	w.pods[a.Node] = p
	w.mu.Unlock()
	w.loop.Pod(p)
	return nil
}

func (w *world) UpdateStatus(_ context.Context, c powersave.NodeSetCounts) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = c
	return nil
}

func (w *world) Warn(string, string, string, string, string) {}

func (w *world) said() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

func (w *world) readCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reads
}

func (w *world) submit(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending += n
	w.changed = time.Now()
}

// begin runs a loop that leads, for a NodeSet of four names.
func begin(t *testing.T, change ...func(*world, *Config)) *world {
	t.Helper()
	w := &world{records: map[string]*powersave.SlurmNode{}, pods: map[string]powersave.Pod{}, running: map[string]bool{}}
	c := Config{Slurm: w, Kubernetes: w, Log: slog.New(slog.DiscardHandler), Plan: dynamic.Config{Owner: "slurmtide: NodeSet ns/"}, Options: scaler.Options{Select: scaler.Select{Sockets: true}}}
	for _, f := range change {
		f(w, &c)
	}
	w.loop = New(c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.loop.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	w.loop.PodsSynced(nil)
	w.loop.Lead(true)
	return w
}

func (w *world) set() powersave.NodeSet {
	nodes, _ := slurmconf.ParseHostlist("dyn-[0-3]")
	return powersave.NodeSet{Name: "dyn", UID: "u", Nodes: nodes, SpecGeneration: 1, Dynamic: &powersave.Dynamic{IdleTime: 20 * time.Second, CPUs: 2, Memory: 1000}}
}

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		time.Sleep(10 * time.Second)
		require.Zero(t, w.readCount(), "without a NodeSet of mode Dynamic nothing is read")
		w.loop.NodeSets([]powersave.NodeSet{w.set()})
		time.Sleep(20 * time.Second)
		require.Less(t, w.readCount(), 7, "while nothing changes only jobs are looked at")
		require.Empty(t, w.said())

		w.submit(2)
		time.Sleep(6 * time.Second)
		calls := w.said()
		slices.Sort(calls)
		require.Equal(t, []string{"create dyn-0", "create dyn-1", "update  dyn-0", "update  dyn-1"}, calls)
		w.mu.Lock()
		assert.Len(t, w.running, 2)
		assert.Equal(t, 2, w.status.Ready)
		assert.True(t, w.pods["dyn-0"].Busy)
		assert.Equal(t, "slurmtide: NodeSet ns/dyn, pod "+w.pods["dyn-0"].UID, w.records["dyn-0"].Comment)
		for name := range w.running {
			w.records[name].State = powersave.NodeIdle | powersave.NodeDynamicNorm
		}
		clear(w.running)
		w.changed, w.calls = time.Now(), nil
		w.mu.Unlock()

		time.Sleep(40 * time.Second)
		calls = w.said()
		require.Len(t, calls, 5)
		assert.Equal(t, "update drain dyn-[0-1]slurmtide: idle for 20s", calls[0], "what goes together is asked for at once")
		slices.Sort(calls[1:])
		assert.Equal(t, []string{"delete dyn-0", "delete dyn-1", "forget dyn-0", "forget dyn-1"}, calls[1:])
		w.mu.Lock()
		assert.Empty(t, w.records)
		assert.Zero(t, w.status.PoweredUp)
		w.mu.Unlock()
	})
}

func TestOptions(t *testing.T) {
	w := &world{}
	l := New(Config{Slurm: w, Options: scaler.Options{Select: scaler.Select{Sockets: true}, FreeWithin: time.Second}})
	r, _, err := l.ask(t.Context(), true, time.Time{}, nil, nil)
	require.NoError(t, err)
	assert.Equal(t, scaler.Options{Select: scaler.Select{NoMemory: true}, FreeWithin: time.Second}, r.Queue.Options, "what Slurm tells goes before")
	assert.Equal(t, scaler.Select{Sockets: true}, l.Options.Select)
}

func TestLoopFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		w.loop.Lead(false)
		w.loop.NodeSets([]powersave.NodeSet{w.set()})
		w.submit(1)
		time.Sleep(time.Minute)
		require.Zero(t, w.readCount())
		w.loop.Lead(true)
		time.Sleep(6 * time.Second)
		require.Contains(t, w.said(), "create dyn-0")
		w.loop.Lead(false)
		time.Sleep(time.Second)
		reads, calls := w.readCount(), len(w.said())
		time.Sleep(time.Minute)
		assert.Equal(t, reads, w.readCount())
		assert.Len(t, w.said(), calls)
	})
}

func TestLoopCannotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		w.loop.NodeSets([]powersave.NodeSet{w.set()})
		w.submit(1)
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		w.down = errors.New("slurmctld does not answer")
		for name := range w.running {
			w.records[name].State = powersave.NodeIdle | powersave.NodeDynamicNorm
		}
		clear(w.running)
		w.calls = nil
		w.mu.Unlock()
		time.Sleep(10 * time.Minute)
		assert.Empty(t, w.said(), "what was read before tells nothing")
		w.mu.Lock()
		w.down = nil
		w.mu.Unlock()
		time.Sleep(time.Minute)
		assert.Len(t, w.said(), 3)
		w.loop.WatchError(errors.New("no API server"))
		w.submit(1)
		time.Sleep(time.Minute)
		assert.Len(t, w.said(), 3)
		w.loop.WatchError(nil)
		time.Sleep(10 * time.Second)
		assert.Contains(t, w.said(), "create dyn-0")
	})
}

// What was so a minute ago is not said to be so, by the bridge that read it, or by one that leads since.
func TestLoopSaysThatFiguresAreOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		status := func() powersave.NodeSetCounts {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.status
		}
		down := func(err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.down = err
		}
		set := w.set()
		set.Floor = 1
		w.loop.NodeSets([]powersave.NodeSet{set})
		time.Sleep(10 * time.Second)
		held := &powersave.FloorCounts{Wanted: 1, Held: 1}
		require.Equal(t, held, status().Floor)
		down(errors.New("slurmctld does not answer"))
		time.Sleep(50 * time.Second)
		require.Equal(t, held, status().Floor)
		require.Empty(t, status().Stale)
		time.Sleep(20 * time.Second)
		require.Regexp(t, "^Slurm cannot be read; the last time was at 00:00:.*Z$", status().Stale)
		assert.Equal(t, &powersave.FloorCounts{Wanted: 1, Held: 1, Why: powersave.FloorUnread, Text: status().Stale}, status().Floor)
		assert.Zero(t, status().Unread)

		w.loop.Lead(false)
		w.loop.Lead(true)
		time.Sleep(50 * time.Second)
		require.Zero(t, status().Unread, "it has nothing to say yet")
		time.Sleep(20 * time.Second)
		assert.Equal(t, "Slurm cannot be read, and could not since this bridge leads", status().Stale)
		assert.Equal(t, 4, status().Unread)
		assert.Equal(t, powersave.FloorUnread, status().Floor.Why)
		down(nil)
		time.Sleep(10 * time.Second)
		assert.Empty(t, status().Stale)
		assert.Zero(t, status().Unread)
		assert.Equal(t, held, status().Floor)
	})
}

// A job that can never run is logged, and counted, by the bridge that leads.
func TestLoopMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		var log strings.Builder
		w := begin(t, func(w *world, c *Config) {
			c.Metrics, c.Log = NewMetrics(registry), slog.New(slog.NewTextHandler(&log, nil))
			w.wants = 99
		})
		w.loop.NodeSets([]powersave.NodeSet{w.set()})
		w.submit(2)
		time.Sleep(10 * time.Second)
		assert.Empty(t, w.said())
		assert.Contains(t, log.String(), "job: 2, miss: needs 99 CPUs on a node, NodeSet dyn offers 2")
		assert.Equal(t, 2, strings.Count(log.String(), "WARN"), log.String())
		count := func() (jobs float64) {
			families, err := registry.Gather()
			require.NoError(t, err)
			for _, f := range families {
				for _, m := range f.Metric {
					assert.Equal(t, "needs 99 CPUs on a node, NodeSet dyn offers 2", m.Label[0].GetValue())
					jobs += m.Gauge.GetValue()
				}
			}
			return jobs
		}
		assert.InDelta(t, 2, count(), 0)
		w.loop.Lead(false)
		time.Sleep(time.Second)
		assert.Zero(t, count())
	})
}
