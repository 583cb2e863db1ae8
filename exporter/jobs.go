package exporter

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/scaler"
)

// other stands for words that are not known here.
const other = "other"

// jobStates are the base states; each job has one.
var jobStates = []struct {
	state powersave.JobState
	word  string
}{
	{powersave.JobPending, "pending"}, {powersave.JobRunning, "running"}, {powersave.JobSuspended, "suspended"}, {powersave.JobCompleted, "completed"},
	{powersave.JobCancelled, "cancelled"}, {powersave.JobFailed, "failed"}, {powersave.JobTimeout, "timeout"}, {powersave.JobNodeFail, "node_fail"},
	{powersave.JobPreempted, "preempted"}, {powersave.JobBootFail, "boot_fail"}, {powersave.JobDeadline, "deadline"}, {powersave.JobOutOfMemory, "out_of_memory"},
}

// jobFlags are the words that a job may have beside its base state.
var jobFlags = []struct {
	flag powersave.JobState
	word string
}{
	{powersave.JobConfiguring, "configuring"}, {powersave.JobCompleting, "completing"}, {powersave.JobPowerUpNode, "power_up_node"},
	{powersave.JobRequeued, "requeued"}, {powersave.JobRequeueHold, "requeue_hold"}, {powersave.JobOther, other},
}

// active are the states of jobs that want or have something.
var active = []string{"pending", "running", "suspended"}

// load is what jobs have or want.
type load struct {
	jobs, cpus, nodes, gpus int64
	memory                  float64 // bytes: an array's may be more than an int64 holds
}

func (l *load) add(o load) {
	l.jobs, l.cpus, l.nodes, l.memory, l.gpus = l.jobs+o.jobs, l.cpus+o.cpus, l.nodes+o.nodes, l.memory+o.memory, l.gpus+o.gpus
}

type byState struct{ name, account, state string }

// JobTally counts jobs. Each pending task of an array is one.
type JobTally struct {
	now     time.Time
	options Options

	records, cut int64
	flags        map[powersave.JobState]int64
	reasons      map[string]int64
	all          map[string]*load  // by state
	partitions   map[byState]*load // without account
	users        map[byState]*load
	oldest       map[string]time.Time // by partition
	own          ownJobs
}

// NewJobTally counts from zero. Jobs that are eligible later than now do not wait yet. The partitions are told of also while they have no jobs.
func NewJobTally(now time.Time, o Options, partitions ...string) *JobTally {
	t := &JobTally{
		now: now, options: o, flags: map[powersave.JobState]int64{}, reasons: map[string]int64{},
		all: map[string]*load{}, partitions: map[byState]*load{}, users: map[byState]*load{}, oldest: map[string]time.Time{}, own: ownJobs{most: o.PerJob},
	}
	for _, p := range partitions {
		for _, state := range active {
			plus(t.partitions, byState{name: p, state: state}, load{})
		}
	}
	return t
}

// Add counts one more record.
func (t *JobTally) Add(j Job) {
	t.records++
	state := jobWord(j.State)
	tasks := int64(1)
	if state == "pending" && j.ArrayTasks != "" {
		n, more := scaler.ArrayTasks(j.ArrayTasks)
		tasks = int64(n)
		if more {
			t.cut++
		}
	}
	l := load{jobs: tasks}
	if slices.Contains(active, state) {
		l = each(&j)
		l = load{tasks, tasks * l.cpus, tasks * l.nodes, tasks * l.gpus, float64(tasks) * l.memory}
	}
	plus(t.all, state, l)
	t.own.add(&j)
	for _, f := range jobFlags {
		if j.State.Any(f.flag) {
			t.flags[f.flag] += tasks
		}
	}
	if state == "pending" {
		t.reasons[reasonWord(j.Reason)] += tasks
	}
	names := strings.Split(j.Partitions, ",")
	for at, p := range names {
		if p == "" || slices.Contains(names[:at], p) { // slurmctld keeps the list as sbatch was given it
			continue
		}
		plus(t.partitions, byState{name: p, state: state}, l)
		if old, ok := t.oldest[p]; state == "pending" && t.waits(&j) && (!ok || j.Eligible.Before(old)) {
			t.oldest[p] = j.Eligible
		}
	}
	if t.options.PerUser && slices.Contains(active, state) {
		plus(t.users, byState{j.User, j.Account, state}, l)
	}
}

// waits reports whether nothing but Slurm keeps a pending job.
func (t *JobTally) waits(j *Job) bool {
	return !j.Held && !j.Eligible.IsZero() && !j.Eligible.After(t.now) && !strings.HasPrefix(j.Reason, "Dependency")
}

func plus[K comparable](all map[K]*load, key K, l load) {
	have := all[key]
	if have == nil {
		have = &load{}
		all[key] = have
	}
	have.add(l)
}

func jobWord(s powersave.JobState) string {
	for _, known := range jobStates {
		if s.Any(known.state) {
			return known.word
		}
	}
	return other
}

// reasonWord keeps Slurm's own words. slurmctld shows nothing else here, so whatever is not known is of a Slurm to come.
func reasonWord(reason string) string {
	switch {
	case reason == "":
		return "None"
	case scaler.KnownReason(reason):
		return reason
	}
	return other
}

// each is what one task has or asks for. TRES has GPUs with their type or without, and mostly both: "gres/gpu=1,gres/gpu:h100=1".
func each(j *Job) load {
	l := load{cpus: j.CPUs, nodes: j.Nodes}
	var typed int64
	for item := range strings.SplitSeq(j.TRES, ",") {
		name, amount, _ := strings.Cut(item, "=")
		if name == "mem" {
			l.memory = bytesOf(amount)
			continue
		}
		n, err := strconv.ParseInt(amount, 10, 32)
		switch {
		case err != nil || n < 0:
		case name == "cpu":
			l.cpus = n
		case name == "node":
			l.nodes = n
		case name == "gres/gpu":
			l.gpus = n
		case strings.HasPrefix(name, "gres/gpu:"):
			typed += n
		}
	}
	if l.gpus == 0 {
		l.gpus = typed
	}
	return l
}

// bytesOf reads "800M" and "1.50G"; without a unit it is MiB. What cannot be read is 0.
func bytesOf(amount string) float64 {
	shift := 20
	if amount != "" {
		if at := strings.IndexByte("KMGTP", amount[len(amount)-1]); at >= 0 {
			shift, amount = 10*(at+1), amount[:len(amount)-1]
		}
	}
	n, err := strconv.ParseFloat(amount, 64)
	if n *= float64(int64(1) << shift); err != nil || !(n >= 0 && n < math.MaxInt64) { // NaN neither
		return 0
	}
	return n
}

// Samples are the metrics of the jobs.
func (t *JobTally) Samples() []Sample {
	var out samples
	out.add(mRecords, t.records)
	out.add(mCut, t.cut)
	for _, s := range jobStates {
		out.add(mJobs, loadOf(t.all, s.word).jobs, s.word)
	}
	if l := loadOf(t.all, other); l.jobs > 0 {
		out.add(mJobs, l.jobs, other)
	}
	for _, f := range jobFlags {
		out.add(mJobsFlagged, t.flags[f.flag], f.word)
	}
	for _, reason := range slices.Sorted(maps.Keys(t.reasons)) {
		out.add(mPending, t.reasons[reason], reason)
	}
	for _, state := range active {
		l := loadOf(t.all, state)
		out.add(mJobsCPUs, l.cpus, state)
		out.add(mJobsNodes, l.nodes, state)
		out.value(mJobsMemory, l.memory, state)
		out.add(mJobsGPUs, l.gpus, state)
	}
	for _, k := range sortedStates(t.partitions) {
		l := t.partitions[k]
		out.add(mPartitionJobs, l.jobs, k.name, k.state)
		if slices.Contains(active, k.state) {
			out.add(mPartitionJobsCPUs, l.cpus, k.name, k.state)
			out.add(mPartitionJobsGPUs, l.gpus, k.name, k.state)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(t.oldest)) {
		out.add(mOldest, t.oldest[p].Unix(), p)
	}
	for _, k := range sortedStates(t.users) {
		l := t.users[k]
		out.add(mUserJobs, l.jobs, k.name, k.account, k.state)
		out.add(mUserCPUs, l.cpus, k.name, k.account, k.state)
		out.add(mUserGPUs, l.gpus, k.name, k.account, k.state)
	}
	t.own.samples(&out)
	return out.list
}

func loadOf(all map[string]*load, state string) load {
	if l := all[state]; l != nil {
		return *l
	}
	return load{}
}

func sortedStates(all map[byState]*load) []byState {
	return slices.SortedFunc(maps.Keys(all), func(a, b byState) int {
		return strings.Compare(a.name+"\x00"+a.account+"\x00"+a.state, b.name+"\x00"+b.account+"\x00"+b.state)
	})
}
