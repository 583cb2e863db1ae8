package controlplane

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/controlplane/inplace"
)

func backed(n int32) *v1alpha1.Controller {
	return controller(func(c *v1alpha1.Controller) {
		c.Spec.Backups = n
		c.Spec.Persistence.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	})
}

func TestBackupsInConfig(t *testing.T) {
	files, err := Config(Cluster{Controller: backed(2), Settings: settings})
	require.NoError(t, err)
	const lines = "SlurmctldHost=tide-controller-0(tide-controller-0.slurm.svc.cluster.local)\n" +
		"SlurmctldHost=tide-controller-1(tide-controller-1.slurm.svc.cluster.local)\n" +
		"SlurmctldHost=tide-controller-2(tide-controller-2.slurm.svc.cluster.local)\n"
	assert.Contains(t, files["slurm.conf"], lines)
	client, err := ClientConfig(backed(2), settings)
	require.NoError(t, err)
	assert.Contains(t, client["slurm.conf"], lines, "slurmrestd finds the one that has taken over")
	assert.Equal(t, "tide-controller-0.slurm.svc.cluster.local:6817,tide-controller-1.slurm.svc.cluster.local:6817", confServer(backed(1), settings))
}

func TestBackupsStatus(t *testing.T) {
	up, down := corev1.ContainerStatus{Name: ContainerSlurmctld, Ready: true}, corev1.ContainerStatus{Name: ContainerSlurmctld}
	named := func(name string, r inplace.Report, s corev1.ContainerStatus) *corev1.Pod {
		p := pod(t, r, s)
		p.Name = name
		return p
	}
	silent := func(p *corev1.Pod) *corev1.Pod {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionFalse}}
		return p
	}
	const first, later = "2026-11-22T10:00:00Z", "2026-11-22T10:00:09Z"
	tests := map[string]struct {
		pods                              []*corev1.Pod
		inControl                         string
		available, backups, configInForce string
	}{
		"new": {nil, "", "False NoPod: there is no pod of slurmctld yet",
			"False Missing: there is no pod tide-controller-0; there is no pod tide-controller-1", "False Pending: slurmctld has not read the configuration yet"},
		"well": {[]*corev1.Pod{named("tide-controller-0", inplace.Report{InForce: "a", ControlSince: first}, up), named("tide-controller-1", inplace.Report{InForce: "a"}, up)},
			"tide-controller-0", "True Answers: slurmctld answers", "True StandBy: slurmctld stands by in tide-controller-1", "True InForce: slurmctld and the nodes that are up run with the configuration"},
		"a backup has not read it": {[]*corev1.Pod{named("tide-controller-0", inplace.Report{InForce: "a", ControlSince: first}, up), named("tide-controller-1", inplace.Report{InForce: "b"}, up)},
			"tide-controller-0", "True Answers: slurmctld answers", "True StandBy: slurmctld stands by in tide-controller-1",
			"False Pending: slurmctld runs with the configuration; those that stand by have not all read it yet: tide-controller-1"},
		"the first one's host is silent": {[]*corev1.Pod{silent(named("tide-controller-0", inplace.Report{InForce: "old", ControlSince: first}, up)), named("tide-controller-1", inplace.Report{InForce: "a", ControlSince: later}, up)},
			"tide-controller-1", "True Answers: slurmctld answers", "False Missing: slurmctld in pod tide-controller-0 does not answer", "True InForce: slurmctld and the nodes that are up run with the configuration"},
		"the first is lost": {[]*corev1.Pod{named("tide-controller-0", inplace.Report{InForce: "old", ControlSince: first}, down), named("tide-controller-1", inplace.Report{InForce: "a", ControlSince: later}, up)},
			"tide-controller-1", "True Answers: slurmctld answers", "False Missing: slurmctld in pod tide-controller-0 does not answer", "True InForce: slurmctld and the nodes that are up run with the configuration"},
		"the backup is lost": {[]*corev1.Pod{named("tide-controller-0", inplace.Report{InForce: "a", ControlSince: later}, up), named("tide-controller-1", inplace.Report{InForce: "old", ControlSince: first}, down)},
			"tide-controller-0", "True Answers: slurmctld answers", "False Missing: slurmctld in pod tide-controller-1 does not answer", "True InForce: slurmctld and the nodes that are up run with the configuration"},
		"and its pod, too": {[]*corev1.Pod{named("tide-controller-1", inplace.Report{InForce: "a", ControlSince: later}, up)},
			"tide-controller-1", "True Answers: slurmctld answers", "False Missing: there is no pod tide-controller-0", "True InForce: slurmctld and the nodes that are up run with the configuration"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := backed(1)
			s := ControllerStatus(c, SeenController{Hash: "a", Pods: test.pods})
			assert.Equal(t, test.inControl, s.InControl)
			for kind, want := range map[string]string{v1alpha1.ConditionAvailable: test.available, v1alpha1.ConditionBackupsReady: test.backups, v1alpha1.ConditionConfigInForce: test.configInForce} {
				one := meta.FindStatusCondition(s.Conditions, kind)
				require.NotNil(t, one, kind)
				assert.Equal(t, want, string(one.Status)+" "+one.Reason+": "+one.Message)
			}
			c.Status, c.Spec.Backups = s, 0
			s = ControllerStatus(c, SeenController{Hash: "a", Pods: test.pods})
			assert.Nil(t, meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionBackupsReady), "it has none any more")
			assert.Empty(t, s.InControl)
		})
	}
}

// One claim for all: a StatefulSet would make one for each.
func TestSharedClaim(t *testing.T) {
	claim := func(mode corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: "statesave-tide-controller-0"},
			Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{mode}},
		}
	}
	withTemplate := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "tide-controller"}, Spec: appsv1.StatefulSetSpec{VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{}}}}
	tests := map[string]struct {
		c       *v1alpha1.Controller
		live    *appsv1.StatefulSet
		there   []runtime.Object
		made    bool
		problem string // how it begins
	}{
		"new":                    {c: backed(1), made: true},
		"backups may come later": {c: backed(0), made: true},
		"there already":          {c: backed(1), there: []runtime.Object{claim(corev1.ReadWriteMany)}},
		"of one host":            {c: backed(1), there: []runtime.Object{claim(corev1.ReadWriteOnce)}, problem: "claim statesave-tide-controller-0 is there already, with access modes [ReadWriteOnce]"},
		"one for each":           {c: backed(1), live: withTemplate, problem: "StatefulSet tide-controller makes a claim for each pod"},
		"one, without backups":   {c: backed(0), live: withTemplate},
		"the StatefulSet's":      {c: controller(nil)},
		"the user's, of one host": {c: controller(func(c *v1alpha1.Controller) {
			c.Spec.Backups, c.Spec.Persistence.ExistingClaim = 1, "statesave-tide-controller-0"
		}), there: []runtime.Object{claim(corev1.ReadWriteOnce)}, problem: "claim statesave-tide-controller-0 is there already"},
		"the user's": {c: controller(func(c *v1alpha1.Controller) {
			c.Spec.Backups, c.Spec.Persistence.ExistingClaim = 1, "statesave-tide-controller-0"
		}), there: []runtime.Object{claim(corev1.ReadWriteMany)}},
		"somebody's": {c: controller(func(c *v1alpha1.Controller) { c.Spec.Backups, c.Spec.Persistence.ExistingClaim = 1, "state" })},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			kube := kubefake.NewClientset(test.there...)
			l := &Loop{kube: kube, o: Options{Settings: settings}}
			err := l.sharedClaim(t.Context(), test.c, test.live)
			if test.problem == "" {
				require.NoError(t, err)
			} else {
				var p *Problem
				require.ErrorAs(t, err, &p)
				assert.Equal(t, "ClaimNotShared", p.Reason)
				assert.Contains(t, p.Message, test.problem)
			}
			made, err := kube.CoreV1().PersistentVolumeClaims("slurm").List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			if !test.made {
				assert.Len(t, made.Items, len(test.there))
				return
			}
			require.Len(t, made.Items, 1)
			one := made.Items[0]
			assert.Equal(t, "statesave-tide-controller-0", one.Name)
			assert.Equal(t, "4Gi", one.Spec.Resources.Requests.Storage().String())
			assert.Empty(t, one.OwnerReferences, "the state stays")
		})
	}
}
