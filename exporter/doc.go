// Package exporter makes metrics of what Slurm says about itself: nodes, jobs, partitions and slurmctld's own statistics.
//
// Facts go into a tally one by one, as they are read, and are not kept: a queue of 100,000 jobs becomes a few hundred sums.
// A tally, or a Diag, then gives Samples, each of a Metric of the Catalogue.
//
//	t := exporter.NewJobTally(now, exporter.Options{})
//	for _, j := range jobs {
//		t.Add(j)
//	}
//	for _, s := range t.Samples() {
//		fmt.Println(s.Metric.Name, s.Labels, s.Value)
//	}
//
// No clock, goroutine or client is here; collect has the loop that reads Slurm.
//
// # How many series
//
// States, flags, uses and reasons are fixed sets of words, and a word of a Slurm to come counts as "other". Partitions and types of generic resources are as many as
// slurm.conf has. Nodes, users and jobs have series of their own only if Options say so; jobs no more than those say.
package exporter
