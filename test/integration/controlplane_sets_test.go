//go:build integration && controlplane

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/internal/manifest"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

func (p *plane) createSet(name, nodes string, change ...func(*v1alpha1.NodeSet)) {
	p.t.Helper()
	set := p.build(nodeSet{name: name, nodes: nodes})
	slurmd := &set.Spec.Template.Spec.Containers[0]
	slurmd.Env[0].ValueFrom.SecretKeyRef.Name = "tide-auth-slurm"
	if name == "cpu" {
		set.Spec.Partition = &v1alpha1.NodeSetPartition{Config: "Default=YES"}
	}
	for _, one := range change {
		one(set)
	}
	_, err := p.tide.SlurmtideV1alpha1().NodeSets(p.ns).Create(p.ctx, set, metav1.CreateOptions{})
	require.NoError(p.t, err)
}

// withGrace lets jobs run on for a while when their pods are deleted.
func withGrace(set *v1alpha1.NodeSet) {
	set.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(40))
}

// testSetGoes deletes a NodeSet while jobs run on it, of which one ends within the grace period of its pods. The other one is lost with its pod; slurmctld and other
// jobs are not.
func (p *plane) testSetGoes(t *testing.T) {
	before := p.restarts()
	lost, ends, other := p.sbatch("sleep 300", "-p", "more", "--nodelist=more-0", "--no-requeue"), p.sbatch("sleep 20", "-p", "more", "--nodelist=more-0"), p.sbatch("sleep 20", "-p", "cpu")
	for _, id := range []string{lost, ends, other} {
		p.waitJob(id, "RUNNING")
	}
	waits := p.sbatch("true", "-p", "more", "--nodelist=more-0", "--exclusive")
	require.NoError(p.t, p.tide.SlurmtideV1alpha1().NodeSets(p.ns).Delete(p.ctx, "more", metav1.DeleteOptions{}))
	p.eventually("its partition to take no more jobs", func() (bool, string) {
		out := p.slurm("sinfo", "-h", "-p", "more", "-o", "%P %a %N")
		return out == "more inactive more-0", out
	})
	p.waitJob(ends, "COMPLETED")
	assert.Equal(t, "0", p.jobField(ends, "Restarts"))
	p.within(2*time.Minute, time.Second, "its nodes to go", func() (bool, string) {
		out := p.slurm("sinfo", "-h", "-o", "%P %D %t")
		return !strings.Contains(out, "more"), out
	})
	p.waitInForce()
	p.eventually("its job to end", func() (bool, string) {
		state := p.jobField(lost, "JobState")
		return state != "RUNNING" && state != "COMPLETING", state
	})
	p.eventually("its claim to go", func() (bool, string) {
		_, err := p.kube.CoreV1().PersistentVolumeClaims(p.ns).Get(p.ctx, moreClaim, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	p.waitJob(other, "COMPLETED")
	assert.Equal(p.t, "0", p.jobField(other, "Restarts"))
	assert.Equal(p.t, before, p.restarts())
	t.Logf("a job that waited for its nodes: %s, %s", p.jobField(waits, "JobState"), p.jobField(waits, "Reason"))
}

// testEachHost has nodes follow hosts: the real one, and one on paper, to which pods are bound and where nothing runs.
func (p *plane) testEachHost(t *testing.T) {
	const label = "test.slurmtide.io/each-host"
	nodes, sets := p.kube.CoreV1().Nodes(), p.tide.SlurmtideV1alpha1().NodeSets(p.ns)
	list, err := nodes.List(p.ctx, metav1.ListOptions{LabelSelector: "!" + paperTaint})
	require.NoError(t, err)
	require.NotEmpty(t, list.Items)
	host, paper := list.Items[0].Name, ""
	for paper = range p.paperHosts("a") {
	}
	mark := func(host, value string) {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, label, value)
		_, err := nodes.Patch(context.WithoutCancel(p.ctx), host, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	t.Cleanup(func() { mark(host, "null") })
	get := func() *v1alpha1.NodeSet {
		set, err := sets.Get(p.ctx, "hosts", metav1.GetOptions{})
		require.NoError(t, err)
		return set
	}
	write := func(names any) { // as a user
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"nodeNames": names}})
		require.NoError(t, err)
		_, err = sets.Patch(p.ctx, "hosts", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "somebody"})
		require.NoError(t, err)
	}
	waitSpec := func(names string, replicas int32) {
		t.Helper()
		p.eventually("spec to follow", func() (bool, string) {
			spec := get().Spec
			return spec.NodeNames == names && *spec.Replicas == replicas, fmt.Sprint(spec.NodeNames, " ", *spec.Replicas)
		})
	}
	on := func(node string) string { return p.slurmdPods()[node].Spec.NodeName }

	before := p.restarts()
	p.createSet("hosts", "", func(set *v1alpha1.NodeSet) {
		set.Spec.EachHost = &v1alpha1.EachHost{AlwaysOn: true}
		set.Spec.Template.Spec.NodeSelector = map[string]string{label: p.ns}
		set.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: paperTaint, Operator: corev1.TolerationOpExists}}
	})
	p.eventually("it to say that there are no hosts", func() (bool, string) {
		is := meta.FindStatusCondition(get().Status.Conditions, v1alpha1.ConditionHostsFollowed)
		return is != nil && is.Reason == "NoHosts", fmt.Sprint(is)
	})
	p.eventually("its partition", func() (bool, string) {
		out := p.slurm("sinfo", "-h", "-p", "hosts", "-o", "%P %D")
		return out == "hosts 0", out
	})
	mark(paper, `"`+p.ns+`"`)
	waitSpec(paper, 1)
	p.eventually("a pod of the host's name on the host", func() (bool, string) { return on(paper) == paper, on(paper) })

	began := time.Now()
	mark(host, `"`+p.ns+`"`)
	p.eventually("the node of the host that has joined to serve", func() (bool, string) {
		out := p.slurm("sinfo", "-h", "-n", host, "-p", "hosts", "-o", "%N %t")
		return out == host+" idle", out
	})
	t.Logf("a host that joins serves after %v", time.Since(began).Round(100*time.Millisecond))
	assert.Equal(t, host, on(host))
	assert.Equal(t, int32(2), *get().Spec.Replicas)
	id := p.sbatch("sleep 600", "-p", "hosts", "--nodelist="+host)
	p.waitJob(id, "RUNNING")
	p.cordon(paper, true)
	p.eventually("a cordoned host to count no more", func() (bool, string) { return *get().Spec.Replicas == 1, fmt.Sprint(*get().Spec.Replicas) })

	given := paper + "," + host + ",no-host"
	write(given)
	mark(paper, "null")
	for range 5 {
		time.Sleep(time.Second)
		require.Equal(t, given, get().Spec.NodeNames, "names that somebody has written")
	}
	is := meta.FindStatusCondition(get().Status.Conditions, v1alpha1.ConditionHostsFollowed)
	require.NotNil(t, is)
	assert.Equal(t, "spec.nodeNames is written by somebody: take it out, and nodes follow hosts", is.Message)
	write(nil)
	waitSpec(host, 1)
	p.slurm("scontrol", "update", "nodename="+paper, "state=power_down_force") // its slurmd would never come
	p.within(2*time.Minute, time.Second, "the node of the host that has left to go", func() (bool, string) {
		out := p.slurm("sinfo", "-h", "-p", "hosts", "-o", "%N")
		return out == host, out
	})
	assert.Equal(t, "RUNNING", p.jobField(id, "JobState"))
	assert.Equal(t, "0", p.jobField(id, "Restarts"))
	p.slurm("scancel", id)
	require.NoError(t, sets.Delete(p.ctx, "hosts", metav1.DeleteOptions{}))
	p.within(2*time.Minute, time.Second, "its nodes to go", func() (bool, string) {
		out := p.slurm("sinfo", "-h", "-o", "%P %D %t")
		return !strings.Contains(out, "hosts"), out
	})
	p.waitInForce()
	assert.Equal(t, before, p.restarts(), "without a restart of slurmctld")
}

// moreClaim is the claim of node more-0, for which there is a volume.
const moreClaim = "scratch-more-0"

// withClaim gives nodes a volume each, which goes with the NodeSet.
func withClaim(set *v1alpha1.NodeSet) {
	set.Spec.VolumeClaimTemplates = []v1alpha1.VolumeClaimTemplate{{Metadata: v1alpha1.VolumeClaimMetadata{Name: "scratch"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: new(""), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}}
	set.Spec.PersistentVolumeClaimRetentionPolicy = &v1alpha1.ClaimRetentionPolicy{WhenDeleted: v1alpha1.DeleteClaim}
	slurmd := &set.Spec.Template.Spec.Containers[0]
	slurmd.VolumeMounts = append(slurmd.VolumeMounts, corev1.VolumeMount{Name: "scratch", MountPath: "/scratch"})
}

// withShm gives nodes a larger /dev/shm, as docs/nodesets.md has it.
func withShm(set *v1alpha1.NodeSet) {
	pod := &set.Spec.Template.Spec
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "shm", VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: new(resource.MustParse("96Mi"))},
	}})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "shm", MountPath: "/dev/shm"})
}

// testMetrics reads slurmctld's own metrics, which 24.11 has not: it refuses the configuration, and goes on.
func (p *plane) testMetrics(t *testing.T) {
	before := p.restarts()
	enable := func(yes bool) {
		c := p.controller()
		c.Spec.Metrics.Enabled = yes
		_, err := p.tide.SlurmtideV1alpha1().Controllers(p.ns).Update(p.ctx, c, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	page := func(path string) (string, error) {
		text, err := p.kube.CoreV1().Pods(p.ns).ProxyGet("http", "tide-controller-0", "6817", path, nil).DoRaw(p.ctx)
		return string(text), err
	}
	nothing, _ := page("/metrics/nodes") // an error, or an empty page
	assert.NotContains(t, nothing, "slurm_nodes", "nobody has asked for them")
	enable(true)
	if p.version == "24.11" {
		assert.Contains(t, p.waitCondition(v1alpha1.ConditionConfigInForce, "Rejected"), "MetricsType")
	} else {
		p.waitInForce()
		nodes, err := page("/metrics/nodes")
		require.NoError(t, err)
		assert.Contains(t, nodes, "\nslurm_nodes 3\n")
		index, err := page("/metrics")
		require.NoError(t, err)
		for _, path := range []string{"/metrics/jobs", "/metrics/partitions", "/metrics/scheduler"} { // what the chart has read
			assert.Contains(t, index, "'"+path+"'")
		}
	}
	enable(false)
	p.waitInForce()
	assert.Equal(t, before, p.restarts())
}

// withScripts gives nodes the programs that slurmctld does not hand out, as docs/examples/nodeset-scripts.yaml does.
func (p *plane) withScripts(set *v1alpha1.NodeSet) {
	text, err := os.ReadFile("../../docs/examples/nodeset-scripts.yaml")
	require.NoError(p.t, err)
	var example v1alpha1.NodeSet
	require.NoError(p.t, manifest.Unmarshal(text, &example))
	from, to := &example.Spec.Template.Spec, &set.Spec.Template.Spec
	to.Volumes = append(to.Volumes, from.Volumes...)
	to.Containers[0].VolumeMounts = append(to.Containers[0].VolumeMounts, from.Containers[0].VolumeMounts...)
	_, err = p.kube.CoreV1().ConfigMaps(p.ns).Create(p.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "node-scripts"}, Data: map[string]string{
		"health-check": "#!/bin/sh\necho \"$SLURMD_NODENAME\" >/tmp/healthy\n",
		"task-prolog":  "#!/bin/sh\necho export FROM_TASK_PROLOG=$SLURM_JOB_ID\n",
	}}, metav1.CreateOptions{})
	require.NoError(p.t, err)
}

// testScripts has slurmd run a health check and a task prolog of its pod, with slurm.conf's lines as the example has them.
func (p *plane) testScripts(t *testing.T) {
	text, err := os.ReadFile("../../docs/examples/nodeset-scripts.yaml")
	require.NoError(t, err)
	lines := ""
	for _, line := range regexp.MustCompile(`(?m)^#   (\w+=\S+)$`).FindAllStringSubmatch(string(text), -1) {
		lines += line[1] + "\n"
	}
	require.Equal(t, 3, strings.Count(lines, "\n"), lines)
	p.waitZero("more-[0-1]") // slurmd looks after its health when it starts
	before := p.controller().Spec.ExtraConf
	p.setExtra(before + lines)
	p.waitInForce()
	p.waitJob(p.sbatch(`srun sh -c 'test "$FROM_TASK_PROLOG" = $SLURM_JOB_ID' && grep -qx more-0 /tmp/healthy`, "-p", "more", "--nodelist=more-0"), "COMPLETED")
	p.setExtra(before)
	p.waitInForce()
}
