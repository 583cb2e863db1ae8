package controlplane

import (
	"cmp"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/controlplane/inplace"
	"github.com/slurmtide/slurmtide/kube/sshd"
)

// LabelLoginSet is on all that is made for a LoginSet.
const LabelLoginSet = "slurmtide.io/loginset"

// Containers of a login pod.
const (
	ContainerLogin = "login"
	ContainerSackd = "sackd"
	ContainerSSSD  = sshd.ContainerSSSD
)

// sshPort is sshd's in the pod. Ports below 1024 would take a capability.
const sshPort = 2222

// runSlurmDir has sackd's socket, and the configuration that it has fetched.
const runSlurmDir = "/run/slurm"

func loginName(loginSet string) string { return loginSet + "-login" }

func hostKeysName(s *v1alpha1.LoginSet) string {
	if s.Spec.HostKeysRef != nil {
		return s.Spec.HostKeysRef.Name
	}
	return loginName(s.Name) + "-host-keys"
}

func loginLabels(s *v1alpha1.LoginSet) map[string]string {
	return map[string]string{"app.kubernetes.io/name": "slurm-login", "app.kubernetes.io/instance": s.Name, LabelManagedBy: ManagedBy, LabelLoginSet: s.Name}
}

// LoginSetObjects are all objects of a LoginSet but its host keys, the files of which are in hostKeys. controller is the one that it refers to.
func LoginSetObjects(s *v1alpha1.LoginSet, controller *v1alpha1.Controller, hostKeys map[string][]byte, settings Settings) ([]Object, error) {
	o := cmp.Or(s.Spec.Login, &v1alpha1.DaemonOptions{}).DeepCopy()
	if o.Image == "" && controller.Spec.Slurmctld != nil {
		o.Image = controller.Spec.Slurmctld.Image
		o.ImagePullPolicy = cmp.Or(o.ImagePullPolicy, controller.Spec.Slurmctld.ImagePullPolicy)
	}
	if o.Image == "" {
		return nil, fmt.Errorf("spec.login.image is missing, and Controller %s names no image: name one with sshd, sackd and Slurm's clients", controller.Name)
	}
	ours, owner, name := loginLabels(s), ownerOf(s, "LoginSet"), loginName(s.Name)
	meta := func() metav1.ObjectMeta { return owned(s.Namespace, name, ours, owner) }
	names := sshd.PrivateHostKeys(hostKeys)
	config := sshd.Files("LoginSet", "spec", sshPort, names, &s.Spec.SSHOptions, &s.Spec.UserOptions)
	// Not in the hash: the key changes without a new pod.
	files := labels.Merge(config, map[string]string{sshd.RootKeys: s.Spec.RootSSHAuthorizedKeys})
	object := &corev1.ConfigMap{TypeMeta: typeMeta("v1", "ConfigMap"), ObjectMeta: meta(), Data: files}
	template := podTemplate(&s.Spec.Template, ours, loginPod(s, controller, o, settings))
	read := maps.Clone(config) // by sshd, when it starts
	if s.Spec.HostKeysRef != nil {
		for _, name := range names { // those that are made never change
			read[sshd.HostKeysDir+"/"+name] = string(hostKeys[name])
		}
	}
	template.Annotations = labels.Merge(template.Annotations, map[string]string{AnnotationConfig: inplace.Hash(read)})
	deployment := &appsv1.Deployment{
		TypeMeta: typeMeta("apps/v1", "Deployment"), ObjectMeta: meta(),
		Spec: appsv1.DeploymentSpec{Replicas: s.Spec.Replicas, Selector: &metav1.LabelSelector{MatchLabels: ours}, Template: template},
	}
	return []Object{object, loginService(s, meta()), deployment}, nil
}

func loginService(s *v1alpha1.LoginSet, meta metav1.ObjectMeta) *corev1.Service {
	o := &s.Spec.Service
	meta.Annotations = o.Annotations
	return &corev1.Service{TypeMeta: typeMeta("v1", "Service"), ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Type: cmp.Or(o.Type, corev1.ServiceTypeClusterIP), Selector: loginLabels(s), ExternalTrafficPolicy: o.ExternalTrafficPolicy,
		LoadBalancerClass: o.LoadBalancerClass, LoadBalancerSourceRanges: o.LoadBalancerSourceRanges,
		Ports: []corev1.ServicePort{{Name: "ssh", Port: cmp.Or(o.Port, 22), NodePort: o.NodePort, TargetPort: intstr.FromString("ssh"), Protocol: corev1.ProtocolTCP}},
	}}
}

func loginPod(s *v1alpha1.LoginSet, controller *v1alpha1.Controller, o *v1alpha1.DaemonOptions, settings Settings) corev1.PodSpec {
	spec := corev1.PodSpec{
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		SecurityContext: podSecurity(&s.Spec.Template, uidSlurm, uidSlurm),
		Containers:      []corev1.Container{loginSshd(s, o), sackd(s, controller, o, settings)},
		Volumes: []corev1.Volume{
			{Name: "slurmtide-run", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "slurmtide-key", VolumeSource: projected(secretKey(slurmKeyRef(controller), SlurmKey))},
			{Name: "slurmtide-sshd", VolumeSource: projected(items(configMap(loginName(s.Name)), sshd.ConfigFile, sshd.ExtraFile))},
		},
	}
	spec.Volumes = append(spec.Volumes, sshd.KeyVolumes(hostKeysName(s), &s.Spec.SSHOptions, items(configMap(loginName(s.Name)), sshd.RootKeys))...)
	spec.Volumes = append(spec.Volumes, sshd.UserVolumes(&s.Spec.UserOptions)...)
	if s.Spec.SssdConfRef != nil {
		sssd := container(ContainerSSSD, sidecar(&o.ContainerOptions, s.Spec.Sssd))
		spec.Containers = append(spec.Containers, sshd.SSSD(sssd, &s.Spec.UserOptions))
	}
	options(&spec, &s.Spec.Template)
	return spec
}

// loginSshd is root: it becomes the user who logs in. No program in the container can get more rights than its user has, sudo included. Its root file system can be
// written to: users work in it, and sites bring images of their own.
func loginSshd(s *v1alpha1.LoginSet, o *v1alpha1.DaemonOptions) corev1.Container {
	c := container(ContainerLogin, &o.ContainerOptions, "/usr/sbin/sshd", "-D", "-e", "-f", sshd.ConfigDir+"/"+sshd.ConfigFile)
	sshd.AsRoot(&c,
		"SETUID", "SETGID", // becoming the user
		"SYS_CHROOT",      // where it speaks to whom it does not know yet
		"CHOWN", "FOWNER", // terminals, new home directories
		"KILL",        // processes of users
		"AUDIT_WRITE", // it lets nobody in when it cannot write to the kernel's audit log
	)
	c.Ports = []corev1.ContainerPort{{Name: "ssh", ContainerPort: sshPort, Protocol: corev1.ProtocolTCP}}
	// The kernel's table of listening sockets. Connections would be lines in sshd's log, and count against the host for its penalties.
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{
			"grep", "-qs", fmt.Sprintf(":%04X 0*:0000 0A", sshPort), "/proc/net/tcp", "/proc/net/tcp6"}}},
		PeriodSeconds: 5, TimeoutSeconds: 5,
	}
	withProbes(&c, o)
	c.VolumeMounts = append([]corev1.VolumeMount{
		{Name: "slurmtide-run", MountPath: runSlurmDir, ReadOnly: true},
		{Name: "slurmtide-sshd", MountPath: sshd.ConfigDir, ReadOnly: true},
	}, append(sshd.KeyMounts(), sshd.UserMounts(&s.Spec.UserOptions)...)...)
	withMounts(&c, nil, o)
	return c
}

// sackd is the only one with the key of auth/slurm: it vouches for who asks on its socket, by the kernel's word. It fetches slurm.conf from slurmctld,
// which tells it of changes.
func sackd(s *v1alpha1.LoginSet, controller *v1alpha1.Controller, o *v1alpha1.DaemonOptions, settings Settings) corev1.Container {
	c := container(ContainerSackd, sidecar(&o.ContainerOptions, s.Spec.Sackd),
		"/usr/sbin/sackd", "-D", // the whole path: with a new configuration it calls itself again by this name (sackd.c, _try_to_reconfig)
		"--conf-server", confServer(controller, settings))
	// The key is root's, mode 0440: sackd wants one that others cannot read, and there is no fsGroup.
	c.SecurityContext.RunAsGroup = new(int64(0))
	c.Env = []corev1.EnvVar{{Name: "SLURM_SACK_KEY", Value: keysDir + "/" + SlurmKey}}
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-S", runSlurmDir + "/sack.socket"}}},
		PeriodSeconds: 5, TimeoutSeconds: 5,
	}
	// slurmctld forgets a sackd that it cannot reach (sackd_mgr.c), and tells nobody when it starts with another configuration. A
	// sackd with an old one is started again: it fetches the new one first. When slurmctld does not answer, nothing is wrong here.
	c.LivenessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{
			"/bin/sh", "-c", "! timeout 10 scontrol show config 2>/dev/null | grep -q '^HASH_VAL .*Different'"}}},
		PeriodSeconds: 20, TimeoutSeconds: 15, FailureThreshold: 3,
	}
	c.VolumeMounts = append([]corev1.VolumeMount{
		{Name: "slurmtide-run", MountPath: runSlurmDir},
		{Name: "slurmtide-key", MountPath: keysDir, ReadOnly: true},
	}, sshd.UserMounts(&s.Spec.UserOptions)...) // it looks up users' names and groups
	// It ends on SIGINT alone; SIGTERM it does not handle.
	c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "kill -INT 1"}}}}
	return c
}

// items are some keys of a ConfigMap, under their own names.
func items(of corev1.VolumeProjection, keys ...string) corev1.VolumeProjection {
	for _, key := range keys {
		of.ConfigMap.Items = append(of.ConfigMap.Items, corev1.KeyToPath{Key: key, Path: key})
	}
	return of
}

// SeenLoginSet is what became of a LoginSet so far.
type SeenLoginSet struct {
	Problem    *Problem // nil: it can be carried out
	HostKeys   []string // fingerprints; nil: not known this time
	Deployment *appsv1.Deployment
	Pods       []*corev1.Pod
}

// LoginSetStatus is the status that follows.
func LoginSetStatus(l *v1alpha1.LoginSet, seen SeenLoginSet) v1alpha1.LoginSetStatus {
	s := *l.Status.DeepCopy()
	s.ObservedGeneration = l.Generation
	s.Selector = labels.Set(loginLabels(l)).String()
	if seen.HostKeys != nil {
		s.HostKeys = seen.HostKeys
	}
	set := func(one metav1.Condition) { setCondition(&s.Conditions, one, l.Generation) }
	set(accepted(seen.Problem, "the LoginSet can be used"))
	one := metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: "NoPods", Message: "there are no login pods yet"}
	if d := seen.Deployment; d != nil {
		s.Replicas = d.Status.Replicas
		one = replicasAnswer(d, seen.Pods, "let users in")
	}
	set(one)
	return s
}
