package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/hack/demo/printed"
	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/powersave"
)

// midway is a moment at which everything happens.
func midway() *facts {
	taskOf := func(task uint64, states ...string) printed.Job {
		return printed.Job{ID: 4 + uint32(task), ArrayID: printed.Number{Set: true, Number: 3}, ArrayTask: printed.Number{Set: true, Number: task}, Name: "array", States: states, Nodes: "cpu-" + string('2'+rune(task/2))}
	}
	f := &facts{
		Slurm: printed.Look{
			Jobs: []printed.Job{
				{ID: 1, Name: "two-nodes", States: []string{"RUNNING"}, Nodes: "cpu-[0-1]"},
				{ID: 2, Name: "gpu", States: []string{"RUNNING", "CONFIGURING", "POWER_UP_NODE"}, Nodes: "gpu-0"},
				taskOf(0, "COMPLETED"), taskOf(1, "RUNNING"), taskOf(2, "RUNNING", "CONFIGURING"), taskOf(3, "RUNNING"),
				{ID: 9, Name: "srun", States: []string{"PENDING"}, Reason: "Resources"},
			},
			Nodes: []printed.Node{
				slurmNode("cpu-0", "ALLOCATED", "CLOUD"), slurmNode("cpu-1", "ALLOCATED", "CLOUD"),
				slurmNode("cpu-2", "MIXED", "CLOUD"), slurmNode("cpu-3", "ALLOCATED", "CLOUD", "NOT_RESPONDING", "POWERING_UP"),
				slurmNode("cpu-4", "IDLE", "CLOUD", "POWERING_DOWN"), slurmNode("cpu-5", "IDLE", "CLOUD", "POWERED_DOWN"),
				slurmNode("cpu-6", "IDLE", "CLOUD", "POWERED_DOWN"), slurmNode("gpu-0", "MIXED", "CLOUD", "POWERED_DOWN"),
				slurmNode("gpu-1", "IDLE", "CLOUD", "POWERED_DOWN"),
			},
		},
		Pods: map[string]podFact{
			"cpu-0": {Phase: "Running"}, "cpu-1": {Phase: "Running"}, "cpu-2": {Phase: "Running"}, "cpu-3": {Phase: "ContainerCreating"}, "cpu-4": {Phase: "Terminating"},
		},
	}
	boot := func(node string, phase powersave.Phase, requested, registered float64) powersave.Boot {
		b := powersave.Boot{Node: node, Phase: phase, Times: powersave.Timeline{Requested: at(requested)}}
		if registered > 0 {
			b.Times.Registered = at(registered)
		}
		return b
	}
	f.Bridge.Engine = powersave.Status{
		Time:    at(10),
		Boots:   []powersave.Boot{boot("cpu-3", powersave.PhaseStarting, 9.5, 0), boot("gpu-0", powersave.PhaseAccepted, 9.9, 0)},
		Offs:    []powersave.Boot{boot("cpu-4", powersave.PhaseRemoving, 8, 0)},
		History: []powersave.Boot{boot("cpu-0", powersave.PhaseRegistered, 1, 2.4), boot("cpu-1", powersave.PhaseRegistered, 1, 2.5), boot("cpu-2", powersave.PhaseRegistered, 5, 6), boot("cpu-5", powersave.PhaseRegistered, 1, 2)},
	}
	return f
}

func TestTable(t *testing.T) {
	v := newView(midway(), 12345*time.Millisecond, "a GPU job, an array and an srun, each from zero")
	for name, size := range map[string]struct{ width, height int }{
		"table.txt": {100, 50}, "table-narrow.txt": {40, 50}, "table-low.txt": {100, 8},
	} {
		t.Run(name, func(t *testing.T) {
			lines := v.table(size.width, size.height)
			assert.LessOrEqual(t, len(lines), size.height)
			for _, l := range lines {
				assert.LessOrEqual(t, len(l), size.width)
			}
			golden.Compare(t, filepath.Join("testdata", name), strings.Join(lines, "\n")+"\n")
		})
	}
	for width := range 5 {
		for height := range 5 {
			assert.LessOrEqual(t, len(v.table(width, height)), max(1, height), "a window nobody can use must not panic")
		}
	}
}

func TestChanges(t *testing.T) {
	v := newView(midway(), 0, "")
	assert.Equal(t, []string{
		"job 1 two-nodes: RUNNING on cpu-[0-1]",
		"job 2 gpu: CONFIGURING on gpu-0",
		"job 3_* array: 1 COMPLETED on cpu-2",
		"job 3_* array: 2 RUNNING on cpu-[2-3]",
		"job 3_* array: 1 CONFIGURING on cpu-3",
		"job 9 srun: PENDING",
		"slurm cpu-[0-1]: ALLOCATED",
		"slurm cpu-2: MIXED",
		"slurm cpu-3: ALLOCATED+POWERING_UP",
		"slurm cpu-4: IDLE+POWERING_DOWN",
		"slurm gpu-0: MIXED+POWERED_DOWN",
		"pod   cpu-[0-2]: Running",
		"pod   cpu-3: ContainerCreating",
		"pod   cpu-4: Terminating",
		"boot  cpu-[0-2]: registered",
		"boot  cpu-3: starting",
		"boot  cpu-4: removing",
		"boot  gpu-0: accepted",
	}, v.changes(view{}), "nodes at rest are no news at first")
	assert.Empty(t, v.changes(v))

	f := midway()
	f.Slurm.Jobs[0].States = []string{"COMPLETED"}
	f.Slurm.Nodes[4] = slurmNode("cpu-4", "IDLE", "CLOUD", "POWERED_DOWN")
	delete(f.Pods, "cpu-4")
	f.Bridge.Engine.Time = at(11)
	f.Bridge.Engine.Offs = nil
	assert.Equal(t, []string{
		"job 1 two-nodes: COMPLETED on cpu-[0-1]",
		"slurm cpu-4: off",
		"pod   cpu-4: gone",
	}, newView(f, 0, "").changes(v), "that time goes by is no news")
}
