//go:build integration && !scale

package integration

// everyVersion lets forScaling take every Slurm version.
const everyVersion = false
