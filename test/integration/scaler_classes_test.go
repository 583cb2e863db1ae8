//go:build integration

package integration

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/hack/stack"
)

// forClasses adds a licence, and a node whose jobs leave the others alone.
func forClasses(o stack.Options) stack.Options {
	o.ExtraConf = append(o.ExtraConf, "Licenses=matlab:1")
	o.NodeLines = append(o.NodeLines, "NodeName=why-[0-1] CPUs=4 RealMemory=800 State=CLOUD")
	o.PartitionLines = append(o.PartitionLines, "PartitionName=why Nodes=why-[0-1]", "PartitionName=closed Nodes=why-[0-1] State=DOWN")
	return o
}

// explained tries jobs that wait for all kinds of things, and says what people are told of each. None of them counts.
func (d *scalerProcess) explained() {
	c := d.c
	began := len(c.slurm("squeue", "-h", "-a", "-o", "%i"))
	has := c.sbatch("sleep 600", "-p", "why", "-L", "matlab:1")
	c.waitJob(has, "CONFIGURING", "RUNNING")
	c.slurm("scontrol", "create", "reservation", "ReservationName=later", "StartTime=now+7200", "Duration=10", "Nodes=why-1", "Users="+c.slurm("id", "-un"))
	ids := []string{has}
	for _, class := range []struct{ why, told, options string }{
		{"license", "it waits for a licence", "-p why -L matlab:1"},
		{"dependency", "it waits for other jobs", "-p why --dependency=afterok:" + has},
		{"begin", "its begin time is yet to come", "-p why --begin=now+3600"},
		{"held", "it is held", "-p why --hold"},
		{"partition", "its partition does not start it", "-p closed"},
		{"reservation", "it waits until its own reservation begins", "-p why --reservation=later"},
		{"array", "as many tasks of its array run as may at once", "-p why --array=0-3%1"},
	} {
		id := c.sbatch("sleep 600", strings.Fields(class.options)...)
		ids = append(ids, id)
		d.told(id, "does not count: "+class.told)
	}

	// Slurm takes the job, and what it needs goes: nothing can ever run it.
	c.slurm("scontrol", "update", "nodename=cpu-[0-5]", "availablefeatures=rare", "activefeatures=rare")
	id := c.sbatch("sleep 600", "-p", "cpu", "-C", "rare", "--hold")
	ids = append(ids, id)
	c.slurm("scontrol", "update", "nodename=cpu-[0-5]", "availablefeatures=", "activefeatures=")
	c.slurm("scontrol", "release", id)
	c.eventually("slurmctld to find no node", func() (bool, string) {
		reason := c.jobField(id, "Reason")
		return reason == "BadConstraints", reason
	})
	const miss = "needs features rare, NodeSet cpu offers none"
	d.told(id, "job "+id+" does not count: no NodeSet can ever run it: "+miss)
	c.eventually("the metric", func() (bool, string) {
		text := d.get("/metrics")
		return strings.Contains(text, fmt.Sprintf("slurmtide_scaler_impossible_jobs{cluster=%q,miss=%q} 1\n", c.Options.ClusterName, miss)), text
	})
	assert.Equal(c.t, 1, strings.Count(d.log.String(), "job="+id+" miss="), "once")
	assert.Contains(c.t, d.log.String(), miss)
	c.slurm(append([]string{"scancel"}, ids...)...)
	c.slurm("scontrol", "delete", "ReservationName=later")
	c.eventually("the jobs to go", func() (bool, string) {
		now := c.slurm("squeue", "-h", "-a", "-o", "%i")
		return len(now) <= began, now
	})
}

// told waits until slurmtide explain says something of a job.
func (d *scalerProcess) told(id, want string) {
	d.c.t.Helper()
	d.c.eventually("job "+id+" to be explained", func() (bool, string) {
		out, err := exec.CommandContext(d.c.ctx, "../../bin/slurmtide", "explain", "job", "--scaler", "http://"+d.http, id).CombinedOutput()
		return err == nil && strings.Contains(string(out), want), fmt.Sprintf("%s %v\n%s", out, err, d.c.slurm("squeue", "-a"))
	})
}
