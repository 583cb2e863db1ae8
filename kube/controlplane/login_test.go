package controlplane

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/sshd"
)

func loginSet(change func(*v1alpha1.LoginSet)) *v1alpha1.LoginSet {
	s := &v1alpha1.LoginSet{
		ObjectMeta: metav1.ObjectMeta{Name: "tide", Namespace: "slurm", UID: "uid-of-loginset", Generation: 2},
		Spec:       v1alpha1.LoginSetSpec{ControllerRef: v1alpha1.ObjectRef{Name: "tide"}, Replicas: new(int32(1))},
	}
	if change != nil {
		change(s)
	}
	return s
}

func hostKeyFiles(names ...string) map[string][]byte {
	files := map[string][]byte{}
	for _, name := range names {
		files[name], files[name+".pub"] = []byte("private"), []byte("public")
	}
	return files
}

// Whole objects, in testdata.
func TestLoginSetObjects(t *testing.T) {
	tests := map[string]struct {
		set  *v1alpha1.LoginSet
		keys map[string][]byte
	}{
		"plain": {loginSet(nil), hostKeyFiles("ssh_host_ecdsa_key", "ssh_host_ed25519_key")},
		"full": {loginSet(func(s *v1alpha1.LoginSet) {
			s.Spec.Replicas = new(int32(3))
			s.Spec.Login = &v1alpha1.DaemonOptions{
				ContainerOptions: v1alpha1.ContainerOptions{
					Image: "site/login:1", ImagePullPolicy: corev1.PullAlways, Args: []string{"-o", "LogLevel=VERBOSE"}, Env: []corev1.EnvVar{{Name: "TZ", Value: "Europe/Berlin"}},
					Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi")}},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "home", MountPath: "/home"}},
			}
			s.Spec.Template.Metadata = v1alpha1.PodMetadata{Labels: map[string]string{"team": "hpc"}, Annotations: map[string]string{"note": "x"}}
			s.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "login"}
			s.Spec.Template.Spec.HostUsers = new(false)
			s.Spec.Template.Spec.SecurityContext = &v1alpha1.PodSecurityOptions{RunAsUser: new(int64(401)), RunAsGroup: new(int64(401))}
			s.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "home", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "home"}}}}
			s.Spec.RootSSHAuthorizedKeys = "ssh-ed25519 AAAA admin\n"
			s.Spec.AuthorizedKeysRefs = []v1alpha1.ObjectRef{{Name: "keys-a"}, {Name: "keys-b"}}
			s.Spec.UsersRef = &v1alpha1.ObjectRef{Name: "users"}
			s.Spec.SssdConfRef = &v1alpha1.KeyRef{Name: "sssd", Key: "sssd.conf"}
			s.Spec.HostKeysRef = &v1alpha1.ObjectRef{Name: "old-host-keys"}
			s.Spec.ExtraSshdConfig = "Match Group staff\n  PasswordAuthentication yes\n"
			s.Spec.Service = v1alpha1.LoginService{
				Type: corev1.ServiceTypeLoadBalancer, Port: 2200, NodePort: 32200, Annotations: map[string]string{"lb": "internal"}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
				LoadBalancerClass: new("site"), LoadBalancerSourceRanges: []string{"192.0.2.0/24"},
			}
		}), hostKeyFiles("ssh_host_rsa_key")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			objects, err := LoginSetObjects(test.set, controller(nil), test.keys, settings)
			require.NoError(t, err)
			golden.Compare(t, "testdata/login-"+name+".yaml", manifests(t, objects))
			for _, o := range objects {
				assert.NotContains(t, o.GetLabels(), v1alpha1.LabelCluster, "by it the bridge knows the pods that it may delete")
				want, hash, err := stamped(o)
				require.NoError(t, err)
				live := overTheWire(t, o)
				live.SetAnnotations(labels.Merge(o.GetAnnotations(), map[string]string{AnnotationApplied: hash}))
				same, err := has(live, want)
				require.NoError(t, err)
				assert.True(t, same, "%T", o)
			}
		})
	}
}

func TestLoginSetWithoutImage(t *testing.T) {
	_, err := LoginSetObjects(loginSet(nil), controller(func(c *v1alpha1.Controller) {
		c.Spec.Slurmctld, c.Spec.External = nil, &v1alpha1.ExternalController{Host: "head.example.com"}
	}), nil, settings)
	require.EqualError(t, err, "spec.login.image is missing, and Controller tide names no image: name one with sshd, sackd and Slurm's clients")
}

// Pods, and the sessions in them, end when sshd's configuration changes, and not for anything that reaches them alive.
func TestLoginPodsAreReplaced(t *testing.T) {
	template := func(change func(*v1alpha1.LoginSet)) corev1.PodTemplateSpec {
		objects, err := LoginSetObjects(loginSet(func(s *v1alpha1.LoginSet) {
			s.Spec.RootSSHAuthorizedKeys = "ssh-ed25519 AAAA admin"
			change(s)
		}), controller(nil), hostKeyFiles("ssh_host_ed25519_key"), settings)
		require.NoError(t, err)
		d, ok := objects[2].(*appsv1.Deployment)
		require.True(t, ok)
		return d.Spec.Template
	}
	before := template(func(*v1alpha1.LoginSet) {})
	for name, change := range map[string]func(*v1alpha1.LoginSet){
		"root's key": func(s *v1alpha1.LoginSet) { s.Spec.RootSSHAuthorizedKeys = "ssh-ed25519 BBBB admin" },
		"replicas":   func(s *v1alpha1.LoginSet) { s.Spec.Replicas = new(int32(5)) },
		"the service": func(s *v1alpha1.LoginSet) {
			s.Spec.Service = v1alpha1.LoginService{Type: corev1.ServiceTypeNodePort, Port: 2200}
		},
	} {
		assert.Equal(t, before, template(change), name)
	}
	for name, change := range map[string]func(*v1alpha1.LoginSet){
		"extraSshdConfig": func(s *v1alpha1.LoginSet) { s.Spec.ExtraSshdConfig = "X11Forwarding yes" },
		"root kept out":   func(s *v1alpha1.LoginSet) { s.Spec.RootSSHAuthorizedKeys = "" },
	} {
		assert.NotEqual(t, before, template(change), name)
	}
}

func TestLoginSetStatus(t *testing.T) {
	bad := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "tide-login-1"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: ContainerLogin, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull", Message: "no image"}},
	}}}}
	ended := bad.DeepCopy()
	ended.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 255, Message: "hello\nline 1: Bad option\nterminating\n"}
	deployment := func(ready int32) *appsv1.Deployment {
		return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}, Status: appsv1.DeploymentStatus{Replicas: 2, ReadyReplicas: ready}}
	}
	tests := map[string]struct {
		seen                SeenLoginSet
		accepted, available string
	}{
		"new":      {SeenLoginSet{}, "True Valid: the LoginSet can be used", "False NoPods: there are no login pods yet"},
		"starting": {SeenLoginSet{Deployment: deployment(1)}, "True Valid: the LoginSet can be used", "False Starting: 1 of 2 let users in"},
		"well":     {SeenLoginSet{Deployment: deployment(2)}, "True Valid: the LoginSet can be used", "True Answers: 2 of 2 let users in"},
		"no image": {SeenLoginSet{Deployment: deployment(1), Pods: []*corev1.Pod{bad}}, "True Valid: the LoginSet can be used",
			"False ErrImageNeverPull: 1 of 2 let users in; container login of pod tide-login-1: no image"},
		"new pods do not start": {SeenLoginSet{Deployment: deployment(2), Pods: []*corev1.Pod{bad}}, "True Valid: the LoginSet can be used",
			"True Answers: 2 of 2 let users in; container login of pod tide-login-1: no image"},
		"sshd ends": {SeenLoginSet{Deployment: deployment(1), Pods: []*corev1.Pod{ended}}, "True Valid: the LoginSet can be used",
			"False Fails: 1 of 2 let users in; container login of pod tide-login-1 ends again and again (exit code 255): line 1: Bad option; terminating"},
		"bad": {SeenLoginSet{Problem: &Problem{"KeyMissing", "no key"}, Deployment: deployment(2)}, "False KeyMissing: no key", "True Answers: 2 of 2 let users in"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := loginSet(nil)
			l.Status.HostKeys = []string{"before"}
			s := LoginSetStatus(l, test.seen)
			assert.EqualValues(t, 2, s.ObservedGeneration)
			assert.Contains(t, s.Selector, "slurmtide.io/loginset=tide")
			assert.Equal(t, []string{"before"}, s.HostKeys, "they were not looked at")
			for kind, want := range map[string]string{v1alpha1.ConditionAccepted: test.accepted, v1alpha1.ConditionAvailable: test.available} {
				one := meta.FindStatusCondition(s.Conditions, kind)
				require.NotNil(t, one, kind)
				assert.Equal(t, want, string(one.Status)+" "+one.Reason+": "+one.Message)
				assert.EqualValues(t, 2, one.ObservedGeneration)
			}
			l.Status = s
			assert.Equal(t, s, LoginSetStatus(l, test.seen), "nothing to write when nothing has changed")
		})
	}
}

// sshd reads its keys when it starts: without new pods it would show others than the status says. Keys that are made never change.
func TestGivenHostKeysChange(t *testing.T) {
	annotation := func(given bool, private string) string {
		files := hostKeyFiles("ssh_host_rsa_key")
		files["ssh_host_rsa_key"] = []byte(private)
		objects, err := LoginSetObjects(loginSet(func(s *v1alpha1.LoginSet) {
			if given {
				s.Spec.HostKeysRef = &v1alpha1.ObjectRef{Name: "mine"}
			}
		}), controller(nil), files, settings)
		require.NoError(t, err)
		d, ok := objects[2].(*appsv1.Deployment)
		require.True(t, ok)
		return d.Spec.Template.Annotations[AnnotationConfig]
	}
	assert.NotEqual(t, annotation(true, "a"), annotation(true, "b"))
	assert.Equal(t, annotation(false, "a"), annotation(false, "b"), "an update of the daemon alone ends no session")
	// Given keys without public ones: what was shown of others before is wrong.
	s := loginSet(func(s *v1alpha1.LoginSet) { s.Status.HostKeys = []string{"ssh-ed25519 SHA256:x"} })
	assert.Empty(t, LoginSetStatus(s, SeenLoginSet{HostKeys: sshd.Fingerprints(map[string][]byte{"ssh_host_rsa_key": []byte("k")})}).HostKeys)
	assert.Equal(t, s.Status.HostKeys, LoginSetStatus(s, SeenLoginSet{}).HostKeys, "they could not be read")
}
