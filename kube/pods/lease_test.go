package pods

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	tidefake "github.com/slurmtide/slurmtide/kube/generated/clientset/versioned/fake"
)

func TestLeaseName(t *testing.T) {
	for cluster, want := range map[string]string{
		"tide":   "slurmtide-bridge-tide",
		"hpc-1":  "slurmtide-bridge-hpc-1",
		"hpc_1":  "slurmtide-bridge-hpc-1-[0-9a-f]{8}",
		"h__p_c": "slurmtide-bridge-h--p-c-[0-9a-f]{8}",
	} {
		assert.Regexp(t, "^"+want+"$", LeaseName(cluster))
	}
}

// leaseServer is an API server that keeps leases, for several clients.
type leaseServer struct {
	kube *kubefake.Clientset
}

// candidate is one bridge that wants the lease.
type candidate struct {
	t    *testing.T
	stop func()

	mu   sync.Mutex
	fail func(verb string) error // what a call comes to before it reaches the server
	told []Leadership
}

func (c *candidate) now() Leadership {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.told) == 0 {
		return Leadership{}
	}
	return c.told[len(c.told)-1]
}

func (c *candidate) times() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.told)
}

func (c *candidate) failWith(f func(verb string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = f
}

// run lets a bridge try to lead.
func (s *leaseServer) run(t *testing.T, identity string, fail func(verb string) error) *candidate {
	c := &candidate{t: t, fail: fail}
	kube := kubefake.NewClientset()
	kube.PrependReactor("*", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		f := c.fail
		c.mu.Unlock()
		if f != nil {
			if err := f(a.GetVerb()); err != nil {
				return true, nil, err
			}
		}
		obj, err := s.kube.Invokes(a, &coordinationv1.Lease{})
		return true, obj, err
	})
	client := newClient(kube, tidefake.NewSimpleClientset(), "slurm", "tide", Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- client.Lead(ctx, identity, func(l Leadership) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.told = append(c.told, l)
		})
	}()
	c.stop = func() {
		cancel()
		require.NoError(t, <-done)
	}
	return c
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var errAway = &netError{errors.New("connection refused")}

func TestLead(t *testing.T) {
	t.Run("one leads, the other takes over when it ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &leaseServer{kubefake.NewClientset()}
			a := s.run(t, "host-a", nil)
			synctest.Wait()
			assert.Equal(t, Leadership{Leading: true, Holder: "host-a"}, a.now())
			b := s.run(t, "host-b", nil)
			defer b.stop()
			pass(time.Minute)
			assert.Equal(t, Leadership{Leading: true, Holder: "host-a"}, a.now())
			assert.Equal(t, Leadership{Holder: "host-a"}, b.now())
			told := a.times()
			pass(time.Hour)
			assert.Equal(t, told, a.times(), "what does not change is not told")
			a.stop()
			pass(5 * time.Second)
			assert.Equal(t, Leadership{Leading: true, Holder: "host-b"}, b.now())
			lease, err := s.kube.CoordinationV1().Leases("slurm").Get(t.Context(), "slurmtide-bridge-tide", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, "host-b", *lease.Spec.HolderIdentity)
		})
	})
	t.Run("one that loses the API server knows before the other takes over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &leaseServer{kubefake.NewClientset()}
			a := s.run(t, "host-a", nil)
			defer a.stop()
			pass(time.Second)
			b := s.run(t, "host-b", nil)
			defer b.stop()
			pass(10 * time.Second)
			a.failWith(func(string) error { return errAway })
			var lost, taken time.Duration
			for at := time.Duration(0); taken == 0 && at < time.Minute; at += 100 * time.Millisecond {
				pass(100 * time.Millisecond)
				if !a.now().Leading && lost == 0 {
					lost = at
				}
				if b.now().Leading {
					taken = at
				}
			}
			assert.NotZero(t, lost)
			assert.Greater(t, taken, lost)
			assert.Less(t, taken, 26*time.Second)
			require.Error(t, a.now().Err)
			a.failWith(nil)
			pass(10 * time.Second)
			assert.Equal(t, Leadership{Holder: "host-b"}, a.now())
		})
	})
	t.Run("one that was frozen learns at once that another has taken it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &leaseServer{kubefake.NewClientset()}
			a := s.run(t, "host-a", nil)
			pass(time.Second)
			leases := s.kube.CoordinationV1().Leases("slurm")
			lease, err := leases.Get(t.Context(), "slurmtide-bridge-tide", metav1.GetOptions{})
			require.NoError(t, err)
			lease.Spec.HolderIdentity = new("host-b")
			_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
			require.NoError(t, err)
			a.failWith(func(verb string) error { // what the API server says of an old resourceVersion
				if verb == "update" {
					return apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, lease.Name, errors.New("it has changed"))
				}
				return nil
			})
			pass(2500 * time.Millisecond)
			assert.Equal(t, Leadership{Holder: "host-b"}, a.now())
			a.failWith(nil)
			a.stop()
			lease, err = leases.Get(t.Context(), lease.Name, metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, "host-b", *lease.Spec.HolderIdentity, "it does not give back what is not its own")
		})
	})
	t.Run("one that was killed takes its own lease at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &leaseServer{kubefake.NewClientset()}
			a := s.run(t, "host-a", nil)
			pass(time.Second)
			a.failWith(func(string) error { return errAway }) // it does not give the lease back
			a.stop()
			other := s.run(t, "host-b", nil)
			defer other.stop()
			pass(time.Second)
			assert.False(t, other.now().Leading)
			again := s.run(t, "host-a", nil)
			defer again.stop()
			synctest.Wait()
			assert.True(t, again.now().Leading)
		})
	})
	for _, verb := range []string{"get", "create", "update"} {
		t.Run("without the right to "+verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &leaseServer{kubefake.NewClientset()}
				if verb == "update" {
					_, err := s.kube.CoordinationV1().Leases("slurm").Create(t.Context(),
						&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: "slurmtide-bridge-tide"}}, metav1.CreateOptions{})
					require.NoError(t, err)
				}
				a := s.run(t, "host-a", func(v string) error {
					if v != verb {
						return nil
					}
					return apierrors.NewForbidden(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, "slurmtide-bridge-tide",
						errors.New(`User "x" cannot `+verb+` resource "leases" in API group "coordination.k8s.io"`))
				})
				defer a.stop()
				pass(10 * time.Minute)
				assert.False(t, a.now().Leading)
				require.ErrorContains(t, a.now().Err, `the right "`+verb+` leases.coordination.k8s.io" is missing in namespace slurm`)
				assert.Equal(t, 1, a.times(), "said once")
				a.failWith(nil)
				pass(5 * time.Second)
				assert.Equal(t, Leadership{Leading: true, Holder: "host-a"}, a.now())
			})
		})
	}
}
