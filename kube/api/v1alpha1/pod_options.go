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
