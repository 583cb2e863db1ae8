// Package dynamic decides which nodes of NodeSets in mode Dynamic exist. Such nodes have no power states: slurmd registers
// itself (slurmd -Z), and slurmctld forgets the node when its record is deleted.
//
// The Planner is pure, like powersave.Engine: it has no clock, goroutine or client. It is shown what there is, and
// returns what is to be done:
//
//	actions := planner.Step(now, dynamic.Facts{Sets: sets, Pods: pods, Slurm: reading, Asked: reading.Number})
//
// Each action is answered with Done. Nothing depends on answers coming in order, or at all after a restart: everything the
// Planner must know stands in Slurm and Kubernetes.
//
// # How many
//
// scaler.Demand says how many nodes the pending jobs need, whole jobs or nothing. Names that have no node count as
// powered down, so that there is never demand for more than spec.nodeNames has. Pods are made when the demand has not changed for a
// second, or after ten: jobs that are submitted one after the other share a look.
// spec.replicas is the least number of nodes that exist.
//
// # A node's life
//
//	no pod, no record → pod → registers → welcomed → idle → drained → pod deleted → record deleted
//
// Welcomed: its record gets a comment that says whose it is. That update also makes slurmctld look at the queue, which it does not do
// when a node registers for the first time (node_mgr.c create_dynamic_reg_node makes it available before validate_node_specs
// asks whether it has become so).
//
// # Who may delete
//
// A pod is deleted, by UID, only when a complete read of Slurm that was asked for after the node was drained shows it drained and free, and
// no job on it, be it suspended. A record is deleted only when its pod is known to be gone, a later read shows the node drained, or down, and free, and
// neither a job nor a reservation names it: slurmctld refuses to delete allocated nodes, but a pending job that names a deleted
// node is ended when slurmctld is started again (job_mgr.c _reset_detail_bitmaps). What nobody saw go, two reads ten seconds
// apart must show missing. With an old read, with one that names nodes in a way that cannot be read, or while Kubernetes cannot be read,
// nothing is taken down.
// The name of a pod that is gone is used again only after such a later read, too: it shows whether the pod has left a record.
//
// # Hosts
//
// Nodes on a host that is cordoned, tainted or silent are drained with a reason of their own (powersave.HostPrefix) and put back when that is over. Those that are
// idle go meanwhile, unless the host is silent: nobody could confirm then that a pod ends.
//
// Records that carry neither our comment nor a reason of ours, and pods without our labels, are left alone.
package dynamic
