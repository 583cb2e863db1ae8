//go:build integration && keda

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slurmtide/slurmtide/hack/stack"
)

// slinkyNodeSets is what of slurm-operator's NodeSets KEDA and the HorizontalPodAutoscaler see.
const slinkyNodeSets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nodesets.slinky.slurm.net}
spec:
  group: slinky.slurm.net
  scope: Namespaced
  names: {kind: NodeSet, listKind: NodeSetList, plural: nodesets, singular: nodeset}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
`

var slinkyNodeSet = schema.GroupVersionResource{Group: "slinky.slurm.net", Version: "v1beta1", Resource: "nodesets"}

// Replicas alone bring the nodes here: neither slurmctld nor the bridge makes any. KEDA scales the NodeSet of another operator, by the
// ScaledObject of the user guide as it is, and the job runs.
func TestKEDAOthers(t *testing.T) {
	kubectl(t, slinkyNodeSets, "apply", "-f", "-")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		_, err := tryKubectl(ctx, slinkyNodeSets, "delete", "-f", "-")
		assert.NoError(t, err)
	})
	forEachVersionInTurn(t, func(t *testing.T, version string) {
		const shape = "CPUs=16 RealMemory=62000 Feature=worker"
		o := stack.Options{
			NodeLines:      []string{"NodeSet=worker Feature=worker"},
			PartitionLines: []string{"PartitionName=worker Nodes=worker Default=YES"},
			ExtraConf:      []string{"MaxNodeCount=64", "SuspendExcStates=DYNAMIC_NORM"},
			NoBridge:       true,
		}
		if version == "24.11" { // refuses jobs for more nodes than it has records of, see docs/dynamic.md
			o.NodeLines = append(o.NodeLines, "NodeName=shape-[0-9] "+shape+" State=DOWN Reason=shape")
		}
		c := deployKEDA(t, version, o)
		c.playSlinky("worker", shape)
		kubectl(t, "", "apply", "-f", examples+"scaledobject-slinky.yaml")
		t.Cleanup(func() { // the finalizer is KEDA's: before the namespace
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
			defer cancel()
			_, err := tryKubectl(ctx, "", "-n", c.ns, "delete", "scaledobject", "worker")
			assert.NoError(t, err)
		})
		c.scaledObjectIs("worker", "Ready", "True")
		began := time.Now()
		id := c.sbatch("sleep 20", "-N10", "--exclusive")
		c.kedaFigure("replicas alone: sbatch to a 10-node job running", version, c.untilRunning(id, began), 25*time.Second)
		c.waitJob(id, "COMPLETED")
	})
}

// playSlinky makes a NodeSet of slurm-operator, and does what the operator would for it: as many pods with a slurmd as spec.replicas says.
func (c *cluster) playSlinky(name, shape string) {
	c.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	require.NoError(c.t, err)
	client, err := dynamic.NewForConfig(config)
	require.NoError(c.t, err)
	sets := client.Resource(slinkyNodeSet).Namespace(c.ns)
	object := map[string]any{"apiVersion": slinkyNodeSet.GroupVersion().String(), "kind": "NodeSet", "metadata": map[string]any{"name": name}, "spec": map[string]any{"replicas": int64(0)}}
	_, err = sets.Create(c.ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	ctx, stop := context.WithCancel(c.ctx)
	done := make(chan error, 1)
	go func() {
		for have := int64(-1); ; {
			set, err := sets.Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				want, _, _ := unstructured.NestedInt64(set.Object, "spec", "replicas")
				if err = c.workers(ctx, name, shape, want); err == nil && want != have {
					status, _ := json.Marshal(map[string]any{"status": map[string]any{"replicas": want, "selector": "worker=" + name}})
					_, err = sets.Patch(ctx, name, types.MergePatchType, status, metav1.PatchOptions{}, "status")
					have = want
				}
			}
			switch {
			case ctx.Err() != nil:
				done <- nil
				return
			case err != nil:
				done <- err
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
	}()
	t := c.t
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done, "what plays slurm-operator")
	})
}

// workers creates the pods worker-0 to worker-(n-1) that are missing, and deletes the others.
func (c *cluster) workers(ctx context.Context, name, shape string, n int64) error {
	selector := metav1.ListOptions{LabelSelector: "worker=" + name}
	list, err := c.kube.CoreV1().Pods(c.ns).List(ctx, selector)
	if err != nil {
		return err
	}
	missing := map[string]bool{}
	for i := range n {
		missing[fmt.Sprintf("%s-%d", name, i)] = true
	}
	for _, p := range list.Items {
		if missing[p.Name] {
			delete(missing, p.Name)
		} else if p.DeletionTimestamp == nil {
			if err := c.kube.CoreV1().Pods(c.ns).Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	for node := range maps.Keys(missing) {
		spec := stack.PodTemplate(c.Options).Spec
		spec.Containers[0].Args = []string{"slurmd", "-D", "-b", "-N", node, "-Z", "--conf", shape, "--conf-server", c.ConfServer()}
		spec.Hostname, spec.RestartPolicy = node, corev1.RestartPolicyNever
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"worker": name}}, Spec: spec}
		if _, err := c.kube.CoreV1().Pods(c.ns).Create(ctx, pod, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}
