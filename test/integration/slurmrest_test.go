//go:build integration

package integration

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/hack/stack"
)

// The tests of internal/slurmrest against the real slurmrestd of each version.
func TestSlurmrest(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		// Slurm's own power saving must not change what the tests set.
		c := deploy(t, "rest", version, stack.Options{SuspendTime: 3600, NodeLines: []string{"NodeName=cpu-[0-9] CPUs=2 RealMemory=400 State=CLOUD"}})
		address, err := c.Forward(c.ctx, 6820)
		require.NoError(t, err)
		run := exec.CommandContext(c.ctx, "go", "test", "-tags", "integration", "-count=1", "github.com/slurmtide/slurmtide/internal/slurmrest")
		run.Env = append(os.Environ(), "SLURMTIDE_REST_URL=http://"+address, "SLURMTIDE_JWT_KEY="+c.jwtKeyFile())
		out, err := run.CombinedOutput()
		t.Log(string(out))
		require.NoError(t, err)
	})
}
