package pods

import (
	"cmp"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/pods/message"
	"github.com/slurmtide/slurmtide/powersave"
)

// story is what the newest events tell of one pod, beyond its own status. Each field is one
// matter; of each the newest event counts, in the order in which the API server took them:
// the clocks of those who report differ.
type story struct {
	scheduling word // by schedulers that do not write a condition
	autoscaler word
	start      word // of volumes and the sandbox, which the status does not show
	late       word // volumes do not come, for a reason that start gives or nobody does
	taken      word // the pod is being removed for others, or with its host
	// scaleUp is when the autoscaler began to make a host, repeated when it last said so, gaveUp when it
	// last said the opposite.
	scaleUp, repeated, gaveUp time.Time
	pull                      string // as powersave.Pod has it
}

// word is one matter's newest event.
type word struct {
	verdict
	version string
}

// newer reports whether an event of this version comes after the word. Versions that cannot be compared
// count as new: they come in order.
func (w *word) newer(version string) bool {
	order, err := resourceversion.CompareResourceVersion(w.version, version)
	return err != nil || order <= 0
}

// hear takes in an event, in any order, and again.
func (s *story) hear(e *corev1.Event) {
	w, matter := word{version: e.ResourceVersion}, (*word)(nil)
	said := message.Sentence(e.Message)
	growing := false
	switch e.Reason {
	case "Pulled":
		if e.InvolvedObject.FieldPath == "spec.containers{"+v1alpha1.ContainerSlurmd+"}" {
			s.pull = cmp.Or(pulled(e.Message), s.pull)
		}
	case "TriggeredScaleUp", "Nominated": // cluster-autoscaler; Karpenter
		matter, growing = &s.autoscaler, true
		w.verdict = verdict{reason: e.Reason, message: "a host is on its way: " + after(said, "scale-up: ", "schedule on: ")}
	case "NotTriggerScaleUp", "FailedScaleUp":
		matter = &s.autoscaler
		w.verdict = verdict{e.Reason, strings.TrimRight("no host is added: "+message.Sorted(after(said, "scale-up: ", "scale-up ", "scale-up")), ": "), powersave.TroubleCapacity}
	case "FailedScheduling":
		if reason, ok := strings.CutPrefix(said, "Failed to schedule pod, "); ok { // Karpenter's words
			matter = &s.autoscaler
			w.verdict = verdict{"FailedScheduling", "no host is added: " + reason, powersave.TroubleCapacity}
		} else {
			matter = &s.scheduling
			w.verdict = verdict{corev1.PodReasonUnschedulable, said, schedulingTrouble(corev1.PodReasonUnschedulable, said)}
		}
	case "FailedMount", "FailedMapVolume", "FailedAttachVolume":
		if strings.HasPrefix(said, "Unable to attach or mount volumes") { // the kubelet's summary every two minutes
			matter = &s.late
			w.verdict = verdict{e.Reason, said, powersave.TroubleNone}
		} else {
			matter = &s.start
			w.verdict = verdict{e.Reason, said, settled(powersave.TroubleConfig, said)}
		}
	case "FailedCreatePodSandBox", "NetworkNotReady", "FailedPrepareDynamicResources":
		matter = &s.start
		w.verdict = verdict{e.Reason, said, sandboxTrouble(said)}
	case "Preempted", "Preempting", "Evicted", "Disrupted": // scheduler; kubelet; kubelet and Karpenter; Karpenter
		matter = &s.taken
		w.verdict = verdict{e.Reason, said, endTrouble(e.Reason, said)}
	case "TaintManagerEviction", "DeviceTaintManagerEviction":
		matter = &s.taken
		if !strings.HasPrefix(said, "Cancelling") {
			w.verdict = verdict{e.Reason, "a taint of its host evicts the pod", powersave.TroubleLost}
		}
	}
	if matter == nil {
		return
	}
	if matter == &s.autoscaler {
		s.scaled(e, growing)
	}
	if matter.newer(e.ResourceVersion) {
		*matter = w
	}
}

// tookToPull finds how long a pull took, in what the kubelet says of it: "Successfully pulled image "x" in 1.2s (3.4s including waiting). …". The
// waiting, for pulls of other images, counts.
var tookToPull = regexp.MustCompile(`" in ([0-9][^ ]*)(?: \(([0-9][^ ]*) including waiting\))?`)

// pulled is the powersave.Pod.Pull that an event tells of.
func pulled(said string) string {
	if strings.Contains(said, "already present on machine") {
		return powersave.PullThere
	}
	if m := tookToPull.FindStringSubmatch(said); m != nil {
		if d, err := time.ParseDuration(cmp.Or(m[2], m[1])); err == nil {
			return d.Round(10 * time.Millisecond).String()
		}
	}
	return ""
}

// scaled keeps the time at which the autoscaler began: an event that is repeated may have begun before it gave up.
func (s *story) scaled(e *corev1.Event, growing bool) {
	first, last := times(e)
	switch {
	case !growing:
		s.gaveUp = later(s.gaveUp, last)
	case s.scaleUp.IsZero():
		s.scaleUp, s.repeated = first, last
	default:
		s.repeated = later(s.repeated, last)
	}
	if !s.scaleUp.After(s.gaveUp) {
		s.scaleUp = s.repeated
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// tell adds to a pod what its status does not say. Anything that the pod has left behind is left out: a host
// makes talk about hosts pointless, and ready volumes make talk about volumes so.
func (s story) tell(p *powersave.Pod, sandboxReady bool) {
	p.Pull = s.pull
	if s.taken.trouble != powersave.TroubleNone && (p.Trouble == powersave.TroubleNone || p.Trouble == powersave.TroubleCrash) {
		p.Reason, p.Message, p.Trouble = s.taken.reason, s.taken.message, s.taken.trouble
		return
	}
	if p.Phase == powersave.PodScheduled && p.Reason == "" && !sandboxReady {
		v := s.start.verdict
		if v.reason == "" {
			v = s.late.verdict
		}
		p.Reason, p.Message, p.Trouble = v.reason, v.message, v.trouble
	}
	if p.Phase != powersave.PodPending {
		return
	}
	if p.Reason == "" {
		p.Reason, p.Message, p.Trouble = s.scheduling.reason, s.scheduling.message, s.scheduling.trouble
	}
	a := s.autoscaler
	if a.reason == "" || p.Trouble != powersave.TroubleNone && p.Trouble != powersave.TroubleCapacity {
		return
	}
	if a.trouble == powersave.TroubleNone {
		p.ScaleUp = s.scaleUp
	} else {
		p.Reason, p.Trouble = a.reason, a.trouble
	}
	p.Message = strings.TrimPrefix(p.Message+"; "+a.message, "; ")
}

// times are when what an event tells of happened first and last. Which fields are set depends on the recorder.
func times(e *corev1.Event) (first, last time.Time) {
	first, last = e.FirstTimestamp.Time, e.LastTimestamp.Time
	if first.IsZero() {
		first = e.EventTime.Time
	}
	if s := e.Series; s != nil {
		last = s.LastObservedTime.Time
	}
	if first.IsZero() {
		first = e.CreationTimestamp.Time
	}
	if last.Before(first) {
		last = first
	}
	return first, last
}

// after cuts off all up to the first of the marks that occurs.
func after(s string, marks ...string) string {
	for _, mark := range marks {
		if _, rest, found := strings.Cut(s, mark); found {
			return rest
		}
	}
	return s
}
