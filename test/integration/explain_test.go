//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/powersave/history"
)

// explain is what slurmtide explain tells of a job, node or nodeset, as soon as the bridge answers.
func (c *cluster) explain(kind, name string) (story history.Story) {
	c.t.Helper()
	c.eventually("the bridge to tell of "+kind+" "+name, func() (bool, string) {
		out, stderr, err := c.run(nil, stack.ContainerBridge, "/usr/local/bin/slurmtide", "explain", kind, "--spool", "/var/spool/slurmtide", "-o", "json", name)
		if err != nil {
			return false, fmt.Sprintf("%v: %s", err, stderr)
		}
		story = history.Story{}
		require.NoError(c.t, json.Unmarshal([]byte(out), &story), out)
		return strings.Join(story.Notes, "") == "", out
	})
	return story
}

// steps names the steps of a story; what the bridge says beside, and when Kubernetes tells of containers, varies.
func (c *cluster) steps(story history.Story) string {
	var whats []string
	for _, s := range story.Steps {
		if s.What != history.Reported && s.What != history.ContainerStarted {
			whats = append(whats, string(s.What))
		}
	}
	return strings.Join(whats, " ")
}

// explained checks what is told of a batch job that has run on the nodes of these pods and ended, and of them.
func (c *cluster) explained(id string, pods map[string]corev1.Pod) {
	c.t.Helper()
	out, stderr, err := c.run(nil, stack.ContainerBridge, "/usr/local/bin/slurmtide", "explain", "job", "--spool", "/var/spool/slurmtide", id)
	require.NoError(c.t, err, stderr)
	c.t.Log(out)
	assert.Regexp(c.t, `image (was on the host|pulled), container started`, out, "the kubelet may say it late")
	story := c.explain("job", id)
	const booted = "RequestAccepted PodCreated PodScheduled NodeRegistered"
	// slurmctld starts both programs at once, and the gate may be told before, between or after the request.
	steps := func(story history.Story) string {
		all := c.steps(story)
		assert.Equal(c.t, 1, strings.Count(all, "GateWaits "), all)
		return strings.Replace(all, "GateWaits ", "", 1)
	}
	assert.Regexp(c.t, `^Submitted (Eligible )?ProgramCalled `+booted+` GateOpened Running`, steps(story))
	assert.Regexp(c.t, `GateWaits .*GateOpened`, c.steps(story))
	assert.Empty(c.t, story.Why)
	assert.Contains(c.t, strings.Join(story.Now, ""), "COMPLETED")
	require.Len(c.t, story.Boots, len(pods))
	for _, b := range story.Boots {
		assert.Equal(c.t, history.Registered, b.Outcome)
		assert.Equal(c.t, string(pods[b.Node].UID), b.PodUID)
		assert.Equal(c.t, pods[b.Node].Spec.NodeName, b.Host)
		assert.Equal(c.t, id, fmt.Sprint(b.Jobs[0]))
		assert.Positive(c.t, b.Registered.Sub(b.Requested))
		told := steps(c.explain("node", b.Node))
		assert.Regexp(c.t, `ProgramCalled `+booted+`.* ProgramCalled RequestAccepted PodDeleted PodGone NodesUpdated$`, told)
	}
}
