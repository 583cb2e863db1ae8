package v1alpha1

import corev1 "k8s.io/api/core/v1"

// VolumeClaimTemplate is a PersistentVolumeClaim of each node's own.
type VolumeClaimTemplate struct {
	// Its name and labels.
	Metadata VolumeClaimMetadata `json:"metadata"`

	// Storage class, size, access modes.
	Spec corev1.PersistentVolumeClaimSpec `json:"spec"`
}

// VolumeClaimMetadata is what a claim is called.
type VolumeClaimMetadata struct {
	// What volumeMounts of the template call the volume. The claim is called <name>-<node>.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	Name string `json:"name"`

	// Labels of the claim.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations of the claim.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ClaimRetention says whether a claim is kept.
//
// +kubebuilder:validation:Enum=Retain;Delete
type ClaimRetention string

const (
	// RetainClaim keeps it, and what is on the volume.
	RetainClaim ClaimRetention = "Retain"
	// DeleteClaim deletes it.
	DeleteClaim ClaimRetention = "Delete"
)

// ClaimRetentionPolicy says how long the claims of volumeClaimTemplates live.
type ClaimRetentionPolicy struct {
	// When the NodeSet is deleted.
	//
	// +optional
	// +kubebuilder:default=Retain
	WhenDeleted ClaimRetention `json:"whenDeleted,omitempty"`

	// When the node is powered down. Delete: the node finds an empty volume each time it comes up.
	//
	// +optional
	// +kubebuilder:default=Retain
	WhenScaled ClaimRetention `json:"whenScaled,omitempty"`
}
