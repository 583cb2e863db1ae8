package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Two daemons must not write the same objects: one of all namespaces leaves those that have their own.
func TestLeave(t *testing.T) {
	now := time.Now()
	l := loopWith()
	l.o.Now = func() time.Time { return now }
	left := func() time.Duration {
		d, err := l.leave(t.Context(), "a")
		require.NoError(t, err)
		return d
	}
	assert.Zero(t, left(), "there is none")

	leases := l.kube.CoordinationV1().Leases("a")
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: NamespaceLease}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("other"), LeaseDurationSeconds: new(int32(20)), RenewTime: &metav1.MicroTime{Time: now.Add(-time.Hour)}, // its clock is wrong
	}}
	_, err := leases.Create(t.Context(), lease, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, 20*time.Second, left())
	other, err := l.leave(t.Context(), "b")
	require.NoError(t, err)
	assert.Zero(t, other)
	for range 5 {
		now = now.Add(15 * time.Second)
		lease.Spec.RenewTime = &metav1.MicroTime{Time: lease.Spec.RenewTime.Add(15 * time.Second)}
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		require.NoError(t, err)
		assert.Equal(t, 20*time.Second, left(), "renewed")
	}
	now = now.Add(12 * time.Second)
	assert.Equal(t, 8*time.Second, left())
	now = now.Add(8 * time.Second)
	assert.Zero(t, left(), "not renewed")

	lease.Spec.RenewTime = &metav1.MicroTime{Time: now}
	_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	require.NoError(t, err)
	assert.NotZero(t, left())
	lease.Spec.HolderIdentity = new("")
	_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	require.NoError(t, err)
	assert.Zero(t, left(), "given back")

	lease.Spec.HolderIdentity = new("this one")
	_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	require.NoError(t, err)
	l.o.Namespace = "a"
	assert.Zero(t, left(), "that is it itself")
}
