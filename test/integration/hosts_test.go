//go:build integration && faults

package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/pods"
	"github.com/slurmtide/slurmtide/powersave"
)

// Jobs keep off a host that is to be emptied and run on where they are; a pod that somebody takes away costs no job.
// It runs before the tests that run side by side: all share the one host.
func TestHostTrouble(t *testing.T) {
	var oneByOne sync.Mutex
	forEachVersionAlone(t, func(t *testing.T, version string) {
		oneByOne.Lock()
		defer oneByOne.Unlock()
		c := deploy(t, "hosts", version, stack.Options{Gate: true, SuspendTime: 600, BridgeArgs: []string{"--host-conditions=KernelDeadlock"}}, nodeSet{name: "cpu", nodes: "cpu-[0-3]"})
		reason := func(node string) string {
			_, after, _ := strings.Cut(c.slurm("scontrol", "--oneliner", "show", "node", node), " Reason=")
			return after
		}
		t.Run("cordoned", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 15", "--nodelist=cpu-0")
			c.waitJob(id, "RUNNING")
			host := c.slurmdPods()["cpu-0"].Spec.NodeName
			c.cordon(host, true)
			began := time.Now()
			c.waitNodes("cpu-0", powersave.NodeDrain, 0)
			t.Logf("drained after %s", time.Since(began).Round(10*time.Millisecond))
			assert.Contains(t, reason("cpu-0"), "slurmtide: host: "+host+" is cordoned")
			assert.Equal(t, "RUNNING", c.jobField(id, "JobState"))
			c.cordon(host, false)
			c.waitNodes("cpu-0", 0, powersave.NodeDrain)
			c.waitJob(id, "COMPLETED")
			assert.Equal(t, "0", c.jobField(id, "Restarts"))

			c.waitNodes("cpu-0", powersave.NodeIdle, 0)
			c.cordon(host, true)
			c.waitZero("cpu-0")
			c.cordon(host, false)
			c.waitNodes("cpu-0", powersave.NodePoweredDown, powersave.NodeDrain)
		})
		t.Run("in a bad condition", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 15", "--nodelist=cpu-0")
			c.waitJob(id, "RUNNING")
			host := c.slurmdPods()["cpu-0"].Spec.NodeName
			c.hostCondition(host, true)
			c.waitNodes("cpu-0", powersave.NodeDrain, 0)
			assert.Contains(t, reason("cpu-0"), "slurmtide: host: "+host+" is in condition KernelDeadlock")
			assert.Equal(t, "RUNNING", c.jobField(id, "JobState"))
			elsewhere := c.sbatch("true", "--nodelist=cpu-1") // there is no other host
			c.eventually("the pod of cpu-1 to keep off the host", func() (bool, string) {
				pod, made := c.slurmdPods()["cpu-1"]
				return made && pod.Spec.NodeName == "" && slices.ContainsFunc(pod.Status.Conditions, func(s corev1.PodCondition) bool {
					return s.Type == corev1.PodScheduled && s.Reason == corev1.PodReasonUnschedulable
				}), fmt.Sprint(made, pod.Status.Conditions)
			})
			c.slurm("scancel", elsewhere)
			c.waitZero("cpu-1")
			c.hostCondition(host, false)
			c.waitNodes("cpu-0", 0, powersave.NodeDrain)
			c.waitJob(id, "COMPLETED")
			assert.Equal(t, "0", c.jobField(id, "Restarts"))
			c.waitJob(c.sbatch("true", "--nodelist=cpu-1"), "COMPLETED")
		})
		t.Run("pod of an idle node deleted", func(t *testing.T) {
			c.t = t
			c.waitJob(c.sbatch("true", "--nodelist=cpu-1"), "COMPLETED")
			c.waitNodes("cpu-1", powersave.NodeIdle, powersave.NodeCompleting)
			c.deletePod("cpu-1")
			c.waitZero("cpu-1")
			c.waitNodes("cpu-1", powersave.NodePoweredDown, powersave.NodeDrain)
			c.waitJob(c.sbatch("true", "--nodelist=cpu-1"), "COMPLETED")
		})
		t.Run("pod of a busy node deleted", func(t *testing.T) {
			c.t = t
			id := c.sbatch(`[ -n "$SLURM_RESTART_COUNT" ] || sleep 600`, "--nodelist=cpu-2", "--requeue")
			c.waitJob(id, "RUNNING")
			began := time.Now()
			c.deletePod("cpu-2")
			c.eventually("the reason on the node", func() (bool, string) {
				said := reason("cpu-2")
				return strings.Contains(said, "slurmtide: host: "), said
			})
			c.eventually("job "+id+" to be requeued", func() (bool, string) {
				restarts, _ := strconv.Atoi(c.jobField(id, "Restarts"))
				return restarts > 0, c.jobField(id, "JobState")
			})
			t.Logf("requeued after %s", time.Since(began).Round(time.Second))
			c.waitJob(id, "COMPLETED")
			t.Logf("done again after %s", time.Since(began).Round(time.Second))
			c.waitNodes("cpu-2", powersave.NodeIdle, powersave.NodeDrain)
		})
		t.Run("eviction of a busy pod", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 600", "--nodelist=cpu-3")
			c.waitJob(id, "RUNNING")
			require.Equal(t, "true", c.slurmdPods()["cpu-3"].Labels[v1alpha1.LabelBusy])
			c.eventually("the eviction to be refused by the budget", func() (bool, string) {
				err := c.evict("cpu-3", metav1.DryRunAll)
				return apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), "disruption budget"), fmt.Sprint(err)
			})
			require.Error(t, c.evict("cpu-3"))
			assert.Equal(t, "RUNNING", c.jobField(id, "JobState"))
			c.slurm("scancel", id)
			began := time.Now()
			c.eventually("the eviction of the idle pod", func() (bool, string) {
				err := c.evict("cpu-3")
				return err == nil, fmt.Sprint(err)
			})
			t.Logf("evicted %s after the job ended", time.Since(began).Round(time.Second))
			c.waitZero("cpu-3")
		})
		t.Run("down", func(t *testing.T) {
			c.t = t
			down := func(node, reason string) {
				c.slurm("scontrol", "update", "nodename="+node, "state=down", "reason="+reason)
			}
			// Off, or its slurmd would register within two minutes, and ReturnToService=2 put it back.
			c.slurm("scontrol", "update", "nodename=cpu-2", "state=power_down")
			c.waitZero("cpu-2")
			began := time.Now()
			down("cpu-2", "kernel panic")
			down("cpu-3", "ResumeTimeout reached")
			c.within(4*time.Minute, time.Second, "cpu-3 to be put back", func() (bool, string) {
				s := c.nodeStates("cpu-3")["cpu-3"]
				return s.Has(powersave.NodeIdle | powersave.NodePoweredDown), s.String()
			})
			t.Logf("back after %s", time.Since(began).Round(time.Second))
			assert.True(t, c.nodeStates("cpu-2")["cpu-2"].Any(powersave.NodeDown), "a person's word stands")
			c.slurm("scontrol", "update", "nodename=cpu-2", "state=resume")
			c.waitJob(c.sbatch("true", "--nodelist=cpu-3"), "COMPLETED")
		})
		t.Run("bad hardware", func(t *testing.T) {
			c.t = t
			c.waitJob(c.sbatch("true", "--nodelist=cpu-1"), "COMPLETED")
			id := c.sbatch("sleep 30", "--nodelist=cpu-0")
			c.waitJob(id, "RUNNING")
			host := c.slurmdPods()["cpu-0"].Spec.NodeName
			t.Cleanup(func() { c.mend(host, v1alpha1.AnnotationBadHardware) })
			began := time.Now()
			c.slurm("scontrol", "update", "nodename=cpu-0", "state=drain", "reason=NHC: GPU Xid 79")
			c.eventually("the host to be marked", func() (bool, string) {
				taints := c.host(host).Spec.Taints
				return slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.ToString() == pods.DefaultHostTaint }), fmt.Sprint(taints)
			})
			t.Logf("marked after %s", time.Since(began).Round(time.Second))
			assert.Contains(t, c.host(host).Annotations[v1alpha1.AnnotationBadHardware], `"node":"cpu-0"`)
			c.eventually("the Event on the host", func() (bool, string) {
				events, err := c.kube.EventsV1().Events(metav1.NamespaceDefault).List(c.ctx, metav1.ListOptions{FieldSelector: "reason=BadHardware"})
				require.NoError(t, err)
				return slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
					return e.Regarding.Name == host && strings.Contains(e.Note, "Slurm node cpu-0 was drained: NHC: GPU Xid 79") && e.CreationTimestamp.After(began.Add(-time.Second))
				}), fmt.Sprint(len(events.Items))
			})
			c.waitZero("cpu-1") // idle, on the same host
			c.waitJob(id, "COMPLETED")
			assert.Equal(t, "0", c.jobField(id, "Restarts"), "its job was left alone")
			assert.Contains(t, reason("cpu-0"), "NHC: GPU Xid 79")

			c.slurm("scontrol", "update", "nodename=cpu-0", "state=power_down")
			c.waitZero("cpu-0")
			c.waitNodes("cpu-0", powersave.NodePoweredDown, powersave.NodeDrain)
			id = c.sbatch("true", "--nodelist=cpu-0", "--requeue")
			c.eventually("the job to be given back", func() (bool, string) {
				comment := c.jobField(id, "AdminComment")
				return strings.HasPrefix(comment, "slurmtide:"), comment
			})
			c.waitZero("cpu-0")

			c.mend(host, v1alpha1.AnnotationBadHardware)
			c.changeSpec("cpu")
			c.waitNodes("cpu-0", powersave.NodePoweredDown, powersave.NodeDrain)
			c.slurm("scontrol", "update", "jobid="+id, "StartTime=now")
			c.waitJob(id, "COMPLETED")
			assert.False(t, slices.ContainsFunc(c.host(host).Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.AnnotationBadHardware }),
				"the verdict of then does not come back")
		})
		c.t = t
		c.slurm("scontrol", "update", "nodename=cpu-[0-3]", "state=power_down")
		c.settled("cpu-[0-3]")
		assert.False(t, slices.ContainsFunc(c.status().Engine.Notes, func(n powersave.Note) bool {
			return strings.Contains(n.Text, "hosts cannot be read")
		}))
	})
}

// hostCondition is what node-problem-detector does of a kernel that hangs, or of one that does so no longer. The kubelet leaves conditions of others alone.
func (c *cluster) hostCondition(host string, bad bool) {
	c.t.Helper()
	status := corev1.ConditionFalse
	if bad {
		status = corev1.ConditionTrue
	}
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"KernelDeadlock","status":%q,"reason":"DockerHung","message":"task docker blocked"}]}}`, status)
	_, err := c.kube.CoreV1().Nodes().Patch(c.ctx, host, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	require.NoError(c.t, err)
	if bad {
		c.t.Cleanup(func() { c.hostCondition(host, false) })
	}
}

func (c *cluster) host(name string) *corev1.Node {
	c.t.Helper()
	host, err := c.kube.CoreV1().Nodes().Get(c.ctx, name, metav1.GetOptions{})
	require.NoError(c.t, err)
	return host
}

// mend is what an administrator does when a host is repaired: kubectl taint nodes HOST KEY-
func (c *cluster) mend(host, key string) {
	c.t.Helper()
	require.NoError(c.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		h := c.host(host)
		h.Spec.Taints = slices.DeleteFunc(h.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
		_, err := c.kube.CoreV1().Nodes().Update(c.ctx, h, metav1.UpdateOptions{})
		return err
	}))
}

// changeSpec changes the NodeSet in a way that means nothing but that it is to be tried again.
func (c *cluster) changeSpec(nodeSet string) {
	c.t.Helper()
	patch := []byte(`{"spec":{"template":{"metadata":{"annotations":{"again":"` + strconv.FormatInt(time.Now().UnixNano(), 10) + `"}}}}}`)
	_, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Patch(c.ctx, nodeSet, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(c.t, err)
}

// evict asks for the pod to go the way kubectl drain does.
func (c *cluster) evict(name string, dryRun ...string) error {
	return c.kube.PolicyV1().Evictions(c.ns).Evict(c.ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.ns}, DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun},
	})
}
