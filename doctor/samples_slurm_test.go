package doctor

var timeSamples = map[string]samplesOf{
	"suspend-time": {
		bad: map[string]sample{
			"none":  {without: "SuspendTime", want: []string{"slurm.conf: error: there is no SuspendTime; set SuspendTime=300"}},
			"never": {with: "SuspendTime=INFINITE", want: []string{"slurm.conf:27:1: error: SuspendTime is INFINITE everywhere; set SuspendTime=300"}},
			"-1":    {with: "SuspendTime=-1", want: []string{"slurm.conf:27:1: error: SuspendTime is INFINITE everywhere; set SuspendTime=300"}},
		},
		good: map[string]sample{
			"a partition's": {without: "SuspendTime", with: "PartitionName=b Nodes=cpu-[0-9] SuspendTime=60"},
			"a node's":      {without: "SuspendTime", with: "NodeName=x State=CLOUD SuspendTime=60"},
		},
	},
	"suspend-time-zero": {
		bad: map[string]sample{
			"the cluster's": {with: "SuspendTime=0", byHand: true, want: []string{"slurm.conf:27:1: warning: SuspendTime=0 for cpu-[0-9]; set SuspendTime=300"}},
			"a partition's": {with: "PartitionName=b Nodes=cpu-[0-3] SuspendTime=0", byHand: true, want: []string{"slurm.conf:28:33: warning: SuspendTime=0 for cpu-[0-9]; set SuspendTime=300"}},
		},
		good: map[string]sample{"a node's own": {with: "SuspendTime=0\nNodeName=cpu-[0-9] State=CLOUD SuspendTime=10", without: "NodeName"}, "a shorter one behind": {with: "PartitionName=b Nodes=ALL SuspendTime=9\nPartitionName=c Nodes=cpu-1 SuspendTime=0"}, "another partition's is longer": {with: "PartitionName=b Nodes=cpu-[0-3] SuspendTime=0\nPartitionName=c Nodes=ALL SuspendTime=9"},
			"no cloud nodes": {without: "NodeName PartitionName", with: "SuspendTime=0"}},
	},
	"resume-timeout-unset": {
		bad:  map[string]sample{"none": {without: "ResumeTimeout", want: []string{"slurm.conf: warning: there is no ResumeTimeout, so it is 60 s; set ResumeTimeout=600"}}},
		good: map[string]sample{"there": {with: "ResumeTimeout=60"}, "no cloud nodes": {without: "ResumeTimeout NodeName PartitionName"}},
	},
	"resume-timeout-short": {
		bad: map[string]sample{
			"the cluster's": {with: "ResumeTimeout=59", want: []string{"slurm.conf:27:1: warning: ResumeTimeout=59; set ResumeTimeout=600"}},
			"a partition's": {with: "PartitionName=b Nodes=cpu-[0-9] ResumeTimeout=30",
				want: []string{"slurm.conf:28:33: warning: ResumeTimeout=30 of partition b; set ResumeTimeout=600 on the line of partition b"}},
		},
		good: map[string]sample{"a minute": {with: "ResumeTimeout=60"}, "of other nodes": {with: "PartitionName=b Nodes=metal-[0-1] ResumeTimeout=30"}},
	},
	"resume-timeout-infinite": {
		bad:  map[string]sample{"INFINITE": {with: "ResumeTimeout=INFINITE", want: []string{"slurm.conf:27:1: warning: ResumeTimeout=INFINITE; set ResumeTimeout=600"}}},
		good: map[string]sample{"long": {with: "ResumeTimeout=65000"}},
	},
	"suspend-timeout": {
		bad: map[string]sample{
			"none":          {without: "SuspendTimeout", want: []string{"slurm.conf: warning: there is no SuspendTimeout, so it is 30 s; set SuspendTimeout=120"}},
			"as without":    {with: "SuspendTimeout=30", want: []string{"slurm.conf:27:1: warning: SuspendTimeout=30; set SuspendTimeout=120"}},
			"the cluster's": {with: "SuspendTimeout=10", want: []string{"slurm.conf:27:1: warning: SuspendTimeout=10; set SuspendTimeout=120"}},
			"by a DEFAULT line": {with: "PartitionName=DEFAULT SuspendTimeout=10\nPartitionName=b Nodes=cpu-[0-9]",
				want: []string{"slurm.conf:28:23: warning: SuspendTimeout=10 of partition b; set SuspendTimeout=120 on the line of partition b"}},
			"a partition's": {with: "PartitionName=b Nodes=cpu-[0-9] SuspendTimeout=10",
				want: []string{"slurm.conf:28:33: warning: SuspendTimeout=10 of partition b; set SuspendTimeout=120 on the line of partition b"}},
		},
		good: map[string]sample{"longer than Slurm's default": {with: "SuspendTimeout=31"}, "of a partition": {with: "PartitionName=b Nodes=cpu-[0-9] SuspendTimeout=31"}},
	},
	"partition-resume-timeout": {
		bad: map[string]sample{"longer": {with: "PartitionName=b Nodes=cpu-[0-9] ResumeTimeout=900\nPartitionName=c Nodes=cpu-[0-9] ResumeTimeout=1200", want: []string{
			"slurm.conf:28:33: warning: ResumeTimeout=900 of partition b is longer than the cluster's, 600; set ResumeTimeout=1200 for the cluster",
			"slurm.conf:29:33: warning: ResumeTimeout=1200 of partition c is longer than the cluster's, 600; set ResumeTimeout=1200 for the cluster"}},
			"without end": {with: "PartitionName=b Nodes=cpu-[0-9] ResumeTimeout=INFINITE", byHand: true, want: []string{
				"slurm.conf:28:33: warning: ResumeTimeout=INFINITE of partition b is longer than the cluster's, 600; give the partition a ResumeTimeout that ends, and the cluster one as long"}}},
		good: map[string]sample{"shorter": {with: "PartitionName=b Nodes=cpu-[0-9] ResumeTimeout=300"}, "of other nodes": {with: "PartitionName=b Nodes=metal-[0-1] ResumeTimeout=900"}},
	},
	"partition-suspend-timeout": {
		bad: map[string]sample{"longer": {with: "PartitionName=b Nodes=cpu-[0-9] SuspendTimeout=300",
			want: []string{"slurm.conf:28:33: warning: SuspendTimeout=300 of partition b is longer than the cluster's, 120; set SuspendTimeout=300 for the cluster"}}},
		good: map[string]sample{"as long": {with: "PartitionName=b Nodes=cpu-[0-9] SuspendTimeout=120"}},
	},
	"rates": {
		bad: map[string]sample{
			"Slurm's defaults": {without: "ResumeRate SuspendRate", want: []string{
				"slurm.conf: warning: there is no ResumeRate, so it is 300 nodes a minute; set ResumeRate=0",
				"slurm.conf: warning: there is no SuspendRate, so it is 60 nodes a minute; set SuspendRate=0"}},
			"the highest": {with: "ResumeRate=60000", want: []string{"slurm.conf:27:1: warning: ResumeRate=60000; set ResumeRate=0"}},
			"one":         {with: "ResumeRate=100", want: []string{"slurm.conf:27:1: warning: ResumeRate=100; set ResumeRate=0"}},
		},
		good: map[string]sample{"0": {}, "no cloud nodes": {without: "ResumeRate NodeName PartitionName"}},
	},
	"rates-too-high": {
		bad:  map[string]sample{"61000": {with: "SuspendRate=61000", want: []string{"slurm.conf:27:1: error: SuspendRate=61000; set SuspendRate=0"}}},
		good: map[string]sample{"60000": {with: "SuspendRate=60000"}, "no cloud nodes": {without: "NodeName PartitionName", with: "SuspendRate=61000"}},
	},
	"batch-start-timeout": {
		bad: map[string]sample{"dynamic nodes alone": {without: "NodeName PartitionName", with: "BatchStartTimeout=9\nMaxNodeCount=5", want: []string{"slurm.conf:24:1: warning: BatchStartTimeout=9; set BatchStartTimeout=10, or remove the line"}},
			"5": {with: "BatchStartTimeout=5", want: []string{"slurm.conf:28:1: warning: BatchStartTimeout=5; set BatchStartTimeout=10, or remove the line"}}},
		good: map[string]sample{"10": {with: "BatchStartTimeout=10"}, "default": {}, "no pods": {without: "NodeName PartitionName", with: "BatchStartTimeout=5"}},
	},
	"slurmd-timeout": {
		bad:  map[string]sample{"0": {with: "SlurmdTimeout=0", want: []string{"slurm.conf:28:1: warning: SlurmdTimeout=0; set SlurmdTimeout=300, or remove the line"}}},
		good: map[string]sample{"60": {with: "SlurmdTimeout=60"}, "default": {}, "no pods": {without: "NodeName PartitionName", with: "SlurmdTimeout=0"}},
	},
}

var parameterSamples = map[string]samplesOf{
	"idle-on-node-suspend": {
		bad: map[string]sample{"none": {with: "SlurmctldParameters=enable_configless",
			want: []string{"slurm.conf:27:1: error: SlurmctldParameters has no idle_on_node_suspend; set SlurmctldParameters=enable_configless,idle_on_node_suspend"}}},
		good: map[string]sample{"in another case": {with: "SlurmctldParameters=Idle_On_Node_Suspend"}},
	},
	"enable-configless": {
		bad: map[string]sample{"none": {without: "SlurmctldParameters",
			want: []string{"slurm.conf: error: SlurmctldParameters has no enable_configless; set SlurmctldParameters=enable_configless"}}},
		good: map[string]sample{"there": {with: "SlurmctldParameters=enable_configless"}},
	},
	"power-save-interval": {
		bad: map[string]sample{
			"default": {with: "SlurmctldParameters=enable_configless",
				want: []string{"slurm.conf:27:1: hint: power_save_interval is 10 s; set SlurmctldParameters=enable_configless,power_save_interval=0"}},
			"both": {with: "SlurmctldParameters=power_save_interval=5,power_save_min_interval=2",
				want: []string{"slurm.conf:27:1: hint: power_save_interval is 5 s, power_save_min_interval is 2 s; set SlurmctldParameters=power_save_interval=0,power_save_min_interval=0"}},
		},
		good: map[string]sample{"0": {with: "SlurmctldParameters=power_save_interval=0"}, "no cloud nodes": {without: "SlurmctldParameters NodeName PartitionName"}},
	},
	"power-save-interval-too-long": {
		bad: map[string]sample{"61 with a rate": {with: "ResumeRate=10\nSlurmctldParameters=power_save_interval=61",
			want: []string{"slurm.conf:27:1: error: power_save_interval=61 with ResumeRate=10 and SuspendRate=0; set SlurmctldParameters=power_save_interval=0"}}},
		good: map[string]sample{"61 without": {with: "SlurmctldParameters=power_save_interval=61"}, "60": {with: "ResumeRate=10\nSlurmctldParameters=power_save_interval=60"}},
	},
	"misspelt-parameter": {
		bad: map[string]sample{
			"a letter": {with: "SlurmctldParameters=idle_on_nodes_suspend,enable_configless", want: []string{"slurm.conf:27:1: warning: SlurmctldParameters: Slurm knows no idle_on_nodes_suspend; write idle_on_node_suspend"}},
			"a value":  {with: "SlurmctldParameters=powersave_interval=0", want: []string{"slurm.conf:27:1: warning: SlurmctldParameters: Slurm knows no powersave_interval; write power_save_interval=0"}},
		},
		good: map[string]sample{"new to us": {with: "SlurmctldParameters=something_wholly_different_xyzzy"}, "known": {with: "SlurmctldParameters=cloud_dns"}},
	},
	"dead-parameter": {
		bad: map[string]sample{"all": {with: "SlurmctldParameters=cloud_reg_addrs,enable_configless\nCommunicationParameters=NoAddrCache\nPrivateData=cloud,jobs", want: []string{
			"slurm.conf:27:1: warning: SlurmctldParameters has cloud_reg_addrs; remove the word",
			"slurm.conf:28:1: warning: CommunicationParameters has NoAddrCache; remove the word",
			"slurm.conf:29:1: warning: PrivateData has cloud; remove the word"}}},
		good: map[string]sample{"others": {with: "PrivateData=jobs\nCommunicationParameters=NoInAddrAny"}},
	},
	"cloud-dns": {
		bad:  map[string]sample{"set": {with: "SlurmctldParameters=cloud_dns", byHand: true, want: []string{"slurm.conf:27:1: hint: SlurmctldParameters has cloud_dns; remove the word unless every client and node can resolve node names"}}},
		good: map[string]sample{"not": {}},
	},
	"return-to-service": {
		bad: map[string]sample{
			"1":       {with: "ReturnToService=1", want: []string{"slurm.conf:27:1: error: ReturnToService=1; set ReturnToService=2"}},
			"default": {without: "ReturnToService", want: []string{"slurm.conf: error: there is no ReturnToService, so it is 0; set ReturnToService=2"}},
		},
		good: map[string]sample{"2": {}, "no cloud nodes": {without: "ReturnToService NodeName PartitionName"}},
	},
	"job-requeue": {
		bad: map[string]sample{"0": {with: "JobRequeue=0", want: []string{"slurm.conf:28:1: warning: JobRequeue=0; set JobRequeue=1, or remove the line"}},
			"24.11 knows no exception": {version: "24.11", with: "JobRequeue=0\nSchedulerParameters=requeue_on_resume_failure", want: []string{"slurm.conf:27:1: warning: JobRequeue=0; set JobRequeue=1, or remove the line"}}},
		good: map[string]sample{"1": {with: "JobRequeue=1"}, "default": {}, "not for jobs without nodes": {version: "25.05", with: "JobRequeue=0\nSchedulerParameters=requeue_on_resume_failure"}},
	},
	"requeue-on-resume-failure": {
		bad: map[string]sample{"24.11": {version: "24.11", with: "SchedulerParameters=batch_sched_delay=0,requeue_on_resume_failure", byHand: true, want: []string{
			"slurm.conf:27:1: warning: SchedulerParameters has requeue_on_resume_failure, and Slurm is 24.11; use Slurm 25.05, or let jobs be requeued"}}},
		good: map[string]sample{"25.05": {version: "25.05", with: "SchedulerParameters=requeue_on_resume_failure"}, "without": {version: "24.11"},
			"no cloud nodes": {version: "24.11", without: "NodeName PartitionName", with: "SchedulerParameters=requeue_on_resume_failure"}},
	},
	"requeue-delay": {
		bad: map[string]sample{
			"default": {without: "AuthInfo", want: []string{"slurm.conf: hint: a requeued job rests for 120 s (cred_expire); set AuthInfo=cred_expire=30"}},
			"26.05": {with: "SchedulerParameters=batch_sched_delay=0,requeue_delay=300",
				want: []string{"slurm.conf:27:1: hint: a requeued job rests for 300 s (requeue_delay); set SchedulerParameters=batch_sched_delay=0,requeue_delay=30"}},
			"24.11 knows no requeue_delay": {version: "24.11", without: "AuthInfo", with: "SchedulerParameters=requeue_delay=10",
				want: []string{"slurm.conf: hint: a requeued job rests for 120 s (cred_expire); set AuthInfo=cred_expire=30"}},
		},
		good: map[string]sample{"a minute": {with: "AuthInfo=cred_expire=60"}, "26.05": {without: "AuthInfo", with: "SchedulerParameters=requeue_delay=10"}},
	},
	"batch-sched-delay": {
		bad: map[string]sample{"3": {with: "SchedulerParameters=batch_sched_delay=3", want: []string{"slurm.conf:27:1: hint: SchedulerParameters has no batch_sched_delay=0; set SchedulerParameters=…,batch_sched_delay=0"}},
			"default": {with: "SchedulerParameters=sched_interval=5",
				want: []string{"slurm.conf:27:1: hint: SchedulerParameters has no batch_sched_delay=0; set SchedulerParameters=…,batch_sched_delay=0"}}},
		good: map[string]sample{"0": {with: "SchedulerParameters=batch_sched_delay=0,sched_interval=5"}, "no cloud nodes": {without: "SchedulerParameters NodeName PartitionName"}},
	},
	"jwt": {
		bad: map[string]sample{"none": {without: "AuthAltTypes", byHand: true,
			want: []string{"slurm.conf: warning: AuthAltTypes has no auth/jwt; set AuthAltTypes=auth/jwt, and AuthAltParameters=jwt_key=… (docs/install.md)"}}},
		good: map[string]sample{"there": {}, "no cloud nodes": {without: "AuthAltTypes NodeName PartitionName"}},
	},
	"prolog-flags": {
		bad: map[string]sample{
			"NoHold":         {with: "PrologFlags=Contain,NoHold", want: []string{"slurm.conf:28:1: error: PrologFlags has NoHold beside Contain, X11 or RunInJob; remove NoHold"}},
			"X11":            {with: "PrologFlags=X11", want: []string{"slurm.conf:28:1: error: PrologFlags has X11, ProctrackType is proctrack/linuxproc; remove X11"}},
			"enable_stepmgr": {with: "SlurmctldParameters=enable_stepmgr", want: []string{"slurm.conf:27:1: error: SlurmctldParameters has enable_stepmgr, PrologFlags no Contain; set PrologFlags=Contain, or remove enable_stepmgr"}},
			"unknown":        {with: "PrologFlags=Aloc", want: []string{"slurm.conf:28:1: error: PrologFlags: no such flag Aloc; remove it; Slurm has Alloc, Contain, DeferBatch, ForceRequeueOnFail, NoHold, RunInJob, Serial, X11"}},
		},
		good: map[string]sample{"Alloc": {with: "PrologFlags=alloc,Serial"}, "X11 with cgroups": {with: "PrologFlags=X11\nProctrackType=proctrack/cgroup"},
			"enable_stepmgr": {with: "SlurmctldParameters=enable_stepmgr\nPrologFlags=RunInJob"}},
	},
	"tree-width": {
		bad:  map[string]sample{"65533": {with: "TreeWidth=65533", want: []string{"slurm.conf:28:1: hint: TreeWidth=65533; remove TreeWidth"}}},
		good: map[string]sample{"50": {with: "TreeWidth=50"}, "default": {}, "no pods": {without: "NodeName PartitionName", with: "TreeWidth=65533"}},
	},
	"node-reg-mem-percent": {
		bad: map[string]sample{"set": {with: "SlurmctldParameters=enable_configless,node_reg_mem_percent=80", want: []string{
			"slurm.conf:27:1: hint: SlurmctldParameters has node_reg_mem_percent, and SlurmdParameters has config_overrides; remove the word"}}},
		good: map[string]sample{"without config_overrides": {without: "SlurmdParameters", with: "SlurmctldParameters=node_reg_mem_percent=80"}, "not set": {},
			"no cloud nodes": {without: "NodeName PartitionName", with: "SlurmctldParameters=node_reg_mem_percent=80"}},
	},
	"keep-power-save-settings": {
		bad:  map[string]sample{"set": {with: "ReconfigFlags=KeepPartState,keeppowersavesettings", want: []string{"slurm.conf:28:1: hint: ReconfigFlags has KeepPowerSaveSettings; remove the word"}}},
		good: map[string]sample{"another": {with: "ReconfigFlags=KeepPartState"}, "not set": {}, "no cloud nodes": {without: "NodeName PartitionName", with: "ReconfigFlags=KeepPowerSaveSettings"}},
	},
	"reboot-program": {
		bad: map[string]sample{
			"in the pod": {with: "RebootProgram=/sbin/reboot", byHand: true,
				want: []string{"slurm.conf:28:1: hint: RebootProgram=/sbin/reboot, and nodes have State=CLOUD; for pods use scontrol power down asap, not scontrol reboot"}},
			"a PowerAction in the pod": {with: "SlurmctldParameters=enable_configless,idle_on_node_suspend,reboot_from_controller\nRebootProgram=again\nPowerAction=again Program=/sbin/reboot Location=slurmd", byHand: true,
				want: []string{"slurm.conf:28:1: hint: RebootProgram=again, and nodes have State=CLOUD; for pods use scontrol power down asap, not scontrol reboot"}},
		},
		good: map[string]sample{
			"on slurmctld's host": {with: "SlurmctldParameters=reboot_from_controller\nRebootProgram=/opt/site/reboot"}, "none": {}, "no cloud nodes": {without: "NodeName PartitionName", with: "RebootProgram=/sbin/reboot"},
			"a PowerAction there": {with: "RebootProgram=again\nPowerAction=again Program=/opt/site/reboot Location=slurmctld"},
		},
	},
	"route-tree": {
		bad:  map[string]sample{"dynamic": {with: "TopologyParam=RouteTree\nMaxNodeCount=64", want: []string{"slurm.conf:28:1: warning: TopologyParam has RouteTree, and nodes may register themselves (MaxNodeCount); remove the word"}}},
		good: map[string]sample{"not dynamic": {with: "TopologyParam=RouteTree"}},
	},
}

var exceptionSamples = map[string]samplesOf{
	"exc-states": {
		bad: map[string]sample{"CLOUD": {with: "SuspendExcStates=cloud,DRAIN,DOWN",
			want: []string{"slurm.conf:28:1: warning: SuspendExcStates has cloud, DOWN; remove cloud, DOWN"}}},
		good: map[string]sample{"DRAIN": {with: "SuspendExcStates=DRAIN"}, "no cloud nodes": {without: "NodeName PartitionName", with: "SuspendExcStates=DOWN"}},
	},
	"exc-states-unknown": {
		bad: map[string]sample{"IDLE": {with: "SuspendExcStates=DRAIN,IDLE", want: []string{
			"slurm.conf:28:1: warning: SuspendExcStates: no such state IDLE; remove it; Slurm has CLOUD, DOWN, DRAIN, DYNAMIC_FUTURE, DYNAMIC_NORM, FAIL, INVALID_REG, MAINTENANCE, NOT_RESPONDING, PLANNED, RESERVED, EXTERNAL"}}},
		good: map[string]sample{"words": {with: "SuspendExcStates=drain,EXTERNAL"}},
	},
	"exc-nodes": {
		bad: map[string]sample{
			"nodes":                       {with: "SuspendExcNodes=cpu-[0-1]", byHand: true, want: []string{"slurm.conf:28:1: hint: SuspendExcNodes=cpu-[0-1] has nodes with State=CLOUD; remove them, and set spec.replicas of the NodeSet"}},
			"with a count":                {with: "SuspendExcNodes=cpu-[0-9]:2", byHand: true, want: []string{"slurm.conf:28:1: hint: SuspendExcNodes=cpu-[0-9]:2 has nodes with State=CLOUD; remove them, and set spec.replicas of the NodeSet"}},
			"by one of several node sets": {with: "NodeSet=none Nodes=metal-0\nNodeSet=some Nodes=cpu-[0-3]\nSuspendExcNodes=some", byHand: true, want: []string{"slurm.conf:30:1: hint: SuspendExcNodes=some has nodes with State=CLOUD; remove them, and set spec.replicas of the NodeSet"}},
			"by a node set":               {with: "NodeSet=some Nodes=cpu-[0-3]\nSuspendExcNodes=some", byHand: true, want: []string{"slurm.conf:29:1: hint: SuspendExcNodes=some has nodes with State=CLOUD; remove them, and set spec.replicas of the NodeSet"}},
			"by partition":                {with: "SuspendExcParts=cpu", byHand: true, want: []string{"slurm.conf:28:1: hint: SuspendExcParts has partition cpu, which has nodes with State=CLOUD; remove it, and set spec.replicas of the NodeSet"}},
		},
		good: map[string]sample{"others": {with: "SuspendExcNodes=metal-[0-1]\nSuspendExcParts=metal"}, "a node set of others": {with: "NodeSet=some Nodes=metal-0\nNodeSet=more Nodes=cpu-1\nSuspendExcNodes=some"}},
	},
	"exc-nodes-cut": {
		bad:  map[string]sample{"a comma in brackets": {with: "SuspendExcNodes=cpu-[1,5]:1", byHand: true, want: []string{"slurm.conf:28:1: error: SuspendExcNodes=cpu-[1,5]:1 has a count, and a comma in brackets; give each range an entry of its own: n[1-2]:1,n[5-6]:1"}}},
		good: map[string]sample{"without a count": {with: "SuspendExcNodes=cpu-[1,5]"}, "apart": {with: "SuspendExcNodes=cpu-1:1,cpu-5"}},
	},
	"exc-unknown": {
		bad: map[string]sample{
			"nodes":     {with: "SuspendExcNodes=cpu-[8-11]:2", byHand: true, want: []string{"slurm.conf:28:1: warning: SuspendExcNodes: there are no nodes cpu-[10-11]; correct the names"}},
			"partition": {with: "SuspendExcParts=metal,gpu", byHand: true, want: []string{"slurm.conf:28:1: warning: SuspendExcParts: there is no partition gpu; correct the name"}},
		},
		good: map[string]sample{"known": {with: "SuspendExcNodes=cpu-[8-9]\nSuspendExcParts=metal"}, "node set": {with: "NodeSet=some Nodes=cpu-[0-3]\nSuspendExcNodes=some"},
			"nodes that may register": {with: "MaxNodeCount=64\nSuspendExcNodes=dyn-[1-9]"}},
	},
	"exc-dynamic": {
		bad: map[string]sample{"none": {with: "MaxNodeCount=64\nSuspendExcStates=DRAIN",
			want: []string{"slurm.conf:29:1: warning: nodes may register themselves (MaxNodeCount), and SuspendExcStates has no DYNAMIC_NORM; set SuspendExcStates=DRAIN,DYNAMIC_NORM"}}},
		good: map[string]sample{"no program": {without: "SuspendProgram", with: "MaxNodeCount=64"}, "no other program": {without: "ResumeProgram", with: "MaxNodeCount=64"}, "there": {with: "MaxNodeCount=64\nSuspendExcStates=DYNAMIC_NORM"}, "no power saving": {without: "SuspendTime", with: "MaxNodeCount=64"}, "none may": {}},
	},
}

var nodeSamples = map[string]samplesOf{
	"no-nodes": {
		bad:  map[string]sample{"none": {without: "NodeName PartitionName", with: "NodeName=a", byHand: true, want: []string{"slurm.conf: hint: no node has State=CLOUD, and none may register itself; add NodeName=… State=CLOUD with the names of a NodeSet, or MaxNodeCount=…"}}},
		good: map[string]sample{"cloud": {}, "dynamic": {without: "NodeName PartitionName", with: "MaxNodeCount=5"}},
	},
	"cloud-without-partition": {
		bad: map[string]sample{
			"node sets of other nodes": {with: "NodeName=gpu-[0-3] Feature=x State=CLOUD\nNodeSet=g Feature=y\nNodeSet=h Nodes=cpu-1\nNodeSet=i Nodes=gpu-[0-3]\nPartitionName=g Nodes=g,h", byHand: true,
				want: []string{"slurm.conf:28:1: warning: gpu-[0-3] are in no partition; add PartitionName=… Nodes=gpu-[0-3]"}}, "none": {with: "NodeName=gpu-[0-3] State=CLOUD", byHand: true, want: []string{"slurm.conf:28:1: warning: gpu-[0-3] are in no partition; add PartitionName=… Nodes=gpu-[0-3]"}}},
		good: map[string]sample{"ALL": {with: "NodeName=gpu-[0-3] State=CLOUD\nPartitionName=all Nodes=ALL"}, "a node set": {with: "NodeName=gpu-[0-3] State=CLOUD Feature=g\nNodeSet=g Feature=g\nPartitionName=g Nodes=g"},
			"by name": {with: "NodeName=gpu-[0-3] State=CLOUD\nNodeSet=g Nodes=gpu-[0-3]\nPartitionName=g Nodes=g"}},
	},
	"cloud-memory": {
		bad: map[string]sample{
			"default of cons_tres": {without: "SelectTypeParameters", with: "NodeName=gpu-[0-3] State=CLOUD", byHand: true, want: []string{"slurm.conf:27:1: warning: gpu-[0-3] have no RealMemory; set RealMemory=<MiB> on the line, as in spec.shape.realMemory of the NodeSet"}},
			"a partition's":        {with: "NodeName=gpu-[0-3] State=CLOUD\nPartitionName=g Nodes=gpu-[0-3] SelectTypeParameters=CR_Core_Memory", byHand: true, want: []string{"slurm.conf:28:1: warning: gpu-[0-3] have no RealMemory; set RealMemory=<MiB> on the line, as in spec.shape.realMemory of the NodeSet"}},
		},
		good: map[string]sample{"not allocated": {with: "NodeName=gpu-[0-3] State=CLOUD"}, "given": {without: "SelectTypeParameters"}},
	},
	"cloud-address": {
		bad: map[string]sample{"addresses": {with: "NodeName=gpu-[0-3] NodeAddr=10.0.0.[1-4] State=CLOUD",
			want: []string{"slurm.conf:28:20: warning: gpu-[0-3] have NodeAddr=10.0.0.[1-4]; remove NodeAddr from the line"}}},
		good: map[string]sample{"of other nodes": {with: "NodeName=m[0-3] NodeAddr=10.0.0.[1-4]"}, "their names": {with: "NodeName=gpu-[0-3] NodeAddr=gpu-[0-3] State=CLOUD"}},
	},
	"partition-exclusive-power": {
		bad:  map[string]sample{"set": {with: "PartitionName=b Nodes=cpu-[0-9] PowerDownOnIdle=YES", byHand: true, want: []string{"slurm.conf:28:33: hint: PowerDownOnIdle=YES of partition b; remove PowerDownOnIdle unless that is meant"}}},
		good: map[string]sample{"of other nodes": {with: "PartitionName=b Nodes=metal-[0-1] PowerDownOnIdle=YES"}, "no": {with: "PartitionName=b Nodes=cpu-[0-9] PowerDownOnIdle=NO"}},
	},
	"max-node-count": {
		bad:  map[string]sample{"too small": {with: "MaxNodeCount=12", byHand: true, want: []string{"slurm.conf:28:1: error: MaxNodeCount=12, and slurm.conf alone has 12 nodes; set MaxNodeCount to 12 and the nodes of Dynamic NodeSets, or remove it"}}},
		good: map[string]sample{"room": {with: "MaxNodeCount=13"}},
	},
	"dynamic-select": {
		bad:  map[string]sample{"linear": {with: "MaxNodeCount=64\nSelectType=select/linear\nSelectTypeParameters=CR_Memory", want: []string{"slurm.conf:27:1: error: SelectType=select/linear with MaxNodeCount; set SelectType=select/cons_tres"}}},
		good: map[string]sample{"default": {without: "SelectType", with: "MaxNodeCount=64"}},
	},
	"dynamic-without-partition": {
		bad: map[string]sample{"a node set that no partition names": {with: "MaxNodeCount=64\nNodeSet=d Feature=d\nNodeSet=e Nodes=metal-0\nPartitionName=d Nodes=e", byHand: true, want: []string{"slurm.conf:28:1: warning: nodes may register themselves (MaxNodeCount), and no partition takes them; add NodeSet=dyn Feature=dyn and PartitionName=dyn Nodes=dyn"}},
			"none": {with: "MaxNodeCount=64", byHand: true, want: []string{"slurm.conf:28:1: warning: nodes may register themselves (MaxNodeCount), and no partition takes them; add NodeSet=dyn Feature=dyn and PartitionName=dyn Nodes=dyn"}}},
		good: map[string]sample{"ALL and others": {with: "MaxNodeCount=64\nPartitionName=all Nodes=ALL,metal-0"}, "ALL": {with: "MaxNodeCount=64\nPartitionName=all Nodes=ALL"}, "by feature": {with: "MaxNodeCount=64\nNodeSet=d Feature=d\nPartitionName=d Nodes=d"}},
	},
}

var gresSamples = map[string]samplesOf{
	"gres-types": {
		bad: map[string]sample{"none": {with: "NodeName=gpu-[0-3] Gres=gpu:h100:2,shard:4 State=CLOUD\nGresTypes=shard",
			want: []string{"slurm.conf:28:20: error: gpu-[0-3] have Gres=gpu:h100:2,shard:4, and GresTypes has no gpu; set GresTypes=shard,gpu"}}},
		good: map[string]sample{"there": {with: "NodeName=gpu-[0-3] Gres=gpu:2 State=CLOUD\nGresTypes=gpu"}},
	},
	"gres-conf": {
		bad: map[string]sample{
			"no file":         {with: gpus, byHand: true, want: []string{"slurm.conf:28:20: error: gpu-[0-3] have Gres=gpu:h100:2, and gres.conf has no line for them; add to gres.conf: NodeName=gpu-[0-3] Name=gpu File=/dev/nvidia[0-1]"}},
			"of other nodes":  {with: gpus, gres: "NodeName=metal-0 Name=gpu File=/dev/nvidia[0-1]", byHand: true, want: []string{"slurm.conf:28:20: error: gpu-[0-3] have Gres=gpu:h100:2, and gres.conf has no line for them; add to gres.conf: NodeName=gpu-[0-3] Name=gpu File=/dev/nvidia[0-1]"}},
			"of another name": {with: gpus, gres: "NodeName=gpu-[0-3] Name=mps File=/dev/nvidia[0-1]", byHand: true, want: []string{"slurm.conf:28:20: error: gpu-[0-3] have Gres=gpu:h100:2, and gres.conf has no line for them; add to gres.conf: NodeName=gpu-[0-3] Name=gpu File=/dev/nvidia[0-1]"}},
			"AutoDetect off":  {with: gpus, gres: "AutoDetect=off", byHand: true, want: []string{"slurm.conf:28:20: error: gpu-[0-3] have Gres=gpu:h100:2, and gres.conf has no line for them; add to gres.conf: NodeName=gpu-[0-3] Name=gpu File=/dev/nvidia[0-1]"}},
			"no File":         {with: gpus, gres: "Name=gpu Count=2", byHand: true, want: []string{"slurm.conf:28:20: error: gpu-[0-3] have Gres=gpu:h100:2, and gres.conf has 0 GPUs with File for them; add to gres.conf: NodeName=gpu-[0-3] Name=gpu File=/dev/nvidia[0-1]"}},
			"too few":         {with: gpus, gres: "NodeName=gpu-[0-9] Name=gpu File=/dev/nvidia0", byHand: true, want: []string{"slurm.conf:28:20: error: gpu-[0-3] have Gres=gpu:h100:2, and gres.conf has 1 GPUs with File for them; add to gres.conf: NodeName=gpu-[0-3] Name=gpu File=/dev/nvidia[0-1]"}},
		},
		good: map[string]sample{
			"beside others":       {with: gpus, gres: "Name=shard Count=4\nNodeName=metal-0 Name=gpu File=/dev/nvidia0\nNodeName=gpu-[0-3] AutoDetect=off Name=gpu File=/dev/nvidia[0-1]"},
			"on the line (26.05)": {with: "NodeName=gpu-[0-3] Gres=gpu:h100:2 GresConf=/etc/slurm/g.conf State=CLOUD\nGresTypes=gpu\nPartitionName=gpu Nodes=gpu-[0-3]"},
			"for all nodes":       {with: gpus, gres: "Name=gpu Type=h100 File=/dev/nvidia[0-1]"}, "two lines": {with: gpus, gres: "NodeName=gpu-[0-3] Name=gpu File=/dev/nvidia0\nNodeName=gpu-[0-3] Name=gpu File=/dev/nvidia1"},
			"found on the node": {with: gpus, gres: "AutoDetect=nvml"},
			"slices of a GPU":   {with: gpus, gres: "NodeName=gpu-[0-3] Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap3\nNodeName=gpu-[0-3] Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap4"}},
	},
	"gres-autodetect": {
		bad: map[string]sample{"for all": {with: gpus, gres: "AutoDetect=nvml", byHand: true,
			want: []string{"gres.conf:1:1: warning: AutoDetect=nvml is to find the GPUs of gpu-[0-3], which have State=CLOUD; add NodeName=gpu-[0-3] Name=gpu File=/dev/nvidia[0-1]"}},
			"for them": {with: gpus, gres: "NodeName=gpu-[0-3] AutoDetect=nvidia Name=gpu", byHand: true,
				want: []string{"gres.conf:1:20: warning: AutoDetect=nvidia is to find the GPUs of gpu-[0-3], which have State=CLOUD; add NodeName=gpu-[0-3] Name=gpu File=/dev/nvidia[0-1]"}}},
		good: map[string]sample{"for others": {with: gpus, gres: "NodeName=metal-0 AutoDetect=nvml\nNodeName=gpu-[0-3] Name=gpu File=/dev/nvidia[0-1]"}, "off": {with: gpus, gres: "AutoDetect=off"}},
	},
}

// alone are cloud nodes without others beside them.
const alone = "NodeName=cpu-[0-9] CPUs=4 RealMemory=8000 State=CLOUD\nPartitionName=cpu Nodes=cpu-[0-9]\n"

const gpus = "NodeName=gpu-[0-3] Gres=gpu:h100:2 State=CLOUD\nGresTypes=gpu\nPartitionName=gpu Nodes=gpu-[0-3]"

var podSamples = map[string]samplesOf{
	"config-overrides": {
		bad:  map[string]sample{"none": {without: "SlurmdParameters", want: []string{"slurm.conf: warning: SlurmdParameters has no config_overrides; set SlurmdParameters=config_overrides"}}},
		good: map[string]sample{"there": {}, "no cloud nodes": {without: "SlurmdParameters NodeName PartitionName"}},
	},
	"process-plugins": {
		bad: map[string]sample{
			"dynamic nodes alone": {without: "NodeName PartitionName ProctrackType", with: "MaxNodeCount=5", want: []string{"slurm.conf: warning: there is no ProctrackType, so it is proctrack/cgroup; set ProctrackType=proctrack/linuxproc"}},
			"beside other nodes":  {without: "ProctrackType", byHand: true, want: []string{"slurm.conf: warning: there is no ProctrackType, so it is proctrack/cgroup; set ProctrackType=proctrack/linuxproc"}},
			"X11":                 {without: "NodeName PartitionName ProctrackType", with: alone + "PrologFlags=X11", byHand: true, want: []string{"slurm.conf: warning: there is no ProctrackType, so it is proctrack/cgroup; set ProctrackType=proctrack/linuxproc"}},
			"Slurm's default":     {without: "NodeName PartitionName ProctrackType", with: alone, want: []string{"slurm.conf: warning: there is no ProctrackType, so it is proctrack/cgroup; set ProctrackType=proctrack/linuxproc"}},
			"slurmdbd": {without: "NodeName PartitionName", with: alone + "AccountingStorageType=accounting_storage/slurmdbd\nJobAcctGatherType=jobacct_gather/cgroup", want: []string{
				"slurm.conf:27:1: warning: JobAcctGatherType=jobacct_gather/cgroup; set JobAcctGatherType=jobacct_gather/linux"}},
			"all": {without: "NodeName PartitionName", with: alone + "ProctrackType=proctrack/cgroup\nTaskPlugin=task/affinity,task/cgroup\nJobAcctGatherType=jobacct_gather/cgroup", want: []string{
				"slurm.conf:25:1: warning: ProctrackType=proctrack/cgroup; set ProctrackType=proctrack/linuxproc",
				"slurm.conf:26:1: warning: TaskPlugin=task/affinity,task/cgroup; set TaskPlugin=task/none",
				"slurm.conf:27:1: warning: JobAcctGatherType=jobacct_gather/cgroup; set JobAcctGatherType=jobacct_gather/none"}},
		},
		good: map[string]sample{"others": {with: "TaskPlugin=task/affinity\nJobAcctGatherType=jobacct_gather/linux"}, "no pods": {without: "NodeName PartitionName ProctrackType"}},
	},
	"cgroup-plugin": {
		bad: map[string]sample{
			"no file": {cgroup: "-", byHand: true, want: []string{"./cgroup.conf: warning: there is no cgroup.conf, so CgroupPlugin is autodetect; set CgroupPlugin=disabled in cgroup.conf"}},
			"no line": {cgroup: "ConstrainCores=yes\n", byHand: true, want: []string{"./cgroup.conf: warning: there is no CgroupPlugin, so it is autodetect; set CgroupPlugin=disabled in cgroup.conf"}},
			"v2":      {cgroup: "CgroupPlugin=cgroup/v2\n", byHand: true, want: []string{"cgroup.conf:1:1: warning: CgroupPlugin=cgroup/v2; set CgroupPlugin=disabled in cgroup.conf"}},
		},
		good: map[string]sample{"disabled": {}, "no cloud nodes": {without: "NodeName PartitionName", cgroup: "-"}},
	},
}
