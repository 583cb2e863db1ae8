// Command start-gate is a PrologSlurmctld for slurm.conf: it waits until the job's nodes
// are up, so that slurmctld starts the job at once, and never fails a job itself.
//
// Reading cgroup limits would only slow the start down, hence the settings below.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"os"

	"github.com/slurmtide/slurmtide/powersave/spool"
)

func main() { os.Exit(spool.StartGate(os.Args, os.Getenv)) }
