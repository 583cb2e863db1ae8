package slurmconf

// The tables are those of Slurm 24.11.7 and 26.05.3: src/common/read_config.c and src/slurmdbd/read_config.c.

func slurmOptions() options {
	o := options{}.
		add(kindMany, always, "Epilog EpilogSlurmctld Prolog PrologSlurmctld").
		add(kindBool, always, "AccountingStoreJobComment AllowSpecResourcesUsage DisableRootJobs PriorityFavorSmall TrackWCKey UsePAM").
		add(kindDefunct, always, `CoreSpecPlugin ExtSensorsFreq ExtSensorsType JobCredentialPrivateKey JobCredentialPublicCertificate PowerParameters
			PowerPlugin`).
		add(kindString, always, `AccountingStorageBackupHost AccountingStorageEnforce AccountingStorageExternalHost AccountingStorageHost
			AccountingStorageParameters AccountingStoragePass AccountingStorageTRES AccountingStorageType AccountingStoreFlags
			AcctGatherEnergyType AcctGatherFilesystemType AcctGatherInfinibandType AcctGatherInterconnectType AcctGatherProfileType
			AuthAltParameters AuthAltTypes AuthInfo AuthType BackupAddr BackupController BcastExclude BcastParameters BurstBufferParameters
			BurstBufferType CertmgrParameters CertmgrType CliFilterPlugins ClusterName CommunicationParameters ControlAddr ControlMachine
			CpuFreqDef CpuFreqGovernors CredType CryptoType DataParserParameters DebugFlags DependencyParameters EnforcePartLimits
			FederationParameters GpuFreqDef GresTypes HashPlugin HealthCheckNodeState HealthCheckProgram InteractiveStepOptions
			JobAcctGatherFrequency JobAcctGatherParams JobAcctGatherType JobCompHost JobCompLoc JobCompParams JobCompPass JobCompType
			JobCompUser JobContainerType JobSubmitPlugins LaunchParameters LaunchType Licenses LogTimeFormat MailDomain MailProg MCSParameters
			MCSPlugin MpiDefault MpiParams NodeFeaturesPlugins PluginDir PlugStackConfig PreemptExemptTime PreemptMode PreemptParameters
			PreemptType PrEpParameters PrEpPlugins PriorityCalcPeriod PriorityDecayHalfLife PriorityFlags PriorityMaxAge PriorityParameters
			PrioritySiteFactorParameters PrioritySiteFactorPlugin PriorityType PriorityUsageResetPeriod PriorityWeightTRES PrivateData
			ProctrackType PrologFlags PropagateResourceLimits PropagateResourceLimitsExcept RebootProgram ReconfigFlags RequeueExit
			RequeueExitHold ResumeFailProgram ResumeProgram ResvEpilog ResvProlog RoutePlugin SallocDefaultCommand SbcastParameters
			SchedulerParameters SchedulerType ScronParameters SelectType SelectTypeParameters SlurmctldAddr SlurmctldDebug SlurmctldLogFile
			SlurmctldParameters SlurmctldPidFile SlurmctldPort SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg SlurmctldSyslogDebug SlurmdDebug
			SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdSpoolDir SlurmdSyslogDebug SlurmdUser SlurmSchedLogFile SlurmUser SrunEpilog
			SrunPortRange SrunProlog StateSaveLocation SuspendExcNodes SuspendExcParts SuspendExcStates SuspendProgram SuspendTime
			SwitchParameters SwitchType TaskEpilog TaskPlugin TaskPluginParam TaskProlog TLSParameters TLSType TmpFS TopologyParam
			TopologyPlugin UnkillableStepProgram X11Parameters`).
		add(kindString, gone, "AccountingStorageLoc AccountingStorageUser").
		add(kindDefunct, young, "AccountingStorageUser GetEnvTimeout").
		add(kindString, young, `CertgenParameters CertgenType CliFilterParameters HttpParserType JobCompPassScript LicenseParameters MetricsAuthUsers
			MetricsParameters MetricsType NamespaceType SlurmctldHttpAuthParameters SlurmdHttpAuthParameters UrlParserType`).
		add(kindUint16, always, `AccountingStoragePort AcctGatherNodeFreq BatchStartTimeout CompleteWait EioTimeout FairShareDampeningFactor FastSchedule
			GroupUpdateForce GroupUpdateTime HealthCheckInterval InactiveLimit JobFileAppend JobRequeue KillOnBadExit KillWait MaxTasksPerNode
			MessageTimeout OverTimeLimit PrologEpilogTimeout PropagatePrioProcess ResumeRate ResumeTimeout ResvOverRun ReturnToService
			SchedulerTimeSlice SlurmctldTimeout SlurmdTimeout SlurmSchedLogLevel SuspendRate SuspendTimeout TCPTimeout TreeWidth
			UnkillableStepTimeout VSizeFactor WaitTime`).
		add(kindUint16, gone, "GetEnvTimeout").
		add(kindUint16, young, "EpilogTimeout HealthCheckTimeout PrologTimeout").
		add(kindUint32, always, `EpilogMsgTime FirstJobId JobCompPort KeepAliveTime MaxArraySize MaxBatchRequeue MaxDBDMsgs MaxJobCount MaxJobId MaxNodeCount
			MaxStepCount MinJobAge PriorityWeightAge PriorityWeightAssoc PriorityWeightFairshare PriorityWeightJobSize PriorityWeightPartition
			PriorityWeightQOS SlurmdPort`).
		add(kindUint64, always, "DefCPUPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode MaxMemPerCPU MaxMemPerNode")
	for _, one := range []option{
		{name: "NodeName", fields: nodeOptions()},
		{name: "PartitionName", fields: partitionOptions()},
		{name: "NodeSet", fields: options{}.add(kindString, always, "Feature Nodes")},
		{name: "DownNodes", fields: options{}.add(kindString, always, "Reason State")},
		{name: "SlurmctldHost", fields: options{}},
		{name: "PowerAction", age: young, fields: options{}.add(kindString, always, "Location Program")},
		{name: "FrontendName", age: gone, fields: options{}.add(kindUint16, always, "Port").
			add(kindString, always, "AllowGroups AllowUsers DenyGroups DenyUsers FrontendAddr Reason State")},
	} {
		one.kind = kindRecord
		o.record(one)
	}
	return o
}

func nodeOptions() options {
	return options{}.
		add(kindString, always, "BcastAddr CpuBind CPUSpecList Feature Features Gres NodeAddr NodeHostname Port Reason State TRESWeights").
		add(kindString, young, "GresConf Parameters SuspendTime Topology").
		add(kindUint16, always, "Boards CoreSpecCount CoresPerSocket CPUs Procs RestrictedCoresPerGPU Sockets SocketsPerBoard ThreadsPerCore").
		add(kindUint32, always, "TmpDisk Weight").
		add(kindUint64, always, "MemSpecLimit RealMemory")
}

func partitionOptions() options {
	return options{}.
		add(kindBool, always, "Default DisableRootJobs ExclusiveTopo ExclusiveUser Hidden LLN PowerDownOnIdle ReqResv RootOnly").
		add(kindString, always, `AllocNodes AllowAccounts AllowGroups AllowQos Alternate CpuBind DefaultTime DenyAccounts DenyQos MaxTime Nodes OverSubscribe
			OverTimeLimit PreemptMode QOS SelectTypeParameters Shared State SuspendTime TRESBillingWeights`).
		add(kindString, young, "Exclusive Topology").
		add(kindUint16, always, "Priority PriorityJobFactor PriorityTier ResumeTimeout SuspendTimeout").
		add(kindUint32, always, "GraceTime MaxCPUsPerNode MaxCPUsPerSocket MaxNodes MinNodes").
		add(kindUint64, always, "DefCPUPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode MaxMemPerCPU MaxMemPerNode")
}

func slurmdbdOptions() options {
	return options{}.
		add(kindBool, always, `AllowNoDefAcct AllResourcesAbsolute ArchiveEvents ArchiveJobs ArchiveResvs ArchiveSteps ArchiveSuspend ArchiveTXN ArchiveUsage
			DisableCoordDBD TrackSlurmctldDown TrackWCKey`).
		add(kindBool, young, "ArchiveJobEnv ArchiveJobScript DisableArchiveCommands DisableRollups").
		add(kindString, always, `ArchiveDir ArchiveScript AuthAltParameters AuthAltTypes AuthInfo AuthType CommunicationParameters DbdAddr DbdBackupHost DbdHost
			DebugFlags DebugLevel DebugLevelSyslog DefaultQOS HashPlugin LogFile LogTimeFormat MaxQueryTimeRange Parameters PidFile PluginDir
			PrivateData PurgeEventAfter PurgeJobAfter PurgeResvAfter PurgeStepAfter PurgeSuspendAfter PurgeTXNAfter PurgeUsageAfter SlurmUser
			StorageBackupHost StorageHost StorageLoc StorageParameters StoragePass StorageType StorageUser TLSParameters TLSType`).
		add(kindString, young, "PurgeJobEnvAfter PurgeJobScriptAfter StoragePassScript").
		add(kindUint16, always, "CommitDelay DbdPort MessageTimeout StoragePort TCPTimeout").
		add(kindUint32, always, `JobPurge PurgeEventMonths PurgeJobMonths PurgeStepMonths PurgeSuspendMonths PurgeTXNMonths PurgeUsageMonths StepPurge`).
		add(kindUint32, young, "MaxPurgeLimit")
}
