package scaler

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
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

// harder are queues of other kinds than that of large: all of their jobs are eligible.
var harder = map[string]func(s *Snapshot){
	"eligible": func(*Snapshot) {},
	"array limits": func(s *Snapshot) {
		each(s, func(_ int, j *Job) { j.ArrayJobID, j.ArrayTasks, j.ArrayLimit = j.ID, "0-4%500", 500 })
	},
	"exclusive=user": func(s *Snapshot) { each(s, func(_ int, j *Job) { j.Exclusive = ExclusiveUser }) },
	"busy": func(s *Snapshot) {
		for i := range s.Nodes {
			n := &s.Nodes[i]
			n.State, n.AllocCPUs, n.AllocMemory = NodeUp, 64, 256_000
		}
	},
	"het": func(s *Snapshot) {
		each(s, func(i int, j *Job) {
			if i < 200 {
				j.HetJobID, j.HetOffset = j.ID-uint32(i%2), i%2
			}
		})
	},
	"exclude": func(s *Snapshot) {
		each(s, func(i int, j *Job) { j.ExcludedNodes = fmt.Sprintf("set%d-[%d-%d]", i%20, i%200, i%200+40) })
	},
	"reservations": func(s *Snapshot) {
		for i := range s.Nodes {
			if i%10 == 0 {
				s.Nodes[i].Reservation = fmt.Sprintf("r%d", i/10)
			}
		}
	},
	"oversubscribe": func(s *Snapshot) {
		for p := range s.Partitions {
			s.Partitions[p].Share = 4
		}
		each(s, func(_ int, j *Job) { j.Oversubscribe = true })
	},
}

// each changes the single jobs.
func each(s *Snapshot, change func(i int, j *Job)) {
	i := 0
	for at := range s.Jobs {
		if j := &s.Jobs[at]; j.State == JobPending && j.ArrayJobID == 0 {
			change(i, j)
			i++
		}
	}
}

func BenchmarkDemand(b *testing.B) {
	for _, shapes := range []int{50, 500, 20_000} {
		b.Run(fmt.Sprintf("requests=%d", shapes), func(b *testing.B) { benchmark(b, large(shapes)) })
	}
	for _, name := range slices.Sorted(maps.Keys(harder)) {
		b.Run("queue="+strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			s := large(500)
			each(&s, func(_ int, j *Job) {
				if j.Reason == "Dependency" || j.Reason == "QOSMaxCpuPerUserLimit" {
					j.Reason = "Priority"
				}
			})
			harder[name](&s)
			benchmark(b, s)
		})
	}
}

func benchmark(b *testing.B, s Snapshot) {
	now := time.Unix(1_800_000_000, 0)
	b.ReportAllocs()
	before := cpuTime(b)
	for b.Loop() {
		r := Demand(now, s)
		if r.New.Lower > r.New.Greedy {
			b.Fatal(r.New)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
}

// cpuTime is what the process has used of the processor: on a machine with other work it says more than the clock.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
