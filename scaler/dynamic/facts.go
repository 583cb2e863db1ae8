package dynamic

import (
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/scaler"
)

// Config holds the Planner's times. The zero value of a field means its default.
type Config struct {
	// Owner begins the comment of records that are ours; it has to tell this cluster's namespace from others. Required.
	Owner string
	// Quiet is how long demand must not have changed for pods to be made, Most how long that is waited for. Defaults 1 s and 10 s.
	Quiet, Most time.Duration
	// IdleTime is after how long an idle node goes if the NodeSet does not say. Default 5 min.
	IdleTime time.Duration
	// Deadline is how long a boot may take if the NodeSet does not say. Default 5 min.
	Deadline time.Duration
	// Grace is how long trouble with a pod must last if the NodeSet does not say. Default 10 s.
	Grace time.Duration
	// Sightings is how far apart two reads must be to confirm something lost. Default 10 s.
	Sightings time.Duration
	// SilentFor is how long a node with a pod may not respond before it is given up. Default 1 min.
	SilentFor time.Duration
}

// Facts is what there is.
type Facts struct {
	// Sets are all NodeSets of the Slurm cluster: those of mode Cloud serve jobs, too.
	Sets []powersave.NodeSet
	// Pods are all of those of mode Dynamic, as last seen.
	Pods []powersave.Pod
	// Blind: Kubernetes cannot be read at present.
	Blind bool
	// Slurm is the newest complete read; nil: none yet.
	Slurm *Reading
	// Asked is how many reads of Slurm have been begun.
	Asked int
	// Hosts are those in trouble; nil: they have not been read. HostsUnread: nor may they be.
	Hosts       *powersave.HostTroubles
	HostsUnread bool
}

// Reading is a complete read of Slurm.
type Reading struct {
	Number   int       // of the reads begun
	Answered time.Time // when it was complete
	// Queue has jobs, partitions, nodes and options; no NodeSets.
	Queue scaler.Snapshot
	// Records are all nodes. They are read before the jobs, so that a job that has begun meanwhile is seen.
	Records []powersave.SlurmNode
	// Reservations are the hostlists of all, also of those that begin later, by name.
	Reservations map[string]string
}

// Action is something to be done. All but Report are answered with Planner.Done.
type Action interface{ action() }

// CreatePod asks for the pod of a node.
type CreatePod struct {
	Node, NodeSet, Offering string
	Generation              int64
}

// DeletePod asks for the pod with exactly this UID to go. Whoever carries it out has Slurm asked for the node right before, and
// fails unless MayGo: a pod that boots could register meanwhile, and an order of a bridge that led before arrive late.
type DeletePod struct{ Node, NodeSet, UID, Why string }

// MayGo reports whether a pod may be deleted while Slurm shows its node like this: no job is on it, and none may come. On a node that is
// not its own there must be none either: slurmctld 26.05 takes no instance ID from a slurmd that began before the node was
// last put back (node_mgr.c validate_node_specs).
func MayGo(n powersave.SlurmNode, uid string) bool {
	return !n.State.Any(inUse) && (n.InstanceID != uid || n.State.Any(powersave.NodeDrain|powersave.NodeDown))
}

// Update asks slurmctld for a change to one or more nodes.
type Update struct{ powersave.NodeUpdate }

// DeleteRecord asks slurmctld to forget a node. Whoever carries it out has it asked for the node right before, and fails
// unless MayForget and nobody that came since is NamedBy to want it: slurmctld itself forgets any node that is not in use.
type DeleteRecord struct {
	Node, NodeSet string
	InstanceID    string // as it was read
}

// MayForget reports whether slurmctld may forget a node that it shows like this.
func (d DeleteRecord) MayForget(n powersave.SlurmNode) bool {
	return n.InstanceID == d.InstanceID && n.State.Any(powersave.NodeDrain|powersave.NodeDown) && !n.State.Any(inUse|spoken)
}

// MarkPod asks for the mark that keeps others from taking the pod away, or for it to be taken off.
type MarkPod struct{ powersave.MarkPod }

// Report is for the log, and if it is a warning for an Event.
type Report struct {
	Warning             bool
	Node, NodeSet, Text string
	// Class and Reason are of a boot that has failed, which Text says, too; UID is its pod's, empty if none was made.
	Class       powersave.Trouble
	Reason, UID string
}

func (CreatePod) action()    {}
func (DeletePod) action()    {}
func (Update) action()       {}
func (DeleteRecord) action() {}
func (MarkPod) action()      {}
func (Report) action()       {}

// Outcome is what came of an action.
type Outcome struct {
	Err string // empty: it was done
	// Of CreatePod: the class of what stands against it, and whether somebody must change something first.
	Trouble   powersave.Trouble
	Permanent bool
	// Missing: slurmctld has no such node (DeleteRecord, Update).
	Missing bool
	// Late: it was not done, for it could not begin soon enough. That says nothing about it.
	Late bool
}

const (
	inUse = powersave.NodeAllocated | powersave.NodeMixed | powersave.NodeCompleting
	// spoken are the states in which an idle node is not free to go: a job or a reservation is about to use it.
	spoken    = powersave.NodePlanned | powersave.NodeReserved | powersave.NodeMaintenance | rebooting
	rebooting = powersave.NodeRebootRequested | powersave.NodeRebootIssued
	// judged are the states in which Slurm gives a node no job, whoever wanted it.
	judged = powersave.NodeDrain | powersave.NodeDown | powersave.NodeFail
	// powered is what Slurm does to nodes that SuspendExcStates does not except.
	powered = powersave.NodePowerDown | powersave.NodePoweringDown | powersave.NodePoweredDown
	// notServing: no slurmd answers, or Slurm takes it for lost.
	notServing = powersave.NodeDown | powersave.NodeNotResponding | powersave.NodeFuture | powersave.NodeUnknown | powersave.NodeError | powersave.NodeInvalidReg
)

// ActOn is how old an answer may be for something to be taken down by it, and how long the order to do so may wait.
const ActOn = 5 * time.Second

const (
	createdWithin = time.Minute      // a pod may take so long to be seen
	endsWithin    = 30 * time.Second // and so long to end, as a rule
	markAgain     = 30 * time.Second // a mark that failed is tried again
)

// Pauses after a call for a node failed: doubled each time.
const (
	retryFirst = time.Second
	retryMost  = time.Minute
)
