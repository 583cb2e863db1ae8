// Command suspend is a SuspendProgram for slurm.conf: it asks for nodes to be taken away.
// It hands the request over to the bridge through the spool and exits.
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

func main() { os.Exit(spool.Program(spool.KindSuspend, os.Args, os.Getenv, os.Stderr)) }
