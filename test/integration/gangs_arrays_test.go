//go:build integration && faults

package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// arrays has the second task of an array fail while the first one runs. The array's last task has the array's own ID, which reaches
// all tasks where it is used alone.
func arrays(t *testing.T, c *cluster) {
	t.Run("a task of an array", func(t *testing.T) {
		c.t = t
		c.fourNodes(v1alpha1.AllOrNothing, "tasks", 2)
		array, fails := c.secondTaskFails("0-2%2")
		assert.NotEqual(t, array, c.jobField(fails, "JobId"))
		c.waitJob(array+"_0", "COMPLETED")
		c.notTold(array + "_0")

		c.again("tasks", 4, fails)
		c.settled("tasks-[0-3]", array+"_0")
	})
	t.Run("the last task of an array", func(t *testing.T) {
		c.t = t
		c.makeRoom(2)
		c.changeNodeSet("tasks", func(s *v1alpha1.NodeSetSpec) {
			s.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "slurmtide.io/test"}}
		})
		array, fails := c.secondTaskFails("0-1")
		assert.Equal(t, array, c.jobField(fails, "JobId"))
		c.waitJob(array+"_0", "COMPLETED")
		c.notTold(array + "_0")

		c.again("tasks", 4, fails)
		c.settled("tasks-[0-3]", array+"_0")
	})
}

// secondTaskFails submits such an array of jobs of two nodes each to "tasks", which has room for two: when it returns, the first task runs, as
// if nothing had been, and the second one has been given back.
func (c *cluster) secondTaskFails(tasks string) (array, second string) {
	c.t.Helper()
	array = c.sbatch("sleep 30", "-N2", "-p", "tasks", "--exclusive", "--hold", "--array="+tasks)
	first, second := array+"_0", array+"_1"
	c.slurm("scontrol", "release", array)
	c.eventually("both tasks to have nodes", func() (bool, string) {
		nodes := c.jobField(first, "NodeList") + " " + c.jobField(second, "NodeList")
		return nodes == "tasks-[0-1] tasks-[2-3]", nodes
	})
	c.slurm("scancel", "--state=PENDING", array) // who waits would get the nodes of the one that fails, until the NodeSet is closed
	c.ungate("tasks-[0-1]")
	c.waitJob(first, "RUNNING")
	c.ungate("tasks-[2-3]")
	assert.Regexp(c.t, `^slurmtide: capacity: .*Insufficient test.slurmtide.io/room`, c.givenBack(second, "tasks-[2-3]"))
	assert.Equal(c.t, "RUNNING", c.jobField(first, "JobState"))
	assert.Equal(c.t, "0", c.jobField(first, "Restarts"))
	c.notTold(first)
	return array, second
}

// notTold looks that the job's record does not say that it was given back.
func (c *cluster) notTold(job string) {
	c.t.Helper()
	assert.NotContains(c.t, c.slurm("scontrol", "--oneliner", "show", "job", job), "AdminComment=slurmtide:")
}
