// Command start-gate is a PrologSlurmctld for slurm.conf: it waits until the job's nodes
// are up, so that slurmctld starts the job at once, and never fails a job itself.
package main

import (
	"os"

	"github.com/slurmtide/slurmtide/powersave/spool"
)

func main() { os.Exit(spool.StartGate(os.Args, os.Getenv)) }
