package scaler

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var testNow = time.Unix(1_800_000_000, 0)

var (
	cpuShape = &Shape{CPUs: 8, Sockets: 1, Cores: 8, Threads: 1, Memory: 16_000, Features: []string{"cpu", "avx"}}
	gpuShape = &Shape{CPUs: 32, Sockets: 2, Cores: 8, Threads: 2, Memory: 256_000, Gres: "gpu:h100:8(S:0-1)", Features: []string{"gpu", "rack1"}, Weight: 10}
)

// nodesOf makes n nodes of a set with names that start with it.
func nodesOf(set string, n int, shape *Shape, state NodeState) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{Name: fmt.Sprintf("%s-%d", set, i), NodeSet: set, Partitions: []string{set, "all"}, State: state, Shape: shape}
	}
	return nodes
}

// cluster has n powered-down nodes in the NodeSet cpu, and 4 in gpu.
func cluster(n int, jobs ...Job) Snapshot {
	return Snapshot{
		Jobs:       jobs,
		Partitions: []Partition{{Name: "cpu"}, {Name: "gpu"}, {Name: "all"}},
		Nodes:      append(nodesOf("cpu", n, cpuShape, NodeOff), nodesOf("gpu", 4, gpuShape, NodeOff)...),
		NodeSets:   []NodeSet{{Name: "cpu"}, {Name: "gpu"}},
	}
}

// cpuJob asks for one CPU and a GiB.
func cpuJob(id uint32) Job {
	return Job{ID: id, Reason: "Resources", Priority: 1000, UserID: 1000, Request: Request{
		Partitions: "cpu", MinNodes: 1, MaxNodes: 1, Tasks: 1, CPUs: 1, CPUsPerTask: 1, CPUsPerNode: 1, Memory: 1000,
	}}
}

// with changes a job.
func with(j Job, change func(*Job)) Job {
	change(&j)
	return j
}

// tasksOn asks for nodes and tasks; most 0 is no limit.
func tasksOn(id uint32, least, most, tasks uint32) Job {
	return with(cpuJob(id), func(j *Job) { j.MinNodes, j.MaxNodes, j.Tasks, j.CPUs = least, most, tasks, tasks })
}

func TestCompareNames(t *testing.T) {
	sorted := []string{"a", "a1", "a01", "a2", "a10", "b", "cpu-9", "cpu-10"}
	for i := range sorted[1:] {
		assert.Negative(t, compareNames(sorted[i], sorted[i+1]), sorted[i])
		assert.Positive(t, compareNames(sorted[i+1], sorted[i]), sorted[i])
	}
	assert.Zero(t, compareNames("n7", "n7"))
}

func TestArrayTasks(t *testing.T) {
	for list, want := range map[string]struct {
		n    int
		more bool
	}{
		"":                     {1, false},
		"7":                    {1, false},
		"1-4%1":                {4, false},
		"0-99999":              {100_000, false},
		"0-99998:2%5":          {50_000, false},
		"1,3,5-7":              {5, false},
		"0-10:5":               {3, false},
		"1,3,5,7,9,11,13,1...": {8, true},
		"1,3,5-7,...%4":        {5, true},
		"0-...":                {1, true},
		"...":                  {1, true},
		"what":                 {1, true},
		"9-1":                  {1, true},
		"1-5:0,2":              {1, true},
		"0-4294967295":         {1<<31 - 1, false},
	} {
		n, more := ArrayTasks(list)
		assert.Equal(t, want.n, n, list)
		assert.Equal(t, want.more, more, list)
	}
}
