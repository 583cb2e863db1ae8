package controlplane

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// Every object has its turn once a minute, and never all at once.
func TestResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 300
		l := &Loop{kinds: map[string]cache.Store{}, queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[key]())}
		defer l.queue.ShutDown()
		for _, kind := range []string{"Controller", "Token"} {
			store := cache.NewStore(cache.MetaNamespaceKeyFunc)
			for i := range each {
				require.NoError(t, store.Add(&v1alpha1.Token{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("slurm-", i), Name: "tide"}}))
			}
			l.kinds[kind] = store
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.resync(ctx)
		time.Sleep(950 * time.Millisecond) // all that is due in a second is in the queue by then
		turns := map[key]int{}
		for range 2 * int(resyncEvery/time.Second) {
			time.Sleep(time.Second)
			assert.Less(t, l.queue.Len(), 2*each/10, "at once")
			for l.queue.Len() > 0 {
				k, _ := l.queue.Get()
				turns[k]++
				l.queue.Done(k)
			}
		}
		require.Len(t, turns, 2*each)
		for k, n := range turns {
			assert.Equal(t, 2, n, k)
		}
	})
}

// Those of one second are not looked at all at once either.
func TestTurns(t *testing.T) {
	moments := map[time.Duration]int{}
	for i := range 1000 {
		second, after := key{"Controller", fmt.Sprint("slurm-", i), "tide"}.turn()
		assert.Less(t, after, time.Second)
		moments[time.Duration(second)*time.Second+after.Truncate(100*time.Millisecond)]++
	}
	assert.Greater(t, len(moments), 400, "of 540 tenths of seconds")
}
