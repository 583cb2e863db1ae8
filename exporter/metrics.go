package exporter

// Source is what is read of slurmrestd for a metric.
type Source string

// Sources, one for each kind of read.
const (
	FromNodes      Source = "nodes"
	FromJobs       Source = "jobs"
	FromPartitions Source = "partitions"
	FromDiag       Source = "diag"
)

// Sources in the order in which they are read first.
var Sources = []Source{FromPartitions, FromNodes, FromJobs, FromDiag}

// Metric is one of the Catalogue.
type Metric struct {
	Name    string
	Help    string // with unit and source
	Labels  []string
	Counter bool      // it only grows, but for slurmctld's resets
	Buckets []float64 // upper bounds; given: it is a histogram
	Source  Source
	Needs   string // the flag that asks for it, if one must
}

// Sample is one value of a metric.
type Sample struct {
	Metric *Metric
	Labels []string // values, as many as Metric.Labels
	Value  float64
	Counts *Histogram // in place of Value, if Metric has Buckets
}

// Histogram counts values by the Buckets of its metric.
type Histogram struct {
	Count uint64
	Sum   float64
	Below []uint64 // how many were at most that large
}

func (h *Histogram) observe(m *Metric, v float64) {
	if h.Below == nil {
		h.Below = make([]uint64, len(m.Buckets))
	}
	h.Count, h.Sum = h.Count+1, h.Sum+v
	for i, most := range m.Buckets {
		if v <= most {
			h.Below[i]++
		}
	}
}

// Type is Prometheus's word for the metric.
func (m *Metric) Type() string {
	switch {
	case m.Buckets != nil:
		return "histogram"
	case m.Counter:
		return "counter"
	}
	return "gauge"
}

// samples are a list that grows.
type samples struct{ list []Sample }

func (s *samples) add(m *Metric, n int64, labels ...string) { s.value(m, float64(n), labels...) }

func (s *samples) value(m *Metric, v float64, labels ...string) {
	s.list = append(s.list, Sample{Metric: m, Labels: labels, Value: v})
}

// Catalogue has every metric.
var Catalogue []*Metric

func gauge(source Source, name, help string, labels ...string) *Metric {
	return enter(&Metric{Name: name, Help: help, Labels: labels, Source: source})
}

func counter(source Source, name, help string, labels ...string) *Metric {
	m := gauge(source, name, help, labels...)
	m.Counter = true
	return m
}

func node(name, help string, labels ...string) *Metric {
	m := gauge(FromNodes, name, help, append([]string{"node"}, labels...)...)
	m.Needs = "--per-node"
	return m
}

func nodeCounter(name, help string, labels ...string) *Metric {
	m := node(name, help, labels...)
	m.Counter = true
	return m
}

func spell(name, help string) *Metric {
	m := gauge(FromNodes, name, help)
	m.Buckets = []float64{60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86_400, 3 * 86_400, 7 * 86_400}
	return m
}

func job(name, help string, labels ...string) *Metric {
	m := gauge(FromJobs, name, help, append([]string{"job_id"}, labels...)...)
	m.Needs = "--per-job"
	return m
}

func user(source Source, name, help string, labels ...string) *Metric {
	m := gauge(source, name, help, append([]string{"user"}, labels...)...)
	m.Needs, m.Counter = "--per-user", source == FromDiag
	return m
}

// leftOut is no metric of a job, and wants the flag all the same.
func leftOut() *Metric {
	m := gauge(FromJobs, "slurm_jobs_left_out", "Jobs that have nodes, but no series of their own (what: jobs), or no slurm_job_node (nodes), since --per-job allows no more.", "what")
	m.Needs = "--per-job"
	return m
}

func enter(m *Metric) *Metric {
	from := map[Source]string{FromNodes: "GET nodes", FromJobs: "GET jobs", FromPartitions: "GET partitions", FromDiag: "GET diag, as sdiag"}[m.Source]
	m.Help += " Source: " + from + "."
	Catalogue = append(Catalogue, m)
	return m
}

var (
	mNodes        = gauge(FromNodes, "slurm_nodes", "Nodes by state, one word for each node, much as sinfo says it.", "state")
	mNodesFlagged = gauge(FromNodes, "slurm_nodes_flagged", "Nodes by the words that stand beside their base state; a node may have several.", "flag")
	mCPUs         = gauge(FromNodes, "slurm_cpus", "CPUs by use: allocated, idle, off (node powered down, or on the way up or down), unavailable.", "use")
	mMemory       = gauge(FromNodes, "slurm_memory_bytes", "Bytes of RealMemory by use; allocated is what jobs have asked for, not what they use.", "use")
	mGres         = gauge(FromNodes, "slurm_gres", "Generic resources (GPUs) by type and use; type is empty where slurm.conf gives none.", "gres", "type", "use")
	mGresUnread   = gauge(FromNodes, "slurm_nodes_gres_unread", "Nodes whose generic resources cannot be read; they are missing in slurm_gres.")
	mGPUSeconds   = counter(FromNodes, "slurm_gpu_seconds_total", "Seconds of GPUs by type and use, summed up by the exporter from read to read; times without reads are not in it.", "type", "use")
	mNodeSeconds  = counter(FromNodes, "slurm_nodes_seconds_total", "Seconds of nodes by state, summed up by the exporter from read to read; times without reads are not in it.", "state")
	mNodesFailed  = counter(FromNodes, "slurm_nodes_failures_total", "Nodes that have become down, not_responding or invalid, as reads show it; a node that is drained has not failed.", "state")
	mUnavailable  = spell("slurm_nodes_unavailable_seconds", "How long nodes were down, not_responding, invalid, drained or rebooting, when that has ended; what began before the exporter did, or ended while it could not read, is not in it.")
	mDraining     = spell("slurm_nodes_draining_seconds", "How long nodes were draining, with jobs on them, when that has ended; what began before the exporter did, or ended while it could not read, is not in it.")

	mPartitionNodes  = gauge(FromNodes, "slurm_partition_nodes", "Nodes of a partition by state; a node may be in several partitions.", "partition", "state")
	mPartitionCPUs   = gauge(FromNodes, "slurm_partition_cpus", "CPUs of a partition's nodes by use, whichever partition's jobs have them.", "partition", "use")
	mPartitionMemory = gauge(FromNodes, "slurm_partition_memory_bytes", "Bytes of RealMemory of a partition's nodes by use.", "partition", "use")
	mPartitionGres   = gauge(FromNodes, "slurm_partition_gres", "Generic resources of a partition's nodes by type and use.", "partition", "gres", "type", "use")

	mNodeInfo            = node("slurm_node_info", "1, with the node's address, the instance ID that slurmd was given, its reservation, and the first 200 bytes of its reason and comment.", "address", "instance", "reservation", "reason", "comment")
	mNodeState           = node("slurm_node_state", "1 for the state the node is in, as in slurm_nodes.", "state")
	mNodeFlag            = node("slurm_node_flag", "1 for each word beside the node's base state.", "flag")
	mNodePartition       = node("slurm_node_partition", "1 for each partition of the node.", "partition")
	mNodeCPUs            = node("slurm_node_cpus", "CPUs of the node for jobs.")
	mNodeCPUsAllocated   = node("slurm_node_cpus_allocated", "CPUs of the node that jobs have.")
	mNodeCPUsSpec        = node("slurm_node_cpus_specialized", "CPUs of the node that are set apart for the system (CoreSpecCount, CpuSpecList), beside those for jobs.")
	mNodeMemory          = node("slurm_node_memory_bytes", "Bytes of the node's RealMemory.")
	mNodeMemoryAllocated = node("slurm_node_memory_allocated_bytes", "Bytes of the node's RealMemory that jobs have asked for.")
	mNodeMemorySpec      = node("slurm_node_memory_specialized_bytes", "Bytes of the node's RealMemory that are set apart for the system (MemSpecLimit).")
	mNodeMemoryFree      = node("slurm_node_memory_free_bytes", "Bytes that the node's operating system had free when slurmd last told.")
	mNodeLoad            = node("slurm_node_load", "Load average of the node's operating system when slurmd last told.")
	mNodeGres            = node("slurm_node_gres", "Generic resources of the node.", "gres", "type")
	mNodeFailed          = nodeCounter("slurm_node_failures_total", "How often the node has failed, as in slurm_nodes_failures_total; it goes with the node.")
	mNodeGPUSeconds      = nodeCounter("slurm_node_gpu_seconds_total", "Seconds of the node's GPUs by type and use, as in slurm_gpu_seconds_total; a use appears when it is first seen, and all of a node go with it.", "type", "use")
	mNodeGresAllocated   = node("slurm_node_gres_allocated", "Generic resources of the node that jobs have.", "gres", "type")

	mJobs        = gauge(FromJobs, "slurm_jobs", "Jobs by base state; each task of an array is one, and each component of a het job. Ended ones count until slurmctld forgets them (MinJobAge).", "state")
	mJobsFlagged = gauge(FromJobs, "slurm_jobs_flagged", "Jobs by the words that stand beside their base state; other: words that the exporter does not know.", "flag")
	mPending     = gauge(FromJobs, "slurm_jobs_pending", "Pending jobs by Slurm's word for the reason; other: words that the exporter does not know.", "reason")
	mJobsCPUs    = gauge(FromJobs, "slurm_jobs_cpus", "CPUs that jobs have, or ask for, by the jobs' state.", "state")
	mJobsNodes   = gauge(FromJobs, "slurm_jobs_nodes", "Nodes that jobs have, or ask for, by the jobs' state; a node with two jobs is two.", "state")
	mJobsMemory  = gauge(FromJobs, "slurm_jobs_memory_bytes", "Bytes of memory in the TRES of jobs, by their state.", "state")
	mJobsGPUs    = gauge(FromJobs, "slurm_jobs_gpus", "GPUs in the TRES of jobs, by their state; none unless slurm.conf has gres/gpu in AccountingStorageTRES.", "state")
	mRecords     = gauge(FromJobs, "slurm_job_records", "Records of jobs that slurmctld shows, ended ones among them; slurm.conf's MaxJobCount is the most.")
	mCut         = gauge(FromJobs, "slurm_jobs_cut_arrays", "Pending arrays whose task list slurmrestd has cut, so that more tasks wait than count: it lacks SLURM_BITSTR_LEN=0 in its environment.")

	mPartitionJobs     = gauge(FromJobs, "slurm_partition_jobs", "Jobs of a partition by base state; a pending job counts in each partition that it names.", "partition", "state")
	mPartitionJobsCPUs = gauge(FromJobs, "slurm_partition_jobs_cpus", "CPUs that a partition's jobs have, or ask for, by the jobs' state.", "partition", "state")
	mPartitionJobsGPUs = gauge(FromJobs, "slurm_partition_jobs_gpus", "GPUs in the TRES of a partition's jobs, by their state.", "partition", "state")
	mOldest            = gauge(FromJobs, "slurm_partition_oldest_pending_timestamp_seconds", "When the job that has waited longest became eligible, in seconds since 1970; held jobs and those that wait for others are left out.", "partition")

	mJobInfo = job("slurm_job_info", "1 for each job that has nodes, up to --per-job of them, those that started first; name: its first 200 bytes; array_job and array_task are empty unless it is a task of an array.",
		"name", "user", "account", "partition", "qos", "array_job", "array_task")
	mJobState  = job("slurm_job_state", "1 for the state the job is in: configuring (its nodes boot), running, suspended, completing.", "state")
	mJobNode   = job("slurm_job_node", "1 for each node of the job; ten times --per-job in all, a job's nodes all or none.", "node")
	mJobCPUs   = job("slurm_job_cpus", "CPUs that the job has.")
	mJobMemory = job("slurm_job_memory_bytes", "Bytes of memory in the job's TRES.")
	mJobGPUs   = job("slurm_job_gpus", "GPUs in the job's TRES.")
	mJobSubmit = job("slurm_job_submit_timestamp_seconds", "When the job was submitted, in seconds since 1970.")
	mJobStart  = job("slurm_job_start_timestamp_seconds", "When the job started, in seconds since 1970.")
	mJobEnd    = job("slurm_job_end_timestamp_seconds", "When the job's time limit is over, in seconds since 1970; without a limit slurmctld says a year after its start. Of one that is completing: when it ended.")
	mLeftOut   = leftOut()

	mUserJobs = user(FromJobs, "slurm_user_jobs", "Pending, running and suspended jobs of a user in an account.", "account", "state")
	mUserCPUs = user(FromJobs, "slurm_user_cpus", "CPUs that the jobs of a user in an account have, or ask for.", "account", "state")
	mUserGPUs = user(FromJobs, "slurm_user_gpus", "GPUs in the TRES of the jobs of a user in an account.", "account", "state")

	mPartitionState           = gauge(FromPartitions, "slurm_partition_state", "1 for the state the partition is in: up, down, drain, inactive.", "partition", "state")
	mPartitionConfiguredNodes = gauge(FromPartitions, "slurm_partition_configured_nodes", "Nodes of the partition's definition, those that are powered down among them.", "partition")
	mPartitionConfiguredCPUs  = gauge(FromPartitions, "slurm_partition_configured_cpus", "CPUs of the partition's definition.", "partition")

	mThreads      = gauge(FromDiag, "slurm_controller_server_threads", "Threads of slurmctld that serve requests.")
	mAgents       = gauge(FromDiag, "slurm_controller_agents", "Agents of slurmctld, each of which sends to many nodes.")
	mAgentThreads = gauge(FromDiag, "slurm_controller_agent_threads", "Threads of all agents of slurmctld.")
	mAgentQueue   = gauge(FromDiag, "slurm_controller_agent_queue", "Requests of slurmctld to nodes that wait to be sent.")
	mDBDQueue     = gauge(FromDiag, "slurm_controller_dbd_queue", "Messages for slurmdbd that wait to be sent; it grows while slurmdbd is away.")
	mSince        = gauge(FromDiag, "slurm_controller_statistics_start_timestamp_seconds", "Since when slurmctld counts, in seconds since 1970; it begins anew at midnight UTC, and with sdiag --reset.")

	mSubmitted = counter(FromDiag, "slurm_scheduler_jobs_submitted_total", "Jobs submitted since slurmctld counts.")
	mStarted   = counter(FromDiag, "slurm_scheduler_jobs_started_total", "Jobs started since slurmctld counts.")
	mCompleted = counter(FromDiag, "slurm_scheduler_jobs_completed_total", "Jobs completed since slurmctld counts.")
	mCanceled  = counter(FromDiag, "slurm_scheduler_jobs_canceled_total", "Jobs cancelled since slurmctld counts.")
	mFailed    = counter(FromDiag, "slurm_scheduler_jobs_failed_total", "Jobs that failed for slurmd or other internal reasons since slurmctld counts.")

	mCycles       = counter(FromDiag, "slurm_scheduler_cycles_total", "Rounds of a scheduler: main or backfill.", "scheduler")
	mCycleSeconds = counter(FromDiag, "slurm_scheduler_cycle_seconds_total", "Seconds of all rounds of a scheduler.", "scheduler")
	mCycleLast    = gauge(FromDiag, "slurm_scheduler_last_cycle_seconds", "Seconds of the last round of a scheduler.", "scheduler")
	mCycleMax     = gauge(FromDiag, "slurm_scheduler_longest_cycle_seconds", "Seconds of the longest round of a scheduler since slurmctld counts.", "scheduler")
	mCycleDepth   = counter(FromDiag, "slurm_scheduler_jobs_considered_total", "Jobs that a scheduler has looked at in all rounds.", "scheduler")
	mCycleQueue   = gauge(FromDiag, "slurm_scheduler_queue_jobs", "Jobs that waited for the last round of a scheduler.", "scheduler")
	mCycleExits   = counter(FromDiag, "slurm_scheduler_exits_total", "Rounds of a scheduler by why they ended.", "scheduler", "why")

	mBackfillActive  = gauge(FromDiag, "slurm_backfill_active", "1 while the backfill scheduler runs.")
	mBackfillJobs    = counter(FromDiag, "slurm_backfill_jobs_started_total", "Jobs that backfill started since slurmctld was started.")
	mBackfillHetJobs = counter(FromDiag, "slurm_backfill_het_components_started_total", "Components of het jobs that backfill started since slurmctld was started.")
	mBackfillAt      = gauge(FromDiag, "slurm_backfill_last_cycle_timestamp_seconds", "When backfill last ran, in seconds since 1970.")

	mRPCs       = counter(FromDiag, "slurm_controller_rpcs_total", "Requests that slurmctld has served, by message type.", "type")
	mRPCSeconds = counter(FromDiag, "slurm_controller_rpc_seconds_total", "Seconds that slurmctld took to serve requests, by message type.", "type")
	mRPCQueued  = gauge(FromDiag, "slurm_controller_rpcs_queued", "Requests that wait, by message type, where slurmctld has rate limits or queues.", "type")
	mRPCDropped = counter(FromDiag, "slurm_controller_rpcs_dropped_total", "Requests that were dropped from a full queue, by message type.", "type")

	mUserRPCs       = user(FromDiag, "slurm_user_rpcs_total", "Requests of a user that slurmctld has served.")
	mUserRPCSeconds = user(FromDiag, "slurm_user_rpc_seconds_total", "Seconds that slurmctld took to serve a user's requests.")
)
