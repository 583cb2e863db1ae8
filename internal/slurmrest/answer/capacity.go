package answer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/scaler"
)

// Partitions turns partition objects into scaler's.
type Partitions struct{ List []scaler.Partition }

type wirePartition struct {
	Name     string `json:"name"`
	Maximums struct {
		Nodes         Number `json:"nodes"`
		CPUsPerNode   Number `json:"cpus_per_node"`
		Oversubscribe struct {
			Jobs  *int     `json:"jobs"` // 0: OverSubscribe=EXCLUSIVE
			Flags []string `json:"flags"`
		} `json:"oversubscribe"` // to v0.0.44
	} `json:"maximums"`
	Minimums struct {
		Nodes int64 `json:"nodes"`
	} `json:"minimums"`
	Priority struct {
		Tier int `json:"tier"`
	} `json:"priority"`
	Nodes struct {
		Configured string `json:"configured"` // as in slurm.conf
	} `json:"nodes"`
	NodeSets  string `json:"node_sets"` // NodeSet= lines that Nodes= names, a comma between; ALL for Nodes=ALL (read_config.c nodespec_to_hostlist)
	Partition struct {
		State         []string `json:"state"`
		Oversubscribe string   `json:"oversubscribe"` // from v0.0.45: NO, YES:4, FORCE:4
		Exclusive     string   `json:"exclusive"`     // from v0.0.45: NO, NODE, USER, TOPO
	} `json:"partition"`
}

// Read takes the next partition object from dec.
func (r *Partitions) Read(dec *json.Decoder) error {
	var w wirePartition
	if err := dec.Decode(&w); err != nil {
		return err
	}
	if w.Name == "" {
		return errors.New("a partition without a name")
	}
	p := scaler.Partition{
		Name:           w.Name,
		Down:           slices.Contains(w.Partition.State, "DOWN") || slices.Contains(w.Partition.State, "INACTIVE"),
		Tier:           w.Priority.Tier,
		AllNodes:       strings.EqualFold(w.Nodes.Configured, "ALL") || w.NodeSets == "ALL", // configured has names once there are nodes
		MinNodes:       uint32(max(0, min(w.Minimums.Nodes, 1<<31))),
		MaxNodes:       w.Maximums.Nodes.id(),
		MaxCPUsPerNode: w.Maximums.CPUsPerNode.id(),
	}
	if w.NodeSets != "" && !p.AllNodes {
		p.NodeSets = strings.Split(w.NodeSets, ",")
	}
	if jobs := w.Maximums.Oversubscribe.Jobs; jobs != nil {
		if p.Share = *jobs; p.Share == 0 && w.Partition.Exclusive == "" {
			p.Exclusive = scaler.ExclusiveNode
		}
		p.ForceShare = slices.Contains(w.Maximums.Oversubscribe.Flags, "force")
	}
	if kind, jobs, ok := strings.Cut(w.Partition.Oversubscribe, ":"); ok {
		share, err := strconv.Atoi(jobs)
		if err != nil {
			return fmt.Errorf("oversubscribe of partition %s: %q", w.Name, w.Partition.Oversubscribe)
		}
		p.Share, p.ForceShare = share, kind == "FORCE"
	}
	switch w.Partition.Exclusive {
	case "NODE", "TOPO":
		p.Exclusive = scaler.ExclusiveNode
	case "USER":
		p.Exclusive = scaler.ExclusiveUser
	}
	r.List = append(r.List, p)
	return nil
}

// Capacity turns node objects into scaler's nodes; those that are alike share one Shape. NodeSet is left empty.
type Capacity struct {
	List []scaler.Node

	states map[string]condition
	lists  map[string][]string
	texts  map[string]string
	shapes map[wireShape]*scaler.Shape
}

// condition is what a node's state words mean.
type condition struct {
	state scaler.NodeState
	gone  bool
}

// wireShape tells whether two nodes are alike.
type wireShape struct {
	CPUs, Sockets, Cores, Threads, Weight, Disk uint32
	Memory                                      uint64
	Gres, Features                              string
}

// NewCapacity starts an empty list.
func NewCapacity() *Capacity {
	return &Capacity{states: map[string]condition{}, lists: map[string][]string{}, texts: map[string]string{"": ""}, shapes: map[wireShape]*scaler.Shape{}}
}

// Read takes the next node object from dec.
func (r *Capacity) Read(dec *json.Decoder) error {
	var w struct {
		Name        string          `json:"name"`
		State       json.RawMessage `json:"state"`
		Partitions  json.RawMessage `json:"partitions"`
		Features    json.RawMessage `json:"features"`
		Reservation string          `json:"reservation"`
		CPUs        uint32          `json:"cpus"`
		Effective   uint32          `json:"effective_cpus"`
		Sockets     uint32          `json:"sockets"`
		Cores       uint32          `json:"cores"`
		Threads     uint32          `json:"threads"`
		Memory      uint64          `json:"real_memory"`
		SpecMemory  uint64          `json:"specialized_memory"`
		Disk        uint32          `json:"temporary_disk"`
		Weight      uint32          `json:"weight"`
		Gres        string          `json:"gres"`
		GresUsed    string          `json:"gres_used"`
		AllocCPUs   uint32          `json:"alloc_cpus"`
		AllocMemory uint64          `json:"alloc_memory"`
	}
	if err := dec.Decode(&w); err != nil {
		return err
	}
	if w.Name == "" {
		return errors.New("a node without a name")
	}
	words := func(words []string) []string { return words }
	n := scaler.Node{Name: w.Name, Reservation: share(r.texts, w.Reservation), AllocCPUs: w.AllocCPUs, AllocMemory: w.AllocMemory, GresUsed: share(r.texts, w.GresUsed)}
	is, err := once(r.states, w.State, func(words []string) condition { return condition{nodeState(words), nodeGone(words)} })
	if err != nil {
		return fmt.Errorf("state of node %s: %w", w.Name, err)
	}
	n.State, n.Gone = is.state, is.gone
	if n.Partitions, err = once(r.lists, w.Partitions, words); err != nil {
		return fmt.Errorf("partitions of node %s: %w", w.Name, err)
	}
	features, err := once(r.lists, w.Features, words)
	if err != nil {
		return fmt.Errorf("features of node %s: %w", w.Name, err)
	}
	if w.Effective == 0 {
		w.Effective = w.CPUs
	}
	key := wireShape{CPUs: w.Effective, Sockets: w.Sockets, Cores: w.Cores, Threads: w.Threads, Weight: w.Weight, Disk: w.Disk,
		Memory: w.Memory - min(w.Memory, w.SpecMemory), Gres: w.Gres, Features: strings.Join(features, ",")}
	shape, ok := r.shapes[key]
	if !ok {
		shape = &scaler.Shape{CPUs: key.CPUs, Sockets: key.Sockets, Cores: key.Cores, Threads: key.Threads, Memory: key.Memory, TmpDisk: uint64(key.Disk), Gres: key.Gres, Features: features, Weight: key.Weight}
		r.shapes[key] = shape
	}
	n.Shape = shape
	r.List = append(r.List, n)
	return nil
}

// nodeState tells whether slurmctld would put a job on the node. The flags that forbid it are those
// that keep a node out of avail_node_bitmap (read_config.c, node_mgr.c make_node_avail and others).
func nodeState(words []string) scaler.NodeState {
	s := powersave.ParseNodeState(words)
	const booting = powersave.NodePowerUp | powersave.NodePoweringUp
	switch {
	case s.Any(powersave.NodeDown | powersave.NodeError | powersave.NodeUnknown | powersave.NodeFuture | powersave.NodeDrain | powersave.NodeFail |
		powersave.NodePowerDown | powersave.NodePoweringDown | powersave.NodePowerDrain | powersave.NodeInvalidReg | powersave.NodeRebootIssued | powersave.NodeExternal):
		return scaler.NodeUnusable
	case s.Any(booting):
		return scaler.NodeBooting
	case s.Any(powersave.NodePoweredDown):
		return scaler.NodeOff
	case s.Any(powersave.NodeNotResponding) || !s.Any(powersave.NodeIdle|powersave.NodeMixed|powersave.NodeAllocated):
		return scaler.NodeUnusable
	}
	return scaler.NodeUp
}

// nodeGone tells whether no slurmd stands behind the record: of one that registered itself and went, or one that is there for its shape only.
// What Slurm powers up and down itself is not meant.
func nodeGone(words []string) bool {
	s := powersave.ParseNodeState(words)
	return s.Any(powersave.NodeDown|powersave.NodeFuture) && !s.Any(powersave.NodeCloud|powersave.NodePoweredDown|powersave.NodePoweringDown|
		powersave.NodePowerDown|powersave.NodePowerUp|powersave.NodePoweringUp)
}

// Reservations collects the nodes that reservations name.
type Reservations struct {
	Nodes  map[string]string    // hostlists, by the reservation's name
	Starts map[string]time.Time // when they begin; likewise
	Ends   map[string]time.Time // when they end; likewise
}

// Read takes the next reservation object from dec.
func (r *Reservations) Read(dec *json.Decoder) error {
	var w struct {
		Name  string `json:"name"`
		Nodes string `json:"node_list"`
		Start Number `json:"start_time"`
		End   Number `json:"end_time"`
	}
	if err := dec.Decode(&w); err != nil {
		return err
	}
	if w.Name == "" {
		return errors.New("a reservation without a name")
	}
	if r.Nodes == nil {
		r.Nodes, r.Starts, r.Ends = map[string]string{}, map[string]time.Time{}, map[string]time.Time{}
	}
	r.Nodes[w.Name], r.Starts[w.Name], r.Ends[w.Name] = w.Nodes, w.Start.Time(), w.End.Time()
	return nil
}
