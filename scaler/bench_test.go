package scaler

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// large is 5,000 nodes in 20 NodeSets, of which some are up and partly used, an array of 100,000 tasks and 20,000 single
// jobs with as many different requests as shapes.
func large(shapes int) Snapshot {
	random := rand.New(rand.NewPCG(1, 2))
	s := Snapshot{}
	for i := range 20 {
		name := fmt.Sprintf("set%d", i)
		shape := &Shape{CPUs: 64, Sockets: 2, Cores: 16, Threads: 2, Memory: 256_000, Features: []string{"cpu", name}, Weight: uint32(i)}
		if i%4 == 3 {
			shape.Gres = "gpu:h100:8(S:0-1)"
		}
		s.NodeSets = append(s.NodeSets, NodeSet{Name: name})
		s.Partitions = append(s.Partitions, Partition{Name: name, Tier: i % 3})
		for k := range 250 {
			n := Node{Name: fmt.Sprintf("%s-%d", name, k), NodeSet: name, Partitions: []string{name, "all"}, Shape: shape, State: NodeOff}
			if k < 50 {
				n.State, n.AllocCPUs, n.AllocMemory = NodeUp, uint32(random.IntN(33))*2, uint64(random.IntN(200))*1000
				s.Jobs = append(s.Jobs, Job{ID: uint32(1_000_000 + i*250 + k), State: JobRunning, Nodes: n.Name, End: time.Unix(1_800_000_100, 0)})
			}
			s.Nodes = append(s.Nodes, n)
		}
	}
	s.Partitions = append(s.Partitions, Partition{Name: "all"})
	s.Jobs = append(s.Jobs, Job{ID: 1, Reason: "Priority", Priority: 10, ArrayJobID: 1, ArrayTasks: "0-99999", Request: Request{
		Partitions: "all", MinNodes: 1, MaxNodes: 1, Tasks: 1, CPUs: 1, CPUsPerTask: 1, CPUsPerNode: 1, Memory: 2000, MemoryPerCPU: true}})
	words := []string{"Priority", "Resources", "None", "Dependency", "QOSMaxCpuPerUserLimit"}
	for i := range 20_000 {
		k := uint64(i % shapes)
		j := Job{ID: uint32(i + 2), Reason: words[i%len(words)], Priority: uint32(5 + i%11), UserID: uint32(i % 100), Request: Request{
			Partitions: fmt.Sprintf("set%d,all", k%20), MinNodes: uint32(1 + k%4), MaxNodes: uint32(1 + k%4), Tasks: uint32(4 + k%29), CPUs: uint32(4 + k%29),
			CPUsPerTask: 1, CPUsPerNode: 1, Memory: 1000 + k}}
		if k%20%4 == 3 {
			j.TRESPerNode = "gres/gpu:2"
		}
		if k%7 == 0 {
			j.Constraint = "cpu&(" + fmt.Sprintf("set%d", k%20) + "|old)"
		}
		s.Jobs = append(s.Jobs, j)
	}
	return s
}

func BenchmarkDemand(b *testing.B) {
	for _, shapes := range []int{50, 500, 20_000} {
		b.Run(fmt.Sprintf("requests=%d", shapes), func(b *testing.B) {
			s := large(shapes)
			now := time.Unix(1_800_000_000, 0)
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				r := Demand(now, s)
				if r.New.Greedy == 0 || r.New.Lower > r.New.Greedy {
					b.Fatal(r.New)
				}
			}
			b.ReportMetric(float64((cpuTime(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
}

// cpuTime is what the process has used of the processor: on a machine with other work it says more than the clock.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
