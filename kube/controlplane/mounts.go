package controlplane

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// Directories of containers that can be written to, and go with the pod.
const (
	tmpDir = "/tmp" // the user's scripts, what is typed with kubectl exec, configurations that are tried
	// pid file, and the socket at which auth/slurm gives out credentials
	runSlurmctldDir = "/run/slurmctld"
	runSlurmdbdDir  = "/run/slurmdbd"
	logDir          = "/var/log/slurm" // for log files in the user's lines; ours go to stderr
)

const scratchVolume = "scratch"

// scratch is what containers write to that can write nowhere else.
func scratch() corev1.Volume {
	return corev1.Volume{Name: scratchVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

// scratchName is what a directory is called in its container's part of the volume.
func scratchName(dir string) string { return strings.ReplaceAll(dir[1:], "/", "-") }

// scratchMounts are directories that a container has for itself.
func scratchMounts(container string, dirs ...string) (mounts []corev1.VolumeMount) {
	for _, dir := range dirs {
		mounts = append(mounts, corev1.VolumeMount{Name: scratchVolume, SubPath: container + "/" + scratchName(dir), MountPath: dir})
	}
	return mounts
}

// withMounts adds mounts to a container, and the user's, which take the place of those at the same path.
func withMounts(c *corev1.Container, mounts []corev1.VolumeMount, o *v1alpha1.DaemonOptions) {
	var theirs []corev1.VolumeMount
	if o != nil {
		theirs = o.VolumeMounts
	}
	for _, m := range mounts {
		if !slices.ContainsFunc(theirs, func(t corev1.VolumeMount) bool { return path.Clean(t.MountPath) == m.MountPath }) {
			c.VolumeMounts = append(c.VolumeMounts, m)
		}
	}
	c.VolumeMounts = append(c.VolumeMounts, theirs...)
}
