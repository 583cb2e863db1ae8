package history

import (
	"cmp"
	"slices"
	"strings"
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
	GivenUp    Outcome = "given up"   // of mode Dynamic: its pod went before slurmd had registered, and not for a fault of its own
)

// Boot is what entries tell of one boot of a node. Times that are not known are zero; all but Requested are the bridge's clock.
type Boot struct {
	Node       string    `json:"node"`
	NodeSet    string    `json:"nodeSet,omitempty"`
	Offering   string    `json:"offering,omitempty"` // the last that was tried
	Request    string    `json:"request,omitempty"`  // of mode Dynamic as in entries
	Dynamic    bool      `json:"dynamic,omitempty"`
	Jobs       []uint32  `json:"jobs,omitempty"`
	Pods       int       `json:"pods,omitempty"` // how many were made for it
	PodUID     string    `json:"podUID,omitempty"`
	Host       string    `json:"host,omitempty"`
	Requested  time.Time `json:"requested,omitzero"`
	Accepted   time.Time `json:"accepted,omitzero"`
	Cleared    time.Time `json:"cleared,omitzero"` // when the pod of an earlier boot was gone, if it waited for that
	Asked      time.Time `json:"asked,omitzero"`   // when Kubernetes was first asked for the pod
	Created    time.Time `json:"created,omitzero"`
	Scheduled  time.Time `json:"scheduled,omitzero"`
	Started    time.Time `json:"started,omitzero"`
	Registered time.Time `json:"registered,omitzero"`
	Ended      time.Time `json:"ended,omitzero"` // when it had failed, or was given back
	Outcome    Outcome   `json:"outcome"`
	Class      string    `json:"class,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Tried      []Tried   `json:"tried,omitempty"` // before the last pod

	left, gone time.Time // as of Tried, of the last pod
	why        string
	said       string // of it, last
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

// Tried is a pod that was made for a boot before its last one, or an offering on which none could be made. Times that are not known are zero.
type Tried struct {
	Offering  string    `json:"offering,omitempty"`
	PodUID    string    `json:"podUID,omitempty"` // empty: none was made
	Host      string    `json:"host,omitempty"`
	Asked     time.Time `json:"asked,omitzero"`
	Created   time.Time `json:"created,omitzero"`
	Scheduled time.Time `json:"scheduled,omitzero"`
	Started   time.Time `json:"started,omitzero"`
	Left      time.Time `json:"left,omitzero"` // when it was given up, or went by itself
	Gone      time.Time `json:"gone,omitzero"`
	Reason    string    `json:"reason,omitempty"`
}

// Boots makes boots of entries, in the order in which they were asked for.
func Boots(entries []Entry) []*Boot {
	var all []*Boot
	m := Maker{Begun: func(b *Boot) { all = append(all, b) }}
	for i := range entries {
		m.Add(&entries[i])
	}
	slices.SortStableFunc(all, func(a, b *Boot) int { return cmp.Or(a.Began().Compare(b.Began()), byNumber(a.Node, b.Node)) })
	return all
}

// Maker makes boots of entries, one after the other. Its zero value knows of no boot.
type Maker struct {
	Begun func(*Boot) // it has just begun; nil: nobody is told
	Ended func(*Boot) // its outcome is known: it changes no more, but for Started, which Kubernetes may tell late. nil: nobody is told

	open  map[string]*Boot // by node
	known map[asked]*Boot
}

type asked struct{ node, request string }

// Forget drops a boot, for which no entry is to come any more.
func (m *Maker) Forget(b *Boot) {
	if m.known[asked{b.Node, b.Request}] == b {
		delete(m.known, asked{b.Node, b.Request})
	}
	if m.open[b.Node] == b {
		delete(m.open, b.Node)
	}
}

// End ends a boot that has not come to its end by itself. Why is what was said of it last.
func (m *Maker) End(b *Boot, at time.Time) {
	if m.open[b.Node] == b {
		b.Reason = b.said
		m.end(b, at, GivenBack)
	}
}

func (m *Maker) begin(node string, e *Entry) *Boot {
	b := m.open[node]
	if b != nil && b.Request == e.Request {
		return b
	}
	if b != nil {
		m.end(b, e.Time, GivenBack)
	}
	if m.open == nil {
		m.open, m.known = map[string]*Boot{}, map[asked]*Boot{}
	}
	b = &Boot{Node: node, Request: e.Request, Dynamic: e.Dynamic, Requested: e.Requested, Outcome: Booting}
	m.open[node] = b
	m.known[asked{node, e.Request}] = b
	if m.Begun != nil {
		m.Begun(b)
	}
	return b
}

func (m *Maker) end(b *Boot, at time.Time, o Outcome) {
	if b.Outcome = o; o != Registered {
		b.Ended = at
	}
	delete(m.open, b.Node)
	if m.Ended != nil {
		m.Ended(b)
	}
}

// giveBack ends what boots on the entry's nodes.
func (m *Maker) giveBack(e *Entry) {
	nodes, err := slurmconf.ParseHostlist(cmp.Or(e.Nodes, e.Node))
	if err != nil {
		return
	}
	for node := range nodes.All() {
		if b := m.open[node]; b != nil {
			b.Reason = strings.TrimPrefix(e.Reason, powersave.ReasonPrefix)
			m.end(b, e.Time, GivenBack)
		}
	}
}

// Add takes the next entry.
func (m *Maker) Add(e *Entry) {
	switch e.What {
	case RequestAccepted:
		if e.Kind != string(spool.KindResume) {
			m.giveBack(e)
			return
		}
		nodes, err := slurmconf.ParseHostlist(e.Nodes)
		if err != nil {
			return
		}
		for node := range nodes.All() {
			if b := m.known[asked{node, e.Request}]; b != nil && b != m.open[node] {
				continue // accepted again by a bridge that was started anew
			}
			b := m.begin(node, e)
			b.take(e)
			setOnce(&b.Accepted, e.Time)
		}
	case PodCreated, PodScheduled, ContainerStarted, NodeRegistered:
		if b := m.known[asked{e.Node, e.Request}]; b != nil && b != m.open[e.Node] {
			if e.What == ContainerStarted && e.PodUID == b.PodUID { // Kubernetes says so after slurmctld
				setOnce(&b.Started, e.Time)
			}
			return
		}
		b := m.begin(e.Node, e)
		b.turn(e)
		b.take(e)
		b.reach(e)
		if e.What == NodeRegistered {
			m.end(b, e.Time, Registered)
		}
	case BootFailed:
		b := m.begin(e.Node, e)
		b.take(e)
		b.Class, b.Reason = e.Class, e.Reason
		m.end(b, e.Time, Failed)
	case NodesUpdated:
		if e.State == string(powersave.StatePowerDownForce) || e.State == string(powersave.StatePowerDown) {
			m.giveBack(e)
		}
	case JobGivenBack:
		if len(e.Jobs) == 0 {
			return
		}
		for _, b := range m.open {
			if slices.Contains(b.Jobs, e.Jobs[0]) && len(b.Jobs) == 1 {
				b.Reason = strings.TrimPrefix(e.Reason, powersave.ReasonPrefix)
				m.end(b, e.Time, GivenBack)
			}
		}
	case Reported, PodDeleted, PodGone:
		switch b := m.open[e.Node]; {
		case b == nil:
		case b.Dynamic && e.What != Reported:
			if e.PodUID == b.PodUID { // it has no other pod
				b.Reason = cmp.Or(e.Reason, "its pod is gone")
				m.end(b, e.Time, GivenUp)
			}
		default:
			b.leave(e)
		}
	default:
	}
}

// leave notes what is told of a pod that goes: that of an earlier boot, or of this one, of which another is to be made.
func (b *Boot) leave(e *Entry) {
	switch {
	case e.What == Reported && strings.Contains(e.Reason, otherOffering):
		if !b.left.IsZero() { // it is not about that pod
			b.next()
		}
		b.left, b.why = e.Time, e.Reason
		if b.PodUID == "" {
			b.Offering = cmp.Or(e.Offering, b.Offering)
			setOnce(&b.Asked, e.Asked)
			b.next()
		}
	case e.What == Reported:
		b.said = e.Reason
	case e.PodUID == b.PodUID && e.PodUID != "":
		setOnce(&b.left, e.Time)
		b.why = cmp.Or(b.why, e.Reason)
		if e.What == PodGone {
			b.gone = e.Time
		}
	case e.What == PodGone && b.Pods == 0:
		b.Cleared = e.Time
	case e.What == PodGone:
		for i := range b.Tried {
			if b.Tried[i].PodUID == e.PodUID {
				b.Tried[i].Gone = e.Time
			}
		}
	}
}

// next makes room for another pod.
func (b *Boot) next() {
	b.Tried = append(b.Tried, Tried{
		Offering: b.Offering, PodUID: b.PodUID, Host: b.Host, Asked: b.Asked, Created: b.Created, Scheduled: b.Scheduled, Started: b.Started,
		Left: b.left, Gone: b.gone, Reason: b.why,
	})
	b.PodUID, b.Host = "", ""
	b.Asked, b.Created, b.Scheduled, b.Started = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	b.left, b.gone, b.why = time.Time{}, time.Time{}, ""
}

// take takes over what the entry tells of the whole boot.
func (b *Boot) take(e *Entry) {
	setOnce(&b.Requested, e.Requested)
	setOnce(&b.Asked, e.Asked)
	b.NodeSet, b.Offering = cmp.Or(e.NodeSet, b.NodeSet), cmp.Or(e.Offering, b.Offering)
	for _, j := range e.Jobs {
		if !slices.Contains(b.Jobs, j) {
			b.Jobs = append(b.Jobs, j)
		}
	}
}

// turn goes on with the entry's pod, if that is another one. Times of a pod that was replaced say nothing of the next.
func (b *Boot) turn(e *Entry) {
	if e.PodUID == "" || e.PodUID == b.PodUID {
		return
	}
	if b.PodUID != "" {
		b.next()
	}
	b.PodUID = e.PodUID
	b.Pods++
}

// reach notes a phase.
func (b *Boot) reach(e *Entry) {
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
	default:
	}
}

func setOnce(t *time.Time, to time.Time) {
	if t.IsZero() {
		*t = to
	}
}
