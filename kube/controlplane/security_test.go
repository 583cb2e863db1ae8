package controlplane

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// templates are the pod templates of all kinds, with all that makes a difference to their containers, by a name for each.
func templates(t *testing.T) map[string]corev1.PodTemplateSpec {
	t.Helper()
	all := map[string]corev1.PodTemplateSpec{}
	add := func(name string, objects []Object, err error) {
		require.NoError(t, err)
		for _, o := range objects {
			switch o := o.(type) {
			case *appsv1.StatefulSet:
				all[name] = o.Spec.Template
			case *appsv1.Deployment:
				all[name] = o.Spec.Template
			}
		}
		require.Contains(t, all, name)
	}
	for name, change := range map[string]func(*v1alpha1.Controller){
		"slurmctld":         nil,
		"slurmctld backups": func(c *v1alpha1.Controller) { c.Spec.Backups = 1 },
		"slurmctld claim":   func(c *v1alpha1.Controller) { c.Spec.Persistence.ExistingClaim = "state" },
		"slurmctld in memory": func(c *v1alpha1.Controller) {
			c.Spec.Persistence.Enabled = new(false)
			c.Spec.Template.Spec.HostUsers = new(false)
		},
		"slurmctld of slurm-operator": func(c *v1alpha1.Controller) {
			c.Spec.Template.Spec.SecurityContext = &v1alpha1.PodSecurityOptions{RunAsUser: new(int64(401)), RunAsGroup: new(int64(401)), FSGroup: new(int64(401))}
		},
	} {
		objects, err := ControllerObjects(controller(change), nil, settings)
		add(name, objects, err)
	}
	a := accounting(nil)
	add("slurmdbd", AccountingObjects(a, "hash"), nil)
	r := &v1alpha1.RestApi{ObjectMeta: metav1.ObjectMeta{Name: "tide", Namespace: "slurm"}, Spec: v1alpha1.RestApiSpec{ControllerRef: v1alpha1.ObjectRef{Name: "tide"}}}
	objects, err := RestApiObjects(r, controller(nil), nil, settings)
	add("slurmrestd", objects, err)
	objects, err = RestApiObjects(r, controller(nil), a, settings)
	add("slurmrestd with slurmdbd", objects, err)
	for name, change := range map[string]func(*v1alpha1.LoginSet){
		"login":      nil,
		"login sssd": func(s *v1alpha1.LoginSet) { s.Spec.SssdConfRef = &v1alpha1.KeyRef{Name: "sssd", Key: "sssd.conf"} },
	} {
		objects, err := LoginSetObjects(loginSet(change), controller(nil), hostKeyFiles("ssh_host_ed25519_key"), settings)
		add(name, objects, err)
	}
	return all
}

// No container can write to its root file system but these.
func TestReadOnlyRootFilesystem(t *testing.T) {
	writable := []string{
		ContainerLogin, // users work in it
		ContainerSSSD,  // its caches lie where its image has them
	}
	var seen []string
	for name, template := range templates(t) {
		for _, c := range slices.Concat(template.Spec.InitContainers, template.Spec.Containers) {
			seen = append(seen, c.Name)
			readOnly := c.SecurityContext.ReadOnlyRootFilesystem
			if slices.Contains(writable, c.Name) {
				assert.Nil(t, readOnly, "%s: %s is no exception any more", name, c.Name)
				continue
			}
			assert.True(t, readOnly != nil && *readOnly, "%s: container %s can write to its root file system", name, c.Name)
		}
		assert.Empty(t, template.Spec.EphemeralContainers)
	}
	slices.Sort(seen)
	assert.Equal(t, []string{"bridge", "config", "directories", "files", "login", "programs", "reconfigure", "sackd", "slurmctld", "slurmdbd", "slurmrestd", "sssd"}, slices.Compact(seen))
}

// Every pod meets the Pod Security Standard "restricted", in the words of Kubernetes' own admission. sshd and sssd become users: login pods meet "baseline".
func TestPodSecurity(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	require.NoError(t, err)
	for name, template := range templates(t) {
		level := api.LevelRestricted
		if name == "login" || name == "login sssd" {
			level = api.LevelBaseline
		}
		got := policy.AggregateCheckResults(evaluator.EvaluatePod(api.LevelVersion{Level: level, Version: api.LatestVersion()}, &template.ObjectMeta, &template.Spec))
		assert.True(t, got.Allowed, "%s: %s", name, got.ForbiddenDetail())
	}
}

// What a volume is mounted at in place of a directory of ours is that volume, also where configurations are tried.
func TestMounts(t *testing.T) {
	logs := corev1.Volume{Name: "logs", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "logs"}}}
	mounts := []corev1.VolumeMount{{Name: "logs", MountPath: "/var/log/slurm/"}, {Name: "logs", MountPath: "/var/log/site", SubPath: "site"}}
	objects, err := ControllerObjects(controller(func(c *v1alpha1.Controller) {
		c.Spec.Slurmctld.VolumeMounts, c.Spec.Template.Spec.Volumes = mounts, []corev1.Volume{logs}
	}), nil, settings)
	require.NoError(t, err)
	set, ok := objects[len(objects)-1].(*appsv1.StatefulSet)
	require.True(t, ok)
	spec := set.Spec.Template.Spec
	assert.Contains(t, spec.Volumes, logs)
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		var at []string
		for _, m := range c.VolumeMounts {
			if m.Name == "logs" || m.Name == scratchVolume {
				at = append(at, m.MountPath+" "+m.Name+"/"+m.SubPath)
			}
		}
		var want []string
		switch c.Name {
		case "directories": // makes the others'
			want = []string{"/volumes/scratch scratch/"}
		case ContainerSlurmctld, ContainerReconfigure, containerConfig:
			want = []string{"/tmp scratch/" + c.Name + "/tmp", "/run/slurmctld scratch/" + c.Name + "/run-slurmctld", "/var/log/slurm/ logs/", "/var/log/site logs/site"}
		}
		assert.Equal(t, want, at, c.Name)
	}

	a := accounting(nil)
	a.Spec.Slurmdbd = &v1alpha1.DaemonOptions{VolumeMounts: mounts}
	a.Spec.Template.Spec.Volumes = []corev1.Volume{logs}
	set, ok = AccountingObjects(a, "hash")[1].(*appsv1.StatefulSet)
	require.True(t, ok)
	assert.Contains(t, set.Spec.Template.Spec.Volumes, logs)
	assert.Subset(t, set.Spec.Template.Spec.Containers[0].VolumeMounts, mounts)
}
