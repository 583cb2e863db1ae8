// Package slurmconf reads and writes the text formats of Slurm. It knows nothing of
// clusters, only of text, and needs nothing but the standard library.
//
// # Hostlists
//
// Slurm names nodes by lists such as "cpu[0-49],gpu[01-04]". A Hostlist holds such a
// list as ranges, so a long list is as cheap as a short one:
//
//	nodes, err := slurmconf.ParseHostlist("cpu[0-49],gpu[01-04]")
//	if err != nil {
//		return fmt.Errorf("reading nodeNames: %w", err) // names the text and its position
//	}
//	nodes.Len()             // 54
//	nodes.Contains("gpu04") // true; "gpu4" would be another node
//	for name := range nodes.All() {
//		fmt.Println(name) // cpu0, cpu1, ...
//	}
//
// The other way round, names become a list with the same text that
// `scontrol show hostlist` prints:
//
//	slurmconf.CompressHostlist([]string{"tux1", "tux2", "tux4"}) // tux[1-2,4]
//
// Union, Intersect and Minus combine lists. They and everything else keep the order
// of the names, for Slurm gives it a meaning (MPI ranks); Expand, At and Slice pick
// names by position.
//
// ParseHostlist documents the grammar and the few places where it is stricter than
// Slurm.
//
// # The resume file
//
// slurmctld tells ResumeProgram which jobs wait for which nodes in a JSON file.
// ParseResumeFile reads it. A file from a newer Slurm, or one with a broken job in it,
// still gives everything that could be read; look at Problems and log them:
//
//	file, err := slurmconf.ParseResumeFile(data)
//	if err != nil {
//		return err // no JSON object: go by the command line alone
//	}
//	for _, problem := range file.Problems {
//		slog.Warn("reading the resume file", "problem", problem)
//	}
//	for _, job := range file.Jobs {
//		boot(job.JobID, job.NodesResume, job.NodesAlloc)
//	}
//
// # Configuration files
//
// ParseFile reads slurm.conf and the files that Slurm reads with the same parser. A File keeps comments and order; an edit
// changes what it must, and leaves all else byte for byte:
//
//	file, err := slurmconf.ParseFile(path, data)
//	if err != nil {
//		return err // slurm.conf:12:1: "ResumeTimeout" has no value; write ResumeTimeout="" or remove it
//	}
//	err = errors.Join(
//		file.Set("ResumeTimeout", "300"),
//		file.AddWords("SlurmctldParameters", "idle_on_node_suspend", "power_save_interval=0"),
//		file.SetField("NodeName", "cpu[0-9]", "State", "CLOUD"),
//		file.Add("PartitionName=cpu Nodes=cpu[0-9]"),
//	)
//	os.WriteFile(path, []byte(file.String()), 0o644)
//
// ReadConfig reads a file with all that it includes. Check tells what a Slurm of some version would refuse, or understand
// otherwise than it looks, each with its place and what to do. Cluster gives the values, as slurmctld understands them:
//
//	config, err := slurmconf.ReadConfig("/etc/slurm/slurm.conf", nil)
//	if err != nil {
//		return err // Slurm could not read it, either
//	}
//	for _, problem := range config.Check(slurmconf.SlurmConf, slurmconf.Version{Major: 26, Minor: 5}) {
//		fmt.Println(problem) // slurm.conf:4:1: "ResumeTimout" is no key of slurm.conf in Slurm 26.05; is ResumeTimeout meant?
//	}
//	cluster, err := config.Cluster(slurmconf.Version{Major: 26, Minor: 5})
//	if err != nil {
//		return err // the problems that are no warnings
//	}
//	cluster.ResumeTimeout.V        // 5m0s
//	cluster.ResumeTimeout.Position // /etc/slurm/slurm.conf:12:1; with IsSet false it is Slurm's default
//	cluster.Nodes[0].CPUs.V        // with NodeName=DEFAULT applied, and what Slurm infers
//
// # What Slurm makes of duplicates and operators
//
// Of an option that stands twice the last one counts, also when one of them is in an included file. Prolog, Epilog, PrologSlurmctld,
// EpilogSlurmctld, SlurmctldHost and all that begins a line with fields (NodeName, PartitionName, ...) are lists: each line adds to
// them. A second line for a partition or a node keeps slurmctld from starting. Values of NodeName=DEFAULT hold for the lines behind it,
// field by field; those that a later DEFAULT does not name stay.
//
// Slurm's parser knows +=, -=, *= and /=, but Slurm 24.11 to 26.05 do not use them: SlurmctldParameters+=a is SlurmctldParameters=a.
// To add to a list use AddWords.
package slurmconf
