package dynamic

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// grip is how firmly somebody holds a node by naming it.
type grip int

const (
	gripNone grip = iota
	// gripRecord (--exclude, and --nodelist of jobs that may not run yet): the record stays. slurmctld ends a pending job that names a node
	// which is no more when it is started again (job_mgr.c _reset_detail_bitmaps).
	gripRecord
	// gripNode (--nodelist, reservations): the node stays, too, as long as it is well.
	gripNode
	// gripJob: a job is on it. A suspended one does not show in the node's state (job_mgr.c _suspend_job_nodes).
	gripJob
)

// claim is the firmest grip that there is on a node, and whose it is.
type claim struct {
	grip grip
	by   string
}

// claimsOf gives the claims on nodes by name. unclear is a list that cannot be read, if there is one: nobody knows then what else is named.
func claimsOf(now time.Time, r *Reading) (claims map[string]claim, unclear string) {
	claims = map[string]claim{}
	type entry struct {
		list string
		grip grip
	}
	seen := map[entry]bool{} // the tasks of arrays, and many jobs beside, name the same nodes
	add := func(list string, g grip, who func() string) {
		if list == "" || seen[entry{list, g}] {
			return
		}
		seen[entry{list, g}] = true
		by := who()
		nodes, err := slurmconf.ParseHostlist(list)
		if err != nil {
			unclear = cmp.Or(unclear, fmt.Sprintf("the nodes of %s cannot be read: %v", by, err))
			return
		}
		for name := range nodes.All() {
			if claims[name].grip < g {
				claims[name] = claim{g, by}
			}
		}
	}
	for i := range r.Queue.Jobs {
		j := &r.Queue.Jobs[i]
		by := func() string { return fmt.Sprintf("job %d", j.ID) }
		add(j.Nodes, gripJob, by)
		wants := gripNode
		if j.State == scaler.JobPending && (j.Priority == 0 || j.Dependent || j.Begin.After(now)) {
			wants = gripRecord // it may pend for weeks; its nodes are made when it may run
		}
		add(j.RequiredNodes, wants, by)
		add(j.ExcludedNodes, gripRecord, by)
	}
	for name, nodes := range r.Reservations {
		add(nodes, gripNode, func() string { return "reservation " + name })
	}
	return claims, unclear
}

// Named is who names nodes.
type Named struct {
	claims  map[string]claim
	unclear string
}

// NamedBy tells who of these jobs and reservations, the latter hostlists by name, names which nodes.
func NamedBy(jobs []scaler.Job, reservations map[string]string) (n Named) {
	n.claims, n.unclear = claimsOf(time.Time{}, &Reading{Queue: scaler.Snapshot{Jobs: jobs}, Reservations: reservations})
	return n
}

// By says who names the node, or why that is not known; empty: nobody.
func (n Named) By(node string) string {
	if c := n.claims[node]; n.unclear == "" && c.grip > gripNone {
		return c.by + " names it"
	}
	return n.unclear
}

// busy reports that a job is on the node.
func (p *Planner) busy(n *node) bool {
	return n.rec.State.Any(inUse) || p.claims[n.name].grip == gripJob
}

// mayTake reports that both sides are known well enough for something to be taken down.
func (p *Planner) mayTake() bool { return p.fresh && p.unclear == "" }

// forHost reports that the node is drained because of its host.
func (p *Planner) forHost(n *node) bool {
	return p.drained(n) && strings.HasPrefix(n.rec.Reason, powersave.HostPrefix)
}

// host says what speaks against new jobs on the host of the node's pod, and whether the pod should leave it.
func (p *Planner) host(n *node) (why string, leave bool) {
	if p.facts.Hosts == nil || n.pod == nil || n.pod.Host == "" {
		return "", false
	}
	why, leave, _ = p.facts.Hosts.Judge(p.now, n.pod.Host, p.forHost(n)) // Slurm is read often enough to look again in time
	return why, leave
}
