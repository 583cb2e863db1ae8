package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

const (
	off     = powersave.NodeIdle | powersave.NodeCloud | powersave.NodePoweredDown
	booting = powersave.NodeAllocated | powersave.NodeCloud | powersave.NodePoweringUp
	up      = powersave.NodeAllocated | powersave.NodeCloud
	leaving = powersave.NodeIdle | powersave.NodeCloud | powersave.NodePoweringDown
)

// world stands for Slurm and Kubernetes: slurmd registers a second after its pod was made,
// a pod goes half a second after it was deleted.
type world struct {
	mu        sync.Mutex
	bridges   []*Bridge
	slurm     map[string]powersave.NodeState
	pods      map[string]powersave.Pod
	lastUID   int
	creates   int
	begun     []string // nodes that Delete was called for
	deletes   []string
	updates   []powersave.NodeUpdate
	statuses  map[string]powersave.NodeSetCounts
	slurmErr  error
	createErr error
	statusErr map[string]error // by NodeSet
	parallel  int              // Config.Parallel
	rooms     Rooms            // Config.Rooms
	taintErr  error
	tainted   []powersave.TaintHost
	reasons   map[string]string // by node
	engine    powersave.Config

	createTakes, deleteTakes time.Duration

	stuck    string // the pod of this node finds no host
	stuckOn  string // on this offering alone; "": on all
	jobs     map[uint32]powersave.SlurmJob
	het      []uint32 // IDs of the components of a het job
	warnings []string
	log      []string // changes of Slurm, in order
}

func newWorld() *world {
	w := &world{slurm: map[string]powersave.NodeState{}, pods: map[string]powersave.Pod{}, statuses: map[string]powersave.NodeSetCounts{}}
	for i := range 10 {
		w.slurm["cpu-"+strconv.Itoa(i)] = off
	}
	return w
}

type missing []string

func (m missing) Error() string          { return "unknown nodes" }
func (m missing) MissingNodes() []string { return m }

// exists is what a create fails with when the name has a pod of another boot.
type exists struct{ pod powersave.Pod }

func (e exists) Error() string                      { return "a pod of that name exists" }
func (e exists) ExistingPod() (powersave.Pod, bool) { return e.pod, true }

func (w *world) Nodes(_ context.Context, names ...string) ([]powersave.SlurmNode, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.slurmErr != nil {
		return nil, w.slurmErr
	}
	var out []powersave.SlurmNode
	var unknown missing
	if len(names) == 0 {
		for name := range w.slurm {
			names = append(names, name)
		}
	}
	for _, n := range names {
		state, ok := w.slurm[n]
		if !ok {
			unknown = append(unknown, n)
			continue
		}
		out = append(out, powersave.SlurmNode{Name: n, State: state, Reason: w.reasons[n]})
	}
	if unknown != nil {
		return out, unknown
	}
	return out, nil
}

func (w *world) UpdateNodes(_ context.Context, u powersave.NodeUpdate) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.updates = append(w.updates, u)
	w.log = append(w.log, u.String()+" "+u.Reason)
	for _, n := range u.Nodes {
		if u.State == powersave.StatePowerDownForce && w.slurm[n] == booting {
			w.slurm[n] = leaving
			for id, j := range w.jobs { // requeued
				j.State = powersave.JobPending
				w.jobs[id] = j
			}
		}
		if u.State == powersave.StateResume && w.slurm[n] == leaving {
			w.slurm[n] = off
		}
	}
	return nil
}

func (w *world) Create(_ context.Context, a powersave.CreatePod) (string, error) {
	node := a.Node
	time.Sleep(w.createTakes)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.creates++
	if w.createErr != nil {
		return "", w.createErr
	}
	if p, ok := w.pods[node]; ok {
		if p.Generation != a.Generation {
			return "", exists{p}
		}
		return p.UID, nil
	}
	w.lastUID++
	p := powersave.Pod{Node: node, NodeSet: a.NodeSet, UID: "uid-" + strconv.Itoa(w.lastUID), Generation: a.Generation, Request: a.Request, Offering: a.Offering, Host: "host", Phase: powersave.PodScheduled}
	stuck := node == w.stuck && (w.stuckOn == "" || w.stuckOn == a.Offering)
	if stuck {
		p.Phase, p.Reason, p.Trouble = powersave.PodPending, "Unschedulable", powersave.TroubleCapacity
		time.AfterFunc(time.Second, func() { w.look(func() { w.tell(func(b *Bridge) { b.Pod(p) }) }) })
	} else {
		w.tell(func(b *Bridge) { b.Pod(p) })
	}
	w.pods[node] = p
	if stuck {
		return p.UID, nil
	}
	time.AfterFunc(time.Second, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.pods[node].UID != p.UID {
			return
		}
		p.Phase = powersave.PodRunning
		w.pods[node] = p
		w.tell(func(b *Bridge) { b.Pod(p) })
		if w.slurm[node] == booting {
			w.slurm[node] = up
		}
	})
	return p.UID, nil
}

func (w *world) Delete(_ context.Context, node, uid string) (bool, error) {
	w.look(func() { w.begun = append(w.begun, node) })
	time.Sleep(w.deleteTakes)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deletes = append(w.deletes, uid)
	if w.pods[node].UID != uid {
		return true, nil
	}
	time.AfterFunc(500*time.Millisecond, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.pods, node)
		w.tell(func(b *Bridge) { b.PodGone(node, uid) })
	})
	return false, nil
}

func (w *world) Mark(_ context.Context, a powersave.MarkPod) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, ok := w.pods[a.Node]; ok && p.UID == a.UID {
		p.Busy = a.Busy
		w.pods[a.Node] = p
	}
	return nil
}

func (w *world) TaintHost(_ context.Context, a powersave.TaintHost) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tainted = append(w.tainted, a)
	return w.taintErr
}

func (w *world) UpdateStatus(_ context.Context, c powersave.NodeSetCounts) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.statusErr[c.Name]; err != nil {
		return err
	}
	w.statuses[c.Name] = c
	return nil
}

func (w *world) Jobs(_ context.Context, ids ...uint32) ([]powersave.SlurmJob, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []powersave.SlurmJob
	if len(ids) == 0 {
		ids = slices.Sorted(maps.Keys(w.jobs))
	}
	if len(ids) == 1 && slices.Contains(w.het, ids[0]) {
		ids = w.het
	}
	for _, id := range ids {
		if j, ok := w.jobs[id]; ok {
			out = append(out, j)
		}
	}
	return out, nil
}

func (w *world) UpdateJob(_ context.Context, u powersave.JobUpdate) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, u.String())
	return nil
}

func (w *world) Warn(nodeSet, node, _, reason, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warnings = append(w.warnings, nodeSet+" "+node+" "+reason+" "+text)
}

func (w *world) set(state powersave.NodeState, names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range names {
		w.slurm[n] = state
	}
}

// look runs f, which may read anything of w.
func (w *world) look(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// start runs a bridge on the spool in dir until the returned function is called.
func (w *world) start(t *testing.T, dir string) (b *Bridge, stop func()) {
	t.Helper()
	engine := w.engine
	engine.Alone = true
	return w.startWith(t, dir, Config{Slurm: w, Kubernetes: w, Engine: engine})
}

// startWith is start for a bridge that reaches the world in its own way.
func (w *world) startWith(t *testing.T, dir string, c Config) (b *Bridge, stop func()) {
	t.Helper()
	sp, err := spool.Open(dir)
	require.NoError(t, err)
	c.Spool, c.SpoolDir, c.Rooms, c.Parallel = sp, dir, w.rooms, w.parallel
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	b = New(c)
	w.mu.Lock()
	w.bridges = append(w.bridges, b)
	var pods []powersave.Pod
	for _, p := range w.pods {
		pods = append(pods, p)
	}
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	nodes, err := slurmconf.ParseHostlist("cpu-[0-9]")
	require.NoError(t, err)
	b.NodeSets([]powersave.NodeSet{{Name: "cpu", Nodes: nodes}})
	b.PodsSynced(pods)
	return b, func() {
		cancel()
		require.NoError(t, <-done)
		w.look(func() { w.bridges = slices.DeleteFunc(w.bridges, func(o *Bridge) bool { return o == b }) })
	}
}

// tell passes news from Kubernetes on. w.mu is held.
func (w *world) tell(news func(*Bridge)) {
	for _, b := range w.bridges {
		news(b)
	}
}

func submit(t *testing.T, dir string, kind spool.Kind, nodes, resumeFile string) {
	t.Helper()
	r := spool.Request{Kind: kind, Nodes: nodes, Started: time.Now()}
	if resumeFile != "" {
		r.ResumeFile = json.RawMessage(resumeFile)
	}
	_, err := spool.Submit(dir, r)
	require.NoError(t, err)
}

const jobFile = `{"all_nodes_resume":"cpu-[0-1]","jobs":[{"job_id":7,"nodes_alloc":"cpu-[0-1]","nodes_resume":"cpu-[0-1]","partition":"p"}]}`

func pending(t *testing.T, b *Bridge) int {
	t.Helper()
	st, err := b.Spool.Stats()
	require.NoError(t, err)
	return st.Depth
}

func TestJobFromZeroAndBack(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		registry := prometheus.NewPedanticRegistry()
		b, stop := w.startWith(t, dir, Config{Slurm: w, Kubernetes: w, Engine: powersave.Config{Alone: true}, Metrics: NewMetrics(registry)})
		defer stop()
		pass(time.Second)

		w.set(booting, "cpu-0", "cpu-1")
		gate := make(chan spool.GateReply, 1)
		go func() { gate <- b.Gate(t.Context(), spool.GateRequest{JobID: 7, Nodes: "cpu-[0-1]"}) }()
		submit(t, dir, spool.KindResume, "cpu-[0-1]", jobFile)
		b.Poked()
		synctest.Wait()
		w.look(func() { assert.Equal(t, 2, w.creates) })
		assert.Equal(t, 1, pending(t, b), "a request stays in the spool until its nodes have registered")
		assert.Empty(t, gate)

		began := time.Now()
		reply := <-gate
		assert.True(t, reply.Ready, reply.Reason)
		assert.Less(t, time.Since(began), 1500*time.Millisecond)
		pass(time.Second)
		assert.Equal(t, 0, pending(t, b))
		w.look(func() {
			got := w.statuses["cpu"]
			assert.Len(t, got.BootTimes, 2)
			got.BootTimes = nil
			assert.Equal(t, powersave.NodeSetCounts{Name: "cpu", Nodes: 10, PoweredUp: 2, Ready: 2, Breakers: []powersave.BreakerRecord{}}, got)
		})

		raw, err := b.Status(t.Context())
		require.NoError(t, err)
		var st Status
		require.NoError(t, json.Unmarshal(raw, &st))
		require.Len(t, st.Engine.History, 2)
		assert.Equal(t, []uint32{7}, st.Engine.History[0].Jobs)
		assert.Equal(t, 2, st.Engine.Pods)

		assert.Equal(t, map[string]float64{"nodeset=cpu outcome=ready": 1}, happened(t, registry, "slurmtide_gangs_total"))
		assert.Equal(t, map[string]float64{"nodeset=cpu": 1}, happened(t, registry, "slurmtide_jobs_started_total"))
		assert.InDelta(t, 2, samples(t, registry, "slurmtide_boot_phase_seconds")["nodeset=cpu offering= phase=ready"], 0)
		busy := func() float64 {
			return happened(t, registry, "slurmtide_node_seconds_total")["nodeset=cpu offering= use=allocated"]
		}
		before := busy()
		pass(time.Minute)
		assert.InDelta(t, 2*60, busy()-before, 1e-6, "two nodes")
		w.set(leaving, "cpu-0", "cpu-1")
		submit(t, dir, spool.KindSuspend, "cpu-[0-1]", "") // and no poke: the scan finds it
		pass(5 * time.Second)
		w.look(func() { assert.Len(t, w.deletes, 2) })
		w.look(func() { require.Len(t, w.updates, 1, "both names are freed in one update") })
		w.look(func() { assert.Equal(t, powersave.StateResume, w.updates[0].State) })
		w.look(func() { assert.ElementsMatch(t, []string{"cpu-0", "cpu-1"}, w.updates[0].Nodes) })
		assert.Equal(t, 0, pending(t, b))
		after := happened(t, registry, "slurmtide_node_seconds_total")
		pass(time.Minute)
		assert.Equal(t, after, happened(t, registry, "slurmtide_node_seconds_total"), "they cost nothing any more")
	})
}

func TestRestartGoesOn(t *testing.T) {
	for name, wait := range map[string]time.Duration{
		"before the pods exist": 0,
		"while slurmd starts":   500 * time.Millisecond,
		"after registration":    1100 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, chmod700(dir))
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.set(booting, "cpu-0", "cpu-1")
				if wait == 0 {
					w.createErr = errors.New("no")
				}
				b, stop := w.start(t, dir)
				submit(t, dir, spool.KindResume, "cpu-[0-1]", jobFile)
				b.Poked()
				synctest.Wait()
				pass(wait)
				stop()
				w.look(func() { w.createErr = nil })

				b, stop = w.start(t, dir)
				defer stop()
				pass(5 * time.Second)
				assert.Equal(t, 0, pending(t, b))
				w.look(func() { assert.Len(t, w.pods, 2) })
				w.look(func() { assert.Equal(t, up, w.slurm["cpu-0"]) })
				w.look(func() { assert.Empty(t, w.deletes) })
			})
		})
	}
}

func TestOutages(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.slurmErr = errors.New("connection refused")
		w.set(booting, "cpu-0", "cpu-1")
		b, stop := w.start(t, dir)
		defer stop()
		submit(t, dir, spool.KindResume, "cpu-[0-1],ghost", jobFile)
		b.Poked()
		pass(100 * time.Millisecond)
		w.look(func() { assert.Len(t, w.pods, 2, "a fresh resume does not wait for slurmrestd") })

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		reply := b.Gate(ctx, spool.GateRequest{JobID: 7, Nodes: "cpu-[0-1]"})
		assert.False(t, reply.Ready)
		reply = b.Gate(ctx, spool.GateRequest{JobID: 7, Nodes: "cpu-["})
		assert.Contains(t, reply.Reason, "nodes")

		raw, err := b.Status(t.Context())
		require.NoError(t, err)
		assert.Contains(t, string(raw), "connection refused")
		w.mu.Lock()
		w.slurmErr = nil
		w.mu.Unlock()
		pass(time.Minute)
		raw, _ = b.Status(t.Context())
		assert.Equal(t, 0, pending(t, b), "also the node that Slurm does not know is settled: %s", raw)
	})
}

func TestRequestThatCannotBeUsedIsSetAside(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		b, stop := w.start(t, dir)
		defer stop()
		submit(t, dir, spool.KindResume, "cpu-[9-1]", "")
		w.set(booting, "cpu-2")
		submit(t, dir, spool.KindResume, "cpu-2", `{"jobs":"garbage"}`)
		b.Poked()
		pass(5 * time.Second)
		st, err := b.Spool.Stats()
		require.NoError(t, err)
		assert.Equal(t, 1, st.Bad)
		assert.Equal(t, 0, st.Depth)
		w.look(func() { assert.Contains(t, w.pods, "cpu-2", "a resume file without sense does not cost the nodes") })
	})
}

// run makes pods for nodes that serve, as a former life of the bridge would have left them.
func (w *world) run(names ...string) {
	w.set(up, names...)
	for _, n := range names {
		w.pods[n] = powersave.Pod{Node: n, NodeSet: "cpu", UID: "old-" + n, Generation: 1, Phase: powersave.PodReady}
	}
}

func TestSlowCreatesHoldUpNothingElse(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.parallel, w.createTakes = 1, 20*time.Second
		w.run("cpu-9")
		b, stop := w.start(t, dir)
		defer stop()
		pass(time.Second)
		w.set(booting, "cpu-0", "cpu-1")
		w.set(leaving, "cpu-9")
		submit(t, dir, spool.KindResume, "cpu-[0-1]", jobFile)
		submit(t, dir, spool.KindSuspend, "cpu-9", "")
		b.Poked()
		pass(3 * time.Second)
		w.look(func() {
			assert.Equal(t, []string{"old-cpu-9"}, w.deletes)
			assert.Equal(t, 2, w.statuses["cpu"].PoweredUp)
			assert.Len(t, w.updates, 1)
		})
		reply := b.Gate(t.Context(), spool.GateRequest{JobID: 1, Nodes: "login"})
		assert.True(t, reply.Ready)
	})
}

func TestLockOnTheSpoolHoldsUpNothing(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		b, stop := w.start(t, dir)
		defer stop()
		pass(time.Second)
		w.set(booting, "cpu-0", "cpu-1")
		submit(t, dir, spool.KindResume, "cpu-[0-1]", jobFile)
		lock, err := os.Open(filepath.Join(dir, "sequence"))
		require.NoError(t, err)
		defer lock.Close()
		require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
		b.Poked()
		began := time.Now()
		reply := b.Gate(t.Context(), spool.GateRequest{JobID: 7, Nodes: "cpu-[0-1]"})
		assert.True(t, reply.Ready, reply.Reason)
		assert.Less(t, time.Since(began), 1500*time.Millisecond)
		pass(10 * time.Second)
		assert.Equal(t, 0, pending(t, b))
		w.look(func() { assert.Len(t, w.pods, 2) })
	})
}

func TestStatusThatCannotBeWrittenDelaysNoOther(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.statusErr = map[string]error{"cpu": errors.New("forbidden")}
		b, stop := w.start(t, dir)
		defer stop()
		b.NodeSets([]powersave.NodeSet{{Name: "cpu", Nodes: slurmconf.NewHostlist("cpu-0")}, {Name: "gpu", Nodes: slurmconf.NewHostlist("cpu-1")}})
		pass(time.Second)
		w.set(up, "cpu-0", "cpu-1")
		submit(t, dir, spool.KindResume, "cpu-[0-1]", "")
		pass(3 * time.Second)
		w.look(func() {
			assert.Equal(t, 1, w.statuses["gpu"].Ready)
			assert.NotContains(t, w.statuses, "cpu")
			w.statusErr = nil
		})
		pass(statusRetry)
		w.look(func() { assert.Equal(t, 1, w.statuses["cpu"].Ready) })
	})
}

func TestDeleteThatCannotStartInTimeIsDecidedAnew(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.parallel, w.deleteTakes = 1, 8*time.Second
		w.run("cpu-0", "cpu-1")
		b, stop := w.start(t, dir)
		defer stop()
		pass(time.Second)
		w.set(leaving, "cpu-0", "cpu-1")
		submit(t, dir, spool.KindSuspend, "cpu-[0-1]", "")
		b.Poked()
		pass(4 * time.Second)
		first, second := "cpu-0", "cpu-1"
		w.look(func() {
			require.Len(t, w.begun, 1)
			if w.begun[0] == second {
				first, second = second, first
			}
		})
		w.set(up, second) // it serves a job again
		pass(time.Minute)
		w.look(func() {
			assert.Equal(t, []string{"old-" + first}, w.deletes)
			assert.Contains(t, w.pods, second)
		})
		assert.Equal(t, 0, pending(t, b))
	})
}

func chmod700(dir string) error { return os.Chmod(dir, 0o700) }

// pass lets time go by and waits until everything it set off is done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
