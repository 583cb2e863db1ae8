package controlplane

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	tidefake "github.com/slurmtide/slurmtide/kube/generated/clientset/versioned/fake"
)

// Two daemons must not write the same objects: one of all namespaces leaves those that have their own.
func TestLeave(t *testing.T) {
	now := time.Now()
	l := loopWith()
	l.o.Now = func() time.Time { return now }
	left := func() time.Duration { return l.leave("a") }
	assert.Zero(t, left(), "this daemon is of one namespace itself")
	l.leases = cache.NewStore(cache.MetaNamespaceKeyFunc)
	assert.Zero(t, left(), "there is none")

	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: NamespaceLease}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("other"), LeaseDurationSeconds: new(int32(20)), RenewTime: &metav1.MicroTime{Time: now.Add(-time.Hour)}, // its clock is wrong
	}}
	write := func() { require.NoError(t, l.leases.Update(lease.DeepCopy())) }
	write()
	assert.Equal(t, 20*time.Second, left())
	assert.Zero(t, l.leave("b"))
	for range 5 {
		now = now.Add(15 * time.Second)
		lease.Spec.RenewTime = &metav1.MicroTime{Time: lease.Spec.RenewTime.Add(15 * time.Second)}
		write()
		assert.Equal(t, 20*time.Second, left(), "renewed")
	}
	now = now.Add(12 * time.Second)
	assert.Equal(t, 8*time.Second, left())
	now = now.Add(8 * time.Second)
	assert.Zero(t, left(), "not renewed")

	lease.Spec.RenewTime = &metav1.MicroTime{Time: now}
	write()
	assert.NotZero(t, left())
	lease.Spec.HolderIdentity = new("")
	write()
	assert.Zero(t, left(), "given back")
}

// What a daemon of all namespaces watches are those Leases alone; one of a single namespace watches none.
func TestWatchesLeases(t *testing.T) {
	for namespace, want := range map[string][]string{"": {"metadata.name=" + NamespaceLease}, "a": nil} {
		t.Run(namespace, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kube := kubefake.NewClientset()
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				l := newLoop(kube, tidefake.NewSimpleClientset(), dynamicfake.NewSimpleDynamicClient(scheme.Scheme), Options{Namespace: namespace, Log: slog.New(slog.DiscardHandler)})
				go func() { done <- l.Run(ctx) }()
				time.Sleep(time.Second)
				cancel()
				require.NoError(t, <-done)
				var watched []string
				for _, a := range kube.Actions() {
					if w, ok := a.(kubetesting.WatchAction); ok && a.GetResource().Resource == "leases" {
						watched = append(watched, w.GetWatchRestrictions().Fields.String())
					}
				}
				assert.Equal(t, want, watched)
			})
		})
	}
}
