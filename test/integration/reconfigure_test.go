//go:build integration && faults

package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/hack/stack"
)

// slurmctld is to read its configuration while jobs begin whose nodes are powered down. It waits for the programs that run, after it has ended what starts
// ResumeProgram: a start gate that waited for its nodes then would be waited for itself. Which job comes at the wrong moment is a matter of luck: two of eight rounds did in
// one cluster, and none of sixteen in others, so that transcript 404 is what holds the engine to it.
func TestReconfigureWhileJobsBegin(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		c := deploy(t, "reconfigure", version, stack.Options{Gate: true, SuspendTime: 1}, nodeSet{name: "cpu", nodes: "cpu-[0-7]"})
		const round = `cd /tmp
for i in 1 2 3 4 5 6; do sbatch --parsable --output=/dev/null -w cpu-$i --wrap true & done >jobs
sleep 0.05
timeout 100 scontrol reconfigure >reconfigured 2>&1 & reconfigure=$!
sleep $1
timeout 100 srun -w cpu-7 true >run 2>&1 || { echo "srun: $?: $(cat run)"; squeue; sinfo -N; }
wait $reconfigure || echo "scontrol reconfigure: $?: $(cat reconfigured)"
wait`
		for i := range 8 {
			pause := time.Duration(i*i) * 2 * time.Millisecond
			began := time.Now()
			out, said, err := c.run(nil, "slurmctld", "bash", "-c", round, "sh", fmt.Sprintf("%.3f", pause.Seconds()))
			require.NoError(t, err, said)
			assert.Empty(t, out, "round %d", i)
			t.Logf("round %d: %v", i, time.Since(began).Round(100*time.Millisecond))
			c.waitZero("cpu-[0-7]")
		}
		c.waitGates(0)
	})
}
