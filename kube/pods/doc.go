// Package pods turns NodeSets into slurmd pods and tells what became of them.
//
// The pure half needs no cluster: Build makes a pod for one Slurm node, Observe reads a pod's
// state, Validate checks a set of NodeSets against each other. The Client half carries the
// engine's actions to the API server and its watches back.
//
// # One pod, one boot
//
// A pod lives for exactly one boot of its node. Its restart policy is Never: slurmd runs
// with -b, so a slurmd that the kubelet restarts looks to slurmctld like a node that rebooted
// under its jobs (slurmctld node_mgr.c, "Node unexpectedly rebooted"), and after a boot that
// hangs the same name, UID and generation would hide that anything happened. slurmd itself
// retries what is worth retrying (it fetches its configuration every 10 s until it gets it). A
// slurmd that ends is a verdict: the pod is Failed, with a reason, and gets replaced.
package pods
