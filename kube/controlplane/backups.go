package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// AnnotationBackups is how many slurmctlds stand by. On the pods it makes them start anew when that changes: each has a SlurmctldHost line more or
// fewer, and daemons take those only at their start.
const AnnotationBackups = "slurmtide.io/backups"

// ownClaim says that the claim for the state is made here, and not by the StatefulSet, which would make one for each pod.
func ownClaim(p *v1alpha1.Persistence) bool {
	return enabled(p.Enabled) && p.ExistingClaim == "" && slices.Contains(p.AccessModes, corev1.ReadWriteMany)
}

// claimName is the same for both: a StatefulSet that did not share it may have made it.
func claimName(c *v1alpha1.Controller) string { return stateVolume + "-" + PodName(c.Name) }

// withBackups makes the pod one of several.
func withBackups(spec *corev1.PodSpec, c *v1alpha1.Controller) {
	// For the container reconfigure: no RPC has a slurmctld that stands by read its files, SIGHUP does. slurmrestd then is not a container's first
	// process, and ends on SIGTERM.
	spec.ShareProcessNamespace = new(true)
	own := fieldEnv("POD_NAME", "metadata.name")
	for i := range spec.Containers {
		one := &spec.Containers[i]
		for j := range one.VolumeMounts {
			// What is asked of one bridge no other carries out, so each has a spool.
			if m := &one.VolumeMounts[j]; m.Name == stateVolume && m.SubPath == "spool" {
				m.SubPath, m.SubPathExpr = "", "spools/$(POD_NAME)"
				one.Env = append([]corev1.EnvVar{own}, one.Env...)
			}
		}
		switch one.Name {
		case ContainerSlurmrestd:
			one.Lifecycle = nil
		case ContainerSlurmctld:
			for _, probe := range []*corev1.Probe{one.StartupProbe, one.ReadinessProbe} {
				probe.Exec.Command = slices.Insert(probe.Exec.Command, 1, "--standby")
			}
		}
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
				LabelSelector: &metav1.LabelSelector{MatchLabels: controllerLabels(c)}, TopologyKey: corev1.LabelHostname,
			}}},
		}}
	}
}

// podService has the address of one slurmctld of several; see podAddress. It stays when there are fewer: nodes may have slurm.conf from before.
func podService(meta metav1.ObjectMeta, labels map[string]string) *corev1.Service {
	selector := maps.Clone(labels)
	selector[appsv1.StatefulSetPodNameLabel] = meta.Name
	return &corev1.Service{TypeMeta: typeMeta("v1", "Service"), ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Selector: selector, PublishNotReadyAddresses: true,
		Ports: []corev1.ServicePort{{Name: "slurmctld", Port: slurmctldPort, TargetPort: intstr.FromInt32(slurmctldPort), Protocol: corev1.ProtocolTCP}},
	}}
}

// spools moves the first pod's spool, with what is asked for and not done, between where it lies with and without backups. It runs while nobody uses it.
func spools(c *v1alpha1.Controller) string {
	const with, without = "state/spools/$POD_NAME", "state/spool"
	if c.Spec.Backups == 0 {
		return fmt.Sprintf("if [ -d %[1]s ] && [ ! -d %[2]s ]; then mv %[1]s %[2]s; fi; ", with, without)
	}
	return fmt.Sprintf("mkdir -p state/spools; chmod g-s state/spools; chmod 0755 state/spools; if [ \"${POD_NAME##*-}\" = 0 ] && [ -d %[2]s ] && [ ! -d %[1]s ]; then mv %[2]s %[1]s; fi; ", with, without)
}

// spoolOf is the directory of a pod's spool on the state volume, as its init container names it.
func spoolOf(c *v1alpha1.Controller) string {
	if c.Spec.Backups == 0 {
		return "state/spool"
	}
	return "state/spools/$POD_NAME"
}

// sharedClaim makes the claim for a state that several write. Who has one with a template, from before there was this, could not share it.
func (l *Loop) sharedClaim(ctx context.Context, c *v1alpha1.Controller, live *appsv1.StatefulSet) error {
	if c.Spec.Backups > 0 && live != nil && len(live.Spec.VolumeClaimTemplates) > 0 {
		return &Problem{"ClaimNotShared", fmt.Sprintf("StatefulSet %[1]s makes a claim for each pod, and backups need one for all: kubectl delete statefulset %[1]s --cascade=orphan; it is made again, and its pod and claim %[2]s are taken up", live.Name, claimName(c))}
	}
	users := c.Spec.Persistence.ExistingClaim
	if users != "" && c.Spec.Backups == 0 || users == "" && !ownClaim(&c.Spec.Persistence) || live != nil && len(live.Spec.VolumeClaimTemplates) > 0 {
		return nil
	}
	claims := l.kube.CoreV1().PersistentVolumeClaims(c.Namespace)
	have, err := claims.Get(ctx, cmp.Or(users, claimName(c)), metav1.GetOptions{})
	if apierrors.IsNotFound(err) && users != "" {
		return nil // Kubernetes says so of the pods
	}
	if apierrors.IsNotFound(err) {
		claim := claimTemplate(c)
		claim.Name = claimName(c)
		l.o.Metrics.wrote("persistentvolumeclaims")
		if _, err = claims.Create(ctx, &claim, metav1.CreateOptions{FieldManager: FieldManager}); apierrors.IsAlreadyExists(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("making claim %s: %w", claim.Name, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the claim for slurmctld's state: %w", err)
	}
	if c.Spec.Backups > 0 && !slices.Contains(have.Spec.AccessModes, corev1.ReadWriteMany) {
		return &Problem{"ClaimNotShared", fmt.Sprintf("claim %s is there already, with access modes %v: spec.backups needs ReadWriteMany, and a claim keeps its modes; set spec.backups to 0, or copy the state to a claim with that mode and name it in the existingClaim of a new Controller", have.Name, have.Spec.AccessModes)}
	}
	return nil
}

// backupsReady looks at those that are not in control.
func backupsReady(c *v1alpha1.Controller, pods []*corev1.Pod, inControl string) metav1.Condition {
	one := metav1.Condition{Type: v1alpha1.ConditionBackupsReady, Status: metav1.ConditionTrue, Reason: "StandBy"}
	var well, not []string
	for _, name := range podNames(c) {
		i := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Name == name })
		switch {
		case i >= 0 && ready(pods[i], ContainerSlurmctld):
			if name != inControl {
				well = append(well, name)
			}
		case i < 0:
			not = append(not, "there is no pod "+name)
		default:
			said := fmt.Sprintf("slurmctld in pod %s does not answer", name)
			if _, why := trouble(pods[i], ContainerSlurmctld); why != "" {
				said = why
			}
			not = append(not, said)
		}
	}
	one.Message = "slurmctld stands by in " + strings.Join(well, ", ")
	if inControl == "" || len(not) > 0 {
		one.Status, one.Reason, one.Message = metav1.ConditionFalse, "Missing", strings.Join(append(not, well...), "; ")
		if len(not) == 0 {
			one.Reason, one.Message = "Starting", "no slurmctld has told that it is in control"
		} else if len(well) > 0 {
			one.Message = strings.Join(not, "; ") + "; slurmctld stands by in " + strings.Join(well, ", ")
		}
	}
	return one
}

// podInControl is that of the slurmctld that is in control, or was last; without backups, or as long as none has told, the first one's. One that has been
// lost told it once, too: who took over after it counts.
func podInControl(c *v1alpha1.Controller, pods []*corev1.Pod) (pod *corev1.Pod, told bool) {
	since := ""
	for _, p := range pods {
		switch at := reportOf(p).ControlSince; {
		case c.Spec.Backups > 0 && at > since:
			pod, since, told = p, at, true
		case pod == nil && p.Name == PodName(c.Name):
			pod = p
		}
	}
	return pod, told
}

// behind are the pods whose slurmctld answers and has not read a configuration.
func behind(pods []*corev1.Pod, hash string) (names []string) {
	for _, p := range pods {
		if ready(p, ContainerSlurmctld) && reportOf(p).InForce != hash {
			names = append(names, p.Name)
		}
	}
	return names
}
