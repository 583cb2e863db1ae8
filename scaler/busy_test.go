package scaler

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Nodes that are up, boot, or are in use.
func TestBusyNodes(t *testing.T) {
	set := func(change func(*Snapshot)) Snapshot {
		s := cluster(4, several(8, cpuJob(1))...)
		change(&s)
		return s
	}
	runs := func(id uint32, nodes string, ends time.Duration) Job {
		return Job{ID: id, State: JobRunning, UserID: 1000, Nodes: nodes, End: testNow.Add(ends)}
	}
	for name, tc := range map[string]struct {
		s    Snapshot
		want NodeSetDemand
		why  Why
	}{
		"idle node": {set(func(s *Snapshot) { s.Nodes[2].State = NodeUp }),
			NodeSetDemand{Ready: 1, Up: 1, Off: 3, Jobs: 8, CPUs: 8}, WhyRoom},
		"booting node": {set(func(s *Snapshot) { s.Nodes[2].State = NodeBooting }),
			NodeSetDemand{Ready: 1, Booting: 1, Off: 3, Jobs: 8, CPUs: 8}, WhyRoom},
		"half a node": {set(func(s *Snapshot) { s.Nodes[2].State, s.Nodes[2].AllocCPUs = NodeUp, 4 }),
			NodeSetDemand{New: Estimate{1, 1}, InUse: 1, Up: 1, Off: 3, Jobs: 8, CPUs: 8}, WhyRoom},
		"no memory left": {set(func(s *Snapshot) {
			s.Nodes[2].State, s.Nodes[2].AllocCPUs, s.Nodes[2].AllocMemory = NodeUp, 1, 16_000
		}), NodeSetDemand{New: Estimate{1, 1}, InUse: 1, Up: 1, Off: 3, Jobs: 8, CPUs: 8}, WhyCapacity},
		"full node": {set(func(s *Snapshot) { s.Nodes[2].State, s.Nodes[2].AllocCPUs = NodeUp, 8 }),
			NodeSetDemand{New: Estimate{1, 1}, InUse: 1, Up: 1, Off: 3, Jobs: 8, CPUs: 8}, WhyCapacity},
		"down": {set(func(s *Snapshot) { s.Nodes[0].State = NodeUnusable }),
			NodeSetDemand{New: Estimate{1, 1}, Unusable: 1, Off: 3, Jobs: 8, CPUs: 8}, WhyCapacity},
		"all in use": {set(func(s *Snapshot) {
			for i := range 4 {
				s.Nodes[i].State, s.Nodes[i].AllocCPUs = NodeUp, 8
			}
		}), NodeSetDemand{InUse: 4, Up: 4}, WhyFull},
		"reserved for others": {set(func(s *Snapshot) {
			for i := range 4 {
				s.Nodes[i].Reservation = "theirs"
			}
		}), NodeSetDemand{Off: 4}, WhyReservation},
		"one of its reservations": {set(func(s *Snapshot) {
			for i := range s.Jobs {
				s.Jobs[i].Reservation = "mine,ours"
			}
			s.Nodes[1].Reservation, s.Nodes[3].Reservation = "ours", "theirs"
		}), NodeSetDemand{New: Estimate{1, 1}, Off: 4, Jobs: 8, CPUs: 8}, WhyCapacity},
		"ends later": {set(func(s *Snapshot) {
			s.Nodes[2].State, s.Nodes[2].AllocCPUs = NodeUp, 8
			s.Jobs = append(s.Jobs, runs(90, "cpu-2", 61*time.Second))
			s.FreeWithin = 30 * time.Second
		}), NodeSetDemand{New: Estimate{1, 1}, InUse: 1, Up: 1, Off: 3, Jobs: 8, CPUs: 8}, WhyCapacity},
		"ends soon": {set(func(s *Snapshot) {
			s.Nodes[2].State, s.Nodes[2].AllocCPUs = NodeUp, 8
			s.Jobs = append(s.Jobs, runs(90, "cpu-2", 20*time.Second), Job{ID: 91, State: JobLeaving, Nodes: "cpu-[2,9]"})
			s.FreeWithin = 30 * time.Second
		}), NodeSetDemand{InUse: 1, FreeingSoon: 1, Up: 1, Off: 3, Jobs: 8, CPUs: 8}, WhyRoom},
		"ends soon, not asked": {set(func(s *Snapshot) {
			s.Nodes[2].State, s.Nodes[2].AllocCPUs = NodeUp, 8
			s.Jobs = append(s.Jobs, runs(90, "cpu-2", 60*time.Second))
		}), NodeSetDemand{New: Estimate{1, 1}, InUse: 1, FreeingSoon: 1, Up: 1, Off: 3, Jobs: 8, CPUs: 8}, WhyCapacity},
		"never ends": {set(func(s *Snapshot) {
			s.Nodes[2].State, s.Nodes[2].AllocCPUs = NodeUp, 8
			s.Jobs = append(s.Jobs, runs(90, "cpu-2", 20*time.Second), Job{ID: 91, State: JobRunning, Nodes: "cpu-2"})
			s.FreeWithin = 30 * time.Second
		}), NodeSetDemand{New: Estimate{1, 1}, InUse: 1, Up: 1, Off: 3, Jobs: 8, CPUs: 8}, WhyCapacity},
		"leaving": {set(func(s *Snapshot) {
			s.Nodes[2].State = NodeUp
			s.Jobs = append(s.Jobs, Job{ID: 91, State: JobLeaving, Nodes: "cpu-2"})
		}), NodeSetDemand{InUse: 1, FreeingSoon: 1, Up: 1, Off: 3, Jobs: 8, CPUs: 8}, WhyRoom},
		"of another user": {set(func(s *Snapshot) {
			s.Nodes[2].State, s.Nodes[2].AllocCPUs = NodeUp, 1
			s.Jobs = append(several(8, with(cpuJob(1), func(j *Job) { j.UserID = 7 })), with(runs(90, "cpu-2", time.Hour), func(j *Job) { j.Exclusive = ExclusiveUser }))
		}), NodeSetDemand{New: Estimate{1, 1}, InUse: 1, Up: 1, Off: 3, Jobs: 8, CPUs: 8}, WhyCapacity},
		"of the same user": {set(func(s *Snapshot) {
			s.Nodes[2].State, s.Nodes[2].AllocCPUs = NodeUp, 0
			s.Jobs = append(several(8, cpuJob(1)), with(runs(90, "cpu-2", time.Hour), func(j *Job) { j.Exclusive = ExclusiveUser }))
		}), NodeSetDemand{InUse: 1, Up: 1, Off: 3, Jobs: 8, CPUs: 8}, WhyRoom},
		"no records yet": {set(func(s *Snapshot) {
			s.Nodes = s.Nodes[4:]
			s.NodeSets[0] = NodeSet{Name: "cpu", Max: 3, Shape: cpuShape, Partitions: []string{"cpu"}}
		}), NodeSetDemand{New: Estimate{1, 1}, Off: 3, Jobs: 8, CPUs: 8}, WhyCapacity},
		"some records": {set(func(s *Snapshot) {
			s.Nodes = s.Nodes[3:]
			s.Nodes[0].State, s.Nodes[0].AllocCPUs = NodeUp, 8
			s.NodeSets[0] = NodeSet{Name: "cpu", Max: 3, Shape: cpuShape, Partitions: []string{"cpu"}}
		}), NodeSetDemand{New: Estimate{1, 1}, InUse: 1, Up: 1, Off: 2, Jobs: 8, CPUs: 8}, WhyCapacity},
	} {
		t.Run(name, func(t *testing.T) {
			tc.want.Name = "cpu"
			r := Demand(testNow, tc.s)
			assert.Subset(t, []string{"cpu-0", "cpu-1", "cpu-3"}, r.NodeSets[0].PowerUp)
			tc.want.PowerUp = r.NodeSets[0].PowerUp
			assert.Equal(t, tc.want, r.NodeSets[0])
			assert.Equal(t, tc.why, r.Jobs[0].Why, r.Jobs[0])
		})
	}
}

func TestGPUsInUse(t *testing.T) {
	job := with(cpuJob(1), func(j *Job) { j.Partitions, j.TRESPerNode = "gpu", "gres/gpu:4" })
	s := cluster(1, several(3, job)...)
	s.Nodes[1].State, s.Nodes[1].AllocCPUs, s.Nodes[1].GresUsed = NodeUp, 2, "gpu:h100:4(IDX:0-3)"
	r := Demand(testNow, s)
	assert.Equal(t, Estimate{1, 1}, r.NodeSets[1].New)
	assert.Equal(t, int64(12), r.NodeSets[1].GPUs)
	assert.Equal(t, int64(6), r.NodeSets[1].CPUs, "a whole core each")
	for gres, used := range map[string]string{
		"gpu:8": "gpu:(null):4(IDX:0-3)", "gpu:8(S:0-1)": "gpu:h100:4(IDX:0-3)", "gpu:h100:4,gpu:h200:4": "gpu:4", // by gres.conf with and without types
	} {
		shape := *gpuShape
		shape.Gres = gres
		t.Run(used+" of "+gres, func(t *testing.T) {
			s := cluster(1, several(4, job)...)
			for i := range s.Nodes {
				s.Nodes[i].Shape = &shape
			}
			s.Nodes[1].State, s.Nodes[1].AllocCPUs, s.Nodes[1].GresUsed = NodeUp, 2, used
			assert.Equal(t, Estimate{2, 2}, Demand(testNow, s).NodeSets[1].New)
			s.Nodes[1].AllocCPUs, s.Nodes[1].GresUsed = 0, strings.Replace(used, ":4", ":0", 1)
			s.Jobs = s.Jobs[:2]
			assert.Equal(t, Estimate{}, Demand(testNow, s).NodeSets[1].New)
		})
	}
	s.Nodes[1].GresUsed = "gpu:h100:x"
	assert.Equal(t, Estimate{2, 2}, Demand(testNow, s).NodeSets[1].New, "what cannot be read is in use")
}

// Nodes outside of all NodeSets are used where they are up, and asked of nobody where they are off.
func TestElsewhere(t *testing.T) {
	s := cluster(2, several(16, cpuJob(1))...)
	for i := range 2 {
		s.Nodes[i].NodeSet = ""
	}
	r := Demand(testNow, s)
	assert.Equal(t, WhyElsewhere, r.Jobs[0].Why)
	assert.Zero(t, r.New)

	s = cluster(3, several(16, cpuJob(1))...)
	s.Nodes[0].NodeSet, s.Nodes[0].State = "", NodeUp
	r = Demand(testNow, s)
	assert.Equal(t, Estimate{1, 1}, r.New)
	assert.Equal(t, WhyRoom, r.Jobs[0].Why)
	assert.Equal(t, WhyCapacity, r.Jobs[15].Why)
	assert.Equal(t, int64(8), r.NodeSets[0].Jobs)
}

// The unit in which slurmctld hands out CPUs.
func TestSelect(t *testing.T) {
	job := with(cpuJob(1), func(j *Job) { j.Partitions = "gpu" })
	for name, tc := range map[string]struct {
		sel  Select
		want int
	}{
		"cores":     {Select{}, 2},              // 16 cores
		"CPUs":      {Select{CPUs: true}, 1},    // 32 threads
		"sockets":   {Select{Sockets: true}, 4}, // 2 a node, and there are 4 nodes
		"no memory": {Select{NoMemory: true, CPUs: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster(0, several(20, job)...)
			s.Select = tc.sel
			r := Demand(testNow, s)
			assert.Equal(t, tc.want, r.New.Greedy)
			assert.Equal(t, tc.want, r.New.Lower)
		})
	}
	s := cluster(0, several(2, with(job, func(j *Job) { j.Memory = 256_000 }))...)
	s.Select.NoMemory = true
	assert.Equal(t, Estimate{1, 1}, Demand(testNow, s).New)
	s.Jobs[0].Memory = 256_001
	assert.Equal(t, WhyImpossible, Demand(testNow, s).Jobs[0].Why)
}

func TestWeight(t *testing.T) {
	s := cluster(2, with(cpuJob(1), func(j *Job) { j.Partitions = "all" }))
	assert.Equal(t, 1, Demand(testNow, s).NodeSets[0].New.Greedy)
	heavy := *cpuShape
	heavy.Weight = 20
	for i := range 2 {
		s.Nodes[i].Shape = &heavy
	}
	assert.Equal(t, 1, Demand(testNow, s).NodeSets[1].New.Greedy)
	s.Nodes[0].State = NodeUp // up comes before light
	r := Demand(testNow, s)
	assert.Equal(t, Estimate{}, r.New)
	assert.Equal(t, 1, r.NodeSets[0].Ready)
}

func TestNothing(t *testing.T) {
	assert.Equal(t, Report{NodeSets: []NodeSetDemand{}, Jobs: []JobDemand{}}, Demand(testNow, Snapshot{}))
	s := Snapshot{Jobs: []Job{cpuJob(1)}, Partitions: []Partition{{Name: "cpu"}}}
	assert.Equal(t, "job 1: impossible: there is no NodeSet", Demand(testNow, s).Jobs[0].String())
}

func TestString(t *testing.T) {
	assert.Equal(t, "job 1: capacity (16 of 20 tasks count), powers up 2", JobDemand{ID: 1, Why: WhyCapacity, Tasks: 20, Counted: 16, New: 2}.String())
}

// slurmctld guesses how many nodes a job takes. Where so few cannot be had but for a reservation, more may do.
func TestGuessAndReservation(t *testing.T) {
	s := cluster(2, with(tasksOn(1, 1, 1, 16), func(j *Job) { j.Partitions, j.MaxNodesGuessed = "all", true }))
	for i := range s.Nodes[2:] {
		s.Nodes[2+i].Reservation = "theirs"
	}
	r := Demand(testNow, s)
	assert.Equal(t, WhyCapacity, r.Jobs[0].Why, r.Jobs[0])
	assert.Equal(t, 2, r.NodeSets[0].New.Greedy)
}
