package answer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/slurmconf"
)

type wireJob struct {
	ID           uint32          `json:"job_id"`
	State        json.RawMessage `json:"job_state"`
	StateReason  string          `json:"state_reason"`
	StateDetail  string          `json:"state_description"`
	Nodes        string          `json:"nodes"`
	Partition    string          `json:"partition"`
	UserID       uint32          `json:"user_id"`
	UserName     string          `json:"user_name"`
	Batch        bool            `json:"batch_flag"`
	Requeue      bool            `json:"requeue"`
	Restarts     int             `json:"restart_cnt"`
	Submitted    Number          `json:"submit_time"`
	Eligible     Number          `json:"eligible_time"` // slurmctld packs details->begin_time here
	AdminComment string          `json:"admin_comment"`
	Comment      string          `json:"comment"`
	ArrayJobID   Number          `json:"array_job_id"`
	ArrayTaskID  Number          `json:"array_task_id"`
	HetJobID     Number          `json:"het_job_id"`
	HetOffset    Number          `json:"het_job_offset"`
}

// Jobs turns job objects into powersave's jobs.
type Jobs struct {
	List  []powersave.SlurmJob
	Total int // jobs seen, wanted or not

	states map[string]powersave.JobState
	want   func(powersave.SlurmJob) bool
}

// NewJobs keeps only the jobs that want says, all if it is nil.
func NewJobs(want func(powersave.SlurmJob) bool) *Jobs {
	return &Jobs{states: map[string]powersave.JobState{}, want: want}
}

// Read takes the next job object from dec.
func (r *Jobs) Read(dec *json.Decoder) error {
	var w wireJob
	if err := dec.Decode(&w); err != nil {
		return err
	}
	if w.ID == 0 {
		return errors.New("a job without an ID")
	}
	r.Total++
	state, err := r.state(w.State)
	if err != nil {
		return fmt.Errorf("state of job %d: %w", w.ID, err)
	}
	j := powersave.SlurmJob{
		ID:           w.ID,
		State:        state,
		StateReason:  w.StateReason,
		StateDetail:  w.StateDetail,
		Partition:    w.Partition,
		UserID:       w.UserID,
		UserName:     w.UserName,
		Batch:        w.Batch,
		Requeue:      w.Requeue,
		Restarts:     w.Restarts,
		Submitted:    w.Submitted.Time(),
		Begin:        w.Eligible.Time(),
		AdminComment: w.AdminComment,
		Comment:      w.Comment,
		ArrayJobID:   w.ArrayJobID.id(),
		HetJobID:     w.HetJobID.id(),
	}
	if j.ArrayJobID != 0 {
		j.ArrayTaskID = -1
		if w.ArrayTaskID.set {
			j.ArrayTaskID = int(w.ArrayTaskID.id())
		}
	}
	if j.HetJobID != 0 {
		j.HetOffset = int(w.HetOffset.id())
	}
	// An ended job names its nodes, too, until slurmctld forgets it.
	if w.Nodes != "" && state.Any(powersave.JobRunning|powersave.JobSuspended|powersave.JobCompleting) {
		nodes, err := slurmconf.ParseHostlist(w.Nodes)
		if err != nil {
			return fmt.Errorf("nodes of job %d: %w", w.ID, err)
		}
		j.Nodes = nodes.Expand()
	}
	if r.want == nil || r.want(j) {
		r.List = append(r.List, j)
	}
	return nil
}

func (r *Jobs) state(raw json.RawMessage) (powersave.JobState, error) {
	if s, ok := r.states[string(raw)]; ok {
		return s, nil
	}
	var words []string
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &words); err != nil {
			return 0, err
		}
	}
	if len(words) == 0 {
		return 0, errors.New("it is missing")
	}
	s := powersave.ParseJobState(words)
	r.states[string(raw)] = s
	return s, nil
}

// id is 0 when Slurm has no value.
func (v Number) id() uint32 {
	if !v.set || v.infinite || v.number < 0 || v.number > math.MaxUint32 {
		return 0
	}
	return uint32(v.number)
}

// DecodeStatus reads the answer to a change of jobs. What slurmctld said for single jobs
// stands in the list called field, often with HTTP 200 and no entry under "errors"; it
// is added to the Envelope's Errors.
func DecodeStatus(body io.Reader, field string) (Envelope, error) {
	var jobs []Problem
	env, _, err := decode(body, field, func(dec *json.Decoder) error {
		var w struct {
			// A text beside ErrorCode after a requeue or an update, an object after a cancel.
			Error     json.RawMessage `json:"error"`
			ErrorCode int             `json:"error_code"`
			Why       string          `json:"why"`
		}
		if err := dec.Decode(&w); err != nil {
			return err
		}
		p := Problem{Number: w.ErrorCode, Description: w.Why, Source: field}
		switch {
		case len(w.Error) > 0 && w.Error[0] == '{':
			var e struct {
				Code    int    `json:"code"`
				Name    string `json:"string"`
				Message string `json:"message"`
			}
			if err := json.Unmarshal(w.Error, &e); err != nil {
				return err
			}
			p.Number, p.Name, p.Description = e.Code, e.Name, e.Message
		case len(w.Error) > 0:
			if err := json.Unmarshal(w.Error, &p.Name); err != nil {
				return err
			}
		}
		if p.Number != 0 {
			jobs = append(jobs, p)
		}
		return nil
	})
	env.Errors = append(env.Errors, jobs...)
	return env, err
}
