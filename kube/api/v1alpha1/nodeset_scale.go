package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReplicaWindow is a time that comes again and again.
//
// +kubebuilder:validation:XValidation:rule="duration(self.duration) >= duration('1m')",message="spec.replicaWindows: duration must be 1m or more"
type ReplicaWindow struct {
	// When it opens, as five fields of cron: minute, hour, day of the month, month, day of the week. For example
	// "30 7 * * MON-FRI".
	//
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z*/,?-]+( +[0-9A-Za-z*/,?-]+){4}$`
	Start string `json:"start"`

	// How long it is open, for example "10h30m".
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+([.][0-9]+)?(ms|s|m|h))+$`
	Duration metav1.Duration `json:"duration"`

	// Time zone of start, for example "Europe/Berlin". Default: UTC.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_+/-]+$`
	TimeZone string `json:"timeZone,omitempty"`

	// Least number of nodes that are up while it is open.
	//
	// +kubebuilder:validation:Minimum=1
	Replicas int32 `json:"replicas"`
}

// LookAheadSource is something from which a job's start is known.
//
// +kubebuilder:validation:Enum=BeginTime;Dependency;Reservation;ExpectedStart
type LookAheadSource string

const (
	// LookAheadBeginTime is a begin time (sbatch --begin).
	LookAheadBeginTime LookAheadSource = "BeginTime"
	// LookAheadDependency is a dependency on jobs that run, by their time limits.
	LookAheadDependency LookAheadSource = "Dependency"
	// LookAheadReservation is the start of the job's reservation.
	LookAheadReservation LookAheadSource = "Reservation"
	// LookAheadExpectedStart is the start that slurmctld's backfill scheduler expects.
	LookAheadExpectedStart LookAheadSource = "ExpectedStart"
)

// LookAhead powers nodes up one boot time before jobs start.
//
// +kubebuilder:validation:XValidation:rule="!has(self.leadTime) || duration(self.leadTime) > duration('0s')",message="spec.lookAhead.leadTime must be more than 0s"
type LookAhead struct {
	// Most nodes that are up for jobs that have not started.
	//
	// +kubebuilder:validation:Minimum=1
	MaxNodes int32 `json:"maxNodes"`

	// How long before a job's start its nodes are powered up, for example "2m". Default: the time within which 95 of 100 boots of the
	// NodeSet were over lately, and 5s; 1m until five boots have been seen.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+([.][0-9]+)?(ms|s|m|h))+$`
	LeadTime *metav1.Duration `json:"leadTime,omitempty"`

	// Most of these nodes for the jobs of any one account. Absent: no limit.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxNodesPerAccount *int32 `json:"maxNodesPerAccount,omitempty"`

	// The same for accounts by name; 0: none.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	Accounts []AccountLimit `json:"accounts,omitempty"`

	// What starts are known from: BeginTime, Dependency, Reservation, ExpectedStart. Default: all of them.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +listType=set
	Sources []LookAheadSource `json:"sources,omitempty"`
}

// AccountLimit is for one of Slurm's accounts.
type AccountLimit struct {
	// Name of the account.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`

	// Most nodes.
	//
	// +kubebuilder:validation:Minimum=0
	MaxNodes int32 `json:"maxNodes"`
}

// SuspendPolicy says when idle nodes go.
//
// +kubebuilder:validation:XValidation:rule="!has(self.idleTime) || duration(self.idleTime) > duration('0s')",message="spec.suspend.idleTime must be more than 0s"
type SuspendPolicy struct {
	// Idle time after which a node goes, for example "5m". Default: 5m.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+([.][0-9]+)?(ms|s|m|h))+$`
	IdleTime *metav1.Duration `json:"idleTime,omitempty"`

	// Time a power-down may take (SuspendTimeout).
	//
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}
