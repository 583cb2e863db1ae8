package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LoginSet is a set of equal pods that users reach by ssh, and from where they use Slurm: ssh <user>@<name>-login.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=loginsets,singular=loginset,shortName=sackd,categories={slurmtide,slurm}
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Controller",type=string,JSONPath=`.spec.controllerRef.name`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",message="metadata.name must be at most 40 lower-case letters, digits and '-', a letter first: a Service and host names are made of it"
type LoginSet struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec LoginSetSpec `json:"spec"`
	// +optional
	Status LoginSetStatus `json:"status,omitempty"`
}

// LoginSetList is a list of LoginSets.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type LoginSetList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []LoginSet `json:"items"`
}

// LoginSetSpec is how login pods run, and whom they let in.
//
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.spec) || !has(self.template.spec.securityContext) || !has(self.template.spec.securityContext.fsGroup)",message="spec.template.spec.securityContext.fsGroup cannot be set: sshd refuses host keys that a group may read, and volumes with home directories would change hands"
type LoginSetSpec struct {
	// The Controller whose cluster is used, in the same namespace. Cannot be changed.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.controllerRef cannot be changed: make a new LoginSet"
	ControllerRef ObjectRef `json:"controllerRef"`

	// How many pods there are. All have the same host keys.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`

	// The container with sshd, where users work. Its image is also that of sackd and sssd. Default image: that of the Controller's slurmctld.
	//
	// +optional
	Login *DaemonOptions `json:"login,omitempty"`

	// sackd, through which the pod speaks to Slurm.
	//
	// +optional
	Sackd *SidecarOptions `json:"sackd,omitempty"`

	// sssd, if there is a sssdConfRef.
	//
	// +optional
	Sssd *SidecarOptions `json:"sssd,omitempty"`

	// Settings of the pods.
	//
	// +optional
	Template PodOptions `json:"template,omitempty"`

	SSHOptions `json:",inline"`

	UserOptions `json:",inline"`

	// The Service.
	//
	// +optional
	// +kubebuilder:default={type: ClusterIP, port: 22}
	Service LoginService `json:"service,omitempty"`
}

// LoginService is how pods are reached. The Service is called <name>-login.
//
// +kubebuilder:validation:XValidation:rule="!has(self.nodePort) || self.type != 'ClusterIP'",message="spec.service.nodePort is for the types NodePort and LoadBalancer"
// +kubebuilder:validation:XValidation:rule="self.type == 'LoadBalancer' || !has(self.loadBalancerClass) && !has(self.loadBalancerSourceRanges)",message="spec.service.loadBalancerClass and loadBalancerSourceRanges are for the type LoadBalancer"
// +kubebuilder:validation:XValidation:rule="!has(self.externalTrafficPolicy) || self.type != 'ClusterIP'",message="spec.service.externalTrafficPolicy is for the types NodePort and LoadBalancer"
type LoginService struct {
	// +optional
	// +kubebuilder:default=ClusterIP
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
	Type corev1.ServiceType `json:"type,omitempty"`

	// The port that clients use.
	//
	// +optional
	// +kubebuilder:default=22
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// The port on every host. Default: Kubernetes chooses one.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NodePort int32 `json:"nodePort,omitempty"`

	// Annotations of the Service; makers of load balancers read them.
	//
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// Local keeps the addresses of clients, which sshd's log and its penalties are about.
	//
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Local
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy `json:"externalTrafficPolicy,omitempty"`

	// +optional
	LoadBalancerClass *string `json:"loadBalancerClass,omitempty"`

	// From where clients may come, as networks: 192.0.2.0/24.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	LoadBalancerSourceRanges []string `json:"loadBalancerSourceRanges,omitempty"`
}

// LoginSetStatus is what became of a LoginSet.
type LoginSetStatus struct {
	// The generation that the rest was made from.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// How many pods there are.
	//
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// Label selector of the pods, for the scale subresource.
	//
	// +optional
	Selector string `json:"selector,omitempty"`

	// Fingerprints of the host keys, as ssh shows them to whom connects for the first time.
	//
	// +optional
	// +listType=atomic
	HostKeys []string `json:"hostKeys,omitempty"`

	// How things stand: Accepted, Available.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
