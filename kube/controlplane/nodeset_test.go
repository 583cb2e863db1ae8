package controlplane

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	tidefake "github.com/slurmtide/slurmtide/kube/generated/clientset/versioned/fake"
)

// A NodeSet that nobody looks at says so, and nothing is said of one that somebody does.
func TestNodeSetAlone(t *testing.T) {
	for name, test := range map[string]struct {
		said       string // the reason of Accepted before
		controller bool
		kinds      []string
		want       string
		writes     int
	}{
		"nobody":                    {want: ReasonNoController, writes: 1},
		"its Controller is there":   {controller: true},
		"a bridge elsewhere":        {said: "Valid", want: "Valid"},
		"a bridge refuses it":       {said: "Invalid", want: "Invalid"},
		"a Controller has come":     {said: ReasonNoController, controller: true, writes: 1},
		"another daemon's, by kind": {kinds: []string{"Token"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := nodeSet("cpu", "cpu-0", func(s *v1alpha1.NodeSet) {
					s.CreationTimestamp, s.Generation = metav1.NewTime(time.Now()), 1
					if test.said != "" {
						setCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: test.said}, 1)
					}
				})
				tide := tidefake.NewSimpleClientset(set)
				if test.controller {
					require.NoError(t, tide.Tracker().Add(controller(nil)))
				}
				l := newLoop(fake.NewClientset(), tide, dynamicfake.NewSimpleDynamicClient(scheme.Scheme), Options{Settings: settings, Kinds: test.kinds, Workers: 1})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- l.Run(ctx) }()
				reason := func() string {
					now, err := tide.SlurmtideV1alpha1().NodeSets("slurm").Get(ctx, "cpu", metav1.GetOptions{})
					require.NoError(t, err)
					if one := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionAccepted); one != nil {
						return one.Reason
					}
					return ""
				}
				time.Sleep(aloneFor - time.Second)
				if test.said == "" {
					assert.Empty(t, reason(), "its Controller may be about to be made")
				}
				time.Sleep(3 * resyncEvery) // of the bubble
				assert.Equal(t, test.want, reason())
				writes := 0
				for _, action := range tide.Actions() {
					if action.GetSubresource() == "status" && action.GetResource().Resource == "nodesets" {
						writes++
					}
				}
				assert.Equal(t, test.writes, writes)
				cancel()
				require.NoError(t, <-done)
			})
		})
	}
}
