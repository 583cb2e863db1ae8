package controlplane

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// podsOf are the pod templates among objects.
func podsOf(objects []Object) (all []corev1.PodSpec) {
	for _, o := range objects {
		switch o := o.(type) {
		case *appsv1.StatefulSet:
			all = append(all, o.Spec.Template.Spec)
		case *appsv1.Deployment:
			all = append(all, o.Spec.Template.Spec)
		}
	}
	return all
}

// Every daemon's probes take the user's times, keep what they ask, and no other container of the pod has them.
func TestProbes(t *testing.T) {
	set := v1alpha1.DaemonOptions{
		ContainerOptions: v1alpha1.ContainerOptions{Image: "slurmtide/slurm:26.05"},
		StartupProbe:     &v1alpha1.ProbeOptions{InitialDelaySeconds: 11, FailureThreshold: 12},
		LivenessProbe:    &v1alpha1.ProbeOptions{PeriodSeconds: 21, TimeoutSeconds: 22},
		ReadinessProbe:   &v1alpha1.ProbeOptions{PeriodSeconds: 31, FailureThreshold: 32},
	}
	// daemon are the objects of each, with its options.
	daemon := map[string]func(*v1alpha1.DaemonOptions) ([]Object, error){
		ContainerSlurmctld: func(o *v1alpha1.DaemonOptions) ([]Object, error) {
			return ControllerObjects(controller(func(c *v1alpha1.Controller) { c.Spec.Slurmctld = o }), nil, settings)
		},
		ContainerSlurmdbd: func(o *v1alpha1.DaemonOptions) ([]Object, error) {
			return AccountingObjects(accounting(func(a *v1alpha1.Accounting) { a.Spec.Slurmdbd = o }), "hash"), nil
		},
		ContainerSlurmrestd: func(o *v1alpha1.DaemonOptions) ([]Object, error) {
			r := &v1alpha1.RestApi{ObjectMeta: metav1.ObjectMeta{Name: "tide", Namespace: "slurm"}, Spec: v1alpha1.RestApiSpec{Slurmrestd: o}}
			return RestApiObjects(r, controller(nil), nil, settings)
		},
		ContainerLogin: func(o *v1alpha1.DaemonOptions) ([]Object, error) {
			return LoginSetObjects(loginSet(func(s *v1alpha1.LoginSet) { s.Spec.Login = o }), controller(nil), nil, settings)
		},
	}
	for name, of := range daemon {
		t.Run(name, func(t *testing.T) {
			containers := func(o *v1alpha1.DaemonOptions) (all []corev1.Container, it corev1.Container) {
				objects, err := of(o)
				require.NoError(t, err)
				pods := podsOf(objects)
				require.Len(t, pods, 1)
				all = append(all, pods[0].InitContainers...)
				for _, c := range pods[0].Containers {
					if c.Name == name {
						it = c
						continue
					}
					all = append(all, c)
				}
				require.NotNil(t, it.ReadinessProbe)
				return all, it
			}
			plainOthers, plain := containers(&v1alpha1.DaemonOptions{ContainerOptions: set.ContainerOptions})
			others, c := containers(&set)
			assert.Equal(t, plainOthers, others)

			assert.Equal(t, plain.ReadinessProbe.ProbeHandler, c.ReadinessProbe.ProbeHandler)
			assert.EqualValues(t, 31, c.ReadinessProbe.PeriodSeconds)
			assert.EqualValues(t, 32, c.ReadinessProbe.FailureThreshold)
			assert.Equal(t, plain.ReadinessProbe.TimeoutSeconds, c.ReadinessProbe.TimeoutSeconds, "not given")

			ask := plain.ReadinessProbe.ProbeHandler
			if plain.LivenessProbe != nil {
				ask = plain.LivenessProbe.ProbeHandler
			}
			assert.Equal(t, ask, c.LivenessProbe.ProbeHandler)
			assert.EqualValues(t, 21, c.LivenessProbe.PeriodSeconds)
			assert.EqualValues(t, 22, c.LivenessProbe.TimeoutSeconds)

			assert.Equal(t, plain.ReadinessProbe.ProbeHandler, c.StartupProbe.ProbeHandler)
			assert.EqualValues(t, 11, c.StartupProbe.InitialDelaySeconds)
			assert.EqualValues(t, 12, c.StartupProbe.FailureThreshold)

			// Turned on with nothing said, it ends no daemon that starts.
			_, c = containers(&v1alpha1.DaemonOptions{ContainerOptions: set.ContainerOptions, LivenessProbe: &v1alpha1.ProbeOptions{}})
			assert.Equal(t, ask, c.LivenessProbe.ProbeHandler)
			assert.EqualValues(t, math.MaxInt32, c.StartupProbe.FailureThreshold)
			assert.Equal(t, plain.ReadinessProbe, c.ReadinessProbe)
		})
	}
}

// A startup probe is added only with a liveness probe that is asked for, and not in place of the daemon's own.
func TestAddedStartupProbe(t *testing.T) {
	asks := func(path string) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path}}, PeriodSeconds: 5}
	}
	live := &v1alpha1.DaemonOptions{LivenessProbe: &v1alpha1.ProbeOptions{PeriodSeconds: 9}}
	tests := map[string]struct {
		own     *corev1.Probe
		options *v1alpha1.DaemonOptions
		want    *corev1.Probe
	}{
		"nothing said":      {options: &v1alpha1.DaemonOptions{}},
		"only of readiness": {options: &v1alpha1.DaemonOptions{ReadinessProbe: &v1alpha1.ProbeOptions{PeriodSeconds: 3}}},
		"liveness":          {options: live, want: &corev1.Probe{ProbeHandler: asks("/ready").ProbeHandler, PeriodSeconds: 1, FailureThreshold: math.MaxInt32}},
		"liveness, own":     {own: asks("/started"), options: live, want: asks("/started")},
		"nothing said, own": {own: asks("/started"), options: &v1alpha1.DaemonOptions{}, want: asks("/started")},
		"no options at all": {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := corev1.Container{StartupProbe: test.own, ReadinessProbe: asks("/ready")}
			withProbes(&c, test.options)
			assert.Equal(t, test.want, c.StartupProbe)
		})
	}
}
