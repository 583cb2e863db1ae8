package controlplane

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/sshd"
)

func sshSet(change func(*v1alpha1.NodeSet)) *v1alpha1.NodeSet {
	set := nodeSet("cpu", "cpu-[0-2]", nil)
	set.UID = "uid-of-nodeset"
	set.Spec.SSH = &v1alpha1.NodeSetSSH{Enabled: true}
	if change != nil {
		change(set)
	}
	return set
}

// Nodes with ssh have a step of each job, and end what users leave behind; others are as ever.
func TestSSHInConfig(t *testing.T) {
	config := func(set *v1alpha1.NodeSet, extra string) (string, map[string]string) {
		files, err := Config(Cluster{Controller: controller(func(c *v1alpha1.Controller) { c.Spec.ExtraConf = extra }), NodeSets: []*v1alpha1.NodeSet{set}, Settings: settings})
		require.NoError(t, err)
		for _, version := range []string{"24.11", "26.05"} {
			check(t, files["slurm.conf"], version)
		}
		return files["slurm.conf"], files
	}
	conf, files := config(sshSet(nil), "Epilog=mine.sh\n")
	assert.Contains(t, conf, "\nPrologFlags=Contain\n")
	assert.Contains(t, conf, "\nEpilog=slurmtide-ssh-epilog.sh\n")
	assert.Contains(t, conf, "\nEpilog=mine.sh\n")
	assert.Equal(t, sshEpilog, files[sshEpilogFile])

	conf, _ = config(sshSet(nil), "PrologFlags=X11\n")
	assert.Contains(t, conf, "\nPrologFlags=Contain,X11\n")

	conf, files = config(sshSet(func(set *v1alpha1.NodeSet) { set.Spec.SSH.Enabled = false }), "PrologFlags=Alloc\n")
	assert.Contains(t, conf, "\nPrologFlags=Alloc\n")
	assert.NotContains(t, conf, "Epilog=")
	assert.NotContains(t, files, sshEpilogFile)

	_, err := Config(Cluster{Controller: controller(nil), NodeSets: []*v1alpha1.NodeSet{sshSet(nil)}, Files: map[string]string{sshEpilogFile: "#!/bin/sh\n"}, Settings: settings})
	require.ErrorContains(t, err, "give it another name")
}

// The Epilog ends what a user has left only when Slurm has said that there is no other job of the user.
func TestSSHEpilog(t *testing.T) {
	tests := map[string]struct {
		uid, processes, squeue string // what the commands are
		want                   string // what it has killed
	}{
		"left behind":        {"2001", "exit 0", "exit 0", "-KILL -U 2001"},
		"nothing left":       {"2001", "exit 1", "exit 0", ""},
		"another job":        {"2001", "exit 0", "echo 17", ""},
		"slurmctld is away":  {"2001", "exit 0", "exit 1", ""},
		"root's job":         {"0", "exit 0", "exit 0", ""},
		"nobody knows whose": {"", "exit 0", "exit 0", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			killed, asked := filepath.Join(dir, "killed"), filepath.Join(dir, "asked")
			for command, text := range map[string]string{
				"pgrep": test.processes, "squeue": `echo "$@" >` + asked + "; " + test.squeue, "pkill": `echo "$@" >` + killed,
			} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, command), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
			}
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", sshEpilog)
			cmd.Env = []string{"PATH=" + dir, "SLURM_JOB_UID=" + test.uid, "SLURMD_NODENAME=cpu-1"}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "a failing Epilog drains the node: %s", out)
			assert.Empty(t, string(out))
			text, err := os.ReadFile(killed)
			if test.want == "" {
				require.ErrorIs(t, err, os.ErrNotExist, string(text))
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, strings.TrimSpace(string(text)))
			text, err = os.ReadFile(asked)
			require.NoError(t, err)
			assert.Contains(t, string(text), "--user=2001 --nodelist=cpu-1 --states=")
		})
	}
}

func TestNodeHostKeys(t *testing.T) {
	const name = "cpu-ssh-host-keys"
	there := func(owner string, files ...string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "slurm"}, Data: hostKeyFiles(files...)}
		if owner != "" {
			s.OwnerReferences = []metav1.OwnerReference{{Kind: "NodeSet", Name: "cpu", UID: "uid-of-" + "forerunner", Controller: new(true)}}
		}
		return s
	}
	tests := map[string]struct {
		set     *v1alpha1.NodeSet
		there   *corev1.Secret
		made    bool
		problem string
	}{
		"new":                {set: sshSet(nil), made: true},
		"there":              {set: sshSet(nil), there: there("", "ssh_host_rsa_key")},
		"not enabled":        {set: sshSet(func(set *v1alpha1.NodeSet) { set.Spec.SSH.Enabled = false })},
		"the user's own":     {set: sshSet(func(set *v1alpha1.NodeSet) { set.Spec.SSH.HostKeysRef = &v1alpha1.ObjectRef{Name: "mine"} })},
		"the forerunner's":   {set: sshSet(nil), there: there("x", "ssh_host_rsa_key"), problem: "belongs to another object, NodeSet cpu with UID uid-of-forerunner"},
		"without a host key": {set: sshSet(nil), there: there(""), problem: "exists, but has no host key"},
	}
	for testName, test := range tests {
		t.Run(testName, func(t *testing.T) {
			kube := fake.NewClientset()
			if test.there != nil {
				kube = fake.NewClientset(test.there)
			}
			l := &Loop{kube: kube, o: Options{Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry())}}
			other := sshSet(nil)
			other.Name = "other"
			p, err := l.nodeHostKeys(t.Context(), []*v1alpha1.NodeSet{test.set, other})
			require.NoError(t, err)
			_, err = kube.CoreV1().Secrets("slurm").Get(t.Context(), "other-ssh-host-keys", metav1.GetOptions{})
			require.NoError(t, err, "whatever the first one's are")
			require.NoError(t, kube.CoreV1().Secrets("slurm").Delete(t.Context(), "other-ssh-host-keys", metav1.DeleteOptions{}))
			if test.problem != "" {
				require.ErrorContains(t, p, test.problem)
				require.ErrorContains(t, p, "NodeSet cpu: ")
				return
			}
			require.Nil(t, p)
			got, err := kube.CoreV1().Secrets("slurm").Get(t.Context(), name, metav1.GetOptions{})
			switch {
			case test.made:
				require.NoError(t, err)
				assert.Len(t, sshd.PrivateHostKeys(got.Data), 2)
				require.Len(t, got.OwnerReferences, 1)
				assert.Equal(t, ownerOf(test.set, "NodeSet"), got.OwnerReferences[0], "they go with it")
				p, err := l.nodeHostKeys(t.Context(), []*v1alpha1.NodeSet{test.set})
				require.NoError(t, err)
				require.Nil(t, p)
				again, err := kube.CoreV1().Secrets("slurm").Get(t.Context(), name, metav1.GetOptions{})
				require.NoError(t, err)
				assert.Equal(t, got, again, "once for all")
			case test.there == nil:
				all, err := kube.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				assert.Empty(t, all.Items, "under no other name either")
			default:
				require.NoError(t, err)
				assert.Equal(t, test.there.Data, got.Data)
			}
		})
	}
}
