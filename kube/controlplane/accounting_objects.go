package controlplane

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// LabelAccounting is on all that is made for an Accounting.
const LabelAccounting = "slurmtide.io/accounting"

// ContainerSlurmdbd is the container of its pod.
const ContainerSlurmdbd = "slurmdbd"

const slurmdbdPort = 6819

// dbdWantedDir is where the kubelet puts slurmdbd's files. slurmdbd wants its own, mode 0600 (read_slurmdbd_conf), which no volume of Kubernetes gives.
const dbdWantedDir = "/etc/slurmtide/slurmdbd"

func dbdWorkload(accounting string) string { return accounting + "-accounting" }
func dbdPodName(accounting string) string  { return dbdWorkload(accounting) + "-0" }

// accountingClientName is the ConfigMap of AccountingClientConfig.
func accountingClientName(controller string) string { return controller + "-config-accounting" }

func accountingLabels(a *v1alpha1.Accounting) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name": "slurmdbd", "app.kubernetes.io/instance": a.Name, LabelManagedBy: ManagedBy, LabelAccounting: a.Name,
	}
}

// dbdFiles is what slurmdbd reads beside its configuration: how each file is called, and what it is made of.
func dbdFiles(a *v1alpha1.Accounting) (names []string, refs []v1alpha1.KeyRef, fields []string) {
	add := func(name string, ref *v1alpha1.KeyRef, field string) {
		if ref != nil {
			names, refs, fields = append(names, name), append(refs, *ref), append(fields, field)
		}
	}
	slurm, jwt := accountingSlurmKeyRef(a), accountingJWTKeyRef(a)
	add(SlurmKey, &slurm, "spec.slurmKeyRef")
	add(JWTKey, &jwt, "spec.jwtKeyRef")
	if s := a.Spec.StorageConfig; s != nil && s.TLS != nil {
		add(caFile, &s.TLS.CA, "spec.storageConfig.tls.ca")
		add(certificateFile, s.TLS.Certificate, "spec.storageConfig.tls.certificate")
		add(privateKeyFile, s.TLS.PrivateKey, "spec.storageConfig.tls.privateKey")
	}
	return names, refs, fields
}

// dbdHash stands for slurmdbd's files, so that its pod changes with them. There is a password among them, hence the key: who may see the pod shall not be able
// to try passwords on it.
func dbdHash(key []byte, files ...[]byte) string {
	mac := hmac.New(sha256.New, key)
	for _, text := range files {
		sum := sha256.Sum256(text)
		mac.Write(sum[:])
	}
	return hex.EncodeToString(mac.Sum(nil))[:16]
}

// accountingSecret holds slurmdbd.conf, for the sake of the password in it, and the key set of spec.jwksKeyRef if there is one.
func accountingSecret(a *v1alpha1.Accounting, conf, jwks string) *corev1.Secret {
	s := &corev1.Secret{
		TypeMeta: typeMeta("v1", "Secret"), ObjectMeta: owned(a.Namespace, dbdWorkload(a.Name), accountingLabels(a), ownerOf(a, "Accounting")),
		Data: map[string][]byte{slurmdbdConfFile: []byte(conf)},
	}
	if jwks != "" {
		s.Data[jwksFile] = []byte(jwks)
	}
	return s
}

// AccountingObjects are all objects of an Accounting but its Secrets. hash changes with slurmdbd's files.
func AccountingObjects(a *v1alpha1.Accounting, hash string) []Object {
	if a.Spec.External != nil {
		return nil
	}
	marks, meta := accountingLabels(a), owned(a.Namespace, dbdWorkload(a.Name), accountingLabels(a), ownerOf(a, "Accounting"))
	template := podTemplate(&a.Spec.Template, marks, slurmdbdPod(a))
	template.Annotations = labels.Merge(template.Annotations, map[string]string{AnnotationConfig: hash})
	return []Object{
		// Not headless: while slurmdbd does not answer, slurmctld is refused at once instead of being left to wait for an address of before.
		&corev1.Service{TypeMeta: typeMeta("v1", "Service"), ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Selector: marks, Ports: []corev1.ServicePort{{Name: "slurmdbd", Port: slurmdbdPort, TargetPort: intstr.FromString("slurmdbd"), Protocol: corev1.ProtocolTCP}},
		}},
		// A StatefulSet never has two of them, and gives the name that DbdHost wants.
		&appsv1.StatefulSet{TypeMeta: typeMeta("apps/v1", "StatefulSet"), ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
			Replicas:    new(int32(1)),
			ServiceName: dbdWorkload(a.Name),
			Selector:    &metav1.LabelSelector{MatchLabels: marks},
			// Otherwise a pod that is not ready would not be replaced by a better one.
			PodManagementPolicy:  appsv1.ParallelPodManagement,
			RevisionHistoryLimit: new(int32(1)),
			Template:             template,
		}},
	}
}

func slurmdbdPod(a *v1alpha1.Accounting) corev1.PodSpec {
	sources := []corev1.VolumeProjection{secretKey(v1alpha1.KeyRef{Name: dbdWorkload(a.Name), Key: slurmdbdConfFile}, slurmdbdConfFile)}
	if a.Spec.JWKSKeyRef != nil {
		sources = append(sources, secretKey(v1alpha1.KeyRef{Name: dbdWorkload(a.Name), Key: jwksFile}, jwksFile))
	}
	names, refs, _ := dbdFiles(a)
	for i := range names {
		sources = append(sources, secretKey(refs[i], names[i]))
	}
	spec := corev1.PodSpec{
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		TerminationGracePeriodSeconds: new(int64(30)),
		// While it waits for its database it has no handler for SIGTERM, and as a container's first process it would not end on that.
		ShareProcessNamespace: new(true),
		SecurityContext:       podSecurity(&a.Spec.Template, uidSlurm, uidSlurm),
		InitContainers:        []corev1.Container{slurmdbdFiles(a)},
		Containers:            []corev1.Container{slurmdbd(a)},
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: projected(sources...)},
			// Secrets stay off disks.
			{Name: "etc-slurm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
			scratch(),
		},
	}
	if spec.SecurityContext.FSGroup == nil {
		spec.SecurityContext.FSGroup = new(gidKeys)
	}
	options(&spec, &a.Spec.Template)
	return spec
}

// slurmdbdFiles makes the files slurmdbd's own.
func slurmdbdFiles(a *v1alpha1.Accounting) corev1.Container {
	f := container("files", containerOf(a.Spec.Slurmdbd), "/bin/sh", "-euc", "umask 077; cp "+dbdWantedDir+"/* "+etcDir+"/; chmod 0600 "+etcDir+"/*")
	f.Args = nil
	f.VolumeMounts = []corev1.VolumeMount{{Name: "config", MountPath: dbdWantedDir, ReadOnly: true}, {Name: "etc-slurm", MountPath: etcDir}}
	return f
}

func slurmdbd(a *v1alpha1.Accounting) corev1.Container {
	d := container(ContainerSlurmdbd, containerOf(a.Spec.Slurmdbd), "slurmdbd", "-D")
	d.Ports = []corev1.ContainerPort{{Name: "slurmdbd", ContainerPort: slurmdbdPort, Protocol: corev1.ProtocolTCP}}
	d.VolumeMounts = []corev1.VolumeMount{{Name: "etc-slurm", MountPath: etcDir, ReadOnly: true}}
	withMounts(&d, scratchMounts(ContainerSlurmdbd, tmpDir, runSlurmdbdDir), a.Spec.Slurmdbd)
	// It listens when it has its database in order. It is never ended for not doing so: it waits for the database by itself, and a conversion of tables by a new
	// version takes its time.
	d.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("slurmdbd")}},
		PeriodSeconds: 5,
	}
	withProbes(&d, a.Spec.Slurmdbd)
	return d
}

// accountingSlurmKeyRef and accountingJWTKeyRef are the keys of an Accounting, the user's or ours.
func accountingSlurmKeyRef(a *v1alpha1.Accounting) v1alpha1.KeyRef {
	made := madeSlurmKey(a.Name)
	return *cmp.Or(a.Spec.SlurmKeyRef, &made)
}

func accountingJWTKeyRef(a *v1alpha1.Accounting) v1alpha1.KeyRef {
	made := madeJWTKey(a.Name)
	return *cmp.Or(a.Spec.JWTKeyRef, &made)
}

// AccountingClient is the ConfigMap of AccountingClientConfig. It is the Controller's.
func AccountingClient(c *v1alpha1.Controller, a *v1alpha1.Accounting, s Settings) (Object, error) {
	files, err := AccountingClientConfig(c, a, s)
	return &corev1.ConfigMap{
		TypeMeta: typeMeta("v1", "ConfigMap"), ObjectMeta: owned(c.Namespace, accountingClientName(c.Name), controllerLabels(c), ownerOf(c, "Controller")), Data: files,
	}, err
}
