//go:build integration

package stack

import (
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// recordResume writes down what slurmctld says, in a file the test can read.
const recordResume = "#!/bin/sh\necho \"$1\" >> /var/spool/slurmtide/resumed\n"

// The stack alone, without the bridge: pods are made by hand where the bridge would make them. It shows that the images, the
// configuration and the manifests are right, so a failure of the larger tests is ours.
func TestStackByHand(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	require.NoError(t, err, "KUBECONFIG names a cluster that has the images")
	gpus, err := FakeGPUs("gpu-0", "h100", 2)
	require.NoError(t, err)

	versions := Versions()
	if chosen := strings.Fields(os.Getenv("SLURM_VERSIONS")); len(chosen) > 0 {
		versions = chosen // the only ones whose images are loaded
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			s, err := Open(config, Options{
				Namespace:    "stack-" + strings.ReplaceAll(version, ".", ""),
				SlurmVersion: version,
				NodeLines: []string{
					"NodeName=cpu-[0-3] CPUs=2 RealMemory=500 State=CLOUD",
					// More CPUs than the machine may have: the NodeName line counts.
					"NodeName=gpu-0 CPUs=64 RealMemory=500 Gres=gpu:h100:2 State=CLOUD",
				},
				PartitionLines: []string{"PartitionName=cpu Nodes=cpu-[0-3] Default=YES", "PartitionName=gpu Nodes=gpu-0"},
				GresLines:      []string{gpus},
				SuspendTime:    600,
				Scripts:        map[string]string{"resume": recordResume},
			})
			require.NoError(t, err)
			require.NoError(t, s.Delete(ctx), "leftovers of an interrupted run")
			began := time.Now()
			s, err = Deploy(ctx, config, s.Options)
			require.NoError(t, err)
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
				defer cancel()
				if t.Failed() {
					t.Log(s.Describe(ctx))
				}
				began := time.Now()
				assert.NoError(t, s.Delete(ctx))
				t.Logf("deleted after %v", time.Since(began))
			})
			require.NoError(t, s.WaitReady(ctx))
			t.Logf("ready after %v", time.Since(began))

			slurm := func(command ...string) string {
				t.Helper()
				began := time.Now()
				out, stderr, err := s.Exec(ctx, ContainerSlurmctld, command...)
				require.NoError(t, err)
				assert.Empty(t, stderr, "%v", command)
				t.Logf("%v %v:\n%s", time.Since(began).Round(time.Millisecond), command, out)
				return out
			}
			until := func(want string, command ...string) {
				t.Helper()
				re := regexp.MustCompile(want)
				require.Eventually(t, func() bool {
					out, _, err := s.Exec(ctx, ContainerSlurmctld, command...)
					return err == nil && re.MatchString(out)
				}, time.Minute, 200*time.Millisecond, "%v never showed %s", command, want)
			}

			assert.Contains(t, slurm("sinfo", "--version"), version)
			assert.Equal(t, 2, strings.Count(slurm("sinfo", "-h"), "idle~"), "two partitions, all off")
			// slurmctld looks node names up while it answers.
			began = time.Now()
			slurm("getent", "hosts", "cpu-3")
			_, _, err = s.Exec(ctx, ContainerSlurmctld, "getent", "hosts", "nobody")
			require.ErrorContains(t, err, "exit status 2", "no such name")
			assert.Less(t, time.Since(began), 4*time.Second, "DNS must answer or refuse at once; a resolver tries again after five seconds")

			slurm("scontrol", "update", "nodename=cpu-[0-1],gpu-0", "state=power_up")
			until(`cpu-\[0-1\],gpu-0`, "cat", "/var/spool/slurmtide/resumed")
			began = time.Now()
			for _, node := range []string{"cpu-0", "cpu-1", "gpu-0"} {
				createSlurmd(ctx, t, s, node)
			}
			until(`^3\n$`, "sh", "-c", "sinfo -h -N -o %t | grep -cx idle")
			t.Logf("nodes up after %v", time.Since(began))

			out := slurm("srun", "-N2", "--ntasks-per-node=1", "hostname")
			assert.ElementsMatch(t, []string{"cpu-0", "cpu-1"}, strings.Fields(out))
			assert.Contains(t, slurm("srun", "-p", "gpu", "-n", "40", "--gpus=2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"), "0,1\n")
			_, _, err = s.ExecInput(ctx, strings.NewReader("#!/bin/sh\nsrun hostname\n"), ContainerSlurmctld,
				"sbatch", "--wait", "-N2", "-o", "/tmp/out")
			require.NoError(t, err)
			out, _, err = s.ExecPod(ctx, "cpu-0", nil, v1alpha1.ContainerSlurmd, "cat", "/tmp/out")
			require.NoError(t, err)
			assert.ElementsMatch(t, []string{"cpu-0", "cpu-1"}, strings.Fields(out))

			// slurmctld's container starts again with its state and finds the same nodes.
			require.NoError(t, s.Signal(ctx, "TERM", ContainerSlurmctld))
			require.Eventually(t, func() bool {
				pod, err := s.kube.CoreV1().Pods(s.Options.Namespace).Get(ctx, slurmctldPod, metav1.GetOptions{})
				return err == nil && slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
					return c.Name == ContainerSlurmctld && c.RestartCount == 1 && c.State.Running != nil
				})
			}, time.Minute, 200*time.Millisecond, "slurmctld starts again")
			require.NoError(t, s.WaitReady(ctx))
			until(`^3\n$`, "sh", "-c", "sinfo -h -N -o %t | grep -cx idle")
		})
	}
}

// createSlurmd makes the pod that the bridge would make for a node.
func createSlurmd(ctx context.Context, t *testing.T, s *Stack, node string) {
	t.Helper()
	template := PodTemplate(s.Options)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{v1alpha1.LabelCluster: s.Options.ClusterName}},
		Spec:       template.Spec,
	}
	maps.Copy(pod.Labels, template.Labels)
	pod.Spec.Hostname, pod.Spec.Subdomain = node, ServiceNodes
	pod.Spec.AutomountServiceAccountToken = new(false)
	c := &pod.Spec.Containers[0]
	c.Env = append(c.Env, corev1.EnvVar{Name: "POD_UID", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}})
	c.Args = []string{"slurmd", "-D", "-b", "-N", node, "--conf-server", s.ConfServer(), "--instance-id=$(POD_UID)"}
	_, err := s.kube.CoreV1().Pods(s.Options.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	require.NoError(t, err)
}
