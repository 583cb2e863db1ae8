// Package powersave decides which slurmd pods exist.
//
// Slurm is the only scheduler: it turns a node on by calling ResumeProgram and off by
// calling SuspendProgram. Those programs leave a request in a spool (package spool); the
// bridge (package bridge) reads it and hands it to the Engine in this package.
//
// The Engine is a pure state machine. It is told the time and one event, and returns
// actions:
//
//	actions := engine.Step(now, powersave.RequestAccepted{Request: r})
//
// It has no clock, starts no goroutine and calls no client, so that the very same code
// runs in the bridge, in table tests and in a simulator. The caller carries the actions
// out in any order, as slowly and as unreliably as the world is, and reports what came of
// them as further events. NextWake says when the Engine wants to be called even if
// nothing happens.
//
// # Facts and orders
//
// For every node the Engine keeps facts (what Slurm shows, what Kubernetes shows, each with
// the time it was read) and at most one order: a boot (the node is to run a pod) or an
// off (the pod is to go). Every event changes facts or orders, and then decide looks at the
// node afresh. Nothing depends on events arriving once, or in order.
//
// # Who may delete
//
// Creating a pod is harmless, deleting one is not. A pod is deleted only after Slurm was
// read, later than the order arrived, and showed that it does not use the node: that is
// what keeps a late or repeated SuspendProgram from killing a newer boot. Deletion names
// the pod's UID, so a pod that was created meanwhile under the same name is safe.
//
// # Several bridges
//
// Beside each slurmctld runs a bridge with a spool and an Engine of its own. Only the one
// that is told so (Leading) acts on what it finds by itself; what the programs ask for, all
// carry out. Since news of another Engine's doing come from Kubernetes and Slurm in any order,
// a read of Slurm counts for a pod only if it was asked for after the pod was seen.
//
// # Generations
//
// Each boot has a generation, the sequence number of the request that began it, which grows
// with every request of a spool and is the clock's, so that it orders those of several
// spools, too. The pod carries it as an annotation. A pod of an older generation under a name
// that Slurm is powering up cannot serve it, for slurmctld ignores a slurmd that started
// before the power-up (node_mgr.c waiting_for_node_boot): it is
// replaced.
package powersave
