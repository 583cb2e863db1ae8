//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// A het job of three components, one of which gets no room: all nodes of all of them are given back with the reason, the job rests as a
// whole, and runs when there is room. With start gates these tell who belongs together, without them the job's record does.
func TestHetJobs(t *testing.T) {
	t.Parallel()
	for name, gate := range map[string]bool{"gates": true, "no gates": false} {
		t.Run(name, func(t *testing.T) {
			forFaults(t, func(t *testing.T, version string) {
				short := strings.ReplaceAll(name, " ", "-")
				c := deploy(t, "het-"+short, version, stack.Options{Gate: gate, ResumeTimeout: 300, SuspendTime: 3600,
					NodeLines:      []string{"NodeName=tight-0 CPUs=2 RealMemory=400 State=CLOUD"},
					PartitionLines: []string{"PartitionName=wide Nodes=wide-[0-3] Default=YES", "PartitionName=tight Nodes=tight-0"},
				}, nodeSet{name: "wide", nodes: "wide-[0-3]"})
				label := "slurmtide.io/het-" + short + "-" + version
				tight := c.build(nodeSet{name: "tight", nodes: "tight-0", boot: v1alpha1.BootPolicy{UnschedulableGrace: &metav1.Duration{Duration: 40 * time.Second}}}) // on a busy machine, too, the others are up before
				tight.Spec.Template.Spec.NodeSelector = map[string]string{label: "yes"}
				tight.Spec.Backoff = &v1alpha1.BackoffPolicy{Initial: &metav1.Duration{Duration: 10 * time.Second}}
				c.create(tight)
				const all = "wide-[0-2],tight-0"

				// Options of the command line are for all components.
				id := c.sbatch("#SBATCH -p wide -N1 --exclusive --nodelist=wide-0\n#SBATCH hetjob\n#SBATCH -p wide -N2 --exclusive --nodelist=wide-[1-2]\n" +
					"#SBATCH hetjob\n#SBATCH -p tight -N1 --exclusive\nsleep 1")
				c.waitNodes("wide-[0-2]", powersave.NodeAllocated, powersave.NodePoweredDown|powersave.NodePoweringUp) // their components are whole
				c.waitNodes("tight-0", powersave.NodePoweringUp, 0)
				for i := range 3 {
					part := c.component(id, i)
					reason := c.givenBack(part, all)
					assert.Contains(t, reason, "slurmtide: capacity: ", "component %d", i)
					assert.Contains(t, reason, "(attempt 1)", "component %d", i)
				}
				c.reasonsGiven(all)
				c.waitZero(all) // SuspendTime is an hour

				c.labelHosts(label, "yes")
				c.slurm("scontrol", "update", "jobid="+id, "StartTime=now") // the leader's is that of all; the others may run already
				c.within(3*time.Minute, time.Second, "the het job to run", func() (bool, string) {
					state := ""
					for i := range 3 {
						state += " " + c.jobField(c.component(id, i), "JobState")
					}
					return state == " COMPLETED COMPLETED COMPLETED", state
				})
				for n, state := range c.nodeStates(all) {
					assert.False(t, state.Any(powersave.NodeDrain|powersave.NodeDown), "%s is %s", n, state)
				}
				assert.NotContains(t, c.slurm("scontrol", "--oneliner", "show", "node", all), "Reason=", "of nodes that serve again")
			})
		})
	}
}

// component is the number of a het job's component: slurmctld counts them on from the leader's.
func (c *cluster) component(id string, offset int) string {
	c.t.Helper()
	leader, err := strconv.Atoi(id)
	require.NoError(c.t, err)
	return strconv.Itoa(leader + offset)
}

// reasonsGiven says that slurmctld was given a reason for each of the nodes when they were given back.
func (c *cluster) reasonsGiven(nodes string) {
	c.t.Helper()
	log := c.log(stack.ContainerSlurmctld)
	for n := range c.nodeStates(nodes) {
		assert.Regexp(c.t, "node "+n+` reason set to: slurmtide: (job \d+ given back: )?`, log)
	}
}

// labelHosts gives every host the label until the test ends.
func (c *cluster) labelHosts(key, value string) {
	c.t.Helper()
	hosts, err := c.kube.CoreV1().Nodes().List(c.ctx, metav1.ListOptions{})
	require.NoError(c.t, err)
	for _, h := range hosts.Items {
		label := func(ctx context.Context, value any) error {
			v, err := json.Marshal(value)
			if err != nil {
				return err
			}
			_, err = c.kube.CoreV1().Nodes().Patch(ctx, h.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, key, v), metav1.PatchOptions{})
			if apierrors.IsNotFound(err) { // another test's, which has taken it away
				return nil
			}
			return err
		}
		require.NoError(c.t, label(c.ctx, value))
		c.t.Cleanup(func() { assert.NoError(c.t, label(context.WithoutCancel(c.ctx), nil)) })
	}
}
