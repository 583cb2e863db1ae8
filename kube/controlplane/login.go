package controlplane

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/controlplane/inplace"
)

// LabelLoginSet is on all that is made for a LoginSet.
const LabelLoginSet = "slurmtide.io/loginset"

// Containers of a login pod.
const (
	ContainerLogin = "login"
	ContainerSackd = "sackd"
	ContainerSSSD  = "sssd"
)

// sshPort is sshd's in the pod. Ports below 1024 would take a capability.
const sshPort = 2222

// Directories in login pods.
const (
	runSlurmDir  = "/run/slurm" // sackd's socket, and the configuration that it has fetched
	sshdDir      = "/etc/slurmtide/sshd"
	hostKeysDir  = "/etc/slurmtide/host-keys"
	loginKeysDir = "/etc/slurmtide/authorized-keys"
	sssdDir      = "/etc/slurmtide/sssd"
	usersDir     = "/var/lib/extrausers"
	sssPipesDir  = "/var/lib/sss/pipes"
)

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
	o := cmp.Or(s.Spec.Login, &v1alpha1.LoginOptions{}).DeepCopy()
	if o.Image == "" && controller.Spec.Slurmctld != nil {
		o.Image = controller.Spec.Slurmctld.Image
		o.ImagePullPolicy = cmp.Or(o.ImagePullPolicy, controller.Spec.Slurmctld.ImagePullPolicy)
	}
	if o.Image == "" {
		return nil, fmt.Errorf("spec.login.image is missing, and Controller %s names no image: name one with sshd, sackd and Slurm's clients", controller.Name)
	}
	ours, owner, name := loginLabels(s), ownerOf(s, "LoginSet"), loginName(s.Name)
	meta := func() metav1.ObjectMeta { return owned(s.Namespace, name, ours, owner) }
	names := privateHostKeys(hostKeys)
	sshd := sshdFiles(s, names)
	// Not in the hash: the key changes without a new pod.
	files := labels.Merge(sshd, map[string]string{"root": s.Spec.RootSSHAuthorizedKeys})
	config := &corev1.ConfigMap{TypeMeta: typeMeta("v1", "ConfigMap"), ObjectMeta: meta(), Data: files}
	template := podTemplate(&v1alpha1.PodOptions{Metadata: s.Spec.Template.Metadata}, ours, loginPod(s, controller, o, settings))
	read := maps.Clone(sshd) // by sshd, when it starts
	if s.Spec.HostKeysRef != nil {
		for _, name := range names { // those that are made never change
			read[hostKeysDir+"/"+name] = string(hostKeys[name])
		}
	}
	template.Annotations = labels.Merge(template.Annotations, map[string]string{AnnotationConfig: inplace.Hash(read)})
	deployment := &appsv1.Deployment{
		TypeMeta: typeMeta("apps/v1", "Deployment"), ObjectMeta: meta(),
		Spec: appsv1.DeploymentSpec{Replicas: s.Spec.Replicas, Selector: &metav1.LabelSelector{MatchLabels: ours}, Template: template},
	}
	return []Object{config, loginService(s, meta()), deployment}, nil
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

// sshdFiles are sshd_config and what it includes. sshd takes the first value that it meets of a keyword, so the user's come before ours, but for those
// that the rest relies on. In a file of their own their Match blocks end with it.
func sshdFiles(s *v1alpha1.LoginSet, hostKeys []string) map[string]string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Made by Slurmtide. What stands in spec.extraSshdConfig of the LoginSet takes the place of what follows the Include.")
	line("Port %d", sshPort)
	line("PidFile none")
	for _, name := range hostKeys {
		line("HostKey %s/%s", hostKeysDir, name)
	}
	line("Include %s/extra.conf", sshdDir)
	line("UsePAM yes")
	root := "no"
	if strings.TrimSpace(s.Spec.RootSSHAuthorizedKeys) != "" {
		root = "prohibit-password"
	}
	line("PermitRootLogin %s", root)
	line("PasswordAuthentication no")
	line("KbdInteractiveAuthentication no")
	line("AuthorizedKeysFile .ssh/authorized_keys")
	// A command, since sshd wants the directories of such files to be writable for root alone, and those of ConfigMaps look writable for all.
	sss := ""
	if s.Spec.SssdConfRef != nil {
		sss = `sss_ssh_authorizedkeys -- "$1" 2>/dev/null; `
	}
	line(`AuthorizedKeysCommand /bin/sh -c 'cat -- "%s/$1" 2>/dev/null; %sexit 0' sh %%u`, loginKeysDir, sss)
	line("AuthorizedKeysCommandUser nobody")
	line("AcceptEnv LANG LC_*")
	line("PrintMotd no")
	line("X11Forwarding no")
	line("Subsystem sftp internal-sftp")
	// Load balancers forget connections that are silent for minutes.
	line("ClientAliveInterval 60")
	line("ClientAliveCountMax 10")
	return map[string]string{"sshd_config": b.String(), "extra.conf": s.Spec.ExtraSshdConfig}
}

func loginPod(s *v1alpha1.LoginSet, controller *v1alpha1.Controller, o *v1alpha1.LoginOptions, settings Settings) corev1.PodSpec {
	pod := &s.Spec.Template.Spec
	spec := corev1.PodSpec{
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		SecurityContext: podSecurity(&v1alpha1.PodOptions{Spec: pod.PodSpecOptions}, uidSlurm, uidSlurm),
		Containers:      []corev1.Container{sshd(s, o), sackd(s, controller, o, settings)},
		Volumes: append(append([]corev1.Volume{}, pod.Volumes...),
			corev1.Volume{Name: "slurmtide-run", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			corev1.Volume{Name: "slurmtide-key", VolumeSource: projected(secretKey(slurmKeyRef(controller), SlurmKey))},
			corev1.Volume{Name: "slurmtide-sshd", VolumeSource: projected(items(configMap(loginName(s.Name)), "sshd_config", "extra.conf"))},
			corev1.Volume{Name: "slurmtide-host-keys", VolumeSource: privately(hostKeysName(s))},
			corev1.Volume{Name: "slurmtide-authorized-keys", VolumeSource: projected(authorizedKeys(s)...)},
		),
	}
	if s.Spec.UsersRef != nil {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "slurmtide-users", VolumeSource: projected(configMap(s.Spec.UsersRef.Name))})
	}
	if s.Spec.SssdConfRef != nil {
		spec.Containers = append(spec.Containers, sssd(s, o))
		spec.Volumes = append(spec.Volumes,
			corev1.Volume{Name: "slurmtide-sssd", VolumeSource: privately(s.Spec.SssdConfRef.Name)},
			corev1.Volume{Name: "slurmtide-sss-pipes", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	options(&spec, &v1alpha1.PodOptions{Spec: pod.PodSpecOptions})
	return spec
}

// authorizedKeys are the users' keys, and root's own in place of what ConfigMaps may have for it.
func authorizedKeys(s *v1alpha1.LoginSet) (sources []corev1.VolumeProjection) {
	for _, ref := range s.Spec.AuthorizedKeysRefs {
		sources = append(sources, configMap(ref.Name))
	}
	return append(sources, items(configMap(loginName(s.Name)), "root"))
}

// sshd is root: it becomes the user who logs in. No program in the container can get more rights than its user has, sudo included.
func sshd(s *v1alpha1.LoginSet, o *v1alpha1.LoginOptions) corev1.Container {
	c := container(ContainerLogin, &o.ContainerOptions, "/usr/sbin/sshd", "-D", "-e", "-f", sshdDir+"/sshd_config")
	asRoot(&c,
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
	withProbes(&c, &o.DaemonOptions)
	c.VolumeMounts = append([]corev1.VolumeMount{
		{Name: "slurmtide-run", MountPath: runSlurmDir, ReadOnly: true},
		{Name: "slurmtide-sshd", MountPath: sshdDir, ReadOnly: true},
		{Name: "slurmtide-host-keys", MountPath: hostKeysDir, ReadOnly: true},
		{Name: "slurmtide-authorized-keys", MountPath: loginKeysDir, ReadOnly: true},
	}, userMounts(s, true)...)
	c.VolumeMounts = append(c.VolumeMounts, o.VolumeMounts...)
	return c
}

// sackd is the only one with the key of auth/slurm: it vouches for who asks on its socket, by the kernel's word. It fetches slurm.conf from slurmctld,
// which tells it of changes.
func sackd(s *v1alpha1.LoginSet, controller *v1alpha1.Controller, o *v1alpha1.LoginOptions, settings Settings) corev1.Container {
	c := container(ContainerSackd, &v1alpha1.ContainerOptions{Image: o.Image, ImagePullPolicy: o.ImagePullPolicy},
		"/usr/sbin/sackd", "-D", // the whole path: with a new configuration it calls itself again by this name (sackd.c, _try_to_reconfig)
		"--conf-server", confServer(controller, settings))
	// The key is root's, mode 0440: sackd wants one that others cannot read, and there is no fsGroup.
	c.SecurityContext.RunAsGroup = new(int64(0))
	c.SecurityContext.ReadOnlyRootFilesystem = new(true)
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
	}, userMounts(s, true)...) // it looks up users' names and groups
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	// It ends on SIGINT alone; SIGTERM it does not handle.
	c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "kill -INT 1"}}}}
	return c
}

// sssd runs with a copy of its file, of which it wants to be the owner. When the file changes, it is started again.
func sssd(s *v1alpha1.LoginSet, o *v1alpha1.LoginOptions) corev1.Container {
	const ours = "/etc/sssd/sssd.conf"
	theirs := sssdDir + "/" + s.Spec.SssdConfRef.Key
	c := container(ContainerSSSD, &v1alpha1.ContainerOptions{Image: o.Image, ImagePullPolicy: o.ImagePullPolicy},
		"/bin/sh", "-euc", `(umask 077; cat "$1" >"$2"; mkdir -p "$3/private"); chmod 0755 "$3"; exec sssd -i --logger=stderr`, "sh", theirs, ours, sssPipesDir)
	asRoot(&c, "SETUID", "SETGID", "CHOWN", "FOWNER", "DAC_OVERRIDE", "KILL") // its helpers become users, and write files for them
	c.LivenessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", `[ "$(cat "$1")" = "$(cat "$2")" ]`, "sh", theirs, ours}}},
		PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 2,
	}
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-S", sssPipesDir + "/nss"}}},
		PeriodSeconds: 5, TimeoutSeconds: 5,
	}
	c.VolumeMounts = append([]corev1.VolumeMount{{Name: "slurmtide-sssd", MountPath: sssdDir, ReadOnly: true}}, userMounts(s, false)...)
	return c
}

// userMounts are what the C library asks for users; sssd makes its part.
func userMounts(s *v1alpha1.LoginSet, ask bool) (mounts []corev1.VolumeMount) {
	if s.Spec.UsersRef != nil {
		mounts = append(mounts, corev1.VolumeMount{Name: "slurmtide-users", MountPath: usersDir, ReadOnly: true})
	}
	if s.Spec.SssdConfRef != nil {
		mounts = append(mounts, corev1.VolumeMount{Name: "slurmtide-sss-pipes", MountPath: sssPipesDir, ReadOnly: ask})
	}
	return mounts
}

func asRoot(c *corev1.Container, capabilities ...corev1.Capability) {
	c.SecurityContext.RunAsUser, c.SecurityContext.RunAsGroup, c.SecurityContext.RunAsNonRoot = new(int64(0)), new(int64(0)), new(false)
	c.SecurityContext.Capabilities.Add = capabilities
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
}

// items are some keys of a ConfigMap, under their own names.
func items(of corev1.VolumeProjection, keys ...string) corev1.VolumeProjection {
	for _, key := range keys {
		of.ConfigMap.Items = append(of.ConfigMap.Items, corev1.KeyToPath{Key: key, Path: key})
	}
	return of
}

// privately is a Secret whose files only root may read.
func privately(name string) corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, DefaultMode: new(int32(0o400))}}
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
		want := int32(1)
		if d.Spec.Replicas != nil {
			want = *d.Spec.Replicas
		}
		one.Reason, one.Message = "Starting", fmt.Sprintf("%d of %d let users in", d.Status.ReadyReplicas, want)
		if d.Status.ReadyReplicas >= want {
			one.Status, one.Reason = metav1.ConditionTrue, "Answers"
		}
		for _, pod := range seen.Pods {
			if reason, message := loginTrouble(pod); reason != "" && pod.DeletionTimestamp == nil {
				if one.Status != metav1.ConditionTrue {
					one.Reason = reason
				}
				one.Message += "; " + message
				break
			}
		}
	}
	set(one)
	return s
}

// loginTrouble is what keeps a login pod from running, "" if nothing does that Kubernetes knows of. None of its containers ends by itself.
func loginTrouble(pod *corev1.Pod) (reason, message string) {
	if reason, message = trouble(pod, ""); reason != "" {
		return reason, message
	}
	for _, s := range pod.Status.ContainerStatuses {
		ended := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
		if !s.Ready && ended != nil && ended.ExitCode != 0 {
			return "Fails", fmt.Sprintf("container %s of pod %s ends again and again (exit code %d): %s", s.Name, pod.Name, ended.ExitCode, lastWords(ended.Message))
		}
	}
	return "", ""
}
