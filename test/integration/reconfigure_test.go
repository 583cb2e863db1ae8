//go:build integration && faults

package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/hack/stack"
)

// lingers is a PrologSlurmctld that stays, once, when slurmctld kills its programs: that kills process groups (track_script.c), and this one goes over to slurmctld's own.
const lingers = `#!/bin/sh
[ ! -e /tmp/linger ] ||
	exec perl -e 'setpgrp 0, getpgrp getppid or die $!; rename "/tmp/linger", "/tmp/lingers" or die $!; sleep 1 while -e "/tmp/lingers"'
`

// slurmctld is to read its configuration while jobs begin whose nodes are not up. It ends what starts ResumeProgram, kills the programs that run, and waits for one that stays.
// Meanwhile it gives srun nodes all the same, and then waits for those start gates, too: none may wait for a node that nobody asks for, nor for a boot when one does.
func TestReconfigureWhileJobsBegin(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		c := deploy(t, "reconfigure", version, stack.Options{Gate: true, Prolog: lingers},
			nodeSet{name: "cpu", nodes: "cpu-0"}, nodeSet{name: "slow", nodes: "slow-0", gated: true})
		says := func(what string) {
			t.Helper()
			c.eventually("slurmctld to say: "+what, func() (bool, string) {
				log := c.log(stack.ContainerSlurmctld)
				return strings.Contains(log, what), log
			})
		}
		has := func(file string) (text string) {
			t.Helper()
			c.eventually(file, func() (bool, string) {
				text = c.slurm("sh", "-c", "cat "+file+" || :")
				return text != "", c.slurm("sh", "-c", "cat /tmp/said || :")
			})
			return text
		}
		c.slurm("sh", "-c", "echo stays >/tmp/linger")
		before := c.sbatch("true", "-w", "slow-0")
		has("/tmp/lingers")
		c.eventually("the pod of slow-0", func() (bool, string) { return len(c.slurmdPods()) == 1, "" })
		c.slurm("sh", "-c", "scontrol reconfigure >/tmp/said 2>&1 &")
		says("waiting for 1 running processes")
		c.waitGates(0) // that of the job before was killed

		for _, node := range []string{"cpu-0", "slow-0"} { // nobody asks for cpu-0, and slow-0 boots already
			c.slurm("sh", "-c", "srun -w "+node+" printenv SLURM_JOB_ID >/tmp/"+node+" 2>>/tmp/said &")
		}
		if version == "24.11" { // nothing begins: it has stopped taking requests
			time.Sleep(5 * time.Second)
			assert.Zero(t, c.gateProcesses())
		} else {
			c.waitGates(2)
		}
		c.slurm("rm", "/tmp/lingers")
		began := time.Now()
		says("Attempting to reconfigure")
		t.Logf("it was held up for %v more", time.Since(began).Round(100*time.Millisecond))
		c.ungate("slow-0")
		c.settled("cpu-0,slow-0", before, has("/tmp/cpu-0"), has("/tmp/slow-0"))
	})
}
