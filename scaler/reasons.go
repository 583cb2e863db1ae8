package scaler

import "fmt"

// whyAsk is the class of reasons that say the job waits for nodes, or nothing at all: our own reckoning decides.
const whyAsk Why = "ask"

// reasonWhy gives Slurm's word for a pending job its class.
func reasonWhy(reason string) (Why, string) {
	if why, ok := reasons[reason]; ok {
		return why, reason
	}
	return WhyUnknown, fmt.Sprintf("Slurm says %q, which this version does not know", reason)
}

// KnownReason reports whether Slurm has the word: of 24.11 to 26.05.
func KnownReason(reason string) bool {
	_, ok := reasons[reason]
	return ok
}

// reasons classifies every word of job_state_reason.c of Slurm 24.11 to 26.05.
var reasons = map[string]Why{
	// Waits for nodes, or nobody has looked yet.
	"":           whyAsk,
	"None":       whyAsk,
	"Resources":  whyAsk,
	"Priority":   whyAsk, // behind others; backfill may start it all the same
	"SchedDefer": whyAsk, // new, with SchedulerParameters=defer
	// Nodes it needs are down or drained: other nodes of the NodeSet may do.
	"ReqNodeNotAvail": whyAsk,
	// More nodes than the partition allows, or than it has records of: a NodeSet of dynamic nodes may have more
	// (_part_access_check, select_nodes).
	"PartitionNodeLimit": whyAsk,
	"PartitionConfig":    whyAsk, // the same for CPUs, and other things that the next look tells
	"FrontEndDown":       whyAsk, // 24.11 only, where front ends are no more
	// Left over from the last run of a requeued job.
	"NodeDown":      whyAsk,
	"SystemFailure": whyAsk,

	"JobHeldAdmin":      WhyHeld,
	"JobHeldUser":       WhyHeld,
	"JobHoldMaxRequeue": WhyHeld,
	"JobLaunchFailure":  WhyHeld, // _job_requeue after a launch that failed: held
	"BadConstraints":    WhyHeld, // priority 0 since slurmctld found no nodes for it (job_scheduler.c)

	"Dependency":               WhyDependency,
	"DependencyNeverSatisfied": WhyDependency,

	"BeginTime": WhyBeginTime,

	"JobArrayTaskLimit": WhyArrayLimit,

	"Licenses": WhyLicense,

	"Reservation":        WhyReservation,
	"ReservationDeleted": WhyReservation,
	"ReservationInvalid": WhyReservation,

	"PartitionTimeLimit": WhyPartition,
	"PartitionDown":      WhyPartition,
	"PartitionInactive":  WhyPartition,
	"MaxMemPerLimit":     WhyPartition,

	"MaxPoweredUpNodes": WhyPowerLimit,

	"Cleaning": WhyCleaning,
	"Prolog":   WhyCleaning,

	"NvidiaImexChannels":   WhyOther,
	"MpiPortsBusy":         WhyOther,
	"BurstBufferResources": WhyOther,
	"BurstBufferStageIn":   WhyOther,
	"BurstBufferOperation": WhyOther,
	"FedJobLock":           WhyOther,
	"Constraints":          WhyOther, // --extra, decided by what slurmd says of itself
	"DeadLine":             WhyOther,

	// Of jobs that have ended. A pending one does not say them.
	"NonZeroExitCode": WhyOther,
	"RaisedSignal":    WhyOther,
	"TimeLimit":       WhyOther,
	"InactiveLimit":   WhyOther,
	"OutOfMemory":     WhyOther,

	"InvalidAccount":           WhyLimit,
	"InvalidQOS":               WhyLimit,
	"QOSNotAllowed":            WhyLimit,
	"AccountNotAllowed":        WhyLimit,
	"AccountingPolicy":         WhyLimit,
	"AssociationJobLimit":      WhyLimit,
	"AssociationResourceLimit": WhyLimit,
	"AssociationTimeLimit":     WhyLimit,
	"QOSUsageThreshold":        WhyLimit,
	"QOSJobLimit":              WhyLimit,
	"QOSResourceLimit":         WhyLimit,
	"QOSTimeLimit":             WhyLimit,

	"AssocGrpBB":                      WhyLimit,
	"AssocGrpBBMinutes":               WhyLimit,
	"AssocGrpBBRunMinutes":            WhyLimit,
	"AssocGrpBilling":                 WhyLimit,
	"AssocGrpBillingMinutes":          WhyLimit,
	"AssocGrpBillingRunMinutes":       WhyLimit,
	"AssocGrpCPUMinutesLimit":         WhyLimit,
	"AssocGrpCPURunMinutesLimit":      WhyLimit,
	"AssocGrpCpuLimit":                WhyLimit,
	"AssocGrpEnergy":                  WhyLimit,
	"AssocGrpEnergyMinutes":           WhyLimit,
	"AssocGrpEnergyRunMinutes":        WhyLimit,
	"AssocGrpGRES":                    WhyLimit,
	"AssocGrpGRESMinutes":             WhyLimit,
	"AssocGrpGRESRunMinutes":          WhyLimit,
	"AssocGrpJobsLimit":               WhyLimit,
	"AssocGrpLicense":                 WhyLimit,
	"AssocGrpLicenseMinutes":          WhyLimit,
	"AssocGrpLicenseRunMinutes":       WhyLimit,
	"AssocGrpMemLimit":                WhyLimit,
	"AssocGrpMemMinutes":              WhyLimit,
	"AssocGrpMemRunMinutes":           WhyLimit,
	"AssocGrpNodeLimit":               WhyLimit,
	"AssocGrpNodeMinutes":             WhyLimit,
	"AssocGrpNodeRunMinutes":          WhyLimit,
	"AssocGrpSubmitJobsLimit":         WhyLimit,
	"AssocGrpUnknown":                 WhyLimit,
	"AssocGrpUnknownMinutes":          WhyLimit,
	"AssocGrpUnknownRunMinutes":       WhyLimit,
	"AssocGrpWallLimit":               WhyLimit,
	"AssocMaxBBMinutesPerJob":         WhyLimit,
	"AssocMaxBBPerJob":                WhyLimit,
	"AssocMaxBBPerNode":               WhyLimit,
	"AssocMaxBillingMinutesPerJob":    WhyLimit,
	"AssocMaxBillingPerJob":           WhyLimit,
	"AssocMaxBillingPerNode":          WhyLimit,
	"AssocMaxCpuMinutesPerJobLimit":   WhyLimit,
	"AssocMaxCpuPerJobLimit":          WhyLimit,
	"AssocMaxCpuPerNode":              WhyLimit,
	"AssocMaxEnergyMinutesPerJob":     WhyLimit,
	"AssocMaxEnergyPerJob":            WhyLimit,
	"AssocMaxEnergyPerNode":           WhyLimit,
	"AssocMaxGRESMinutesPerJob":       WhyLimit,
	"AssocMaxGRESPerJob":              WhyLimit,
	"AssocMaxGRESPerNode":             WhyLimit,
	"AssocMaxJobsLimit":               WhyLimit,
	"AssocMaxLicenseMinutesPerJob":    WhyLimit,
	"AssocMaxLicensePerJob":           WhyLimit,
	"AssocMaxMemMinutesPerJob":        WhyLimit,
	"AssocMaxMemPerJob":               WhyLimit,
	"AssocMaxMemPerNode":              WhyLimit,
	"AssocMaxNodeMinutesPerJob":       WhyLimit,
	"AssocMaxNodePerJobLimit":         WhyLimit,
	"AssocMaxSubmitJobLimit":          WhyLimit,
	"AssocMaxUnknownMinutesPerJob":    WhyLimit,
	"AssocMaxUnknownPerJob":           WhyLimit,
	"AssocMaxUnknownPerNode":          WhyLimit,
	"AssocMaxWallDurationPerJobLimit": WhyLimit,

	"QOSGrpBB":                      WhyLimit,
	"QOSGrpBBMinutes":               WhyLimit,
	"QOSGrpBBRunMinutes":            WhyLimit,
	"QOSGrpBilling":                 WhyLimit,
	"QOSGrpBillingMinutes":          WhyLimit,
	"QOSGrpBillingRunMinutes":       WhyLimit,
	"QOSGrpCPUMinutesLimit":         WhyLimit,
	"QOSGrpCPURunMinutesLimit":      WhyLimit,
	"QOSGrpCpuLimit":                WhyLimit,
	"QOSGrpEnergy":                  WhyLimit,
	"QOSGrpEnergyMinutes":           WhyLimit,
	"QOSGrpEnergyRunMinutes":        WhyLimit,
	"QOSGrpGRES":                    WhyLimit,
	"QOSGrpGRESMinutes":             WhyLimit,
	"QOSGrpGRESRunMinutes":          WhyLimit,
	"QOSGrpJobsLimit":               WhyLimit,
	"QOSGrpLicense":                 WhyLimit,
	"QOSGrpLicenseMinutes":          WhyLimit,
	"QOSGrpLicenseRunMinutes":       WhyLimit,
	"QOSGrpMemLimit":                WhyLimit,
	"QOSGrpMemoryMinutes":           WhyLimit,
	"QOSGrpMemoryRunMinutes":        WhyLimit,
	"QOSGrpNodeLimit":               WhyLimit,
	"QOSGrpNodeMinutes":             WhyLimit,
	"QOSGrpNodeRunMinutes":          WhyLimit,
	"QOSGrpSubmitJobsLimit":         WhyLimit,
	"QOSGrpUnknown":                 WhyLimit,
	"QOSGrpUnknownMinutes":          WhyLimit,
	"QOSGrpUnknownRunMinutes":       WhyLimit,
	"QOSGrpWallLimit":               WhyLimit,
	"QOSMaxBBPerJob":                WhyLimit,
	"QOSMaxBBPerNode":               WhyLimit,
	"QOSMaxBBPerUser":               WhyLimit,
	"QOSMaxBillingMinutesPerJob":    WhyLimit,
	"QOSMaxBillingPerJob":           WhyLimit,
	"QOSMaxBillingPerNode":          WhyLimit,
	"QOSMaxBillingPerUser":          WhyLimit,
	"QOSMaxCpuMinutesPerJobLimit":   WhyLimit,
	"QOSMaxCpuPerJobLimit":          WhyLimit,
	"QOSMaxCpuPerNode":              WhyLimit,
	"QOSMaxCpuPerUserLimit":         WhyLimit,
	"QOSMaxEnergyMinutesPerJob":     WhyLimit,
	"QOSMaxEnergyPerJob":            WhyLimit,
	"QOSMaxEnergyPerNode":           WhyLimit,
	"QOSMaxEnergyPerUser":           WhyLimit,
	"QOSMaxGRESMinutesPerJob":       WhyLimit,
	"QOSMaxGRESPerJob":              WhyLimit,
	"QOSMaxGRESPerNode":             WhyLimit,
	"QOSMaxGRESPerUser":             WhyLimit,
	"QOSMaxJobsPerUserLimit":        WhyLimit,
	"QOSMaxLicenseMinutesPerJob":    WhyLimit,
	"QOSMaxLicensePerJob":           WhyLimit,
	"QOSMaxLicensePerUser":          WhyLimit,
	"QOSMaxMemoryMinutesPerJob":     WhyLimit,
	"QOSMaxMemoryPerJob":            WhyLimit,
	"QOSMaxMemoryPerNode":           WhyLimit,
	"QOSMaxMemoryPerUser":           WhyLimit,
	"QOSMaxNodeMinutesPerJob":       WhyLimit,
	"QOSMaxNodePerJobLimit":         WhyLimit,
	"QOSMaxNodePerUserLimit":        WhyLimit,
	"QOSMaxSubmitJobPerUserLimit":   WhyLimit,
	"QOSMaxUnknownMinutesPerJob":    WhyLimit,
	"QOSMaxUnknownPerJob":           WhyLimit,
	"QOSMaxUnknownPerNode":          WhyLimit,
	"QOSMaxUnknownPerUser":          WhyLimit,
	"QOSMaxWallDurationPerJobLimit": WhyLimit,
	"QOSMinBB":                      WhyLimit,
	"QOSMinBilling":                 WhyLimit,
	"QOSMinCpuNotSatisfied":         WhyLimit,
	"QOSMinEnergy":                  WhyLimit,
	"QOSMinGRES":                    WhyLimit,
	"QOSMinLicense":                 WhyLimit,
	"QOSMinMemory":                  WhyLimit,
	"QOSMinNode":                    WhyLimit,
	"QOSMinUnknown":                 WhyLimit,

	"MaxBBPerAccount":             WhyLimit,
	"MaxBBRunMinsPerAccount":      WhyLimit,
	"MaxBBRunMinsPerUser":         WhyLimit,
	"MaxBillingPerAccount":        WhyLimit,
	"MaxBillingRunMinsPerAccount": WhyLimit,
	"MaxBillingRunMinsPerUser":    WhyLimit,
	"MaxCpuPerAccount":            WhyLimit,
	"MaxCpuRunMinsPerAccount":     WhyLimit,
	"MaxCpuRunMinsPerUser":        WhyLimit,
	"MaxEnergyPerAccount":         WhyLimit,
	"MaxEnergyRunMinsPerAccount":  WhyLimit,
	"MaxEnergyRunMinsPerUser":     WhyLimit,
	"MaxGRESPerAccount":           WhyLimit,
	"MaxGRESRunMinsPerAccount":    WhyLimit,
	"MaxGRESRunMinsPerUser":       WhyLimit,
	"MaxJobsPerAccount":           WhyLimit,
	"MaxLicensePerAccount":        WhyLimit,
	"MaxLicenseRunMinsPerAccount": WhyLimit,
	"MaxLicenseRunMinsPerUser":    WhyLimit,
	"MaxMemoryPerAccount":         WhyLimit,
	"MaxMemoryRunMinsPerAccount":  WhyLimit,
	"MaxMemoryRunMinsPerUser":     WhyLimit,
	"MaxNodePerAccount":           WhyLimit,
	"MaxNodeRunMinsPerAccount":    WhyLimit,
	"MaxNodeRunMinsPerUser":       WhyLimit,
	"MaxSubmitJobsPerAccount":     WhyLimit,
	"MaxUnknownPerAccount":        WhyLimit,
	"MaxUnknownRunMinsPerAccount": WhyLimit,
	"MaxUnknownRunMinsPerUser":    WhyLimit,
}
