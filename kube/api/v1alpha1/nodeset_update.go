package v1alpha1

import "k8s.io/apimachinery/pkg/util/intstr"

// UpdateStrategyType says what becomes of pods when the template or the shape changes.
//
// +kubebuilder:validation:Enum=OnDelete;RollingUpdate
type UpdateStrategyType string

const (
	// UpdateOnDelete leaves pods alone: the change reaches those that are made later.
	UpdateOnDelete UpdateStrategyType = "OnDelete"
	// UpdateRolling replaces pods, a few at a time, when no job is on them.
	UpdateRolling UpdateStrategyType = "RollingUpdate"
)

// UpdateStrategy says how a change of the template or the shape reaches pods that were made before.
//
// +kubebuilder:validation:XValidation:rule="!has(self.rollingUpdate) || self.type == 'RollingUpdate'",message="spec.updateStrategy.rollingUpdate needs type RollingUpdate beside it"
type UpdateStrategy struct {
	// OnDelete: the change reaches pods that are made later. RollingUpdate: pods that were made before are replaced, too, those of idle nodes first.
	// Busy nodes are drained in Slurm, and their pods replaced when the jobs have ended.
	//
	// +optional
	// +kubebuilder:default=OnDelete
	Type UpdateStrategyType `json:"type,omitempty"`

	// How they are replaced.
	//
	// +optional
	RollingUpdate *RollingUpdate `json:"rollingUpdate,omitempty"`
}

// RollingUpdate says how pods are replaced.
type RollingUpdate struct {
	// Most nodes that are out for it at once, drained ones with jobs among them: a number, or percent of the nodes that are powered up, rounded up.
	//
	// +optional
	// +kubebuilder:default="25%"
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^(100|[1-9][0-9]?)%$')",message="spec.updateStrategy.rollingUpdate.maxUnavailable must be 1 or more, or from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}
