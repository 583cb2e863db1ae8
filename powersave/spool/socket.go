package spool

import (
	"context"
	"encoding/json"
	"time"
)

// GateRequest is a start gate's question: are this job's nodes up?
type GateRequest struct {
	JobID uint32 `json:"job_id"`
	// Nodes is SLURM_JOB_NODELIST: the nodes of this job, or of this component of a
	// heterogeneous job.
	Nodes string `json:"nodes"`
	// Deadline is when the gate stops waiting by itself.
	Deadline time.Time `json:"deadline"`
	// ArrayJobID and ArrayTaskID are set for members of a job array; ArrayJobID is 0 otherwise.
	ArrayJobID  uint32 `json:"array_job_id,omitempty"`
	ArrayTaskID uint32 `json:"array_task_id,omitempty"`
	// HetJobID and HetJobOffset are set for components of a heterogeneous job; HetJobID is 0 otherwise.
	HetJobID     uint32 `json:"het_job_id,omitempty"`
	HetJobOffset uint32 `json:"het_job_offset,omitempty"`
	Partition    string `json:"partition,omitempty"`
}

// GateReply ends a start gate's wait. The gate lets the job go on in both cases.
type GateReply struct {
	Ready  bool   `json:"ready"`            // false: the bridge gave up
	Reason string `json:"reason,omitempty"` // why it gave up
}

// Handler is what the bridge does for its socket. Its methods run concurrently.
type Handler interface {
	// Poked tells that a request was written. It must not block.
	Poked()
	// Gate blocks until the nodes are ready, ctx is done (the client went away or the
	// server stops) or the bridge has given up on them.
	Gate(ctx context.Context, r GateRequest) GateReply
	// Status returns what `slurmtide status` shows, as JSON.
	Status(ctx context.Context) (json.RawMessage, error)
}
