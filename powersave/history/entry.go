// Package history keeps what has become of boots, power-downs and jobs, so that people can be told afterwards. The Recorder makes
// entries of what the engine is told and decides, a Store appends them to a file in the spool directory, Read finds them again, and
// Tell makes a story of them.
//
// Nothing depends on it: an entry that cannot be written is counted and forgotten.
package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// What says what an entry tells of.
type What string

// What entries tell of.
const (
	BridgeStarted    What = "BridgeStarted"
	RequestAccepted  What = "RequestAccepted"  // of ResumeProgram, SuspendProgram or ResumeFailProgram; one for each job that it names
	GateWaits        What = "GateWaits"        // PrologSlurmctld has begun: slurmctld has just allocated the job's nodes
	RoomAsked        What = "RoomAsked"        // a ProvisioningRequest for a job
	RoomState        What = "RoomState"        // what became of it
	PodCreated       What = "PodCreated"       // Kubernetes has taken it
	PodScheduled     What = "PodScheduled"     // it has a host
	ContainerStarted What = "ContainerStarted" // its image is there, and slurmd runs
	NodeRegistered   What = "NodeRegistered"   // slurmctld shows the node without POWERING_UP
	BootFailed       What = "BootFailed"       // the verdict
	GateOpened       What = "GateOpened"       // the job's nodes serve
	GateGivenUp      What = "GateGivenUp"      // they will not
	JobSeen          What = "JobSeen"          // as Slurm showed it
	JobGivenBack     What = "JobGivenBack"     // its record says why
	JobRests         What = "JobRests"         // it has a begin time
	NodesUpdated     What = "NodesUpdated"     // slurmctld has taken a change of nodes
	PodDeleted       What = "PodDeleted"       // it is to go
	PodGone          What = "PodGone"
	JobsLost         What = "JobsLost"
	Breaker          What = "Breaker"  // of a NodeSet or an offering: it has opened, lets a probe through, or has closed
	Floor            What = "Floor"    // it was not reached
	Reported         What = "Reported" // what the engine says of a node or NodeSet
	Unreadable       What = "Unreadable"
	Readable         What = "Readable"
	EntriesLost      What = "EntriesLost" // so many entries could not be kept
)

// Entry is one thing that happened. What does not apply is empty.
type Entry struct {
	Time     time.Time `json:"time"` // the bridge's clock
	What     What      `json:"what"`
	Node     string    `json:"node,omitempty"`
	Nodes    string    `json:"nodes,omitempty"` // a hostlist, when it is about several
	NodeSet  string    `json:"nodeSet,omitempty"`
	Offering string    `json:"offering,omitempty"`
	Jobs     []uint32  `json:"jobs,omitempty"`
	Request  string    `json:"request,omitempty"` // of mode Dynamic, where nobody requests: the pod's UID, or an ID of its own where none was made
	Kind     string    `json:"kind,omitempty"`    // of the request
	Dynamic  bool      `json:"dynamic,omitempty"` // of a node of mode Dynamic
	PodUID   string    `json:"podUID,omitempty"`
	Host     string    `json:"host,omitempty"`
	State    string    `json:"state,omitempty"`  // of a breaker, a job in Slurm, or a request for room; of nodes: what they were set to
	API      string    `json:"api,omitempty"`    // Slurm or Kubernetes
	Class    string    `json:"class,omitempty"`  // of a verdict
	Reason   string    `json:"reason,omitempty"` // for people
	Until    time.Time `json:"until,omitzero"`   // when it is tried again
	Attempt  int       `json:"attempt,omitempty"`
	Pull     string    `json:"pull,omitempty"`  // of the image of a started container: powersave.Pod.Pull
	Times    int       `json:"times,omitempty"` // given back in a row, or entries lost

	Requested time.Time `json:"requested,omitzero"` // start of the program that made the request; of mode Dynamic, when there was to be a node
	Asked     time.Time `json:"asked,omitzero"`     // when Kubernetes was first asked for the pod
	Submitted time.Time `json:"submitted,omitzero"` // of a job, anew with each requeue
	Eligible  time.Time `json:"eligible,omitzero"`
}

// Subject is what is asked about: one of the three.
type Subject struct {
	Job     uint32 `json:"job,omitempty"`
	Node    string `json:"node,omitempty"`
	NodeSet string `json:"nodeSet,omitempty"`
}

// global says that an entry matters to everybody who was waiting at the time.
func (e *Entry) global() bool {
	return slices.Contains([]What{BridgeStarted, Unreadable, Readable, EntriesLost}, e.What)
}

// about says whether the entry tells of s; global ones tell of all.
func (e *Entry) about(s Subject) bool {
	switch {
	case e.global():
		return true
	case s.Job != 0:
		return slices.Contains(e.Jobs, s.Job)
	case s.NodeSet != "":
		return e.NodeSet == s.NodeSet
	}
	return e.Node == s.Node || e.Nodes != "" && holds(e.Nodes, s.Node)
}

// compress names nodes in the order of their numbers, in whichever they came.
func compress(nodes []string) string {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, byNumber)
	return slurmconf.CompressHostlist(nodes)
}

func byNumber(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

func holds(list, node string) bool {
	nodes, err := slurmconf.ParseHostlist(list)
	return err == nil && nodes.Contains(node)
}
