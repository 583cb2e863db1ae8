package slurmrest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/slurmtide/slurmtide/internal/slurmrest/answer"
	"github.com/slurmtide/slurmtide/scaler"
)

// PeekJobs looks at the jobs with these IDs. It costs slurmctld far less than QueueJobs: it finds each in its table, and tells the state of those it has
// (job_state.c dump_job_state). Jobs that are pending are then read one by one, unless their mark in known is what it still is. The marks are of all these
// jobs that slurmctld has; a mark changes with a job's state, and with the pending tasks of its array.
func (c *Client) PeekJobs(ctx context.Context, ids []uint32, known map[uint32]string) ([]scaler.Job, map[uint32]string, error) {
	if len(ids) == 0 { // slurmrestd would list all jobs
		return nil, map[uint32]string{}, nil
	}
	states, err := c.jobStates(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	var jobs []scaler.Job
	marks := make(map[uint32]string, len(states))
	for _, id := range ids {
		s, ok := states[id]
		if !ok {
			continue
		}
		marks[id] = s.mark
		if !s.pending || known[id] == s.mark || slices.ContainsFunc(jobs, func(j scaler.Job) bool { return j.ID == id }) {
			continue
		}
		more, err := c.queuedJob(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		for _, j := range more { // components of a het job come with its first
			if s, asked := states[j.ID]; asked && j.State == scaler.JobPending && (j.ID == id || known[j.ID] != s.mark) {
				if j.TasksCut() {
					c.warnOfCutLists(j.ID)
					giveTasks(&j, s.tasks)
				}
				jobs = append(jobs, j)
			}
		}
	}
	return jobs, marks, nil
}

type jobState struct {
	pending bool
	active  bool // pending, running or suspended
	mark    string
	tasks   string // pending ones of the array in this record, in full
}

// jobStates tells the states of those of the jobs that slurmctld has; without ids of all that it has.
func (c *Client) jobStates(ctx context.Context, ids []uint32) (map[uint32]jobState, error) {
	asked := make(map[uint32]bool, len(ids))
	for _, id := range ids {
		asked[id] = true
	}
	var states map[uint32]jobState
	err := c.do(ctx, call{
		op: "get job states", repeatable: true, long: len(ids) == 0, build: func(a *api) request { return ofJobs(a.states, ids) },
		read: func(body io.Reader) (answer.Envelope, error) {
			states = map[uint32]jobState{}
			return answer.Decode(body, "jobs", func(dec *json.Decoder) error {
				var w struct {
					Name  string   `json:"job_id"` // "7", "7+1", "7_3" or "7_[0-9]": first the record's own ID (parsers.c JOB_STATE_RESP_JOB_JOB_ID)
					State []string `json:"state"`
				}
				if err := dec.Decode(&w); err != nil {
					return err
				}
				digits, _, _ := strings.Cut(strings.NewReplacer("+", " ", "_", " ").Replace(w.Name), " ")
				id, err := strconv.ParseUint(digits, 10, 32)
				if err != nil {
					return fmt.Errorf("job_id %q: %w", w.Name, err)
				}
				if len(ids) == 0 || asked[uint32(id)] {
					_, tasks, _ := strings.Cut(strings.TrimSuffix(w.Name, "]"), "_[")
					pending := slices.Contains(w.State, "PENDING")
					states[uint32(id)] = jobState{
						pending: pending, active: pending || slices.Contains(w.State, "RUNNING") || slices.Contains(w.State, "SUSPENDED"),
						mark: w.Name + " " + strings.Join(w.State, ","), tasks: tasks,
					}
				}
				return nil
			})
		},
	})
	return states, err
}

// ofJobs adds job_id to a request. Its description calls for a list with commas, which slurmrestd takes for one bad ID (parsing.c _parse_list); a key that
// is repeated makes a list (serializer_url_encoded.c _on_key).
func ofJobs(build request, ids []uint32) request {
	return func(server string) (*http.Request, error) {
		req, err := build(server)
		if err != nil {
			return nil, err
		}
		query := req.URL.Query()
		for _, id := range ids {
			query.Add("job_id", strconv.FormatUint(uint64(id), 10))
		}
		req.URL.RawQuery = query.Encode()
		return req, nil
	}
}

// queuedJob reads one job as QueueJobs reads all; of a het job or an array, named by its first ID, all of it. No job: slurmctld has forgotten it.
func (c *Client) queuedJob(ctx context.Context, id uint32) ([]scaler.Job, error) {
	var list []scaler.Job
	err := c.do(ctx, oneJob(id, func(body io.Reader) (answer.Envelope, error) {
		r := answer.NewQueue()
		env, err := answer.Decode(body, "jobs", r.Read)
		list = r.List
		return env, err
	}))
	var e *Error
	if errors.As(err, &e) && e.Number == errInvalidJobID {
		return nil, nil
	}
	return list, err
}

func oneJob(id uint32, read func(io.Reader) (answer.Envelope, error)) call {
	name := fmt.Sprint(id)
	return call{op: "get job", detail: name, repeatable: true, read: read, build: func(a *api) request {
		if a.sharingJob != nil {
			return a.sharingJob(name)
		}
		return a.job(name)
	}}
}
