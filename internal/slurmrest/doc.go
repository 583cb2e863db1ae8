// Package slurmrest speaks to slurmrestd for the rest of the program.
//
// One Client covers data_parser v0.0.42 (Slurm 24.11) to v0.0.45 (26.05): it asks
// the server which of them it has, takes the newest, and asks again when an
// upgrade has removed the one in use. Requests and update bodies come from
// slurm-client's generated code; answers are read by one streaming decoder for
// all versions, because the fields used here have the same JSON in each.
//
// What the answers mean:
//   - Slurm's own error numbers decide. slurmrestd sends them with HTTP 200, 422,
//     500, 502, 504 or 511, depending on the release.
//   - Reads are repeated after transient failures. An update is repeated only if
//     slurmctld cannot have seen it, or if seeing it twice makes no difference:
//     power_up twice calls ResumeProgram twice. When the outcome stays unknown,
//     Error.Unknown is set and the caller looks at the node again.
//   - A list is returned only when the answer arrived whole and without errors.
//
// How a job leaves nodes that are booting, seen with 24.11 and 26.05 (job_mgr.c, node_mgr.c,
// prep_slurmctld.c, job_scheduler.c):
//   - A power_down_force of any one of its nodes puts a requeueable job back into the queue,
//     off all its nodes at once, a het job with all components; any other job ends as
//     NODE_FAIL. It does so to every job on that node. No version counts this against
//     MaxBatchRequeue. RequeueJob does the same without a node, from 26.05 only.
//   - A PrologSlurmctld that fails requeues the job, too, and does not hold it; a job that
//     cannot be requeued is cancelled, with a message to its srun or salloc.
//   - A requeued job waits as "Cleaning" while its PrologSlurmctld still runs, and nothing
//     ends that but itself. slurmctld sets a begin time of now and cred_expire or requeue_delay,
//     unless there is a later one.
//   - power_down_force wants all nodes in one update, and no power program that ended in the
//     second before: then slurmctld pings nodes that never came up, and with Debian's
//     packages spends 10 s, locked, on a name that does not resolve (slurmscriptd.c, ping_nodes.c).
//   - slurmrestd has no notify. scontrol notify reaches a waiting srun or salloc; for a batch
//     job without nodes the admin comment is the place.
package slurmrest
