package scaler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var drawnShapes = []*Shape{
	cpuShape, gpuShape,
	{CPUs: 4, Sockets: 2, Cores: 2, Threads: 1, Memory: 8_000, Features: []string{"cpu"}},
	{CPUs: 16, Sockets: 1, Cores: 8, Threads: 2, Memory: 64_000, Gres: "gpu:a100:2,gpu:h100:1,nic:4", Features: []string{"gpu", "avx"}, Weight: 5},
}

func drawNodes(t *rapid.T, from int) []Node {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Node {
		shape := rapid.SampledFrom(drawnShapes).Draw(t, "shape")
		n := Node{
			NodeSet:    rapid.SampledFrom([]string{"a", "a", "b", "c", ""}).Draw(t, "set"),
			Partitions: rapid.SampledFrom([][]string{{"p"}, {"q"}, {"p", "q"}, {"p", "x"}}).Draw(t, "partitions"),
			State:      rapid.SampledFrom([]NodeState{NodeOff, NodeOff, NodeUp, NodeBooting, NodeUnusable}).Draw(t, "state"),
			Shape:      shape,
		}
		if n.State == NodeUp && rapid.Bool().Draw(t, "in use") {
			n.AllocCPUs = rapid.Uint32Range(0, shape.CPUs).Draw(t, "CPUs")
			n.AllocMemory = rapid.Uint64Range(0, shape.Memory).Draw(t, "memory")
			if shape == gpuShape {
				n.GresUsed = fmt.Sprintf("gpu:h100:%d", rapid.IntRange(0, 8).Draw(t, "GPUs"))
			}
		}
		return n
	}), from, 12).Draw(t, "nodes")
}

func drawJob(t *rapid.T) Job {
	nodes := rapid.SampledFrom([]uint32{1, 1, 1, 2, 3}).Draw(t, "nodes")
	tasks := max(nodes, rapid.Uint32Range(1, 10).Draw(t, "tasks"))
	per := rapid.SampledFrom([]uint32{1, 1, 2, 3}).Draw(t, "CPUs per task")
	j := Job{
		Reason: "Resources", Priority: rapid.Uint32Range(1, 3).Draw(t, "priority"), UserID: rapid.Uint32Range(1, 2).Draw(t, "user"),
		Request: Request{
			Partitions:    rapid.SampledFrom([]string{"p", "q", "p,q", "x", "q,p"}).Draw(t, "partition"),
			MinNodes:      nodes,
			MaxNodes:      rapid.SampledFrom([]uint32{nodes, nodes, 0, nodes + 2}).Draw(t, "most nodes"),
			Tasks:         tasks,
			CPUsPerTask:   per,
			CPUs:          tasks * per,
			Memory:        rapid.SampledFrom([]uint64{0, 100, 1000, 3000, 8000, 20_000}).Draw(t, "memory"),
			TRESPerNode:   rapid.SampledFrom([]string{"", "", "gres/gpu:1", "gres/gpu:h100:2", "gres/nic:1"}).Draw(t, "per node"),
			TRESPerJob:    rapid.SampledFrom([]string{"", "", "", "gres/gpu:3"}).Draw(t, "per job"),
			Constraint:    rapid.SampledFrom([]string{"", "", "cpu", "gpu|avx", "[cpu|gpu]", "avx*1"}).Draw(t, "constraint"),
			ExcludedNodes: rapid.SampledFrom([]string{"", "", "", "n0,n1"}).Draw(t, "excluded"),
			RequiredNodes: rapid.SampledFrom([]string{"", "", "", "", "n2"}).Draw(t, "required"),
			Exclusive:     rapid.SampledFrom([]Exclusive{ExclusiveNo, ExclusiveNo, ExclusiveNode, ExclusiveUser}).Draw(t, "exclusive"),
			Oversubscribe: rapid.Bool().Draw(t, "oversubscribe"),
			TasksPerCore:  rapid.SampledFrom([]uint32{0, 0, 1}).Draw(t, "tasks per core"),
		},
	}
	if j.Memory == 100 || j.Memory == 1000 {
		j.MemoryPerCPU = true
	}
	if rapid.IntRange(0, 3).Draw(t, "array") == 0 {
		j.ArrayTasks = fmt.Sprintf("0-%d", rapid.IntRange(0, 20).Draw(t, "last task"))
	}
	if rapid.IntRange(0, 4).Draw(t, "tasks per node") == 0 {
		j.TasksPerNode = tasks / nodes
		j.Tasks = j.TasksPerNode * nodes
		j.CPUs = j.Tasks * per
	}
	return j
}

func drawSnapshot(t *rapid.T) Snapshot {
	s := Snapshot{
		Nodes:    drawNodes(t, 1),
		Jobs:     rapid.SliceOfN(rapid.Custom(drawJob), 0, 12).Draw(t, "jobs"),
		NodeSets: []NodeSet{{Name: "a"}, {Name: "b"}, {Name: "c", Max: 3, Shape: cpuShape, Partitions: []string{"q"}}},
		Partitions: []Partition{
			{Name: "p", Share: rapid.SampledFrom([]int{0, 2, 4}).Draw(t, "share")},
			{Name: "q", Tier: 1, MaxCPUsPerNode: rapid.SampledFrom([]uint32{0, 0, 3}).Draw(t, "CPUs per node"), MaxNodes: rapid.SampledFrom([]uint32{0, 2}).Draw(t, "nodes")},
			{Name: "x", Exclusive: ExclusiveNode},
		},
		Options: Options{Select: rapid.SampledFrom([]Select{{}, {}, {OneNodeFirstFit: true}, {CPUs: true}, {NoMemory: true}, {Sockets: true}}).Draw(t, "select")},
	}
	for i := range s.Nodes {
		s.Nodes[i].Name = fmt.Sprintf("n%d", i)
	}
	for i := range s.Jobs {
		s.Jobs[i].ID = uint32(i + 1)
	}
	// Some neighbours are one het job.
	for i, pending := 0, len(s.Jobs); i+1 < pending; i += 2 {
		if rapid.IntRange(0, 5).Draw(t, "het") == 0 {
			s.Jobs[i].ArrayTasks, s.Jobs[i+1].ArrayTasks = "", ""
			s.Jobs[i].HetJobID, s.Jobs[i+1].HetJobID = s.Jobs[i].ID, s.Jobs[i].ID
			s.Jobs[i+1].HetOffset = 1
			continue
		}
		// And some one array with a limit, of which a task was requeued.
		if rapid.IntRange(0, 3).Draw(t, "one array") == 0 {
			limit := rapid.Uint32Range(1, 4).Draw(t, "limit")
			for k := i; k < i+2; k++ {
				s.Jobs[k].ArrayJobID, s.Jobs[k].ArrayLimit = s.Jobs[i].ID, limit
			}
			s.Jobs[i+1].ArrayTasks = ""
			if rapid.Bool().Draw(t, "one runs") {
				s.Jobs = append(s.Jobs, Job{ID: uint32(100 + i), State: JobRunning, ArrayJobID: s.Jobs[i].ID, ArrayLimit: limit})
			}
		}
	}
	return s
}

func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reckon := placingSome(t, rapid.Bool().Draw(t, "rounds"))
		s := drawSnapshot(t)
		r := reckon(s)
		lower, greedy := 0, 0
		for i, set := range r.NodeSets {
			lower += set.New.Lower
			greedy += set.New.Greedy
			require.LessOrEqual(t, set.New.Lower, set.New.Greedy, "NodeSet %d: %+v", i, r)
			require.LessOrEqual(t, set.New.Greedy, set.Off, "NodeSet %d", i)
			require.LessOrEqual(t, set.Nodes(), set.Up+set.Booting+set.Off+set.Unusable, "NodeSet %d", i)
			require.GreaterOrEqual(t, set.New.Lower, 0)
		}
		require.Equal(t, greedy, r.New.Greedy)
		require.LessOrEqual(t, lower, r.New.Lower)
		require.LessOrEqual(t, r.New.Lower, r.New.Greedy, "%+v", r)
		opened := 0
		left, of := map[uint32]int{}, map[uint32]uint32{}
		pending := 0
		for _, j := range s.Jobs {
			of[j.ID] = j.ArrayJobID
			switch {
			case j.State == JobRunning:
				left[j.ArrayJobID]--
				continue
			case j.ArrayLimit > 0 && j.ID == j.ArrayJobID:
				left[j.ID] += int(j.ArrayLimit)
			}
			pending++
		}
		require.Len(t, r.Jobs, pending)
		for _, j := range r.Jobs {
			if array := of[j.ID]; array != 0 {
				left[array] -= j.Counted
				require.True(t, j.Counted == 0 || left[array] >= 0, "the limit of array %d: %+v", array, r)
			}
			require.Equal(t, j.Why.Counts(), j.Counted > 0, j)
			require.LessOrEqual(t, j.Counted, j.Tasks)
			require.True(t, j.Why == WhyCapacity || j.New == 0, j)
			opened += j.New
		}
		require.GreaterOrEqual(t, opened, greedy) // nodes outside of NodeSets may be powered up, too
	})
}

func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reckon := placingSome(t, rapid.Bool().Draw(t, "rounds"))
		s := drawSnapshot(t)
		r := reckon(s)
		other := s
		other.Jobs, other.Nodes = slices.Clone(s.Jobs), slices.Clone(s.Nodes)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		random.Shuffle(len(other.Jobs), func(i, k int) { other.Jobs[i], other.Jobs[k] = other.Jobs[k], other.Jobs[i] })
		random.Shuffle(len(other.Nodes), func(i, k int) { other.Nodes[i], other.Nodes[k] = other.Nodes[k], other.Nodes[i] })
		again := reckon(other)
		slices.SortFunc(again.Jobs, func(a, b JobDemand) int { return int(a.ID) - int(b.ID) })
		require.Equal(t, r, again)
	})
}

func TestMoreJobsMoreNodes(t *testing.T) {
	full := func(r Report) bool {
		return slices.ContainsFunc(r.Jobs, func(j JobDemand) bool { return j.Why == WhyFull || j.Why.Counts() && j.Counted < j.Tasks })
	}
	rapid.Check(t, func(t *rapid.T) {
		reckon := placingSome(t, false)
		s := drawSnapshot(t)
		before := reckon(s)
		j := drawJob(t)
		j.ID = 1000
		more := s
		more.Jobs = append(slices.Clone(s.Jobs), j)
		after := reckon(more)
		if !full(after) && !full(before) {
			require.GreaterOrEqual(t, after.New.Lower, before.New.Lower)
			for i := range after.NodeSets {
				require.GreaterOrEqual(t, after.NodeSets[i].New.Lower, before.NodeSets[i].New.Lower)
			}
		}
		// Last in the queue, it cannot change what the others got; but het jobs are started by backfill, after what comes behind them elsewhere.
		if slices.ContainsFunc(s.Jobs, func(j Job) bool { return j.HetJobID != 0 }) {
			return
		}
		j.Priority, j.Partitions = 1, "p"
		for i := range s.Jobs {
			s.Jobs[i].Priority += 10
		}
		more.Jobs = append(slices.Clone(s.Jobs), j)
		before, after = reckon(s), reckon(more)
		require.GreaterOrEqual(t, after.New.Greedy, before.New.Greedy)
		if !j.lastAfter(s) {
			return
		}
		require.Equal(t, before.Jobs, after.Jobs[:len(before.Jobs)])
	})
}

// lastAfter reports whether all others come first: none is of a lower partition tier.
func (j Job) lastAfter(Snapshot) bool { return j.Partitions == "p" }

// For small queues of jobs that take one node each, every way to place them is tried.
func TestAgainstAllPlacings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reckon := placingSome(t, rapid.Bool().Draw(t, "rounds"))
		free := rapid.SliceOfN(rapid.Uint32Range(0, 8), 0, 2).Draw(t, "CPUs left on nodes that are up")
		off := rapid.IntRange(1, 4).Draw(t, "nodes off")
		type small struct {
			cpus, mem int
			alone     bool
		}
		wanted := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) small {
			return small{rapid.IntRange(1, 8).Draw(t, "CPUs"), rapid.IntRange(1, 16).Draw(t, "GB"), rapid.IntRange(0, 3).Draw(t, "alone") == 0}
		}), 1, 5).Draw(t, "jobs")
		s := cluster(len(free) + off)
		bins := make([]small, len(s.Nodes)-4)
		for i := range bins {
			bins[i] = small{8, 16, true}
			if i < len(free) {
				s.Nodes[i].State, s.Nodes[i].AllocCPUs = NodeUp, 8-free[i]
				bins[i] = small{int(free[i]), 16, free[i] == 8}
			}
		}
		for i, w := range wanted {
			j := with(cpuJob(uint32(i+1)), func(j *Job) { j.Tasks, j.CPUs, j.Memory = uint32(w.cpus), uint32(w.cpus), uint64(w.mem)*1000 })
			if w.alone {
				j.Exclusive = ExclusiveNode
			}
			s.Jobs = append(s.Jobs, j)
		}
		r := reckon(s)
		if slices.ContainsFunc(r.Jobs, func(j JobDemand) bool { return !j.Why.Counts() }) {
			return // not all of them have room
		}
		best := len(bins) + 1
		used := make([]bool, len(bins))
		var try func(int, int)
		try = func(i, opened int) {
			if opened >= best {
				return
			}
			if i == len(wanted) {
				best = opened
				return
			}
			w := wanted[i]
			for b := range bins {
				was, wasUsed := bins[b], used[b]
				if was.cpus < w.cpus || was.mem < w.mem || w.alone && !was.alone {
					continue
				}
				bins[b] = small{was.cpus - w.cpus, was.mem - w.mem, false}
				if w.alone {
					bins[b] = small{}
				}
				more := 0
				if b >= len(free) && !wasUsed {
					more = 1
				}
				used[b] = true
				try(i+1, opened+more)
				bins[b], used[b] = was, wasUsed
				if more == 1 {
					break // the others that are off are no different
				}
			}
		}
		try(0, 0)
		require.LessOrEqual(t, r.New.Lower, best, "%+v", r)
		require.GreaterOrEqual(t, r.New.Greedy, best, "%+v", r)
	})
}

// Equal jobs on equal nodes need exactly what the lower bound says.
func TestEqualJobs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reckon := placingSome(t, rapid.Bool().Draw(t, "rounds"))
		cpus, mem := rapid.Uint32Range(1, 8).Draw(t, "CPUs"), rapid.Uint64Range(1, 16_000).Draw(t, "memory")
		tasks := rapid.IntRange(1, 60).Draw(t, "tasks")
		j := with(cpuJob(1), func(j *Job) {
			j.Tasks, j.CPUs, j.Memory, j.ArrayTasks = cpus, cpus, mem, fmt.Sprintf("1-%d", tasks)
		})
		r := reckon(cluster(100, j))
		per := min(8/int(cpus), int(16_000/mem))
		nodes := (tasks + per - 1) / per
		require.Equal(t, Estimate{nodes, nodes}, r.New)
	})
}

func TestHugeNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reckon := placingSome(t, rapid.Bool().Draw(t, "rounds"))
		big := rapid.SampledFrom([]uint32{0, 1, 1 << 16, 1<<31 - 1, 1<<32 - 1})
		j := cpuJob(1)
		j.MinNodes, j.MaxNodes, j.Tasks, j.CPUs = big.Draw(t, "min"), big.Draw(t, "max"), big.Draw(t, "tasks"), big.Draw(t, "CPUs")
		j.CPUsPerTask, j.TasksPerNode, j.TasksPerCore, j.CPUsPerNode = big.Draw(t, "per task"), big.Draw(t, "per node"), big.Draw(t, "per core"), big.Draw(t, "at least")
		j.SocketsPerNode, j.ThreadsPerCore, j.TasksPerSocket = big.Draw(t, "sockets"), big.Draw(t, "threads"), big.Draw(t, "per socket")
		j.Memory, j.MemoryPerCPU = rapid.SampledFrom([]uint64{0, 1, 1 << 40, 1<<63 - 1, 1<<64 - 1}).Draw(t, "memory"), rapid.Bool().Draw(t, "by CPU")
		j.TRESPerTask = rapid.SampledFrom([]string{"", "gres/gpu:1", "gres/gpu:9223372036854775807"}).Draw(t, "gres")
		s := cluster(3, j)
		start := time.Now()
		r := reckon(s)
		assert.Less(t, time.Since(start), time.Second)
		require.LessOrEqual(t, r.New.Greedy, 3)
		require.GreaterOrEqual(t, r.New.Lower, 0)
		require.LessOrEqual(t, r.New.Lower, r.New.Greedy)
	})
}

// placingSome reckons demand with all, some or none of the jobs placed as exactly as it can.
func placingSome(t *rapid.T, rounds bool) func(Snapshot) Report {
	looks := rapid.SampledFrom([]int{exactLooks, 0, 20, 500}).Draw(t, "looks")
	return func(s Snapshot) Report {
		d := newDemand(testNow, &s)
		d.looks, d.rounds = looks, rounds
		return d.reckon()
	}
}
