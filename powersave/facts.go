package powersave

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// NodeState is the set of state words slurmctld shows for a node: one base state
// (IDLE, DOWN, ALLOCATED, …) and any number of flags (CLOUD, POWERED_DOWN, …).
// Test it by membership, never by equality: new Slurm versions add words.
// Source: slurm/slurm.h NODE_STATE_*, slurmrestd node.state.
type NodeState uint64

// Base states and flags the bridge knows, under slurmrestd's names.
const (
	NodeDown NodeState = 1 << iota
	NodeIdle
	NodeAllocated
	NodeMixed
	NodeFuture
	NodeUnknown
	NodeError
	NodeCloud
	NodeDrain
	NodeFail
	NodeCompleting
	NodeNotResponding
	NodePowerUp
	NodePowerDown
	NodePoweringUp
	NodePoweringDown
	NodePoweredDown
	NodePowerDrain
	NodeInvalidReg
	NodeReserved
	NodeMaintenance
	NodePlanned
	NodeRebootRequested
	NodeRebootIssued
	NodeDynamicNorm
	NodeDynamicFuture
	NodeResume
	NodeUndrain
	NodeBlocked
	NodeExternal
	// NodeOther stands for every word this version does not know.
	NodeOther
)

// nodeStateWords is indexed by bit position.
var nodeStateWords = []string{
	"DOWN", "IDLE", "ALLOCATED", "MIXED", "FUTURE", "UNKNOWN", "ERROR", "CLOUD", "DRAIN", "FAIL", "COMPLETING", "NOT_RESPONDING",
	"POWER_UP", "POWER_DOWN", "POWERING_UP", "POWERING_DOWN", "POWERED_DOWN", "POWER_DRAIN", "INVALID_REG", "RESERVED", "MAINTENANCE",
	"PLANNED", "REBOOT_REQUESTED", "REBOOT_ISSUED", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "RESUME", "UNDRAIN", "BLOCKED", "EXTERNAL", "OTHER",
}

// ParseNodeState turns slurmrestd's words into a set. Words it does not know set NodeOther.
func ParseNodeState(words []string) NodeState {
	return parseWords(words, nodeStateWords, NodeOther)
}

// parseWords gives the set of words; known is indexed by bit position, and other stands for what is not in it.
func parseWords[S ~uint32 | ~uint64](words, known []string, other S) S {
	var s S
	for _, w := range words {
		if i := slices.Index(known, strings.ToUpper(w)); i >= 0 {
			s |= 1 << i
		} else {
			s |= other
		}
	}
	return s
}

// joinWords is the way back, with "+" between the words as in sinfo and scontrol.
func joinWords[S ~uint32 | ~uint64](s S, known []string) string {
	var words []string
	for i, w := range known {
		if s&(1<<i) != 0 {
			words = append(words, w)
		}
	}
	return strings.Join(words, "+")
}

// Has reports whether every word of want is in s.
func (s NodeState) Has(want NodeState) bool { return s&want == want }

// Any reports whether at least one word of want is in s.
func (s NodeState) Any(want NodeState) bool { return s&want != 0 }

// String joins the words with "+", the way sinfo and scontrol do.
func (s NodeState) String() string { return joinWords(s, nodeStateWords) }

// SlurmNode is what slurmctld knows of one node, as far as the bridge needs it.
type SlurmNode struct {
	Name       string
	State      NodeState
	Reason     string // free text set by whoever changed the state last
	Comment    string // free text
	BootTime   time.Time
	LastBusy   time.Time
	Address    string // NodeAddr; the node name while powered down
	InstanceID string // slurmd --instance-id: the pod's UID
	Features   []string
	Partitions []string
	Gres       string
	CPUs       int
	RealMemory int64 // MiB
}

// StateChange names one update slurmctld accepts for a node's state; the words
// each Slurm version wants for it are the Slurm adapter's business.
type StateChange string

// The changes the bridge asks for (slurmctld node_mgr.c update_node).
const (
	StateNone   StateChange = ""       // change other fields only
	StateResume StateChange = "resume" // POWERING_DOWN: ends the wait and frees the name; DOWN/DRAIN: back to service
	// StateUndrain takes only DRAIN back. A node that begins to power down just then goes on doing so, while StateResume
	// would free the name of a living pod.
	StateUndrain        StateChange = "undrain"
	StateDown           StateChange = "down"  // needs a reason
	StateDrain          StateChange = "drain" // needs a reason
	StatePowerUp        StateChange = "power_up"
	StatePowerDown      StateChange = "power_down"       // when idle
	StatePowerDownASAP  StateChange = "power_down_asap"  // drain, then power down
	StatePowerDownForce StateChange = "power_down_force" // jobs are requeued or killed
	// StateRenew lets the idle time of plainly idle nodes begin anew; others are left alone.
	StateRenew StateChange = "renew"
)

// NodeUpdate changes several nodes at once. Zero fields stay as they are in Slurm.
type NodeUpdate struct {
	Nodes   []string
	State   StateChange
	Reason  string
	Comment string
	Extra   string
	// Topology is where in the network they are, as after Topology= of scontrol update ("default:s1"). Before Slurm 25.11 there is no such update.
	Topology string
}

// String is used in logs and errors.
func (u NodeUpdate) String() string {
	return fmt.Sprintf("%s %s", cmp.Or(u.State, "update of"), slurmconf.CompressHostlist(u.Nodes))
}

// PodPhase is the pod's own lifecycle, as far as the engine distinguishes it.
type PodPhase string

// Phases in the order a healthy boot passes through them.
const (
	PodPending     PodPhase = "pending"     // exists, no host yet
	PodScheduled   PodPhase = "scheduled"   // bound to a host
	PodRunning     PodPhase = "running"     // slurmd container started
	PodReady       PodPhase = "ready"       // Kubernetes says Ready
	PodFailed      PodPhase = "failed"      // ended; slurmd pods are never meant to end by themselves
	PodTerminating PodPhase = "terminating" // deletionTimestamp is set
	PodUnknown     PodPhase = "unknown"     // host lost
)

// Trouble is the class of what keeps a pod, or its slurmd, from serving.
type Trouble string

// Classes of trouble, and whether waiting helps. How long to wait is the Engine's decision.
const (
	TroubleNone Trouble = ""
	// TroubleCapacity: no host has room for the pod, or none could ever fit. Waiting helps when other pods end or
	// somebody adds a host, which Pod.ScaleUp tells; nothing says how long.
	TroubleCapacity Trouble = "capacity"
	// TroubleQuota: a ResourceQuota or LimitRange refuses the pod. Waiting helps when others leave the quota, unless
	// PodCreateFailed.Permanent says that the pod alone is too much.
	TroubleQuota Trouble = "quota"
	// TroubleImage: the image cannot be named, found or pulled. Waiting helps only if the registry is what fails.
	TroubleImage Trouble = "image"
	// TroubleConfig: a secret, config map or volume is missing or cannot be mounted, or admission refuses the pod. Somebody
	// has to change something, not always in the NodeSet. Volumes alone may need some seconds on a new host.
	TroubleConfig Trouble = "config"
	// TroubleCrash: slurmd ended by itself or could not be started. Waiting does not help this pod.
	TroubleCrash Trouble = "crash"
	// TroubleLost: preempted, evicted, or the host is gone. Waiting does not help this pod, but it is not the
	// pod's fault: a new one may do.
	TroubleLost Trouble = "lost"
	// TroubleRefused: slurmctld refused the registration (INVALID_REG). Waiting does not help.
	TroubleRefused Trouble = "refused"
	// TroubleBootstrap: slurmd runs and never registered. The waiting is over.
	TroubleBootstrap Trouble = "bootstrap"
)

// Troubles are all classes of trouble.
var Troubles = []Trouble{TroubleCapacity, TroubleQuota, TroubleImage, TroubleConfig, TroubleCrash, TroubleLost, TroubleRefused, TroubleBootstrap}

// PullThere is the Pull of an image that was on the host already.
const PullThere = "there"

// Pod is what Kubernetes knows of one slurmd pod of ours.
type Pod struct {
	Node       string // Slurm NodeName == pod name == hostname
	NodeSet    string
	UID        string
	Generation int64  // annotation; which boot of this node the pod belongs to
	Request    string // annotation; spool request ID
	Phase      PodPhase
	Host       string    // Kubernetes node, once scheduled
	Created    time.Time // API server clock, one-second resolution
	Reason     string    // CamelCase, why it is not further ("Unschedulable", "ErrImagePull", "CrashLoopBackOff", …)
	Message    string
	// Trouble is the class of Reason; none while the pod makes its way, and where the reason does not tell.
	// A pod that failed has one always.
	Trouble Trouble
	// ScaleUp is since when an autoscaler has been making a host for the pod; zero if none is, or it gave up.
	// Trouble may be TroubleCapacity all the while.
	ScaleUp time.Time
	// Offering the pod was made for; "" if the NodeSet has none.
	Offering string
	Busy     bool // label; jobs may be on it
	Dynamic  bool // label; of a NodeSet of mode Dynamic
	// Room it was made for; "" for none.
	Room string
	// Revision of its NodeSet that it was made from; "" if that is not known.
	Revision string
	// Pull is how slurmd's image came to the host: PullThere, or the time.Duration that it took; "" if nobody has said.
	Pull string
	// Ends is when the pod's slurmd is ended at the latest, and what runs under it, once it is being deleted; zero if nobody knows.
	Ends time.Time
}

const leaving = "pod is being deleted"

// Leaving says that the pod is being deleted, by whom if Kubernetes does it, and how long its jobs have.
func (p *Pod) Leaving() string {
	s := leaving
	if p.Trouble == TroubleLost && p.Reason != "" {
		s += " (" + p.Reason + ")"
	}
	if !p.Ends.IsZero() {
		s += ", jobs have until " + p.Ends.UTC().Format(time.RFC3339)
	}
	return s
}

// OwnGrace is how long a pod may take to end that we have deleted.
const OwnGrace = 10 * time.Second

// Lingers says that the pod, which somebody else has deleted, may stay for longer than it would if we had.
func (p *Pod) Lingers(now time.Time) bool {
	return p.Phase == PodTerminating && p.Ends.Sub(now) > OwnGrace+clockSkew
}

// BootStrategy says what becomes of a job that cannot get all its nodes (spec.boot.strategy).
type BootStrategy string

// Strategies. The zero value stands for AllOrNothing.
const (
	AllOrNothing BootStrategy = "AllOrNothing" // its nodes are given back at once
	Greedy       BootStrategy = "Greedy"       // the same, the youngest job first, so that older ones get what it held
	BestEffort   BootStrategy = "BestEffort"   // only the node that failed is given back
)

// Offering is one way to get hosts for a NodeSet's shape.
type Offering struct {
	Name  string
	Limit int // most nodes on it at once; 0: no limit
}

// NodeSet is the part of a NodeSet object that the engine decides with.
type NodeSet struct {
	Name  string // object name; unique in the bridge's namespace
	UID   string
	Nodes slurmconf.Hostlist
	// Problem is set when the object cannot be used (overlap, unsupported field, shape contradiction).
	// Its nodes are then refused with this text.
	Problem string

	SpecGeneration int64 // metadata.generation: grows with each change of the spec
	// SpecHash changes with all of the spec but what says how many nodes are to be up, which autoscalers write; "" if it is not known.
	SpecHash           string
	Strategy           BootStrategy
	Deadline           time.Duration // from the request until all nodes of a job are up; 0: ResumeTimeout less a margin
	UnschedulableGrace time.Duration // 0: default
	Offerings          []Offering    // in the order to be tried
	Pinned             bool          // each node has a host of its own: that one is full says nothing about the others
	HostSuffix         string        // with Pinned: that host has the node's name with this after it
	AskForRoom         bool          // make pods only when a RoomRequest for them is provisioned
	Floor              int           // least number of nodes that are up
	FloorWas           int           // as last carried out, says the object's status; looked at once
	SuspendTimeWas     time.Duration // as a request told once, says the object's status; looked at once
	Windows            []FloorWindow // that raise the floor
	MaxPoweredUp       int           // most nodes that are powered up without a job that asks; 0: no limit
	BootTimes          BootTimes     // as last saved in the object's status
	BackoffInitial     time.Duration // 0: default
	BackoffMax         time.Duration // 0: default
	// Breakers as last saved in the object's status; looked at once, when the NodeSet is new to the engine.
	Breakers  []BreakerRecord
	LookAhead *LookAhead // nil: nodes are not powered up before jobs have them
	// Revision of what its pods are made from: it changes with the template and the shape, and comes back with them. "" if it is not known.
	Revision string
	Rolling  *RollingUpdate // nil: pods of other revisions are left alone
	Window   *UpdateWindow  // with Rolling: only then; nil: at any time
	// Dynamic is set for mode Dynamic: its nodes have no power states, so the Engine is not told of it.
	Dynamic *Dynamic
}

// Dynamic is what a NodeSet of mode Dynamic says of its nodes: they register themselves.
type Dynamic struct {
	IdleTime   time.Duration // after which an idle node goes; 0: default
	Partitions []string      // that its nodes are in; nil: those with Nodes=ALL

	// The shape they register with; 0: not given.
	CPUs, Sockets, Cores, Threads int32
	Memory                        int64 // MiB
	Gres                          string
	Features                      []string
	Weight                        int32
}
