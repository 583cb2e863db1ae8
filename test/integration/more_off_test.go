//go:build integration && !faults

package integration

import (
	"testing"

	"github.com/slurmtide/slurmtide/hack/stack"
)

// What make test-faults adds to tests of make test, on the stacks that are up anyway.

func withMoreGangs(o stack.Options) stack.Options { return o }

func whileClosed(*testing.T, *cluster) {}

func moreGangs(*testing.T, *cluster) {}

func moreRestarts(*testing.T, *cluster) {}
