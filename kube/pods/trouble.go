package pods

import (
	"cmp"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/powersave"
)

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
