package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeSet is a set of Slurm nodes of one shape that are backed by pods. A node of the set
// is powered down while it has no pod; when slurmctld powers it up, a pod of exactly that
// name is made from the template. Deleting a NodeSet deletes its pods; the jobs on them have the
// pods' grace period.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodesets,singular=nodeset,shortName=sns,categories={slurmtide,slurm}
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:selectablefield:JSONPath=`.spec.clusterRef.name`
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.spec.nodeNames`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="PoweredUp",type=integer,JSONPath=`.status.poweredUp`
// +kubebuilder:printcolumn:name="Booting",type=integer,JSONPath=`.status.booting`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.failed`
// +kubebuilder:printcolumn:name="Accepted",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must not be longer than 63 characters: pods carry it as a label"
type NodeSet struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NodeSetSpec `json:"spec"`
	// +optional
	Status NodeSetStatus `json:"status,omitempty"`
}

// NodeSetList is a list of NodeSets.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type NodeSetList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeSet `json:"items"`
}

// NodeSetMode says who chooses the names of the nodes that exist.
//
// +kubebuilder:validation:Enum=Cloud;Dynamic
type NodeSetMode string

const (
	// ModeCloud means that the node records stand in slurm.conf with State=CLOUD and slurmctld picks names.
	ModeCloud NodeSetMode = "Cloud"
	// ModeDynamic means that nodes register themselves (slurmd -Z) and Slurmtide picks names.
	ModeDynamic NodeSetMode = "Dynamic"
)

// The rules below that refuse fields without an implementation stand one per field, so that the
// message names the field. checkSupported in package pods says the same.

// NodeSetSpec is what the nodes are called, what they offer to Slurm and how their pods look.
//
// Of the fields that speak of nodes with a record in slurm.conf, or of those without one, the wrong ones are refused.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeNames) || has(self.eachHost)",message="spec.nodeNames: name the nodes, or have one on each host with spec.eachHost"
// +kubebuilder:validation:XValidation:rule="!has(self.eachHost) || !has(self.mode) || self.mode != 'Dynamic'",message="spec.eachHost needs mode Cloud: in mode Dynamic Slurmtide chooses names, and would try the same full host again and again"
// +kubebuilder:validation:XValidation:rule="!has(self.eachHost) || !has(self.offerings) || size(self.offerings) == 0",message="spec.eachHost goes without spec.offerings: a node that stays with its host has no alternative; select hosts in spec.template"
// +kubebuilder:validation:XValidation:rule="!has(self.eachHost) || !has(self.boot) || !has(self.boot.topologyKey) && !has(self.boot.provisioningRequest)",message="spec.eachHost goes without topologyKey and provisioningRequest of spec.boot: where the pods run is settled; remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.partitions) || has(self.mode) && self.mode == 'Dynamic'",message="spec.partitions needs mode Dynamic: in mode Cloud the PartitionName lines of slurm.conf name the nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.lookAhead) || !has(self.mode) || self.mode != 'Dynamic'",message="spec.lookAhead needs mode Cloud: in mode Dynamic use spec.replicas or spec.replicaWindows"
// +kubebuilder:validation:XValidation:rule="!has(self.updateStrategy) || self.updateStrategy.type != 'Scheduled' || !has(self.mode) || self.mode != 'Dynamic'",message="spec.updateStrategy: type Scheduled needs mode Cloud: in mode Dynamic use RollingUpdate"
// +kubebuilder:validation:XValidation:rule="!has(self.suspend) || has(self.mode) && self.mode == 'Dynamic'",message="spec.suspend needs mode Dynamic: in mode Cloud set SuspendTime in slurm.conf"
// +kubebuilder:validation:XValidation:rule="!has(self.suspend) || !has(self.suspend.timeout)",message="spec.suspend.timeout is not supported: remove it; a pod is waited for until it is gone"
// +kubebuilder:validation:XValidation:rule="!has(self.boot) || !has(self.mode) || self.mode != 'Dynamic' || !has(self.boot.strategy) && !has(self.boot.topologyKey) && !has(self.boot.provisioningRequest)",message="spec.boot: strategy, topologyKey and provisioningRequest need mode Cloud: in mode Dynamic no node is made for one job alone"
//
// +kubebuilder:validation:XValidation:rule="has(self.volumeClaimTemplates) == has(oldSelf.volumeClaimTemplates)",message="spec.volumeClaimTemplates cannot be added or removed: make a new NodeSet"
// +kubebuilder:validation:XValidation:rule="!has(self.persistentVolumeClaimRetentionPolicy) || has(self.volumeClaimTemplates)",message="spec.persistentVolumeClaimRetentionPolicy needs spec.volumeClaimTemplates"
// +kubebuilder:validation:XValidation:rule="self.template.spec.containers.exists(c, c.name == 'slurmd')",message="spec.template.spec.containers must have a container named slurmd"
// +kubebuilder:validation:XValidation:rule="self.template.spec.containers.all(c, c.name != 'slurmd' || (has(c.image) && size(c.image) > 0))",message="spec.template.spec.containers: the container slurmd needs an image"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.restartPolicy) || self.template.spec.restartPolicy == 'Never'",message="spec.template.spec.restartPolicy must be Never or absent: a restarted slurmd looks to slurmctld like a rebooted node; Slurmtide replaces the pod instead"
// +kubebuilder:validation:XValidation:rule="self.template.spec.containers.all(c, c.name != 'slurmd' || !has(c.restartPolicy) || c.restartPolicy == 'Never')",message="spec.template: the restartPolicy of container slurmd must be Never or absent: a restarted slurmd looks to slurmctld like a rebooted node; Slurmtide replaces the pod instead"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.automountServiceAccountToken) || !self.template.spec.automountServiceAccountToken",message="spec.template.spec.automountServiceAccountToken must be false or absent: every job in the pod could use the token"
// +kubebuilder:validation:XValidation:rule="self.template.spec.containers.all(c, c.name != 'slurmd' || !has(c.resources) || !has(c.resources.limits) || !('cpu' in c.resources.limits) || (type(c.resources.limits['cpu']) == int ? double(c.resources.limits['cpu']) : quantity(c.resources.limits['cpu']).asApproximateFloat()) >= double(self.shape.cpus))",message="spec.template: the cpu limit of container slurmd is below spec.shape.cpus: raise the limit, remove it or lower the shape"
// +kubebuilder:validation:XValidation:rule="self.template.spec.containers.all(c, c.name != 'slurmd' || !has(c.resources) || !has(c.resources.limits) || !('memory' in c.resources.limits) || (type(c.resources.limits['memory']) == int ? double(c.resources.limits['memory']) : quantity(c.resources.limits['memory']).asApproximateFloat()) >= double(self.shape.realMemory) * 1048576.0)",message="spec.template: the memory limit of container slurmd is below spec.shape.realMemory (MiB): raise the limit, remove it or lower the shape"
// +kubebuilder:validation:XValidation:rule="!has(self.ssh) || !self.ssh.enabled || !has(self.template.spec.securityContext) || !has(self.template.spec.securityContext.fsGroup)",message="spec.ssh: remove fsGroup from spec.template.spec.securityContext: sshd refuses host keys that a group may read"
// +kubebuilder:validation:XValidation:rule="!has(self.ssh) || !self.ssh.enabled || (!has(self.template.spec.hostPID) || !self.template.spec.hostPID) && (!has(self.template.spec.shareProcessNamespace) || !self.template.spec.shareProcessNamespace)",message="spec.ssh: remove hostPID and shareProcessNamespace from spec.template.spec: what a user leaves behind is looked for among all processes that slurmd sees"
// +kubebuilder:validation:XValidation:rule="!has(self.ssh) || !self.ssh.enabled || self.template.spec.containers.all(c, c.name != 'slurmd' || !has(c.lifecycle) || !has(c.lifecycle.postStart))",message="spec.ssh: remove lifecycle.postStart from container slurmd of spec.template: sshd is started there"
type NodeSetSpec struct {
	// The Slurm cluster the nodes belong to. Cannot be changed.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.clusterRef cannot be changed: make a new NodeSet"
	ClusterRef ClusterRef `json:"clusterRef"`

	// Names of the nodes as a Slurm hostlist, for example "cpu-[0-49]" or "cpu-[00-49],gpu-1".
	// A node's pod and its hostname carry the same name, so every name is a DNS label: lower-case
	// letters, digits and "-", at most 63 characters. In mode Cloud slurm.conf must have them with
	// State=CLOUD; in mode Dynamic it must not have them. Two NodeSets of a cluster must not share a name; the older one keeps it.
	// Names can be added at any time. The pod of a name that is removed stays until Slurm powers
	// the node down; after that the node cannot be powered up any more. With eachHost they may be left out: then slurmtide controller
	// writes the names of the hosts here.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:Pattern=`^[a-z0-9\[][a-z0-9,:\[\]-]*$`
	NodeNames string `json:"nodeNames,omitempty"`

	// One node on each host that the template's node selector, required node affinity and tolerations allow, of the host's name; its pod runs there and
	// nowhere else. Needs mode Cloud. Absent: a node's pod runs wherever there is room.
	//
	// +optional
	EachHost *EachHost `json:"eachHost,omitempty"`

	// Cloud: the records stand in slurm.conf with State=CLOUD and slurmctld picks the names.
	// Dynamic: nodes register themselves (slurmd -Z) and Slurmtide picks the names, as many as the pending jobs need.
	// Cannot be changed.
	//
	// +optional
	// +kubebuilder:default=Cloud
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.mode cannot be changed: make a new NodeSet"
	Mode NodeSetMode `json:"mode,omitempty"`

	// Least number of nodes that are up, whether jobs need them or not; nodes that are up for jobs count. Autoscalers
	// and "kubectl scale" write it through the scale subresource. Raising it powers nodes up through Slurm. Lowering it powers down idle
	// nodes that were up for it, those that have been idle longest first, and never one with a job. With 0 Slurm's power
	// saving alone decides.
	//
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// Slurmtide powers up no node on its own account, for replicas for instance, while so many are up. In mode Cloud jobs
	// are not bound by it: use MaxPoweredUpNodes of slurm.conf for that. In mode Dynamic they are. Absent: no limit.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxPoweredUp *int32 `json:"maxPoweredUp,omitempty"`

	// Times at which more nodes are up: while a window is open, its replicas stand for spec.replicas if they are more.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	ReplicaWindows []ReplicaWindow `json:"replicaWindows,omitempty"`

	// Power nodes up ahead of jobs whose start is known (mode Cloud). Absent: only when Slurm has given them to a job.
	//
	// +optional
	LookAhead *LookAhead `json:"lookAhead,omitempty"`

	// Where in the network a node is goes by the Kubernetes node that its pod is bound to, and Slurm is told (Slurm 25.11 or newer; 24.11 cannot be).
	// Absent: Slurm knows what its configuration says.
	//
	// +optional
	Topology *Topology `json:"topology,omitempty"`

	// What one node offers to Slurm. In mode Cloud it must say the same as the node's record in slurm.conf; in mode Dynamic
	// nodes register with it.
	Shape Shape `json:"shape"`

	// Pod template. It must have a container named slurmd. Slurmtide sets the pod's name, hostname,
	// labels, annotations and owner, and puts "slurmd -D -b -N <node> ..." in front of the
	// container's args. Where the container says nothing, requests for cpu and memory, the memory
	// limit and GPUs are taken from the shape. How changes reach pods that were made before, updateStrategy says.
	// When somebody else deletes a pod (kubectl delete, preemption, eviction, a host that shuts down), the jobs on it run on for
	// terminationGracePeriodSeconds, 600 unless the template says otherwise: the container's preStop hook, which is
	// Slurmtide's unless the template has one, waits for them. Pods that Slurmtide deletes have 10 seconds.
	Template corev1.PodTemplateSpec `json:"template"`

	// Lets users by ssh into the nodes on which they have a job, and nobody else but root with a key of rootSshAuthorizedKeys. The image needs sshd and pam_slurm_adopt, and
	// slurm.conf PrologFlags=Contain; that of a Controller has it then. Users have to be known in the pod: by usersRef, sssdConfRef or the image.
	//
	// +optional
	SSH *NodeSetSSH `json:"ssh,omitempty"`

	UserOptions `json:",inline"`

	// Volumes that each node has of its own, for volumeMounts of the template: a claim <name>-<node> is made when the node is powered up for the first time, and
	// kept from then on, unless persistentVolumeClaimRetentionPolicy says otherwise. A volume of the template with the same name gives way. Cannot be changed.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, b.metadata.name == a.metadata.name))",message="spec.volumeClaimTemplates: two have the same metadata.name: rename one"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.volumeClaimTemplates cannot be changed: claims that were made keep what they are; make a new NodeSet"
	VolumeClaimTemplates []VolumeClaimTemplate `json:"volumeClaimTemplates,omitempty"`

	// How long the claims of volumeClaimTemplates live. Absent: until somebody deletes them.
	//
	// +optional
	PersistentVolumeClaimRetentionPolicy *ClaimRetentionPolicy `json:"persistentVolumeClaimRetentionPolicy,omitempty"`

	// How a change of the template or the shape reaches pods that were made before. Absent: not at all.
	//
	// +optional
	UpdateStrategy *UpdateStrategy `json:"updateStrategy,omitempty"`

	// How many old revisions of template and shape are kept as ControllerRevisions, beside the newest and the one that most other pods are of (mode Cloud).
	//
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`

	// Alternatives for the same shape, tried in order: on-demand, spot, another zone.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	Offerings []Offering `json:"offerings,omitempty"`

	// How the nodes of one job are brought up.
	//
	// +optional
	Boot *BootPolicy `json:"boot,omitempty"`

	// How long an offering, or the NodeSet, rests after boots failed on it.
	//
	// +optional
	Backoff *BackoffPolicy `json:"backoff,omitempty"`

	// When idle nodes go (mode Dynamic; in mode Cloud slurm.conf decides).
	//
	// +optional
	Suspend *SuspendPolicy `json:"suspend,omitempty"`

	// Partitions that nodes of mode Dynamic are in once they have registered, as slurm.conf has it: those with Nodes=ALL, and
	// those with a NodeSet= line whose Feature is one of shape.features. Pending jobs of these partitions get nodes.
	// Default: the partitions with Nodes=ALL, and those with a NodeSet= line of this NodeSet's name, if that is among
	// shape.features, as a Controller writes them.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +listType=set
	Partitions []string `json:"partitions,omitempty"`

	// The partition that a Controller makes for the nodes, with the NodeSet's name. Where slurm.conf is written by hand it does nothing.
	//
	// +optional
	// +kubebuilder:default={enabled: true}
	Partition *NodeSetPartition `json:"partition,omitempty"`
}

// NodeSetPartition is a line "PartitionName=<name> Nodes=<name> <config>" in the slurm.conf of a Controller.
type NodeSetPartition struct {
	// Make it.
	//
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// The rest of the line, for example "Default=YES MaxTime=1-0".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^[^\n#\\]*$`
	Config string `json:"config,omitempty"`
}

// ClusterRef names the Slurm cluster.
type ClusterRef struct {
	// ClusterName of slurm.conf.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$`
	Name string `json:"name"`
}

// Shape is what one node offers to Slurm, in the units of a NodeName line in slurm.conf.
//
// +kubebuilder:validation:XValidation:rule="!has(self.sockets) || !has(self.coresPerSocket) || !has(self.threadsPerCore) || self.sockets * self.coresPerSocket * self.threadsPerCore == self.cpus",message="spec.shape: sockets * coresPerSocket * threadsPerCore must equal cpus"
// +kubebuilder:validation:XValidation:rule="has(self.sockets) == has(self.coresPerSocket) && has(self.sockets) == has(self.threadsPerCore)",message="spec.shape: give sockets, coresPerSocket and threadsPerCore together or none of them"
type Shape struct {
	// CPUs Slurm may hand out on the node (CPUs=).
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	CPUs int32 `json:"cpus"`

	// Sockets=. Needs coresPerSocket and threadsPerCore beside it.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Sockets *int32 `json:"sockets,omitempty"`

	// CoresPerSocket=.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	CoresPerSocket *int32 `json:"coresPerSocket,omitempty"`

	// ThreadsPerCore=.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	ThreadsPerCore *int32 `json:"threadsPerCore,omitempty"`

	// Memory Slurm may hand out on the node, in MiB (RealMemory=).
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1073741824
	RealMemory int64 `json:"realMemory"`

	// Generic resources in slurm.conf's notation (Gres=), for example "gpu:2" or "gpu:h100:2".
	// GPUs become a limit for nvidia.com/gpu unless the template asks for GPUs itself.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.:,()/*-]+$`
	Gres string `json:"gres,omitempty"`

	// Features jobs can ask for with --constraint (Feature=). In mode Cloud they stand on the NodeName line that a Controller
	// makes; in a slurm.conf of your own, say them there.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9_.:-]+$`
	// +listType=set
	Features []string `json:"features,omitempty"`

	// Scheduling weight; Slurm prefers lower ones (Weight=). In mode Cloud it stands on the NodeName line that a Controller
	// makes; in a slurm.conf of your own, say it there.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Weight *int32 `json:"weight,omitempty"`
}
