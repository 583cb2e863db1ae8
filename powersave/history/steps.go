package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
)

// together is how long after each other the same may happen to several nodes to be one step.
const together = 30 * time.Second

// group is a step in the making.
type group struct {
	Entry
	last  time.Time
	nodes []string
	hosts []string
	pulls []string // of all nodes
}

// groupKey says which entries are one step. times counts how often the same has happened to a node.
type groupKey struct {
	what                      What
	request, offering, reason string
	times                     int
}

// steps makes steps of entries: what happens to many nodes at about the same time is one.
func steps(a Answer, entries []Entry) []Step {
	s := a.Subject
	var groups []*group
	open := map[groupKey]*group{}
	count := map[string]int{}
	for _, e := range derive(a, entries) {
		if s.NodeSet != "" && ordinary(e.What) {
			continue
		}
		g := &group{Entry: e, last: e.Time}
		if e.Node != "" {
			g.nodes = []string{e.Node}
		}
		if e.Host != "" {
			g.hosts = []string{e.Host}
		}
		g.pulls = []string{e.Pull}
		if e.Node == "" || !joins(e.What) {
			groups = append(groups, g)
			continue
		}
		k := groupKey{what: e.What, request: e.Request, offering: e.Offering, reason: e.Class + e.Reason + e.State}
		id := fmt.Sprint(k, e.Node)
		count[id]++
		k.times = count[id]
		if o := open[k]; o != nil && e.Time.Sub(o.last) <= together {
			o.last = e.Time
			o.nodes, o.pulls = append(o.nodes, e.Node), append(o.pulls, e.Pull)
			if e.Host != "" && !slices.Contains(o.hosts, e.Host) {
				o.hosts = append(o.hosts, e.Host)
			}
			continue
		}
		groups, open[k] = append(groups, g), g
	}
	out := []Step{}
	for i, g := range groups {
		step := Step{Time: g.Time, What: g.What, Nodes: cmp.Or(g.Nodes, compress(g.nodes)), Text: g.text(s)}
		if g.last.Sub(g.Time) >= 10*time.Millisecond {
			step.Last = g.last
		}
		if i > 0 {
			step.After = g.Time.Sub(groups[i-1].Time).Seconds()
		}
		out = append(out, step)
	}
	return out
}

// joins says that entries of several nodes can be one step.
func joins(w What) bool {
	return ordinary(w) || slices.Contains([]What{BootFailed, Reported, JobsLost}, w)
}

// ordinary says that it happens with each boot and power-down: of a NodeSet there would be little else to read. The table of boots has it.
func ordinary(w What) bool {
	return slices.Contains([]What{NodeMade, PodCreated, PodScheduled, ContainerStarted, NodeRegistered, PodDeleted, PodGone}, w)
}

// derive adds what entries tell of earlier times, and sorts by time.
func derive(a Answer, entries []Entry) []Entry {
	var out []Entry
	called := map[string]bool{}
	known := map[string]bool{} // of a job: each time once
	once := func(what What, at time.Time, e Entry) {
		if id := string(what) + at.UTC().String(); !at.IsZero() && !at.After(a.Time) && !known[id] {
			known[id] = true
			e.What, e.Time = what, at
			out = append(out, e)
		}
	}
	queued := func(e Entry) {
		if e.Attempt > 1 {
			e.Submitted = afterGivenBack(e.Submitted, entries)
		}
		once(Submitted, e.Submitted, Entry{Jobs: e.Jobs, Attempt: e.Attempt})
		if !e.Eligible.Equal(e.Submitted) {
			once(Eligible, e.Eligible, Entry{Jobs: e.Jobs})
		}
	}
	for _, j := range a.Slurm {
		queued(Entry{Submitted: j.Submitted, Eligible: j.Eligible, Attempt: j.Attempt})
	}
	registered := map[string]bool{} // by pod
	for _, e := range entries {
		if e.Dynamic && !e.Requested.IsZero() && !called[e.Request] {
			called[e.Request] = true
			c := e
			c.What, c.Time = NodeMade, e.Requested
			out = append(out, c)
		}
		switch e.What {
		case NodeRegistered:
			registered[e.PodUID] = e.PodUID != ""
			out = append(out, e)
		case ContainerStarted:
			if registered[e.PodUID] {
				e.State = told
			}
			out = append(out, e)
		case RequestAccepted:
			if id := e.Request + e.Nodes; !e.Requested.IsZero() && !called[id] {
				called[id] = true
				c := e
				c.What, c.Time = ProgramCalled, e.Requested
				out = append(out, c)
			}
			out = append(out, e)
		case JobSeen:
			if a.Job == 0 {
				continue
			}
			queued(e)
			if state := strings.Split(e.State, "+"); slices.Contains(state, "CONFIGURING") {
				continue // as is plain from the rest
			} else if slices.Contains(state, "RUNNING") {
				if id := fmt.Sprint(Running, e.Attempt); !known[id] {
					known[id] = true
					e.What = Running
					out = append(out, e)
				}
			} else {
				out = append(out, e)
			}
		default:
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b Entry) int { return a.Time.Compare(b.Time) })
	return out
}

// afterGivenBack puts a time of a requeue, which Slurm tells in whole seconds, behind what in the same second has led to it.
func afterGivenBack(at time.Time, entries []Entry) time.Time {
	second := at.Add(time.Second)
	for _, e := range entries {
		if (e.What == JobGivenBack || e.What == NodesUpdated) && e.Time.After(at) && e.Time.Before(second) {
			at = e.Time
		}
	}
	return at
}

// told is the state of a started container of which Kubernetes tells when slurmd has registered already.
const told = "told"

var programs = map[string]string{
	string(spool.KindResume): "ResumeProgram", string(spool.KindSuspend): "SuspendProgram", string(spool.KindResumeFail): "ResumeFailProgram",
}

// pulled says how the images of a step's containers came to their hosts.
func pulled(pulls []string) string {
	var longest time.Duration
	n := 0
	for _, pull := range pulls {
		switch took, err := time.ParseDuration(pull); {
		case err == nil:
			n++
			longest = max(longest, took)
		case pull != powersave.PullThere: // nobody has said
			return "image pulled, "
		}
	}
	switch {
	case n == 0:
		return "image was on the host, "
	case len(pulls) == 1:
		return fmt.Sprintf("image pulled in %v, ", longest)
	}
	return fmt.Sprintf("image pulled by %d of %d in up to %v, ", n, len(pulls), longest)
}

// text says what happened, in a line.
func (g *group) text(s Subject) string {
	nodes := ": " + cmp.Or(g.Nodes, compress(g.nodes))
	many := len(g.nodes) > 1
	if s.Node != "" && !many && g.Nodes == "" || nodes == ": " {
		nodes = ""
	}
	plural := func(one, more string) string {
		if many {
			return more
		}
		return one
	}
	switch g.What {
	case Submitted:
		if g.Attempt > 1 {
			return "back in the queue"
		}
		return "submitted"
	case Eligible:
		return "eligible"
	case ProgramCalled:
		return "slurmctld runs " + programs[g.Kind] + nodes
	case RequestAccepted:
		return "request accepted" + nodes + jobs(s, g.Jobs)
	case GateWaits:
		text := "allocated" + nodes
		if s.Job == 0 {
			text = fmt.Sprintf("allocated to job %d%s", g.Jobs[0], nodes)
		}
		if g.Attempt > 1 {
			text += fmt.Sprintf(" (attempt %d)", g.Attempt)
		}
		return text + "; the start gate waits"
	case NodeMade:
		return "Slurmtide makes the node" + nodes + on(g.Offering)
	case RoomAsked:
		return "room asked for with a ProvisioningRequest" + jobs(s, g.Jobs)
	case RoomState:
		return joined("ProvisioningRequest "+g.State, g.Reason)
	case PodCreated:
		return plural("pod created", "pods created") + nodes + on(g.Offering) + jobs(s, g.Jobs)
	case PodScheduled:
		return "scheduled" + hostsText(g.hosts) + nodes
	case ContainerStarted:
		if g.State == told {
			return "Kubernetes tells that the container has started" + nodes
		}
		return pulled(g.pulls) + "container started" + nodes
	case NodeRegistered:
		return "slurmd registered" + nodes
	case BootFailed:
		return plural("boot failed", "boots failed") + nodes + on(g.Offering) + ": " + g.Class + ": " + g.Reason + jobs(s, g.Jobs)
	case GateOpened:
		return "gate opened: all its nodes serve" + jobs(s, g.Jobs)
	case GateGivenUp:
		return joined("gate let go", g.Reason) + jobs(s, g.Jobs)
	case Running:
		return "running, as Slurm shows"
	case JobSeen:
		return joined("Slurm shows it "+g.State, strings.TrimPrefix(g.Reason, "None"))
	case JobGivenBack:
		text := "job given back"
		if s.Job == 0 {
			text = fmt.Sprintf("job %d given back", g.Jobs[0])
		}
		if g.Attempt > 0 {
			text += fmt.Sprintf(" (attempt %d)", g.Attempt)
		}
		return joined(text, strings.TrimPrefix(g.Reason, powersave.ReasonPrefix))
	case JobRests:
		return "rests until " + g.Until.UTC().Format(time.RFC3339) + jobs(s, g.Jobs)
	case NodesUpdated:
		return joined("set to "+g.State+nodes, g.Reason)
	case PodDeleted:
		return joined(plural("pod is deleted", "pods are deleted")+nodes, g.Reason)
	case PodGone:
		return plural("pod gone", "pods gone") + nodes
	case JobsLost:
		return joined("powered down with jobs on it"+nodes, g.Reason)
	case Breaker:
		return g.breaker()
	case Floor:
		return joined("floor not reached: "+g.Class, g.Reason)
	case BridgeStarted:
		return "the bridge was started: version " + g.State
	case Unreadable:
		return joined(g.API+" cannot be read", g.Reason)
	case Readable:
		return g.API + " can be read again"
	case EntriesLost:
		return fmt.Sprintf("%d entries of the history were lost", g.Times)
	default: // Reported, or what a later version tells
		return joined(strings.TrimPrefix(nodes, ": "), g.Reason)
	}
}

func (g *group) breaker() string {
	where := "NodeSet " + g.NodeSet
	if g.Offering != "" {
		where = "offering " + g.Offering
	}
	switch {
	case g.State == string(powersave.BreakerClosed):
		return where + " is tried as usual again"
	case g.State == string(powersave.BreakerHalfOpen):
		return where + ": one boot tries whether it works again"
	case g.Until.IsZero():
		return where + " is not tried until its spec changes: " + g.Class + ": " + g.Reason
	}
	return where + " is not tried until " + g.Until.UTC().Format(time.RFC3339) + ": " + g.Class + ": " + g.Reason
}

func joined(text, reason string) string {
	if text == "" || reason == "" {
		return text + reason
	}
	return text + ": " + reason
}

func on(offering string) string {
	if offering == "" {
		return ""
	}
	return " (offering " + offering + ")"
}

// jobs names the jobs that it was for, where that is not what was asked about.
func jobs(s Subject, ids []uint32) string {
	if s.Job != 0 || len(ids) == 0 {
		return ""
	}
	if len(ids) == 1 {
		return fmt.Sprintf(", for job %d", ids[0])
	}
	return fmt.Sprintf(", for %d jobs", len(ids))
}

func hostsText(hosts []string) string {
	switch {
	case len(hosts) == 0:
		return ""
	case len(hosts) > 3:
		return fmt.Sprintf(" on %d hosts", len(hosts))
	}
	return " on " + strings.Join(hosts, ", ")
}
