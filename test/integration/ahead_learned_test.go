//go:build integration && scale

package integration

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/hack/stack"
)

// Without leadTime nodes are up as long before a job as boots have taken, nodes that nobody took are counted, and a window opens and closes by the clock.
func TestLookAheadLearned(t *testing.T) {
	forScaling(t, func(t *testing.T, version string) {
		c := deploy(t, "ahead-learned", version, stack.Options{Gate: true, SuspendTime: 15, ExtraConf: []string{
			"SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=2",
		}}, nodeSet{name: "cpu", nodes: "cpu-[0-5]"})
		first := c.sbatch("true", "-N5", "--exclusive")
		c.waitJob(first, "COMPLETED")
		var lead time.Duration
		c.eventually("five boots to be known", func() (bool, string) {
			boots := c.nodeSet().Status.Boots
			if boots == nil || boots.P95Seconds == "" {
				return false, fmt.Sprintf("%+v", boots)
			}
			seconds, err := strconv.ParseFloat(boots.P95Seconds, 64)
			require.NoError(t, err)
			lead = time.Duration(seconds*float64(time.Second)) + 5*time.Second
			return true, ""
		})
		t.Logf("nodes are to be powered up %v before a job", lead)
		require.Less(t, lead, time.Minute, "else the default says the same")
		c.settled("cpu-[0-5]", first)
		c.lookAhead(`{"maxNodes":2}`)

		t.Run("learned", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 5", fmt.Sprintf("--begin=now+%d", int(lead.Seconds())+15), "-N2", "--ntasks-per-node=1")
			begin := c.begin(id)
			c.noPodsUntil(begin.Add(-lead - 3*time.Second))
			c.warm(begin.Add(time.Second), 2)
			c.waitJob(id, "COMPLETED")
			c.settled("cpu-[0-5]", id)
		})
		t.Run("a job that is cancelled", func(t *testing.T) {
			c.t = t
			before := c.metric(`slurmtide_look_ahead_results_total{nodeset="cpu",result="miss"}`)
			id := c.sbatch("sleep 5", fmt.Sprintf("--begin=now+%d", int(lead.Seconds())+20), "-N2", "--ntasks-per-node=1")
			c.eventually("two pods", func() (bool, string) { n := len(c.slurmdPods()); return n == 2, fmt.Sprint(n) })
			c.slurm("scancel", id)
			c.result(id, "miss")
			assert.InDelta(t, 2, c.metric(`slurmtide_look_ahead_results_total{nodeset="cpu",result="miss"}`)-before, 0)
			c.settled("cpu-[0-5]")
		})
		t.Run("a window", func(t *testing.T) {
			c.t = t
			opens := time.Now().UTC().Add(time.Minute).Truncate(time.Minute)
			if time.Until(opens) < 10*time.Second {
				opens = opens.Add(time.Minute)
			}
			windows := fmt.Sprintf(`[{"start":"%d %d * * *","duration":"1m","replicas":2}]`, opens.Minute(), opens.Hour())
			_, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Patch(c.ctx, "cpu", types.JSONPatchType,
				[]byte(`[{"op":"remove","path":"/spec/lookAhead"},{"op":"add","path":"/spec/replicaWindows","value":`+windows+`}]`), metav1.PatchOptions{})
			require.NoError(t, err)
			c.noPodsUntil(opens.Add(-time.Second))
			c.within(30*time.Second+time.Until(opens), 200*time.Millisecond, "two pods", func() (bool, string) { n := len(c.slurmdPods()); return n == 2, fmt.Sprint(n) })
			c.waitFloor(2, "Held")
			c.waitFloor(0, "NoFloor")
			closed := opens.Add(time.Minute)
			assert.False(t, time.Now().Before(closed), "it closes after a minute")
			assert.WithinDuration(t, closed, time.Now(), 20*time.Second)
			c.settled("cpu-[0-5]")
		})
	})
}

// metric reads one of the bridge's; 0 if it is not there.
func (c *cluster) metric(name string) float64 {
	c.t.Helper()
	address, err := c.Forward(c.ctx, 9441)
	require.NoError(c.t, err)
	r, err := http.Get("http://" + address + "/metrics")
	require.NoError(c.t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(c.t, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			require.NoError(c.t, err)
			return v
		}
	}
	return 0
}
