package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeSetStatus is what Slurmtide observed.
type NodeSetStatus struct {
	// metadata.generation of the spec this status speaks of.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Number of names in spec.nodeNames.
	//
	// +optional
	Nodes int32 `json:"nodes"`

	// Nodes that Slurm has on or turns on.
	//
	// +optional
	PoweredUp int32 `json:"poweredUp"`

	// Those of them that have not registered with slurmctld yet.
	//
	// +optional
	Booting int32 `json:"booting"`

	// Nodes that registered and serve jobs.
	//
	// +optional
	Ready int32 `json:"ready"`

	// Nodes that are down or whose boot has a problem.
	//
	// +optional
	Failed int32 `json:"failed"`

	// Same as poweredUp, for the scale subresource.
	//
	// +optional
	Replicas int32 `json:"replicas"`

	// Label selector of the NodeSet's pods, for the scale subresource.
	//
	// +optional
	Selector string `json:"selector,omitempty"`

	// How far spec.replicas is carried out; absent while there is nothing to do for it.
	//
	// +optional
	Floor *FloorStatus `json:"floor,omitempty"`

	// How long the newest boots took.
	//
	// +optional
	Boots *BootStatus `json:"boots,omitempty"`

	// Revision of the template and the shape: pods that are made now have it as label slurmtide.io/revision. It comes back with them.
	//
	// +optional
	UpdateRevision string `json:"updateRevision,omitempty"`

	// Revision that most pods are of which are not of updateRevision; updateRevision if there are none.
	//
	// +optional
	CurrentRevision string `json:"currentRevision,omitempty"`

	// Pods of updateRevision.
	//
	// +optional
	UpdatedNodes int32 `json:"updatedNodes,omitempty"`

	// Pods of other revisions.
	//
	// +optional
	OutdatedNodes int32 `json:"outdatedNodes,omitempty"`

	// Those of them whose nodes are out to be updated.
	//
	// +optional
	ReplacingNodes int32 `json:"replacingNodes,omitempty"`

	// Accepted, NodesInSlurm, CapacityAvailable, BootsHealthy, FloorReached, Updated; HostsFollowed, with spec.eachHost.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Why no pods, or only one at a time, are made for the NodeSet; absent while boots succeed.
	// It is also the bridge's memory across restarts.
	//
	// +optional
	Breaker *BreakerStatus `json:"breaker,omitempty"`

	// What is known of each offering.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Offerings []OfferingStatus `json:"offerings,omitempty"`
}

// FloorStatus is how far spec.replicas is carried out.
type FloorStatus struct {
	// Nodes that are to be up.
	//
	// +optional
	Wanted int32 `json:"wanted"`

	// Nodes that serve, at most wanted.
	//
	// +optional
	Held int32 `json:"held"`

	// Why held is less, as in the condition FloorReached.
	//
	// +optional
	Reason string `json:"reason"`

	// Nodes that are to be up, beside those in use, for jobs that have not started (spec.lookAhead).
	//
	// +optional
	Ahead int32 `json:"ahead,omitempty"`

	// The shortest SuspendTime in slurm.conf, as Slurm's newest request told; absent until there was one.
	//
	// +optional
	SuspendTimeSeconds int32 `json:"suspendTimeSeconds,omitempty"`
}

// BootStatus is how long boots take, from Slurm's request until slurmd has registered.
type BootStatus struct {
	// Seconds within which 95 of 100 boots were over, for example "12.5"; absent until five were seen.
	//
	// +optional
	P95Seconds string `json:"p95Seconds,omitempty"`

	// The newest boots, oldest first, in milliseconds.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	RecentMilliseconds []int64 `json:"recentMilliseconds,omitempty"`
}

// BreakerState says whether new pods are made.
//
// +kubebuilder:validation:Enum=Available;BackingOff;Probing
type BreakerState string

const (
	// BreakerAvailable says that new pods are made.
	BreakerAvailable BreakerState = "Available"
	// BreakerBackingOff says that none are made until RetryTime, or without one until the spec is changed (see specHash).
	BreakerBackingOff BreakerState = "BackingOff"
	// BreakerProbing says that one pod is out, and none are made until it is known what becomes of it.
	BreakerProbing BreakerState = "Probing"
)

// BreakerStatus says what failed lately, and when it is tried again.
type BreakerStatus struct {
	// Available, BackingOff or Probing.
	//
	// +optional
	State BreakerState `json:"state,omitempty"`

	// Class of the newest failure: capacity, quota, image, config, crash, refused or bootstrap.
	//
	// +optional
	Class string `json:"class,omitempty"`

	// The newest failure, in words.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// When it is tried again. Absent while BackingOff: when the spec is changed (see specHash).
	//
	// +optional
	RetryTime *metav1.Time `json:"retryTime,omitempty"`

	// Failures since the last success.
	//
	// +optional
	Failures int32 `json:"failures,omitempty"`

	// How often it began to back off since the last success.
	//
	// +optional
	Tries int32 `json:"tries,omitempty"`

	// metadata.generation of the spec that failed.
	//
	// +optional
	SpecGeneration int64 `json:"specGeneration,omitempty"`

	// Hash of the spec that failed, without replicas, replicaWindows, lookAhead and maxPoweredUp: another one is tried at once.
	//
	// +optional
	SpecHash string `json:"specHash,omitempty"`
}

// OfferingStatus is what is known of one offering.
type OfferingStatus struct {
	// Name of the offering.
	Name string `json:"name"`

	// Nodes that run on it.
	//
	// +optional
	Nodes int32 `json:"nodes"`

	BreakerStatus `json:",inline"`
}
