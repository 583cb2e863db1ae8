package pods

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

var update = flag.Bool("update", false, "write golden files")

// newNodeSet is a valid NodeSet with nothing optional in it.
func newNodeSet(name, nodes string) *v1alpha1.NodeSet {
	return &v1alpha1.NodeSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "slurm", UID: "uid-of-" + "nodeset", Generation: 1,
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		},
		Spec: v1alpha1.NodeSetSpec{
			ClusterRef: v1alpha1.ClusterRef{Name: "tide"},
			NodeNames:  nodes,
			Mode:       v1alpha1.ModeCloud,
			Shape:      v1alpha1.Shape{CPUs: 4, RealMemory: 8000},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "slurmd", Image: "slurmtide/slurm:26.05"}},
			}},
		},
	}
}

func slurmd(ns *v1alpha1.NodeSet) *corev1.Container { return slurmdContainer(&ns.Spec.Template.Spec) }

func TestBuildGolden(t *testing.T) {
	options := PodOptions{Cluster: "tide", ConfServer: "slurmctld:6817", Service: "slurmd"}
	for name, tc := range map[string]struct {
		change  func(*v1alpha1.NodeSet)
		options PodOptions
	}{
		"minimal": {options: PodOptions{Cluster: "tide"}},
		"gpu": {options: options, change: func(ns *v1alpha1.NodeSet) {
			ns.Spec.Shape.Gres = "gpu:h100:2"
		}},
		"dynamic": {options: options, change: func(ns *v1alpha1.NodeSet) {
			ns.Spec.Mode = v1alpha1.ModeDynamic
			ns.Spec.Shape = v1alpha1.Shape{
				CPUs: 4, Sockets: new(int32(1)), CoresPerSocket: new(int32(2)), ThreadsPerCore: new(int32(2)), RealMemory: 8000, Gres: "gpu:h100:2",
				Features: []string{"a", "b"}, Weight: new(int32(5)),
			}
		}},
		"full-template": {options: options, change: func(ns *v1alpha1.NodeSet) {
			ns.Spec.Template.ObjectMeta = metav1.ObjectMeta{
				Labels:      map[string]string{"team": "hpc", v1alpha1.LabelNode: "not-ours-to-say"},
				Annotations: map[string]string{"note": "kept", annotationSafeToEvict: "true"},
			}
			spec := &ns.Spec.Template.Spec
			spec.NodeSelector = map[string]string{"pool": "burst"}
			spec.Tolerations = []corev1.Toleration{{Key: "slurm", Operator: corev1.TolerationOpExists}}
			spec.Hostname = "overwritten"
			spec.EnableServiceLinks = new(true)
			spec.TerminationGracePeriodSeconds = new(int64(60))
			spec.Volumes = []corev1.Volume{{Name: "home", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			spec.Containers = append([]corev1.Container{{Name: "sidecar", Image: "log:1", Args: []string{"-f"}}}, spec.Containers...)
			c := slurmd(ns)
			c.Command = []string{"/usr/bin/tini", "--", "/usr/sbin/slurmd"}
			c.Args = []string{"-vv", "--conf-server", "other:6817"}
			c.Env = []corev1.EnvVar{{Name: "POD_UID", Value: "overwritten"}, {Name: "TZ", Value: "UTC"}}
			c.VolumeMounts = []corev1.VolumeMount{{Name: "home", MountPath: "/home"}}
			c.Resources = corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Gi")},
			}
		}},
		"ssh": {options: options, change: func(ns *v1alpha1.NodeSet) {
			ns.Spec.SSH = &v1alpha1.NodeSetSSH{Enabled: true, Port: 2222, SSHOptions: v1alpha1.SSHOptions{
				RootSSHAuthorizedKeys: "ssh-ed25519 AAAA admin\n", AuthorizedKeysRefs: []v1alpha1.ObjectRef{{Name: "keys-a"}, {Name: "keys-b"}},
				HostKeysRef: &v1alpha1.ObjectRef{Name: "old-host-keys"}, ExtraSshdConfig: "Match Group staff\n  X11Forwarding yes\n",
			}}
			ns.Spec.UserOptions = v1alpha1.UserOptions{UsersRef: &v1alpha1.ObjectRef{Name: "users"}}
		}},
		"sssd": {options: options, change: func(ns *v1alpha1.NodeSet) {
			ns.Spec.SSH = &v1alpha1.NodeSetSSH{Enabled: true}
			ns.Spec.SssdConfRef = &v1alpha1.KeyRef{Name: "sssd", Key: "sssd.conf"}
			ns.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "prepare", Image: "site/prepare:1"}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNodeSet("cpu", "cpu-[0-49]")
			if tc.change != nil {
				tc.change(ns)
			}
			before := ns.DeepCopy()
			pod, err := Build(ns, "cpu-7", 42, "01J-request", tc.options)
			require.NoError(t, err)
			assert.Equal(t, before, ns, "Build must not change the NodeSet")

			got, err := yaml.Marshal(pod)
			require.NoError(t, err)
			golden := filepath.Join("testdata", "pod-"+name+".yaml")
			if *update {
				require.NoError(t, os.WriteFile(golden, got, 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), string(got))
		})
	}
}

func TestBuildErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		node   string
		change func(*v1alpha1.NodeSet)
		want   string
	}{
		"node name in capitals": {node: "CPU-1", want: `NodeSet cpu: node name "CPU-1" cannot be a pod name`},
		"node name with dots":   {node: "cpu.1", want: `cannot be a pod name`},
		"no slurmd container": {node: "cpu-1", want: "must have a container named slurmd", change: func(ns *v1alpha1.NodeSet) {
			slurmd(ns).Name = "slurm"
		}},
		"contradiction": {node: "cpu-1", want: "memory limit 1Gi of container slurmd is below spec.shape.realMemory 8000 MiB", change: func(ns *v1alpha1.NodeSet) {
			slurmd(ns).Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNodeSet("cpu", "cpu-[0-49]")
			if tc.change != nil {
				tc.change(ns)
			}
			_, err := Build(ns, tc.node, 1, "r", PodOptions{Cluster: "tide"})
			assert.ErrorContains(t, err, tc.want)
		})
	}
}

func TestResources(t *testing.T) {
	const gpu, mig, amd = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu"
	list := func(pairs ...string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return l
	}
	for name, tc := range map[string]struct {
		gres         string
		have         corev1.ResourceRequirements
		wantRequests corev1.ResourceList
		wantLimits   corev1.ResourceList
		wantErr      string
	}{
		"all from the shape": {
			wantRequests: list("cpu", "4", "memory", "8128Mi"), wantLimits: list("memory", "8128Mi"),
		},
		"small requests stay": {
			have:         corev1.ResourceRequirements{Requests: list("cpu", "10m", "memory", "64Mi")},
			wantRequests: list("cpu", "10m", "memory", "64Mi"),
		},
		"limits stay and nothing is requested beside them": {
			have:         corev1.ResourceRequirements{Limits: list("cpu", "4", "memory", "8000Mi")},
			wantRequests: list(), wantLimits: list("cpu", "4", "memory", "8000Mi"),
		},
		"cpu limit too small": {
			have: corev1.ResourceRequirements{Limits: list("cpu", "3900m")}, wantErr: "cpu limit 3900m of container slurmd is below spec.shape.cpus 4",
		},
		"memory limit too small by a byte": {
			have: corev1.ResourceRequirements{Limits: list("memory", "8388607999")}, wantErr: "memory limit 8388607999 of container slurmd is below",
		},
		"gpus from gres": {
			gres:         "gpu:h100:2,gpu:a100:1,shard:8",
			wantRequests: list("cpu", "4", "memory", "8128Mi", gpu, "3"), wantLimits: list("memory", "8128Mi", gpu, "3"),
		},
		"gpus agree": {
			gres:         "gpu:2",
			have:         corev1.ResourceRequirements{Limits: list(gpu, "2")},
			wantRequests: list("cpu", "4", "memory", "8128Mi"), wantLimits: list("memory", "8128Mi", gpu, "2"),
		},
		"gpus of another make": {
			gres:         "gpu:2",
			have:         corev1.ResourceRequirements{Limits: list(amd, "2")},
			wantRequests: list("cpu", "4", "memory", "8128Mi"), wantLimits: list("memory", "8128Mi", amd, "2"),
		},
		"gpu slices and whole ones add up": {
			gres:         "gpu:3",
			have:         corev1.ResourceRequirements{Limits: list(mig, "2", gpu, "1")},
			wantRequests: list("cpu", "4", "memory", "8128Mi"), wantLimits: list("memory", "8128Mi", mig, "2", gpu, "1"),
		},
		"gpus from a resource claim": {
			gres:         "gpu:2",
			have:         corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpus"}}},
			wantRequests: list("cpu", "4", "memory", "8128Mi"), wantLimits: list("memory", "8128Mi"),
		},
		"fewer gpus than gres": {
			gres: "gpu:h100:2", have: corev1.ResourceRequirements{Limits: list(gpu, "1")},
			wantErr: `spec.template asks for 1 GPUs, but spec.shape.gres "gpu:h100:2" has 2`,
		},
		"gpus without gres": {
			have: corev1.ResourceRequirements{Limits: list(gpu, "1")}, wantErr: "spec.shape.gres has none",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNodeSet("cpu", "cpu-1")
			ns.Spec.Shape.Gres = tc.gres
			slurmd(ns).Resources = tc.have
			pod, err := Build(ns, "cpu-1", 1, "r", PodOptions{Cluster: "tide"})
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			got := slurmdContainer(&pod.Spec).Resources
			assertQuantities(t, tc.wantRequests, got.Requests)
			assertQuantities(t, tc.wantLimits, got.Limits)
		})
	}
}

func assertQuantities(t *testing.T, want, got corev1.ResourceList) {
	t.Helper()
	assert.Len(t, got, len(want))
	for name, q := range want {
		have := got[name]
		assert.Zero(t, q.Cmp(have), "%s: want %s, have %s", name, q.String(), have.String())
	}
}
