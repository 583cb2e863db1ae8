package spool

import (
	"encoding/json"
	"time"
)

// Version is the layout this package writes, and the newest it reads.
const Version = 1

// Kind says which program wrote a request.
type Kind string

// The three programs of slurm.conf that hand something over.
const (
	KindResume     Kind = "resume"      // ResumeProgram: boot these nodes
	KindSuspend    Kind = "suspend"     // SuspendProgram: take these nodes away
	KindResumeFail Kind = "resume-fail" // ResumeFailProgram: these nodes missed ResumeTimeout
)

// Request is one call of a program by slurmctld.
type Request struct {
	// Version is the spool version the request was written with.
	Version int `json:"version"`
	// ID names the request. IDs sort as strings in the order of acceptance, even when
	// the clock steps back. It is the file's name and not part of its content.
	ID string `json:"-"`
	// Kind is the program that wrote it.
	Kind Kind `json:"kind"`
	// Started is when the program began: the closest we get to when slurmctld decided.
	Started time.Time `json:"started"`
	// Nodes is the hostlist, as it stood on the command line.
	Nodes string `json:"nodes"`
	// SlurmConf is $SLURM_CONF.
	SlurmConf string `json:"slurm_conf,omitempty"`
	// ResumeTimeout is slurm.conf's, in seconds; 0 when unknown.
	ResumeTimeout int `json:"resume_timeout,omitempty"`
	// SuspendTime is the shortest in slurm.conf, in seconds; 0 when unknown, or when no node is ever suspended.
	SuspendTime int `json:"suspend_time,omitempty"`
	// AllAtOnce says that slurm.conf has ResumeRate=0.
	AllAtOnce bool `json:"all_at_once,omitempty"`
	// ResumeFileError says why ResumeFile is nil although SLURM_RESUME_FILE was set.
	ResumeFileError string `json:"resume_file_error,omitempty"`
	// ResumeFile is the content of the file $SLURM_RESUME_FILE names: valid JSON, bytes
	// unchanged. It is nil when slurmctld gave none or when it was not valid.
	ResumeFile json.RawMessage `json:"resume_file,omitempty"`
}

// Sequence is a number that grows with every request of a spool.
func (r Request) Sequence() int64 { return idNumber(r.ID) }

// Corrupt is a request that could not be read and was moved to bad/.
type Corrupt struct {
	ID   string
	Path string // where it lies now
	Err  error
}

// Stats describes what waits in a spool.
type Stats struct {
	Depth  int       // requests waiting
	Oldest time.Time // when the oldest of them was accepted; zero when none waits
	Bytes  int64     // size of the waiting requests
	Bad    int       // entries set aside in bad/
}
