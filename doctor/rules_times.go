package doctor

import (
	"fmt"
	"strconv"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// What pods need at least.
const (
	shortestBoot = 60 * time.Second // a start from a local image takes seconds; a machine, or an image that is pulled, takes minutes
	shortestStop = 31 * time.Second // more than Slurm's default: pods that Slurmtide deletes have 10 s, and kubelet and API server add to that
	betterBoot   = 600 * time.Second
	betterStop   = 120 * time.Second
)

// maxNodeRate is power_save.c MAX_NODE_RATE.
const maxNodeRate = 60000

// timeRules are about how long things may take, and how many at once.
func timeRules() []Rule {
	return []Rule{
		{
			Name: "suspend-time", Severity: Error,
			Why:    "power saving is off unless the cluster, a partition or (from 26.05 on) a node has a SuspendTime: nodes are neither powered down nor up",
			Remedy: "SuspendTime=300",
			Source: "slurm.conf(5) SuspendTime; src/slurmctld/power_save.c _init_power_config",
			check:  suspendTimes,
		},
		{
			Name: "suspend-time-zero", Severity: Warning,
			Why:    "a node is powered down as soon as it is idle, between two jobs of one user, too: each job waits for a boot",
			Remedy: "SuspendTime=300",
			Source: "slurm.conf(5) SuspendTime",
			check:  suspendTimeZero,
		},
		{
			Name: "resume-timeout-unset", Severity: Warning,
			Why:    "a tenth before ResumeTimeout the bridge gives a job back whole, and it reads the time from slurm.conf; Slurm's default of 60 s is short for a pod whose image has to be pulled",
			Remedy: "ResumeTimeout=600",
			Source: "slurm.conf(5) ResumeTimeout; docs/slurm-conf.md",
			check:  resumeTimeoutUnset,
		},
		{
			Name: "resume-timeout-short", Severity: Warning,
			Why:    "a node that has not registered by then is set DOWN and its jobs are requeued, though its pod may be about to come up",
			Remedy: "ResumeTimeout longer than the slowest healthy boot, start of a machine and pull of the image included",
			Source: "slurm.conf(5) ResumeTimeout",
			check:  resumeTimeoutShort,
		},
		{
			Name: "resume-timeout-infinite", Severity: Warning,
			Why:    "slurmctld never gives up on a node that does not register; a NodeSet without spec.boot.deadline has none, then",
			Remedy: "ResumeTimeout=600",
			Source: "slurm.conf(5) ResumeTimeout",
			check:  resumeTimeoutInfinite,
		},
		{
			Name: "suspend-timeout", Severity: Warning,
			Why:    "if the pod's slurmd still runs when SuspendTimeout is over it registers again, and the node is back in service while its pod is deleted",
			Remedy: "SuspendTimeout=120 (the bridge frees names as soon as their pods are gone)",
			Source: "slurm.conf(5) SuspendTimeout; src/slurmctld/node_mgr.c waiting_for_node_power_down",
			check:  suspendTimeoutShort,
		},
		{
			Name: "partition-resume-timeout", Severity: Warning,
			Why:    "slurmctld gives up launching a batch job after the cluster's ResumeTimeout (\"agent waited too long\"), whatever the partition says",
			Remedy: "the cluster's ResumeTimeout as long as the longest one of a partition",
			Source: "src/slurmctld/agent.c _batch_launch_defer",
			check:  func(f *Facts) []Finding { return partitionTimes(f, "ResumeTimeout") },
		},
		{
			Name: "partition-suspend-timeout", Severity: Warning,
			Why:    "whether a slurmd that registers while its node is powered down is the old one slurmctld judges by the cluster's SuspendTimeout, whatever the partition says",
			Remedy: "the cluster's SuspendTimeout as long as the longest one of a partition",
			Source: "src/slurmctld/node_mgr.c waiting_for_node_power_down",
			check:  func(f *Facts) []Finding { return partitionTimes(f, "SuspendTimeout") },
		},
		{
			Name: "rates", Severity: Warning,
			Why:    "slurmctld hands a large job's nodes over in slices of so many a minute; the bridge and Kubernetes pace themselves, and the job waits",
			Remedy: "ResumeRate=0 and SuspendRate=0",
			Source: "slurm.conf(5) ResumeRate, SuspendRate; src/slurmctld/power_save.c power_save_rl_setup",
			check:  rates,
		},
		{
			Name: "rates-too-high", Severity: Error,
			Why:    "slurmctld turns power saving off with a rate above 60000",
			Remedy: "ResumeRate=0 and SuspendRate=0",
			Source: "src/slurmctld/power_save.c MAX_NODE_RATE, _init_power_config",
			check:  ratesTooHigh,
		},
		{
			Name: "batch-start-timeout", Severity: Warning,
			Why:    "a batch job that slurmd does not know of so long after its start counts as missing, and is requeued or ended; the first one on a fresh pod takes its time",
			Remedy: "BatchStartTimeout=10 (Slurm's default) or more",
			Source: "slurm.conf(5) BatchStartTimeout; src/slurmctld/job_mgr.c _foreach_purge_missing_jobs",
			check:  batchStart,
		},
		{
			Name: "slurmd-timeout", Severity: Warning,
			Why:    "a node whose slurmd has gone never becomes DOWN, so that its jobs are shown running for ever if nobody tells slurmctld",
			Remedy: "SlurmdTimeout=300 (Slurm's default)",
			Source: "slurm.conf(5) SlurmdTimeout",
			check:  slurmdTimeout,
		},
	}
}

// number writes a time as slurm.conf has it.
func number(d time.Duration) string {
	if d == slurmconf.Infinite {
		return "INFINITE"
	}
	return strconv.FormatInt(int64(d/time.Second), 10)
}

func suspendTimes(f *Facts) []Finding {
	if !f.saves() {
		return nil
	}
	return f.neverSuspended()
}

// neverSuspended finds that no node has a SuspendTime, which turns power saving off.
func (f *Facts) neverSuspended() []Finding {
	never := func(v slurmconf.Value[time.Duration]) bool { return !v.IsSet() || v.V == slurmconf.Infinite }
	for _, p := range f.Cluster.Partitions {
		if !never(p.SuspendTime) {
			return nil
		}
	}
	for _, n := range f.Cluster.Nodes {
		if !never(n.SuspendTime) {
			return nil
		}
	}
	if !never(f.Cluster.SuspendTime) {
		return nil
	}
	seen := "there is no SuspendTime"
	if f.Cluster.SuspendTime.IsSet() {
		seen = "SuspendTime is INFINITE everywhere"
	}
	return []Finding{found(f.at(f.Cluster.SuspendTime.Position), "set SuspendTime=300", []edit{f.set("SuspendTime", "300")}, "%s", seen)}
}

func suspendTimeZero(f *Facts) []Finding {
	var out []Finding
	seen := map[slurmconf.Position]bool{}
	for _, n := range f.cloud() {
		if t := f.suspendTime(n); t.IsSet() && t.V == 0 && !seen[t.Position] {
			seen[t.Position] = true
			out = append(out, found(t.Position, "set SuspendTime=300", nil, "SuspendTime=0 for %s", n.Names))
		}
	}
	return out
}

func resumeTimeoutUnset(f *Facts) []Finding {
	if !f.saves() || f.Cluster.ResumeTimeout.IsSet() {
		return nil
	}
	best := number(f.wantedResumeTimeout())
	return []Finding{found(f.at(slurmconf.Position{}), "set ResumeTimeout="+best, []edit{f.set("ResumeTimeout", best)}, "there is no ResumeTimeout, so it is 60 s")}
}

func resumeTimeoutShort(f *Facts) []Finding {
	return shorter(f, "ResumeTimeout", shortestBoot, f.wantedResumeTimeout(), betterBoot, f.Cluster.ResumeTimeout, func(p slurmconf.PartitionLine) slurmconf.Value[time.Duration] { return p.ResumeTimeout })
}

// shorter finds times of the cluster, and of partitions with cloud nodes, that are too short. Those that are not set are another rule's.
// A partition gets the better one, but none that is longer than what the cluster's is then.
func shorter(f *Facts, key string, least, wanted, better time.Duration, own slurmconf.Value[time.Duration], of func(slurmconf.PartitionLine) slurmconf.Value[time.Duration]) []Finding {
	var out []Finding
	if f.saves() && own.IsSet() && own.V < least {
		out = append(out, found(own.Position, fmt.Sprintf("set %s=%s", key, number(wanted)), []edit{f.set(key, number(wanted))}, "%s=%s", key, number(own.V)))
	}
	best := number(min(better, wanted))
	for _, p := range f.cloudPartitions() {
		if t := of(p); t.IsSet() && t.V < least {
			out = append(out, found(t.Position, fmt.Sprintf("set %s=%s on the line of partition %s", key, best, p.Name), []edit{partitionField(p, key, best)},
				"%s=%s of partition %s", key, number(t.V), p.Name))
		}
	}
	return out
}

// partitionField sets a field of a partition's own line.
func partitionField(p slurmconf.PartitionLine, field, value string) edit {
	return edit{p.Setting.Position.File, func(file *slurmconf.File) error { return file.SetField("PartitionName", p.Name, field, value) }}
}

// cloudPartitions are those with cloud nodes.
func (f *Facts) cloudPartitions() []slurmconf.PartitionLine {
	var all []slurmconf.PartitionLine
	for _, p := range f.Cluster.Partitions {
		for _, n := range f.cloud() {
			if f.has(p, n) {
				all = append(all, p)
				break
			}
		}
	}
	return all
}

func resumeTimeoutInfinite(f *Facts) []Finding {
	if t := f.Cluster.ResumeTimeout; f.saves() && t.IsSet() && t.V == slurmconf.Infinite {
		best := number(f.wantedResumeTimeout())
		return []Finding{found(t.Position, "set ResumeTimeout="+best, []edit{f.set("ResumeTimeout", best)}, "ResumeTimeout=INFINITE")}
	}
	return nil
}

// wantedSuspendTimeout is as wantedResumeTimeout.
func (f *Facts) wantedSuspendTimeout() time.Duration {
	own := f.Cluster.SuspendTimeout
	best := own.V
	if !own.IsSet() || own.V < shortestStop {
		best = betterStop
	}
	for _, p := range f.cloudPartitions() {
		if t := p.SuspendTimeout; t.IsSet() && t.V != slurmconf.Infinite {
			best = max(best, t.V)
		}
	}
	return best
}

func suspendTimeoutShort(f *Facts) []Finding {
	wanted := f.wantedSuspendTimeout()
	out := shorter(f, "SuspendTimeout", shortestStop, wanted, betterStop, f.Cluster.SuspendTimeout, func(p slurmconf.PartitionLine) slurmconf.Value[time.Duration] { return p.SuspendTimeout })
	if f.saves() && !f.Cluster.SuspendTimeout.IsSet() {
		out = append(out, found(f.at(slurmconf.Position{}), "set SuspendTimeout="+number(wanted), []edit{f.set("SuspendTimeout", number(wanted))}, "there is no SuspendTimeout, so it is 30 s"))
	}
	return out
}

// partitionTimes finds times of partitions that are longer than the cluster's, which Slurm goes by at the places that the rules name.
func partitionTimes(f *Facts, key string) []Finding {
	own, wanted := f.Cluster.ResumeTimeout.V, f.wantedResumeTimeout()
	of := func(p slurmconf.PartitionLine) slurmconf.Value[time.Duration] { return p.ResumeTimeout }
	if key == "SuspendTimeout" {
		own, wanted = f.Cluster.SuspendTimeout.V, f.wantedSuspendTimeout()
		of = func(p slurmconf.PartitionLine) slurmconf.Value[time.Duration] { return p.SuspendTimeout }
	}
	var out []Finding
	for _, p := range f.cloudPartitions() {
		t := of(p)
		if !t.IsSet() || t.V <= own {
			continue
		}
		remedy, edits := fmt.Sprintf("set %s=%s for the cluster", key, number(wanted)), []edit{f.set(key, number(wanted))}
		if t.V == slurmconf.Infinite { // for the cluster that is no better
			remedy, edits = fmt.Sprintf("give the partition a %s that ends, and the cluster one as long", key), nil
		}
		out = append(out, found(t.Position, remedy, edits, "%s=%s of partition %s is longer than the cluster's, %s", key, number(t.V), p.Name, number(own)))
	}
	return out
}

func rates(f *Facts) []Finding {
	var out []Finding
	for _, rate := range []struct {
		key string
		slurmconf.Value[int]
	}{{"ResumeRate", f.Cluster.ResumeRate}, {"SuspendRate", f.Cluster.SuspendRate}} {
		if !f.saves() || rate.V == 0 || rate.V > maxNodeRate {
			continue
		}
		seen := fmt.Sprintf("%s=%d", rate.key, rate.V)
		if !rate.IsSet() {
			seen = fmt.Sprintf("there is no %s, so it is %d nodes a minute", rate.key, rate.V)
		}
		out = append(out, found(f.at(rate.Position), "set "+rate.key+"=0", []edit{f.set(rate.key, "0")}, "%s", seen))
	}
	return out
}

func ratesTooHigh(f *Facts) []Finding {
	var out []Finding
	for key, rate := range map[string]slurmconf.Value[int]{"ResumeRate": f.Cluster.ResumeRate, "SuspendRate": f.Cluster.SuspendRate} {
		if f.saves() && rate.V > maxNodeRate {
			out = append(out, found(rate.Position, "set "+key+"=0", []edit{f.set(key, "0")}, "%s=%d", key, rate.V))
		}
	}
	return out
}

func batchStart(f *Facts) []Finding {
	s, ok := f.Cluster.Get("BatchStartTimeout")
	n, err := strconv.Atoi(s.Value)
	if !ok || err != nil || n >= 10 || !f.saves() && !f.dynamic() {
		return nil
	}
	return []Finding{found(s.Position, "set BatchStartTimeout=10, or remove the line", []edit{f.set("BatchStartTimeout", "10")}, "BatchStartTimeout=%d", n)}
}

func slurmdTimeout(f *Facts) []Finding {
	t := f.Cluster.SlurmdTimeout
	if t.V != 0 || !t.IsSet() || !f.saves() && !f.dynamic() {
		return nil
	}
	return []Finding{found(t.Position, "set SlurmdTimeout=300, or remove the line", []edit{f.set("SlurmdTimeout", "300")}, "SlurmdTimeout=0")}
}
