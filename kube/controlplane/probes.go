package controlplane

import (
	"cmp"
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// withProbes gives a daemon's probes the user's times. One that the daemon does not have by default asks what its readiness probe asks; and with
// a liveness probe goes a startup probe that never gives up, since reading a state, or waiting for a database, may take long.
func withProbes(c *corev1.Container, o *v1alpha1.DaemonOptions) {
	if o == nil {
		return
	}
	ask := c.ReadinessProbe
	if o.LivenessProbe != nil && c.StartupProbe == nil {
		c.StartupProbe = &corev1.Probe{ProbeHandler: ask.ProbeHandler, PeriodSeconds: 1, TimeoutSeconds: ask.TimeoutSeconds, FailureThreshold: math.MaxInt32}
	}
	c.StartupProbe = timed(c.StartupProbe, o.StartupProbe, ask)
	c.LivenessProbe = timed(c.LivenessProbe, o.LivenessProbe, ask)
	c.ReadinessProbe = timed(c.ReadinessProbe, o.ReadinessProbe, ask)
}

// timed is a probe with the user's times; ours may be nil, and then asks what another one asks.
func timed(ours *corev1.Probe, o *v1alpha1.ProbeOptions, ask *corev1.Probe) *corev1.Probe {
	if o == nil {
		return ours
	}
	if ours == nil {
		ours = &corev1.Probe{ProbeHandler: ask.ProbeHandler, TimeoutSeconds: ask.TimeoutSeconds}
	}
	p := ours.DeepCopy()
	p.InitialDelaySeconds = cmp.Or(o.InitialDelaySeconds, p.InitialDelaySeconds)
	p.PeriodSeconds = cmp.Or(o.PeriodSeconds, p.PeriodSeconds)
	p.TimeoutSeconds = cmp.Or(o.TimeoutSeconds, p.TimeoutSeconds)
	p.FailureThreshold = cmp.Or(o.FailureThreshold, p.FailureThreshold)
	return p
}

// containerOf are the settings that any container has.
func containerOf(o *v1alpha1.DaemonOptions) *v1alpha1.ContainerOptions {
	return &cmp.Or(o, &v1alpha1.DaemonOptions{}).DeepCopy().ContainerOptions
}
