package pods

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// What the API server's rules refuse is refused for NodeSets that it has let through, too.
func TestCheckSSH(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.PodSpec)
		want   string
	}{
		"good":    {func(*corev1.PodSpec) {}, ""},
		"fsGroup": {func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(1))} }, "remove fsGroup"},
		"hostPID": {func(s *corev1.PodSpec) { s.HostPID = true }, "remove hostPID and shareProcessNamespace"},
		"shared":  {func(s *corev1.PodSpec) { s.ShareProcessNamespace = new(true) }, "remove hostPID and shareProcessNamespace"},
		"postStart": {func(s *corev1.PodSpec) {
			s.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
		}, "remove lifecycle.postStart"},
		"volume": {func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{Name: "slurmtide-sshd"}} }, "give volume slurmtide-sshd"},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNodeSet("cpu", "cpu-0")
			tc.change(&ns.Spec.Template.Spec)
			require.NoError(t, checkSSH(&ns.Spec), "without ssh")
			ns.Spec.SSH = &v1alpha1.NodeSetSSH{}
			require.NoError(t, checkSSH(&ns.Spec), "not enabled")
			ns.Spec.SSH.Enabled = true
			if tc.want == "" {
				require.NoError(t, checkSSH(&ns.Spec))
				return
			}
			require.ErrorContains(t, checkSSH(&ns.Spec), tc.want)
			_, err := Build(ns, "cpu-0", 1, "r", PodOptions{Cluster: "tide"})
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// Who has no job is kept out also when pam_slurm_adopt fails, and nobody has to know the node's name but the stack itself.
func TestPAMStack(t *testing.T) {
	for _, sss := range []bool{false, true} {
		stack := pamStack("cpu-7", sss)
		assert.Contains(t, stack, " default=die] pam_slurm_adopt.so nodename=cpu-7 action_generic_failure=deny action_adopt_failure=deny\n")
		assert.Equal(t, 2, strings.Count(stack, "nodename=cpu-7 action_generic_failure=deny action_adopt_failure=deny"))
		assert.NotContains(t, stack, "sufficient", "nothing goes past pam_slurm_adopt")
		assert.Equal(t, sss, strings.Contains(stack, "pam_sss"))
	}
}

// A new revision comes of what is in the pod, and of nothing else: not of a version of Slurmtide that knows more fields.
func TestRevisionOfSSH(t *testing.T) {
	ns := newNodeSet("cpu", "cpu-0")
	raw, err := madeFrom(&ns.Spec)
	require.NoError(t, err)
	var from map[string]any
	require.NoError(t, json.Unmarshal(raw, &from))
	assert.Len(t, from, 2, "template and shape")
	plain := revision(&ns.Spec)

	ns.Spec.SSH = &v1alpha1.NodeSetSSH{Port: 22}
	assert.Equal(t, plain, revision(&ns.Spec), "not enabled")
	ns.Spec.SSH.Enabled = true
	ssh := revision(&ns.Spec)
	assert.NotEqual(t, plain, ssh)
	ns.Spec.SSH.RootSSHAuthorizedKeys = "ssh-ed25519 AAAA admin"
	assert.NotEqual(t, ssh, revision(&ns.Spec))
	ns.Spec.SSH = nil
	ns.Spec.SssdConfRef = &v1alpha1.KeyRef{Name: "sssd", Key: "sssd.conf"}
	assert.NotEqual(t, plain, revision(&ns.Spec))
}
