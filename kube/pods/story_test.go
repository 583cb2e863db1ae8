package pods

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/slurmtide/slurmtide/powersave"
)

var eventStart = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// eventAt is an event about pod cpu-1 with UID a, as the n-th that the API server took, n seconds after eventStart.
func eventAt(n int, reason, message string) *corev1.Event {
	at := metav1.NewTime(eventStart.Add(time.Duration(n) * time.Second))
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "cpu-1." + strconv.Itoa(n), Namespace: "slurm", ResourceVersion: strconv.Itoa(95 + n)},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "slurm", Name: "cpu-1", UID: "a"},
		Reason:         reason, Message: message, FirstTimestamp: at, LastTimestamp: at, Count: 1,
	}
}

// Messages as components write them.
const (
	insufficient = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
	triggered    = "pod triggered scale-up: [{gke-burst-pool-2 3->4 (max: 10)}]"
	notTriggered = "pod didn't trigger scale-up: 2 node(s) had taint {gpu: yes}, that the pod didn't tolerate, 1 max node group size reached"
	nominated    = "Pod should schedule on: nodeclaim/default-tn8fg"
	karpenter    = `Failed to schedule pod, incompatible with nodepool "default", daemonset overhead={"cpu":"310m","memory":"272Mi","pods":"7"}, no instance type satisfied resources {"cpu":"64310m","pods":"8"} and requirements karpenter.sh/capacity-type In [on-demand], karpenter.sh/nodepool In [default], kubernetes.io/arch In [amd64] (no instance type has enough resources); all available instance types exceed limits for nodepool: "burst"`
	stockout     = "Node scale up in zones us-central1-a associated with this pod failed: GCE out of resources. Pod is at risk of not being scheduled."
	noConfigMap  = `MountVolume.SetUp failed for volume "conf" : configmap "nowhere" not found`
	volumesLate  = "Unable to attach or mount volumes: unmounted volumes=[conf], unattached volumes=[], failed to process volumes=[]: context deadline exceeded"
	noNetwork    = `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "3f1a": plugin type="calico" failed (add): stat /var/lib/calico/nodename: no such file or directory`
	noAddresses  = `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "3f1a": plugin type="aws-cni" name="aws-cni" failed (add): add cmd: failed to assign an IP address to container`
)

func TestStory(t *testing.T) {
	pending := powersave.Pod{Phase: powersave.PodPending}
	unschedulable := powersave.Pod{
		Phase: powersave.PodPending, Reason: "Unschedulable", Message: "0/3 nodes are available: 3 Insufficient cpu", Trouble: powersave.TroubleCapacity,
	}
	scheduled := powersave.Pod{Phase: powersave.PodScheduled, Host: "host-1"}
	pulling := scheduled
	pulling.Reason, pulling.Message, pulling.Trouble = "ErrImagePull", "no such image", powersave.TroubleImage
	ready := powersave.Pod{Phase: powersave.PodReady, Host: "host-1"}
	crashed := powersave.Pod{Phase: powersave.PodFailed, Reason: "Error", Message: "container slurmd ended with exit code 143", Trouble: powersave.TroubleCrash}
	noClaim := powersave.Pod{Phase: powersave.PodPending, Reason: "Unschedulable", Message: "no claim", Trouble: powersave.TroubleConfig}
	repeated := eventAt(30, "TriggeredScaleUp", triggered)
	repeated.FirstTimestamp = metav1.NewTime(eventStart.Add(10 * time.Second))
	byMicroTime := eventAt(0, "Nominated", nominated)
	byMicroTime.FirstTimestamp, byMicroTime.LastTimestamp = metav1.Time{}, metav1.Time{}
	byMicroTime.EventTime = metav1.NewMicroTime(eventStart.Add(4 * time.Second))
	byMicroTime.Series = &corev1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(eventStart.Add(50 * time.Second))}

	for name, tc := range map[string]struct {
		events  []*corev1.Event
		pod     powersave.Pod
		ready   bool // volumes and sandbox are
		reason  string
		message string
		trouble powersave.Trouble
		scaleUp int // seconds; 0: none
	}{
		"nothing heard": {pod: pending},
		"the scheduler's condition stands": {
			events: []*corev1.Event{eventAt(5, "FailedScheduling", insufficient)},
			pod:    unschedulable, reason: "Unschedulable", message: "0/3 nodes are available: 3 Insufficient cpu", trouble: powersave.TroubleCapacity,
		},
		"a scheduler that writes no condition": {
			events: []*corev1.Event{eventAt(5, "FailedScheduling", insufficient)},
			pod:    pending, reason: "Unschedulable", message: "0/3 nodes are available: 3 Insufficient cpu", trouble: powersave.TroubleCapacity,
		},
		"scale-up": {
			events: []*corev1.Event{eventAt(5, "FailedScheduling", insufficient), eventAt(10, "TriggeredScaleUp", triggered)},
			pod:    unschedulable, reason: "Unschedulable", trouble: powersave.TroubleCapacity, scaleUp: 10,
			message: "0/3 nodes are available: 3 Insufficient cpu; a host is on its way: [{gke-burst-pool-2 3->4 (max: 10)}]",
		},
		"no scale-up": {
			events: []*corev1.Event{eventAt(10, "NotTriggerScaleUp", notTriggered)},
			pod:    unschedulable, reason: "NotTriggerScaleUp", trouble: powersave.TroubleCapacity,
			message: "0/3 nodes are available: 3 Insufficient cpu; no host is added: 1 max node group size reached, 2 node(s) had taint {gpu: yes}, that the pod didn't tolerate",
		},
		"no scale-up, and no reasons": {
			events: []*corev1.Event{eventAt(10, "NotTriggerScaleUp", "pod didn't trigger scale-up: ")},
			pod:    pending, reason: "NotTriggerScaleUp", message: "no host is added", trouble: powersave.TroubleCapacity,
		},
		"no scale-up at first": {
			events: []*corev1.Event{eventAt(10, "NotTriggerScaleUp", notTriggered), eventAt(20, "TriggeredScaleUp", triggered)},
			pod:    unschedulable, reason: "Unschedulable", trouble: powersave.TroubleCapacity, scaleUp: 20,
			message: "0/3 nodes are available: 3 Insufficient cpu; a host is on its way: [{gke-burst-pool-2 3->4 (max: 10)}]",
		},
		"the provider has none": {
			events: []*corev1.Event{eventAt(10, "TriggeredScaleUp", triggered), eventAt(60, "FailedScaleUp", stockout)},
			pod:    unschedulable, reason: "FailedScaleUp", trouble: powersave.TroubleCapacity,
			message: "0/3 nodes are available: 3 Insufficient cpu; no host is added: Node scale up in zones us-central1-a associated with this pod failed: GCE out of resources. Pod is at risk of not being scheduled",
		},
		"scale-up again": {
			events: []*corev1.Event{repeated, eventAt(20, "FailedScaleUp", stockout)},
			pod:    unschedulable, reason: "Unschedulable", trouble: powersave.TroubleCapacity, scaleUp: 30,
			message: "0/3 nodes are available: 3 Insufficient cpu; a host is on its way: [{gke-burst-pool-2 3->4 (max: 10)}]",
		},
		"scale-up repeated": {
			events: []*corev1.Event{repeated},
			pod:    unschedulable, reason: "Unschedulable", trouble: powersave.TroubleCapacity, scaleUp: 10,
			message: "0/3 nodes are available: 3 Insufficient cpu; a host is on its way: [{gke-burst-pool-2 3->4 (max: 10)}]",
		},
		"Karpenter nominates, the scheduler goes on refusing": {
			events: []*corev1.Event{byMicroTime, eventAt(20, "FailedScheduling", insufficient)},
			pod:    unschedulable, reason: "Unschedulable", trouble: powersave.TroubleCapacity, scaleUp: 4,
			message: "0/3 nodes are available: 3 Insufficient cpu; a host is on its way: nodeclaim/default-tn8fg",
		},
		"Karpenter has no instance type": {
			events: []*corev1.Event{eventAt(5, "Nominated", nominated), eventAt(20, "FailedScheduling", karpenter), eventAt(21, "FailedScheduling", insufficient)},
			pod:    unschedulable, reason: "FailedScheduling", trouble: powersave.TroubleCapacity,
			message: `0/3 nodes are available: 3 Insufficient cpu; no host is added: incompatible with nodepool "default", no instance type satisfied resources {"cpu":"64310m","pods":"8"} (no instance type has enough resources); all available instance types exceed limits for nodepool: "burst"`,
		},
		"no host helps without the volume": {
			events: []*corev1.Event{eventAt(10, "NotTriggerScaleUp", notTriggered)},
			pod:    noClaim, reason: "Unschedulable", message: "no claim", trouble: powersave.TroubleConfig,
		},
		"it has a host now": {
			events: []*corev1.Event{eventAt(5, "FailedScheduling", insufficient), eventAt(10, "TriggeredScaleUp", triggered), eventAt(20, "NotTriggerScaleUp", notTriggered)},
			pod:    scheduled,
		},
		"volume missing": {
			events: []*corev1.Event{eventAt(10, "FailedMount", noConfigMap)},
			pod:    scheduled, reason: "FailedMount", message: noConfigMap, trouble: powersave.TroubleConfig,
		},
		"volume missing, and the kubelet sums up": {
			events: []*corev1.Event{eventAt(10, "FailedMount", noConfigMap), eventAt(130, "FailedMount", volumesLate)},
			pod:    scheduled, reason: "FailedMount", message: noConfigMap, trouble: powersave.TroubleConfig,
		},
		"volume late, nobody says why": {
			events: []*corev1.Event{eventAt(130, "FailedMount", volumesLate)},
			pod:    scheduled, reason: "FailedMount", message: volumesLate,
		},
		"volume attached elsewhere": {
			events: []*corev1.Event{eventAt(10, "FailedAttachVolume", `Multi-Attach error for volume "pvc-1" Volume is already exclusively attached to one node and can't be attached to another`)},
			pod:    scheduled, reason: "FailedAttachVolume", trouble: powersave.TroubleConfig,
			message: `Multi-Attach error for volume "pvc-1" Volume is already exclusively attached to one node and can't be attached to another`,
		},
		"the kubelet warms up": {
			events: []*corev1.Event{eventAt(10, "FailedMount", `MountVolume.SetUp failed for volume "conf" : failed to sync configmap cache: timed out waiting for the condition`)},
			pod:    scheduled, reason: "FailedMount", message: `MountVolume.SetUp failed for volume "conf" : failed to sync configmap cache: timed out waiting for the condition`,
		},
		"volume there at last": {
			events: []*corev1.Event{eventAt(10, "FailedMount", noConfigMap)},
			pod:    scheduled, ready: true,
		},
		"the status knows better": {
			events: []*corev1.Event{eventAt(10, "FailedMount", noConfigMap)},
			pod:    pulling, reason: "ErrImagePull", message: "no such image", trouble: powersave.TroubleImage,
		},
		"no network": {
			events: []*corev1.Event{eventAt(10, "FailedCreatePodSandBox", noNetwork)},
			pod:    scheduled, reason: "FailedCreatePodSandBox",
			message: `Failed to create pod sandbox: failed to setup network for sandbox "3f1a": plugin type="calico" failed (add): stat /var/lib/calico/nodename: no such file or directory`,
		},
		"no address": {
			events: []*corev1.Event{eventAt(10, "FailedCreatePodSandBox", noAddresses)},
			pod:    scheduled, reason: "FailedCreatePodSandBox", trouble: powersave.TroubleCapacity,
			message: `Failed to create pod sandbox: failed to setup network for sandbox "3f1a": plugin type="aws-cni" name="aws-cni" failed (add): add cmd: failed to assign an IP address to container`,
		},
		"no such runtime": {
			events: []*corev1.Event{eventAt(10, "FailedCreatePodSandBox", `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime for "nvidia" is configured`)},
			pod:    scheduled, reason: "FailedCreatePodSandBox", trouble: powersave.TroubleConfig,
			message: `Failed to create pod sandbox: failed to get sandbox runtime: no runtime for "nvidia" is configured`,
		},
		"running is beyond all that": {
			events: []*corev1.Event{eventAt(5, "FailedScheduling", insufficient), eventAt(10, "FailedMount", noConfigMap), eventAt(11, "Nominated", nominated)},
			pod:    ready,
		},
		"preempted": {
			events: []*corev1.Event{eventAt(10, "Preempted", "Preempted by pod 4d1c64c4 on node host-1")},
			pod:    ready, reason: "Preempted", message: "Preempted by pod 4d1c64c4 on node host-1", trouble: powersave.TroubleLost,
		},
		"a taint evicts": {
			events: []*corev1.Event{eventAt(10, "TaintManagerEviction", "Marking for deletion Pod slurm/cpu-1")},
			pod:    crashed, reason: "TaintManagerEviction", message: "a taint of its host evicts the pod", trouble: powersave.TroubleLost,
		},
		"a taint evicts no more": {
			events: []*corev1.Event{eventAt(10, "TaintManagerEviction", "Marking for deletion Pod slurm/cpu-1"), eventAt(11, "TaintManagerEviction", "Cancelling deletion of Pod slurm/cpu-1")},
			pod:    ready,
		},
		"its own disk limit": {
			events: []*corev1.Event{eventAt(10, "Evicted", `Usage of EmptyDir volume "tmp" exceeds the limit "1Gi". `)},
			pod:    ready, reason: "Evicted", message: `Usage of EmptyDir volume "tmp" exceeds the limit "1Gi"`, trouble: powersave.TroubleCrash,
		},
		"what slurmtide itself records": {
			events: []*corev1.Event{eventAt(10, "Registered", "slurmd registered after 3 s")},
			pod:    pending,
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := tc.pod
			want.Reason, want.Message, want.Trouble = tc.reason, tc.message, tc.trouble
			if tc.scaleUp != 0 {
				want.ScaleUp = eventStart.Add(time.Duration(tc.scaleUp) * time.Second)
			}
			var inOrder story
			for _, e := range tc.events {
				inOrder.hear(e)
			}
			got := tc.pod
			inOrder.tell(&got, tc.ready)
			assert.Equal(t, want, got)
		})
	}
}

// A list after a lost watch repeats events, in the order of their names.
func TestStoryInAnyOrder(t *testing.T) {
	events := []*corev1.Event{
		eventAt(5, "NotTriggerScaleUp", notTriggered), eventAt(10, "TriggeredScaleUp", triggered), eventAt(4, "FailedScheduling", insufficient),
		eventAt(905, "FailedMount", noConfigMap), eventAt(904, "FailedMount", "older"), eventAt(50, "Preempted", "Preempted by a pod on node host-1"),
	}
	var want story
	for _, i := range []int{2, 0, 1, 5, 4, 3} {
		want.hear(events[i])
	}
	assert.Equal(t, 10*time.Second, want.scaleUp.Sub(eventStart))
	assert.Equal(t, noConfigMap, want.start.message)
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		got := want
		for _, i := range r.Perm(len(events)) {
			got.hear(events[i])
		}
		assert.Equal(t, want, got, "a repetition, seed %d", seed)
	}
}

func TestStrangersAreForgotten(t *testing.T) {
	s := newStories()
	s.adopt("a")
	event := eventAt(1, "FailedScheduling", insufficient)
	s.hear(event)
	for i := range 3 * maxStrangers {
		event.InvolvedObject.UID = stranger(i)
		s.hear(event)
	}
	assert.Len(t, s.strange, maxStrangers)
	assert.Len(t, s.order, maxStrangers)
	assert.NotContains(t, s.strange, "stranger-0")
	assert.Equal(t, "Unschedulable", s.known["a"].scheduling.reason)

	last := string(stranger(3*maxStrangers - 1))
	s.adopt(last)
	s.adopt(last)
	assert.Equal(t, "Unschedulable", s.known[last].scheduling.reason, "what came before the pod is kept")
	assert.NotContains(t, s.strange, last)
	s.forget("a")
	assert.NotContains(t, s.known, "a")
	event.InvolvedObject.UID, event.Reason = "b", "Registered"
	s.hear(event)
	assert.NotContains(t, s.strange, "b", "nothing worth keeping")
}

func stranger(i int) types.UID { return types.UID(fmt.Sprintf("stranger-%d", i)) }

func TestStoryOfAnyMessage(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var heard story
		heard.hear(eventAt(1, "FailedScheduling", rapid.String().Draw(r, "message")))
		p := powersave.Pod{Phase: powersave.PodPending}
		heard.tell(&p, false)
		assert.NotEmpty(r, p.Trouble)
	})
}

// The kubelet's words for how slurmd's image came (images/image_manager.go).
func TestHowTheImageCame(t *testing.T) {
	event := func(container, said string) *corev1.Event {
		e := eventAt(1, "Pulled", said)
		e.InvolvedObject.FieldPath = "spec.containers{" + container + "}"
		return e
	}
	const took = `Successfully pulled image "registry/slurmd:26.05" in 1.234567s (12.345678s including waiting). Image size: 148897280 bytes.`
	for name, tt := range map[string]struct {
		events []*corev1.Event
		want   string
	}{
		"it took":            {[]*corev1.Event{event("slurmd", took)}, "12.35s"},
		"without waiting":    {[]*corev1.Event{event("slurmd", `Successfully pulled image "a" in 1m2.5s`)}, "1m2.5s"},
		"it was there":       {[]*corev1.Event{event("slurmd", `Container image "a" already present on machine`)}, powersave.PullThere},
		"and may be used":    {[]*corev1.Event{event("slurmd", `Container image "a" already present on machine and can be accessed by the pod`)}, powersave.PullThere},
		"another container":  {[]*corev1.Event{event("munged", took)}, ""},
		"other words":        {[]*corev1.Event{event("slurmd", took), event("slurmd", "the image is here")}, "12.35s"},
		"a strange duration": {[]*corev1.Event{event("slurmd", `Successfully pulled image "a" in 12 parsecs`)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var s story
			for _, e := range tt.events {
				s.hear(e)
			}
			var p powersave.Pod
			s.tell(&p, false)
			assert.Equal(t, powersave.Pod{Pull: tt.want}, p)
		})
	}
}
