package pods

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	tidefake "github.com/slurmtide/slurmtide/kube/generated/clientset/versioned/fake"
	"github.com/slurmtide/slurmtide/powersave"
)

// standby is a bridge's engine that is told of NodeSets and of the lease, in the order of the calls.
type standby struct {
	record

	mu     sync.Mutex
	engine *powersave.Engine
	lease  Leadership
}

func (s *standby) step(ev powersave.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine.Step(time.Now(), ev)
}

func (s *standby) NodeSets(sets []powersave.NodeSet) {
	s.mu.Lock()
	s.record.NodeSets(sets)
	s.mu.Unlock()
	s.step(powersave.NodeSetsRead{NodeSets: sets})
}

func (s *standby) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take()
}

func (s *standby) told(l Leadership) {
	s.step(powersave.Leading{Leading: l.Leading, Others: true})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = l
}

func (s *standby) now() (Leadership, []powersave.BreakerRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease, s.engine.Counts()[0].Breakers
}

// What a leader holds against a NodeSet goes over to the next one, also if that watches NodeSets since long before, and if the watch has not
// told of it.
func TestBreakersGoOverToTheNextLeader(t *testing.T) {
	broken := powersave.BreakerRecord{
		Key: powersave.BreakerKey{NodeSet: "cpu"}, State: powersave.BreakerOpen, Class: powersave.TroubleImage, Reason: "ErrImagePull",
		Failures: 1, Tries: 1, Spec: 1, SpecHash: "h",
	}
	for name, deaf := range map[string]bool{"": false, "the watch tells nothing": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kube, tide := kubefake.NewClientset(), tidefake.NewSimpleClientset(newNodeSet("cpu", "cpu-[0-9]"))
				if deaf {
					tide.PrependWatchReactor("nodesets", func(clienttesting.Action) (bool, watch.Interface, error) { return true, watch.NewFake(), nil })
				}
				var away atomic.Bool
				tide.PrependReactor("list", "nodesets", func(clienttesting.Action) (bool, runtime.Object, error) {
					return away.Load(), nil, &netError{errors.New("connection refused")}
				})
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				defer running.Wait()
				defer cancel()

				leads, quit := context.WithCancel(ctx)
				running.Go(func() {
					assert.NoError(t, newClient(kube, tide, "slurm", "tide", Options{}).Lead(leads, "host-a", func(Leadership) {}))
				})
				pass(time.Second)
				s := &standby{engine: powersave.New(powersave.Config{})}
				c := newClient(kube, tide, "slurm", "tide", Options{})
				running.Go(func() { assert.NoError(t, c.Run(ctx, s)) })
				running.Go(func() { assert.NoError(t, c.Lead(ctx, "host-b", s.told)) })
				pass(time.Minute)
				lease, _ := s.now()
				require.Equal(t, Leadership{Holder: "host-a"}, lease)
				s.taken()

				all := tide.SlurmtideV1alpha1().NodeSets("slurm")
				ns, err := all.Get(ctx, "cpu", metav1.GetOptions{})
				require.NoError(t, err)
				setBreakers(&ns.Status, ns, &powersave.NodeSetCounts{Breakers: []powersave.BreakerRecord{broken}})
				_, err = all.UpdateStatus(ctx, ns, metav1.UpdateOptions{})
				require.NoError(t, err)
				pass(time.Second)
				assert.Empty(t, s.taken(), "while another one leads its status is its own")

				away.Store(true)
				quit()
				pass(10 * time.Second)
				lease, _ = s.now()
				assert.Equal(t, "host-b", lease.Holder)
				assert.False(t, lease.Leading, "nobody leads who does not know what was held against NodeSets")
				require.ErrorContains(t, lease.Err, "to begin to lead")

				away.Store(false)
				pass(5 * time.Second)
				lease, breakers := s.now()
				assert.Equal(t, Leadership{Leading: true, Holder: "host-b"}, lease)
				assert.Equal(t, []powersave.BreakerRecord{broken}, breakers)
				assert.Equal(t, []string{"nodesets cpu=cpu-[0-9]"}, s.taken())
			})
		})
	}
}
