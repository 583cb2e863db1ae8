package loop

import (
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/scaler/dynamic"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// say keeps an entry for whoever is told of passes.
func (l *Loop) say(e history.Entry) {
	if l.Passed != nil {
		e.Time = time.Now()
		l.said = append(l.said, e)
	}
}

// reported says what the planner does of a node.
func (l *Loop) reported(r dynamic.Report) {
	switch {
	case r.Node == "":
	case r.Class != powersave.TroubleNone:
		l.say(history.Entry{What: history.BootFailed, Node: r.Node, NodeSet: r.NodeSet, PodUID: r.UID, Class: string(r.Class), Reason: r.Reason})
	default:
		l.say(history.Entry{What: history.Reported, Node: r.Node, NodeSet: r.NodeSet, Reason: r.Text})
	}
}

// done says what an action has changed. Pods that come and go are seen anyway.
func (l *Loop) done(a dynamic.Action, o dynamic.Outcome) {
	if o.Err != "" {
		return
	}
	switch a := a.(type) {
	case dynamic.DeletePod:
		l.say(history.Entry{What: history.PodDeleted, Node: a.Node, NodeSet: a.NodeSet, PodUID: a.UID, Reason: a.Why})
	case dynamic.Update:
		if a.State == powersave.StateNone { // the comment that says whose a node is
			return
		}
		e := history.Entry{What: history.NodesUpdated, State: string(a.State), Reason: a.Reason}
		if len(a.Nodes) == 1 {
			e.Node = a.Nodes[0]
		} else {
			e.Nodes = slurmconf.CompressHostlist(slices.Sorted(slices.Values(a.Nodes)))
		}
		l.say(e)
	}
}
