package stack

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/pods"
)

// Containers of the control plane's pod.
const (
	ContainerSlurmctld  = "slurmctld"
	ContainerSlurmrestd = "slurmrestd"
	ContainerBridge     = "bridge"
	ContainerBridge2    = "bridge2" // with TwoBridges
)

// Slurmrestd is where slurmrestd answers inside the pod; SlurmrestdSocket is the same server on a unix socket, which the bridge's
// and slurmctld's containers see.
const (
	Slurmrestd       = "http://127.0.0.1:6820"
	SlurmrestdSocket = "/run/slurmrestd/slurmrestd.sock"
)

// Names of objects in the stack's namespace.
const (
	serviceSlurmctld = "slurmctld"
	// ServiceNodes is the headless service for slurmd pods: with it as subdomain a pod has a DNS name.
	ServiceNodes    = "slurmd"
	configMapConf   = "slurm-conf"
	configMapScript = "programs"
	// SecretSlurmKey holds slurm.key, which slurmd pods get; the token key is apart, since no slurmd needs it.
	SecretSlurmKey = "slurm-key"
	secretJWTKey   = "jwt-key"
	bridgeAccount  = "bridge"
)

// Users in the images (hack/images/finish.sh).
const (
	uidSlurm     = int64(64030) // SlurmUser: slurmctld, the programs it starts, the bridge, the spool
	uidSlurmrest = int64(64031) // slurmrestd refuses root, SlurmUser and SlurmUser's group
	// gidKeys is the pod's fsGroup. The key files are root's with this group and mode 0440: Slurm demands only that others cannot read
	// them, and slurmrestd may be in this group, but not in SlurmUser's.
	gidKeys = int64(64040)
)

const (
	keysDir  = "/etc/slurmtide"
	jwtKey   = "jwt_hs256.key"
	slurmKey = "slurm.key"
	spoolDir = "/var/spool/slurmtide"
	// SecondSpool is the second bridge's.
	SecondSpool = "/var/spool/slurmtide-2"
	// ActiveSpool is a link to one of the two, beside slurmctld's state.
	ActiveSpool = "/var/spool/slurmctld/active-spool"
	// metricsPort is the bridge's default.
	metricsPort = 9441
)

var componentLabels = map[string]string{"app.kubernetes.io/name": "slurmctld", "app.kubernetes.io/part-of": "slurmtide"}

// keys are the secrets of one stack, random bytes.
type keys struct{ slurm, jwt []byte }

// objects gives everything of the stack but its namespace, in an order in which it can be created.
func objects(o Options, conf map[string]string, k keys) []runtime.Object {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: o.Namespace, Labels: componentLabels}
	}
	list := []runtime.Object{
		&corev1.Secret{ObjectMeta: meta(SecretSlurmKey), Data: map[string][]byte{slurmKey: k.slurm}},
		&corev1.Secret{ObjectMeta: meta(secretJWTKey), Data: map[string][]byte{jwtKey: k.jwt}},
		&corev1.ConfigMap{ObjectMeta: meta(configMapConf), Data: conf},
	}
	if o.Scripts != nil {
		list = append(list, &corev1.ConfigMap{ObjectMeta: meta(configMapScript), Data: scripts(o)})
	}
	list = append(list,
		headless(meta(serviceSlurmctld), componentLabels,
			corev1.ServicePort{Name: "slurmctld", Port: slurmctldPort}, corev1.ServicePort{Name: "metrics", Port: metricsPort}),
		headless(meta(ServiceNodes), map[string]string{v1alpha1.LabelCluster: o.ClusterName}, corev1.ServicePort{Name: "slurmd", Port: 6818}),
	)
	if o.OpenSlurmrestd {
		list = append(list, headless(meta("slurmrestd"), componentLabels, corev1.ServicePort{Name: "slurmrestd", Port: 6820}))
	}
	if !o.NoBridge {
		list = append(list,
			&corev1.ServiceAccount{ObjectMeta: meta(bridgeAccount)},
			&rbacv1.Role{ObjectMeta: meta(bridgeAccount), Rules: pods.Rules(slices.Concat(pods.Rights(), pods.RoomRights()))},
			&rbacv1.RoleBinding{
				ObjectMeta: meta(bridgeAccount),
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: bridgeAccount},
				Subjects:   bridgeSubject(o),
			},
			&rbacv1.ClusterRole{ObjectMeta: clusterMeta(o), Rules: pods.Rules(pods.ClusterRights())},
			&rbacv1.ClusterRoleBinding{
				ObjectMeta: clusterMeta(o),
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterMeta(o).Name},
				Subjects:   bridgeSubject(o),
			})
	}
	return append(list, statefulSet(o, meta(serviceSlurmctld)))
}

func bridgeSubject(o Options) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: bridgeAccount, Namespace: o.Namespace}}
}

// clusterMeta is of what belongs to the stack and to no namespace.
func clusterMeta(o Options) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "slurmtide-" + bridgeAccount + "-" + o.Namespace, Labels: componentLabels}
}

// headless services let clients see the pod's own address: slurmctld takes a node's address from the connection, and no
// translation may stand between. Not ready pods are published, since slurmd and slurmctld meet before anything is ready.
func headless(meta metav1.ObjectMeta, selector map[string]string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: selector, Ports: ports, PublishNotReadyAddresses: true,
	}}
}

// scripts gives every program a script, so that slurm.conf never names a missing file.
func scripts(o Options) map[string]string {
	all := map[string]string{}
	for _, p := range programs {
		all[p] = "#!/bin/sh\nexit 0\n"
	}
	maps.Copy(all, o.Scripts)
	return all
}

// The StatefulSet gives the pod the fixed name that SlurmctldHost wants. Its state is on an emptyDir: it survives restarts of
// containers, not of the pod. A real cluster puts StateSaveLocation and the spool on a volume claim.
func statefulSet(o Options, meta metav1.ObjectMeta) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
		Replicas:    new(int32(1)),
		ServiceName: serviceSlurmctld,
		Selector:    &metav1.LabelSelector{MatchLabels: componentLabels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: componentLabels, Annotations: map[string]string{"kubectl.kubernetes.io/default-container": ContainerSlurmctld}},
			Spec:       podSpec(o),
		},
	}}
}

func podSpec(o Options) corev1.PodSpec {
	spec := corev1.PodSpec{
		// Only the bridge speaks to Kubernetes; its token is a volume of its own.
		AutomountServiceAccountToken: new(false),
		EnableServiceLinks:           new(false),
		// Lets tests signal one process from another container (Stack.Signal), which images without a shell need.
		ShareProcessNamespace: new(true),
		// slurmctld saves its state within a second of SIGTERM.
		TerminationGracePeriodSeconds: new(int64(15)),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   new(true),
			RunAsUser:      new(uidSlurm),
			RunAsGroup:     new(uidSlurm),
			FSGroup:        new(gidKeys),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		InitContainers: []corev1.Container{directories(o)},
		Containers:     []corev1.Container{slurmctld(o), slurmrestd(o)},
		Volumes: []corev1.Volume{
			{Name: "state", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "etc-slurm", VolumeSource: projected(
				configMap(configMapConf, nil), secret(SecretSlurmKey, slurmKey), secret(secretJWTKey, jwtKey))},
			{Name: "slurm-conf", VolumeSource: projected(configMap(configMapConf, nil))},
		},
	}
	if o.StateInMemory {
		spec.Volumes[0].EmptyDir.Medium = corev1.StorageMediumMemory
	}
	if o.SpoolSize != "" {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "spool", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: corev1.StorageMediumMemory, SizeLimit: new(resource.MustParse(o.SpoolSize)),
		}}})
	}
	if o.Scripts != nil {
		// 0555: whatever group or others may write to makes Slurm turn power saving off.
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "programs", VolumeSource: projected(configMap(configMapScript, new(int32(0o555))))})
	} else {
		spec.InitContainers = append(spec.InitContainers, installPrograms(o))
	}
	if o.Accounting {
		spec.InitContainers = append(spec.InitContainers, accounting(o)...)
	}
	if !o.NoBridge {
		spec.ServiceAccountName = bridgeAccount
		spec.Containers = append(spec.Containers, bridge(o))
		if o.TwoBridges {
			spec.Containers = append(spec.Containers, secondBridge(o))
		}
		spec.Volumes = append(spec.Volumes,
			corev1.Volume{Name: "bridge-keys", VolumeSource: projected(secret(secretJWTKey, jwtKey))},
			corev1.Volume{Name: "bridge-token", VolumeSource: serviceAccountToken()})
	}
	return spec
}

// directories makes the parts of the state volume, so that they belong to SlurmUser without anything running as root. The volume's
// root is group-writable and set-group-ID because of fsGroup; the spool wants neither.
func directories(o Options) corev1.Container {
	c := container("directories", o.SlurmImage, "/bin/sh", "-euc",
		"mkdir -p slurmctld spool programs slurmrestd; chmod g-s *; chmod 0755 slurmctld programs; chmod 0700 spool; chmod 0777 slurmrestd")
	if o.TwoBridges {
		c.Command[2] += "; mkdir -p spool2; chmod g-s spool2; chmod 0700 spool2; ln -sfn " + spoolDir + " slurmctld/active-spool"
	}
	if o.Accounting {
		c.Command[2] += "; mkdir -p mariadb slurmdbd; chmod g-s mariadb slurmdbd; chmod 0755 slurmdbd"
	}
	if o.Prolog != "" {
		c.Command[2] += `; printf %s "$PROLOG" >programs/prolog; chmod 0755 programs/prolog`
		c.Env = []corev1.EnvVar{{Name: "PROLOG", Value: o.Prolog}}
	}
	c.WorkingDir = "/state"
	c.VolumeMounts = []corev1.VolumeMount{{Name: "state", MountPath: "/state"}}
	if o.SpoolSize != "" {
		c.Command[2] += "; mkdir /spool/spool; chmod g-s /spool/spool; chmod 0700 /spool/spool"
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "spool", MountPath: "/spool"})
	}
	return c
}

// spoolMount is a directory of a volume, since the spool may not be group-writable as a volume's root is.
func spoolMount(o Options) corev1.VolumeMount {
	m := corev1.VolumeMount{Name: "state", SubPath: "spool", MountPath: spoolDir}
	if o.SpoolSize != "" {
		m.Name = "spool"
	}
	return m
}

// installPrograms copies the four programs out of an image that has no shell.
func installPrograms(o Options) corev1.Container {
	c := container("programs", o.BridgeImage)
	c.Args = []string{"install-programs", programDir}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "state", SubPath: "programs", MountPath: programDir}}
	return c
}

func slurmctld(o Options) corev1.Container {
	c := container(ContainerSlurmctld, o.SlurmImage, "slurmctld", "-D")
	c.Ports = []corev1.ContainerPort{{Name: "slurmctld", ContainerPort: slurmctldPort}}
	c.Env = []corev1.EnvVar{{Name: "HOSTALIASES", Value: "/etc/slurm/" + hostAliases}}
	programs := corev1.VolumeMount{Name: "state", SubPath: "programs", MountPath: programDir, ReadOnly: true}
	if o.Scripts != nil {
		programs = corev1.VolumeMount{Name: "programs", MountPath: programDir, ReadOnly: true}
	}
	c.VolumeMounts = []corev1.VolumeMount{
		{Name: "etc-slurm", MountPath: "/etc/slurm", ReadOnly: true},
		{Name: "state", SubPath: "slurmctld", MountPath: "/var/spool/slurmctld"},
		spoolMount(o),
		{Name: "state", SubPath: "slurmrestd", MountPath: "/run/slurmrestd"},
		programs,
	}
	if o.TwoBridges {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "state", SubPath: "spool2", MountPath: SecondSpool})
	}
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(slurmctldPort)}},
		PeriodSeconds: 5,
	}
	return c
}

// slurmrestd listens inside the pod only, unless OpenSlurmrestd. It holds no key: SLURM_JWT=daemon makes it pass on the callers' tokens.
func slurmrestd(o Options) corev1.Container {
	address := "127.0.0.1:6820"
	if o.OpenSlurmrestd {
		address = "0.0.0.0:6820"
	}
	c := container(ContainerSlurmrestd, o.SlurmImage,
		"slurmrestd", "-a", "rest_auth/jwt", "-s", "openapi/slurmctld", address, "unix:"+SlurmrestdSocket)
	c.Env = []corev1.EnvVar{
		{Name: "SLURM_JWT", Value: "daemon"},
		// It would put itself into namespaces of its own, needs CAP_SYS_ADMIN for that, and ends without. The container is that already.
		{Name: "SLURMRESTD_SECURITY", Value: "disable_unshare_sysv,disable_unshare_files"},
		// Lists of arrays' tasks in full, not their first 64 characters.
		{Name: "SLURM_BITSTR_LEN", Value: "0"},
	}
	c.SecurityContext.RunAsUser = new(uidSlurmrest)
	c.SecurityContext.RunAsGroup = new(uidSlurmrest)
	c.VolumeMounts = []corev1.VolumeMount{
		{Name: "slurm-conf", MountPath: "/etc/slurm", ReadOnly: true},
		{Name: "state", SubPath: "slurmrestd", MountPath: "/run/slurmrestd"},
	}
	return c
}

// bridge runs as SlurmUser, who owns the spool.
func bridge(o Options) corev1.Container {
	c := container(ContainerBridge, o.BridgeImage)
	c.Args = append([]string{
		"bridge",
		"--namespace=" + o.Namespace,
		"--cluster=" + o.ClusterName,
		"--spool=" + spoolDir,
		"--slurmrestd=" + Slurmrestd,
		"--jwt-key=" + keysDir + "/" + jwtKey,
		"--conf-server=" + confServer(o),
		"--pod-service=" + ServiceNodes,
	}, o.BridgeArgs...)
	c.Ports = []corev1.ContainerPort{{Name: "metrics", ContainerPort: metricsPort}}
	c.VolumeMounts = []corev1.VolumeMount{
		{Name: "bridge-keys", MountPath: keysDir, ReadOnly: true},
		{Name: "bridge-token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
		spoolMount(o),
		{Name: "state", SubPath: "slurmrestd", MountPath: "/run/slurmrestd"},
	}
	return c
}

// secondBridge is like the first but for its spool and its port.
func secondBridge(o Options) corev1.Container {
	c := bridge(o)
	c.Name, c.Ports = ContainerBridge2, nil
	c.Args[slices.Index(c.Args, "--spool="+spoolDir)] = "--spool=" + SecondSpool
	c.Args = append(c.Args, "--metrics-address=") // the pod has one network
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].MountPath == spoolDir {
			c.VolumeMounts[i].SubPath, c.VolumeMounts[i].MountPath = "spool2", SecondSpool
		}
	}
	return c
}

func container(name, image string, command ...string) corev1.Container {
	return corev1.Container{
		Name:            name,
		Image:           image,
		Command:         command,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
		}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

func projected(sources ...corev1.VolumeProjection) corev1.VolumeSource {
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources, DefaultMode: new(int32(0o444))}}
}

// configMap projects all files of a ConfigMap; a nil mode is the volume's. (Sources have modes per file only; here all are alike.)
func configMap(name string, mode *int32) corev1.VolumeProjection {
	p := &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
	if mode != nil {
		for _, f := range programs {
			p.Items = append(p.Items, corev1.KeyToPath{Key: f, Path: f, Mode: mode})
		}
	}
	return corev1.VolumeProjection{ConfigMap: p}
}

// secret projects one key file, mode 0440.
func secret(name, key string) corev1.VolumeProjection {
	return corev1.VolumeProjection{Secret: &corev1.SecretProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: name},
		Items:                []corev1.KeyToPath{{Key: key, Path: key, Mode: new(int32(0o440))}},
	}}
}

// serviceAccountToken is what Kubernetes mounts by itself into every container when asked to.
func serviceAccountToken() corev1.VolumeSource {
	return projected(
		corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
		corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
			Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
		}},
	)
}

// writeKey puts slurm.key where slurmd looks for it, takes it out of the environment and starts slurmd, which must not inherit the
// umask: jobs read what it writes. tini collects the processes that are left to a container's first one, which slurmd does not.
const writeKey = `(umask 077; printf %s "$SLURM_KEY" >/etc/slurm/slurm.key); unset SLURM_KEY; exec tini -s -- "$@"`

// PodTemplate is a template for slurmd pods of this stack, for NodeSets: the image, slurm.key, and what slurmd needs to run jobs.
//
// The key comes in a variable and not in a volume: the kubelet looks for mounted volumes only every 300 ms, and a boot takes
// little more than a second.
func PodTemplate(o Options) corev1.PodTemplateSpec {
	o = o.withDefaults()
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		// How long jobs of a pod that a test deletes run on.
		TerminationGracePeriodSeconds: new(int64(5)),
		Containers: []corev1.Container{{
			Name:            v1alpha1.ContainerSlurmd,
			Image:           o.SlurmImage,
			ImagePullPolicy: corev1.PullIfNotPresent,
			// slurmd runs as root: it becomes the job's user. The runtime's default capabilities are enough.
			Command: []string{"/bin/sh", "-c", writeKey, "sh"}, // slurmd and its arguments follow
			Env: []corev1.EnvVar{{Name: "SLURM_KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: SecretSlurmKey}, Key: slurmKey,
			}}}},
		}},
	}}
}

func confServer(o Options) string { return fmt.Sprintf("%s:%d", controllerAddress(o), slurmctldPort) }

// containerNames are those of a running stack.
func containerNames(o Options) []string {
	names := []string{ContainerSlurmctld, ContainerSlurmrestd}
	if !o.NoBridge {
		names = append(names, ContainerBridge)
	}
	if o.TwoBridges {
		names = append(names, ContainerBridge2)
	}
	return names
}
