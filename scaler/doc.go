// Package scaler turns Slurm's queue into the number of nodes that would help. It decides nothing about jobs,
// which Slurm does, and knows no clients, clock or goroutine: a Snapshot goes in, a Report comes out.
//
//	report := scaler.Demand(time.Now(), scaler.Snapshot{
//		Jobs:       jobs,       // of slurmctld, pending and running
//		Partitions: partitions,
//		Nodes:      nodes,
//		NodeSets:   []scaler.NodeSet{{Name: "cpu"}, {Name: "gpu"}},
//	})
//	for _, set := range report.NodeSets {
//		fmt.Println(set.Name, "needs", set.Nodes(), "nodes,", set.New.Greedy, "of them are to be powered up")
//	}
//	for _, job := range report.Jobs {
//		fmt.Println(job) // job 12: impossible: needs gpu:h200:8, NodeSet gpu offers gpu:h100:8
//	}
//
// # Which jobs count
//
// A pending job counts when nothing but nodes keeps it from running, and the nodes can be had. Slurm's own word
// for why it waits decides first (reasons.go has every one of them), then what the record says: held, a begin time,
// dependencies, an array's limit. Words may be old, for slurmctld writes them only when it looks at a
// job; so a begin time that is over does not keep a job out. Why names the classes. A word this package does not know does not count, and
// says so.
//
// # What a job needs of a node
//
// A Request is worked out once for all jobs that are equal, and once for each kind of node (fit.go): tasks and
// CPUs, memory per node, CPU and GPU, generic resources per node, socket, task and job, with or without a type,
// features with Slurm's operators (constraint.go), exclusive and shared use, sockets and threads. What an empty node cannot give, it never
// will; if no node of any NodeSet fits, the job is impossible, and the nearest miss is told (miss.go).
//
// # How many nodes
//
// Jobs are placed one by one in slurmctld's order, on nodes as select/cons_tres would take them: those that are up
// first, with what is left of them, then those that boot, then powered-down ones (pack.go). The nodes that are
// taken from the last group are Estimate.Greedy, and NodeSetDemand.PowerUp names them. A job of several nodes gets all of them
// or none; so does a het job with its components, which backfill starts, and so not in the queue's order (order.go). Jobs that
// share cores (--oversubscribe) are beside others of their kind only, and take cores that are nobody's first (fit.go, world.go). An array is one record and is never unfolded. For jobs that ask for a range of nodes the smaller number counts.
//
// Estimate.Lower is a number that no way to place the same jobs can go below (lower.go). For a queue of equal jobs
// on nodes of one kind both are the same. If they are far apart, placing was hard, and the truth lies between.
//
// Nodes are chosen as eval_nodes.c does: of those of the lowest weight the smallest run of neighbours that is enough, in it the tightest node
// for a job that fits on one, and with little room left out when that is needed (eval.go). Then it is seen whether slurmctld would
// start all of them on those nodes alone, and on fewer (refine.go). That looks at every node for every job, so it is done for the first
// half a million looks; what is left of a longer queue takes the first nodes with room.
//
// Where slurmctld picks the nodes to power up itself, it may take some more, and takes the larger number of a range. With the nodes of the
// estimate, and no others, the jobs start all the same. docs/benchmarks.md has what was measured.
//
// # What is left out
//
// Topology (--switches, --contiguous, block sizes), licences beyond Slurm's word for them, preemption, core
// specialization, where on a node a GPU sits, what backfill keeps for jobs that start later, cores that jobs of several partitions with OverSubscribe
// share among each other, and reservations but for the nodes they hold now. gres/shard and gres/mps
// are taken as resources of their own, beside the GPUs they are slices of.
//
// What is taken from Slurm's source is named with file and function, and holds for 24.11 to 26.05.
package scaler
