//go:build integration && (faults || controlplane)

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// paperTaint keeps all pods but those of the test off the hosts that are none.
const paperTaint = "test.slurmtide.io/paper"

// paperHosts makes a host in each of the zones, until the test ends, and returns the zones by host. In place of their kubelets it
// renews leases and confirms the end of pods.
func (c *cluster) paperHosts(zones ...string) map[string]string {
	c.t.Helper()
	hosts := map[string]string{}
	t := c.t
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for host := range hosts {
			assert.NoError(t, c.kube.CoreV1().Nodes().Delete(ctx, host, metav1.DeleteOptions{})) // its lease goes with it
		}
	})
	pods := c.kube.CoreV1().Pods(c.ns)
	leases := c.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	for i, zone := range zones {
		name := fmt.Sprintf("paper-%s-%d", c.ns, i)
		c.paperHost(name, zone)
		hosts[name] = zone
	}
	ctx, cancel := context.WithCancel(c.ctx)
	var kubelet sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		kubelet.Wait()
	})
	kubelet.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			if n%20 == 0 {
				renewed := []byte(fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro)))
				for host := range hosts {
					_, _ = leases.Patch(ctx, host, types.MergePatchType, renewed, metav1.PatchOptions{}) // or the next time
				}
			}
			list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelNode})
			if err != nil {
				list = &corev1.PodList{}
			}
			for _, p := range list.Items {
				if hosts[p.Spec.NodeName] != "" && p.DeletionTimestamp != nil {
					_ = pods.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	return hosts
}

// paperHost makes a host that exists in the API alone, and is ready as long as somebody renews its lease, or for some 50 s.
func (c *cluster) paperHost(name, zone string) {
	c.t.Helper()
	host, err := c.kube.CoreV1().Nodes().Create(c.ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelTopologyZone: "zone-" + zone, corev1.LabelHostname: name, paperTaint: c.ns}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: paperTaint, Effect: corev1.TaintEffectNoSchedule}}},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	size := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110")}
	patch, err := json.Marshal(corev1.Node{Status: corev1.NodeStatus{Capacity: size, Allocatable: size, Conditions: []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}}})
	require.NoError(c.t, err)
	_, err = c.kube.CoreV1().Nodes().Patch(c.ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	require.NoError(c.t, err)
	_, err = c.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(c.ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: host.UID}}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(40)), RenewTime: new(metav1.NowMicro())},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}
