//go:build integration && (scale || faults)

package integration

// everyVersion lets forScaling and forFaults take every Slurm version.
const everyVersion = true
