package powersave

import (
	"time"

	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// Request is one call of ResumeProgram, SuspendProgram or ResumeFailProgram, as found in the spool.
type Request struct {
	ID       string
	Sequence int64 // grows with every request accepted by the spool
	Kind     spool.Kind
	Started  time.Time // when the program started, the closest known time to slurmctld's decision
	Nodes    slurmconf.Hostlist
	Jobs     []Job // resume only; jobless power-ups name none
	// AllAtOnce: slurm.conf has ResumeRate=0.
	AllAtOnce bool
	// ResumeTimeout is slurm.conf's; 0: unknown.
	ResumeTimeout time.Duration
	// SuspendTime is the shortest in slurm.conf; 0: unknown, or nodes are never suspended.
	SuspendTime time.Duration
}

// Job is one job of a resume request.
type Job struct {
	ID        uint32
	Nodes     slurmconf.Hostlist // nodes_alloc: the whole job, also nodes that are up or came in another slice
	Partition string
}

// Event is something the Engine is told.
type Event interface{ event() }

// RequestAccepted hands over a request from the spool. Repeating one is harmless.
type RequestAccepted struct{ Request Request }

// NodeSetsRead replaces all that is known of NodeSets.
type NodeSetsRead struct{ NodeSets []NodeSet }

// PodsRead is the complete list of the cluster's slurmd pods.
type PodsRead struct{ Pods []Pod }

// PodSeen is the newest state of one pod.
type PodSeen struct{ Pod Pod }

// PodGone says that a pod exists no longer.
type PodGone struct{ Node, UID string }

// SlurmRead answers ReadSlurm.
type SlurmRead struct {
	Complete bool // every node of the cluster is in Nodes
	Nodes    []SlurmNode
	Unknown  []string // asked for, and not known to slurmctld
}

// SlurmReadFailed answers ReadSlurm.
type SlurmReadFailed struct{ Err string }

// PodCreated answers CreatePod.
type PodCreated struct {
	Node, UID  string
	Generation int64
}

// PodCreateFailed answers CreatePod.
type PodCreateFailed struct {
	Node       string
	Generation int64
	// Permanent failures are retried slowly: something must be changed by people first.
	Permanent bool
	// Everywhere: no node's pod can be made, whatever its NodeSet says: a right is missing, or the namespace is being deleted.
	Everywhere bool
	// Existing is the pod that has the name, when that is why.
	Existing *Pod
	Trouble  Trouble
	Err      string
}

// PodDeleted answers DeletePod: Kubernetes accepted the deletion, or the pod was gone already.
type PodDeleted struct {
	Node, UID string
	Gone      bool
}

// PodDeleteFailed answers DeletePod.
type PodDeleteFailed struct {
	Node, UID, Err string
	Late           bool // it was not tried, for it could not begin in time
}

// NodesUpdated answers UpdateNodes; an empty Err means that slurmctld took it.
type NodesUpdated struct {
	Update NodeUpdate
	Err    string
}

// JobTold answers TellJob; an empty Err means that the record says it, or is finished and takes no more.
type JobTold struct {
	Job    uint32
	Serial int // of the action
	// Interactive jobs (srun, salloc) have a user who waits at a terminal.
	Interactive bool
	// Times is how often the job has been given back in a row, this time included, says its record; 0: unknown.
	Times int
	// Attempt is which start of the job the record has been told of; 0: unknown.
	Attempt int
	// Parts are the components of the het job that it is part of, the leader first; none if it is not.
	Parts []JobPart
	Err   string
}

// JobPart is one component of a het job.
type JobPart struct {
	Job   uint32
	Nodes []string // that it has
}

// BacksRead answers ReadBacks: what JobsBack finds among all jobs, or why they cannot be read.
type BacksRead struct {
	Jobs []JobBack
	Err  string
}

// JobHeld answers HoldJob; an empty Err means that the job rests, or has ended, or is on nodes again.
type JobHeld struct {
	Job    uint32
	Serial int  // of the action
	Again  bool // slurmctld has given it nodes before it could be held off
	Err    string
}

// GateOpened says that a start-gate waits for a job's nodes.
type GateOpened struct {
	ID       uint64
	JobID    uint32
	Nodes    slurmconf.Hostlist
	Deadline time.Time // zero: none
	HetJob   uint32    // leader of the het job that the job is part of; 0: none
	Attempt  int       // how often slurmctld has started the job, this time included; 0: unknown
}

// GateClosed says that the waiting start-gate went away.
type GateClosed struct{ ID uint64 }

// Tick says that time has passed.
type Tick struct{}

func (RequestAccepted) event() {}
func (NodeSetsRead) event()    {}
func (PodsRead) event()        {}
func (PodSeen) event()         {}
func (PodGone) event()         {}
func (SlurmRead) event()       {}
func (SlurmReadFailed) event() {}
func (PodCreated) event()      {}
func (PodCreateFailed) event() {}
func (PodDeleted) event()      {}
func (PodDeleteFailed) event() {}
func (NodesUpdated) event()    {}
func (JobTold) event()         {}
func (JobHeld) event()         {}
func (BacksRead) event()       {}
func (GateOpened) event()      {}
func (GateClosed) event()      {}
func (Tick) event()            {}

// Action is something the Engine wants done.
type Action interface{ action() }

// CreatePod asks for a slurmd pod. Answered by PodCreated or PodCreateFailed.
type CreatePod struct {
	Node, NodeSet string
	Generation    int64
	Request       string // the request that began the boot; empty when found by reconciling
	Offering      string // "" when the NodeSet has none
	Job           uint32 // the job it is for: its pods want to be near each other, and are busy from the start; 0: none
	HetJob        uint32 // leader of the het job that Job is a component of, as far as is known: their pods, too; 0: none
	Room          string // name of the Room that was made for it; "" for none
}

// DeletePod asks for the pod with exactly this UID to go. A call that has not begun by Before
// must not be made: Slurm may use the node again. Answered by PodDeleted or PodDeleteFailed.
type DeletePod struct {
	Node, UID, Why string
	Before         time.Time
}

// UpdateNodes asks slurmctld to change nodes. Answered by NodesUpdated.
type UpdateNodes struct{ Update NodeUpdate }

// ReadSlurm asks for the state of these nodes; no Nodes means all. How they are best read is
// not the Engine's business. At most one is under way.
// Answered by SlurmRead or SlurmReadFailed.
type ReadSlurm struct{ Nodes []string }

// FinishRequest says that everything a request asked for is done or superseded.
type FinishRequest struct{ ID string }

// AnswerGate lets a waiting start-gate go. Ready false: the nodes are not up, and waiting is pointless.
type AnswerGate struct {
	ID     uint64
	Ready  bool
	Reason string
	// Notify: the gate is to tell the job's user why, at his terminal.
	Notify bool
}

// TellJob asks for the record of a job to say why it is being given back. Answered by JobTold.
type TellJob struct {
	Job    uint32
	Serial int
	Reason string
	Taken  bool // slurmctld has taken it off its nodes already
}

// HoldJob asks for a job that was taken off its nodes not to start before Delay has passed. Answered by JobHeld.
type HoldJob struct {
	Job     uint32
	Serial  int
	Request string // the newest that named the job; "" if none did
	Delay   time.Duration
}

// ReadBacks asks which jobs were given back before, perhaps by another bridge, and do not rest. Answered by BacksRead.
type ReadBacks struct{}

// BootFailed reports the verdict on a boot, for history, events and metrics.
type BootFailed struct {
	Node, NodeSet, Offering, UID, Request string
	Jobs                                  []uint32 // given back with it
	Verdict                               Verdict
}

// BootDone reports a boot that ended well, for history and metrics.
type BootDone struct{ Boot Boot }

// GangDone reports that a job waits for nodes no longer, for metrics. Each component of a het job is one, and so is each start of a job.
type GangDone struct {
	Job     uint32
	NodeSet string // of the first node that it waited for; "" if that is in none
	Outcome GangOutcome
}

// GangOutcome says why a job waits no longer.
type GangOutcome string

// Outcomes.
const (
	GangReady     GangOutcome = "ready"      // all that was powered up for it has registered
	GangGivenBack GangOutcome = "given_back" // a node of it, or of its het job, could not boot
	GangLeft      GangOutcome = "left"       // it has ended, or slurmctld has taken it off its nodes for another reason
)

// Report is something people should know, for the log.
type Report struct {
	Level   ReportLevel
	Node    string
	NodeSet string
	Request string
	Text    string
}

// ReportLevel says how loud a Report is.
type ReportLevel int

// Levels of reports.
const (
	Info ReportLevel = iota
	Warn
	Fault
)

func (CreatePod) action()     {}
func (DeletePod) action()     {}
func (UpdateNodes) action()   {}
func (ReadSlurm) action()     {}
func (FinishRequest) action() {}
func (AnswerGate) action()    {}
func (TellJob) action()       {}
func (HoldJob) action()       {}
func (ReadBacks) action()     {}
func (BootFailed) action()    {}
func (BootDone) action()      {}
func (GangDone) action()      {}
func (Report) action()        {}
