package powersave

import "time"

// RoomRequest asks the cluster's autoscaler to make room for all pods of a job before they
// exist (spec.boot.provisioningRequest). Job and Attempt identify it.
type RoomRequest struct {
	Job     uint32
	Attempt int64 // grows with every request for the same job
	Sets    []RoomSet
}

// RoomSet is a number of equal pods.
type RoomSet struct {
	NodeSet, Offering string
	Pods              int
}

// RoomState says how far a RoomRequest is.
type RoomState string

// States of a RoomRequest. The autoscaler goes on trying while it is pending or accepted.
const (
	RoomPending     RoomState = "pending"     // no autoscaler has taken it up
	RoomAccepted    RoomState = "accepted"    // an autoscaler works on it
	RoomProvisioned RoomState = "provisioned" // there is room, and it is kept for some minutes
	RoomFailed      RoomState = "failed"      // there will be none
	RoomExpired     RoomState = "expired"     // it is not kept any longer; pods that have hosts stay there
	RoomRevoked     RoomState = "revoked"     // it was taken away
)

// Room is what has become of a RoomRequest.
type Room struct {
	Name    string // for CreatePod
	Job     uint32
	Attempt int64
	State   RoomState
	// Refused says that the autoscaler has found no room, or not for all, though it may go on trying.
	Refused bool
	Message string // the autoscaler's words
	Created time.Time
}

// AskRoom carries out a RoomRequest. Answered by RoomAsked.
type AskRoom struct{ Request RoomRequest }

// RoomAsked answers AskRoom; an empty Err means that the request of that Name exists.
type RoomAsked struct {
	Job     uint32
	Attempt int64
	Name    string
	Trouble Trouble
	// OfJob: it is the job that asks for what cannot be asked for; nothing is wrong with its NodeSets.
	OfJob bool
	// Everywhere: nothing can be asked for, whatever a NodeSet says: a right is missing, or the API.
	Everywhere bool
	Err        string
}

// ReadRooms asks what has become of all requests. At most one is under way. Answered by RoomsRead.
type ReadRooms struct{}

// RoomsRead answers ReadRooms: all requests of the cluster, or why they cannot be read.
type RoomsRead struct {
	Rooms      []Room
	Trouble    Trouble
	Everywhere bool // as RoomAsked's
	Err        string
}

// DropRoom asks for a request to go. Answered by RoomDropped.
type DropRoom struct{ Name string }

// RoomDropped answers DropRoom; an empty Err means that it is gone.
type RoomDropped struct{ Name, Err string }

func (AskRoom) action()    {}
func (RoomAsked) event()   {}
func (ReadRooms) action()  {}
func (RoomsRead) event()   {}
func (DropRoom) action()   {}
func (RoomDropped) event() {}
