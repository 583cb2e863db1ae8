package v1alpha1

// EachHost gives each host one node, of the host's name, whose pod runs there and nowhere else.
type EachHost struct {
	// Hosts are called NODE.domain, for example "ec2.internal" for ip-10-0-0-7.ec2.internal, where the node is ip-10-0-0-7; hosts of other domains have no
	// node. Absent: hosts whose names have no dots.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`
	Domain string `json:"domain,omitempty"`

	// Keep spec.replicas at the number of nodes whose hosts are there and not cordoned, whoever else writes it, so that all of them are up. Needs the daemon slurmtide controller.
	//
	// +optional
	AlwaysOn bool `json:"alwaysOn,omitempty"`
}
