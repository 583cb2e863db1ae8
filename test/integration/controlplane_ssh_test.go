//go:build integration && controlplane

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// createDoors makes a NodeSet into whose nodes users come by ssh. change may be nil.
func (p *plane) createDoors(home corev1.Volume, change func(*v1alpha1.NodeSet)) {
	p.t.Helper()
	p.createHomeSet("door", "door-[0-1]", home, func(set *v1alpha1.NodeSet) {
		set.Spec.Partition = nil
		set.Spec.SSH = &v1alpha1.NodeSetSSH{Enabled: true, SSHOptions: v1alpha1.SSHOptions{
			AuthorizedKeysRefs: []v1alpha1.ObjectRef{{Name: "keys"}}, RootSSHAuthorizedKeys: p.slurm("cat", "/tmp/admin.pub"),
		}}
		set.Spec.UsersRef = &v1alpha1.ObjectRef{Name: "users"}
		if change != nil {
			change(set)
		}
	})
}

// sshNode runs a command as a user of a node. All nodes of the NodeSet have the same host key.
func (p *plane) sshNode(user, key, node, command string) (stdout string, err error) {
	return p.sshTo(user, key, node+".tide-nodes", command, "-o", "HostKeyAlias=doors", "-o", "StrictHostKeyChecking=accept-new")
}

// testNodeSSH has users come to nodes on which they have a job, and tries the others.
func (p *plane) testNodeSSH(t *testing.T, home corev1.Volume) {
	p.createDoors(home, nil)
	p.eventually("slurm.conf to be ready for it", func() (bool, string) {
		return strings.Contains(p.setting("PrologFlags"), "Contain"), p.setting("PrologFlags")
	})
	p.waitInForce()

	// Somebody else's job on door-0, hers on door-1.
	others := p.sbatch("sleep 600", "-p", "door", "--nodelist=door-0")
	hers := submitted.FindString(p.alice("sbatch --parsable -p door --nodelist=door-1 --output=/dev/null --wrap='sleep 600'"))
	require.NotEmpty(t, hers)
	p.waitJob(others, "RUNNING")
	p.waitJob(hers, "RUNNING")
	p.eventually("alice to come in", func() (bool, string) { // sshd may still be starting
		out, err := p.sshNode("alice", "alice", "door-1", "id -un; id -Gn; hostname; echo $SLURM_JOB_ID; pwd")
		return err == nil && out == "alice\nalice project\ndoor-1\n"+hers+"\n/home/alice", fmt.Sprint(out, err)
	})
	out, err := p.sshNode("alice", "alice", "door-1", "pgrep -u alice -a sleep")
	require.NoError(t, err)
	assert.Contains(t, out, "sleep 600", "she sees her job")

	for name, who := range map[string]struct{ user, key, node, want string }{
		"without a job there":       {"alice", "alice", "door-0", "you have no active jobs on this node"},
		"with a key of nobody":      {"alice", "stranger", "door-1", "Permission denied (publickey)"},
		"another user, no key":      {"bob", "alice", "door-1", "Permission denied (publickey)"},
		"root with a user's key":    {"root", "alice", "door-1", "Permission denied (publickey)"},
		"the user of the other job": {"slurm", "alice", "door-0", "Permission denied (publickey)"},
	} {
		_, err := p.sshNode(who.user, who.key, who.node, "id")
		require.ErrorContains(t, err, who.want, name)
	}
	for _, node := range []string{"door-0", "door-1"} {
		out, err := p.sshNode("root", "admin", node, "id -u; hostname")
		require.NoError(t, err)
		assert.Equal(t, "0\n"+node, out)
	}
	p.testNodeHostKeys(t)
	p.testJump(t, "door-1")
}

// testLeftBehind has alice leave something behind on her node. It ends with her last job there, not before. The jobs are those of testNodeSSH.
func (p *plane) testLeftBehind(t *testing.T) {
	hers, others := p.slurm("squeue", "-h", "-o", "%A", "-w", "door-1"), p.slurm("squeue", "-h", "-o", "%A", "-w", "door-0")
	second := submitted.FindString(p.alice("sbatch --parsable -p door --nodelist=door-1 --output=/dev/null --wrap='sleep 600'"))
	p.waitJob(second, "RUNNING")
	_, err := p.sshNode("alice", "alice", "door-1", "setsid nohup sleep 4321 >/dev/null 2>&1 </dev/null & sleep 0.2")
	require.NoError(t, err)
	left := func() string {
		out, _, err := p.ExecPod(p.ctx, "door-1", nil, "slurmd", "/bin/sh", "-c", "pgrep -u 2001 -a sleep || [ $? -eq 1 ]")
		require.NoError(t, err)
		return out
	}
	p.slurm("scancel", second)
	p.waitJob(second, "CANCELLED")
	p.eventually("its Epilog to be over", func() (bool, string) {
		return p.jobField(second, "JobState") == "CANCELLED", p.jobField(second, "JobState")
	})
	assert.Contains(t, left(), "sleep 4321")
	out, err := p.sshNode("alice", "alice", "door-1", "echo $SLURM_JOB_ID")
	require.NoError(t, err)
	if p.version != "24.11" { // which finds the newest of several jobs by cgroups, and knows the one that has just ended still
		assert.Equal(t, hers, out)
	}
	p.slurm("scancel", hers)
	began := time.Now()
	p.eventually("the rest to end", func() (bool, string) { return left() == "", left() })
	t.Logf("what she left is gone after %v", time.Since(began).Round(100*time.Millisecond))
	p.eventually("what has ended to be collected", func() (bool, string) { // slurmstepds and sessions are left to the container's first process
		out, _, err := p.ExecPod(p.ctx, "door-1", nil, "slurmd", "/bin/sh", "-c", "pgrep -r Z -l || [ $? -eq 1 ]")
		require.NoError(t, err)
		return out == "", out
	})
	p.eventually("alice to be kept out", func() (bool, string) {
		_, err := p.sshNode("alice", "alice", "door-1", "true")
		return err != nil && strings.Contains(err.Error(), " jobs "), fmt.Sprint(err) // of hers, or of anybody
	})
	p.slurm("scancel", others)
	for _, state := range strings.Fields(p.slurm("sinfo", "-h", "-N", "-n", "door-[0-1]", "-o", "%t")) {
		assert.NotContains(t, state, "drain", "no Epilog has failed")
	}
	require.NoError(t, p.tide.SlurmtideV1alpha1().NodeSets(p.ns).Delete(p.ctx, "door", metav1.DeleteOptions{}))
	p.eventually("the host keys to go with it", func() (bool, string) {
		left := runKubectl(t, "-n", p.ns, "get", "secrets", "door-ssh-host-keys", "--ignore-not-found", "-o", "name")
		return left == "", left
	})
	p.eventually("slurmctld to forget its nodes", func() (bool, string) { // an srun whose messages it drops while it reads its files waits for ever
		left := p.slurm("sinfo", "-h", "-N", "-o", "%N")
		return !strings.Contains(left, "door-"), left
	})
	p.waitInForce()
}

// testNodeHostKeys looks whether the client has met the key of the Secret, which a Controller has made for the NodeSet.
func (p *plane) testNodeHostKeys(t *testing.T) {
	secret, err := p.kube.CoreV1().Secrets(p.ns).Get(p.ctx, "door-ssh-host-keys", metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, secret.OwnerReferences, 1)
	assert.Equal(t, "NodeSet", secret.OwnerReferences[0].Kind)
	known := strings.Fields(p.slurm("ssh-keygen", "-f", "/tmp/known_hosts", "-F", "doors"))
	require.GreaterOrEqual(t, len(known), 3)
	assert.Contains(t, string(secret.Data["ssh_host_ed25519_key.pub"]), known[len(known)-1])
}
