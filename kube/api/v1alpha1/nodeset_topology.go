package v1alpha1

// Topology says from what of a Kubernetes node the place of the Slurm nodes on it follows: the value of Topology= in slurm.conf(5).
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeLabels) != has(self.nodeAnnotation)",message="give spec.topology.nodeLabels or spec.topology.nodeAnnotation, one of the two"
// +kubebuilder:validation:XValidation:rule="has(self.nodeLabels) || !has(self.name)",message="spec.topology.name goes with nodeLabels: an annotation has the topology's name in its value"
type Topology struct {
	// The topology's name in topology.yaml, for nodeLabels. Default: that of topology.conf, "default".
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.-]+$`
	Name string `json:"name,omitempty"`

	// Labels of Kubernetes nodes whose values are the place: of one label a leaf switch or a block, of several the switches from the root to the leaf. Switches
	// below one that Slurm knows are made by it if it does not know them yet.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`
	// +listType=atomic
	NodeLabels []string `json:"nodeLabels,omitempty"`

	// An annotation of Kubernetes nodes whose value is all of it, for example "topo-switch:s2,topo-block:b2".
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`
	NodeAnnotation string `json:"nodeAnnotation,omitempty"`
}
