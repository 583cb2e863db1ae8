package scaler

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// need is a Request, read and worked out. Jobs with equal Requests share one.
type need struct {
	req  Request
	user uint32 // 0 where users do not matter

	minNodes, maxNodes int64
	tasks              int64 // of the whole job
	cpusPerTask        int64 // 0: tasks share what CPUs there are (--overcommit)
	mem                int64 // MiB per node, or per CPU
	leastTasks         int64 // a node must be able to run
	mostTasks          int64 // a node may run

	gresNode, gresSocket, gresTask, gresJob []slurmconf.Gres
	cpusPerGPU, memPerGPU                   int64

	alternatives       []Alternative
	required, excluded []string

	problem  string // what cannot be read; the job does not count then
	variants []*variant

	verdict *verdict // the same for all its jobs, if it cannot run at all
	placed  int64    // jobs for which room was found
}

// verdict is why no job with a Request counts.
type verdict struct {
	why    Why
	detail string
}

func newNeed(r Request, user uint32) *need {
	n := &need{req: r, user: user, minNodes: max(1, int64(r.MinNodes)), maxNodes: int64(r.MaxNodes), mostTasks: math.MaxInt32, leastTasks: 1}
	n.count()
	if err := n.read(); err != nil {
		n.problem = err.Error()
	}
	return n
}

// count works out tasks and CPUs. slurmctld selects nodes by CPUs: min_cpus is tasks times CPUs per task, and less
// with --overcommit only (job_mgr.c _validate_job_desc; eval_nodes.c).
func (n *need) count() {
	r := n.req
	n.mem = clamp(r.Memory)
	n.tasks = max(1, int64(r.Tasks), n.minNodes)
	if r.TasksPerNode > 0 {
		// Exactly that many, as a node that cannot run them is no use (job_test.c _allocate_sc).
		n.mostTasks = int64(r.TasksPerNode)
		n.leastTasks = min(n.mostTasks, n.tasks)
		n.tasks = max(n.tasks, mul(n.mostTasks, n.minNodes))
		n.minNodes = max(n.minNodes, divUp(n.tasks, n.mostTasks))
	}
	n.cpusPerTask = max(1, int64(r.CPUsPerTask))
	cpus := int64(r.CPUs)
	switch {
	case cpus > 0 && cpus < mul(n.tasks, n.cpusPerTask) && r.Tasks > 1:
		n.cpusPerTask = 0
	case cpus > mul(n.tasks, n.cpusPerTask) && r.CPUsPerTRES == "":
		n.cpusPerTask = divUp(cpus, n.tasks)
	}
	if n.maxNodes == 0 {
		n.maxNodes = math.MaxInt32
	}
	n.maxNodes = max(n.minNodes, min(n.maxNodes, n.tasks))
}

// spreads reports whether the job takes more nodes than it must, where there are some: a range of --nodes. Of a job that gives no number
// slurmctld shows the number of its tasks (JOB_IMPLICIT_MAX_NODES), which says nothing.
func (n *need) spreads() bool {
	r := n.req
	return r.MaxNodes > max(1, r.MinNodes) && !r.MaxNodesGuessed && r.MaxNodes != r.Tasks
}

// read parses the lists. An error says which of them this version cannot read.
func (n *need) read() error {
	r := n.req
	var gpus, mem []slurmconf.Gres
	for _, list := range []struct {
		what, text string
		into       *[]slurmconf.Gres
	}{
		{"tres_per_node", r.TRESPerNode, &n.gresNode},
		{"tres_per_socket", r.TRESPerSocket, &n.gresSocket},
		{"tres_per_task", r.TRESPerTask, &n.gresTask},
		{"tres_per_job", r.TRESPerJob, &n.gresJob},
		{"cpus_per_tres", r.CPUsPerTRES, &gpus},
		{"memory_per_tres", r.MemoryPerTRES, &mem},
	} {
		var err error
		if *list.into, err = slurmconf.ParseTRESGres(list.text); err != nil {
			return fmt.Errorf("%s: %w", list.what, err)
		}
		for i := range *list.into {
			g := &(*list.into)[i]
			g.Count = min(g.Count, plenty)
		}
	}
	for _, g := range gpus {
		n.cpusPerGPU = max(n.cpusPerGPU, g.Count)
	}
	for _, g := range mem {
		n.memPerGPU = max(n.memPerGPU, g.Count)
	}
	if r.TasksPerGPU > 0 && !n.wantsGPU() { // gres.c gres_job_state_validate: tasks make the GPUs
		n.gresJob = append(n.gresJob, slurmconf.Gres{Name: "gpu", Count: max(1, n.tasks/int64(r.TasksPerGPU))})
	}
	n.mergeGres()
	c, err := ParseConstraint(r.Constraint)
	if err != nil {
		return err
	}
	n.alternatives = c.Alternatives()
	for _, list := range []struct {
		what, text string
		into       *[]string
	}{{"required nodes", r.RequiredNodes, &n.required}, {"excluded nodes", r.ExcludedNodes, &n.excluded}} {
		h, err := slurmconf.ParseHostlist(list.text)
		if err != nil {
			return fmt.Errorf("%s: %w", list.what, err)
		}
		*list.into = h.Expand()
	}
	return nil
}

// mergeGres leaves out amounts for the whole job of what is also asked for each node, task or socket: they are a
// part of the same (gres.c gres_job_state_validate). With eight for the job and four a node, it has two nodes.
func (n *need) mergeGres() {
	same := func(list []slurmconf.Gres, g slurmconf.Gres) int64 {
		for _, o := range list {
			if o.Name == g.Name && o.Type == g.Type {
				return max(1, o.Count)
			}
		}
		return 0
	}
	n.gresJob = slices.DeleteFunc(n.gresJob, func(g slurmconf.Gres) bool {
		if each := same(n.gresNode, g); each > 0 {
			n.minNodes = max(n.minNodes, divUp(g.Count, each))
			n.maxNodes, n.tasks = max(n.maxNodes, n.minNodes), max(n.tasks, n.minNodes)
			return true
		}
		return same(n.gresTask, g)+same(n.gresSocket, g) > 0
	})
}

// mayUse reports whether the job may have nodes that the reservation holds ("": none does). It may name several, of which any will do
// (reservation.c _get_resv_list).
func (n *need) mayUse(reservation string) bool {
	return n.req.Reservation == reservation || slices.Contains(strings.Split(n.req.Reservation, ","), reservation)
}

func (n *need) wantsGPU() bool {
	for _, list := range [][]slurmconf.Gres{n.gresNode, n.gresSocket, n.gresTask, n.gresJob} {
		for _, g := range list {
			if g.Name == "gpu" {
				return true
			}
		}
	}
	return false
}

// partitions yields the partitions asked for, in the order in which slurmctld tries them (sort_job_queue2).
func (n *need) partitions(all map[string]*Partition) []*Partition {
	var parts []*Partition
	for name := range strings.SplitSeq(n.req.Partitions, ",") {
		p, ok := all[name]
		if !ok {
			continue
		}
		at := len(parts)
		for at > 0 && parts[at-1].Tier < p.Tier {
			at--
		}
		parts = append(parts[:at], append([]*Partition{p}, parts[at:]...)...)
	}
	return parts
}

func divUp(a, b int64) int64 { return (a + b - 1) / b }

// plenty is more than any machine has of anything, and so little that sums of it do not overflow.
const plenty = 1 << 50

// mul is the product, or plenty. Nobody keeps a user from asking for 4,000,000,000 tasks of as many CPUs.
func mul(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > plenty {
		return plenty
	}
	return int64(lo)
}

func clamp(n uint64) int64 { return int64(min(n, plenty)) }
