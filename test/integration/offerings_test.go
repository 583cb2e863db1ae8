//go:build integration

package integration

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// The first offering has no host: the same boots go on with the second within the job's deadline, in pods of a generation of their
// own. For a while after that the first is not tried at all.
func TestOfferings(t *testing.T) {
	forFaults(t, func(t *testing.T, version string) {
		const nodes, limit = "cpu-[0-3]", 60 * time.Second
		c := deploy(t, "offerings", version, stack.Options{Gate: true, ResumeTimeout: 300,
			NodeLines: []string{"NodeName=" + nodes + " CPUs=2 RealMemory=400 State=CLOUD"}})
		set := c.build(nodeSet{name: "cpu", nodes: nodes, boot: v1alpha1.BootPolicy{
			UnschedulableGrace: &metav1.Duration{Duration: 3 * time.Second}, Deadline: &metav1.Duration{Duration: limit},
		}})
		set.Spec.Offerings = []v1alpha1.Offering{{Name: "spot", NodeSelector: map[string]string{"slurmtide.io/host-of": "nobody"}}, {Name: "own"}}
		c.create(set)

		began := time.Now()
		id, made := c.podsOf("sleep 3", "-N2", "--exclusive")
		assert.Less(t, time.Since(began), limit, "the deadline")
		spot := 0
		for n, pods := range made {
			last := pods[len(pods)-1]
			assert.Equal(t, "own", last.offering, "%s: %v", n, pods)
			if len(pods) == 1 {
				continue // the breaker opened before it was its turn
			}
			spot++
			require.Len(t, pods, 2, "%s: %v", n, pods)
			assert.Equal(t, "spot", pods[0].offering, "%s: %v", n, pods)
			assert.Greater(t, last.generation, pods[0].generation, "%s: %v", n, pods)
		}
		assert.Len(t, made, 2)
		assert.NotZero(t, spot, "the first offering comes first: %v", made)
		t.Logf("done after %v: %v", time.Since(began).Round(100*time.Millisecond), made)
		c.settled(nodes, id)
		c.eventually("the first offering to be avoided", func() (bool, string) {
			have, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Get(c.ctx, "cpu", metav1.GetOptions{})
			require.NoError(t, err)
			for _, o := range have.Status.Offerings {
				if o.Name == "spot" {
					return o.State == v1alpha1.BreakerBackingOff && o.Class == string(powersave.TroubleCapacity), string(o.State) + " " + o.Class
				}
			}
			return false, "it is not in the status"
		})

		id, made = c.podsOf("sleep 3", "-N3", "--exclusive")
		assert.Len(t, made, 3)
		for n, pods := range made {
			require.Len(t, pods, 1, "%s: %v", n, pods)
			assert.Equal(t, "own", pods[0].offering, n)
		}
		c.settled(nodes, id)
	})
}

// madePod is what the test wants to know of a pod.
type madePod struct {
	offering   string
	generation int64
}

// podsOf submits a job, waits until it is done, and returns the pods that each node had until then, oldest first. They are watched: a
// look from time to time misses those that go at once.
func (c *cluster) podsOf(script string, options ...string) (id string, made map[string][]madePod) {
	c.t.Helper()
	pods := c.kube.CoreV1().Pods(c.ns)
	before, err := pods.List(c.ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelNode})
	require.NoError(c.t, err)
	events, err := pods.Watch(c.ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelNode, ResourceVersion: before.ResourceVersion})
	require.NoError(c.t, err)
	defer events.Stop()
	id = c.sbatch(script, options...)
	c.waitJob(id, "COMPLETED")
	made = map[string][]madePod{}
	for {
		select {
		case e, open := <-events.ResultChan():
			require.True(c.t, open, "the watch has ended")
			if e.Type != watch.Added {
				continue
			}
			p := e.Object.(*corev1.Pod)
			generation, err := strconv.ParseInt(p.Annotations[v1alpha1.AnnotationGeneration], 10, 64)
			require.NoError(c.t, err)
			made[p.Name] = append(made[p.Name], madePod{p.Labels[v1alpha1.LabelOffering], generation})
		case <-time.After(time.Second): // all that happened before the job's end has been told
			return id, made
		}
	}
}
