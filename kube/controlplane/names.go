package controlplane

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// Labels of all that is made here. LabelCluster of v1alpha1 is not among them: by it the bridge knows the pods that it may delete.
const (
	LabelController = "slurmtide.io/controller"
	LabelRestApi    = "slurmtide.io/restapi" //nolint:revive // as the kind
	LabelManagedBy  = "app.kubernetes.io/managed-by"
	ManagedBy       = "slurmtide"
)

// Annotations.
const (
	// AnnotationApplied holds a hash of what was applied last.
	AnnotationApplied = "slurmtide.io/applied"
	// AnnotationWanted is set on slurmctld's pod when its configuration is to change: any change of a pod makes the kubelet
	// bring its files up to date at once, and not within a minute or two.
	AnnotationWanted = "slurmtide.io/config-wanted"
	// AnnotationConfig makes a Deployment's pods change with the files that they have read.
	AnnotationConfig = "slurmtide.io/config"
)

// FieldManager is who applies.
const FieldManager = "slurmtide-controller"

// Containers of the pods.
const (
	ContainerSlurmctld   = "slurmctld"
	ContainerSlurmrestd  = "slurmrestd"
	ContainerBridge      = "bridge"
	ContainerReconfigure = "reconfigure"
)

// Keys of the Secrets that are made here, and the names of the files.
const (
	SlurmKey = "slurm.key"
	JWTKey   = "jwt_hs256.key"
)

// TokenKey is where a Token's Secret has it, unless the Token says otherwise.
const TokenKey = "SLURM_JWT"

const (
	slurmctldPort  = 6817
	slurmdPort     = 6818
	slurmrestdPort = 6820
	metricsPort    = 9441
	pagePort       = 9445
)

// Settings are those of the daemon, the same for all clusters.
type Settings struct {
	// Image has slurmtide and its programs.
	Image string
	// ClusterDomain is Kubernetes' DNS domain.
	ClusterDomain string
	// BridgeRole is the ClusterRole that says what bridges may do in their namespace.
	BridgeRole string
}

// ClusterName is the ClusterName of a Controller's slurm.conf.
func ClusterName(c *v1alpha1.Controller) string { return cmp.Or(c.Spec.ClusterName, c.Name) }

// PodName is the pod of a Controller's slurmctld, of several the first one's.
func PodName(controller string) string { return workload(controller) + "-0" }

// podNames are those of all its slurmctlds, in the order in which they take control.
func podNames(c *v1alpha1.Controller) (names []string) {
	for i := range 1 + c.Spec.Backups {
		names = append(names, fmt.Sprintf("%s-%d", workload(c.Name), i))
	}
	return names
}

// Names of what is made for an object are its own and an ending. No ending may end in another one of the same kind of objects, or two objects with well chosen
// names would want the same.
func workload(controller string) string     { return controller + "-controller" }
func configName(controller string) string   { return controller + "-config" }
func clientName(controller string) string   { return controller + "-config-client" }
func nodesService(controller string) string { return controller + "-nodes" }
func restApiName(restApi string) string     { return restApi + "-restapi" } //nolint:revive // as the kind

// madeSlurmKey and madeJWTKey are where the keys are that we make for a Controller or an Accounting, whose user gives none.
func madeSlurmKey(name string) v1alpha1.KeyRef {
	return v1alpha1.KeyRef{Name: name + "-auth-slurm", Key: SlurmKey}
}

func madeJWTKey(name string) v1alpha1.KeyRef {
	return v1alpha1.KeyRef{Name: name + "-auth-jwths256", Key: JWTKey}
}

// slurmKeyRef and jwtKeyRef are the keys of a Controller, the user's or ours.
func slurmKeyRef(c *v1alpha1.Controller) v1alpha1.KeyRef {
	made := madeSlurmKey(c.Name)
	return *cmp.Or(c.Spec.SlurmKeyRef, &made)
}

func jwtKeyRef(c *v1alpha1.Controller) v1alpha1.KeyRef {
	made := madeJWTKey(c.Name)
	return *cmp.Or(c.Spec.JWTKeyRef, &made)
}

// controllerLines are the SlurmctldHost lines: of each slurmctld the name for itself, which is its pod's, and the one that others use.
func controllerLines(c *v1alpha1.Controller, s Settings) string {
	if e := c.Spec.External; e != nil {
		return "SlurmctldHost=" + e.Host
	}
	var lines []string
	for _, pod := range podNames(c) {
		lines = append(lines, fmt.Sprintf("SlurmctldHost=%s(%s)", pod, podAddress(c, pod, s)))
	}
	return strings.Join(lines, "\n")
}

// podAddress is what others reach a slurmctld by: of a single one the pod's name in a headless service, which the kubelet writes into the pod's /etc/hosts, so
// that the control plane finds itself before DNS knows it. One of several has a Service: the name of a pod that is gone is unknown to DNS, and whoever calls
// any of them asks for the names of all, ten times within ten seconds if one is unknown (xgetaddrinfo). A Service without a pod refuses at once.
func podAddress(c *v1alpha1.Controller, pod string, s Settings) string {
	if c.Spec.Backups > 0 {
		return fmt.Sprintf("%s.%s.svc.%s", pod, c.Namespace, s.ClusterDomain)
	}
	return fmt.Sprintf("%s.%s.%s.svc.%s", pod, workload(c.Name), c.Namespace, s.ClusterDomain)
}

func controllerPort(c *v1alpha1.Controller) int32 {
	if e := c.Spec.External; e != nil {
		return cmp.Or(e.Port, slurmctldPort)
	}
	return slurmctldPort
}

// confServer is --conf-server of daemons that fetch their slurm.conf.
func confServer(c *v1alpha1.Controller, s Settings) string {
	if e := c.Spec.External; e != nil {
		return fmt.Sprintf("%s:%d", e.Host, controllerPort(c))
	}
	var servers []string
	for _, pod := range podNames(c) {
		servers = append(servers, fmt.Sprintf("%s:%d", podAddress(c, pod, s), controllerPort(c)))
	}
	return strings.Join(servers, ",")
}

func controllerLabels(c *v1alpha1.Controller) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name": "slurmctld", "app.kubernetes.io/instance": c.Name, LabelManagedBy: ManagedBy, LabelController: c.Name,
	}
}

func restApiLabels(r *v1alpha1.RestApi) map[string]string { //nolint:revive // as the kind
	return map[string]string{
		"app.kubernetes.io/name": "slurmrestd", "app.kubernetes.io/instance": r.Name, LabelManagedBy: ManagedBy, LabelRestApi: r.Name,
	}
}

func tokenLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "slurm-token", LabelManagedBy: ManagedBy}
}

// owned is the metadata of an object that goes with its owner.
func owned(namespace, name string, labels map[string]string, owner metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, OwnerReferences: []metav1.OwnerReference{owner}}
}

// ownerOf makes Kubernetes delete what it stands on when the owner is deleted.
func ownerOf(owner metav1.Object, kind string) metav1.OwnerReference {
	ref := *metav1.NewControllerRef(owner, v1alpha1.SchemeGroupVersion.WithKind(kind))
	// Blocking would need the right to update the owner's finalizers on clusters that check it.
	ref.BlockOwnerDeletion = nil
	return ref
}

// userOf is an owner beside the one that the object was made for.
func userOf(user metav1.Object, kind string) *metav1.OwnerReference {
	ref := ownerOf(user, kind)
	ref.Controller = nil
	return &ref
}
