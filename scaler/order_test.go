package scaler

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// het makes a het job of jobs in these partitions, the first with this ID.
func het(id uint32, partitions ...string) (jobs []Job) {
	for i, p := range partitions {
		jobs = append(jobs, with(cpuJob(id+uint32(i)), func(j *Job) { j.HetJobID, j.HetOffset, j.Partitions = id, i, p }))
	}
	return jobs
}

// Where jobs come to run when there are het jobs before them, and what that takes.
func TestOrderWithHetJobs(t *testing.T) {
	cpus := func(id, n uint32) Job {
		return with(cpuJob(id), func(j *Job) { j.Tasks, j.CPUs, j.Priority = n, n, 500 })
	}
	in := func(partition string, j Job) Job { return with(j, func(j *Job) { j.Partitions = partition }) }
	array := with(cpus(5, 4), func(j *Job) { j.ArrayJobID, j.ArrayTasks = 5, "0-3" })
	for name, tc := range map[string]struct {
		jobs     []Job
		nodes    map[uint32][]string // slurmctld would choose by itself
		cpu, gpu int                 // to power up
	}{
		"after it, on other nodes, where it then starts": {append(het(1, "cpu", "gpu"), cpus(5, 4)),
			map[uint32][]string{1: {"cpu-1"}, 2: {"gpu-0"}, 5: {"cpu-1"}}, 1, 1},
		"so more may be powered up than are needed": {append(het(1, "cpu", "gpu"), cpus(5, 4), cpus(6, 8)),
			map[uint32][]string{1: {"cpu-3"}, 2: {"gpu-0"}, 5: {"cpu-1"}, 6: {"cpu-2"}}, 2, 1},
		"or a node more is needed": {append(het(1, "cpu", "gpu"), cpus(5, 4), cpus(6, 8), cpus(7, 4)),
			map[uint32][]string{1: {"cpu-0"}, 2: {"gpu-0"}, 5: {"cpu-1"}, 6: {"cpu-2"}, 7: {"cpu-1"}}, 3, 1},
		"before it": {append(het(1, "cpu", "gpu"), with(cpus(5, 4), func(j *Job) { j.Priority = 2000 })),
			map[uint32][]string{1: {"cpu-0"}, 2: {"gpu-0"}, 5: {"cpu-0"}}, 1, 1},
		"tasks of an array": {append(het(1, "cpu", "gpu"), array),
			map[uint32][]string{1: {"cpu-0"}, 2: {"gpu-0"}, 5: {"cpu-1", "cpu-1", "cpu-2", "cpu-2"}}, 3, 1},
		"two of them": {append(het(1, "cpu", "gpu"), het(3, "cpu", "gpu")...),
			map[uint32][]string{1: {"cpu-0"}, 2: {"gpu-0"}, 3: {"cpu-0"}, 4: {"gpu-0"}}, 1, 1},
		"its partition is closed": {append(het(1, "cpu", "far"), in("all", cpus(5, 1))),
			map[uint32][]string{1: {"cpu-0"}, 2: {"far-0"}, 5: {"gpu-0"}}, 1, 0},
		"twice the same: all is left to backfill": {append(het(1, "cpu", "cpu"), in("all", cpus(5, 1))),
			map[uint32][]string{1: {"cpu-2"}, 2: {"cpu-3"}, 5: {"cpu-2"}}, 2, 0},
		"one that does not fit keeps nothing": {append(het(1, "cpu", "far", "far"), cpus(5, 4)),
			map[uint32][]string{5: {"cpu-0"}}, 1, 0},
		"nor does one that is impossible": {append(het(1, "cpu", "none"), cpus(5, 4)),
			map[uint32][]string{5: {"cpu-0"}}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster(4, tc.jobs...)
			s.Partitions, s.NodeSets = append(s.Partitions, Partition{Name: "far"}), append(s.NodeSets, NodeSet{Name: "far"})
			s.Nodes = append(s.Nodes, Node{Name: "far-0", NodeSet: "far", Partitions: []string{"far"}, State: NodeOff, Shape: cpuShape})
			if name == "one that does not fit keeps nothing" { // but could, with a node that is down
				s.Nodes = append(s.Nodes, Node{Name: "far-1", NodeSet: "far", Partitions: []string{"far"}, Shape: cpuShape})
			}
			nodes := map[uint32][]string{}
			d := newDemand(testNow, &s)
			d.rounds = false
			d.tell = func(id uint32, spots []spot) {
				for _, spot := range spots {
					nodes[id] = append(nodes[id], d.world.bins[spot.bin].name)
				}
			}
			d.reckon()
			for _, names := range nodes {
				slices.Sort(names)
			}
			assert.Equal(t, tc.nodes, nodes)
			r := Demand(testNow, s)
			assert.Equal(t, []int{tc.cpu, tc.gpu}, []int{r.NodeSets[0].New.Greedy, r.NodeSets[1].New.Greedy}, "%+v", r)
			for _, j := range r.Jobs {
				assert.Equal(t, len(tc.nodes[j.ID]) > 0, j.Counted > 0, "%v", j)
			}
		})
	}
}

// Where a het job goes after nodes were given to others: from 26.05 on these boot by then, and come first.
func TestOrderOfNodesThatBoot(t *testing.T) {
	cpus := func(j Job, n uint32) Job {
		return with(j, func(j *Job) { j.Tasks, j.CPUs, j.MaxNodes, j.Memory = n, n, n, 500 })
	}
	hets := het(2, "cpu", "gpu")
	hets[0] = cpus(hets[0], 4)
	for name, tc := range map[string]struct {
		sel  Select
		want []string
	}{
		"26.05": {Select{OneNodeFirstFit: true}, []string{"cpu-0", "cpu-1"}},
		"24.11": {Select{}, []string{"cpu-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster(4, append([]Job{cpus(cpuJob(1), 6)}, hets...)...)
			s.Select = tc.sel
			var nodes []string
			d := newDemand(testNow, &s)
			d.rounds = false
			d.tell = func(id uint32, spots []spot) {
				for _, spot := range spots {
					if id == 2 {
						nodes = append(nodes, d.world.bins[spot.bin].name)
					}
				}
			}
			d.reckon()
			assert.Equal(t, tc.want, nodes)
		})
	}
}

// One task with GPUs of its node goes where the least CPUs are left, and not to the first node with room (26.05).
func TestGPUsOfANode(t *testing.T) {
	gpu := with(cpuJob(1), func(j *Job) { j.Partitions, j.TRESPerNode = "gpu", "gres/gpu:1" })
	for name, tc := range map[string]struct {
		job  Job
		want string
	}{
		"GPUs of its node": {gpu, "gpu-1"},
		"none":             {with(gpu, func(j *Job) { j.TRESPerNode = "" }), "gpu-0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster(4, tc.job)
			s.Select.OneNodeFirstFit = true
			for i := range s.Nodes {
				switch s.Nodes[i].Name {
				case "gpu-0":
					s.Nodes[i].State = NodeUp
				case "gpu-1":
					s.Nodes[i].State, s.Nodes[i].AllocCPUs = NodeUp, 2
				}
			}
			d := newDemand(testNow, &s)
			d.tell = func(_ uint32, spots []spot) { assert.Equal(t, tc.want, d.world.bins[spots[0].bin].name) }
			d.rounds = false
			r := d.reckon()
			assert.Equal(t, 1, r.Jobs[0].Counted)
		})
	}
}

// Jobs share cores with those of their own kind only: one in each row.
func TestSharedCores(t *testing.T) {
	shared := func(id, cpus uint32) Job {
		return with(cpuJob(id), func(j *Job) {
			j.Partitions, j.Oversubscribe, j.Memory, j.Tasks, j.CPUs = "shared", true, 500, cpus, cpus
		})
	}
	plain := func(id uint32, partition string) Job {
		return with(cpuJob(id), func(j *Job) { j.Partitions = partition })
	}
	runs := func(id uint32, partition string, oversubscribe bool) Job {
		return Job{ID: id, State: JobRunning, UserID: 1000, Nodes: "cpu-0", Request: Request{Partitions: partition, Oversubscribe: oversubscribe}}
	}
	for name, tc := range map[string]struct {
		jobs  []Job
		alloc uint32 // CPUs of cpu-0, which is up, if there are any
		cpu   int    // to power up
	}{
		"two in each of two rows":      {several(4, shared(1, 3)), 0, 1},
		"no row has as much left":      {several(5, shared(1, 3)), 0, 2},
		"what two rows leave":          {append(several(4, shared(1, 3)), with(plain(9, "shared"), func(j *Job) { j.Tasks, j.CPUs = 2, 2 })), 0, 1},
		"all cores twice":              {several(2, shared(1, 8)), 0, 1},
		"three times":                  {several(3, shared(1, 8)), 0, 2},
		"none beside others":           {[]Job{plain(1, "cpu"), shared(2, 1)}, 0, 2},
		"no others beside them":        {[]Job{shared(1, 1), plain(2, "cpu")}, 0, 2},
		"but those of the partition":   {[]Job{shared(1, 1), plain(2, "shared")}, 0, 1},
		"then none that share":         {[]Job{shared(1, 1), plain(2, "shared"), shared(3, 1)}, 0, 2},
		"another partition's, as well": {[]Job{shared(1, 1), with(shared(2, 1), func(j *Job) { j.Partitions = "also" })}, 0, 1},
		"but no row of another's":      {[]Job{shared(1, 8), with(shared(2, 1), func(j *Job) { j.Partitions = "also" })}, 0, 2},
		"by force":                     {several(16, with(plain(1, "force"), func(j *Job) { j.Memory = 500 })), 0, 1},
		"beside one that runs":         {[]Job{runs(9, "shared", true), shared(1, 8)}, 8, 0},
		"beside one that is forced":    {[]Job{runs(9, "force", false), with(shared(1, 8), func(j *Job) { j.Partitions = "force" })}, 8, 0},
		"beside two that run":          {[]Job{runs(9, "shared", true), runs(8, "shared", true), shared(1, 8)}, 8, 1},
		"one that runs shares not":     {[]Job{runs(9, "shared", false), shared(1, 1)}, 1, 1},
		"one that runs in no such":     {[]Job{runs(9, "cpu", true), shared(1, 1)}, 1, 1},
		"somebody's":                   {[]Job{shared(1, 1)}, 1, 1},
		"others beside one that runs":  {[]Job{runs(9, "shared", true), plain(1, "cpu")}, 1, 1},
		"whole nodes":                  {[]Job{shared(1, 1), with(shared(2, 1), func(j *Job) { j.Exclusive = ExclusiveNode })}, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster(4, tc.jobs...)
			s.Partitions = append(s.Partitions, Partition{Name: "shared", Share: 2}, Partition{Name: "also", Share: 2}, Partition{Name: "force", Share: 2, ForceShare: true})
			for i := range s.Nodes[:4] {
				s.Nodes[i].Partitions = []string{"cpu", "shared", "also", "force"}
			}
			if tc.alloc > 0 {
				s.Nodes[0].State, s.Nodes[0].AllocCPUs = NodeUp, tc.alloc
			}
			r := Demand(testNow, s)
			assert.Equal(t, tc.cpu, r.NodeSets[0].New.Greedy, "%+v", r)
			assert.LessOrEqual(t, r.New.Lower, r.New.Greedy)
			d := newDemand(testNow, &s)
			d.looks = 0 // as at the end of a long queue
			r = d.reckon()
			assert.Equal(t, tc.cpu, r.NodeSets[0].New.Greedy, "%+v", r)
			assert.LessOrEqual(t, r.New.Lower, r.New.Greedy)
			for _, j := range r.Jobs {
				assert.Equal(t, 1, j.Counted)
			}
		})
	}
}
