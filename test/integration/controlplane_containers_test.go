//go:build integration && controlplane

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/internal/manifest"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// smallRoot writes a tar of a few programs of the node, and what they need, to standard output.
const smallRoot = `for f in sh bash cat sleep; do p=$(command -v $f); echo $p; ldd $p | grep -o '/[^ ]*'; done | sort -u | tar -chf - -P --transform='s,^/,,' -T -`

// TestControlPlaneContainers runs jobs in containers: by Slurm's own --container, and by a Docker daemon beside slurmd. Manifests are those of docs/examples.
func TestControlPlaneContainers(t *testing.T) {
	withController(t)
	newestFirst(t, testContainers)
}

func testContainers(t *testing.T, version string) {
	p := newPlane(t, version, "containers-")
	p.describeLogin()
	runKubectl(t, "-n", p.ns, "apply", "-f", "../../docs/examples/oci.yaml")
	p.createController("SuspendTime=200\nSuspendTimeout=40\nResumeTimeout=120\nMessageTimeout=20\n", func(c *v1alpha1.Controller) {
		c.Spec.ConfigFileRefs = []v1alpha1.ObjectRef{{Name: "oci"}}
		c.Spec.PrologScriptRefs = []v1alpha1.ObjectRef{{Name: "oci-prolog"}}
		c.Spec.EpilogScriptRefs = []v1alpha1.ObjectRef{{Name: "oci-epilog"}}
	})
	bundles, home := p.hostDirectory("bundles"), p.hostDirectory("home")
	require.NoError(t, os.Chmod(bundles.HostPath.Path, 0o777))
	require.NoError(t, os.Chmod(home.HostPath.Path, 0o777))
	p.createExample("nodeset-oci.yaml", bundles)
	p.createExample("nodeset-oci.yaml", bundles, func(set *v1alpha1.NodeSet) {
		set.Name, set.Spec.NodeNames = "strict", "strict-0"
		set.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	})
	p.createExample("nodeset-docker.yaml", home, inDockerImage)
	p.waitCondition(v1alpha1.ConditionAvailable, "Answers")
	p.waitInForce()
	p.try("OCI bundles", func(t *testing.T) { p.testBundles(t, bundles.HostPath.Path) })
	p.try("Docker", func(t *testing.T) { p.testDocker(t, home.HostPath.Path) })
}

// createExample makes the NodeSet of an example; the claim that is called like the volume gives way to it. It asks for less of the machine than the example does.
func (p *plane) createExample(name string, volume corev1.Volume, change ...func(*v1alpha1.NodeSet)) {
	p.t.Helper()
	text, err := os.ReadFile("../../docs/examples/" + name)
	require.NoError(p.t, err)
	var set v1alpha1.NodeSet
	require.NoError(p.t, manifest.Unmarshal(text, &set))
	small := p.build(nodeSet{name: set.Name, nodes: set.Spec.NodeNames})
	set.Spec.Shape = small.Spec.Shape
	spec, slurmd := &set.Spec.Template.Spec, &small.Spec.Template.Spec.Containers[0]
	spec.TerminationGracePeriodSeconds = small.Spec.Template.Spec.TerminationGracePeriodSeconds
	spec.Containers[0].Image, spec.Containers[0].ImagePullPolicy, spec.Containers[0].Resources = slurmd.Image, slurmd.ImagePullPolicy, slurmd.Resources
	for i := range spec.Volumes {
		if spec.Volumes[i].Name == volume.Name {
			require.NotNil(p.t, spec.Volumes[i].PersistentVolumeClaim)
			spec.Volumes[i] = volume
		}
	}
	for _, one := range change {
		one(&set)
	}
	_, err = p.tide.SlurmtideV1alpha1().NodeSets(p.ns).Create(p.ctx, &set, metav1.CreateOptions{})
	require.NoError(p.t, err)
}

// onNode runs a script in slurmd's container.
func (p *plane) onNode(node, script string) string {
	p.t.Helper()
	out, stderr, err := p.ExecPod(p.ctx, node, nil, v1alpha1.ContainerSlurmd, "sh", "-c", script)
	require.NoError(p.t, err, "%s: %s%s", script, stderr, out)
	return strings.TrimSpace(out)
}

// testBundles runs steps and a batch script in a bundle of docs/containers.md.
func (p *plane) testBundles(t *testing.T, bundles string) {
	config, err := os.ReadFile("../../docs/examples/oci-config.json")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(bundles, "config.json"), config, 0o644))
	said := func(name string) string {
		text, err := os.ReadFile(filepath.Join(bundles, name))
		require.NoError(t, err)
		return strings.TrimSpace(string(text))
	}
	const small, out = "--container=/bundles/small", "--output=/bundles/%x.out"

	id := p.sbatch(`set -e
mkdir -p /bundles/small/rootfs && cd /bundles/small && mv ../config.json .
(cd rootfs && mkdir dev etc proc sys tmp && `+smallRoot+` | tar -x && ln -s usr/bin bin && echo NAME=small >etc/os-release)
srun -N2 --ntasks-per-node=1 --output=/bundles/task-%t.out `+small+` sh -c 'cat /etc/os-release; echo "$SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME"; echo x >/tmp/mine; echo x 2>/dev/null >/etc/mine || echo "read-only"'
srun -n1 -N1 `+small+` sh -c 'exit 7' || test $? = 7
srun -n1 -N1 sh -c '! test -e /tmp/mine && ! grep -q NAME=small /etc/os-release'
`, "-p", "oci", "-N2", "-J", "steps", out)
	p.waitJob(id, "COMPLETED")
	assert.Equal(t, "NAME=small\n0 of 2 on oci-0\nread-only", said("task-0.out"))
	assert.Equal(t, "NAME=small\n1 of 2 on oci-1\nread-only", said("task-1.out"))

	id = p.sbatch("cat /etc/os-release; exec sleep 1000", "-p", "oci", "--nodelist=oci-0", "-J", "batch", out, small)
	p.waitJob(id, "RUNNING")
	p.eventually("the script to run", func() (bool, string) {
		text, err := os.ReadFile(filepath.Join(bundles, "batch.out")) // not there at once
		return string(text) == "NAME=small\n", fmt.Sprint(string(text), err)
	})
	assert.Equal(t, "0 64030 1", p.onNode("oci-0", "xargs </proc/$(pgrep -x sleep)/uid_map"), "root in there is the job's user")
	assert.NotEmpty(t, p.onNode("oci-0", "ls /run/crun/"+id))
	p.slurm("scancel", id)
	p.waitJob(id, "CANCELLED")
	// The container's first process does not see SIGTERM, so it has KillWait, 30 s, until it is killed; slurmd looks for its end each 10 s.
	p.within(2*time.Minute, time.Second, "nothing to be left", func() (bool, string) {
		left := p.onNode("oci-0", "pgrep -l 'sleep|crun'; ls /run/crun; ls /var/spool/slurmd | grep oci- || true")
		return left == "", left
	})

	// The usual profile refuses what crun needs, and Slurm says so instead of running the job outside.
	id = p.sbatch("srun --output=/bundles/strict.out --error=/bundles/strict.err "+small+" cat /etc/os-release", "-p", "strict")
	p.waitJob(id, "FAILED")
	assert.Empty(t, said("strict.out"))
	assert.Contains(t, said("strict.err"), "Operation not permitted")
}

// inDockerImage has the example run by images that are here. The socket's group is the one of the test's jobs.
func inDockerImage(set *v1alpha1.NodeSet) {
	inits := set.Spec.Template.Spec.InitContainers
	for i := range inits {
		inits[i].Image, inits[i].ImagePullPolicy = "slurmtide/docker:test", corev1.PullIfNotPresent
		for j := range inits[i].Args {
			inits[i].Args[j] = strings.Replace(inits[i].Args[j], "--group=2375", "--group=64030", 1)
		}
	}
}

// testDocker has a job make an image and run it.
func (p *plane) testDocker(t *testing.T, home string) {
	id := p.sbatch(`set -e
export DOCKER_HOST=unix:///run/docker/docker.sock
`+smallRoot+` | docker import - small
mkdir -p /home/work && chmod 777 /home/work
docker run --rm --network=none --hostname=inside -v /home/work:/home/work small sh -c 'cat /proc/sys/kernel/hostname >/home/work/said; ! test -e /etc/slurm'
docker run --rm small sh -c 'exit 7' || test $? = 7
`, "-p", "docker", "--output=/home/docker.out")
	p.waitJob(id, "COMPLETED", "FAILED")
	out, err := os.ReadFile(filepath.Join(home, "docker.out"))
	require.NoError(t, err)
	require.Equal(t, "COMPLETED", p.jobField(id, "JobState"), "%s", out)
	said, err := os.ReadFile(filepath.Join(home, "work/said"))
	require.NoError(t, err)
	assert.Equal(t, "inside\n", string(said))
}
