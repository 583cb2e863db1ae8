package controlplane

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/controlplane/inplace"
)

// Directories in the pod of slurmctld.
const (
	etcDir     = "/etc/slurm"
	wantedDir  = "/etc/slurmtide/config"
	keysDir    = "/etc/slurmtide/keys"
	programDir = "/opt/slurmtide"
	// bridgeTLSDir has what the bridge shows to browsers and to Prometheus.
	bridgeTLSDir = "/etc/slurmtide/tls"
	// scalerTLSDir has whom the bridge believes to be the scaler, and what it shows that one.
	scalerTLSDir = "/etc/slurmtide/scaler"
	stateDir     = "/var/spool/slurmctld"
	spoolDir     = "/var/spool/slurmtide"
	keptDir      = "/var/spool/slurmtide-config"
)

const containerConfig = "config"

const (
	stateVolume     = "statesave"
	keysVolume      = "keys"
	bridgeTLSVolume = "bridge-tls"
	scalerTLSVolume = "scaler-tls"
)

// caCert is a CA's certificate, beside tls.crt and tls.key in Secrets of cert-manager.
const caCert = "ca.crt"

// defaultSize is that of the claim for slurmctld's state.
const defaultSize = "4Gi"

// statefulSet gives slurmctld's pod the fixed name that SlurmctldHost wants.
func statefulSet(c *v1alpha1.Controller, meta metav1.ObjectMeta, s Settings) *appsv1.StatefulSet {
	labels := controllerLabels(c)
	set := &appsv1.StatefulSet{TypeMeta: typeMeta("apps/v1", "StatefulSet"), ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
		Replicas:             new(1 + c.Spec.Backups),
		ServiceName:          workload(c.Name),
		Selector:             &metav1.LabelSelector{MatchLabels: labels},
		PodManagementPolicy:  appsv1.ParallelPodManagement,
		RevisionHistoryLimit: new(int32(1)),
		Template:             podTemplate(&c.Spec.Template, labels, slurmctldPod(c, s)),
	}}
	if c.Spec.Backups > 0 {
		set.Spec.Template.Annotations = maps.Clone(set.Spec.Template.Annotations)
		if set.Spec.Template.Annotations == nil {
			set.Spec.Template.Annotations = map[string]string{}
		}
		set.Spec.Template.Annotations[AnnotationBackups] = strconv.Itoa(int(c.Spec.Backups))
	}
	p := &c.Spec.Persistence
	if enabled(p.Enabled) && p.ExistingClaim == "" && !ownClaim(p) {
		set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claimTemplate(c)}
	}
	return set
}

func claimTemplate(c *v1alpha1.Controller) corev1.PersistentVolumeClaim {
	p := &c.Spec.Persistence
	claim := corev1.PersistentVolumeClaim{
		// Without its kind: that is not told by all encodings of the API, and would look like a change.
		ObjectMeta: metav1.ObjectMeta{Name: stateVolume, Labels: controllerLabels(c)},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: p.StorageClassName, AccessModes: p.AccessModes, Resources: *p.Resources.DeepCopy()},
	}
	if len(claim.Spec.AccessModes) == 0 {
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	if claim.Spec.Resources.Requests.Storage().IsZero() {
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(defaultSize)}
	}
	return claim
}

func enabled(b *bool) bool { return b == nil || *b }

func slurmctldPod(c *v1alpha1.Controller, s Settings) corev1.PodSpec {
	slurm, jwt := slurmKeyRef(c), jwtKeyRef(c)
	spec := corev1.PodSpec{
		ServiceAccountName: workload(c.Name),
		// Only the bridge and reconfigure speak to Kubernetes; the token is a volume of its own.
		AutomountServiceAccountToken: new(false),
		EnableServiceLinks:           new(false),
		// slurmctld saves its state within a second of SIGTERM.
		TerminationGracePeriodSeconds: new(int64(30)),
		SecurityContext:               podSecurity(&c.Spec.Template, uidSlurm, uidSlurm),
		InitContainers:                []corev1.Container{directories(c), installPrograms(c, s), initialConfig(c)},
		Containers:                    []corev1.Container{slurmctld(c), reconfigure(c, ContainerReconfigure, "run"), bridgesSlurmrestd(c)},
		Volumes: []corev1.Volume{
			{Name: "etc-slurm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "programs", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "config", VolumeSource: projected(configMap(configName(c.Name)))},
			{Name: "client-config", VolumeSource: projected(configMap(clientName(c.Name)))},
			{Name: keysVolume, VolumeSource: projected(secretKey(slurm, SlurmKey), secretKey(jwt, JWTKey))},
			{Name: "jwt-key", VolumeSource: projected(secretKey(jwt, JWTKey))},
			{Name: "token", VolumeSource: serviceAccountToken()},
			scratch(),
		},
	}
	if spec.SecurityContext.FSGroup == nil {
		spec.SecurityContext.FSGroup = new(gidKeys)
	}
	if o := bridgeOptions(c); enabled(o.Enabled) {
		spec.Containers = append(spec.Containers, bridge(c, s))
		if o.TLS != nil {
			keys := []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey}
			if o.TLS.ClientCA {
				keys = append(keys, caCert)
			}
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: bridgeTLSVolume, VolumeSource: projected(certificates(o.TLS.SecretName, keys...))})
		}
		if tls := scalerTLS(c); tls != nil {
			keys := []string{caCert}
			if tls.Certificate {
				keys = append(keys, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
			}
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: scalerTLSVolume, VolumeSource: projected(certificates(tls.SecretName, keys...))})
		}
	}
	switch p := &c.Spec.Persistence; {
	case !enabled(p.Enabled):
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: stateVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	case p.ExistingClaim != "" || ownClaim(p):
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: stateVolume, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: cmp.Or(p.ExistingClaim, claimName(c))},
		}})
	}
	options(&spec, &c.Spec.Template)
	if c.Spec.Backups > 0 {
		withBackups(&spec, c)
	}
	return spec
}

// directories makes the parts of the state volume, so that they belong to SlurmUser without anything running as root. The volume's
// root is group-writable and set-group-ID because of fsGroup; the spool and the programs want neither. The same goes for the directories of slurmctld's sockets, of
// which it complains if they are another's.
func directories(c *v1alpha1.Controller) corev1.Container {
	d := container("directories", containerOf(c.Spec.Slurmctld), "/bin/sh", "-euc",
		spools(c)+fmt.Sprintf("mkdir -p state/slurmctld %[1]s state/config programs/bin; chmod g-s state/slurmctld %[1]s state/config programs/bin; chmod 0755 state/slurmctld state/config programs/bin; chmod 0700 %[1]s", spoolOf(c))+
			fmt.Sprintf("; for c in %s %s %s; do mkdir -p scratch/$c/%[4]s; chmod 0755 scratch/$c/%[4]s; done", containerConfig, ContainerReconfigure, ContainerSlurmctld, scratchName(runSlurmctldDir)))
	d.Args = nil
	d.Env = append(d.Env, fieldEnv("POD_NAME", "metadata.name"))
	d.WorkingDir = "/volumes"
	d.VolumeMounts = []corev1.VolumeMount{{Name: stateVolume, MountPath: "/volumes/state"}, {Name: "programs", MountPath: "/volumes/programs"}, {Name: scratchVolume, MountPath: "/volumes/scratch"}}
	return d
}

// installPrograms copies the programs out of an image that has no shell.
func installPrograms(c *v1alpha1.Controller, s Settings) corev1.Container {
	o := bridgeOptions(c).ContainerOptions
	o.Image = cmp.Or(o.Image, s.Image)
	i := container("programs", &o)
	i.Args, i.Env = []string{"install-programs", "--reconfigure", programDir}, nil
	i.VolumeMounts = []corev1.VolumeMount{{Name: "programs", SubPath: "bin", MountPath: programDir}}
	return i
}

// initialConfig puts the configuration in place that slurmctld starts with.
func initialConfig(c *v1alpha1.Controller) corev1.Container {
	return reconfigure(c, containerConfig, "init")
}

// reconfigure gives slurmctld new configurations that it has found good.
func reconfigure(c *v1alpha1.Controller, name, command string) corev1.Container {
	r := container(name, besideSlurmctld(c, c.Spec.Reconfigure), programDir+"/reconfigure", command)
	r.Env = append(r.Env, fieldEnv("POD_NAME", "metadata.name"), fieldEnv("POD_NAMESPACE", "metadata.namespace"))
	r.VolumeMounts = []corev1.VolumeMount{
		{Name: "etc-slurm", MountPath: etcDir},
		{Name: "config", MountPath: wantedDir, ReadOnly: true},
		{Name: keysVolume, MountPath: keysDir, ReadOnly: true},
		{Name: "programs", SubPath: "bin", MountPath: programDir, ReadOnly: true},
		{Name: stateVolume, SubPath: "config", MountPath: keptDir},
		{Name: stateVolume, SubPath: "slurmctld", MountPath: stateDir},
		{Name: "token", MountPath: inplace.ServiceAccountDir, ReadOnly: true},
	}
	// The slurmctld that tries a configuration wants what the real one has: its socket, and where the user's lines may have files.
	withMounts(&r, append(scratchMounts(name, tmpDir, runSlurmctldDir), scratchMounts(ContainerSlurmctld, logDir)...), c.Spec.Slurmctld)
	return r
}

func slurmctld(c *v1alpha1.Controller) corev1.Container {
	s := container(ContainerSlurmctld, containerOf(c.Spec.Slurmctld), "slurmctld", "-D")
	s.Ports = []corev1.ContainerPort{{Name: "slurmctld", ContainerPort: slurmctldPort, Protocol: corev1.ProtocolTCP}}
	if !hasEnv(s.Env, "HOSTALIASES") {
		s.Env = append(s.Env, corev1.EnvVar{Name: "HOSTALIASES", Value: etcDir + "/" + hostAliases})
	}
	s.VolumeMounts = []corev1.VolumeMount{
		{Name: "etc-slurm", MountPath: etcDir, ReadOnly: true},
		{Name: stateVolume, SubPath: "slurmctld", MountPath: stateDir},
		{Name: stateVolume, SubPath: "spool", MountPath: spoolDir},
		{Name: "programs", SubPath: "bin", MountPath: programDir, ReadOnly: true},
	}
	withMounts(&s, scratchMounts(ContainerSlurmctld, tmpDir, runSlurmctldDir, logDir), c.Spec.Slurmctld)
	probe := func(period, failures int32, args ...string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: append([]string{programDir + "/reconfigure"}, args...)}},
			PeriodSeconds: period, TimeoutSeconds: 15, FailureThreshold: failures,
		}
	}
	s.ReadinessProbe = probe(5, 3, "ready")
	// Nothing ends a slurmctld that starts: it may read its state for long, or wait for a slurmdbd. Later it takes five minutes in which it neither answers nor works.
	s.StartupProbe, s.LivenessProbe = probe(1, math.MaxInt32, "ready"), probe(30, 10, "live")
	withProbes(&s, c.Spec.Slurmctld)
	return s
}

// slurmrestd holds no key: SLURM_JWT=daemon makes it pass on the callers' tokens. It knows of slurmdbd if records is true.
func slurmrestd(o *v1alpha1.ContainerOptions, address string, records bool) corev1.Container {
	plugins := "openapi/slurmctld"
	if records {
		plugins += ",openapi/slurmdbd"
	}
	r := container(ContainerSlurmrestd, o, "slurmrestd", "-a", "rest_auth/jwt", "-s", plugins, fmt.Sprintf("%s:%d", address, slurmrestdPort))
	r.Env = append(r.Env,
		corev1.EnvVar{Name: "SLURM_JWT", Value: "daemon"},
		// It would put itself into namespaces of its own, needs CAP_SYS_ADMIN for that, and ends without. The container is that already.
		corev1.EnvVar{Name: "SLURMRESTD_SECURITY", Value: "disable_unshare_sysv,disable_unshare_files"},
		// Lists of arrays' tasks in full, not their first 64 characters.
		corev1.EnvVar{Name: "SLURM_BITSTR_LEN", Value: "0"})
	r.VolumeMounts = []corev1.VolumeMount{{Name: "client-config", MountPath: etcDir, ReadOnly: true}}
	// It ends on SIGINT; SIGTERM it does not handle, and as a container's first process it would not end on that at all.
	r.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "kill -INT 1"}}}}
	return r
}

// bridgesSlurmrestd is the one that the bridge uses; nobody else reaches it.
func bridgesSlurmrestd(c *v1alpha1.Controller) corev1.Container {
	r := slurmrestd(besideSlurmctld(c, c.Spec.Slurmrestd), "127.0.0.1", false)
	r.SecurityContext.RunAsUser, r.SecurityContext.RunAsGroup = new(uidSlurmrest), new(uidSlurmrest)
	return r
}

// exposesPage says whether others than those in slurmctld's pod reach the bridge's page.
func exposesPage(c *v1alpha1.Controller) bool {
	o := bridgeOptions(c)
	return enabled(o.Enabled) && o.Page != nil && enabled(o.Page.Enabled) && o.Page.Exposed
}

// scalerTLS is what the bridge needs to ask a scaler by TLS; nil: nothing.
func scalerTLS(c *v1alpha1.Controller) *v1alpha1.ClientTLS {
	if page := bridgeOptions(c).Page; page != nil && enabled(page.Enabled) && page.Scaler != "" {
		return page.ScalerTLS
	}
	return nil
}

func bridgeOptions(c *v1alpha1.Controller) *v1alpha1.BridgeOptions {
	return cmp.Or(c.Spec.Bridge, &v1alpha1.BridgeOptions{}).DeepCopy()
}

// bridge runs as SlurmUser, who owns the spool.
func bridge(c *v1alpha1.Controller, s Settings) corev1.Container {
	o := bridgeOptions(c).ContainerOptions
	o.Image = cmp.Or(o.Image, s.Image)
	b := container(ContainerBridge, &o)
	ports, args := []corev1.ContainerPort{{Name: "metrics", ContainerPort: metricsPort, Protocol: corev1.ProtocolTCP}}, []string{
		"bridge",
		"--namespace=" + c.Namespace,
		"--cluster=" + ClusterName(c),
		"--spool=" + spoolDir,
		fmt.Sprintf("--slurmrestd=http://127.0.0.1:%d", slurmrestdPort),
		"--jwt-key=" + keysDir + "/" + JWTKey,
		"--conf-server=" + confServer(c, s),
		"--pod-service=" + nodesService(c.Name),
	}
	if page := bridgeOptions(c).Page; page != nil && enabled(page.Enabled) {
		host := "127.0.0.1"
		if exposesPage(c) {
			host = ""
			ports = append(ports, corev1.ContainerPort{Name: "page", ContainerPort: pagePort, Protocol: corev1.ProtocolTCP})
		}
		args = append(args, fmt.Sprintf("--page-address=%s:%d", host, pagePort))
		if page.Scaler != "" {
			args = append(args, "--scaler="+page.Scaler)
		}
	}
	if tracing := bridgeOptions(c).Tracing; tracing != nil {
		args = append(args, "--otlp-endpoint="+tracing.Endpoint)
		const headers = "OTEL_EXPORTER_OTLP_HEADERS"
		if ref := tracing.HeadersRef; ref != nil && !hasEnv(b.Env, headers) {
			b.Env = append(b.Env, corev1.EnvVar{Name: headers, ValueFrom: &corev1.EnvVarSource{
				SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: ref.Name}, Key: ref.Key},
			}})
		}
	}
	b.VolumeMounts = []corev1.VolumeMount{
		{Name: "jwt-key", MountPath: keysDir, ReadOnly: true},
		{Name: "token", MountPath: inplace.ServiceAccountDir, ReadOnly: true},
		{Name: stateVolume, SubPath: "spool", MountPath: spoolDir},
	}
	if tls := bridgeOptions(c).TLS; tls != nil {
		args = append(args, "--tls-cert="+bridgeTLSDir+"/"+corev1.TLSCertKey, "--tls-key="+bridgeTLSDir+"/"+corev1.TLSPrivateKeyKey)
		if tls.ClientCA {
			args = append(args, "--tls-client-ca="+bridgeTLSDir+"/"+caCert)
		}
		b.VolumeMounts = append(b.VolumeMounts, corev1.VolumeMount{Name: bridgeTLSVolume, MountPath: bridgeTLSDir, ReadOnly: true})
	}
	if tls := scalerTLS(c); tls != nil {
		args = append(args, "--scaler-ca="+scalerTLSDir+"/"+caCert)
		if tls.Certificate {
			args = append(args, "--scaler-cert="+scalerTLSDir+"/"+corev1.TLSCertKey, "--scaler-key="+scalerTLSDir+"/"+corev1.TLSPrivateKeyKey)
		}
		b.VolumeMounts = append(b.VolumeMounts, corev1.VolumeMount{Name: scalerTLSVolume, MountPath: scalerTLSDir, ReadOnly: true})
	}
	b.Args, b.Ports = append(args, o.Args...), ports
	return b
}

// certificates projects what the bridge shows and believes. Without the Secret slurmctld starts all the same: it is the bridge that says what it misses.
func certificates(secretName string, keys ...string) corev1.VolumeProjection {
	secret := &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: secretName}, Optional: new(true)}
	for _, key := range keys {
		secret.Items = append(secret.Items, corev1.KeyToPath{Key: key, Path: key, Mode: new(int32(0o440))})
	}
	return corev1.VolumeProjection{Secret: secret}
}

// besideSlurmctld are the options of a container that has slurmctld's image and environment.
func besideSlurmctld(c *v1alpha1.Controller, o *v1alpha1.SidecarOptions) *v1alpha1.ContainerOptions {
	its := containerOf(c.Spec.Slurmctld)
	all := sidecar(its, o)
	all.Env = its.Env
	return all
}

// sidecar are the options of a container that has another's image.
func sidecar(other *v1alpha1.ContainerOptions, o *v1alpha1.SidecarOptions) *v1alpha1.ContainerOptions {
	return &v1alpha1.ContainerOptions{Image: other.Image, ImagePullPolicy: other.ImagePullPolicy, Resources: cmp.Or(o, &v1alpha1.SidecarOptions{}).Resources}
}

// container is one with the user's options, and without rights. What it writes goes to volumes.
func container(name string, o *v1alpha1.ContainerOptions, command ...string) corev1.Container {
	o = cmp.Or(o, &v1alpha1.ContainerOptions{}).DeepCopy()
	c := corev1.Container{
		Name: name, Image: o.Image, ImagePullPolicy: o.ImagePullPolicy, Command: command, Args: o.Args, Env: o.Env, Resources: o.Resources,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError, // why it ended is said by the last lines of its log
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	if c.Resources.Requests == nil && c.Resources.Limits == nil && c.Resources.Claims == nil {
		c.Resources = small()
	}
	return c
}

func small() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
	}}
}

// hasEnv says whether the user has set a variable, which counts then.
func hasEnv(env []corev1.EnvVar, name string) bool {
	return slices.ContainsFunc(env, func(e corev1.EnvVar) bool { return e.Name == name })
}

func fieldEnv(name, field string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: field}}}
}

func projected(sources ...corev1.VolumeProjection) corev1.VolumeSource {
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources, DefaultMode: new(int32(0o444))}}
}

func configMap(name string) corev1.VolumeProjection {
	return corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}
}

// secretKey projects a key under our name for it, mode 0440.
func secretKey(ref v1alpha1.KeyRef, name string) corev1.VolumeProjection {
	return corev1.VolumeProjection{Secret: &corev1.SecretProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: ref.Name},
		Items:                []corev1.KeyToPath{{Key: ref.Key, Path: name, Mode: new(int32(0o440))}},
	}}
}

// serviceAccountToken is what Kubernetes mounts by itself into every container when asked to.
func serviceAccountToken() corev1.VolumeSource {
	return projected(
		corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
		corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
			Items:                []corev1.KeyToPath{{Key: caCert, Path: caCert}},
		}},
	)
}
