package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// UpdateStrategyType says what becomes of pods when the template or the shape changes.
//
// +kubebuilder:validation:Enum=OnDelete;RollingUpdate;Scheduled
type UpdateStrategyType string

const (
	// UpdateOnDelete leaves pods alone: the change reaches those that are made later.
	UpdateOnDelete UpdateStrategyType = "OnDelete"
	// UpdateRolling replaces pods, a few at a time, when no job is on them.
	UpdateRolling UpdateStrategyType = "RollingUpdate"
	// UpdateScheduled does so in a window of time, which is reserved in Slurm.
	UpdateScheduled UpdateStrategyType = "Scheduled"
)

// UpdateStrategy says how a change of the template or the shape reaches pods that were made before.
//
// +kubebuilder:validation:XValidation:rule="!has(self.rollingUpdate) || self.type == 'RollingUpdate'",message="spec.updateStrategy.rollingUpdate needs type RollingUpdate beside it"
// +kubebuilder:validation:XValidation:rule="has(self.scheduled) == (has(self.type) && self.type == 'Scheduled')",message="spec.updateStrategy: type Scheduled and the field scheduled need each other"
type UpdateStrategy struct {
	// OnDelete: the change reaches pods that are made later. RollingUpdate: pods that were made before are replaced, too, those of idle nodes first.
	// Busy nodes are drained in Slurm, and their pods replaced when the jobs have ended. Scheduled: the same, in a window of time that is reserved in Slurm, so
	// that jobs which would run into it are not started on nodes with outdated pods.
	//
	// +optional
	// +kubebuilder:default=OnDelete
	Type UpdateStrategyType `json:"type,omitempty"`

	// How they are replaced.
	//
	// +optional
	RollingUpdate *RollingUpdate `json:"rollingUpdate,omitempty"`

	// When they are replaced.
	//
	// +optional
	Scheduled *ScheduledUpdate `json:"scheduled,omitempty"`
}

// ScheduledUpdate is a window of time in which pods are replaced.
//
// +kubebuilder:validation:XValidation:rule="duration(self.duration) >= duration('1m')",message="spec.updateStrategy.scheduled: duration must be 1m or more"
// +kubebuilder:validation:XValidation:rule="!has(self.timeZone) || !self.start.matches('^[0-9]{4}-')",message="spec.updateStrategy.scheduled: timeZone is for a start with the five fields of cron; a time has its own"
type ScheduledUpdate struct {
	// When it begins: once, as a time of RFC 3339, "2026-12-01T22:00:00+01:00", or again and again, as five fields of cron: minute, hour, day of the
	// month, month, day of the week, "0 2 * * SUN".
	//
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:Pattern=`^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2})|[0-9A-Za-z*/,?-]+( +[0-9A-Za-z*/,?-]+){4})$`
	Start string `json:"start"`

	// Time zone of a start with the five fields of cron, for example "Europe/Berlin". Default: UTC.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_+/-]+$`
	TimeZone string `json:"timeZone,omitempty"`

	// How long it lasts, for example "2h". Nodes that still have jobs then are put back, and their turn comes in the next one.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+([.][0-9]+)?(ms|s|m|h))+$`
	Duration metav1.Duration `json:"duration"`

	// Most nodes that are out at once within it, as for RollingUpdate.
	//
	// +optional
	// +kubebuilder:default="100%"
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^(100|[1-9][0-9]?)%$')",message="spec.updateStrategy.scheduled.maxUnavailable must be 1 or more, or from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
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
