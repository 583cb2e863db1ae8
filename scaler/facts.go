package scaler

import (
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// Snapshot is what Slurm shows at one moment. Zero numbers mean "not given" throughout: whoever fills it
// turns Slurm's sentinels (NO_VAL, INFINITE) into zero.
type Snapshot struct {
	Jobs       []Job
	Partitions []Partition
	Nodes      []Node
	NodeSets   []NodeSet
	Options
}

// Options is what bears on demand besides the queue. slurmrestd tells Select from 26.05 on (slurmrest's Select); before, whoever
// knows slurm.conf gives it, see ParseSelect.
type Options struct {
	Select Select
	// FreeWithin takes nodes whose jobs all end within that time as free already: powering up another one
	// would take no less. Zero takes no running job's end into account.
	FreeWithin time.Duration
}

// Select is how slurmctld hands out nodes, SelectTypeParameters of slurm.conf for the most part. The zero value is CR_Core_Memory,
// the default of select/cons_tres, before 26.05.
type Select struct {
	NoMemory bool // CR_Core, CR_CPU, CR_Socket: memory is not handed out
	CPUs     bool // CR_CPU*: single hardware threads are handed out, not whole cores
	Sockets  bool // CR_Socket*: whole sockets are
	// OneTaskPerCore is CR_ONE_TASK_PER_CORE: tasks get a core each unless the job says how many share one.
	OneTaskPerCore bool
	// OneNodeFirstFit: a job that may have one node only takes the first with room, and not the tightest. No setting, but slurmctld from
	// 26.05 on (job_test.c _get_one_res).
	OneNodeFirstFit bool
	// MaxNodeCount is the most nodes that slurmctld has records of, those of slurm.conf and those that register themselves; 0: not known. Demand leaves
	// it to whoever sets NodeSet.Max.
	MaxNodeCount int
}

// JobState is a job's state as far as demand goes.
type JobState uint8

// States. The zero value is the one that asks for something.
const (
	JobPending JobState = iota
	JobRunning          // holds nodes: RUNNING, CONFIGURING, SUSPENDED
	JobLeaving          // COMPLETING: leaves its nodes within seconds
	JobEnded
)

// Job is one record of slurmctld: a job, a component of a het job, one task of an array, or all tasks of an
// array that nobody has looked at yet.
type Job struct {
	ID    uint32
	State JobState
	// Reason is Slurm's word for why the job is pending, as "Resources".
	Reason     string
	Priority   uint32 // 0: held
	Begin      time.Time
	End        time.Time // of a running job by its time limit (zero: never); of one that leaves when it ended
	Failed     bool      // it leaves, and did not end well: afterok will not let go those that wait for it
	UserID     uint32
	Dependent  bool      // waits for other jobs
	Dependency string    // for which of them, as Slurm shows it: "afterok:7(unfulfilled)"; empty if not Dependent
	Start      time.Time // when slurmctld expects a pending job to start; zero: it has not reckoned that
	Account    string    // of a pending job
	Completing bool      // pending again, and still leaving the nodes it had

	ArrayJobID uint32 // 0 outside arrays
	// ArrayTasks are the pending tasks in this record: "1-4%1", "0-99998:2", "3,5,7-9". Empty for a single task.
	ArrayTasks string
	// ArrayLimit is the most tasks of the array that run at once; 0: no limit.
	ArrayLimit uint32
	HetJobID   uint32 // of the leader, 0 outside het jobs
	HetOffset  int

	Nodes string // hostlist of what a running job holds
	Request
}

// Exclusive says with whom a job shares its nodes (sbatch --exclusive).
type Exclusive uint8

// Kinds of exclusive use. mcs and topo are taken for node, which asks for no less.
const (
	ExclusiveNo Exclusive = iota
	ExclusiveNode
	ExclusiveUser // with jobs of the same user only
)

// Request is what a job asks for. Two jobs with equal Requests need the same, so that it is worked out once.
// The names are those of sbatch; slurmrestd's follow where they differ.
type Request struct {
	Partitions string // "a,b": any of them will do

	// MinNodes is the number before the dash of --nodes. slurmrestd's node_count is a guess of the scheduler
	// once it looked at the job; the request itself is node= of tres_req_str (job_mgr.c _pack_node_cnt, job_set_req_tres).
	MinNodes uint32
	MaxNodes uint32 // max_nodes
	// MaxNodesGuessed: MaxNodes may be no limit, but slurmctld's guess of what the job takes. It holds as long as
	// the job could run that way.
	MaxNodesGuessed bool
	Tasks           uint32 // of the whole job
	CPUs            uint32 // of the whole job, at least
	CPUsPerTask     uint32
	TasksPerNode    uint32
	TasksPerSocket  uint32
	TasksPerCore    uint32
	CPUsPerNode     uint32 // --mincpus, minimum_cpus_per_node
	SocketsPerNode  uint32
	CoresPerSocket  uint32
	ThreadsPerCore  uint32 // 1 with --hint=nomultithread

	Memory       uint64 // MiB per node, or per CPU; 0 per node: all the node has
	MemoryPerCPU bool
	TmpDisk      uint64 // MiB per node

	// Lists of TRES, as "gres/gpu:h100:2".
	TRESPerNode, TRESPerJob, TRESPerTask, TRESPerSocket string
	CPUsPerTRES                                         string // --cpus-per-gpu: "gres/gpu:4"
	MemoryPerTRES                                       string // --mem-per-gpu, MiB: "gres/gpu:4096"
	TasksPerGPU                                         uint32 // tasks_per_tres

	Constraint    string // --constraint, features
	RequiredNodes string // hostlist, all of them
	ExcludedNodes string // hostlist
	Reservation   string
	Exclusive     Exclusive
	Oversubscribe bool // --oversubscribe, where the partition lets it
}

// Partition is a partition as far as it decides who runs where.
type Partition struct {
	Name           string
	Down           bool     // starts no jobs: DOWN or INACTIVE
	AllNodes       bool     // Nodes=ALL in slurm.conf: nodes that register themselves are in it
	NodeSets       []string // NodeSet= lines of slurm.conf that its Nodes= names
	Tier           int      // PriorityTier; higher ones are looked at first
	MinNodes       uint32
	MaxNodes       uint32 // per job; 0: no limit
	MaxCPUsPerNode uint32 // 0: no limit
	Exclusive      Exclusive
	Share          int  // OverSubscribe=YES:4 or FORCE:4; 0 and 1 mean no sharing
	ForceShare     bool // FORCE: whether the job asks for it or not
}

// NodeState is a node's state as far as demand goes.
type NodeState uint8

// States. The zero value is the one nobody can use.
const (
	NodeUnusable NodeState = iota // down, drained, failing, in maintenance, on its way down
	NodeOff                       // powered down: Slurm may power it up
	NodeBooting                   // powering up
	NodeUp
)

// Node is one node record of slurmctld.
type Node struct {
	Name        string
	NodeSet     string // whose it is; empty: nobody's, and so nobody here can power it up
	Partitions  []string
	Reservation string // that holds it now
	State       NodeState
	Gone        bool   // no slurmd stands behind it, and Slurm does not power it up either: another node may take its place
	Shape       *Shape // nodes that are alike should share one; the answer is the same if they do not
	AllocCPUs   uint32
	AllocMemory uint64 // MiB
	GresUsed    string // "gpu:h100:1(IDX:0)"
}

// Shape is what one node offers to jobs.
type Shape struct {
	// CPUs jobs may use: effective_cpus, or Sockets * Cores * Threads less what is kept for the system.
	CPUs     uint32
	Sockets  uint32 // 0: as many as CPUs
	Cores    uint32 // per socket
	Threads  uint32 // per core
	Memory   uint64 // MiB: RealMemory less MemSpecLimit
	TmpDisk  uint64 // MiB
	Gres     string // "gpu:h100:8(S:0-1)"
	Features []string
	Weight   uint32 // lower ones are used first
}

// NodeSet is a set of nodes that somebody can make more of.
type NodeSet struct {
	Name string
	// Max is the most nodes it can have. Those without a record in Slurm count as powered down, with Shape and
	// in Partitions. If it is less than the number of records, the records count.
	Max        int
	MaxWhy     string // why it has no more, if its names would go further
	Shape      *Shape // nil: only the nodes in Slurm's records count
	Partitions []string
}

// offer is a Shape's Gres, read once.
func (s *Shape) offer() ([]slurmconf.Gres, error) { return slurmconf.ParseGres(s.Gres) }
