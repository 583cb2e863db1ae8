//go:build integration && faults

package integration

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// outage is how long the API server is away.
const outage = 60 * time.Second

// Parts of Kubernetes go away, for all Slurm versions at once. It runs before the tests that run side by side.
func TestOutages(t *testing.T) {
	var all []*cluster
	for _, v := range versions() {
		all = append(all, deploy(t, "outages", v, stack.Options{Gate: true, ResumeTimeout: 300, ExtraConf: []string{"MinJobAge=3600"},
			PartitionLines: []string{"PartitionName=cpu Nodes=cpu-[0-9] Default=YES", "PartitionName=wide Nodes=wide-[0-2]"},
		}, nodeSet{name: "cpu", nodes: "cpu-[0-9]", // its host may be NotReady for a while after the API server was away
			boot: v1alpha1.BootPolicy{UnschedulableGrace: &metav1.Duration{Duration: 2 * time.Minute}}}, nodeSet{name: "wide", nodes: "wide-[0-2]",
			boot: v1alpha1.BootPolicy{UnschedulableGrace: &metav1.Duration{Duration: 2 * time.Second}}}))
	}
	each := func(t *testing.T, do func(c *cluster)) {
		for _, c := range all {
			c.t = t
			do(c)
		}
	}

	t.Run("no API server", func(t *testing.T) {
		before, during := map[*cluster]string{}, map[*cluster]string{}
		each(t, func(c *cluster) {
			before[c] = c.sbatch("sleep 10", "-N2", "--nodelist=cpu-[0-1]")
			c.eventually("the pods to run", func() (bool, string) {
				pods := c.slurmdPods()
				return pods["cpu-0"].Status.Phase == corev1.PodRunning && pods["cpu-1"].Status.Phase == corev1.PodRunning, ""
			})
		})
		var inside []func()
		each(t, func(c *cluster) { inside = append(inside, c.outside()) })
		all[0].localcluster("stop", "kube-apiserver")
		stopped := time.Now()
		each(t, func(c *cluster) { during[c] = c.sbatch("sleep 1", "-N2", "--nodelist=cpu-[4-5]") })
		each(t, func(c *cluster) {
			c.waitJob(before[c], "COMPLETED")
			assert.Equal(t, "CONFIGURING", c.jobField(during[c], "JobState"))
			st := c.status()
			assert.NotEmpty(t, st.KubernetesError)
			require.Len(t, st.Engine.Boots, 2)
			t.Logf("%s; %s: %s", st.KubernetesError, st.Engine.Boots[0].Node, st.Engine.Boots[0].Problem)
			assert.Contains(t, st.Engine.Boots[0].Problem, "the API server cannot be reached")
		})
		time.Sleep(time.Until(stopped.Add(outage)))
		each(t, func(c *cluster) { assert.Equal(t, "CONFIGURING", c.jobField(during[c], "JobState"), "%s", c.ns) })
		all[0].localcluster("up")
		for _, back := range inside {
			back()
		}
		each(t, func(c *cluster) { require.NoError(t, c.WaitReady(c.ctx)) }) // a kubelet that has just started knows no pods
		each(t, func(c *cluster) { c.settled("cpu-[0-9]", before[c], during[c]) })
		t.Logf("all is well %v after the API server went", time.Since(stopped).Round(time.Second))
	})

	t.Run("no kubelet", func(t *testing.T) {
		type jobs struct{ wide, narrow, during string }
		of := map[*cluster]jobs{}
		serving, booting := []string{"cpu-0", "cpu-1", "cpu-2"}, []string{"cpu-4", "cpu-5"}
		var inside []func()
		each(t, func(c *cluster) {
			c.hostTrusted() // it is tainted for a moment after the API server was away
			j := jobs{wide: c.sbatch("sleep 120", "-N2", "--nodelist=cpu-[0-1]"), narrow: c.sbatch("sleep 120", "--nodelist=cpu-2")}
			c.waitJob(j.wide, "RUNNING")
			c.waitJob(j.narrow, "RUNNING")
			of[c] = j
			inside = append(inside, c.outside())
		})
		host := os.Getenv("LOCALCLUSTER")
		all[0].localcluster("stop", "kubelet")
		stopped := time.Now()
		each(t, func(c *cluster) {
			j := of[c]
			j.during = c.sbatch("sleep 1", "-N2", "--nodelist=cpu-[4-5]")
			of[c] = j
		})
		each(t, func(c *cluster) {
			c.waitNodes("cpu-[0-2]", powersave.NodeDrain, 0)
			t.Logf("drained %v after the kubelet went: %s", time.Since(stopped).Round(time.Second), c.reason("cpu-0"))
			for _, node := range serving {
				assert.Regexp(t, `^slurmtide: host: `+host+` is not ready`, c.reason(node), node)
			}
			for _, node := range booting {
				assert.NotContains(t, c.reason(node), "slurmtide: host: ", "boots are left to their verdicts: %s", node)
				assert.False(t, c.nodeStates(node)[node].Any(powersave.NodeDrain), node)
			}
			assert.Equal(t, "RUNNING", c.jobField(of[c].wide, "JobState"))
			assert.Equal(t, "RUNNING", c.jobField(of[c].narrow, "JobState"))
			assert.Equal(t, "CONFIGURING", c.jobField(of[c].during, "JobState"))
		})
		all[0].localcluster("up")
		for _, back := range inside {
			back()
		}
		each(t, func(c *cluster) { require.NoError(t, c.WaitReady(c.ctx)) }) // a kubelet that has just started knows no pods
		each(t, func(c *cluster) { c.settled("cpu-[0-9]", of[c].wide, of[c].narrow, of[c].during) })
	})

	// One version after the other: both share the one host's CPUs.
	t.Run("not enough CPU for one of three", func(t *testing.T) {
		each(t, func(c *cluster) {
			c.hostTrusted()
			c.askForCPU("wide", c.freeCPU()*2/5)
			began := time.Now()
			id := c.sbatch("sleep 1", "-N3", "-p", "wide")
			reason := c.givenBack(id, "wide-[0-2]")
			t.Logf("given back after %v: %s", time.Since(began).Round(100*time.Millisecond), reason)
			assert.Regexp(t, `^slurmtide: capacity: .*Insufficient cpu`, reason)
			c.waitZero("wide-[0-2]")
			c.condition("wide", v1alpha1.ConditionCapacityAvailable, metav1.ConditionFalse)
			c.askForCPU("wide", 10)
			c.slurm("scontrol", "update", "jobid="+id, "StartTime=now")
			c.waitJob(id, "COMPLETED")
			c.settled("wide-[0-2]")
		})
	})
}

// hostTrusted waits until Kubernetes gives the host pods again.
func (c *cluster) hostTrusted() {
	c.t.Helper()
	c.eventually("Kubernetes to trust the host again", func() (bool, string) {
		taints := c.host(os.Getenv("LOCALCLUSTER")).Spec.Taints
		return len(taints) == 0, fmt.Sprint(taints)
	})
}

// freeCPU is what the host could still give to pods, in thousandths of a CPU.
func (c *cluster) freeCPU() int64 {
	c.t.Helper()
	pods, err := c.kube.CoreV1().Pods("").List(c.ctx, metav1.ListOptions{})
	require.NoError(c.t, err)
	free := c.host(os.Getenv("LOCALCLUSTER")).Status.Allocatable.Cpu().MilliValue()
	for _, p := range pods.Items {
		for _, container := range p.Spec.Containers {
			free -= container.Resources.Requests.Cpu().MilliValue()
		}
	}
	return free
}

// askForCPU makes the NodeSet's pods ask for that many thousandths of a CPU each.
func (c *cluster) askForCPU(name string, milli int64) {
	c.t.Helper()
	set, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Get(c.ctx, name, metav1.GetOptions{})
	require.NoError(c.t, err)
	set.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
	_, err = c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Update(c.ctx, set, metav1.UpdateOptions{})
	require.NoError(c.t, err)
}
