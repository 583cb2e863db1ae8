package scaler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// want is what a case expects of the NodeSets cpu and gpu, and of the first job.
type want struct {
	cpu, gpu int // to power up
	lower    int // of all; -1: the same as cpu and gpu together
	why      Why
	counted  int
	detail   string
}

func check(t *testing.T, s Snapshot, w want) {
	t.Helper()
	r := Demand(testNow, s)
	require.NotEmpty(t, r.Jobs)
	assert.Equal(t, w.cpu, r.NodeSets[0].New.Greedy, "cpu: %+v", r)
	assert.Equal(t, w.gpu, r.NodeSets[1].New.Greedy, "gpu: %+v", r)
	if w.lower < 0 {
		w.lower = w.cpu + w.gpu
	}
	assert.Equal(t, w.lower, r.New.Lower, "lower bound")
	assert.Equal(t, w.cpu+w.gpu, r.New.Greedy)
	assert.Equal(t, w.why, r.Jobs[0].Why, r.Jobs[0])
	assert.Equal(t, w.counted, r.Jobs[0].Counted)
	assert.Contains(t, r.Jobs[0].Detail, w.detail)
}

func TestClasses(t *testing.T) {
	for name, tc := range map[string]struct {
		job  func(*Job)
		want want
	}{
		"eligible":           {func(*Job) {}, want{1, 0, -1, WhyCapacity, 1, ""}},
		"not looked at yet":  {func(j *Job) { j.Reason = "None" }, want{1, 0, -1, WhyCapacity, 1, ""}},
		"behind others":      {func(j *Job) { j.Reason = "Priority" }, want{1, 0, -1, WhyCapacity, 1, ""}},
		"nodes drained":      {func(j *Job) { j.Reason = "ReqNodeNotAvail" }, want{1, 0, -1, WhyCapacity, 1, ""}},
		"held":               {func(j *Job) { j.Reason, j.Priority = "JobHeldUser", 0 }, want{0, 0, 0, WhyHeld, 0, "JobHeldUser"}},
		"held, old word":     {func(j *Job) { j.Priority = 0 }, want{0, 0, 0, WhyHeld, 0, "priority is 0"}},
		"held and later":     {func(j *Job) { j.Reason, j.Begin = "JobHeldAdmin", testNow.Add(time.Hour) }, want{0, 0, 0, WhyHeld, 0, "JobHeldAdmin"}},
		"later":              {func(j *Job) { j.Reason, j.Begin = "BeginTime", testNow.Add(time.Hour) }, want{0, 0, 0, WhyBeginTime, 0, "not before 2027-01-15T09:00:00Z"}},
		"later, no word":     {func(j *Job) { j.Reason, j.Begin = "None", testNow.Add(time.Hour) }, want{0, 0, 0, WhyBeginTime, 0, "not before"}},
		"begin time over":    {func(j *Job) { j.Reason, j.Begin = "BeginTime", testNow }, want{1, 0, -1, WhyCapacity, 1, ""}},
		"dependent":          {func(j *Job) { j.Reason, j.Dependent = "None", true }, want{0, 0, 0, WhyDependency, 0, "Dependency"}},
		"dependent by word":  {func(j *Job) { j.Reason = "Dependency" }, want{0, 0, 0, WhyDependency, 0, "Dependency"}},
		"never satisfied":    {func(j *Job) { j.Reason = "DependencyNeverSatisfied" }, want{0, 0, 0, WhyDependency, 0, "DependencyNeverSatisfied"}},
		"licence":            {func(j *Job) { j.Reason = "Licenses" }, want{0, 0, 0, WhyLicense, 0, "Licenses"}},
		"QOS limit":          {func(j *Job) { j.Reason = "QOSMaxGRESPerUser" }, want{0, 0, 0, WhyLimit, 0, "QOSMaxGRESPerUser"}},
		"association limit":  {func(j *Job) { j.Reason = "AssocGrpCpuLimit" }, want{0, 0, 0, WhyLimit, 0, "AssocGrpCpuLimit"}},
		"reservation":        {func(j *Job) { j.Reason = "Reservation" }, want{0, 0, 0, WhyReservation, 0, "Reservation"}},
		"power limit":        {func(j *Job) { j.Reason = "MaxPoweredUpNodes" }, want{0, 0, 0, WhyPowerLimit, 0, "MaxPoweredUpNodes"}},
		"partition down":     {func(j *Job) { j.Reason = "PartitionDown" }, want{0, 0, 0, WhyPartition, 0, "PartitionDown"}},
		"requeued":           {func(j *Job) { j.Completing = true }, want{0, 0, 0, WhyCleaning, 0, "still leaves"}},
		"cleaning":           {func(j *Job) { j.Reason = "Cleaning" }, want{0, 0, 0, WhyCleaning, 0, "Cleaning"}},
		"burst buffer":       {func(j *Job) { j.Reason = "BurstBufferStageIn" }, want{0, 0, 0, WhyOther, 0, "BurstBufferStageIn"}},
		"unreadable":         {func(j *Job) { j.Constraint = "a&&b" }, want{0, 0, 0, WhyUnknown, 0, `cannot read its request: constraint "a&&b"`}},
		"unreadable GRES":    {func(j *Job) { j.TRESPerNode = "gres/gpu:x:y" }, want{0, 0, 0, WhyUnknown, 0, "tres_per_node"}},
		"unreadable nodes":   {func(j *Job) { j.RequiredNodes = "cpu-[" }, want{0, 0, 0, WhyUnknown, 0, "required nodes"}},
		"bad constraints":    {func(j *Job) { j.Reason, j.Priority, j.Constraint = "BadConstraints", 0, "blue" }, want{0, 0, 0, WhyImpossible, 0, "needs features blue, NodeSet cpu offers cpu,avx"}},
		"bad no longer":      {func(j *Job) { j.Reason, j.Priority = "BadConstraints", 0 }, want{0, 0, 0, WhyHeld, 0, "release"}},
		"no such partition":  {func(j *Job) { j.Partitions = "blue" }, want{0, 0, 0, WhyImpossible, 0, "no partition blue"}},
		"array limit":        {func(j *Job) { j.Reason, j.ArrayJobID, j.ArrayTasks, j.ArrayLimit = "JobArrayTaskLimit", 1, "0-9%0", 0 }, want{0, 0, 0, WhyArrayLimit, 0, "JobArrayTaskLimit"}},
		"node limit of part": {func(j *Job) { j.Reason = "PartitionNodeLimit" }, want{1, 0, -1, WhyCapacity, 1, ""}},
	} {
		t.Run(name, func(t *testing.T) { check(t, cluster(10, with(cpuJob(1), tc.job)), tc.want) })
	}
}

func TestShapes(t *testing.T) {
	gpu := func(change func(*Job)) Job {
		return with(cpuJob(1), func(j *Job) { j.Partitions = "gpu"; change(j) })
	}
	for name, tc := range map[string]struct {
		job  Job
		want want
	}{
		"nodes":                  {tasksOn(1, 3, 3, 3), want{3, 0, -1, WhyCapacity, 1, ""}},
		"nodes, a range":         {tasksOn(1, 3, 6, 6), want{3, 0, -1, WhyCapacity, 1, ""}},
		"tasks only":             {tasksOn(1, 1, 20, 20), want{3, 0, -1, WhyCapacity, 1, ""}},
		"tasks on one node":      {tasksOn(1, 1, 1, 8), want{1, 0, -1, WhyCapacity, 1, ""}},
		"more than a node has":   {tasksOn(1, 1, 1, 9), want{0, 0, 0, WhyImpossible, 0, "needs 9 CPUs on a node, NodeSet cpu offers 8"}},
		"too many nodes":         {tasksOn(1, 11, 11, 11), want{0, 0, 0, WhyImpossible, 0, "needs 11 nodes like those of NodeSet cpu, which has 10"}},
		"too many tasks":         {tasksOn(1, 1, 81, 81), want{0, 0, 0, WhyImpossible, 0, "needs 11 nodes like those of NodeSet cpu, which has 10"}},
		"tasks, a guess":         {with(tasksOn(1, 1, 1, 20), func(j *Job) { j.MaxNodesGuessed = true }), want{3, 0, -1, WhyCapacity, 1, ""}},
		"a bad guess":            {with(tasksOn(1, 1, 1, 81), func(j *Job) { j.MaxNodesGuessed = true }), want{0, 0, 0, WhyImpossible, 0, "needs 11 nodes"}},
		"CPUs per task":          {with(tasksOn(1, 1, 6, 6), func(j *Job) { j.CPUsPerTask, j.CPUs = 3, 18 }), want{3, 0, -1, WhyCapacity, 1, ""}},
		"tasks per node":         {with(tasksOn(1, 1, 8, 8), func(j *Job) { j.TasksPerNode = 2 }), want{4, 0, -1, WhyCapacity, 1, ""}},
		"overcommit":             {with(tasksOn(1, 2, 2, 100), func(j *Job) { j.CPUs = 2 }), want{2, 0, -1, WhyCapacity, 1, ""}},
		"CPUs per node":          {with(cpuJob(1), func(j *Job) { j.CPUsPerNode = 9 }), want{0, 0, 0, WhyImpossible, 0, "needs 9 CPUs"}},
		"memory per node":        {with(cpuJob(1), func(j *Job) { j.Memory = 16_001 }), want{0, 0, 0, WhyImpossible, 0, "needs 16001 MiB on a node, NodeSet cpu offers 16000"}},
		"memory per CPU":         {with(tasksOn(1, 1, 8, 8), func(j *Job) { j.MemoryPerCPU, j.Memory = true, 8000 }), want{4, 0, -1, WhyCapacity, 1, ""}},
		"memory per CPU, 1 node": {with(tasksOn(1, 1, 1, 8), func(j *Job) { j.MemoryPerCPU, j.Memory = true, 8000 }), want{0, 0, 0, WhyImpossible, 0, "needs 64000 MiB"}},
		"temporary disk":         {with(cpuJob(1), func(j *Job) { j.TmpDisk = 1 }), want{0, 0, 0, WhyImpossible, 0, "needs 1 MiB of TmpDisk, NodeSet cpu offers 0"}},
		"sockets":                {with(cpuJob(1), func(j *Job) { j.SocketsPerNode = 2 }), want{0, 0, 0, WhyImpossible, 0, "needs sockets:cores:threads 2:0:0, NodeSet cpu offers 1:8:1"}},
		"threads":                {with(cpuJob(1), func(j *Job) { j.ThreadsPerCore = 2 }), want{0, 0, 0, WhyImpossible, 0, "0:0:2"}},
		"one thread of a core":   {gpu(func(j *Job) { j.ThreadsPerCore, j.Tasks, j.CPUs, j.MaxNodes = 1, 32, 32, 32 }), want{0, 2, -1, WhyCapacity, 1, ""}},
		"both threads":           {gpu(func(j *Job) { j.Tasks, j.CPUs, j.MaxNodes = 32, 32, 32 }), want{0, 1, -1, WhyCapacity, 1, ""}},
		"one task per core":      {gpu(func(j *Job) { j.TasksPerCore, j.Tasks, j.CPUs, j.MaxNodes = 1, 32, 32, 32 }), want{0, 2, -1, WhyCapacity, 1, ""}},

		"GPUs per node":        {gpu(func(j *Job) { j.MinNodes, j.MaxNodes, j.Tasks, j.CPUs, j.TRESPerNode = 2, 2, 2, 2, "gres/gpu:8" }), want{0, 2, -1, WhyCapacity, 1, ""}},
		"GPUs with type":       {gpu(func(j *Job) { j.TRESPerNode = "gres/gpu:h100:8" }), want{0, 1, -1, WhyCapacity, 1, ""}},
		"GPUs of another type": {gpu(func(j *Job) { j.TRESPerNode = "gres/gpu:h200:8" }), want{0, 0, 0, WhyImpossible, 0, "needs gpu:h200:8, NodeSet gpu offers gpu:h100:8"}},
		"too many GPUs":        {gpu(func(j *Job) { j.TRESPerNode = "gres/gpu:9" }), want{0, 0, 0, WhyImpossible, 0, "needs gpu:9, NodeSet gpu offers gpu:h100:8"}},
		"GPUs, wrong place":    {with(cpuJob(1), func(j *Job) { j.TRESPerNode = "gres/gpu:1" }), want{0, 0, 0, WhyImpossible, 0, "needs gpu:1, NodeSet cpu offers none"}},
		"GPUs per task":        {gpu(func(j *Job) { j.Tasks, j.CPUs, j.MaxNodes, j.TRESPerTask = 12, 12, 12, "cpu:1,gres/gpu:1" }), want{0, 2, -1, WhyCapacity, 1, ""}},
		"GPUs per job":         {gpu(func(j *Job) { j.Tasks, j.CPUs, j.MaxNodes, j.TRESPerJob = 3, 3, 3, "gres/gpu:20" }), want{0, 3, -1, WhyCapacity, 1, ""}},
		"GPUs per job, spread": {gpu(func(j *Job) { j.MinNodes, j.MaxNodes, j.Tasks, j.CPUs, j.TRESPerJob = 2, 2, 2, 2, "gres/gpu:16" }), want{0, 2, -1, WhyCapacity, 1, ""}},
		"too many per job":     {gpu(func(j *Job) { j.Tasks, j.CPUs, j.MaxNodes, j.TRESPerJob = 8, 8, 8, "gres/gpu:33" }), want{0, 0, 0, WhyImpossible, 0, "NodeSet gpu"}},
		"GPUs per socket":      {gpu(func(j *Job) { j.SocketsPerNode, j.TRESPerSocket = 2, "gres/gpu:5" }), want{0, 0, 0, WhyImpossible, 0, "needs gpu:10"}},
		"CPUs per GPU":         {gpu(func(j *Job) { j.TRESPerNode, j.CPUsPerTRES = "gres/gpu:8", "gres/gpu:5" }), want{0, 0, 0, WhyImpossible, 0, "needs 40 CPUs on a node, NodeSet gpu offers 32"}},
		"memory per GPU":       {gpu(func(j *Job) { j.TRESPerNode, j.MemoryPerTRES = "gres/gpu:8", "gres/gpu:40000" }), want{0, 0, 0, WhyImpossible, 0, "needs 320000 MiB"}},
		"tasks per GPU":        {gpu(func(j *Job) { j.Tasks, j.CPUs, j.MaxNodes, j.TasksPerGPU = 40, 40, 40, 2 }), want{0, 3, -1, WhyCapacity, 1, ""}},

		"feature":             {with(cpuJob(1), func(j *Job) { j.Partitions, j.Constraint = "all", "gpu" }), want{0, 1, -1, WhyCapacity, 1, ""}},
		"features or":         {with(cpuJob(1), func(j *Job) { j.Partitions, j.Constraint = "all", "gpu|avx" }), want{1, 0, -1, WhyCapacity, 1, ""}},
		"one of features":     {with(tasksOn(1, 12, 12, 12), func(j *Job) { j.Partitions, j.Constraint = "all", "[gpu|avx]" }), want{0, 0, 0, WhyImpossible, 0, "NodeSet"}},
		"counts":              {with(tasksOn(1, 5, 5, 5), func(j *Job) { j.Partitions, j.Constraint = "all", "gpu*2" }), want{1, 4, -1, WhyCapacity, 1, ""}},
		"counts of both":      {with(tasksOn(1, 1, 5, 5), func(j *Job) { j.Partitions, j.Constraint = "all", "[gpu*1&avx*4]" }), want{4, 1, -1, WhyCapacity, 1, ""}},
		"required node":       {with(cpuJob(1), func(j *Job) { j.RequiredNodes = "cpu-7" }), want{1, 0, -1, WhyCapacity, 1, ""}},
		"required nodes":      {with(tasksOn(1, 1, 4, 4), func(j *Job) { j.RequiredNodes = "cpu-[7-9]" }), want{3, 0, -1, WhyCapacity, 1, ""}},
		"required elsewhere":  {with(cpuJob(1), func(j *Job) { j.RequiredNodes = "gpu-0" }), want{0, 0, 0, WhyImpossible, 0, "gpu-0"}},
		"excluded nodes":      {with(tasksOn(1, 9, 9, 9), func(j *Job) { j.ExcludedNodes = "cpu-[0-1]" }), want{0, 0, 0, WhyImpossible, 0, "needs 9 nodes"}},
		"excluded one":        {with(tasksOn(1, 9, 9, 9), func(j *Job) { j.ExcludedNodes = "cpu-0,elsewhere" }), want{9, 0, -1, WhyCapacity, 1, ""}},
		"reserved":            {with(cpuJob(1), func(j *Job) { j.Reservation = "mine" }), want{0, 0, 0, WhyReservation, 0, "needs reservation mine, NodeSet cpu offers none"}},
		"reserved, too large": {with(cpuJob(1), func(j *Job) { j.Reservation, j.Memory = "mine", 16_001 }), want{0, 0, 0, WhyImpossible, 0, "needs 16001 MiB"}},

		"several partitions":    {with(tasksOn(1, 4, 4, 4), func(j *Job) { j.Partitions = "gpu,cpu" }), want{0, 4, -1, WhyCapacity, 1, ""}},
		"the one that has room": {with(tasksOn(1, 5, 5, 5), func(j *Job) { j.Partitions = "gpu,cpu,gone" }), want{5, 0, -1, WhyCapacity, 1, ""}},
	} {
		t.Run(name, func(t *testing.T) { check(t, cluster(10, tc.job), tc.want) })
	}
}

// several copies a job.
func several(n int, j Job) []Job {
	jobs := make([]Job, n)
	for i := range jobs {
		jobs[i] = j
		jobs[i].ID += uint32(i)
	}
	return jobs
}

func TestQueues(t *testing.T) {
	array := func(tasks string, limit uint32) Job {
		return with(cpuJob(1), func(j *Job) { j.ArrayJobID, j.ArrayTasks, j.ArrayLimit = 1, tasks, limit })
	}
	exclusive := with(cpuJob(1), func(j *Job) { j.Exclusive = ExclusiveNode })
	three := with(cpuJob(1), func(j *Job) { j.Tasks, j.CPUs = 3, 3 })
	for name, tc := range map[string]struct {
		jobs []Job
		want want
	}{
		"share a node":       {several(8, cpuJob(1)), want{1, 0, -1, WhyCapacity, 1, ""}},
		"and one more":       {several(9, cpuJob(1)), want{2, 0, -1, WhyCapacity, 1, ""}},
		"two of a node":      {several(8, three), want{4, 0, -1, WhyCapacity, 1, ""}},
		"exclusive":          {several(4, exclusive), want{4, 0, -1, WhyCapacity, 1, ""}},
		"exclusive and not":  {append(several(4, exclusive), several(8, cpuJob(10))...), want{5, 0, -1, WhyCapacity, 1, ""}},
		"all the memory":     {several(3, with(cpuJob(1), func(j *Job) { j.Memory = 0 })), want{3, 0, -1, WhyCapacity, 1, ""}},
		"by memory":          {several(4, with(cpuJob(1), func(j *Job) { j.Memory = 8000 })), want{2, 0, -1, WhyCapacity, 1, ""}},
		"array":              {[]Job{array("0-15", 0)}, want{2, 0, -1, WhyCapacity, 16, ""}},
		"array, limited":     {[]Job{array("0-99%16", 16)}, want{2, 0, -1, WhyCapacity, 16, ""}},
		"array of 100,000":   {[]Job{array("0-99999", 0)}, want{10, 0, -1, WhyCapacity, 80, ""}},
		"array, limit used":  {[]Job{with(array("2-99%2", 2), func(j *Job) { j.Reason = "JobArrayTaskLimit" }), {ID: 5, State: JobRunning, ArrayJobID: 1}, {ID: 6, State: JobRunning, ArrayJobID: 1}}, want{0, 0, 0, WhyArrayLimit, 0, "2 tasks of its array run"}},
		"array, limit freed": {[]Job{with(array("2-99%2", 2), func(j *Job) { j.Reason = "JobArrayTaskLimit" }), {ID: 5, State: JobRunning, ArrayJobID: 1}}, want{1, 0, -1, WhyCapacity, 1, ""}},
		"array, one requeued": {[]Job{with(exclusive, func(j *Job) { j.ID, j.ArrayJobID, j.ArrayTasks, j.ArrayLimit = 1, 1, "4-9%3", 3 }),
			with(exclusive, func(j *Job) { j.ID, j.ArrayJobID, j.ArrayLimit = 2, 1, 3 }), with(exclusive, func(j *Job) { j.ID, j.ArrayJobID, j.ArrayLimit = 3, 1, 3 }),
			{ID: 4, State: JobRunning, ArrayJobID: 1, ArrayLimit: 3}}, want{2, 0, -1, WhyCapacity, 2, ""}},
		"array, others first": {[]Job{with(exclusive, func(j *Job) { j.ID, j.ArrayJobID, j.ArrayTasks, j.ArrayLimit = 5, 5, "4-9%1", 1 }),
			with(exclusive, func(j *Job) { j.ID, j.ArrayJobID, j.ArrayLimit, j.Priority = 6, 5, 1, 2000 })}, want{1, 0, -1, WhyArrayLimit, 0, "1 tasks of its array run or come first"}},
		"het job":             {[]Job{with(tasksOn(1, 2, 2, 2), func(j *Job) { j.HetJobID = 1 }), with(tasksOn(2, 3, 3, 3), func(j *Job) { j.HetJobID, j.HetOffset = 1, 1 })}, want{5, 0, 3, WhyCapacity, 1, ""}},
		"het job on kinds":    {[]Job{with(cpuJob(1), func(j *Job) { j.HetJobID = 1 }), with(cpuJob(2), func(j *Job) { j.HetJobID, j.HetOffset, j.Partitions = 1, 1, "gpu" })}, want{1, 1, -1, WhyCapacity, 1, ""}},
		"het, one impossible": {[]Job{with(cpuJob(1), func(j *Job) { j.HetJobID = 1 }), with(cpuJob(2), func(j *Job) { j.HetJobID, j.HetOffset, j.TRESPerNode = 1, 1, "gres/gpu" })}, want{0, 0, 0, WhyImpossible, 0, "component 1: needs gpu:1"}},
		"het, one held":       {[]Job{with(cpuJob(1), func(j *Job) { j.HetJobID = 1 }), with(cpuJob(2), func(j *Job) { j.HetJobID, j.HetOffset, j.Priority = 1, 1, 0 })}, want{0, 0, 0, WhyHeld, 0, "component 1: its priority is 0"}},
		"het, too large":      {[]Job{with(tasksOn(1, 6, 6, 6), func(j *Job) { j.HetJobID = 1 }), with(tasksOn(2, 6, 6, 6), func(j *Job) { j.HetJobID, j.HetOffset = 1, 1 })}, want{0, 0, 0, WhyFull, 0, "in use or out of order"}},
		"all or nothing":      {append(several(6, with(exclusive, func(j *Job) { j.Priority = 2000 })), tasksOn(10, 5, 5, 5)), want{6, 0, -1, WhyCapacity, 1, ""}},
		"oversubscribed":      {several(16, with(cpuJob(1), func(j *Job) { j.Partitions, j.Oversubscribe, j.Memory = "shared", true, 500 })), want{1, 0, -1, WhyCapacity, 1, ""}},
		"not oversubscribed":  {several(16, with(cpuJob(1), func(j *Job) { j.Partitions, j.Memory = "shared", 500 })), want{2, 0, -1, WhyCapacity, 1, ""}},
		"whole by partition":  {several(3, with(cpuJob(1), func(j *Job) { j.Partitions = "whole" })), want{3, 0, -1, WhyCapacity, 1, ""}},
		"users apart":         {[]Job{with(cpuJob(1), func(j *Job) { j.Exclusive = ExclusiveUser }), with(cpuJob(2), func(j *Job) { j.Exclusive = ExclusiveUser }), with(cpuJob(3), func(j *Job) { j.Exclusive, j.UserID = ExclusiveUser, 7 }), with(cpuJob(4), func(j *Job) { j.UserID = 8 })}, want{3, 0, 1, WhyCapacity, 1, ""}},
		"limit of partition":  {[]Job{with(tasksOn(1, 3, 3, 3), func(j *Job) { j.Partitions = "small" })}, want{0, 0, 0, WhyPartition, 0, "needs 3 nodes, partition small allows 2"}},
		"CPUs of partition":   {several(4, with(cpuJob(1), func(j *Job) { j.Partitions = "small" })), want{2, 0, -1, WhyCapacity, 1, ""}},
		"partition is down":   {[]Job{with(cpuJob(1), func(j *Job) { j.Partitions = "down" })}, want{0, 0, 0, WhyPartition, 0, "partition down is down"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster(10, tc.jobs...)
			s.Partitions = append(s.Partitions, Partition{Name: "shared", Share: 2}, Partition{Name: "whole", Exclusive: ExclusiveNode},
				Partition{Name: "small", MaxNodes: 2, MaxCPUsPerNode: 2}, Partition{Name: "down", Down: true})
			for i := range s.Nodes[:10] {
				s.Nodes[i].Partitions = []string{"cpu", "all", "shared", "whole", "small", "down"}
			}
			check(t, s, tc.want)
		})
	}
}
