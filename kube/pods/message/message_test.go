package message_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/kube/pods/message"
)

// As components write them.
const (
	insufficient = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
	counts       = "2 node(s) had taint {gpu: yes}, that the pod didn't tolerate, 1 max node group size reached"
	karpenter    = `no instance type satisfied resources {"cpu":"64310m","pods":"8"} and requirements karpenter.sh/capacity-type In [on-demand] (no instance type has enough resources)`
	stockout     = "Node scale up failed: GCE out of resources. Pod is at risk of not being scheduled."
	noNetwork    = `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "3f1a"`
)

func TestSentence(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"empty":       {"", ""},
		"lines":       {" one\n\ttwo \n", "one two"},
		"scheduler":   {insufficient, "0/3 nodes are available: 3 Insufficient cpu"},
		"claims":      {"0/2 nodes are available: 2 node(s) had untolerated taint(s). no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.", "0/2 nodes are available: 2 node(s) had untolerated taint(s)"},
		"gRPC":        {"rpc error: code = NotFound desc = rpc error: code = NotFound desc = no image", "no image"},
		"joined":      {"(combined from similar events): " + stockout, "Node scale up failed: GCE out of resources. Pod is at risk of not being scheduled"},
		"one end dot": {"The node was low on resource: memory. ", "The node was low on resource: memory"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, message.Sentence(tc.in)) })
	}
	long := message.Sentence("Failed to pull image" + strings.Repeat(" äöü/slurm:26.05", 99) + ": not found")
	assert.LessOrEqual(t, len(long), message.Max)
	assert.Regexp(t, `^Failed to pull image .* \.\.\. .*: not found$`, long)
	assert.True(t, utf8.ValidString(long))
}

func FuzzSentence(f *testing.F) {
	for _, s := range []string{insufficient, karpenter, noNetwork, counts, "", "(", "a and requirements ( ()"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := message.Sentence(s)
		assert.LessOrEqual(t, len(got), message.Max)
		assert.NotContains(t, got, "\n")
		assert.Equal(t, message.Sorted(got), message.Sorted(message.Sorted(got)), "sorting is idempotent")
	})
}

func TestLastWords(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"nothing":  {"", ""},
		"a line":   {"no such user\n", "no such user"},
		"errors":   {"[x] info\n[x] error: Parse error\n[x] fatal: Unable to process\n", "error: Parse error; fatal: Unable to process"},
		"slurmd":   {"slurmd: slurmd version 26.05.5 started\nslurmd: error: Node configuration differs\nslurmd: Shutdown completed\n", "error: Node configuration differs"},
		"repeated": {"error: a\nerror: b\nerror: a\nerror: b\n", "error: a; error: b"},
		"many":     {"error: a\nerror: b\nerror: c\nerror: d\n", "error: b; error: c; error: d"},
		"none":     {"first\nno hostkeys available\n1 error\n", "no hostkeys available; 1 error"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, message.LastWords(tc.in)) })
	}
}
