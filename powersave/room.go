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
	Message string // the autoscaler's words
	Created time.Time
}
