package doctor

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/slurmtide/slurmtide/internal/spelling"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// parameterRules are about lists of words, and what else slurmctld does with nodes.
func parameterRules() []Rule {
	return []Rule{
		{
			Name: "idle-on-node-suspend", Severity: Error,
			Why:    "a node that was DOWN or DRAIN when it was powered down stays so, and no job ever gets it again",
			Remedy: "SlurmctldParameters=…,idle_on_node_suspend",
			Source: "slurm.conf(5) SlurmctldParameters idle_on_node_suspend; src/slurmctld/power_save.c",
			check: func(f *Facts) []Finding {
				return wantsWord(f, f.saves(), "SlurmctldParameters", "idle_on_node_suspend")
			},
		},
		{
			Name: "enable-configless", Severity: Error,
			Why:    "slurmd pods fetch the configuration from slurmctld (--conf-server), which hands out none",
			Remedy: "SlurmctldParameters=…,enable_configless",
			Source: "slurm.conf(5) SlurmctldParameters",
			check: func(f *Facts) []Finding {
				return wantsWord(f, f.saves() || f.dynamic(), "SlurmctldParameters", "enable_configless")
			},
		},
		{
			Name: "power-save-interval", Severity: Hint,
			Why:    "slurmctld looks only so often for nodes to resume, unless a node has just changed: a job waits for ResumeProgram for so long (it waits for more than the interval, so that 1 may be 2 s)",
			Remedy: "SlurmctldParameters=…,power_save_interval=0,power_save_min_interval=0",
			Source: "slurm.conf(5) SlurmctldParameters; src/slurmctld/power_save.c _power_save_thread",
			check:  intervals,
		},
		{
			Name: "power-save-interval-too-long", Severity: Error,
			Why:    "slurmctld turns power saving off if an interval is longer than 60 s and there is a rate",
			Remedy: "SlurmctldParameters=…,power_save_interval=0,power_save_min_interval=0",
			Source: "src/slurmctld/power_save.c _init_power_config",
			check:  intervalsTooLong,
		},
		{
			Name: "misspelt-parameter", Severity: Warning,
			Why:    "Slurm says nothing about words of SlurmctldParameters that it does not know, and goes on without",
			Remedy: "the word as slurm.conf(5) has it",
			Source: "slurm.conf(5) SlurmctldParameters; src/slurmctld/controller.c, power_save.c (xstrcasestr)",
			check:  misspelt,
		},
		{
			Name: "dead-parameter", Severity: Warning,
			Why:    "it has had no effect since Slurm 23.11 (PrivateData=cloud since 23.02); addresses come from slurmd's registration",
			Remedy: "remove the word",
			Source: "src/common/read_config.c (\"is defunct, please remove it\")",
			check:  deadParameters,
		},
		{
			Name: "cloud-dns", Severity: Hint,
			Why:    "clients and slurmds look node names up themselves: srun fails where they cannot. Without it slurmctld hands the addresses out",
			Remedy: "SlurmctldParameters without cloud_dns, unless every client and node can resolve node names",
			Source: "slurm.conf(5) SlurmctldParameters; src/slurmctld/node_scheduler.c set_initial_job_alias_list, set_job_alias_list",
			check:  cloudDNS,
		},
		{
			Name: "return-to-service", Severity: Error,
			Why:    "slurmd runs with -b in a pod, so that a restarted one looks like a rebooted machine: the node is set DOWN (\"Node unexpectedly rebooted\"), and only 2 brings it back",
			Remedy: "ReturnToService=2",
			Source: "slurm.conf(5) ReturnToService; src/slurmctld/node_mgr.c validate_node_specs",
			check:  returnToService,
		},
		{
			Name: "job-requeue", Severity: Warning,
			Why:    "a batch job that cannot get its nodes ends as NODE_FAIL instead of going back to the queue",
			Remedy: "JobRequeue=1 (Slurm's default); or from 25.05 on SchedulerParameters=…,requeue_on_resume_failure, which is for jobs alone whose nodes have not booted",
			Source: "slurm.conf(5) JobRequeue, SchedulerParameters requeue_on_resume_failure; src/slurmctld/job_mgr.c kill_running_job_by_node_ptr",
			check:  jobRequeue,
		},
		{
			Name: "requeue-on-resume-failure", Severity: Warning,
			Why:    "Slurm before 25.05 does not know the word, and says nothing: a batch job that may not be requeued (--no-requeue, JobRequeue=0) ends as NODE_FAIL if it cannot get its nodes",
			Remedy: "Slurm 25.05, or JobRequeue=1 and jobs without --no-requeue",
			Source: "slurm.conf(5) SchedulerParameters requeue_on_resume_failure; src/slurmctld/job_mgr.c kill_running_job_by_node_ptr",
			check:  requeueOnResumeFailure,
		},
		{
			Name: "requeue-delay", Severity: Hint,
			Why:    "a job that is given back may not start again for so long (default 120 s), though there may be nodes at once",
			Remedy: "AuthInfo=…,cred_expire=30; from 26.05 on SchedulerParameters=…,requeue_delay=30",
			Source: "slurm.conf(5) AuthInfo cred_expire, SchedulerParameters requeue_delay; src/slurmctld/job_mgr.c _requeue_delay",
			check:  requeueDelay,
		},
		{
			Name: "batch-sched-delay", Severity: Hint,
			Why:    "a batch job is first looked at up to 3 s after it was submitted, and only then are nodes powered up",
			Remedy: "SchedulerParameters=…,batch_sched_delay=0",
			Source: "slurm.conf(5) SchedulerParameters batch_sched_delay",
			check: func(f *Facts) []Finding {
				if delay, ok := f.word("SchedulerParameters", "batch_sched_delay"); !f.saves() || ok && delay == "0" {
					return nil
				}
				return []Finding{found(f.where("SchedulerParameters"), "set SchedulerParameters=…,batch_sched_delay=0", []edit{f.addWords("SchedulerParameters", "batch_sched_delay=0")},
					"SchedulerParameters has no batch_sched_delay=0")}
			},
		},
		{
			Name: "jwt", Severity: Warning,
			Why:    "the bridge asks slurmrestd, which refuses SlurmUser's own requests unless they come with a token (rest_auth/jwt)",
			Remedy: "AuthAltTypes=auth/jwt and AuthAltParameters=jwt_key=…",
			Source: "slurm.conf(5) AuthAltTypes, AuthAltParameters; slurmrestd(8)",
			check:  tokens,
		},
		{
			Name: "prolog-flags", Severity: Error,
			Why:    "Slurm does not start with the combination",
			Remedy: "what the finding says",
			Source: "slurm.conf(5) PrologFlags; src/common/read_config.c, src/slurmctld/read_config.c (fatal)",
			check:  prologFlags,
		},
		{
			Name: "tree-width", Severity: Hint,
			Why:    "since Slurm 23.11 the addresses of cloud nodes travel with the messages: slurmctld need not reach every node itself, and with such a width it does",
			Remedy: "TreeWidth removed (default 16)",
			Source: "slurm.conf(5) TreeWidth",
			check:  treeWidth,
		},
		{
			Name: "node-reg-mem-percent", Severity: Hint,
			Why:    "with config_overrides slurmctld takes nodes with however little memory: what is to keep RealMemory within a pod's limit is nodeset-memory",
			Remedy: "SlurmctldParameters without node_reg_mem_percent",
			Source: "slurm.conf(5) SlurmctldParameters node_reg_mem_percent (\"config_overrides takes precedence\"); src/slurmctld/node_mgr.c validate_node_specs",
			check:  memoryPercent,
		},
		{
			Name: "keep-power-save-settings", Severity: Hint,
			Why: "slurmctld reads the flag and does nothing by it, against what the man page says: scontrol reconfigure, and each restart without -R, takes SuspendExcNodes, SuspendExcParts and " +
				"SuspendExcStates from slurm.conf again, and what was set with scontrol is powered down",
			Remedy: "ReconfigFlags without KeepPowerSaveSettings, and in slurm.conf what is to last",
			Source: "slurm.conf(5) ReconfigFlags; src/slurmctld/node_mgr.c _load_cluster_settings, controller.c (\"equivalent to recover = 1\")",
			check:  keepPowerSave,
		},
		{
			Name: "reboot-program", Severity: Hint,
			Why: "slurmd runs it in the pod, which is no machine and is not restarted: after scontrol reboot the node is lost, or set DOWN at ResumeTimeout (\"reboot timed out\"); " +
				"a pod that may (privileged, hostPID) reboots its host with all that runs there",
			Remedy: "scontrol power down asap in place of scontrol reboot: the next pod is a new one. For machines reboot_from_controller, or a PowerAction with Location=slurmctld, with a program that knows them",
			Source: "slurm.conf(5) RebootProgram, SlurmctldParameters reboot_from_controller, PowerAction; src/slurmctld/power_save.c, src/common/power_action.c power_action_find_or_create",
			check:  rebootProgram,
		},
		{
			Name: "route-tree", Severity: Warning,
			Why:    "nodes that register themselves are not in topology.conf, by which RouteTree sends messages on: they are not reached",
			Remedy: "TopologyParam without RouteTree",
			Source: "slurm.conf(5) TopologyParam (\"Incompatible with dynamic nodes\")",
			check:  routeTree,
		},
	}
}

// wantsWord wants a word in a list.
func wantsWord(f *Facts, needed bool, key, word string) []Finding {
	if _, ok := f.word(key, word); ok || !needed {
		return nil
	}
	return []Finding{found(f.where(key), "set "+key+"="+joined(f, key, word), []edit{f.addWords(key, word)}, "%s has no %s", key, word)}
}

// joined is the list as it should be: the exact line.
func joined(f *Facts, key string, words ...string) string {
	s, _ := f.Cluster.Get(key)
	list := s.Words()
	for _, word := range words {
		name, _, _ := strings.Cut(word, "=")
		i := slices.IndexFunc(list, func(have string) bool {
			have, _, _ = strings.Cut(have, "=")
			return strings.EqualFold(have, name)
		})
		if i >= 0 {
			list[i] = word
		} else {
			list = append(list, word)
		}
	}
	return strings.Join(list, ",")
}

// interval is one of the two, as strtol reads it.
func (f *Facts) interval(name string, otherwise int) int {
	value, ok := f.word("SlurmctldParameters", name)
	if !ok {
		return otherwise
	}
	end := strings.IndexFunc(value, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(value)
	}
	n, err := strconv.Atoi(value[:end])
	if err != nil {
		return 0
	}
	return n
}

// savePower are the intervals with Slurm's defaults.
var savePower = []struct {
	name      string
	otherwise int
}{{"power_save_interval", 10}, {"power_save_min_interval", 0}}

func intervals(f *Facts) []Finding {
	if !f.saves() || len(intervalsTooLong(f)) > 0 {
		return nil
	}
	var words, seen []string
	for _, one := range savePower {
		if n := f.interval(one.name, one.otherwise); n > 0 {
			words, seen = append(words, one.name+"=0"), append(seen, one.name+" is "+strconv.Itoa(n)+" s")
		}
	}
	if words == nil {
		return nil
	}
	return []Finding{found(f.where("SlurmctldParameters"), "set SlurmctldParameters="+joined(f, "SlurmctldParameters", words...),
		[]edit{f.addWords("SlurmctldParameters", words...)}, "%s", strings.Join(seen, ", "))}
}

// intervalsTooLong: power_save.c _init_power_config.
func intervalsTooLong(f *Facts) []Finding {
	if !f.saves() || f.Cluster.ResumeRate.V == 0 && f.Cluster.SuspendRate.V == 0 {
		return nil
	}
	var out []Finding
	for _, one := range savePower {
		if n := f.interval(one.name, one.otherwise); n > 60 {
			word := one.name + "=0"
			out = append(out, found(f.where("SlurmctldParameters"), "set SlurmctldParameters="+joined(f, "SlurmctldParameters", word),
				[]edit{f.addWords("SlurmctldParameters", word)}, "%s=%d with ResumeRate=%d and SuspendRate=%d", one.name, n, f.Cluster.ResumeRate.V, f.Cluster.SuspendRate.V))
		}
	}
	return out
}

// knownParameters are the words of SlurmctldParameters in slurm.conf(5) of 24.11 and 26.05, and those that are dead.
var knownParameters = strings.Fields(`allow_user_triggers cloud_dns cloud_reg_addrs conmgr_connect_timeout conmgr_max_connections
	conmgr_quiesce_timeout conmgr_read_timeout conmgr_threads conmgr_use_poll conmgr_wait_write_delay conmgr_write_timeout disable_triggers enable_async_reply
	enable_configless enable_expedited_requeue enable_stepmgr idle_on_node_suspend max_dbd_msg_action max_powered_nodes no_quick_restart
	node_reg_mem_percent power_save_interval power_save_min_interval reboot_from_controller reconfig_on_restart rl_bucket_size rl_enable rl_log_freq
	rl_refill_period rl_refill_rate rl_table_size user_resv_delete validate_nodeaddr_threads`)

// misspelt looks for words that are near to one that Slurm knows. Others it may know better than we do.
func misspelt(f *Facts) []Finding {
	s, _ := f.Cluster.Get("SlurmctldParameters")
	var out []Finding
	for _, word := range s.Words() {
		name, value, given := strings.Cut(word, "=")
		if slices.ContainsFunc(knownParameters, func(known string) bool { return strings.EqualFold(known, name) }) {
			continue
		}
		near := spelling.Nearest(strings.ToLower(name), knownParameters)
		if near == "" {
			continue
		}
		right := near
		if given {
			right += "=" + value
		}
		out = append(out, found(f.where("SlurmctldParameters"), "write "+right, []edit{f.removeWords("SlurmctldParameters", name), f.addWords("SlurmctldParameters", right)},
			"SlurmctldParameters: Slurm knows no %s", name))
	}
	return out
}

// deadParameters: read_config.c says so of two of them, and nothing of the third.
func deadParameters(f *Facts) []Finding {
	var out []Finding
	for _, dead := range []struct{ key, word string }{
		{"SlurmctldParameters", "cloud_reg_addrs"}, {"CommunicationParameters", "NoAddrCache"}, {"PrivateData", "cloud"},
	} {
		if _, ok := f.word(dead.key, dead.word); ok {
			out = append(out, found(f.where(dead.key), "remove the word", []edit{f.removeWords(dead.key, dead.word)}, "%s has %s", dead.key, dead.word))
		}
	}
	return out
}

func cloudDNS(f *Facts) []Finding {
	if _, ok := f.word("SlurmctldParameters", "cloud_dns"); !ok {
		return nil
	}
	return []Finding{found(f.where("SlurmctldParameters"), "remove the word unless every client and node can resolve node names", nil, "SlurmctldParameters has cloud_dns")}
}

func returnToService(f *Facts) []Finding {
	v := f.Cluster.ReturnToService
	if v.V == 2 || !f.saves() && !f.dynamic() {
		return nil
	}
	seen := "ReturnToService=" + strconv.Itoa(v.V)
	if !v.IsSet() {
		seen = "there is no ReturnToService, so it is 0"
	}
	return []Finding{found(f.at(v.Position), "set ReturnToService=2", []edit{f.set("ReturnToService", "2")}, "%s", seen)}
}

// knowsResumeFailure: job_mgr.c has it since 25.05.
func (f *Facts) knowsResumeFailure() bool {
	return f.Version.Major > 25 || f.Version.Major == 25 && f.Version.Minor >= 5
}

func jobRequeue(f *Facts) []Finding {
	s, ok := f.Cluster.Get("JobRequeue")
	if !ok || s.Value != "0" || !f.saves() {
		return nil
	}
	if _, ok := f.word("SchedulerParameters", "requeue_on_resume_failure"); ok && f.knowsResumeFailure() {
		return nil
	}
	return []Finding{found(s.Position, "set JobRequeue=1, or remove the line", []edit{f.set("JobRequeue", "1")}, "JobRequeue=0")}
}

func requeueOnResumeFailure(f *Facts) []Finding {
	if _, ok := f.word("SchedulerParameters", "requeue_on_resume_failure"); !ok || f.knowsResumeFailure() || !f.saves() {
		return nil
	}
	return []Finding{found(f.where("SchedulerParameters"), "use Slurm 25.05, or let jobs be requeued", nil, "SchedulerParameters has requeue_on_resume_failure, and Slurm is %s", f.Version)}
}

// requeueDelay: 24.11 takes cred_expire, 26.05 requeue_delay and, without it, cred_expire (job_mgr.c _requeue_delay).
func requeueDelay(f *Facts) []Finding {
	if !f.saves() {
		return nil
	}
	key, word := "AuthInfo", "cred_expire"
	value, ok := f.word(key, word)
	if f.Version.Major >= 26 {
		if delay, set := f.word("SchedulerParameters", "requeue_delay"); set {
			key, word, value, ok = "SchedulerParameters", "requeue_delay", delay, true
		}
	}
	n := 120
	if ok {
		n, _ = strconv.Atoi(value)
	}
	if n <= 60 {
		return nil
	}
	return []Finding{found(f.where(key), "set "+key+"="+joined(f, key, word+"=30"), []edit{f.addWords(key, word+"=30")}, "a requeued job rests for %d s (%s)", n, word)}
}

func tokens(f *Facts) []Finding {
	if _, ok := f.word("AuthAltTypes", "auth/jwt"); ok || !f.saves() && !f.dynamic() {
		return nil
	}
	// No edit: without a key slurmctld does not start with it.
	return []Finding{found(f.where("AuthAltTypes"), "set AuthAltTypes="+joined(f, "AuthAltTypes", "auth/jwt")+", and AuthAltParameters=jwt_key=… (docs/install.md)", nil,
		"AuthAltTypes has no auth/jwt")}
}

// prologFlagWords: common/read_config.c prolog_str2flags.
var prologFlagWords = strings.Fields("Alloc Contain DeferBatch ForceRequeueOnFail NoHold RunInJob Serial X11")

// prologFlags: common/read_config.c and slurmctld/read_config.c end with these.
func prologFlags(f *Facts) []Finding {
	s, _ := f.Cluster.Get("PrologFlags")
	has := func(word string) bool { _, ok := wordOf(s, word); return ok }
	contain := has("Contain") || has("X11") || has("RunInJob")
	_, stepmgr := f.word("SlurmctldParameters", "enable_stepmgr")
	var out []Finding
	for _, word := range s.Words() {
		if !slices.ContainsFunc(prologFlagWords, func(known string) bool { return strings.EqualFold(known, word) }) {
			out = append(out, found(s.Position, "remove it; Slurm has "+strings.Join(prologFlagWords, ", "), []edit{f.removeWords("PrologFlags", word)}, "PrologFlags: no such flag %s", word))
		}
	}
	if has("NoHold") && contain {
		out = append(out, found(s.Position, "remove NoHold", []edit{f.removeWords("PrologFlags", "NoHold")}, "PrologFlags has NoHold beside Contain, X11 or RunInJob"))
	}
	if track := f.plugin("ProctrackType"); has("X11") && track.V == "proctrack/linuxproc" {
		out = append(out, found(s.Position, "remove X11", []edit{f.removeWords("PrologFlags", "X11")}, "PrologFlags has X11, ProctrackType is proctrack/linuxproc"))
	}
	if stepmgr && !contain {
		out = append(out, found(f.where("SlurmctldParameters"), "set PrologFlags="+joined(f, "PrologFlags", "Contain")+", or remove enable_stepmgr",
			[]edit{f.removeWords("SlurmctldParameters", "enable_stepmgr")}, "SlurmctldParameters has enable_stepmgr, PrologFlags no Contain"))
	}
	return out
}

// plugin is the value of a key, or Slurm's default (read_config.h).
func (f *Facts) plugin(key string) slurmconf.Value[string] {
	defaults := map[string]string{"ProctrackType": "proctrack/cgroup"} // the others: none
	s, _ := f.Cluster.Get(key)
	return slurmconf.Value[string]{V: cmp.Or(s.Value, defaults[key]), Position: s.Position}
}

func treeWidth(f *Facts) []Finding {
	s, ok := f.Cluster.Get("TreeWidth")
	n, err := strconv.Atoi(s.Value)
	if !ok || err != nil || n < 1000 || !f.saves() && !f.dynamic() {
		return nil
	}
	return []Finding{found(s.Position, "remove TreeWidth", []edit{f.remove("TreeWidth")}, "TreeWidth=%d", n)}
}

func routeTree(f *Facts) []Finding {
	if _, ok := f.word("TopologyParam", "RouteTree"); !ok || !f.dynamic() {
		return nil
	}
	return []Finding{found(f.where("TopologyParam"), "remove the word", []edit{f.removeWords("TopologyParam", "RouteTree")}, "TopologyParam has RouteTree, and nodes may register themselves (MaxNodeCount)")}
}

func memoryPercent(f *Facts) []Finding {
	_, percent := f.word("SlurmctldParameters", "node_reg_mem_percent")
	if _, overrides := f.word("SlurmdParameters", "config_overrides"); !percent || !overrides || !f.saves() {
		return nil
	}
	return []Finding{found(f.where("SlurmctldParameters"), "remove the word", []edit{f.removeWords("SlurmctldParameters", "node_reg_mem_percent")},
		"SlurmctldParameters has node_reg_mem_percent, and SlurmdParameters has config_overrides")}
}

// keepPowerSave: 24.05 was the first in which no code asks for RECONFIG_KEEP_POWER_SAVE_SETTINGS.
func keepPowerSave(f *Facts) []Finding {
	if _, ok := f.word("ReconfigFlags", "KeepPowerSaveSettings"); !ok || !f.saves() {
		return nil
	}
	return []Finding{found(f.where("ReconfigFlags"), "remove the word", []edit{f.removeWords("ReconfigFlags", "KeepPowerSaveSettings")}, "ReconfigFlags has KeepPowerSaveSettings")}
}

// rebootProgram finds one that runs in pods. What one on slurmctld's host does with them cannot be seen.
func rebootProgram(f *Facts) []Finding {
	s, ok := f.Cluster.Get("RebootProgram")
	if !ok || s.Value == "" || !f.saves() {
		return nil
	}
	_, here := f.word("SlurmctldParameters", "reboot_from_controller")
	if action, ok := f.action(s.Value); ok {
		where, _ := action.Field("Location")
		here = strings.EqualFold(where.Value, "slurmctld")
	}
	if here {
		return nil
	}
	return []Finding{found(s.Position, "for pods use scontrol power down asap, not scontrol reboot", nil, "RebootProgram=%s, and nodes have State=CLOUD", s.Value)}
}
