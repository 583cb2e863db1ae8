package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// Answer is what the bridge knows of a subject, or what can be known without it.
type Answer struct {
	Subject
	Time time.Time `json:"time"`
	Found
	Boots           []powersave.Boot          `json:"boots,omitempty"` // in flight, power-downs included
	NodeSets        []powersave.NodeSetCounts `json:"nodeSets,omitempty"`
	Slurm           []Shown                   `json:"slurm,omitempty"`
	SlurmMissing    bool                      `json:"slurmMissing,omitempty"` // slurmctld does not know it, or has forgotten it
	SlurmError      string                    `json:"slurmError,omitempty"`
	KubernetesError string                    `json:"kubernetesError,omitempty"`
	// Dynamic says that the node or NodeSet, or one that makes nodes for jobs like this, is of mode Dynamic: Boots has its nodes that serve, too.
	Dynamic bool `json:"dynamic,omitempty"`
	// Making are nodes of NodeSets of mode Dynamic that have not registered, for jobs of the partitions of a job that waits: no pod is made for one job alone.
	Making []powersave.Boot `json:"making,omitempty"`
	// BridgeError says why only the history is known; the bridge itself leaves it empty.
	BridgeError string `json:"bridgeError,omitempty"`
}

// Shown is how Slurm shows a job or a node now.
type Shown struct {
	Name      string    `json:"name"`
	State     string    `json:"state"`
	Reason    string    `json:"reason,omitempty"`
	Nodes     string    `json:"nodes,omitempty"`
	Partition string    `json:"partition,omitempty"` // of a job; several with commas while it is pending
	Submitted time.Time `json:"submitted,omitzero"`
	Eligible  time.Time `json:"eligible,omitzero"`
	Attempt   int       `json:"attempt,omitempty"`
}

// Known says that there is something to tell.
func (a *Answer) Known() bool {
	return len(a.Boots)+len(a.NodeSets)+len(a.Slurm) > 0 || slices.ContainsFunc(a.Entries, func(e Entry) bool { return !e.global() })
}

// Waits says that a job may be pending, for all that is known: what it counts for as demand is of interest.
func (a *Answer) Waits() bool {
	return len(a.Slurm) == 0 && !a.SlurmMissing || slices.ContainsFunc(a.Slurm, func(j Shown) bool { return strings.Contains(j.State, "PENDING") })
}

// over says that Slurm knows a job, and that it neither waits for nodes nor for their boots.
func (a *Answer) over() bool {
	return len(a.Slurm) > 0 && !slices.ContainsFunc(a.Slurm, func(j Shown) bool {
		return strings.Contains(j.State, "PENDING") || strings.Contains(j.State, "CONFIGURING")
	})
}

// forNodes are Slurm's reasons of jobs that more nodes may help, or that it has not looked at. Of all others a NodeSet's back-off explains nothing. Package scaler
// has a class for every reason; it stands above this one.
var forNodes = []string{"", "None", "Resources", "Priority", "SchedDefer", "ReqNodeNotAvail", "PartitionNodeLimit", "PartitionConfig", "NodeDown", "SystemFailure"}

// Serves are those of its partitions for whose jobs a NodeSet of mode Dynamic makes nodes; nil: it is no job that waits for nodes, or there are none.
func (a *Answer) Serves(c powersave.NodeSetCounts) []string {
	var names []string
	for _, j := range a.Slurm {
		if a.Job == 0 || !strings.Contains(j.State, "PENDING") || !slices.Contains(forNodes, j.Reason) {
			continue
		}
		for name := range strings.SplitSeq(j.Partition, ",") {
			if slices.Contains(c.Partitions, name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// In says that the subject has to do with the NodeSet.
func (a *Answer) In(nodeSet string) bool {
	return slices.ContainsFunc(a.Boots, func(b powersave.Boot) bool { return b.NodeSet == nodeSet }) ||
		slices.ContainsFunc(a.Entries, func(e Entry) bool { return e.NodeSet == nodeSet })
}

// Story is what there is to tell of a subject.
type Story struct {
	Subject
	Time  time.Time `json:"time"`
	Now   []string  `json:"now"` // how it is now, by Slurm and the bridge
	Steps []Step    `json:"steps"`
	Boots []*Boot   `json:"boots"`
	// Why is the newest reason for which it does not go on; empty: it does.
	Why   string    `json:"why,omitempty"`
	Tried []string  `json:"tried,omitempty"` // and failed, since the last success
	Next  []string  `json:"next,omitempty"`  // what happens without anybody
	Again time.Time `json:"again,omitzero"`  // when, if that is known
	Do    string    `json:"do,omitempty"`
	Notes []string  `json:"notes,omitempty"` // what is missing here, and why
}

// Step is a line of the story: one entry, or equal ones of several nodes.
type Step struct {
	Time  time.Time `json:"time"`
	After float64   `json:"afterSeconds"` // the step before
	Last  time.Time `json:"last,omitzero"`
	What  What      `json:"what"`
	Nodes string    `json:"nodes,omitempty"`
	Text  string    `json:"text"`
}

// What a story tells beside what entries do.
const (
	Submitted     What = "Submitted"
	Eligible      What = "Eligible"
	ProgramCalled What = "ProgramCalled"
	Running       What = "Running"
	NodeMade      What = "NodeMade" // of mode Dynamic: there is to be one
)

// Tell makes a story of what is known.
func Tell(a Answer) Story {
	a.Dynamic = a.Dynamic || slices.ContainsFunc(a.Entries, func(e Entry) bool { return e.Dynamic }) // also of nodes that have gone
	entries := relevant(a)
	s := Story{Subject: a.Subject, Time: a.Time, Now: now(a), Boots: []*Boot{}, Steps: steps(a, entries)}
	for _, b := range Boots(entries) {
		if a.Node == "" || b.Node == a.Node {
			s.Boots = append(s.Boots, b)
		}
	}
	s.judge(a, entries)
	s.notes(a)
	return s
}

// relevant leaves out what was told before, by a bridge that was then started anew, and global entries from before or after the story.
func relevant(a Answer) []Entry {
	type key struct {
		what                     What
		node, nodes, pod, reason string
		job                      uint32
		request                  string
	}
	seen := map[key]bool{}
	said := map[string]string{}
	var out []Entry
	last := -1
	for _, e := range a.Entries {
		k := key{what: e.What, node: e.Node, pod: e.PodUID, request: e.Request}
		if len(e.Jobs) == 1 {
			k.job = e.Jobs[0]
		}
		switch e.What {
		case RequestAccepted:
			k.nodes = e.Nodes
		case PodCreated, PodScheduled, ContainerStarted, PodGone:
			k.job, k.request = 0, ""
		case PodDeleted:
			k.reason = e.Reason
		case Reported:
			if said[e.Node+"/"+e.NodeSet] == e.Reason {
				continue
			}
			said[e.Node+"/"+e.NodeSet] = e.Reason
			k = key{}
		case Breaker: // the next bridge finds it as it was
			which, how := "breaker "+e.NodeSet+"/"+e.Offering, fmt.Sprint(e.State, e.Until.UTC(), e.Class, e.Reason)
			if said[which] == how {
				continue
			}
			said[which] = how
			k = key{}
		default:
			k = key{}
		}
		if k.what != "" && seen[k] || e.global() && len(out) == 0 && a.NodeSet == "" {
			continue
		}
		seen[k] = true
		out = append(out, e)
		if !e.global() {
			last = len(out)
		}
	}
	waits := slices.ContainsFunc(a.Boots, func(b powersave.Boot) bool { return b.Phase != powersave.PhaseRegistered })
	if !waits && a.NodeSet == "" && last >= 0 { // nobody waits any more
		out = out[:last]
	}
	return out
}

// now says in a line each how Slurm and the bridge see it.
func now(a Answer) []string {
	lines := []string{}
	if a.SlurmMissing {
		lines = append(lines, "slurmctld does not know it (any more)")
	}
	for _, j := range a.Slurm {
		line := "Slurm shows " + j.Name + " as " + j.State
		if j.Nodes != "" {
			line += " on " + j.Nodes
		}
		if j.Reason != "" && j.Reason != "None" {
			line += ": " + j.Reason
		}
		lines = append(lines, line)
	}
	type state struct {
		phase   powersave.Phase
		problem string
	}
	nodes := map[state][]string{}
	var order []state
	for _, b := range a.Boots {
		if b.Phase == powersave.PhaseRegistered { // of mode Dynamic alone
			if a.Node != "" {
				lines = append(lines, registered(b))
			}
			continue
		}
		k := state{b.Phase, b.Problem}
		if nodes[k] == nil {
			order = append(order, k)
		}
		nodes[k] = append(nodes[k], b.Node)
	}
	for _, k := range order {
		line := fmt.Sprintf("%s: %s, waits for %s", compress(nodes[k]), k.phase, waitsFor[k.phase])
		if k.problem != "" {
			line += ": " + k.problem
		}
		lines = append(lines, line)
	}
	lines = append(lines, making(a)...)
	for _, c := range a.NodeSets {
		if a.NodeSet == "" {
			continue
		}
		lines = append(lines, fmt.Sprintf("%d nodes: %d powered up, %d booting, %d ready, %d failed", c.Nodes, c.PoweredUp, c.Booting, c.Ready, c.Failed))
		if c.Problem != "" {
			lines = append(lines, "it cannot be used: "+c.Problem)
		}
		if f := c.Floor; f != nil && f.Held < f.Wanted {
			lines = append(lines, strings.TrimSuffix(fmt.Sprintf("floor: %d of %d nodes serve: %s: %s", f.Held, f.Wanted, f.Why, f.Text), ": "))
		}
		if u := c.Update; u != nil && u.Outdated > 0 {
			lines = append(lines, fmt.Sprintf("update to %s: %d pods are outdated: %s", u.Revision, u.Outdated, u.Text))
		}
	}
	return lines
}

// making says which NodeSets of mode Dynamic make nodes for jobs like the one that waits, and how far the nodes are.
func making(a Answer) []string {
	var lines []string
	for _, c := range a.NodeSets {
		partitions := a.Serves(c)
		if len(partitions) == 0 {
			continue
		}
		line := fmt.Sprintf("jobs of partition %s get nodes of NodeSet %s: %d of %d are powered up, %d boot, %d failed", strings.Join(partitions, ","), c.Name, c.PoweredUp, c.Nodes, c.Booting, c.Failed)
		if c.Problem != "" {
			line += "; it cannot be used: " + c.Problem
		}
		if c.Stale != "" {
			line += "; that is old: " + c.Stale
		}
		lines = append(lines, line)
		for _, b := range a.Making {
			if b.NodeSet != c.Name {
				continue
			}
			line := fmt.Sprintf("%s: %s", b.Node, b.Phase)
			since := b.Times.Requested
			if since.IsZero() {
				since = b.Times.Created
			}
			if !since.IsZero() {
				line += " since " + since.UTC().Format(time.RFC3339)
			}
			if line += ", waits for " + waitsFor[b.Phase]; b.Problem != "" {
				line += ": " + b.Problem
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// registered says where the slurmd of a node runs.
func registered(b powersave.Boot) string {
	line := fmt.Sprintf("%s: slurmd of NodeSet %s runs in a pod on %s", b.Node, b.NodeSet, cmp.Or(b.Host, "a host that is not known"))
	if b.Offering != "" {
		line += " (offering " + b.Offering + ")"
	}
	return line
}

var waitsFor = map[powersave.Phase]string{
	powersave.PhaseAccepted: "a NodeSet, Kubernetes, or Slurm's confirmation of an old request",
	powersave.PhaseCreating: "the API server",
	powersave.PhasePending:  "a host for the pod",
	powersave.PhaseStarting: "image and volumes",
	powersave.PhaseRunning:  "slurmd's registration",
	powersave.PhaseRemoving: "the pod's end",
	powersave.PhaseFreeing:  "slurmrestd, to give the name back",
}

// judge says why it does not go on, what was tried, when it is tried again, and what people can do.
func (s *Story) judge(a Answer, entries []Entry) {
	class := ""
	var held []Entry // what was tried in vain
	for _, e := range entries {
		switch e.What {
		case BootFailed:
			s.Why, class = e.Class+": "+e.Reason, e.Class
			held = append(held, e)
		case JobGivenBack:
			s.Why = strings.TrimPrefix(e.Reason, powersave.ReasonPrefix)
			if e.Times > 1 {
				s.Why += fmt.Sprintf(" (%d times in a row)", e.Times)
			}
			class, _, _ = strings.Cut(s.Why, ":")
		case Reported:
			if strings.HasSuffix(e.Reason, otherOffering) {
				e.Class, e.Reason, _ = strings.Cut(strings.TrimSuffix(e.Reason, otherOffering), ": ")
				held = append(held, e)
			}
		case JobRests:
			s.Again = e.Until
		case GateOpened, NodeRegistered, JobSeen:
			if e.What == JobSeen && (a.Job == 0 || !gotThere(e.State)) {
				continue
			}
			if e.What == NodeRegistered && a.Job != 0 && s.Why != "" { // the job waits for all of them
				continue
			}
			s.Why, class, held, s.Again = "", "", nil, time.Time{}
		default:
		}
	}
	if len(a.Slurm) > 0 && a.Job != 0 && !slices.ContainsFunc(a.Slurm, func(j Shown) bool { return !gotThere(j.State) }) {
		s.Why, class, held, s.Again = "", "", nil, time.Time{}
	}
	s.tried(held)
	if a.NodeSet != "" {
		s.Why = "" // breakers say better
	}
	for _, c := range a.NodeSets {
		for _, b := range c.Breakers {
			if b.State == powersave.BreakerClosed || a.Job != 0 && a.over() {
				continue
			}
			where := "NodeSet " + b.Key.NodeSet
			if b.Key.Offering != "" {
				where = "offering " + b.Key.Offering + " of " + where
			}
			if a.NodeSet != "" || len(a.Serves(c)) > 0 {
				s.Why = cmp.Or(s.Why, string(b.Class)+": "+b.Reason)
			}
			class = cmp.Or(class, string(b.Class))
			switch {
			case b.State == powersave.BreakerHalfOpen:
				s.Next = append(s.Next, where+": one boot tries, the others wait for it")
			case b.Until.IsZero():
				s.Next = append(s.Next, where+" is tried again when its spec changes")
			default:
				s.Next = append(s.Next, where+" is tried again "+at(b.Until, a.Time))
			}
		}
	}
	if a.Job != 0 && s.Again.After(a.Time) {
		s.Next = append([]string{"Slurm may start it again " + at(s.Again, a.Time)}, s.Next...)
	} else {
		s.Again = time.Time{}
	}
	if dynamic := slices.Concat(a.Boots, a.Making); a.Dynamic && s.Why == "" {
		if i := slices.IndexFunc(dynamic, func(b powersave.Boot) bool { return b.Problem != "" }); i >= 0 {
			s.Why = dynamic[i].Problem
			class, _, _ = strings.Cut(s.Why, ":")
		}
	}
	if s.Why != "" || len(s.Next) > 0 {
		s.Do = Advice(class, a.Dynamic)
	}
}

// gotThere says that a job's state is one in which it has its nodes, or had them until its end: what went wrong before that is of no concern any more.
func gotThere(state string) bool {
	words := strings.Split(state, "+")
	return !slices.Contains(words, "CONFIGURING") && (slices.Contains(words, "RUNNING") || slices.Contains(words, "COMPLETED"))
}

// otherOffering ends what the engine says when it goes on with another offering.
const otherOffering = ": trying another offering"

// tried lists failures with where they were, each once.
func (s *Story) tried(held []Entry) {
	type where struct{ nodeSet, offering, class, reason string }
	nodes := map[where][]string{}
	var order []where
	for _, e := range held {
		k := where{e.NodeSet, e.Offering, e.Class, e.Reason}
		if nodes[k] == nil {
			order = append(order, k)
		}
		if !slices.Contains(nodes[k], e.Node) {
			nodes[k] = append(nodes[k], e.Node)
		}
	}
	for _, k := range order {
		on := ""
		if k.offering != "" {
			on = " on " + k.offering
		}
		s.Tried = append(s.Tried, fmt.Sprintf("%s%s: %s: %s", compress(nodes[k]), on, k.class, k.reason))
	}
}

var advice = map[string]string{
	string(powersave.TroubleCapacity):  "add hosts, or make room on them; look at the selector, tolerations and topology of the NodeSet's template, or give it another offering",
	string(powersave.TroubleQuota):     "raise the ResourceQuota or LimitRange of the namespace, or have others leave it",
	string(powersave.TroubleImage):     "correct the image's name, the registry or the pull secret in the NodeSet's template",
	string(powersave.TroubleConfig):    "make what is missing (secret, config map, volume, right), or correct the NodeSet",
	string(powersave.TroubleCrash):     "read slurmd's log: kubectl logs -f of the pod while scontrol update nodename=NODE state=power_up boots it",
	string(powersave.TroubleRefused):   "make spec.shape, slurm.conf and what slurmd finds agree, then scontrol update nodename=NODE state=resume",
	string(powersave.TroubleBootstrap): "read slurmd's log; look at the key, firewalls, address translation and slurm.conf, or run slurmtide doctor live",
	string(powersave.TroubleLost):      "look who took the pod: preemption, eviction, or a lost host",
}

// dynamicAdvice is what is different where slurmctld has no record that it could power up.
var dynamicAdvice = map[string]string{
	string(powersave.TroubleCrash):   "read slurmd's log: kubectl logs -f of the next pod, while the NodeSet tries again",
	string(powersave.TroubleRefused): "make spec.shape and what slurmd finds agree",
}

// Advice is what people can do about trouble of this class; empty: there is none. Of mode Dynamic some is different.
func Advice(class string, dynamic bool) string {
	if dynamic {
		return cmp.Or(dynamicAdvice[class], advice[class])
	}
	return advice[class]
}

func at(t, now time.Time) string {
	if d := t.Sub(now).Round(time.Second); d > 0 {
		return fmt.Sprintf("at %s (in %s)", t.UTC().Format(time.RFC3339), d)
	}
	return "at " + t.UTC().Format(time.RFC3339)
}

func (s *Story) notes(a Answer) {
	for _, n := range []struct {
		said bool
		text string
	}{
		{a.BridgeError != "", "only the history is known: " + a.BridgeError},
		{a.SlurmError != "", "Slurm cannot be asked: " + a.SlurmError},
		{a.KubernetesError != "", "Kubernetes cannot be read: " + a.KubernetesError},
		{a.LeftOut > 0, fmt.Sprintf("older entries that are left out: %d", a.LeftOut)},
		{a.Broken > 0, fmt.Sprintf("lines of the history that cannot be read: %d; a bridge was killed while it wrote, or the disk is bad", a.Broken)},
	} {
		if n.said {
			s.Notes = append(s.Notes, n.text)
		}
	}
}
