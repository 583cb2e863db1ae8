package pods

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/powersave"
)

// maxMessage is how long a message for people gets, in bytes.
const maxMessage = 400

// waitingTrouble is the class of what the kubelet says of a container that waits (kubelet
// images/types.go, kuberuntime_container.go, container/sync_result.go). Reasons it lacks have no class.
var waitingTrouble = map[string]powersave.Trouble{
	"ErrImagePull":               powersave.TroubleImage,
	"ImagePullBackOff":           powersave.TroubleImage,
	"ErrImageNeverPull":          powersave.TroubleImage,
	"InvalidImageName":           powersave.TroubleImage,
	"ImageInspectError":          powersave.TroubleImage,
	"RegistryUnavailable":        powersave.TroubleImage,
	"SignatureValidationFailed":  powersave.TroubleImage,
	"CreateContainerConfigError": powersave.TroubleConfig,
	"CreateContainerError":       powersave.TroubleConfig,
	"PreCreateHookError":         powersave.TroubleConfig,
	"CrashLoopBackOff":           powersave.TroubleCrash,
	"RunContainerError":          powersave.TroubleCrash,
	"PreStartHookError":          powersave.TroubleCrash,
	"PostStartHookError":         powersave.TroubleCrash,
}

// endedTrouble is the class of a whole pod's end, as the kubelet gives it (kubelet lifecycle/predicate.go,
// cm/topologymanager, eviction, nodeshutdown). A host's refusal of a pod that the scheduler
// gave it is the host's: reasons that are in neither table are lost.
var endedTrouble = map[string]powersave.Trouble{
	"TopologyAffinityError":                powersave.TroubleCapacity,
	"VolumeAttachmentLimitExceeded":        powersave.TroubleCapacity,
	"SMTAlignmentError":                    powersave.TroubleConfig,
	"EmptyPodSharedPoolError":              powersave.TroubleConfig,
	"SysctlForbidden":                      powersave.TroubleConfig,
	"AppArmor":                             powersave.TroubleConfig,
	"PodOSNotSupported":                    powersave.TroubleConfig,
	"PodOSSelectorNodeLabelDoesNotMatch":   powersave.TroubleConfig,
	"SupplementalGroupsPolicyNotSupported": powersave.TroubleConfig,
	"InitContainerRestartPolicyForbidden":  powersave.TroubleConfig,
	"FailedNodeDeclaredFeaturesCheck":      powersave.TroubleConfig,
	"DeadlineExceeded":                     powersave.TroubleConfig, // activeDeadlineSeconds of the template
}

func endTrouble(reason, message string) powersave.Trouble {
	switch {
	case strings.HasPrefix(reason, "OutOf"):
		return powersave.TroubleCapacity
	case reason == "Evicted" && ownLimit.MatchString(message):
		return powersave.TroubleCrash
	}
	return cmp.Or(endedTrouble[reason], powersave.TroubleLost)
}

// ownLimit matches evictions for what the pod itself wrote to disk, not for the host's need (kubelet eviction/helpers.go).
var ownLimit = regexp.MustCompile(`exceed(s|ed) (its local ephemeral storage limit|the total limit of containers|the limit)`)

// containerTrouble is the class of a container's end. Of two reasons the runtime or kubelet says only that the
// container was gone when it looked, after the host or the kubelet had been down.
func containerTrouble(t *corev1.ContainerStateTerminated) powersave.Trouble {
	if t.Reason == "ContainerStatusUnknown" || t.Reason == "Unknown" {
		return powersave.TroubleLost
	}
	return powersave.TroubleCrash
}

// missingVolume matches what the scheduler says when no host at all would help (scheduler plugins/volumebinding).
var missingVolume = regexp.MustCompile(`persistentvolumeclaim ".*?" (not found|bound to non-existent persistentvolume)|unbound immediate PersistentVolumeClaims|storageclass\.storage\.k8s\.io ".*?" not found|bound to non-existent pv`)

func schedulingTrouble(reason, message string) powersave.Trouble {
	switch {
	case reason != corev1.PodReasonUnschedulable:
		return powersave.TroubleNone // gated, or an error inside the scheduler
	case missingVolume.MatchString(message):
		return powersave.TroubleConfig
	}
	return powersave.TroubleCapacity
}

// settling matches what looks like a wrong configuration for a moment only: on a host that is new or busy, the kubelet's
// caches fill, volume plugins register, and the runtime is slow.
var settling = regexp.MustCompile(`failed to sync (secret|configmap) cache|object ".*"/".*" not registered|not found in the list of registered CSI drivers|context deadline exceeded|failed to reserve container name`)

func settled(t powersave.Trouble, message string) powersave.Trouble {
	if t == powersave.TroubleConfig && settling.MatchString(message) {
		return powersave.TroubleNone
	}
	return t
}

// sandboxTrouble is the class of a pod sandbox that cannot be made. Most of it is the host's network that is not up
// yet, or broken: nothing tells which.
func sandboxTrouble(message string) powersave.Trouble {
	switch {
	case noRuntime.MatchString(message):
		return powersave.TroubleConfig
	case noAddress.MatchString(message):
		return powersave.TroubleCapacity
	}
	return powersave.TroubleNone
}

var (
	noRuntime = regexp.MustCompile(`no runtime for ".*" is configured|RuntimeHandler ".*" not supported|failed to find runtime handler|runtimeclass.*not found`)
	noAddress = regexp.MustCompile(`failed to assign an IP address|no (free )?IP addresses available|no available IP|IP space exhausted|[Ii]nsufficient IP`)
)

// sentence makes one line for people of what Kubernetes components say: without line breaks,
// transport wrappers and what follows from the rest.
func sentence(message string) string {
	s := strings.Join(strings.Fields(message), " ")
	s = noise.ReplaceAllString(s, "")
	s = requirements.ReplaceAllString(s, " ($1)")
	s = strings.TrimRight(s, " .,;:")
	if len(s) <= maxMessage {
		return s
	}
	// What was done stands first, the cause last.
	const gap = " ... "
	head, tail := s[:maxMessage/3], s[len(s)-(maxMessage-maxMessage/3-len(gap)):]
	return strings.ToValidUTF8(head, "") + gap + strings.ToValidUTF8(tail, "")
}

// lastLine is where a program that logs says why it ended.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

var (
	// The scheduler repeats its counts for preemption, or says that it found nothing to preempt; gRPC says
	// its code; Karpenter lists what DaemonSets take; the event recorder says that it joined events.
	noise = regexp.MustCompile(`[,.]? (no new claims to deallocate, )?preemption: .*$|\. not found$|rpc error: code = \w+ desc = |daemonset overhead=\{[^}]*\}, |^\(combined from similar events\): `)
	// Karpenter lists every requirement, and then in brackets which one cannot be met.
	requirements = regexp.MustCompile(` and requirements .*? \(([^()]*)\)`)
)

// counted sorts a list such as "2 Insufficient cpu, 3 node(s) had taint {a: b}, that the pod didn't tolerate", which the
// autoscaler writes in another order each time.
func counted(list string) string {
	var parts []string
	for item := range strings.SplitSeq(list, ", ") {
		number, _, _ := strings.Cut(item, " ")
		if _, err := strconv.Atoi(number); err != nil && len(parts) > 0 {
			parts[len(parts)-1] += ", " + item
			continue
		}
		parts = append(parts, item)
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
