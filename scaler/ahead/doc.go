// Package ahead works out which nodes should be up before the jobs that will run on them may start.
//
// Slurm powers a node up when it gives it to a job, so a job whose start has long been known waits for a boot all the same. Make
// tells, per NodeSet, how many nodes that nobody uses should be up now, so that such jobs find them warm: those whose start is at most
// one lead time (Settings.Lead) away. A start is known from
//
//   - a begin time (sbatch --begin),
//   - dependencies (afterany, afterok, aftercorr, afterburstbuffer) on jobs that run, by their time limit, or leave their nodes,
//   - the start of a reservation,
//   - the time for which slurmctld's backfill scheduler expects it, where the job waits for nodes that others use.
//
// A job that counts as demand already (scaler.Why.Counts) is none of these: Slurm powers up its nodes itself. Where jobs go is
// scaler's own placing, after all that count. Nodes that others leave before the start need no power-up.
//
// The wish is a number of nodes beside those in use, with names in the order in which the jobs took them. Whoever powers nodes up, the
// engine of package powersave, decides which; so there is one writer.
//
// Everything here is pure: no clock, no goroutine, no client. Package ahead/loop runs it.
package ahead
