//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// Jobs that cannot get all their nodes: all are given back within seconds, with the reason everywhere, and the job waits.
func TestGangs(t *testing.T) {
	forFaults(t, func(t *testing.T, version string) {
		c := deploy(t, "gangs", version, withMoreGangs(stack.Options{Gate: true, ResumeTimeout: 300,
			NodeLines:      []string{"NodeName=narrow-[0-3],bad-[0-1],full-[0-1] CPUs=2 RealMemory=400 State=CLOUD"},
			PartitionLines: []string{"PartitionName=narrow Nodes=narrow-[0-3] Default=YES", "PartitionName=bad Nodes=bad-[0-1]", "PartitionName=full Nodes=full-[0-1]"},
		}))
		narrow := c.build(nodeSet{name: "narrow", nodes: "narrow-[0-3]"})
		narrow.Spec.Template.Spec.Containers[0].Ports = onePodAHost()
		c.create(narrow)
		c.create(c.build(nodeSet{name: "bad", nodes: "bad-[0-1]", image: "slurmtide/none:such"}))
		full := c.build(nodeSet{name: "full", nodes: "full-[0-1]"})
		full.Spec.Template.Spec.PriorityClassName = "system-node-critical"
		c.create(full)
		_, err := c.kube.CoreV1().ResourceQuotas(c.ns).Create(c.ctx, &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "critical"},
			Spec: corev1.ResourceQuotaSpec{
				Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")},
				ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{
					ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{"system-node-critical"},
				}}},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)

		t.Run("no room for one of three", func(t *testing.T) {
			c.t = t
			began := time.Now()
			id := c.sbatch("sleep 1", "-N3", "-p", "narrow")
			reason := c.givenBack(id, "narrow-[0-3]")
			took := time.Since(began)
			assert.Contains(t, reason, "slurmtide: capacity: ")
			assert.Contains(t, reason, "free ports")
			t.Logf("given back after %s: %s", took.Round(100*time.Millisecond), reason)
			assert.Less(t, took, time.Minute, "ResumeTimeout is five")
			assert.Equal(t, "PENDING", c.jobField(id, "JobState"))
			c.reasonsGiven("narrow-[0-2]")
			c.failedEvent("narrow", id)
			c.waitZero("narrow-[0-3]")
			c.eventually("the NodeSet to be out of Slurm's choice", func() (bool, string) {
				node := c.slurm("scontrol", "--oneliner", "show", "node", "narrow-3")
				return strings.Contains(node, "DRAIN") && strings.Contains(node, "slurmtide: closed: capacity"), node
			})
			c.condition("narrow", v1alpha1.ConditionCapacityAvailable, metav1.ConditionFalse)
			story := c.explain("job", id)
			assert.Contains(t, story.Why, "capacity: ")
			assert.Contains(t, c.steps(story), " BootFailed JobGivenBack ")
			assert.NotEmpty(t, story.Tried)
			assert.NotEmpty(t, story.Do)
			assert.Contains(t, strings.Join(c.explain("nodeset", "narrow").Next, "\n"), "NodeSet narrow is tried again at ")
			whileClosed(t, c)

			c.t = t
			c.changeNodeSet("narrow", func(s *v1alpha1.NodeSetSpec) { s.Template.Spec.Containers[0].Ports = nil }) // room for all
			c.slurm("scontrol", "update", "jobid="+id, "StartTime=now")
			c.waitJob(id, "COMPLETED")
			c.settled("narrow-[0-3]")
			c.condition("narrow", v1alpha1.ConditionCapacityAvailable, metav1.ConditionTrue)
		})
		t.Run("image that is not there, then is", func(t *testing.T) {
			c.t = t
			c.toldAndMended(c.sbatch("sleep 1", "-N2", "-p", "bad"), "bad", "slurmtide: image: ")
		})
		t.Run("quota, and a job that may not be requeued", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 1", "-N2", "-p", "full", "--no-requeue")
			c.waitJob(id, "NODE_FAIL")
			assert.Contains(t, c.jobField(id, "AdminComment")+c.slurm("scontrol", "--oneliner", "show", "job", id), "slurmtide: quota: ")
			c.reasonsGiven("full-[0-1]")
			c.failedEvent("full", id)
			c.waitZero("full-[0-1]")
			require.NoError(t, c.kube.CoreV1().ResourceQuotas(c.ns).Delete(c.ctx, "critical", metav1.DeleteOptions{}))
			id = c.sbatch("sleep 1", "-N2", "-p", "full")
			c.within(3*time.Minute, time.Second, "the NodeSet to be tried again", func() (bool, string) {
				return c.jobField(id, "JobState") == "COMPLETED", c.jobField(id, "Reason")
			})
			c.settled("full-[0-1]") // Slurm may have started the job once more before the NodeSet was closed
			c.condition("full", v1alpha1.ConditionCapacityAvailable, metav1.ConditionTrue)
		})
		moreGangs(t, c)
	})
}

// toldAndMended has a job of two nodes be given back for that reason, which is said everywhere, and run once the NodeSet is as it should be.
func (c *cluster) toldAndMended(id, set, reason string) {
	c.t.Helper()
	c.told(id, set, reason)
	c.mended(id, set)
}

// told has a job of two nodes be given back for that reason, which is said everywhere.
func (c *cluster) told(id, set, reason string) {
	c.t.Helper()
	nodes := set + "-[0-1]"
	assert.Regexp(c.t, "^"+reason, c.givenBack(id, nodes))
	c.reasonsGiven(nodes)
	c.failedEvent(set, id)
	c.waitZero(nodes)
}

// mended has the NodeSet, which is closed, be as it should be: the job that was given back runs.
func (c *cluster) mended(id, set string) {
	c.t.Helper()
	nodes := set + "-[0-1]"
	c.condition(set, v1alpha1.ConditionBootsHealthy, metav1.ConditionFalse)
	c.changeNodeSet(set, func(s *v1alpha1.NodeSetSpec) {
		s.Template = c.build(nodeSet{name: set, nodes: nodes}).Spec.Template
		s.Template.Annotations = map[string]string{"example.com/mended": "yes"}
	})
	c.slurm("scontrol", "update", "jobid="+id, "StartTime=now")
	c.waitJob(id, "COMPLETED")
	c.settled(nodes)
	c.condition(set, v1alpha1.ConditionBootsHealthy, metav1.ConditionTrue)
}

// failedEvent waits for the Event of the NodeSet that says that the job was given back.
func (c *cluster) failedEvent(nodeSet, id string) {
	c.t.Helper()
	c.eventually("the event", func() (bool, string) {
		events, err := c.kube.EventsV1().Events(c.ns).List(c.ctx, metav1.ListOptions{FieldSelector: "reason=BootFailed"})
		require.NoError(c.t, err)
		for _, e := range events.Items {
			if e.Regarding.Kind == "NodeSet" && e.Regarding.Name == nodeSet && strings.Contains(e.Note, "jobs given back: "+id) {
				return true, ""
			}
		}
		return false, fmt.Sprint(len(events.Items), " others")
	})
}

// givenBack waits until the job is back in the queue, resting, and returns what its record says.
func (c *cluster) givenBack(id, nodes string) (comment string) {
	c.t.Helper()
	c.eventually("job "+id+" to be given back", func() (bool, string) {
		job := c.slurm("scontrol", "--oneliner", "show", "job", id)
		_, comment, _ = strings.Cut(job, "AdminComment=")
		begin, err := time.ParseInLocation("2006-01-02T15:04:05", c.jobField(id, "EligibleTime"), time.UTC)
		return strings.Contains(job, "JobState=PENDING") && strings.Contains(job, "Restarts=") && !strings.Contains(job, "Restarts=0") && err == nil && time.Until(begin) > 10*time.Second && comment != "", job
	})
	for n, state := range c.nodeStates(nodes) {
		assert.False(c.t, state.Any(powersave.NodePoweringUp), "%s is %s", n, state)
	}
	return comment
}

func (c *cluster) condition(nodeSet, kind string, want metav1.ConditionStatus) {
	c.t.Helper()
	c.eventually("condition "+kind+" of "+nodeSet, func() (bool, string) {
		ns, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Get(c.ctx, nodeSet, metav1.GetOptions{})
		require.NoError(c.t, err)
		for _, have := range ns.Status.Conditions {
			if have.Type == kind {
				return have.Status == want, string(have.Status) + " " + have.Message
			}
		}
		return false, "no such condition"
	})
}

// onePodAHost is a port of the host, which only one pod can have.
func onePodAHost() []corev1.ContainerPort {
	return []corev1.ContainerPort{{ContainerPort: 9, HostPort: int32(30000 + time.Now().UnixNano()%2000)}}
}

// changeNodeSet changes the NodeSet's spec, whereupon it is tried again at once.
func (c *cluster) changeNodeSet(name string, change func(*v1alpha1.NodeSetSpec)) {
	c.t.Helper()
	sets := c.tide.SlurmtideV1alpha1().NodeSets(c.ns)
	require.NoError(c.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		set, err := sets.Get(c.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&set.Spec)
		_, err = sets.Update(c.ctx, set, metav1.UpdateOptions{})
		return err
	}))
}

func (c *cluster) create(ns *v1alpha1.NodeSet) {
	c.t.Helper()
	_, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Create(c.ctx, ns, metav1.CreateOptions{})
	require.NoError(c.t, err)
}
