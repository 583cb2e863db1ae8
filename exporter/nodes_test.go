package exporter

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

// value is that of the one sample with these labels.
func value(t *testing.T, list []Sample, m *Metric, labels ...string) float64 {
	t.Helper()
	var found []float64
	for _, s := range list {
		if s.Metric == m && assert.ObjectsAreEqual(labels, s.Labels) {
			found = append(found, s.Value)
		}
	}
	require.Len(t, found, 1, "%s%v", m.Name, labels)
	return found[0]
}

func TestNodeWord(t *testing.T) {
	const (
		idle, allocated, mixed, down = powersave.NodeIdle, powersave.NodeAllocated, powersave.NodeMixed, powersave.NodeDown
		cloud, drain, silent         = powersave.NodeCloud, powersave.NodeDrain, powersave.NodeNotResponding
	)
	for name, tt := range map[string]struct {
		state powersave.NodeState
		want  string
		rest  int
	}{
		"idle":                     {idle, "idle", Idle},
		"planned":                  {idle | powersave.NodePlanned, "idle", Idle},
		"mixed":                    {mixed | cloud, "mixed", Idle},
		"allocated":                {allocated, "allocated", Idle},
		"leaving":                  {idle | powersave.NodeCompleting, "completing", Idle},
		"reserved":                 {idle | powersave.NodeReserved, "reserved", Idle},
		"maintenance":              {idle | powersave.NodeMaintenance | powersave.NodeReserved, "maintenance", Unavailable},
		"job in maintenance":       {allocated | powersave.NodeMaintenance, "allocated", Idle},
		"powered down":             {idle | cloud | powersave.NodePoweredDown, "powered_down", Off},
		"booting":                  {idle | cloud | powersave.NodePoweringUp | silent, "powering_up", Off},
		"booting for a job":        {allocated | cloud | powersave.NodePoweringUp | silent, "powering_up", Off},
		"asked for":                {mixed | cloud | powersave.NodePowerUp | powersave.NodePoweredDown, "powering_up", Off},
		"on the way down":          {idle | cloud | powersave.NodePoweringDown, "powering_down", Off},
		"to go down":               {idle | cloud | powersave.NodePowerDown, "powering_down", Off},
		"to go down after a job":   {allocated | cloud | powersave.NodePowerDown | powersave.NodePowerDrain, "allocated", Idle},
		"boot failed":              {down | cloud | powersave.NodePoweringUp | silent, "down", Unavailable},
		"powered down, and DOWN":   {down | cloud | powersave.NodePoweredDown, "down", Unavailable},
		"powered down, drained":    {idle | drain | powersave.NodePoweredDown, "drained", Unavailable},
		"drained":                  {idle | drain, "drained", Unavailable},
		"draining":                 {mixed | drain, "draining", Unavailable},
		"draining, job leaves":     {idle | drain | powersave.NodeCompleting, "draining", Unavailable},
		"failing":                  {allocated | powersave.NodeFail, "draining", Unavailable},
		"error":                    {powersave.NodeError, "down", Unavailable},
		"silent":                   {idle | silent, "not_responding", Unavailable},
		"wrong registration":       {idle | powersave.NodeInvalidReg, "invalid", Unavailable},
		"and drained for that":     {idle | drain | powersave.NodeInvalidReg, "invalid", Unavailable},
		"blocked":                  {idle | powersave.NodeBlocked, "blocked", Unavailable},
		"job on a blocked one":     {mixed | powersave.NodeBlocked, "mixed", Idle},
		"reboots":                  {idle | powersave.NodeRebootIssued, "rebooting", Unavailable},
		"future":                   {powersave.NodeFuture, "future", Unavailable},
		"unknown":                  {powersave.NodeUnknown, "unknown", Unavailable},
		"words of a Slurm to come": {powersave.NodeOther, "unknown", Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			got := NodeWord(tt.state)
			assert.Equal(t, tt.want, got)
			assert.Contains(t, nodeWords, got, "it would have no series")
			assert.Equal(t, tt.rest, restOf(got))
		})
	}
}

func TestNodeTally(t *testing.T) {
	tally := NewNodeTally(Options{PerNode: true})
	tally.Add(Node{Name: "a", State: powersave.NodeMixed, Partitions: []string{"all", "gpu"}, CPUs: 32, SpecCPUs: 4, AllocCPUs: 8, Memory: 1000, SpecMemory: 50, AllocMemory: 250, FreeMemory: 700, Load: 812,
		Gres: "gpu:h100:4(S:0),gpu:h100:4(S:1),gpu:a10:2,shard:h100:64", GresUsed: "gpu:h100:3(IDX:0-2),gpu:a10:0,shard:h100:0"})
	tally.Add(Node{Name: "b", State: powersave.NodeIdle | powersave.NodePoweredDown, Partitions: []string{"all"}, CPUs: 16, Memory: 500, FreeMemory: -1, Load: -1, Gres: "gpu:h100:8", GresUsed: "gpu:h100:0"})
	tally.Add(Node{Name: "c", State: powersave.NodeDown | powersave.NodeOther, CPUs: 4, AllocCPUs: 9, Memory: 100, Gres: "gpu:x:y:z:1"})
	got := tally.Samples()
	for use, want := range map[string]float64{"allocated": 12, "idle": 24, "off": 16, "unavailable": 0} { // c cannot have more than it has
		assert.InDelta(t, want, value(t, got, mCPUs, use), 0, use)
	}
	for use, want := range map[string]float64{"allocated": 250, "idle": 750, "off": 500, "unavailable": 100} {
		assert.InDelta(t, want*(1<<20), value(t, got, mMemory, use), 0, use)
	}
	for use, want := range map[string]float64{"allocated": 3, "idle": 5, "off": 8, "unavailable": 0} {
		assert.InDelta(t, want, value(t, got, mGres, "gpu", "h100", use), 0, use)
	}
	assert.InDelta(t, 5, value(t, got, mPartitionGres, "gpu", "gpu", "h100", "idle"), 0)
	assert.InDelta(t, 1, value(t, got, mNodes, "mixed"), 0)
	assert.InDelta(t, 1, value(t, got, mNodesFlagged, "other"), 0)
	assert.InDelta(t, 1, value(t, got, mNodesFlagged, "powered_down"), 0)
	assert.Zero(t, value(t, got, mNodesFlagged, "cloud"))
	assert.InDelta(t, 1, value(t, got, mGresUnread), 0, "c's")
	assert.InDelta(t, 1, value(t, got, mPartitionNodes, "all", "powered_down"), 0)
	assert.InDelta(t, 8.12, value(t, got, mNodeLoad, "a"), 1e-9)
	assert.InDelta(t, 4, value(t, got, mNodeCPUsSpec, "a"), 0)
	assert.InDelta(t, 50<<20, value(t, got, mNodeMemorySpec, "a"), 0)
	assert.InDelta(t, 8, value(t, got, mNodeGres, "a", "gpu", "h100"), 0)
	assert.InDelta(t, 3, value(t, got, mNodeGresAllocated, "a", "gpu", "h100"), 0)
	for _, s := range got {
		assert.False(t, s.Metric == mNodeLoad && s.Labels[0] == "b", "nobody has told b's load")
		assert.False(t, s.Metric == mNodeGres && s.Labels[0] == "c")
	}
	assert.Equal(t, map[string]Amount{"h100": {Allocated: 3, Idle: 5, Off: 8}, "a10": {Idle: 2}}, tally.GPUs())
}

// slurmctld may write what a node has as slurm.conf does, without types, and what is used as gres.conf does. Each GPU in use counts once.
func TestTypesThatDiffer(t *testing.T) {
	for name, tt := range map[string]struct {
		has, used string
		want      map[string]Amount
	}{
		"no type in slurm.conf":    {"gpu:8", "gpu:h100:3(IDX:0-2)", map[string]Amount{"": {Allocated: 3, Idle: 5}}},
		"no type in use":           {"gpu:h100:8", "gpu:2", map[string]Amount{"h100": {Allocated: 2, Idle: 6}}},
		"two types, one of each":   {"gpu:h100:4,gpu:a10:4", "gpu:h100:1(IDX:0),gpu:a10:2(IDX:4-5)", map[string]Amount{"h100": {Allocated: 1, Idle: 3}, "a10": {Allocated: 2, Idle: 2}}},
		"a type that is not there": {"gpu:h100:4,gpu:a10:4", "gpu:a10:1,gpu:t4:2", map[string]Amount{"h100": {Allocated: 2, Idle: 2}, "a10": {Allocated: 1, Idle: 3}}},
		"another resource":         {"gpu:4", "shard:h100:3", map[string]Amount{"": {Idle: 4}}},
		"no GPU":                   {"craynetwork:4", "", map[string]Amount{}},
	} {
		t.Run(name, func(t *testing.T) {
			tally := NewNodeTally(Options{})
			tally.Add(Node{Name: "a", State: powersave.NodeIdle, Gres: tt.has, GresUsed: tt.used})
			assert.Equal(t, tt.want, tally.GPUs())
		})
	}
}

func TestSamplesBounded(t *testing.T) {
	few, many := NewNodeTally(Options{}), NewNodeTally(Options{})
	add := func(tally *NodeTally, n int) {
		for i := range n {
			tally.Add(Node{Name: string(rune('a' + i)), State: powersave.NodeIdle, Partitions: []string{"p"}, CPUs: 1, Gres: "gpu:1"})
		}
	}
	add(few, 1)
	add(many, 1000)
	assert.Len(t, many.Samples(), len(few.Samples()), "nodes have no series of their own")
}
