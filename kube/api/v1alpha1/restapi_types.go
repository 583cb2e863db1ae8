package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RestApi is slurmrestd for users and programs, with a Service: http://<name>-restapi:6820. Callers bring a token (see Token).
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=restapis,singular=restapi,shortName=slurmrestd,categories={slurmtide,slurm}
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Controller",type=string,JSONPath=`.spec.controllerRef.name`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 50 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",message="metadata.name must be at most 50 lower-case letters, digits and '-', a letter first: a Service is named after it"
//
//nolint:revive // the name that slurm-operator's users know
type RestApi struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RestApiSpec `json:"spec"`
	// +optional
	Status RestApiStatus `json:"status,omitempty"`
}

// RestApiList is a list of RestApis.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
//
//nolint:revive // as above
type RestApiList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RestApi `json:"items"`
}

// RestApiSpec is how slurmrestd runs.
//
//nolint:revive // as above
type RestApiSpec struct {
	// The Controller whose slurmctld it asks, in the same namespace. Cannot be changed.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.controllerRef cannot be changed: make a new RestApi"
	ControllerRef ObjectRef `json:"controllerRef"`

	// How many of it there are.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`

	// slurmrestd's container. Default image: that of the Controller's slurmctld.
	//
	// +optional
	Slurmrestd *DaemonOptions `json:"slurmrestd,omitempty"`

	// Settings of the pods.
	//
	// +optional
	Template PodOptions `json:"template,omitempty"`
}

// RestApiStatus is what became of a RestApi.
//
//nolint:revive // as above
type RestApiStatus struct {
	// The generation that the rest was made from.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// How many there are.
	//
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// Label selector of the pods, for the scale subresource.
	//
	// +optional
	Selector string `json:"selector,omitempty"`

	// How things stand: Accepted, Available.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
