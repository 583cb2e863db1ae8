//go:build integration

package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// Room for a whole job is asked for before its pods are made. The cluster autoscaler works with a cloud's machines, which
// are missing here: the test writes what it would write into the status.
func TestRooms(t *testing.T) {
	forFaults(t, func(t *testing.T, version string) {
		c := deploy(t, "rooms", version, stack.Options{Gate: true, ResumeTimeout: 120,
			NodeLines: []string{"NodeName=cpu-[0-3] CPUs=2 RealMemory=400 State=CLOUD"}})
		set := c.build(nodeSet{name: "cpu", nodes: "cpu-[0-3]"})
		set.Spec.Boot = &v1alpha1.BootPolicy{ProvisioningRequest: &v1alpha1.ProvisioningRequest{ClassName: "test.slurmtide.io"}}
		c.create(set)
		answer := func(t *testing.T, condition, message string) *unstructured.Unstructured {
			request := c.room()
			assert.Empty(t, c.slurmdPods(), "before there is room")
			c.answerRoom(request, condition, message)
			return request
		}

		t.Run("provisioned", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 1", "-N2")
			request := answer(t, "Provisioned", "two hosts")
			podSets, _, err := unstructured.NestedSlice(request.Object, "spec", "podSets")
			require.NoError(t, err)
			require.Len(t, podSets, 1)
			assert.EqualValues(t, 2, podSets[0].(map[string]any)["count"])
			c.eventually("pods that use the room", func() (bool, string) {
				using := 0
				for _, p := range c.slurmdPods() {
					if p.Annotations[v1alpha1.AnnotationConsumeProvisioningRequest] == request.GetName() &&
						p.Annotations[v1alpha1.AnnotationProvisioningClassName] == "test.slurmtide.io" {
						using++
					}
				}
				return using == 2, ""
			})
			c.waitJob(id, "COMPLETED")
			c.noRooms()
			c.waitZero("cpu-[0-3]")
		})
		t.Run("bridge killed while it waits", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 1", "-N2")
			c.eventually("status to say what the job waits for", func() (bool, string) {
				for _, b := range c.status().Engine.Boots {
					if strings.HasPrefix(b.Problem, "waiting for ProvisioningRequest") {
						return true, ""
					}
				}
				return false, ""
			})
			require.NoError(t, c.Signal(c.ctx, "KILL", stack.ContainerBridge))
			require.NoError(t, c.WaitReady(c.ctx))
			answer(t, "Provisioned", "two hosts")
			c.waitJob(id, "COMPLETED")
			c.noRooms()
			c.waitZero("cpu-[0-3]")
		})
		t.Run("failed", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 1", "-N2")
			answer(t, "Failed", "no such hosts in this zone")
			comment := c.givenBack(id, "cpu-[0-3]")
			assert.Contains(t, comment, "slurmtide: capacity: ProvisioningRequest ")
			assert.Contains(t, comment, "failed: no such hosts in this zone")
			c.noRooms()
			c.slurm("scancel", id)
		})
	})
}

// rooms are the ProvisioningRequests of the stack.
func (c *cluster) rooms() dynamic.ResourceInterface {
	c.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	require.NoError(c.t, err)
	all, err := dynamic.NewForConfig(config)
	require.NoError(c.t, err)
	return all.Resource(schema.GroupVersionResource{Group: "autoscaling.x-k8s.io", Version: "v1", Resource: "provisioningrequests"}).Namespace(c.ns)
}

// room waits until there is one request, and no more.
func (c *cluster) room() (request *unstructured.Unstructured) {
	c.t.Helper()
	rooms := c.rooms()
	c.eventually("one ProvisioningRequest", func() (bool, string) {
		list, err := rooms.List(c.ctx, metav1.ListOptions{})
		require.NoError(c.t, err)
		if len(list.Items) == 1 {
			request = &list.Items[0]
		}
		return len(list.Items) == 1, fmt.Sprint(len(list.Items))
	})
	return request
}

// answerRoom gives the request a condition.
func (c *cluster) answerRoom(request *unstructured.Unstructured, condition, message string) {
	c.t.Helper()
	require.NoError(c.t, unstructured.SetNestedSlice(request.Object, []any{map[string]any{
		"type": condition, "status": "True", "reason": "Test", "message": message, "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}}, "status", "conditions"))
	_, err := c.rooms().UpdateStatus(c.ctx, request, metav1.UpdateOptions{})
	require.NoError(c.t, err)
}

// noRooms waits until all requests and their templates are gone.
func (c *cluster) noRooms() {
	c.t.Helper()
	rooms := c.rooms()
	c.eventually("the request and its template to go", func() (bool, string) {
		list, err := rooms.List(c.ctx, metav1.ListOptions{})
		require.NoError(c.t, err)
		templates, err := c.kube.CoreV1().PodTemplates(c.ns).List(c.ctx, metav1.ListOptions{})
		require.NoError(c.t, err)
		return len(list.Items)+len(templates.Items) == 0, fmt.Sprint(len(list.Items), " and ", len(templates.Items))
	})
}
