package scaler

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPlaceAfter(t *testing.T) {
	now := time.Unix(1795248000, 0)
	shape := &Shape{CPUs: 4, Memory: 1000}
	node := func(name string, state NodeState, cpus uint32) Node {
		return Node{Name: name, NodeSet: "cpu", Partitions: []string{"p"}, State: state, Shape: shape, AllocCPUs: cpus}
	}
	job := func(id uint32, nodes uint32, change func(*Job)) Job {
		j := Job{ID: id, Priority: 1, Request: Request{Partitions: "p", MinNodes: nodes, Tasks: nodes, CPUs: 4 * nodes, CPUsPerTask: 4, Memory: 1000}}
		if change != nil {
			change(&j)
		}
		return j
	}
	later := func(j *Job) { j.Begin, j.Reason = now.Add(time.Minute), "BeginTime" }
	small := func(offset int) func(*Job) {
		return func(j *Job) {
			later(j)
			j.HetJobID, j.HetOffset, j.CPUs, j.CPUsPerTask, j.Memory = 7, offset, j.MinNodes, 1, 100
		}
	}
	nodes := []Node{node("cpu-0", NodeUp, 4), node("cpu-1", NodeUp, 0), node("cpu-2", NodeOff, 0), node("cpu-3", NodeOff, 0)}
	for name, tc := range map[string]struct {
		jobs []Job
		ids  []uint32
		in   time.Duration // they start
		want []string
	}{
		"an idle node first":            {[]Job{job(7, 2, later)}, []uint32{7}, 0, []string{"7: 1 tasks, cpu-1 cpu-2(off)"}},
		"after those that count":        {[]Job{job(1, 1, nil), job(7, 1, later)}, []uint32{7}, 0, []string{"7: 1 tasks, cpu-2(off)"}},
		"one after the other":           {[]Job{job(7, 2, later), job(8, 1, later)}, []uint32{8, 7}, 0, []string{"8: 1 tasks, cpu-1", "7: 1 tasks, cpu-2(off) cpu-3(off)"}},
		"no room":                       {[]Job{job(7, 4, later)}, []uint32{7}, 0, []string{"7: 0 tasks,"}},
		"on a node that gets free":      {[]Job{job(7, 4, later), {ID: 1, State: JobRunning, Nodes: "cpu-0", End: now.Add(30 * time.Second)}}, []uint32{7}, time.Minute, []string{"7: 1 tasks, cpu-1 cpu-2(off) cpu-3(off)"}},
		"an array, task by task":        {[]Job{job(7, 1, func(j *Job) { later(j); j.ArrayJobID, j.ArrayTasks, j.ArrayLimit = 7, "0-9%2", 2 })}, []uint32{7}, 0, []string{"7: 2 tasks, cpu-1 cpu-2(off)"}},
		"an array shares its limit":     {[]Job{job(7, 1, func(j *Job) { later(j); j.ArrayJobID, j.ArrayTasks, j.ArrayLimit = 7, "2-9%3", 3 }), job(8, 1, func(j *Job) { later(j); j.ArrayJobID, j.ArrayLimit = 7, 3 }), {ID: 9, State: JobRunning, ArrayJobID: 7, ArrayLimit: 3, Nodes: "cpu-0"}}, []uint32{7, 8}, 0, []string{"7: 2 tasks, cpu-1 cpu-2(off)", "8: 0 tasks,"}},
		"of the limit some counts":      {[]Job{job(7, 1, func(j *Job) { later(j); j.ArrayJobID, j.ArrayTasks, j.ArrayLimit = 7, "2-9%2", 2 }), job(8, 1, func(j *Job) { j.ArrayJobID, j.ArrayLimit = 7, 2 })}, []uint32{7}, 0, []string{"7: 1 tasks, cpu-2(off)"}},
		"a node that is being left":     {[]Job{job(7, 4, later), {ID: 1, State: JobLeaving, Nodes: "cpu-0"}}, []uint32{7}, 0, []string{"7: 1 tasks, cpu-1 cpu-2(off) cpu-3(off)"}},
		"a het job":                     {[]Job{job(7, 1, small(0)), job(8, 1, small(1))}, []uint32{7, 8}, 0, []string{"7: 1 tasks, cpu-1", "8: 1 tasks, cpu-2(off)"}},
		"a het job, all or nothing":     {[]Job{job(7, 1, small(0)), job(8, 3, small(1)), job(9, 1, later)}, []uint32{7, 8, 9}, 0, []string{"7: 0 tasks,", "8: 0 tasks,", "9: 1 tasks, cpu-1"}},
		"a het job, half of it held":    {[]Job{job(7, 1, small(0)), job(8, 1, func(j *Job) { small(1)(j); j.Priority = 0 })}, []uint32{7, 8}, 0, []string{"7: 0 tasks,", "8: 0 tasks,"}},
		"held":                          {[]Job{job(7, 1, func(j *Job) { later(j); j.Priority = 0 })}, []uint32{7}, 0, []string{"7: 0 tasks,"}},
		"not pending, or not there":     {[]Job{{ID: 1, State: JobRunning, Nodes: "cpu-0"}}, []uint32{1, 9}, 0, nil},
		"named twice":                   {[]Job{job(7, 1, later)}, []uint32{7, 7}, 0, []string{"7: 1 tasks, cpu-1"}},
		"after a job that it waits for": {[]Job{job(7, 1, func(j *Job) { j.Dependent, j.Reason = true, "Dependency" })}, []uint32{7}, 0, []string{"7: 1 tasks, cpu-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := Snapshot{Jobs: tc.jobs, Nodes: nodes, Partitions: []Partition{{Name: "p"}}, NodeSets: []NodeSet{{Name: "cpu"}}}
			var got []string
			var list []Later
			for _, id := range tc.ids {
				list = append(list, Later{ID: id, Start: now.Add(tc.in)})
			}
			for _, p := range PlaceAfter(now, s, list, nil) {
				text := fmt.Sprintf("%d: %d tasks,", p.ID, p.Tasks)
				for _, n := range p.Nodes {
					text += " " + n.Name
					if n.Off {
						text += "(off)"
					}
				}
				got = append(got, text)
			}
			assert.Equal(t, tc.want, got)
		})
	}
}

// Nodes that are up come before those that boot, and these before those that are off (node_scheduler.c _set_sched_weight).
func TestUpBeforeBooting(t *testing.T) {
	for nodes, want := range map[uint32][]PlacedNode{
		1: {{"cpu", "cpu-2", false}},
		2: {{"cpu", "cpu-1", false}, {"cpu", "cpu-2", false}},
		3: {{"cpu", "cpu-0", true}, {"cpu", "cpu-1", false}, {"cpu", "cpu-2", false}},
	} {
		s := cluster(3, with(tasksOn(1, nodes, nodes, nodes), func(j *Job) { j.Exclusive = ExclusiveNode }))
		s.Nodes[1].State, s.Nodes[2].State = NodeBooting, NodeUp
		placed := PlaceAfter(testNow, s, []Later{{ID: 1, Start: testNow}}, nil)
		assert.Equal(t, want, placed[0].Nodes)
	}
}

// What is given back is as it was, however nodes are looked for.
func TestGiveBack(t *testing.T) {
	for name, looks := range map[string]int{"exactly": exactLooks, "the first with room": 0} {
		t.Run(name, func(t *testing.T) {
			job := with(tasksOn(1, 3, 3, 24), func(j *Job) { j.Partitions, j.Exclusive = "gpu", ExclusiveNode })
			s := cluster(0)
			s.Nodes[0].State = NodeUp
			d := newDemand(testNow, &s)
			d.looks = looks
			d.place(nil, false)
			n := d.need(&job)
			place := func() (bins []int32) {
				d.placer.trial, d.placer.undo = true, d.placer.undo[:0]
				defer func() { d.placer.trial = false }()
				for _, s := range d.placer.place(n) {
					bins = append(bins, s.bin)
				}
				return bins
			}
			first := place()
			assert.Equal(t, []int32{0, 1, 2}, first)
			d.placer.giveBack(map[int32]bool{1: true, 2: true})
			assert.Empty(t, d.world.classes[0].lists[booting])
			assert.Equal(t, []int32{1, 2, 3}, place(), "the first is taken")
			d.placer.giveBack(map[int32]bool{2: true})
			assert.Equal(t, []int32{1, 3}, d.world.classes[0].lists[booting])
			assert.Nil(t, place(), "two are left")
		})
	}
}
