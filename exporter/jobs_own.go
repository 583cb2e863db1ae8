package exporter

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// nodesEach is how many nodes a job may have on average, if all of them are to have series.
const nodesEach = 10

// ownJobs are those that have series of their own: of those with nodes the ones that started first, so that a series stays until its job has ended.
type ownJobs struct {
	most int
	seen int
	list []Job // sorted out now and then; never more than twice as many as may be
}

func (o *ownJobs) add(j *Job) {
	if o.most <= 0 || ownWord(j.State) == "" {
		return
	}
	o.seen++
	if o.list = append(o.list, *j); len(o.list) >= 2*o.most {
		o.sort()
	}
}

func (o *ownJobs) sort() {
	slices.SortFunc(o.list, func(a, b Job) int { return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID)) })
	kept := o.list[:min(len(o.list), o.most)]
	clear(o.list[len(kept):]) // their texts are large
	o.list = kept
}

// ownWord is the state of a job that has nodes; empty: it has none.
func ownWord(s powersave.JobState) string {
	switch {
	case s.Any(powersave.JobCompleting):
		return "completing"
	case s.Any(powersave.JobSuspended):
		return "suspended"
	case !s.Any(powersave.JobRunning):
		return ""
	case s.Any(powersave.JobConfiguring):
		return "configuring"
	}
	return "running"
}

func (o *ownJobs) samples(out *samples) {
	if o.most <= 0 {
		return
	}
	o.sort()
	room, without := nodesEach*o.most, o.seen-len(o.list)
	for i := range o.list {
		j := &o.list[i]
		id, array := strconv.FormatUint(uint64(j.ID), 10), ""
		if j.ArrayJob != 0 {
			array = strconv.FormatUint(uint64(j.ArrayJob), 10)
		}
		l := each(j)
		out.add(mJobInfo, 1, id, short(j.Name, mostWords), j.User, j.Account, j.Partitions, j.QOS, array, j.ArrayTask)
		out.add(mJobState, 1, id, ownWord(j.State))
		out.add(mJobCPUs, l.cpus, id)
		out.value(mJobMemory, l.memory, id)
		out.add(mJobGPUs, l.gpus, id)
		for _, t := range []struct {
			metric *Metric
			at     time.Time
		}{{mJobSubmit, j.Submit}, {mJobStart, j.Start}, {mJobEnd, j.End}} {
			if !t.at.IsZero() {
				out.add(t.metric, t.at.Unix(), id)
			}
		}
		nodes, err := slurmconf.ParseHostlist(j.NodeList)
		if err != nil || nodes.Len() > room {
			without++
			continue
		}
		room -= nodes.Len()
		for name := range nodes.All() {
			out.add(mJobNode, 1, id, name)
		}
	}
	out.add(mLeftOut, int64(o.seen-len(o.list)), "jobs")
	out.add(mLeftOut, int64(without), "nodes")
}
