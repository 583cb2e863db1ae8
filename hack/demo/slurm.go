package main

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

// job is what the demo looks at in a job of `scontrol show jobs --json`. A task of an array is a job of its own.
type job struct {
	ID         uint32   `json:"job_id"`
	ArrayID    number   `json:"array_job_id"`
	ArrayTask  number   `json:"array_task_id"`
	ArrayTasks string   `json:"array_task_string"` // of tasks not split off yet: "0-7"
	Name       string   `json:"name"`
	States     []string `json:"job_state"`
	Reason     string   `json:"state_reason"`
	Nodes      string   `json:"nodes"`
	BatchHost  string   `json:"batch_host"`
}

// node is what the demo looks at in a node of `scontrol show nodes --json`.
type node struct {
	Name   string   `json:"name"`
	States []string `json:"state"`
	Reason string   `json:"reason"`
}

// number is Slurm's way to write a number that may be absent: {"set": true, "infinite": false, "number": 3}.
type number struct {
	Set    bool   `json:"set"`
	Number uint64 `json:"number"`
}

// look is Slurm's state at one moment.
type look struct {
	Jobs  []job
	Nodes []node
}

// readLook reads what `scontrol show jobs --json` and `scontrol show nodes --json` print, one after the other.
func readLook(dec *json.Decoder) (look, error) {
	var l look
	for _, what := range []string{"jobs", "nodes"} {
		var doc struct {
			Jobs   []job  `json:"jobs"`
			Nodes  []node `json:"nodes"`
			Errors []struct {
				Error       string `json:"error"`
				Description string `json:"description"`
			} `json:"errors"`
		}
		if err := dec.Decode(&doc); err != nil {
			if errors.Is(err, io.EOF) {
				return look{}, fmt.Errorf("reading scontrol show %s: %w", what, io.ErrUnexpectedEOF)
			}
			return look{}, fmt.Errorf("reading scontrol show %s: %w", what, err)
		}
		if len(doc.Errors) > 0 {
			return look{}, fmt.Errorf("scontrol show %s: %s %s", what, doc.Errors[0].Error, doc.Errors[0].Description)
		}
		if what == "jobs" {
			l.Jobs = doc.Jobs
		} else {
			l.Nodes = doc.Nodes
		}
	}
	return l, nil
}

// job returns the job, or the tasks of the array, with the id that sbatch printed.
func (l look) job(id uint32) []job {
	var found []job
	for _, j := range l.Jobs {
		if j.ID == id || j.ArrayID.Number == uint64(id) {
			found = append(found, j)
		}
	}
	return found
}

// state is the one word that says most about the job. Slurm lists its state and flags, as in RUNNING CONFIGURING.
func (j job) state() string {
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

// label is the job's id as squeue writes it.
func (j job) label() string {
	switch {
	case j.ArrayTask.Set:
		return fmt.Sprintf("%d_%d", j.ArrayID.Number, j.ArrayTask.Number)
	case j.ArrayTasks != "":
		return fmt.Sprintf("%d_[%s]", j.ID, j.ArrayTasks)
	}
	return strconv.FormatUint(uint64(j.ID), 10)
}

// failed reports a state from which the job cannot come to COMPLETED by itself.
func (j job) failed() bool {
	return slices.ContainsFunc(j.States, func(s string) bool {
		return slices.Contains([]string{"FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "LAUNCH_FAILED", "REQUEUE_HOLD"}, s)
	})
}

// done reports that the job ended well and has left its nodes.
func (j job) done() bool { return slices.Equal(j.States, []string{"COMPLETED"}) }

// nodes are the names of the nodes the job has or had.
func (j job) nodes() []string {
	list, err := slurmconf.ParseHostlist(j.Nodes)
	if err != nil {
		return nil // none yet: "" or "(null)"
	}
	return list.Expand()
}

func (n node) state() powersave.NodeState { return powersave.ParseNodeState(n.States) }

// busyWords contradict a node at rest.
const busyWords = powersave.NodeDown | powersave.NodeAllocated | powersave.NodeMixed | powersave.NodeDrain | powersave.NodeFail |
	powersave.NodeCompleting | powersave.NodePowerUp | powersave.NodePowerDown | powersave.NodePoweringUp | powersave.NodePoweringDown |
	powersave.NodeNotResponding | powersave.NodeInvalidReg

// off reports that the node rests as slurm.conf defines it: IDLE+CLOUD+POWERED_DOWN and nothing that contradicts it.
func (n node) off() bool {
	s := n.state()
	return s.Has(powersave.NodeIdle|powersave.NodeCloud|powersave.NodePoweredDown) && !s.Any(busyWords)
}

// words is the node's state without CLOUD, which all have, and NOT_RESPONDING, which goes with POWERING_UP.
func (n node) words() string {
	booting := n.state().Has(powersave.NodePoweringUp)
	return strings.Join(slices.DeleteFunc(slices.Clone(n.States), func(w string) bool {
		return w == "CLOUD" || booting && w == "NOT_RESPONDING"
	}), "+")
}
