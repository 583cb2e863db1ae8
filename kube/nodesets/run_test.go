package nodesets

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	tidefake "github.com/slurmtide/slurmtide/kube/generated/clientset/versioned/fake"
)

// Until the NodeSets have been read it says why they cannot be; then it follows them.
func TestRun(t *testing.T) {
	tide := tidefake.NewSimpleClientset(nodeSet("a", "a-[0-1]", 1))
	var refused atomic.Bool
	var selector atomic.Value
	refused.Store(true)
	tide.PrependReactor("list", "nodesets", func(a ktesting.Action) (bool, runtime.Object, error) {
		selector.Store(a.(ktesting.ListAction).GetListRestrictions().Fields.String())
		return refused.Load(), nil, errors.New("nodesets.slurmtide.io is forbidden")
	})
	c := newCache(tide, "slurm", "c", nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		_, _, err := c.NodeSets()
		assert.ErrorContains(t, err, "the NodeSets in namespace slurm have not been read yet: ")
		assert.ErrorContains(t, err, "nodesets.slurmtide.io is forbidden")
	}, 10*time.Second, 10*time.Millisecond)
	assert.Equal(t, "spec.clusterRef.name=c", selector.Load())
	refused.Store(false)
	names := func(want ...string) {
		t.Helper()
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			sets, _, err := c.NodeSets()
			require.NoError(t, err)
			var got []string
			for _, s := range sets {
				got = append(got, s.Name)
			}
			assert.Equal(t, want, got)
		}, 20*time.Second, 10*time.Millisecond)
	}
	names("a")
	_, err := tide.SlurmtideV1alpha1().NodeSets("slurm").Create(ctx, nodeSet("b", "b-0", 1), metav1.CreateOptions{})
	require.NoError(t, err)
	names("a", "b")
	require.NoError(t, tide.SlurmtideV1alpha1().NodeSets("slurm").Delete(ctx, "a", metav1.DeleteOptions{}))
	names("b")
	cancel()
	require.NoError(t, <-done)
}
