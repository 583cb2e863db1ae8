package exporter

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/powersave"
)

func TestCatalogue(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range Catalogue {
		assert.False(t, seen[m.Name], "%s is there twice", m.Name)
		seen[m.Name] = true
		assert.Regexp(t, `^slurm_[a-z_]+$`, m.Name)
		assert.Equal(t, m.Counter, strings.HasSuffix(m.Name, "_total"), m.Name)
		assert.Regexp(t, `^[A-Z1].*\. Source: GET .*\.$`, m.Help, m.Name)
		assert.Contains(t, Sources, m.Source, m.Name)
		for _, label := range m.Labels {
			assert.NotContains(t, []string{"job", "cluster"}, label, m.Name)
			assert.False(t, label == "job_id" && m.Needs != "--per-job", m.Name)
			assert.False(t, (label == "node" || label == "user" || label == "account") && m.Needs == "", "%s{%s} without a flag", m.Name, label)
		}
	}
}

// Every metric of the catalogue can be had, each sample has the labels of its metric, and those that a flag asks for are not there without it.
func TestEverySampleIsInCatalogue(t *testing.T) {
	all := func(o Options) map[*Metric]bool {
		nodes, jobs := NewNodeTally(o), NewJobTally(time.Unix(100, 0), o)
		nodes.Add(Node{Name: "n", State: powersave.NodeIdle | powersave.NodeCloud, Partitions: []string{"p"}, CPUs: 1, Memory: 1, Gres: "gpu:1"})
		jobs.Add(Job{State: powersave.JobPending, Partitions: "p", User: "u", Eligible: time.Unix(50, 0)})
		jobs.Add(Job{State: powersave.JobRunning, ID: 7, Partitions: "p", NodeList: "n", Submit: time.Unix(50, 0), Start: time.Unix(60, 0), End: time.Unix(70, 0)})
		var nodeGPUs NodeGPUSeconds
		nodeGPUs.Read(time.Unix(0, 0), nodes.NodeGPUs(), time.Minute)
		var gpus GPUSeconds
		gpus.Read(time.Unix(0, 0), nodes.GPUs(), time.Minute)
		var sums NodeSums
		sums.Read(time.Unix(0, 0), NewNodeTally(o), time.Minute)
		failed := NewNodeTally(o)
		failed.Add(Node{Name: "n", State: powersave.NodeDown})
		sums.Read(time.Unix(0, 0), failed, time.Minute)
		one := map[string]float64{"end_job_queue": 1}
		diag := Diag{Since: time.Unix(1, 0), BackfillAt: time.Unix(1, 0), Main: Cycles{Exits: one}, RPCs: []RPC{{Name: "REQUEST_PING"}}, Users: []RPC{{Name: "u"}}}
		have := map[*Metric]bool{}
		for _, list := range [][]Sample{nodes.Samples(), jobs.Samples(), gpus.Samples(), nodeGPUs.Samples(), sums.Samples(o), diag.Samples(o), PartitionSamples([]Partition{{Name: "p", State: "UP"}})} {
			for _, s := range list {
				have[s.Metric] = true
				assert.Len(t, s.Labels, len(s.Metric.Labels), s.Metric.Name)
				assert.Equal(t, s.Metric.Type() == "histogram", s.Counts != nil, s.Metric.Name)
			}
		}
		return have
	}
	asked, plain := all(Options{PerNode: true, PerUser: true, PerJob: 1}), all(Options{})
	for _, m := range Catalogue {
		assert.True(t, asked[m], "%s never has a sample", m.Name)
		assert.Equal(t, m.Needs == "", plain[m], m.Name)
	}
}

func TestDiagSamples(t *testing.T) {
	d := Diag{
		Main:           Cycles{Count: 4, Sum: 2_500_000, Exits: map[string]float64{"max_sched_time": 1}},
		Backfill:       Cycles{Last: 30_000_000},
		BackfillActive: true,
		RPCs:           []RPC{{"0", 1, 1_000_000, 3, 5}, {"REQUEST_PING", 7, 3_000_000, 1, 2}, {"0", 2, 2_000_000, 4, 6}},
		Users:          []RPC{{Name: "root", Count: 9}},
	}
	got := d.Samples(Options{})
	assert.InDelta(t, 2.5, value(t, got, mCycleSeconds, "main"), 1e-9)
	assert.InDelta(t, 30, value(t, got, mCycleLast, "backfill"), 1e-9)
	assert.InDelta(t, 1, value(t, got, mCycleExits, "main", "max_sched_time"), 0)
	assert.InDelta(t, 1, value(t, got, mBackfillActive), 0)
	assert.InDelta(t, 3, value(t, got, mRPCSeconds, "REQUEST_PING"), 1e-9)
	assert.InDelta(t, 3, value(t, got, mRPCs, "0"), 0, "two without a name are one series")
	assert.InDelta(t, 3, value(t, got, mRPCSeconds, "0"), 1e-9)
	assert.InDelta(t, 7, value(t, got, mRPCQueued, "0"), 0)
	assert.InDelta(t, 11, value(t, got, mRPCDropped, "0"), 0)
	for _, s := range got {
		assert.NotEqual(t, mUserRPCs, s.Metric)
		assert.False(t, s.Metric == mSince || s.Metric == mBackfillAt, "a time that is not known is not 1970")
	}
}

func TestPartitionSamples(t *testing.T) {
	got := PartitionSamples([]Partition{{"a", "UP", 10, 20}, {"b", "DRAIN", 0, 0}})
	assert.InDelta(t, 1, value(t, got, mPartitionState, "a", "up"), 0)
	assert.InDelta(t, 0, value(t, got, mPartitionState, "a", "down"), 0)
	assert.InDelta(t, 1, value(t, got, mPartitionState, "b", "drain"), 0)
	assert.InDelta(t, 20, value(t, got, mPartitionConfiguredCPUs, "a"), 0)
}

func TestGPUSeconds(t *testing.T) {
	var s GPUSeconds
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	s.Read(at(100), map[string]Amount{"h100": {Allocated: 2, Off: 6}}, time.Minute)
	assert.InDelta(t, 0, value(t, s.Samples(), mGPUSeconds, "h100", "allocated"), 0)
	s.Read(at(115), map[string]Amount{"h100": {Allocated: 4, Idle: 4}, "": {Idle: 1}}, time.Minute)
	assert.InDelta(t, 30, value(t, s.Samples(), mGPUSeconds, "h100", "allocated"), 0, "what was seen counts until the next look")
	assert.InDelta(t, 90, value(t, s.Samples(), mGPUSeconds, "h100", "off"), 0)
	s.Read(at(1000), map[string]Amount{"h100": {Allocated: 8}}, time.Minute)
	assert.InDelta(t, 30, value(t, s.Samples(), mGPUSeconds, "h100", "allocated"), 0, "nobody knows what was for a quarter of an hour")
	s.Read(at(1010), nil, time.Minute)
	s.Read(at(1020), nil, time.Minute)
	assert.InDelta(t, 110, value(t, s.Samples(), mGPUSeconds, "h100", "allocated"), 0, "a sum stays when its GPUs are gone")
	s.Read(at(1030), map[string]Amount{"h100": {Allocated: 8}}, time.Minute)
	s.Read(at(1000), map[string]Amount{"h100": {Allocated: 8}}, time.Minute)
	assert.InDelta(t, 110, value(t, s.Samples(), mGPUSeconds, "h100", "allocated"), 0, "a clock that was set back takes nothing away")
}

// A node's sums go on while it is there, those of a use begin with 0 when it is first seen, and they go with the node.
func TestNodeGPUSeconds(t *testing.T) {
	var s NodeGPUSeconds
	read := func(seconds int64, nodes ...Node) {
		tally := NewNodeTally(Options{PerNode: true})
		for _, n := range nodes {
			tally.Add(n)
		}
		s.Read(time.Unix(seconds, 0), tally.NodeGPUs(), time.Minute)
	}
	gpus := func(name string, state powersave.NodeState, used string) Node {
		return Node{Name: name, State: state, Gres: "gpu:h100:4(S:0),gpu:h100:4(S:1),gpu:a10:1,shard:64", GresUsed: used}
	}
	const up, off = powersave.NodeMixed, powersave.NodeIdle | powersave.NodePoweredDown
	read(100, gpus("a", up, "gpu:h100:8(IDX:0-7)"), gpus("b", off, ""), Node{Name: "c", State: up})
	assert.Zero(t, value(t, s.Samples(), mNodeGPUSeconds, "a", "h100", "allocated"))
	assert.Len(t, s.Samples(), 4, "one use of each type, and nothing of a shard or a node without any")
	read(115, gpus("a", up, "gpu:h100:2(IDX:0-1)"), gpus("b", off, ""))
	assert.InDelta(t, 120, value(t, s.Samples(), mNodeGPUSeconds, "a", "h100", "allocated"), 0, "what was seen counts until the next look")
	assert.Zero(t, value(t, s.Samples(), mNodeGPUSeconds, "a", "h100", "idle"), "a counter that begins with its first seconds hides those from increase()")
	assert.InDelta(t, 15, value(t, s.Samples(), mNodeGPUSeconds, "b", "a10", "off"), 0)
	read(1000, gpus("a", up, ""), gpus("b", off, ""))
	read(990, gpus("a", up, ""), gpus("b", off, ""))
	assert.InDelta(t, 120, value(t, s.Samples(), mNodeGPUSeconds, "a", "h100", "allocated"), 0, "nobody knows what was for a quarter of an hour")
	assert.InDelta(t, 120, value(t, s.Samples(), mNodeGPUSeconds, "b", "h100", "off"), 0, "nor before a clock was set back")
	read(1000, gpus("b", off, ""))
	for _, sample := range s.Samples() {
		assert.NotEqual(t, "a", sample.Labels[0], "it is gone")
	}
	assert.InDelta(t, 200, value(t, s.Samples(), mNodeGPUSeconds, "b", "h100", "off"), 0)

	none := NewNodeTally(Options{})
	none.Add(gpus("a", up, ""))
	assert.Empty(t, none.NodeGPUs(), "nobody has asked for nodes")
}
