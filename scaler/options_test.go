package scaler

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseSelect(t *testing.T) {
	for text, want := range map[string]Select{
		"":                             {},
		"CR_Core_Memory":               {},
		"cr_core_memory,CR_LLN":        {},
		"CR_Core":                      {NoMemory: true},
		"CR_CPU":                       {NoMemory: true, CPUs: true},
		"CR_LLN, CR_CPU_Memory":        {CPUs: true},
		"CR_Socket_Memory":             {Sockets: true},
		"CR_SOCKET,CR_PACK_NODES":      {Sockets: true, NoMemory: true},
		"CR_Core,CR_ONE_TASK_PER_CORE": {NoMemory: true, OneTaskPerCore: true},
	} {
		got, err := ParseSelect(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"CR_Cores":        `"CR_Cores" is none that slurmctld knows`,
		"CR_Memory":       `"CR_Memory" is none`, // select_cons_tres.c refuses it alone
		"CR_Core,CR_CPU":  "CR_CORE and CR_CPU exclude each other",
		"CR_CPU;CR_LLN":   "is none that",
		"CR_Core,_MEMORY": `"_MEMORY" is none`,
	} {
		_, err := ParseSelect(text)
		assert.ErrorContains(t, err, want, text)
	}
}

// With CR_ONE_TASK_PER_CORE a task takes a core, unless its job says how many share one.
func TestOneTaskPerCore(t *testing.T) {
	s := Snapshot{
		Partitions: []Partition{{Name: "p"}}, NodeSets: []NodeSet{{Name: "p"}},
		Nodes: []Node{
			{Name: "p1", NodeSet: "p", Partitions: []string{"p"}, State: NodeOff, Shape: &Shape{CPUs: 8, Sockets: 1, Cores: 4, Threads: 2, Memory: 1000}},
			{Name: "p2", NodeSet: "p", Partitions: []string{"p"}, State: NodeOff, Shape: &Shape{CPUs: 8, Sockets: 1, Cores: 4, Threads: 2, Memory: 1000}},
		},
		Jobs: []Job{{ID: 1, Priority: 1, Request: Request{Partitions: "p", Tasks: 8, CPUs: 8, CPUsPerTask: 1, Memory: 10}}},
	}
	assert.Equal(t, Estimate{1, 1}, Demand(testNow, s).New)
	s.Select.OneTaskPerCore = true
	assert.Equal(t, Estimate{2, 2}, Demand(testNow, s).New)
	s.Jobs[0].TasksPerCore = 2
	assert.Equal(t, Estimate{1, 1}, Demand(testNow, s).New)
}
