//go:build integration && controlplane

package integration

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// testChange changes slurm.conf under a job, whose node is slow to read it.
func (p *plane) testChange(t *testing.T) {
	before := p.restarts()
	id := p.sbatch("sleep 25", "-N1")
	p.waitJob(id, "RUNNING")
	node := p.jobField(id, "BatchHost")
	started := p.slurmdStart(node)
	slurmd := p.hostPIDOf(node, v1alpha1.ContainerSlurmd)
	require.NoError(t, syscall.Kill(slurmd, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(slurmd, syscall.SIGCONT) }) // it runs already, unless the test failed
	began := time.Now()
	const extra = "SuspendTime=7 # seconds\nSuspendTimeout=40\nResumeTimeout=120\nMessageTimeout=20\nSchedulerParameters=bf_max_job_test=77\n"
	p.setExtra(extra)
	p.eventually("only the node to be waited for", func() (bool, string) {
		one := meta.FindStatusCondition(p.controller().Status.Conditions, v1alpha1.ConditionConfigInForce)
		return one.Reason == "Pending" && one.Message == "slurmctld runs with the configuration; slurmd has not read it yet on "+node, one.Message
	})
	t.Logf("slurmctld has it after %v", time.Since(began).Round(100*time.Millisecond))
	require.NoError(t, syscall.Kill(slurmd, syscall.SIGCONT))
	p.waitInForce()
	t.Logf("in force after %v", time.Since(began).Round(100*time.Millisecond))
	assert.Greater(t, p.slurmdStart(node), started, "slurmd has read it")
	assert.Equal(t, "7 sec", p.setting("SuspendTime"))
	assert.Contains(t, p.setting("SchedulerParameters"), "bf_max_job_test=77")
	assert.Contains(t, p.setting("SchedulerParameters"), "batch_sched_delay=0", "lists are merged")
	assert.Equal(t, before, p.restarts())

	// Only what slurmctld cannot read anew starts it anew: at which addresses it listens. The job does not mind.
	assert.Contains(t, p.listeners(), "00000000:1AA1")
	p.setExtra(extra + "CommunicationParameters=NoCtldInAddrAny\n")
	p.waitInForce()
	assert.Equal(t, oneMore(before, "slurmctld"), p.restarts())
	assert.NotContains(t, p.listeners(), "00000000:1AA1")
	p.waitJob(id, "COMPLETED")
	assert.Equal(t, "0", p.jobField(id, "Restarts"))
}

// oneMore is what restarts gives after a container has started once more.
func oneMore(restarts, container string) string {
	fields := strings.Fields(restarts)
	for i, field := range fields {
		if count, ok := strings.CutPrefix(field, container+"="); ok {
			n, _ := strconv.Atoi(count)
			fields[i] = fmt.Sprintf("%s=%d", container, n+1)
		}
	}
	return strings.Join(fields, " ")
}

// listeners are the kernel's lines of sockets that listen in slurmctld's pod: SlurmctldPort is 1AA1.
func (p *plane) listeners() string {
	p.t.Helper()
	return p.slurm("grep", " 00000000:0000 0A ", "/proc/net/tcp")
}

// slurmdStart is when a node's slurmd has started last, as slurmctld has been told.
func (p *plane) slurmdStart(node string) string {
	p.t.Helper()
	_, after, ok := strings.Cut(p.slurm("scontrol", "--oneliner", "show", "node", node), " SlurmdStartTime=")
	require.True(p.t, ok)
	return strings.Fields(after)[0]
}
