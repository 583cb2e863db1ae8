//go:build integration && faults

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// Kubernetes takes pods away while they boot: the eviction API, the scheduler for a pod of higher priority, a host that dies for good. A new
// pod is made and the job runs; if there is no time or no room for one, the job is given back, with the reason.
func TestLostBoots(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		c := deploy(t, "lost", version, stack.Options{Gate: true, ResumeTimeout: 300, ExtraConf: []string{"MinJobAge=3600"},
			NodeLines: []string{"NodeName=prey-0,late-0,far-0,gone-0 CPUs=2 RealMemory=400 State=CLOUD"},
			PartitionLines: []string{"PartitionName=cpu Nodes=cpu-0 Default=YES", "PartitionName=slow Nodes=slow-[0-1]", "PartitionName=prey Nodes=prey-0",
				"PartitionName=late Nodes=late-0", "PartitionName=far Nodes=far-0", "PartitionName=gone Nodes=gone-0"},
		}, nodeSet{name: "cpu", nodes: "cpu-0"}, nodeSet{name: "slow", nodes: "slow-[0-1]", gated: true})

		t.Run("evicted before it has a host", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 1", "-N2", "-p", "slow")
			c.eventually("the pods", func() (bool, string) { return len(c.slurmdPods()) == 2, "" })
			before := c.slurmdPods()
			c.waitProtected("slow", before["slow-0"])
			require.NoError(t, c.evict("slow-0"), "a budget protects no pod that is pending (eviction.go canIgnorePDB)")
			c.remade("slow-0", before["slow-0"].UID)
			assert.Equal(t, before["slow-1"].UID, c.slurmdPods()["slow-1"].UID)
			assert.Equal(t, "CONFIGURING", c.jobField(id, "JobState"))
			c.ungate("slow-[0-1]")
			c.settled("slow-[0-1]", id)
		})
		t.Run("eviction of a pod whose slurmd has not registered", func(t *testing.T) {
			c.t = t
			mend := c.cutNetwork()
			id := c.sbatch("sleep 1", "--nodelist=cpu-0")
			pod := c.waitBooting("cpu-0")
			c.waitProtected("cpu", pod)
			err := c.evict("cpu-0")
			require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
			assert.ErrorContains(t, err, "disruption budget")
			assert.Equal(t, pod.UID, c.slurmdPods()["cpu-0"].UID)
			mend()
			c.settled("cpu-0", id)
		})

		low := c.priority("slurmtide-test-low-"+c.ns, -1000)
		port := onePodAHost()
		prey := c.build(nodeSet{name: "prey", nodes: "prey-0"})
		prey.Spec.Template.Spec.PriorityClassName, prey.Spec.Template.Spec.Containers[0].Ports = low, port
		prey.Spec.Boot.UnschedulableGrace = &metav1.Duration{Duration: time.Minute}
		c.create(prey)
		t.Run("preempted for a pod that ends soon", func(t *testing.T) {
			c.t = t
			mend := c.cutNetwork()
			id := c.sbatch("sleep 1", "-p", "prey")
			pod := c.waitBooting("prey-0")
			c.waitProtected("prey", pod)
			c.preempt(pod, port, "true")
			c.remade("prey-0", pod.UID)
			assert.Equal(t, "CONFIGURING", c.jobField(id, "JobState"))
			mend()
			c.settled("prey-0", id)
		})
		t.Run("preempted for a pod that stays", func(t *testing.T) {
			c.t = t
			c.changeNodeSet("prey", func(s *v1alpha1.NodeSetSpec) { s.Boot.UnschedulableGrace = &metav1.Duration{Duration: 2 * time.Second} })
			mend := c.cutNetwork()
			id := c.sbatch("sleep 1", "-p", "prey")
			pod := c.waitBooting("prey-0")
			end := c.preempt(pod, port, "sleep 3600")
			reason := c.givenBack(id, "prey-0")
			t.Log(reason)
			assert.Regexp(t, `^slurmtide: capacity: .*free ports`, reason, "the scheduler's word on its successor")
			c.saysWhy("prey", "prey-0", id, `capacity: .*free ports`)
			c.condition("prey", v1alpha1.ConditionCapacityAvailable, metav1.ConditionFalse)
			c.waitZero("prey-0")
			mend()
			end()
			c.changeSpec("prey")
			c.waitNodes("prey-0", powersave.NodePoweredDown, powersave.NodeDrain)
			c.slurm("scontrol", "update", "jobid="+id, "StartTime=now")
			c.waitJob(id, "COMPLETED")
			c.settled("prey-0")
		})
		t.Run("preempted until the deadline", func(t *testing.T) {
			c.t = t
			late := c.build(nodeSet{name: "late", nodes: "late-0", grace: 120, boot: v1alpha1.BootPolicy{Deadline: &metav1.Duration{Duration: 40 * time.Second}}})
			late.Spec.Template.Spec.PriorityClassName, late.Spec.Template.Spec.Containers[0].Ports = low, port
			late.Spec.Template.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{ // so that it goes after the deadline
				Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "sleep 60"}}}}
			c.create(late)
			mend := c.cutNetwork()
			id := c.sbatch("sleep 1", "-p", "late")
			pod := c.waitBooting("late-0")
			end := c.preempt(pod, port, "sleep 3600")
			reason := c.givenBack(id, "late-0")
			t.Log(reason)
			const taken = `lost: not up after 40s: .*preempting to accommodate a higher priority pod`
			assert.Regexp(t, "^slurmtide: "+taken, reason)
			c.saysWhy("late", "late-0", id, taken)
			assert.Nil(t, c.breaker("late"), "nothing is held against the NodeSet")
			mend()
			end()
			c.waitZero("late-0")
			c.slurm("scontrol", "update", "jobid="+id, "StartTime=now")
			c.waitJob(id, "COMPLETED")
			c.settled("late-0")
		})
		t.Run("host dies for good", func(t *testing.T) {
			c.t = t
			host := "paper-" + c.ns
			c.paperHost(host, "none") // nobody renews its lease
			t.Cleanup(func() {
				err := c.kube.CoreV1().Nodes().Delete(context.WithoutCancel(c.ctx), host, metav1.DeleteOptions{})
				assert.True(t, err == nil || apierrors.IsNotFound(err), "%v", err)
			})
			ids, first := map[string]string{}, map[string]types.UID{}
			for name, deadline := range map[string]time.Duration{"far": 0, "gone": 75 * time.Second} {
				set := c.build(nodeSet{name: name, nodes: name + "-0", gated: true})
				if deadline > 0 {
					set.Spec.Boot.Deadline = &metav1.Duration{Duration: deadline}
				}
				set.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: paperTaint, Operator: corev1.TolerationOpExists}}
				for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} { // 300 s by default
					set.Spec.Template.Spec.Tolerations = append(set.Spec.Template.Spec.Tolerations, corev1.Toleration{
						Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(1))})
				}
				c.create(set)
				ids[name] = c.sbatch("sleep 1", "-p", name)
				first[name] = c.placeOn(host, name+"-0")
			}
			died := time.Now()
			reason := c.givenBack(ids["gone"], "gone-0")
			t.Logf("given back after %s: %s", time.Since(died).Round(time.Second), reason)
			const taken = `lost: not up after 1m15s: Taint manager: deleting due to NoExecute taint`
			assert.Regexp(t, "^slurmtide: "+taken, reason)
			c.slurm("scontrol", "hold", ids["gone"]) // its name is free after SuspendTimeout, and its pod is there still
			c.saysWhy("gone", "gone-0", ids["gone"], taken)
			assert.Nil(t, c.breaker("gone"), "nothing is held against the NodeSet")

			assert.Equal(t, "CONFIGURING", c.jobField(ids["far"], "JobState"))
			left := c.slurmdPods()["far-0"]
			assert.Equal(t, first["far"], left.UID, "nobody can confirm that it has ended")
			assert.NotNil(t, left.DeletionTimestamp)
			require.NoError(t, c.kube.CoreV1().Nodes().Delete(c.ctx, host, metav1.DeleteOptions{})) // what clouds do with one that is gone
			c.within(3*time.Minute, time.Second, "the pod to be collected, and made anew", func() (bool, string) {
				now := c.slurmdPods()["far-0"].UID
				return now != "" && now != first["far"], string(now)
			})
			t.Logf("a new pod %s after the host died", time.Since(died).Round(time.Second))
			c.remade("far-0", first["far"])
			c.ungate("far-0")
			c.settled("far-0", ids["far"])

			c.waitZero("gone-0")
			c.changeNodeSet("gone", func(s *v1alpha1.NodeSetSpec) { s.Template.Spec.SchedulingGates = nil })
			c.slurm("scontrol", "update", "jobid="+ids["gone"], "StartTime=now") // its rest may be over, and it starts as soon as it is released
			c.slurm("scontrol", "release", ids["gone"])
			c.waitJob(ids["gone"], "COMPLETED")
			c.settled("gone-0")
		})
	})
}

// waitBooting waits until slurmd runs in the node's pod, and returns the pod.
func (c *cluster) waitBooting(node string) (pod corev1.Pod) {
	c.t.Helper()
	c.eventually("slurmd of "+node+" to run", func() (bool, string) {
		pod = c.slurmdPods()[node]
		for _, b := range c.status().Engine.Boots {
			if b.Node == node {
				return b.Phase == powersave.PhaseRunning && b.UID == string(pod.UID), string(b.Phase)
			}
		}
		return false, "no boot"
	})
	return pod
}

// waitProtected waits until the pod counts as busy, for the job that waits for it, and the NodeSet's budget allows no disruption.
func (c *cluster) waitProtected(nodeSet string, pod corev1.Pod) {
	c.t.Helper()
	assert.Equal(c.t, "true", pod.Labels[v1alpha1.LabelBusy])
	c.eventually("the budget of NodeSet "+nodeSet, func() (bool, string) {
		budget, err := c.kube.PolicyV1().PodDisruptionBudgets(c.ns).Get(c.ctx, "slurmtide-"+nodeSet, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return budget.Status.ObservedGeneration == budget.Generation && budget.Status.DisruptionsAllowed == 0 && budget.Status.DesiredHealthy > 0, fmt.Sprint(budget.Status)
	})
}

// remade waits until the node has another pod than that, which was noted as taken away.
func (c *cluster) remade(node string, uid types.UID) {
	c.t.Helper()
	c.eventually("a new pod of "+node, func() (bool, string) {
		now := c.slurmdPods()[node].UID
		return now != "" && now != uid, string(now)
	})
	c.eventually("the bridge to say so", func() (bool, string) {
		notes := c.status().Engine.Notes
		for _, n := range notes {
			if n.Node == node && n.Text == "pod "+string(uid)+" was taken away while its node booted" {
				return true, ""
			}
		}
		return false, fmt.Sprint(notes)
	})
}

// saysWhy sees to it that the reason stands on the node, and in the Event of its NodeSet, too.
func (c *cluster) saysWhy(nodeSet, node, id, reason string) {
	c.t.Helper()
	assert.Regexp(c.t, `node `+node+` reason set to: slurmtide: `+reason, c.log(stack.ContainerSlurmctld))
	c.failedEvent(nodeSet, id)
	events, err := c.kube.EventsV1().Events(c.ns).List(c.ctx, metav1.ListOptions{FieldSelector: "reason=BootFailed"})
	require.NoError(c.t, err)
	var notes []string
	for _, e := range events.Items {
		if e.Regarding.Name == nodeSet {
			notes = append(notes, e.Note)
		}
	}
	assert.Regexp(c.t, reason, strings.Join(notes, "\n"))
}

// priority makes a PriorityClass until the test ends.
func (c *cluster) priority(name string, value int32) string {
	c.t.Helper()
	classes := c.kube.SchedulingV1().PriorityClasses()
	drop := func(ctx context.Context) {
		err := classes.Delete(ctx, name, metav1.DeleteOptions{})
		assert.True(c.t, err == nil || apierrors.IsNotFound(err), "%v", err)
	}
	drop(c.ctx) // left by an interrupted run
	_, err := classes.Create(c.ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { drop(context.WithoutCancel(c.ctx)) })
	return name
}

// preempt makes a pod of higher priority that needs the port of the host that the victim has, and waits until the scheduler has taken the
// victim away for it. end takes it away again.
func (c *cluster) preempt(victim corev1.Pod, port []corev1.ContainerPort, command string) (end func()) {
	c.t.Helper()
	pod, err := c.kube.CoreV1().Pods(c.ns).Create(c.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "important-", Namespace: c.ns},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(0)), Containers: []corev1.Container{{
			Name: "important", Image: victim.Spec.Containers[0].Image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"/bin/sh", "-c", command}, Ports: port,
		}}},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	c.eventually("the scheduler to take "+victim.Name+" away", func() (bool, string) {
		events, err := c.kube.EventsV1().Events(c.ns).List(c.ctx, metav1.ListOptions{FieldSelector: "reason=Preempted"})
		require.NoError(c.t, err)
		for _, e := range events.Items {
			if isOf(e, victim) {
				return true, ""
			}
		}
		return false, fmt.Sprint(len(events.Items), " others")
	})
	return func() {
		c.t.Helper()
		require.NoError(c.t, c.kube.CoreV1().Pods(c.ns).Delete(c.ctx, pod.Name, metav1.DeleteOptions{}))
	}
}

func isOf(e eventsv1.Event, pod corev1.Pod) bool { return e.Regarding.UID == pod.UID }

// placeOn lets the gated pod of the node be scheduled, but onto that host only, and returns its UID when it is there.
func (c *cluster) placeOn(host, node string) (uid types.UID) {
	c.t.Helper()
	pods := c.kube.CoreV1().Pods(c.ns)
	c.eventually("the pod of "+node, func() (bool, string) {
		uid = c.slurmdPods()[node].UID
		return uid != "", ""
	})
	patch, err := json.Marshal([]map[string]any{
		{"op": "add", "path": "/spec/nodeSelector", "value": map[string]string{corev1.LabelHostname: host}},
		{"op": "remove", "path": "/spec/schedulingGates"},
	})
	require.NoError(c.t, err)
	_, err = pods.Patch(c.ctx, node, types.JSONPatchType, patch, metav1.PatchOptions{})
	require.NoError(c.t, err)
	c.eventually(node+" to be on "+host, func() (bool, string) {
		p := c.slurmdPods()[node]
		return p.Spec.NodeName == host && p.UID == uid, p.Spec.NodeName
	})
	return uid
}
