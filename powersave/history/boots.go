package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// Outcome says what has become of a boot.
type Outcome string

// Outcomes of a boot.
const (
	Booting    Outcome = "booting"
	Registered Outcome = "registered"
	Failed     Outcome = "failed"
	GivenBack  Outcome = "given back" // with a job of which another node failed, or because Slurm has taken it back
)

// Boot is what entries tell of one boot of a node. Times that are not known are zero; all but Requested are the bridge's clock.
type Boot struct {
	Node       string    `json:"node"`
	NodeSet    string    `json:"nodeSet,omitempty"`
	Offering   string    `json:"offering,omitempty"` // the last that was tried
	Request    string    `json:"request,omitempty"`
	Jobs       []uint32  `json:"jobs,omitempty"`
	Pods       int       `json:"pods,omitempty"` // how many were made for it
	PodUID     string    `json:"podUID,omitempty"`
	Host       string    `json:"host,omitempty"`
	Requested  time.Time `json:"requested,omitzero"`
	Accepted   time.Time `json:"accepted,omitzero"`
	Created    time.Time `json:"created,omitzero"`
	Scheduled  time.Time `json:"scheduled,omitzero"`
	Started    time.Time `json:"started,omitzero"`
	Registered time.Time `json:"registered,omitzero"`
	Ended      time.Time `json:"ended,omitzero"` // when it had failed, or was given back
	Outcome    Outcome   `json:"outcome"`
	Class      string    `json:"class,omitempty"`
	Reason     string    `json:"reason,omitempty"`
}

// Began is when the boot was first heard of.
func (b *Boot) Began() time.Time {
	for _, t := range []time.Time{b.Requested, b.Accepted, b.Created, b.Scheduled, b.Started, b.Registered} {
		if !t.IsZero() {
			return t
		}
	}
	return b.Ended
}

// Boots makes boots of entries, in the order in which they were asked for.
func Boots(entries []Entry) []*Boot {
	var all []*Boot
	open := map[string]*Boot{}
	type asked struct{ node, request string }
	known := map[asked]*Boot{}
	begin := func(node string, e *Entry) *Boot {
		b := open[node]
		if b != nil && b.Request == e.Request {
			return b
		}
		if b != nil {
			b.end(e.Time, GivenBack)
		}
		b = &Boot{Node: node, Request: e.Request, Requested: e.Requested, Outcome: Booting}
		all, open[node] = append(all, b), b
		known[asked{node, e.Request}] = b
		return b
	}
	for i := range entries {
		e := &entries[i]
		switch e.What {
		case RequestAccepted:
			nodes, err := slurmconf.ParseHostlist(e.Nodes)
			if err != nil {
				continue
			}
			for node := range nodes.All() {
				if e.Kind != string(spool.KindResume) {
					if b := open[node]; b != nil {
						b.end(e.Time, GivenBack)
						delete(open, node)
					}
					continue
				}
				b := begin(node, e)
				b.take(e)
				setOnce(&b.Accepted, e.Time)
			}
		case PodCreated, PodScheduled, ContainerStarted, NodeRegistered:
			if b := known[asked{e.Node, e.Request}]; b != nil && b != open[e.Node] {
				if e.What == ContainerStarted && e.PodUID == b.PodUID { // Kubernetes says so after slurmctld
					setOnce(&b.Started, e.Time)
				}
				continue
			}
			b := begin(e.Node, e)
			b.take(e)
			b.reach(e)
			if e.What == NodeRegistered {
				delete(open, e.Node)
			}
		case BootFailed:
			b := begin(e.Node, e)
			b.take(e)
			b.Class, b.Reason = e.Class, e.Reason
			b.end(e.Time, Failed)
			delete(open, e.Node)
		case NodesUpdated:
			if e.State != string(powersave.StatePowerDownForce) && e.State != string(powersave.StatePowerDown) {
				continue
			}
			nodes, err := slurmconf.ParseHostlist(cmp.Or(e.Nodes, e.Node))
			if err != nil {
				continue
			}
			for node := range nodes.All() {
				if b := open[node]; b != nil {
					b.end(e.Time, GivenBack)
					delete(open, node)
				}
			}
		case JobGivenBack:
			if len(e.Jobs) == 0 {
				continue
			}
			for node, b := range open {
				if slices.Contains(b.Jobs, e.Jobs[0]) && len(b.Jobs) == 1 {
					b.end(e.Time, GivenBack)
					delete(open, node)
				}
			}
		default:
		}
	}
	slices.SortStableFunc(all, func(a, b *Boot) int { return cmp.Or(a.Began().Compare(b.Began()), byNumber(a.Node, b.Node)) })
	return all
}

// take takes over what the entry tells of the whole boot.
func (b *Boot) take(e *Entry) {
	setOnce(&b.Requested, e.Requested)
	b.NodeSet, b.Offering = cmp.Or(e.NodeSet, b.NodeSet), cmp.Or(e.Offering, b.Offering)
	for _, j := range e.Jobs {
		if !slices.Contains(b.Jobs, j) {
			b.Jobs = append(b.Jobs, j)
		}
	}
}

// reach notes a phase. Times of a pod that was replaced say nothing of the next.
func (b *Boot) reach(e *Entry) {
	if e.PodUID != "" && e.PodUID != b.PodUID {
		b.PodUID, b.Host = e.PodUID, ""
		b.Pods++
		b.Created, b.Scheduled, b.Started = time.Time{}, time.Time{}, time.Time{}
	}
	if e.Host != "" {
		b.Host = e.Host
	}
	switch e.What {
	case PodCreated:
		setOnce(&b.Created, e.Time)
	case PodScheduled:
		setOnce(&b.Scheduled, e.Time)
	case ContainerStarted:
		setOnce(&b.Started, e.Time)
	case NodeRegistered:
		setOnce(&b.Registered, e.Time)
		b.Outcome = Registered
	default:
	}
}

func (b *Boot) end(at time.Time, o Outcome) {
	b.Ended, b.Outcome = at, o
}

func setOnce(t *time.Time, to time.Time) {
	if t.IsZero() {
		*t = to
	}
}
