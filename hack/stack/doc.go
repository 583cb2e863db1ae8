// Package stack puts a real Slurm control plane onto a Kubernetes cluster, for the demo and the integration tests: slurmctld,
// slurmrestd and the bridge in one pod, in a namespace of its own, so that several stand side by side.
//
//	s, err := stack.Deploy(ctx, config, stack.Options{
//		Namespace:      "test-1",
//		SlurmVersion:   "26.05",
//		NodeLines:      []string{"NodeName=cpu-[0-9] CPUs=2 RealMemory=1000 State=CLOUD"},
//		PartitionLines: []string{"PartitionName=cpu Nodes=ALL Default=YES"},
//		Gate:           true,
//	})
//	err = s.WaitReady(ctx)
//	out, _, err := s.Exec(ctx, stack.ContainerSlurmctld, "sinfo")
//	err = s.Delete(ctx)
//
// It is also the worked example of what Slurmtide recommends: slurm.conf.tmpl gives every line's reason, objects.go every
// manifest's. Nothing in the pod runs as root.
package stack
