package pods

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// DefaultGracePeriod is how long the jobs of a pod that others delete may run on when the template does not say, in seconds.
// As long as the cluster autoscaler waits for pods by default (--max-graceful-termination-sec).
const DefaultGracePeriod = 600

// ownGracePeriod is how long a pod has to end that Slurmtide deletes, in seconds. Slurm does not use its node any more, slurmd ends
// at once, and the time counts against SuspendTimeout: a step that hangs must not hold the node.
const ownGracePeriod = int64(powersave.OwnGrace / time.Second)

const (
	annotationSafeToEvict  = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	annotationDoNotDisrupt = "karpenter.sh/do-not-disrupt"
	envPodUID              = "POD_UID"
)

// PodOptions are the settings of a pod that neither the NodeSet nor the node says.
type PodOptions struct {
	// Cluster is the Slurm ClusterName.
	Cluster string
	// ConfServer is slurmd's --conf-server, "host[:port][,host[:port]]". Empty when the image or a
	// volume brings slurm.conf.
	ConfServer string
	// Service is the headless service that gives pods a DNS name (spec.subdomain). May be empty.
	Service string

	// These belong to one boot. Offering is the name of one of the NodeSet's; "" for none.
	Offering string
	// Job is the Slurm job the node is powered up for: its pods want to be near each other. 0: none.
	Job uint32
	// HetJob is the leader of the het job that Job is a component of: the pods of all of them want to be near each other. 0: none.
	HetJob uint32
	// ProvisioningRequest is the name of the request that made room for the pod. May be empty.
	ProvisioningRequest string
	// KeepOff are hosts that the pod must not land on.
	KeepOff []string
}

// Build makes the pod for a boot of one node. generation says which boot of the node it is,
// requestID which request began it.
//
// The template is kept, with these exceptions: name, hostname, subdomain (when there is a
// service), the labels and annotations of package v1alpha1 and the owner are ours, the restart
// policy is Never and no service account token is mounted. The slurmd container's args become
//
//	slurmd -D -b -N <node> [-Z --conf <shape>] [--conf-server <servers>] --instance-id=<pod UID> <the template's args>
//
// with the part about the shape in mode Dynamic only.
// The template's args come last, so that they can add options or override --conf-server; its
// command, if any, stays in front and has to run its arguments, unless it ends in a slurmd itself.
// Its preStop hook waits for jobs to end, and its last words are those of its log, unless the template says otherwise.
// Resources come from the shape where the container does not name them (see defaultResources).
// Node selector and tolerations of the offering are added to the template's, and a pod affinity to the
// other pods of the job, or het job, if the NodeSet has a topology key. With spec.eachHost it runs on the host of its name alone. Hosts that are in a bad condition are excluded.
//
// With ssh sshd runs beside slurmd, started by the postStart hook; with sssdConfRef sssd runs in a container of its own.
//
// The node's own volumes (spec.volumeClaimTemplates) take the place of the template's of the same name.
//
// The error names the field that is wrong; it is the same that Validate reports.
func Build(ns *v1alpha1.NodeSet, node string, generation int64, requestID string, o PodOptions) (*corev1.Pod, error) {
	if err := checkSpec(&ns.Spec); err != nil {
		return nil, fmt.Errorf("NodeSet %s: %w", ns.Name, err)
	}
	if problems := validation.IsDNS1123Label(node); len(problems) > 0 {
		return nil, fmt.Errorf("NodeSet %s: node name %q cannot be a pod name: %s", ns.Name, node, problems[0])
	}
	pod, err := build(ns, node, generation, requestID, o)
	if err == nil {
		addClaims(pod, ns, o.Cluster, node)
	}
	return pod, err
}

func build(ns *v1alpha1.NodeSet, node string, generation int64, requestID string, o PodOptions) (*corev1.Pod, error) {
	template := ns.Spec.Template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      node,
			Namespace: ns.Namespace,
			Labels: labels.Merge(labels.Merge(template.Labels, podLabels(o.Cluster, ns.Name)), labels.Set{
				v1alpha1.LabelNode: node, v1alpha1.LabelRevision: revision(&ns.Spec),
			}),
			Annotations:     labels.Merge(template.Annotations, podAnnotations(generation, requestID)),
			Finalizers:      template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{ownerReference(ns)},
		},
		Spec: template.Spec,
	}
	spec := &pod.Spec
	spec.Hostname = node
	if o.Service != "" {
		spec.Subdomain = o.Service
	}
	spec.RestartPolicy = corev1.RestartPolicyNever
	spec.AutomountServiceAccountToken = new(false)
	if spec.EnableServiceLinks == nil {
		// With it every service of the namespace becomes environment variables of every job.
		spec.EnableServiceLinks = new(false)
	}
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = new(int64(DefaultGracePeriod))
	}

	slurmd := slurmdContainer(spec)
	line := ""
	if ns.Spec.Mode == v1alpha1.ModeDynamic {
		pod.Labels[v1alpha1.LabelMode] = string(v1alpha1.ModeDynamic)
		line = NodeLine(&ns.Spec.Shape)
	}
	args := append(slurmdArgs(node, line, o.ConfServer), slurmd.Args...)
	if n := len(slurmd.Command); n > 0 && path.Base(slurmd.Command[n-1]) == "slurmd" {
		args = args[1:]
	}
	slurmd.Args = args
	letJobsEnd(slurmd, node)
	if slurmd.TerminationMessagePolicy == "" {
		slurmd.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError // why a boot failed is in slurmd's log
	}
	addUsers(pod, &ns.Spec)
	addSSH(pod, ns, node)
	slurmd.Env = append([]corev1.EnvVar{{
		Name:      envPodUID,
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.uid"}},
	}}, slices.DeleteFunc(slurmd.Env, func(e corev1.EnvVar) bool { return e.Name == envPodUID })...)
	defaultResources(slurmd, &ns.Spec.Shape)
	if err := place(pod, ns, o); err != nil {
		return nil, fmt.Errorf("NodeSet %s: %w", ns.Name, err)
	}
	return pod, nil
}

// podLabels are the labels that select the pods of one NodeSet.
func podLabels(cluster, nodeSet string) map[string]string {
	return map[string]string{v1alpha1.LabelCluster: cluster, v1alpha1.LabelNodeSet: nodeSet}
}

func podAnnotations(generation int64, requestID string) map[string]string {
	return map[string]string{
		v1alpha1.AnnotationGeneration: strconv.FormatInt(generation, 10),
		v1alpha1.AnnotationRequest:    requestID,
		// A slurmd pod holds jobs; only Slurm knows when it may go.
		annotationSafeToEvict:  "false",
		annotationDoNotDisrupt: "true",
	}
}

// ownerReference makes Kubernetes delete the pod when its NodeSet is deleted.
func ownerReference(ns *v1alpha1.NodeSet) metav1.OwnerReference {
	owner := *metav1.NewControllerRef(ns, v1alpha1.SchemeGroupVersion.WithKind("NodeSet"))
	// Blocking would need the right to update nodesets/finalizers on clusters that check it.
	owner.BlockOwnerDeletion = nil
	return owner
}

func slurmdArgs(node, line, confServer string) []string {
	args := []string{"slurmd", "-D", "-b", "-N", node}
	if line != "" {
		args = append(args, "-Z", "--conf", line)
	}
	if confServer != "" {
		args = append(args, "--conf-server", confServer)
	}
	return append(args, "--instance-id=$("+envPodUID+")")
}

// reservedArg returns the first argument that would undo what Build sets, or "".
func reservedArg(args []string) string {
	for i, a := range args {
		long, _, _ := strings.Cut(a, "=")
		switch {
		case long == "--instance-id", long == "--conf", i == 0 && a == "slurmd":
			return a
		case len(a) > 1 && a[0] == '-' && a[1] != '-' && strings.ContainsRune("NZbDFC", rune(a[1])):
			return a
		}
	}
	return ""
}

// slurmdContainer returns nil when there is none.
func slurmdContainer(spec *corev1.PodSpec) *corev1.Container {
	for i := range spec.Containers {
		if spec.Containers[i].Name == v1alpha1.ContainerSlurmd {
			return &spec.Containers[i]
		}
	}
	return nil
}
