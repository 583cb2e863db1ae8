package answer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/scaler"
)

// wireQueued is a job as scaler needs it.
type wireQueued struct {
	ID             uint32          `json:"job_id"`
	State          json.RawMessage `json:"job_state"`
	Reason         string          `json:"state_reason"`
	Priority       Number          `json:"priority"`
	Begin          Number          `json:"eligible_time"` // slurmctld packs details->begin_time here
	Start          Number          `json:"start_time"`    // of a pending job: expected, or not before (job_mgr.c pack_job)
	End            Number          `json:"end_time"`
	Account        string          `json:"account"`
	UserID         uint32          `json:"user_id"`
	Dependency     string          `json:"dependency"`
	ArrayJobID     Number          `json:"array_job_id"`
	ArrayTasks     string          `json:"array_task_string"`
	ArrayLimit     Number          `json:"array_max_tasks"`
	HetJobID       Number          `json:"het_job_id"`
	HetOffset      Number          `json:"het_job_offset"`
	Nodes          string          `json:"nodes"`
	Partition      string          `json:"partition"`
	NodeCount      Number          `json:"node_count"`
	MaxNodes       Number          `json:"max_nodes"`
	Tasks          Number          `json:"tasks"`
	CPUs           Number          `json:"cpus"`
	CPUsPerTask    Number          `json:"cpus_per_task"`
	TasksPerNode   Number          `json:"tasks_per_node"`
	TasksPerSocket Number          `json:"tasks_per_socket"`
	TasksPerCore   Number          `json:"tasks_per_core"`
	CPUsPerNode    Number          `json:"minimum_cpus_per_node"`
	SocketsPerNode Number          `json:"sockets_per_node"`
	CoresPerSocket Number          `json:"cores_per_socket"`
	ThreadsPerCore Number          `json:"threads_per_core"`
	MemoryPerNode  Number          `json:"memory_per_node"`
	MemoryPerCPU   Number          `json:"memory_per_cpu"`
	TmpDisk        Number          `json:"minimum_tmp_disk_per_node"`
	TRESPerNode    string          `json:"tres_per_node"`
	TRESPerJob     string          `json:"tres_per_job"`
	TRESPerTask    string          `json:"tres_per_task"`
	TRESPerSocket  string          `json:"tres_per_socket"`
	CPUsPerTRES    string          `json:"cpus_per_tres"`
	MemoryPerTRES  string          `json:"memory_per_tres"`
	TasksPerTRES   Number          `json:"tasks_per_tres"`
	TRESAsked      string          `json:"tres_req_str"`
	Features       string          `json:"features"`
	Required       string          `json:"required_nodes"`
	Excluded       string          `json:"excluded_nodes"`
	Reservation    string          `json:"resv_name"`
	Shared         json.RawMessage `json:"shared"` // empty from v0.0.45: see slurmrest's Queue
}

// Queue turns job objects into scaler's jobs, sharing equal texts. Jobs that have ended and left their nodes are left out.
type Queue struct {
	List  []scaler.Job
	Total int // jobs seen

	states map[string]powersave.JobState
	shares map[string][]string
	texts  map[string]string
}

// NewQueue starts an empty list.
func NewQueue() *Queue {
	return &Queue{states: map[string]powersave.JobState{}, shares: map[string][]string{}, texts: map[string]string{"": ""}}
}

// Read takes the next job object from dec.
func (q *Queue) Read(dec *json.Decoder) error {
	var w wireQueued
	if err := dec.Decode(&w); err != nil {
		return err
	}
	if w.ID == 0 {
		return errors.New("a job without an ID")
	}
	q.Total++
	state, err := once(q.states, w.State, func(words []string) powersave.JobState { return powersave.ParseJobState(words) })
	if err != nil {
		return fmt.Errorf("state of job %d: %w", w.ID, err)
	}
	if state == 0 {
		return fmt.Errorf("state of job %d: it is missing", w.ID)
	}
	j := scaler.Job{ID: w.ID, UserID: w.UserID, ArrayJobID: w.ArrayJobID.id(), ArrayLimit: w.ArrayLimit.id(), HetJobID: w.HetJobID.id()}
	switch {
	case state.Any(powersave.JobPending):
		j.State, j.Completing = scaler.JobPending, state.Any(powersave.JobCompleting)
	case state.Any(powersave.JobRunning | powersave.JobSuspended):
		j.State = scaler.JobRunning
	case state.Any(powersave.JobCompleting):
		j.State, j.Failed = scaler.JobLeaving, !state.Any(powersave.JobCompleted)
	default:
		return nil
	}
	j.Exclusive, j.Oversubscribe, err = q.sharing(w.Shared)
	if err != nil {
		return fmt.Errorf("shared of job %d: %w", w.ID, err)
	}
	if j.State != scaler.JobPending || j.Completing {
		j.Nodes, j.Partitions = q.text(w.Nodes), q.text(w.Partition)
		j.End = w.End.Time()
		// Slurm ends a job that names nodes which are no more when it is started again (job_mgr.c _reset_detail_bitmaps).
		j.RequiredNodes, j.ExcludedNodes = q.text(w.Required), q.text(w.Excluded)
	}
	if j.State == scaler.JobPending {
		q.fill(&j, &w)
	}
	q.List = append(q.List, j)
	return nil
}

// fill adds what only pending jobs are asked for.
func (q *Queue) fill(j *scaler.Job, w *wireQueued) {
	j.Reason = q.text(w.Reason)
	j.Priority = 1 // not reckoned yet
	if w.Priority.set {
		j.Priority = w.Priority.id()
	}
	j.Begin = w.Begin.Time()
	j.Dependent, j.Dependency = w.Dependency != "", q.text(w.Dependency)
	j.Start, j.Account = w.Start.Time(), q.text(w.Account)
	j.ArrayTasks = q.text(w.ArrayTasks)
	if j.HetJobID != 0 {
		j.HetOffset = int(w.HetOffset.id())
	}
	least := tresNodes(w.TRESAsked)
	if least == 0 {
		least = w.NodeCount.id()
	}
	memory, perCPU := w.MemoryPerNode, false
	if w.MemoryPerCPU.set {
		memory, perCPU = w.MemoryPerCPU, true
	}
	j.Request = scaler.Request{
		Partitions: q.text(w.Partition),
		MinNodes:   least,
		MaxNodes:   w.MaxNodes.id(),
		// Without a limit of its own slurmctld shows as many as it guesses (_pack_node_cnt), from 26.05 on the tasks.
		MaxNodesGuessed: w.MaxNodes.id() != 0 && w.MaxNodes.id() == w.NodeCount.id() && w.Tasks.id() > w.MaxNodes.id(),
		Tasks:           w.Tasks.id(),
		CPUs:            w.CPUs.id(),
		CPUsPerTask:     w.CPUsPerTask.short(),
		TasksPerNode:    w.TasksPerNode.short(),
		TasksPerSocket:  w.TasksPerSocket.short(),
		TasksPerCore:    w.TasksPerCore.short(),
		CPUsPerNode:     w.CPUsPerNode.short(),
		SocketsPerNode:  w.SocketsPerNode.short(),
		CoresPerSocket:  w.CoresPerSocket.short(),
		ThreadsPerCore:  w.ThreadsPerCore.short(),
		Memory:          memory.long(),
		MemoryPerCPU:    perCPU,
		TmpDisk:         w.TmpDisk.long(),
		TRESPerNode:     q.text(w.TRESPerNode),
		TRESPerJob:      q.text(w.TRESPerJob),
		TRESPerTask:     q.text(w.TRESPerTask),
		TRESPerSocket:   q.text(w.TRESPerSocket),
		CPUsPerTRES:     q.text(w.CPUsPerTRES),
		MemoryPerTRES:   q.text(w.MemoryPerTRES),
		TasksPerGPU:     w.TasksPerTRES.short(),
		Constraint:      q.text(w.Features),
		RequiredNodes:   q.text(w.Required),
		ExcludedNodes:   q.text(w.Excluded),
		Reservation:     q.text(w.Reservation),
		Exclusive:       j.Exclusive,
		Oversubscribe:   j.Oversubscribe,
	}
}

func (q *Queue) text(s string) string { return share(q.texts, s) }

// sharing reads the word for how the job shares its nodes (slurm_protocol_defs.c get_job_share_value).
func (q *Queue) sharing(raw json.RawMessage) (scaler.Exclusive, bool, error) {
	words, err := once(q.shares, raw, func(words []string) []string { return words })
	if err != nil {
		return 0, false, err
	}
	for _, w := range words {
		switch w {
		case "none", "mcs", "topo":
			return scaler.ExclusiveNode, false, nil
		case "user":
			return scaler.ExclusiveUser, false, nil
		case "oversubscribe":
			return scaler.ExclusiveNo, true, nil
		}
	}
	return scaler.ExclusiveNo, false, nil
}

// tresNodes is node= of a TRES list, 0 if it is not there.
func tresNodes(list string) uint32 {
	for item := range strings.SplitSeq(list, ",") {
		if n, ok := strings.CutPrefix(item, "node="); ok {
			nodes, _ := strconv.ParseUint(n, 10, 32)
			return uint32(nodes)
		}
	}
	return 0
}

// share keeps one copy of equal texts.
func share(texts map[string]string, s string) string {
	if t, ok := texts[s]; ok {
		return t
	}
	texts[s] = s
	return s
}

// once reads a list of words that is repeated many times over.
func once[T any](known map[string]T, raw json.RawMessage, read func([]string) T) (T, error) {
	if v, ok := known[string(raw)]; ok {
		return v, nil
	}
	var words []string
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &words); err != nil {
			var none T
			return none, err
		}
	}
	v := read(words)
	known[string(raw)] = v
	return v, nil
}

// short is a 16-bit number, 0 when Slurm has none: NO_VAL16 and INFINITE16 are sent as numbers by some fields.
func (v Number) short() uint32 {
	if n := v.id(); n < math.MaxUint16-1 {
		return n
	}
	return 0
}

// long is a 64-bit number, 0 when Slurm has none.
func (v Number) long() uint64 {
	if !v.set || v.infinite || v.number < 0 {
		return 0
	}
	return uint64(v.number)
}
