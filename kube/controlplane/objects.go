package controlplane

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/controlplane/inplace"
)

// Users in our images (hack/images/finish.sh), unless spec.template says otherwise.
const (
	uidSlurm     = int64(64030) // SlurmUser: slurmctld, the programs that it starts, the bridge, the spool
	uidSlurmrest = int64(64031) // slurmrestd refuses root, SlurmUser and SlurmUser's group
	gidKeys      = int64(64040) // fsGroup: key files are root's with this group and mode 0440
)

// Object is a Kubernetes object of any kind.
type Object interface {
	metav1.Object
	runtime.Object
}

// ControllerObjects are all objects of a Controller but its keys, in the order in which they are applied. files is what Config made.
func ControllerObjects(c *v1alpha1.Controller, files map[string]string, s Settings) ([]Object, error) {
	client, err := ClientConfig(c, s)
	if err != nil {
		return nil, err
	}
	ours, owner := controllerLabels(c), ownerOf(c, "Controller")
	meta := func(name string) metav1.ObjectMeta { return owned(c.Namespace, name, ours, owner) }
	list := []Object{&corev1.ConfigMap{TypeMeta: typeMeta("v1", "ConfigMap"), ObjectMeta: meta(clientName(c.Name)), Data: client}}
	if c.Spec.External != nil {
		return list, nil
	}
	config := &corev1.ConfigMap{TypeMeta: typeMeta("v1", "ConfigMap"), ObjectMeta: meta(configName(c.Name))}
	config.Data, config.BinaryData = textAndRest(files)
	ports := []corev1.ServicePort{{Name: "slurmctld", Port: slurmctldPort}, {Name: "metrics", Port: metricsPort}}
	if exposesPage(c) {
		ports = append(ports, corev1.ServicePort{Name: "page", Port: pagePort})
	}
	service := headless(meta(workload(c.Name)), ours, ports...)
	nodes := headless(meta(nodesService(c.Name)), map[string]string{v1alpha1.LabelCluster: ClusterName(c)}, corev1.ServicePort{Name: "slurmd", Port: slurmdPort})
	account := &corev1.ServiceAccount{TypeMeta: typeMeta("v1", "ServiceAccount"), ObjectMeta: meta(workload(c.Name)), AutomountServiceAccountToken: new(false)}
	binding := &rbacv1.RoleBinding{
		TypeMeta: typeMeta("rbac.authorization.k8s.io/v1", "RoleBinding"), ObjectMeta: meta(workload(c.Name)),
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: s.BridgeRole},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: workload(c.Name), Namespace: c.Namespace}},
	}
	list = append(list, config, service, nodes)
	if c.Spec.Backups > 0 {
		for _, pod := range podNames(c) {
			list = append(list, podService(meta(pod), ours))
		}
	}
	return append(list, account, binding, statefulSet(c, meta(workload(c.Name)), s)), nil
}

// textAndRest divides files as a ConfigMap wants it: what is no UTF-8 stands apart.
func textAndRest(files map[string]string) (text map[string]string, rest map[string][]byte) {
	for name, data := range files {
		if utf8.ValidString(data) {
			if text == nil {
				text = map[string]string{}
			}
			text[name] = data
			continue
		}
		if rest == nil {
			rest = map[string][]byte{}
		}
		rest[name] = []byte(data)
	}
	return text, rest
}

// RestApiObjects are the objects of a RestApi. controller is the one that it refers to, and accounting that one's, or nil.
//
//nolint:revive // as the kind
func RestApiObjects(r *v1alpha1.RestApi, controller *v1alpha1.Controller, accounting *v1alpha1.Accounting, s Settings) ([]Object, error) {
	client, err := ClientConfig(controller, s)
	config := clientName(controller.Name)
	if accounting != nil {
		client, err = AccountingClientConfig(controller, accounting, s)
		config = accountingClientName(controller.Name)
	}
	if err != nil {
		return nil, err
	}
	ours, owner, name := restApiLabels(r), ownerOf(r, "RestApi"), restApiName(r.Name)
	o := containerOf(r.Spec.Slurmrestd)
	if o.Image == "" && controller.Spec.Slurmctld != nil {
		o.Image = controller.Spec.Slurmctld.Image
	}
	if o.Image == "" {
		return nil, fmt.Errorf("spec.slurmrestd.image is missing, and Controller %s names no image: name one with slurmrestd", controller.Name)
	}
	c := slurmrestd(o, "0.0.0.0", accounting != nil)
	c.Ports = []corev1.ContainerPort{{Name: "slurmrestd", ContainerPort: slurmrestdPort, Protocol: corev1.ProtocolTCP}}
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("slurmrestd")}},
		PeriodSeconds: 5,
	}
	withProbes(&c, r.Spec.Slurmrestd)
	withMounts(&c, nil, r.Spec.Slurmrestd)
	spec := corev1.PodSpec{
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		SecurityContext: podSecurity(&r.Spec.Template, uidSlurmrest, uidSlurmrest),
		Containers:      []corev1.Container{c},
		Volumes:         []corev1.Volume{{Name: "client-config", VolumeSource: projected(configMap(config))}},
	}
	options(&spec, &r.Spec.Template)
	template := podTemplate(&r.Spec.Template, ours, spec)
	template.Annotations = labels.Merge(template.Annotations, map[string]string{AnnotationConfig: inplace.Hash(client)})
	service := &corev1.Service{
		TypeMeta: typeMeta("v1", "Service"), ObjectMeta: owned(r.Namespace, name, ours, owner),
		Spec: corev1.ServiceSpec{Selector: ours, Ports: []corev1.ServicePort{{Name: "slurmrestd", Port: slurmrestdPort, TargetPort: intstr.FromString("slurmrestd"), Protocol: corev1.ProtocolTCP}}},
	}
	deployment := &appsv1.Deployment{
		TypeMeta: typeMeta("apps/v1", "Deployment"), ObjectMeta: owned(r.Namespace, name, ours, owner),
		Spec: appsv1.DeploymentSpec{Replicas: r.Spec.Replicas, Selector: &metav1.LabelSelector{MatchLabels: ours}, Template: template},
	}
	return []Object{service, deployment}, nil
}

func typeMeta(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// headless services let clients see the pod's own address. Pods that are not ready are published, since slurmd and slurmctld meet before
// anything is ready.
func headless(meta metav1.ObjectMeta, selector map[string]string, ports ...corev1.ServicePort) *corev1.Service {
	for i := range ports {
		ports[i].Protocol = corev1.ProtocolTCP
		ports[i].TargetPort = intstr.FromInt32(ports[i].Port)
	}
	return &corev1.Service{TypeMeta: typeMeta("v1", "Service"), ObjectMeta: meta, Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: selector, Ports: ports, PublishNotReadyAddresses: true,
	}}
}

// keySecret is a Secret for a key that is made once.
func keySecret(meta metav1.ObjectMeta, name string, key []byte) *corev1.Secret {
	return &corev1.Secret{TypeMeta: typeMeta("v1", "Secret"), ObjectMeta: meta, Data: map[string][]byte{name: key}, Immutable: new(true)}
}

// podTemplate has the user's labels and annotations beside ours.
func podTemplate(o *v1alpha1.PodOptions, ours map[string]string, spec corev1.PodSpec) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels.Merge(o.Metadata.Labels, ours), Annotations: o.Metadata.Annotations}, Spec: spec}
}

// options puts the user's settings into a pod spec.
func options(spec *corev1.PodSpec, o *v1alpha1.PodOptions) {
	spec.NodeSelector, spec.Affinity, spec.Tolerations = o.Spec.NodeSelector, o.Spec.Affinity, o.Spec.Tolerations
	spec.PriorityClassName, spec.ImagePullSecrets = o.Spec.PriorityClassName, o.Spec.ImagePullSecrets
	spec.HostUsers = o.Spec.HostUsers
	spec.Volumes = slices.Concat(o.Spec.Volumes, spec.Volumes)
}

func podSecurity(o *v1alpha1.PodOptions, uid, gid int64) *corev1.PodSecurityContext {
	c := &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: &uid, RunAsGroup: &gid,
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if u := o.Spec.SecurityContext; u != nil {
		c.RunAsUser, c.RunAsGroup, c.FSGroup = cmp.Or(u.RunAsUser, c.RunAsUser), cmp.Or(u.RunAsGroup, c.RunAsGroup), u.FSGroup
	}
	return c
}

// asJSON is an object as it is sent: without its status, and without what is empty.
func asJSON(o Object) (map[string]any, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	delete(m, "status")
	prune(m)
	return m, nil
}

// prune removes nulls and empty objects that only Go's zero values are. An empty emptyDir is a choice, and stays.
func prune(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			prune(child)
			m, ok := child.(map[string]any)
			if child == nil || ok && len(m) == 0 && (key == "resources" || key == "strategy" || key == "updateStrategy" || key == "status") {
				delete(v, key)
			}
		}
	case []any:
		for _, child := range v {
			prune(child)
		}
	}
}
