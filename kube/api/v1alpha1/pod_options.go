package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// ContainerOptions are the settings of a container that are left to the user; the others are Slurmtide's.
type ContainerOptions struct {
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// +optional
	// +kubebuilder:validation:Enum=Always;Never;IfNotPresent
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// Arguments after those that Slurmtide gives.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Args []string `json:"args,omitempty"`

	// Environment variables beside those that Slurmtide sets.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=128
	// +listType=map
	// +listMapKey=name
	Env []corev1.EnvVar `json:"env,omitempty"`

	// Requests and limits. Default: small requests, no limits.
	//
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
}

// DaemonOptions are the settings of a daemon's container: those of any, its volumes, and when Kubernetes takes it for dead. What the probes ask is Slurmtide's.
type DaemonOptions struct {
	ContainerOptions `json:",inline"`

	// When it begins to count as started. Until then no other probe is made.
	//
	// +optional
	StartupProbe *ProbeOptions `json:"startupProbe,omitempty"`

	// When it is ended and started again. slurmctld has such a probe of its own accord; others have one when this is given, {} for example.
	//
	// +optional
	LivenessProbe *ProbeOptions `json:"livenessProbe,omitempty"`

	// When it is ready for clients.
	//
	// +optional
	ReadinessProbe *ProbeOptions `json:"readinessProbe,omitempty"`

	// Where volumes of spec.template.spec.volumes are mounted: home directories in login pods, for example, which jobs need at the same place, or, as the root file
	// systems of the daemons are read-only, a directory for slurmctld's log files.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=mountPath
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
}

// SidecarOptions are the settings of a container that Slurmtide puts beside a daemon, with its image.
type SidecarOptions struct {
	// Requests and limits. Default: small requests, no limits.
	//
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
}

// ProbeOptions are the times of a probe. Those that are not given are Slurmtide's, or else Kubernetes'.
type ProbeOptions struct {
	// Seconds after the container's start until the first probe.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	InitialDelaySeconds int32 `json:"initialDelaySeconds,omitempty"`

	// Seconds from one probe to the next.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`

	// Seconds after which a probe has failed.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=600
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// How many probes in a row have to fail. 2147483647 is never.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
}

// PodOptions are the settings of a pod that are left to the user, where a pod template has them.
type PodOptions struct {
	// +optional
	Metadata PodMetadata `json:"metadata,omitzero"`

	// +optional
	Spec PodSpecOptions `json:"spec,omitzero"`
}

// PodMetadata are labels and annotations beside those of Slurmtide.
type PodMetadata struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PodSpecOptions are fields of a pod spec.
type PodSpecOptions struct {
	// +optional
	// +mapType=atomic
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// Users and groups of the pod; fields that are not given are Slurmtide's. runAsUser and runAsGroup must be those of the user slurm in the
	// image (64030 in Debian's; 401 in slurm-operator's).
	//
	// +optional
	SecurityContext *PodSecurityOptions `json:"securityContext,omitempty"`

	// false: users of the pod, root among them, are nobody on its host (a user namespace). The container runtime and the file systems of the pod's volumes
	// have to support it. Default: true.
	//
	// +optional
	HostUsers *bool `json:"hostUsers,omitempty"`

	// Volumes for volumeMounts, beside Slurmtide's own, whose names cannot be used again.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	Volumes []corev1.Volume `json:"volumes,omitempty"`
}

// PodSecurityOptions are users and groups of a pod.
type PodSecurityOptions struct {
	// +optional
	// +kubebuilder:validation:Minimum=1
	RunAsUser *int64 `json:"runAsUser,omitempty"`

	// +optional
	// +kubebuilder:validation:Minimum=1
	RunAsGroup *int64 `json:"runAsGroup,omitempty"`

	// Group of the volumes.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	FSGroup *int64 `json:"fsGroup,omitempty"`
}
