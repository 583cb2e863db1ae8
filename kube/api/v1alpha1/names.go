package v1alpha1

// Labels and annotations on the pods of a NodeSet.
const (
	// LabelCluster holds the Slurm ClusterName. Only pods that carry it are ours.
	LabelCluster = "slurmtide.io/cluster"
	// LabelNodeSet holds the NodeSet's name.
	LabelNodeSet = "slurmtide.io/nodeset"
	// LabelNode holds the Slurm NodeName, which is also the pod's name and hostname.
	LabelNode = "slurmtide.io/node"
	// LabelOffering holds the offering the pod was made for.
	LabelOffering = "slurmtide.io/offering"
	// LabelJob holds the ID of the Slurm job the node was powered up for. Later jobs may run on it.
	LabelJob = "slurmtide.io/job"
	// LabelHetJob holds the ID of the leader of the het job that the job is a component of; otherwise it is absent.
	LabelHetJob = "slurmtide.io/het-job"
	// LabelMode is "Dynamic" on the pods of NodeSets of that mode; otherwise it is absent.
	LabelMode = "slurmtide.io/mode"
	// LabelBusy is "true" while jobs are, or may any moment be, on the pod; otherwise it is absent.
	LabelBusy = "slurmtide.io/busy"
	// LabelRevision holds the revision of the NodeSet that the pod was made from, as in status.updateRevision.
	LabelRevision = "slurmtide.io/revision"
	// AnnotationGeneration counts the boots of a node; a late power-down carries
	// an older generation than the pod it must not touch.
	AnnotationGeneration = "slurmtide.io/generation"
	// AnnotationRequest holds the ID of the request that started the boot.
	AnnotationRequest = "slurmtide.io/request"
)

// AnnotationBadHardware stands on Kubernetes nodes, and says which Slurm nodes were drained for bad hardware there, why and
// when: a JSON list. It is also the key of the taint that such nodes get by default.
const AnnotationBadHardware = "slurmtide.io/bad-hardware"

// Annotations by which the cluster autoscaler knows that room was made for a pod beforehand
// (autoscaling.x-k8s.io/v1). It wants both.
const (
	AnnotationConsumeProvisioningRequest = "autoscaling.x-k8s.io/consume-provisioning-request"
	AnnotationProvisioningClassName      = "autoscaling.x-k8s.io/provisioning-class-name"
)

// ContainerSlurmd is the name of the container in spec.template that runs slurmd.
const ContainerSlurmd = "slurmd"

// Condition types of a NodeSet.
const (
	// ConditionAccepted is False while the NodeSet cannot be used; the message says why.
	ConditionAccepted = "Accepted"
	// ConditionNodesInSlurm is False while slurmctld has no record of some of the nodes.
	ConditionNodesInSlurm = "NodesInSlurm"
	// ConditionCapacityAvailable is False while Kubernetes cannot place pods of the NodeSet.
	ConditionCapacityAvailable = "CapacityAvailable"
	// ConditionBootsHealthy is False while boots of the NodeSet keep failing.
	ConditionBootsHealthy = "BootsHealthy"
	// ConditionFloorReached is False while fewer nodes serve than spec.replicas asks for.
	ConditionFloorReached = "FloorReached"
	// ConditionUpdated is False while pods are of an older revision than the NodeSet.
	ConditionUpdated = "Updated"
	// ConditionHostsFollowed is False while a NodeSet with spec.eachHost has no hosts, nobody can tell, or nobody follows them.
	ConditionHostsFollowed = "HostsFollowed"
)

// Condition types of Controllers, Accountings, LoginSets, RestApis and Tokens; Accepted is theirs, too.
const (
	// ConditionAvailable is True while the daemon answers.
	ConditionAvailable = "Available"
	// ConditionConfigInForce is True when slurmctld, and slurmd on the nodes that are up, run with the configuration that the objects ask
	// for. The message of reason Rejected is slurmctld's own error, that of NodesBehind names nodes.
	ConditionConfigInForce = "ConfigInForce"
	// ConditionSidecarsReady is True while what runs beside slurmctld in its pod does: the bridge and its slurmrestd, what brings new configurations, and what
	// the template adds.
	ConditionSidecarsReady = "SidecarsReady"
	// ConditionVolumeAsWanted is False while the claim for slurmctld's state has another size than spec.persistence asks for, and is not there otherwise.
	ConditionVolumeAsWanted = "VolumeAsWanted"
	// ConditionBackupsReady is False while some of spec.backups do not stand by, and is not there without any.
	ConditionBackupsReady = "BackupsReady"
	// ConditionIssued is True while the token in the Secret is good.
	ConditionIssued = "Issued"
)
