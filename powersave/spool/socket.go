package spool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
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
	// Attempt is how often slurmctld has started the job, this time included (SLURM_JOB_RESTART_COUNT + 1); 0: unknown.
	Attempt int `json:"attempt,omitempty"`
}

// GateReply ends a start gate's wait. The gate lets the job go on in both cases.
type GateReply struct {
	Ready  bool   `json:"ready"`            // false: the bridge gave up
	Reason string `json:"reason,omitempty"` // why it gave up
	// Notify: the job's user waits at a terminal and is to read Reason there (scontrol notify).
	Notify bool `json:"notify,omitempty"`
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
	// Explain returns what is known of what the question names; both are the bridge's JSON.
	Explain(ctx context.Context, question json.RawMessage) (json.RawMessage, error)
}

// Messages on the socket: one JSON object a line. The client sends one question; the
// bridge answers with one of gate, status, explain or error, and while a gate waits with a
// waiting line now and then, so that a gate notices a bridge that hangs.
type (
	question struct {
		Op      string          `json:"op"`
		Gate    *GateRequest    `json:"gate,omitempty"`
		Explain json.RawMessage `json:"explain,omitempty"`
	}
	answer struct {
		Waiting bool            `json:"waiting,omitempty"`
		Gate    *GateReply      `json:"gate,omitempty"`
		Status  json.RawMessage `json:"status,omitempty"`
		Explain json.RawMessage `json:"explain,omitempty"`
		Error   string          `json:"error,omitempty"`
	}
)

const (
	opPoke    = "poke"
	opGate    = "gate"
	opStatus  = "status"
	opExplain = "explain"
)

const (
	// beat is how often the bridge tells a gate that it still waits.
	beat = 5 * time.Second
	// silence is how long a gate believes in a bridge that says nothing.
	silence = 3 * beat
	// answerWait is how long any other answer may take.
	answerWait = 10 * time.Second
)

// maxSocketPath is the longest path that fits into a socket address (sun_path, with its final 0).
const maxSocketPath = 107

// socketAddress returns a name of the spool's socket that fits into a socket address.
// release must be called after the address was used.
func (l layout) socketAddress() (address string, release func(), err error) {
	if len(l.socket()) <= maxSocketPath {
		return l.socket(), func() {}, nil
	}
	const oPath = 0x200000 // O_PATH; package syscall does not name it
	fd, err := syscall.Open(l.dir, oPath|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("opening spool %s: %w", l.dir, err)
	}
	return fmt.Sprintf("/proc/self/fd/%d/bridge.sock", fd), func() { syscall.Close(fd) }, nil
}

// Poke tells the bridge that a request was written. It never waits: when the bridge is
// not there or too busy to take it, it returns an error that the caller may ignore.
func Poke(dir string) error {
	address, release, err := layout{dir}.socketAddress()
	if err != nil {
		return err
	}
	defer release()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("poking bridge: %w", err)
	}
	defer syscall.Close(fd)
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: address}); err != nil {
		return fmt.Errorf("poking bridge: %w", err)
	}
	// MSG_NOSIGNAL: a bridge that just went away must not kill us.
	if err := syscall.Sendto(fd, []byte(`{"op":"poke"}`+"\n"), syscall.MSG_NOSIGNAL, nil); err != nil {
		return fmt.Errorf("poking bridge: %w", err)
	}
	return nil
}

// AskGate asks the bridge to wait for a job's nodes and returns its reply. It returns an
// error when there is no bridge, the bridge goes away or hangs, or ctx is done.
func AskGate(ctx context.Context, dir string, r GateRequest) (GateReply, error) {
	a, err := ask(ctx, dir, question{Op: opGate, Gate: &r}, silence)
	if err != nil {
		return GateReply{}, err
	}
	if a.Gate == nil {
		return GateReply{}, errors.New("asking bridge: its answer is no gate reply")
	}
	return *a.Gate, nil
}

// AskStatus returns the bridge's status.
func AskStatus(ctx context.Context, dir string) (json.RawMessage, error) {
	a, err := ask(ctx, dir, question{Op: opStatus}, answerWait)
	if err != nil {
		return nil, err
	}
	return a.Status, nil
}

// AskExplain returns what the bridge knows of what the question names.
func AskExplain(ctx context.Context, dir string, about json.RawMessage) (json.RawMessage, error) {
	a, err := ask(ctx, dir, question{Op: opExplain, Explain: about}, answerWait)
	if err != nil {
		return nil, err
	}
	return a.Explain, nil
}

// ask puts one question. patience is how long the bridge may say nothing.
func ask(ctx context.Context, dir string, q question, patience time.Duration) (answer, error) {
	address, release, err := layout{dir}.socketAddress()
	if err != nil {
		return answer{}, err
	}
	defer release()
	for give := time.Now().Add(patience); ; {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", address)
		if err == nil {
			defer conn.Close()
			return converse(ctx, conn, q, patience)
		}
		// The bridge's queue is full: many gates came at once.
		if !errors.Is(err, syscall.EAGAIN) || time.Now().After(give) {
			return answer{}, fmt.Errorf("asking bridge: %w", err)
		}
		select {
		case <-ctx.Done():
			return answer{}, fmt.Errorf("asking bridge: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// converse puts the question on an open connection and waits for the answer.
func converse(ctx context.Context, conn net.Conn, q question, patience time.Duration) (answer, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	failed := func(err error) (answer, error) {
		switch {
		case ctx.Err() != nil:
			err = ctx.Err()
		case errors.Is(err, io.EOF):
			err = errors.New("the bridge went away")
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = fmt.Errorf("the bridge said nothing for %v", patience)
		}
		return answer{}, fmt.Errorf("asking bridge: %w", err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return failed(err)
	}
	if err := json.NewEncoder(conn).Encode(q); err != nil {
		return failed(err)
	}
	for answers := json.NewDecoder(conn); ; {
		var a answer
		if err := answers.Decode(&a); err != nil {
			return failed(err)
		}
		switch {
		case a.Error != "":
			return failed(errors.New(a.Error))
		case !a.Waiting:
			return a, nil
		}
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return failed(err)
		}
	}
}
