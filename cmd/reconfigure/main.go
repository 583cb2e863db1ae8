// Command reconfigure runs beside slurmctld in its pod, and gives it new configurations that it has found good. The control plane
// starts it; see package inplace.
package main

import (
	"os"

	"github.com/slurmtide/slurmtide/kube/controlplane/inplace"
)

func main() { os.Exit(inplace.Program(os.Args, os.Getenv, os.Stderr)) }
