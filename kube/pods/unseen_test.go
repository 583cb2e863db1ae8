package pods

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	tidefake "github.com/slurmtide/slurmtide/kube/generated/clientset/versioned/fake"
	"github.com/slurmtide/slurmtide/powersave"
)

// A pod that Create has told of comes and goes, and the watch says nothing of it. One that is there still is left alone, and one that the
// watch tells of in the end is not looked for any more.
func TestUnseenPods(t *testing.T) {
	var news *watch.FakeWatcher
	runningWith(t, func(kube *kubefake.Clientset) {
		news = watch.NewFake() // in the bubble
		kube.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
			pod.UID = types.UID("of-" + pod.Name)
			return false, nil, nil
		})
		kube.PrependWatchReactor("pods", clienttesting.DefaultWatchReactor(news, nil))
	}, func(ctx context.Context, c *Client, kube *kubefake.Clientset, _ *tidefake.Clientset, r *record) {
		pods := kube.CoreV1().Pods("slurm")
		for _, node := range []string{"cpu-1", "cpu-2", "cpu-3"} {
			_, err := c.Create(ctx, powersave.CreatePod{NodeSet: "cpu", Node: node, Generation: 1, Request: "r"})
			require.NoError(t, err)
		}
		shown, err := pods.Get(ctx, "cpu-3", metav1.GetOptions{})
		require.NoError(t, err)
		news.Add(shown)
		synctest.Wait()
		r.take()
		require.NoError(t, pods.Delete(ctx, "cpu-1", metav1.DeleteOptions{}))
		require.NoError(t, pods.Delete(ctx, "cpu-3", metav1.DeleteOptions{}))
		time.Sleep(3 * lookForUnseen)
		synctest.Wait()
		assert.Equal(t, []string{"gone cpu-1/of-cpu-1"}, r.take(), "cpu-2 is there, and the end of cpu-3 is the watch's to tell")

		require.NoError(t, pods.Delete(ctx, "cpu-2", metav1.DeleteOptions{}))
		time.Sleep(3 * lookForUnseen)
		synctest.Wait()
		assert.Equal(t, []string{"gone cpu-2/of-cpu-2"}, r.take())
		assert.Empty(t, c.unseen)
	}, Options{}, newNodeSet("cpu", "cpu-[0-9]"))
}
