//go:build integration && faults

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// topology shows where the real scheduler puts the pods of a job: into one zone. The zones are two hosts each that exist in the API
// alone, with room for one pod each: nothing runs there.
func topology(t *testing.T, c *cluster) {
	t.Run("topology", func(t *testing.T) { c.topology(t) })
}

func (c *cluster) topology(t *testing.T) {
	c.t = t
	zones := c.paperHosts("a", "a", "b", "b")
	set := c.build(nodeSet{name: "near", nodes: "near-[0-2]", boot: v1alpha1.BootPolicy{
		TopologyKey: corev1.LabelTopologyZone, TopologyMode: v1alpha1.TopologyRequired, UnschedulableGrace: &metav1.Duration{Duration: 3 * time.Second}}})
	set.Spec.Template.Spec.NodeSelector = map[string]string{paperTaint: c.ns}
	set.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: paperTaint, Operator: corev1.TolerationOpExists}}
	set.Spec.Template.Spec.Containers[0].Ports = onePodAHost()
	c.create(set)
	// placed waits until the job's pods have hosts, takes the job away again and returns the pods' zones.
	placed := func(nodes int) (in map[string]int) {
		id := c.sbatch("sleep 1", fmt.Sprint("-N", nodes), "-p", "near")
		var names []string
		c.eventually("the pods to have hosts", func() (bool, string) {
			in, names = map[string]int{}, nil
			for name, p := range c.slurmdPods() {
				if zone, known := zones[p.Spec.NodeName]; known {
					in[zone]++
					names = append(names, name)
				}
			}
			return len(names) == nodes, fmt.Sprint(names)
		})
		c.slurm("scancel", id)
		c.slurm("scontrol", "update", "nodename="+strings.Join(names, ","), "state=power_down_force")
		c.waitZero("near-[0-2]")
		return in
	}
	for _, mode := range []v1alpha1.TopologyMode{v1alpha1.TopologyRequired, v1alpha1.TopologyPreferred} {
		t.Run(fmt.Sprintf("%s, a domain that is large enough", strings.ToLower(string(mode))), func(t *testing.T) {
			c.t = t
			c.changeNodeSet("near", func(s *v1alpha1.NodeSetSpec) { s.Boot.TopologyMode = mode })
			for range 3 { // once in three it would come so by chance
				in := placed(2)
				assert.Len(t, in, 1, "%v", in)
			}
		})
	}
	t.Run("preferred, domains that are too small", func(t *testing.T) {
		c.t = t
		in := placed(3)
		assert.Len(t, in, 2, "%v", in)
	})
	t.Run("required, domains that are too small", func(t *testing.T) {
		c.t = t
		c.changeNodeSet("near", func(s *v1alpha1.NodeSetSpec) { s.Boot.TopologyMode = v1alpha1.TopologyRequired })
		id := c.sbatch("sleep 1", "-N3", "-p", "near")
		assert.Regexp(t, `^slurmtide: capacity: .*didn't match pod affinity rules`, c.givenBack(id, "near-[0-2]"))
		c.waitZero("near-[0-2]")
		c.slurm("scancel", id)
		c.changeSpec("near")
		c.waitNodes("near-[0-2]", powersave.NodePoweredDown, powersave.NodeDrain)
		c.settled("near-[0-2]")
	})
}
