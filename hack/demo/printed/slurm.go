// Package printed reads what Slurm's commands and the bridge print. It stands apart from the demo so that it can be fuzzed without
// the clients of Kubernetes.
package printed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// Job is what the demo looks at in a job of `scontrol show jobs --json`. A task of an array is a job of its own.
type Job struct {
	ID         uint32   `json:"job_id"`
	ArrayID    Number   `json:"array_job_id"`
	ArrayTask  Number   `json:"array_task_id"`
	ArrayTasks string   `json:"array_task_string"` // of tasks not split off yet: "0-7"
	Name       string   `json:"name"`
	States     []string `json:"job_state"`
	Reason     string   `json:"state_reason"`
	Nodes      string   `json:"nodes"`
	BatchHost  string   `json:"batch_host"`
}

// Node is what the demo looks at in a node of `scontrol show nodes --json`.
type Node struct {
	Name   string   `json:"name"`
	States []string `json:"state"`
	Reason string   `json:"reason"`
}

// Number is Slurm's way to write a number that may be absent: {"set": true, "infinite": false, "number": 3}.
type Number struct {
	Set    bool   `json:"set"`
	Number uint64 `json:"number"`
}

// Look is Slurm's state at one moment.
type Look struct {
	Jobs  []Job
	Nodes []Node
}

// ReadLook reads what `scontrol show jobs --json` and `scontrol show nodes --json` print, one after the other.
func ReadLook(dec *json.Decoder) (Look, error) {
	var l Look
	for _, what := range []string{"jobs", "nodes"} {
		var doc struct {
			Jobs   []Job  `json:"jobs"`
			Nodes  []Node `json:"nodes"`
			Errors []struct {
				Error       string `json:"error"`
				Description string `json:"description"`
			} `json:"errors"`
		}
		if err := dec.Decode(&doc); err != nil {
			if errors.Is(err, io.EOF) {
				return Look{}, fmt.Errorf("reading scontrol show %s: %w", what, io.ErrUnexpectedEOF)
			}
			return Look{}, fmt.Errorf("reading scontrol show %s: %w", what, err)
		}
		if len(doc.Errors) > 0 {
			return Look{}, fmt.Errorf("scontrol show %s: %s %s", what, doc.Errors[0].Error, doc.Errors[0].Description)
		}
		if what == "jobs" {
			l.Jobs = doc.Jobs
		} else {
			l.Nodes = doc.Nodes
		}
	}
	return l, nil
}

// Job returns the job, or the tasks of the array, with the id that sbatch printed.
func (l Look) Job(id uint32) []Job {
	var found []Job
	for _, j := range l.Jobs {
		if j.ID == id || j.ArrayID.Number == uint64(id) {
			found = append(found, j)
		}
	}
	return found
}

// State is the one word that says most about the job. Slurm lists its state and flags, as in RUNNING CONFIGURING.
func (j Job) State() string {
	for _, flag := range []string{"COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD"} {
		if slices.Contains(j.States, flag) {
			return flag
		}
	}
	if len(j.States) == 0 {
		return "UNKNOWN"
	}
	return j.States[0]
}

// Label is the job's id as squeue writes it.
func (j Job) Label() string {
	switch {
	case j.ArrayTask.Set:
		return fmt.Sprintf("%d_%d", j.ArrayID.Number, j.ArrayTask.Number)
	case j.ArrayTasks != "":
		return fmt.Sprintf("%d_[%s]", j.ID, j.ArrayTasks)
	}
	return strconv.FormatUint(uint64(j.ID), 10)
}

// Failed reports a state from which the job cannot come to COMPLETED by itself.
func (j Job) Failed() bool {
	return slices.ContainsFunc(j.States, func(s string) bool {
		return slices.Contains([]string{"FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "LAUNCH_FAILED", "REQUEUE_HOLD"}, s)
	})
}

// Done reports that the job ended well and has left its nodes.
func (j Job) Done() bool { return slices.Equal(j.States, []string{"COMPLETED"}) }

// NodeNames are the names of the nodes the job has or had.
func (j Job) NodeNames() []string {
	list, err := slurmconf.ParseHostlist(j.Nodes)
	if err != nil {
		return nil // none yet: "" or "(null)"
	}
	return list.Expand()
}

// State is the node's state as the bridge sees it.
func (n Node) State() powersave.NodeState { return powersave.ParseNodeState(n.States) }

// busyWords contradict a node at rest.
const busyWords = powersave.NodeDown | powersave.NodeAllocated | powersave.NodeMixed | powersave.NodeDrain | powersave.NodeFail |
	powersave.NodeCompleting | powersave.NodePowerUp | powersave.NodePowerDown | powersave.NodePoweringUp | powersave.NodePoweringDown |
	powersave.NodeNotResponding | powersave.NodeInvalidReg

// Off reports that the node rests as slurm.conf defines it: IDLE+CLOUD+POWERED_DOWN and nothing that contradicts it.
func (n Node) Off() bool {
	s := n.State()
	return s.Has(powersave.NodeIdle|powersave.NodeCloud|powersave.NodePoweredDown) && !s.Any(busyWords)
}

// Words is the node's state without CLOUD, which all have, and NOT_RESPONDING, which goes with POWERING_UP.
func (n Node) Words() string {
	booting := n.State().Has(powersave.NodePoweringUp)
	return strings.Join(slices.DeleteFunc(slices.Clone(n.States), func(w string) bool {
		return w == "CLOUD" || booting && w == "NOT_RESPONDING"
	}), "+")
}

// ParsePasses returns how often slurmctld's main scheduler has run.
func ParsePasses(text string) (int, error) {
	var doc struct {
		Statistics *struct {
			Passes int `json:"schedule_cycle_total"`
		} `json:"statistics"`
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return 0, fmt.Errorf("reading sdiag: %w", err)
	}
	if doc.Statistics == nil {
		return 0, errors.New("reading sdiag: it has no statistics")
	}
	return doc.Statistics.Passes, nil
}
