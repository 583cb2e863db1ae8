package pods

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	tidefake "github.com/slurmtide/slurmtide/kube/generated/clientset/versioned/fake"
	"github.com/slurmtide/slurmtide/powersave"
)

func TestParseHostConditions(t *testing.T) {
	conditions, err := ParseHostConditions([]string{"KernelDeadlock", "example.com/GpuHealthy=False", "DiskPressure=Unknown"})
	require.NoError(t, err)
	assert.Equal(t, []HostCondition{
		{"KernelDeadlock", corev1.ConditionTrue}, {"example.com/GpuHealthy", corev1.ConditionFalse}, {corev1.NodeDiskPressure, corev1.ConditionUnknown},
	}, conditions)
	for word, want := range map[string]string{
		"":                    `type ""`,
		"a b":                 `type "a b"`,
		"KernelDeadlock=true": `unknown status "true": use True, False or Unknown`,
		"Ready=False":         "Ready is always looked at: leave it out",
	} {
		_, err := ParseHostConditions([]string{word})
		require.ErrorContains(t, err, want)
	}
}

// Conditions that were named are as bad as cordons, others are not looked at; the pods of new boots keep off such hosts.
func TestHostConditions(t *testing.T) {
	conditions, err := ParseHostConditions([]string{"KernelDeadlock", "Healthy=False"})
	require.NoError(t, err)
	hang := func(h *corev1.Node, condition corev1.NodeConditionType, status corev1.ConditionStatus) *corev1.Node {
		h.Status.Conditions = append(h.Status.Conditions, corev1.NodeCondition{Type: condition, Status: status, Reason: "Hung"})
		return h
	}
	runningWith(t, func(*kubefake.Clientset) {}, func(ctx context.Context, c *Client, kube *kubefake.Clientset, _ *tidefake.Clientset, r *record) {
		assert.Equal(t, []string{"nodesets cpu=cpu-[0-9]", "synced", "hosts [{h1 } {h2 in condition Healthy=False}]"}, r.take())
		update := func(h *corev1.Node) []string {
			_, err := kube.CoreV1().Nodes().Update(ctx, h, metav1.UpdateOptions{})
			require.NoError(t, err)
			synctest.Wait()
			return r.take()
		}
		keepsOff := func(node string) (hosts []string) {
			_, err := c.Create(ctx, powersave.CreatePod{Node: node, NodeSet: "cpu", Generation: 1, Request: "r"})
			require.NoError(t, err)
			pod, err := kube.CoreV1().Pods("slurm").Get(ctx, node, metav1.GetOptions{})
			require.NoError(t, err)
			if pod.Spec.Affinity != nil {
				for _, field := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields {
					hosts = append(hosts, field.Values...)
				}
			}
			synctest.Wait()
			r.take()
			return hosts
		}
		assert.Empty(t, update(hang(newHost("h1"), corev1.NodeDiskPressure, corev1.ConditionTrue)), "nobody has named it")
		assert.Empty(t, update(hang(newHost("h1"), "KernelDeadlock", corev1.ConditionFalse)))
		assert.Equal(t, []string{"h2"}, keepsOff("cpu-1"))
		assert.Equal(t, []string{"host h1 in condition KernelDeadlock"}, update(hang(newHost("h1"), "KernelDeadlock", corev1.ConditionTrue)))
		assert.Equal(t, []string{"h1", "h2"}, keepsOff("cpu-2"))
		silent := hang(newHost("h1"), "KernelDeadlock", corev1.ConditionTrue)
		silent.Status.Conditions[0].Status = corev1.ConditionUnknown
		assert.Equal(t, []string{"host h1 not ready"}, update(silent), "no pod is taken from a host that cannot confirm it")
		assert.Equal(t, []string{"host h1 "}, update(newHost("h1")))
		assert.Equal(t, []string{"host h2 "}, update(newHost("h2")))
		assert.Empty(t, keepsOff("cpu-3"))
	}, Options{HostConditions: conditions}, newNodeSet("cpu", "cpu-[0-9]"), newHost("h1"), hang(newHost("h2"), "Healthy", corev1.ConditionFalse))
}

// The informer lists hosts in any order; pods made one after another are alike.
func TestBadHostsAreSorted(t *testing.T) {
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	var want []string
	for i := range 26 {
		name := "h-" + string(rune('a'+i))
		h := newHost(name)
		if i%2 == 0 {
			h.Status.Conditions = append(h.Status.Conditions, corev1.NodeCondition{Type: "KernelDeadlock", Status: corev1.ConditionTrue})
			want = append(want, name)
		}
		require.NoError(t, store.Add(h))
	}
	c := &Client{hosts: store, opts: Options{HostConditions: []HostCondition{{"KernelDeadlock", corev1.ConditionTrue}}}}
	assert.Equal(t, want, c.badHosts())
}
