package page

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// mostNamed bounds the nodes that a verdict names.
const mostNamed = 100

// Verdict is why boots came to nothing: equal ones are one.
type Verdict struct {
	NodeSet  string    `json:"nodeSet,omitempty"`
	Offering string    `json:"offering,omitempty"`
	Class    string    `json:"class"`
	Reason   string    `json:"reason"`
	Times    int       `json:"times"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
	Nodes    string    `json:"nodes"` // a hostlist of the newest
	Node     string    `json:"node"`  // the newest
	Do       string    `json:"do,omitempty"`
}

// verdicts are those of the entries, the newest first.
func verdicts(entries []history.Entry) List[Verdict] {
	type key struct{ nodeSet, offering, class, reason string }
	at := map[key]int{}
	var all []Verdict
	var nodes [][]string
	for i := len(entries) - 1; i >= 0; i-- {
		e := &entries[i]
		if e.What != history.BootFailed {
			continue
		}
		k := key{e.NodeSet, e.Offering, e.Class, e.Reason}
		n, known := at[k]
		if !known {
			n = len(all)
			at[k] = n
			all = append(all, Verdict{NodeSet: e.NodeSet, Offering: e.Offering, Class: e.Class, Reason: e.Reason, Last: e.Time, Node: e.Node, Do: history.Advice(e.Class, e.Dynamic)})
			nodes = append(nodes, nil)
		}
		all[n].Times++
		all[n].First = e.Time
		if len(nodes[n]) < mostNamed && !slices.Contains(nodes[n], e.Node) {
			nodes[n] = append(nodes[n], e.Node)
		}
	}
	out := listed(all, mostVerdicts)
	for i := range out.Items {
		slices.SortFunc(nodes[i], byNumber)
		out.Items[i].Nodes = slurmconf.CompressHostlist(nodes[i])
	}
	return out
}

func byNumber(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// GivenBack is a job that was given back to the queue.
type GivenBack struct {
	Job    uint32    `json:"job"`
	Time   time.Time `json:"time"`
	Reason string    `json:"reason"`
	Times  int       `json:"times,omitempty"` // in a row
}

// givenBack are jobs, each with the last time, the newest first.
func givenBack(entries []history.Entry) List[GivenBack] {
	seen := map[uint32]bool{}
	var all []GivenBack
	for i := len(entries) - 1; i >= 0; i-- {
		e := &entries[i]
		if e.What != history.JobGivenBack || len(e.Jobs) == 0 || seen[e.Jobs[0]] {
			continue
		}
		seen[e.Jobs[0]] = true
		all = append(all, GivenBack{Job: e.Jobs[0], Time: e.Time, Reason: strings.TrimPrefix(e.Reason, powersave.ReasonPrefix), Times: e.Times})
	}
	return listed(all, mostVerdicts)
}

// Note is a problem that the bridge met; equal ones are one.
type Note struct {
	Time  time.Time `json:"time"` // of the newest
	Node  string    `json:"node,omitempty"`
	Text  string    `json:"text"`
	Times int       `json:"times"`
}

// notes are the newest first.
func notes(of []powersave.Note) List[Note] {
	type key struct{ node, text string }
	at := map[key]int{}
	var all []Note
	for _, n := range slices.Backward(of) {
		k := key{n.Node, n.Text}
		i, known := at[k]
		if !known {
			i = len(all)
			at[k] = i
			all = append(all, Note{Time: n.Time, Node: n.Node, Text: n.Text})
		}
		all[i].Times++
	}
	return listed(all, mostNotes)
}
