package answer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/slurmtide/slurmtide/exporter"
	"github.com/slurmtide/slurmtide/powersave"
)

// NodeFacts hands node objects over as facts for metrics, one by one.
type NodeFacts struct {
	Add func(exporter.Node)

	states map[string]powersave.NodeState
	lists  map[string][]string
}

// NewNodeFacts hands them to add.
func NewNodeFacts(add func(exporter.Node)) *NodeFacts {
	return &NodeFacts{Add: add, states: map[string]powersave.NodeState{}, lists: map[string][]string{}}
}

// Read takes the next node object from dec.
func (r *NodeFacts) Read(dec *json.Decoder) error {
	var w struct {
		Name        string          `json:"name"`
		State       json.RawMessage `json:"state"`
		Partitions  json.RawMessage `json:"partitions"`
		CPUs        int64           `json:"cpus"`
		Effective   int64           `json:"effective_cpus"`
		AllocCPUs   int64           `json:"alloc_cpus"`
		Memory      int64           `json:"real_memory"`
		AllocMemory int64           `json:"alloc_memory"`
		SpecMemory  int64           `json:"specialized_memory"`
		FreeMemory  Number          `json:"free_mem"`
		Load        Number          `json:"cpu_load"`
		Gres        string          `json:"gres"`
		GresUsed    string          `json:"gres_used"`
		Address     string          `json:"address"`
		Instance    string          `json:"instance_id"`
		Reservation string          `json:"reservation"`
		Reason      string          `json:"reason"`
		Comment     string          `json:"comment"`
	}
	if err := dec.Decode(&w); err != nil {
		return err
	}
	if w.Name == "" {
		return errors.New("a node without a name")
	}
	n := exporter.Node{
		Name: w.Name, CPUs: w.CPUs, AllocCPUs: w.AllocCPUs, Memory: w.Memory, AllocMemory: w.AllocMemory, SpecMemory: w.SpecMemory, FreeMemory: -1, Load: -1, Gres: w.Gres, GresUsed: w.GresUsed,
		Address: w.Address, Instance: w.Instance, Reservation: w.Reservation, Reason: w.Reason, Comment: w.Comment,
	}
	if w.Effective > 0 {
		n.CPUs, n.SpecCPUs = w.Effective, max(0, w.CPUs-w.Effective)
	}
	if w.FreeMemory.set && !w.FreeMemory.infinite { // as long as slurmd has not told, the load is 0
		n.FreeMemory, n.Load = w.FreeMemory.number, w.Load.number
	}
	var err error
	if n.State, err = once(r.states, w.State, singleWords); err != nil {
		return fmt.Errorf("state of node %s: %w", w.Name, err)
	}
	if n.State == 0 {
		return fmt.Errorf("state of node %s: it is missing", w.Name)
	}
	if n.Partitions, err = once(r.lists, w.Partitions, func(words []string) []string { return words }); err != nil {
		return fmt.Errorf("partitions of node %s: %w", w.Name, err)
	}
	r.Add(n)
	return nil
}

// JobFacts hands job objects over as facts for metrics, one by one.
type JobFacts struct {
	Add   func(exporter.Job)
	Total int // jobs seen

	states map[string]powersave.JobState
}

// NewJobFacts hands them to add.
func NewJobFacts(add func(exporter.Job)) *JobFacts {
	return &JobFacts{Add: add, states: map[string]powersave.JobState{}}
}

// Read takes the next job object from dec.
func (r *JobFacts) Read(dec *json.Decoder) error {
	var w struct {
		ID         uint32          `json:"job_id"`
		State      json.RawMessage `json:"job_state"`
		Reason     string          `json:"state_reason"`
		Partitions string          `json:"partition"`
		User       string          `json:"user_name"`
		UserID     uint32          `json:"user_id"`
		Account    string          `json:"account"`
		ArrayTasks string          `json:"array_task_string"`
		Priority   Number          `json:"priority"`
		Eligible   Number          `json:"eligible_time"`
		CPUs       Number          `json:"cpus"`
		Nodes      Number          `json:"node_count"`
		Asked      string          `json:"tres_req_str"`
		Given      string          `json:"tres_alloc_str"`
		Name       string          `json:"name"`
		QOS        string          `json:"qos"`
		ArrayJob   Number          `json:"array_job_id"`
		ArrayTask  Number          `json:"array_task_id"`
		NodeList   string          `json:"nodes"`
		Submit     Number          `json:"submit_time"`
		Start      Number          `json:"start_time"`
		End        Number          `json:"end_time"`
	}
	if err := dec.Decode(&w); err != nil {
		return err
	}
	if w.ID == 0 {
		return errors.New("a job without an ID")
	}
	r.Total++
	state, err := once(r.states, w.State, powersave.ParseJobState)
	if err != nil {
		return fmt.Errorf("state of job %d: %w", w.ID, err)
	}
	if state == 0 {
		return fmt.Errorf("state of job %d: it is missing", w.ID)
	}
	if w.Given == "" || state.Any(powersave.JobPending) { // a requeued job may show what it had
		w.Given = w.Asked
	}
	if w.User == "" { // slurmctld's host does not know him
		w.User = strconv.FormatUint(uint64(w.UserID), 10)
	}
	task := ""
	if w.ArrayTask.set {
		task = strconv.FormatInt(w.ArrayTask.number, 10)
	}
	r.Add(exporter.Job{
		State: state, Reason: w.Reason, Partitions: w.Partitions, User: w.User, Account: w.Account, ArrayTasks: w.ArrayTasks,
		Held: w.Priority.set && w.Priority.number == 0, Eligible: w.Eligible.Time(), CPUs: int64(w.CPUs.id()), Nodes: int64(w.Nodes.id()), TRES: w.Given,
		ID: w.ID, ArrayJob: w.ArrayJob.id(), ArrayTask: task, Name: w.Name, QOS: w.QOS, NodeList: w.NodeList,
		Submit: w.Submit.Time(), Start: w.Start.Time(), End: w.End.Time(),
	})
	return nil
}

// PartitionFacts collects partition objects as facts for metrics.
type PartitionFacts struct{ List []exporter.Partition }

// Read takes the next partition object from dec.
func (r *PartitionFacts) Read(dec *json.Decoder) error {
	var w struct {
		Name  string `json:"name"`
		Nodes struct {
			Total int64 `json:"total"`
		} `json:"nodes"`
		CPUs struct {
			Total int64 `json:"total"`
		} `json:"cpus"`
		Partition struct {
			State []string `json:"state"`
		} `json:"partition"`
	}
	if err := dec.Decode(&w); err != nil {
		return err
	}
	if w.Name == "" {
		return errors.New("a partition without a name")
	}
	r.List = append(r.List, exporter.Partition{Name: w.Name, State: strings.Join(w.Partition.State, "+"), Nodes: w.Nodes.Total, CPUs: w.CPUs.Total})
	return nil
}

// DecodeDiag reads the answer to diag. Counts are read as floats: slurmctld's do not fit into the types that slurmrestd declares for them.
func DecodeDiag(body io.Reader) (Envelope, exporter.Diag, error) {
	type rpc struct {
		Type    string  `json:"message_type"`
		User    string  `json:"user"`
		Count   float64 `json:"count"`
		Time    float64 `json:"total_time"` // microseconds, whatever its description says: slurmctld adds them up (rpc_mgr.c), and sdiag shows the same number
		Queued  float64 `json:"queued"`
		Dropped float64 `json:"dropped"`
	}
	var w struct {
		Envelope
		Statistics *struct {
			Since        Number  `json:"req_time_start"`
			Now          Number  `json:"req_time"`
			Threads      float64 `json:"server_thread_count"`
			Agents       float64 `json:"agent_count"`
			AgentThreads float64 `json:"agent_thread_count"`
			AgentQueue   float64 `json:"agent_queue_size"`
			DBDQueue     float64 `json:"dbd_agent_queue_size"`

			Submitted float64 `json:"jobs_submitted"`
			Started   float64 `json:"jobs_started"`
			Completed float64 `json:"jobs_completed"`
			Canceled  float64 `json:"jobs_canceled"`
			Failed    float64 `json:"jobs_failed"`

			Count float64            `json:"schedule_cycle_total"`
			Sum   float64            `json:"schedule_cycle_sum"`
			Last  float64            `json:"schedule_cycle_last"`
			Max   float64            `json:"schedule_cycle_max"`
			Depth float64            `json:"schedule_cycle_depth"`
			Queue float64            `json:"schedule_queue_length"`
			Exits map[string]float64 `json:"schedule_exit"`

			BackfillCount  float64            `json:"bf_cycle_counter"`
			BackfillSum    float64            `json:"bf_cycle_sum"`
			BackfillLast   float64            `json:"bf_cycle_last"`
			BackfillMax    float64            `json:"bf_cycle_max"`
			BackfillDepth  float64            `json:"bf_depth_sum"`
			BackfillQueue  float64            `json:"bf_queue_len"`
			BackfillExits  map[string]float64 `json:"bf_exit"`
			BackfillActive bool               `json:"bf_active"`
			BackfillJobs   float64            `json:"bf_backfilled_jobs"`
			BackfillHet    float64            `json:"bf_backfilled_het_jobs"`
			BackfillAt     Number             `json:"bf_when_last_cycle"`

			RPCs  []rpc `json:"rpcs_by_message_type"`
			Users []rpc `json:"rpcs_by_user"`
		} `json:"statistics"`
	}
	if err := json.NewDecoder(body).Decode(&w); err != nil {
		return w.Envelope, exporter.Diag{}, noEOF(err)
	}
	s := w.Statistics
	if s == nil {
		if len(w.Errors) > 0 {
			return w.Envelope, exporter.Diag{}, nil
		}
		return w.Envelope, exporter.Diag{}, errors.New(`there are no "statistics" in it: is it slurmrestd's?`)
	}
	d := exporter.Diag{
		Since: s.Since.Time(), Now: s.Now.Time(), Threads: s.Threads, Agents: s.Agents, AgentThreads: s.AgentThreads, AgentQueue: s.AgentQueue, DBDQueue: s.DBDQueue,
		Submitted: s.Submitted, Started: s.Started, Completed: s.Completed, Canceled: s.Canceled, Failed: s.Failed,
		Main:           exporter.Cycles{Count: s.Count, Sum: s.Sum, Last: s.Last, Max: s.Max, Depth: s.Depth, Queue: s.Queue, Exits: s.Exits},
		Backfill:       exporter.Cycles{Count: s.BackfillCount, Sum: s.BackfillSum, Last: s.BackfillLast, Max: s.BackfillMax, Depth: s.BackfillDepth, Queue: s.BackfillQueue, Exits: s.BackfillExits},
		BackfillActive: s.BackfillActive, BackfillJobs: s.BackfillJobs, BackfillHetJobs: s.BackfillHet, BackfillAt: s.BackfillAt.Time(),
	}
	for _, r := range s.RPCs {
		d.RPCs = append(d.RPCs, exporter.RPC{Name: r.Type, Count: r.Count, Time: r.Time, Queued: r.Queued, Dropped: r.Dropped})
	}
	for _, r := range s.Users {
		d.Users = append(d.Users, exporter.RPC{Name: r.User, Count: r.Count, Time: r.Time})
	}
	return w.Envelope, d, nil
}
