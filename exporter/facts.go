package exporter

import (
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// Node is what slurmctld knows of one node.
type Node struct {
	Name       string
	State      powersave.NodeState
	Partitions []string

	CPUs, AllocCPUs     int64 // without SpecCPUs
	SpecCPUs            int64 // set apart for the system (CoreSpecCount, CpuSpecList)
	Memory, AllocMemory int64 // MiB
	SpecMemory          int64 // MiB of Memory, likewise (MemSpecLimit)
	FreeMemory          int64 // MiB, as the operating system says; negative: slurmd has not told
	Load                int64 // hundredths; negative: slurmd has not told
	Gres, GresUsed      string

	Address, Instance, Reservation, Reason, Comment string
}

// Job is one of slurmctld's records of jobs. An array's pending tasks that it has not looked at are one record.
type Job struct {
	State      powersave.JobState
	Reason     string // Slurm's word for why it is pending
	Partitions string // separated by commas; one once it has started
	User       string
	Account    string
	ArrayTasks string // the pending tasks of such a record: "1-9:2%4"
	Held       bool   // its priority is 0
	Eligible   time.Time
	TRES       string // what each task has, or asks for: "cpu=4,mem=800M,node=2,gres/gpu=1"
	CPUs       int64  // likewise, where TRES has none
	Nodes      int64  // likewise

	// For series of its own.
	ID        uint32
	ArrayJob  uint32 // 0: it is of no array
	ArrayTask string // empty, too, for the record of pending tasks
	Name, QOS string
	NodeList  string    // the nodes that it has, as a hostlist
	Submit    time.Time // these are zero if slurmctld has none
	Start     time.Time
	End       time.Time // of a job that runs: when its time limit is over
}

// Partition is what slurm.conf and scontrol say of a partition.
type Partition struct {
	Name  string
	State string // UP, DOWN, DRAIN or INACTIVE
	Nodes int64
	CPUs  int64
}

// Diag is what sdiag shows. Times are microseconds.
type Diag struct {
	Since time.Time // of all counts
	Now   time.Time // slurmctld's clock when it answered; zero: it did not tell

	Threads, Agents, AgentThreads, AgentQueue, DBDQueue float64

	Submitted, Started, Completed, Canceled, Failed float64

	Main     Cycles
	Backfill Cycles

	BackfillActive  bool
	BackfillJobs    float64 // since slurmctld started
	BackfillHetJobs float64 // likewise; components
	BackfillAt      time.Time

	RPCs  []RPC
	Users []RPC // by user's name
}

// Cycles are one scheduler's rounds.
type Cycles struct {
	Count, Sum, Last, Max float64
	Depth                 float64            // jobs looked at, in all of them
	Queue                 float64            // jobs that waited for it, the last time
	Exits                 map[string]float64 // why rounds ended
}

// RPC counts the requests of one kind, or of one user.
type RPC struct {
	Name                         string
	Count, Time, Queued, Dropped float64
}

// Options ask for more series.
type Options struct {
	PerNode bool // several for each node
	PerUser bool // several for each user and account
	PerJob  int  // several for each job that has nodes, for as many as this
}
