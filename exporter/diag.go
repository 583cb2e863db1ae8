package exporter

import (
	"maps"
	"slices"
	"strings"
)

const micro = 1e-6

// Samples are the metrics of slurmctld's own statistics.
func (d Diag) Samples(o Options) []Sample {
	var out samples
	for _, v := range []struct {
		metric *Metric
		value  float64
	}{
		{mThreads, d.Threads}, {mAgents, d.Agents}, {mAgentThreads, d.AgentThreads}, {mAgentQueue, d.AgentQueue}, {mDBDQueue, d.DBDQueue},
		{mSubmitted, d.Submitted}, {mStarted, d.Started}, {mCompleted, d.Completed}, {mCanceled, d.Canceled}, {mFailed, d.Failed},
		{mBackfillJobs, d.BackfillJobs}, {mBackfillHetJobs, d.BackfillHetJobs},
	} {
		out.value(v.metric, v.value)
	}
	if !d.Since.IsZero() {
		out.add(mSince, d.Since.Unix())
	}
	d.Main.samples(&out, "main")
	d.Backfill.samples(&out, "backfill")
	running := int64(0)
	if d.BackfillActive {
		running = 1
	}
	out.add(mBackfillActive, running)
	if !d.BackfillAt.IsZero() {
		out.add(mBackfillAt, d.BackfillAt.Unix())
	}
	for _, r := range merged(d.RPCs) {
		out.value(mRPCs, r.Count, r.Name)
		out.value(mRPCSeconds, r.Time*micro, r.Name)
		out.value(mRPCQueued, r.Queued, r.Name)
		out.value(mRPCDropped, r.Dropped, r.Name)
	}
	if o.PerUser {
		for _, r := range merged(d.Users) {
			out.value(mUserRPCs, r.Count, r.Name)
			out.value(mUserRPCSeconds, r.Time*micro, r.Name)
		}
	}
	return out.list
}

func (c Cycles) samples(out *samples, scheduler string) {
	out.value(mCycles, c.Count, scheduler)
	out.value(mCycleSeconds, c.Sum*micro, scheduler)
	out.value(mCycleLast, c.Last*micro, scheduler)
	out.value(mCycleMax, c.Max*micro, scheduler)
	out.value(mCycleDepth, c.Depth, scheduler)
	out.value(mCycleQueue, c.Queue, scheduler)
	for _, why := range slices.Sorted(maps.Keys(c.Exits)) {
		out.value(mCycleExits, c.Exits[why], scheduler, why)
	}
}

// merged adds up what has one name: a series may be there once only, and numbers that slurmctld has no name for have one in common.
func merged(list []RPC) []RPC {
	all := map[string]RPC{}
	for _, r := range list {
		sum := all[r.Name]
		all[r.Name] = RPC{r.Name, sum.Count + r.Count, sum.Time + r.Time, sum.Queued + r.Queued, sum.Dropped + r.Dropped}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b RPC) int { return strings.Compare(a.Name, b.Name) })
}

// partitionStates are all that a partition may be in.
var partitionStates = []string{"up", "down", "drain", "inactive"}

// PartitionSamples are the metrics of the partitions.
func PartitionSamples(list []Partition) []Sample {
	var out samples
	for _, p := range list {
		for _, state := range partitionStates {
			is := int64(0)
			if strings.EqualFold(p.State, state) {
				is = 1
			}
			out.add(mPartitionState, is, p.Name, state)
		}
		out.add(mPartitionConfiguredNodes, p.Nodes, p.Name)
		out.add(mPartitionConfiguredCPUs, p.CPUs, p.Name)
	}
	return out.list
}
