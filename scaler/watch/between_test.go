package watch

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/scaler"
)

// array is an array of whole-node tasks on the nodes of a slurm, of which so many run at once.
type array struct {
	*slurm
	tasks, limit, next int
	running            map[int]uint32 // by node
}

// show writes down what slurmctld would show. It needs s.mu.
func (a *array) show() {
	a.jobs = nil
	for at := range a.nodes {
		a.nodes[at].State, a.nodes[at].AllocCPUs = scaler.NodeUp, 0
		if id := a.running[at]; id != 0 {
			a.nodes[at].AllocCPUs = 4
			a.jobs = append(a.jobs, scaler.Job{ID: id, ArrayJobID: 1, ArrayLimit: uint32(a.limit), State: scaler.JobRunning, Nodes: a.nodes[at].Name})
		}
	}
	if a.next < a.tasks {
		a.jobs = append(a.jobs, scaler.Job{ID: 1, ArrayJobID: 1, ArrayLimit: uint32(a.limit), ArrayTasks: fmt.Sprintf("%d-%d%%%d", a.next, a.tasks-1, a.limit),
			Reason: "JobArrayTaskLimit", Priority: 1, Request: scaler.Request{Partitions: "cpu", Tasks: 1, CPUs: 4, CPUsPerTask: 4, Memory: 1000}})
	}
	a.changedAt = time.Now().Unix()
}

// run starts as many tasks as may run, each on the first node that is free, and ends each after a while.
func (a *array) run(random *rand.Rand) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at := 0; at < len(a.nodes) && len(a.running) < a.limit && a.next < a.tasks; at++ {
		if a.running[at] != 0 {
			continue
		}
		a.next++
		a.running[at] = uint32(1 + a.next)
		time.AfterFunc(time.Duration(5000+random.IntN(5000))*time.Millisecond, func() {
			a.mu.Lock()
			delete(a.running, at)
			a.show()
			pause := time.Duration(random.IntN(300)) * time.Millisecond
			a.mu.Unlock()
			time.Sleep(pause)
			a.run(random)
		})
	}
	a.show()
}

// Slurm goes on between the read of nodes and that of jobs. A task that starts or ends meanwhile is not counted twice: an autoscaler
// would power nodes up for it that nobody needs.
func TestNothingCountsTwice(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			s, ns := cluster()
			s.takes = time.Duration(random.IntN(1500)) * time.Millisecond
			a := &array{slurm: s, tasks: 40, limit: 6, running: map[int]uint32{}}
			w := start(t, s, ns)
			time.Sleep(10*time.Second + time.Duration(random.IntN(3000))*time.Millisecond)
			a.mu.Lock()
			a.show()
			a.mu.Unlock()
			time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
			a.run(random)
			most := 0
			for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); {
				changed := w.Changed()
				f, err := w.Latest()
				require.NoError(t, err)
				d, _ := f.NodeSet("cpu")
				most = max(most, d.Nodes())
				require.LessOrEqual(t, d.Nodes(), a.limit, "%+v", d.NodeSetDemand)
				select {
				case <-changed:
				case <-time.After(time.Second):
				}
			}
			assert.Equal(t, a.limit, most)
			assert.Zero(t, nodes(t, w, "cpu"), "the array is over")
		})
	}
}

// Nodes are read soon after jobs have changed, and not only every five seconds.
func TestNodesFollowJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ns := cluster()
		start(t, s, ns)
		time.Sleep(10 * time.Second)
		for id := range uint32(10) {
			for s.counts(); s.counts()["nodes"] == 0; {
				time.Sleep(100 * time.Millisecond)
			}
			s.submit(id+1, "cpu")
			time.Sleep(1300 * time.Millisecond)
			assert.NotZero(t, s.counts()["nodes"])
		}
	})
}

// A node that a job has left counts as free until its record is newer, or another job has it.
func TestLeft(t *testing.T) {
	on := func(nodes string) []scaler.Job { return []scaler.Job{{ID: 1, State: scaler.JobRunning, Nodes: nodes}} }
	var r reader
	for _, step := range []struct {
		nodes string
		free  []string
	}{{"cpu-[0-1]", nil}, {"cpu-1", []string{"cpu-0"}}, {"", []string{"cpu-0", "cpu-1"}}, {"cpu-0", []string{"cpu-1"}}} {
		r.leave(on(step.nodes))
		r.snap.Jobs = on(step.nodes)
		nodes := []scaler.Node{{Name: "cpu-0", AllocCPUs: 4, AllocMemory: 9, GresUsed: "gpu:1"}, {Name: "cpu-1", AllocCPUs: 4}}
		r.free(nodes)
		var free []string
		for _, n := range nodes {
			if n.AllocCPUs == 0 {
				assert.Equal(t, scaler.Node{Name: n.Name}, n)
				free = append(free, n.Name)
			}
		}
		assert.Equal(t, step.free, free, step.nodes)
	}
}
