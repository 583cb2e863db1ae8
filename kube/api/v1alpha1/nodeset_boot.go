package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Offering is one way to get hosts for the shape.
type Offering struct {
	// Name of the offering, unique in the NodeSet. Pods carry it as a label.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`
	Name string `json:"name"`

	// Added to the template's node selector, which must not say something else for the same key.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Added to the template's tolerations.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Offerings with a lower weight are tried first; equal ones in the order given.
	//
	// +optional
	Weight *int32 `json:"weight,omitempty"`

	// Most nodes that may run on this offering at once. Absent: no limit.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	Limit *int32 `json:"limit,omitempty"`
}

// BootStrategy says what happens when a job cannot get all its nodes.
//
// +kubebuilder:validation:Enum=AllOrNothing;Greedy;BestEffort
type BootStrategy string

const (
	// AllOrNothing gives back every node of a job that does not get all of them by the deadline.
	AllOrNothing BootStrategy = "AllOrNothing"
	// Greedy does the same, youngest job first, so that older jobs get what it held.
	Greedy BootStrategy = "Greedy"
	// BestEffort gives back only the nodes that failed.
	BestEffort BootStrategy = "BestEffort"
)

// TopologyMode says how strictly the pods of one job stay in one topology domain.
//
// +kubebuilder:validation:Enum=Required;Preferred
type TopologyMode string

const (
	// TopologyRequired leaves a pod unscheduled rather than outside the domain of its job.
	TopologyRequired TopologyMode = "Required"
	// TopologyPreferred takes another domain when there is no room.
	TopologyPreferred TopologyMode = "Preferred"
)

// BootPolicy says how the nodes of one job are brought up.
//
// +kubebuilder:validation:XValidation:rule="!has(self.topologyMode) || has(self.topologyKey)",message="spec.boot.topologyMode needs spec.boot.topologyKey beside it"
// +kubebuilder:validation:XValidation:rule="!has(self.deadline) || duration(self.deadline) > duration('0s')",message="spec.boot.deadline must be more than 0s"
// +kubebuilder:validation:XValidation:rule="!has(self.unschedulableGrace) || duration(self.unschedulableGrace) > duration('0s')",message="spec.boot.unschedulableGrace must be more than 0s"
type BootPolicy struct {
	// What happens when a job cannot get all its nodes. AllOrNothing (the default): they are given back at once.
	// Greedy: the same, the youngest job first, so that older ones get what it held. BestEffort: only
	// the nodes that failed are given back.
	//
	// +optional
	Strategy BootStrategy `json:"strategy,omitempty"`

	// Time from the resume request until all nodes of a job must have registered, for example "4m". Must be
	// shorter than ResumeTimeout. Default: ResumeTimeout less a margin.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+([.][0-9]+)?(ms|s|m|h))+$`
	Deadline *metav1.Duration `json:"deadline,omitempty"`

	// How long a pod may stay unschedulable before its boot counts as failed for lack of capacity, for
	// example "30s".
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+([.][0-9]+)?(ms|s|m|h))+$`
	UnschedulableGrace *metav1.Duration `json:"unschedulableGrace,omitempty"`

	// Label of hosts, for example "topology.kubernetes.io/zone": pods that are made for one job go where it
	// has the same value.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`
	TopologyKey string `json:"topologyKey,omitempty"`

	// Preferred (the default): pods go elsewhere when there is no room. Required: they stay pending.
	//
	// +optional
	TopologyMode TopologyMode `json:"topologyMode,omitempty"`

	// Ask the cluster autoscaler for all nodes of a job at once, and make their pods when it has provisioned them. Needs
	// its CRD ProvisioningRequest (autoscaling.x-k8s.io/v1). The deadline counts from the resume request all the same.
	// Nodes that no job asked for get their pods at once.
	//
	// +optional
	ProvisioningRequest *ProvisioningRequest `json:"provisioningRequest,omitempty"`
}

// ProvisioningRequest configures autoscaling.x-k8s.io ProvisioningRequests.
type ProvisioningRequest struct {
	// provisioningClassName, for example best-effort-atomic-scale-up.autoscaling.x-k8s.io.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	ClassName string `json:"className"`

	// Parameters of the class.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	Parameters map[string]ProvisioningParameter `json:"parameters,omitempty"`
}

// ProvisioningParameter is a parameter's value.
//
// +kubebuilder:validation:MaxLength=255
type ProvisioningParameter string

// BackoffPolicy says how long an offering, or the NodeSet, rests after boots failed on it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.initial) || duration(self.initial) > duration('0s')",message="spec.backoff.initial must be more than 0s"
// +kubebuilder:validation:XValidation:rule="!has(self.max) || duration(self.max) > duration('0s')",message="spec.backoff.max must be more than 0s"
// +kubebuilder:validation:XValidation:rule="!has(self.initial) || !has(self.max) || duration(self.initial) <= duration(self.max)",message="spec.backoff.initial must not be more than spec.backoff.max"
type BackoffPolicy struct {
	// First rest, for example "1m". After it one pod is tried; the rest doubles when that fails too.
	// Default: 3m for an offering, 1m for the NodeSet.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+([.][0-9]+)?(ms|s|m|h))+$`
	Initial *metav1.Duration `json:"initial,omitempty"`

	// Longest rest. Default: 30m.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+([.][0-9]+)?(ms|s|m|h))+$`
	Max *metav1.Duration `json:"max,omitempty"`
}
