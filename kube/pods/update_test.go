package pods

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// goodRevision is that of newNodeSet. Another one from the same spec would have every pod replaced when Slurmtide is upgraded.
const goodRevision = "b54acca034"

// What a pod is made from changes the revision, what else is in the spec does not.
func TestRevision(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.NodeSetSpec)
		same   bool
	}{
		"nothing":       {func(*v1alpha1.NodeSetSpec) {}, true},
		"image":         {func(s *v1alpha1.NodeSetSpec) { s.Template.Spec.Containers[0].Image = "slurmtide/slurm:24.11" }, false},
		"annotation":    {func(s *v1alpha1.NodeSetSpec) { s.Template.Annotations = map[string]string{"restarted": "now"} }, false},
		"an empty list": {func(s *v1alpha1.NodeSetSpec) { s.Template.Spec.Tolerations = []corev1.Toleration{} }, true},
		"memory":        {func(s *v1alpha1.NodeSetSpec) { s.Shape.RealMemory++ }, false},
		"features":      {func(s *v1alpha1.NodeSetSpec) { s.Shape.Features = []string{"fast"} }, true},
		"weight":        {func(s *v1alpha1.NodeSetSpec) { s.Shape.Weight = new(int32(5)) }, true},
		"names":         {func(s *v1alpha1.NodeSetSpec) { s.NodeNames = "cpu-[0-99]" }, true},
		"replicas":      {func(s *v1alpha1.NodeSetSpec) { s.Replicas = new(int32(3)) }, true},
		"offerings":     {func(s *v1alpha1.NodeSetSpec) { s.Offerings = []v1alpha1.Offering{{Name: "spot"}} }, true},
		"strategy": {func(s *v1alpha1.NodeSetSpec) {
			s.UpdateStrategy = &v1alpha1.UpdateStrategy{Type: v1alpha1.UpdateRolling}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNodeSet("cpu", "cpu-[0-9]")
			tc.change(&ns.Spec)
			assert.Equal(t, tc.same, revision(&ns.Spec) == goodRevision)
			pod, err := Build(ns, "cpu-7", 42, "request", PodOptions{Cluster: "tide", Offering: offeringOf(ns)})
			require.NoError(t, err)
			assert.Equal(t, revision(&ns.Spec), Observe(pod).Revision)
			slim, err := slimPod(pod)
			require.NoError(t, err)
			assert.Equal(t, revision(&ns.Spec), Observe(slim.(*corev1.Pod)).Revision, "the watch keeps it")
		})
	}
	fast := newNodeSet("cpu", "cpu-[0-9]")
	fast.Spec.Mode, fast.Spec.Shape.Features = v1alpha1.ModeDynamic, []string{"fast"}
	assert.NotEqual(t, goodRevision, revision(&fast.Spec), "slurmd registers with them")
	// However a quantity is written, it is the same when it has been read.
	one, two := newNodeSet("cpu", "cpu-0"), newNodeSet("cpu", "cpu-0")
	slurmd(one).Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000m")}
	slurmd(two).Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(1, resource.DecimalSI)}
	assert.Equal(t, revision(&two.Spec), revision(&one.Spec))
}

func offeringOf(ns *v1alpha1.NodeSet) string {
	if len(ns.Spec.Offerings) == 0 {
		return ""
	}
	return ns.Spec.Offerings[0].Name
}

// Autoscalers write how many nodes are to be up: that is no new try for what cannot boot. All else may be a repair.
func TestSpecHash(t *testing.T) {
	ns := newNodeSet("cpu", "cpu-[0-9]")
	before := specHash(&ns.Spec)
	assert.Regexp(t, "^[0-9a-f]{10}$", before)
	for name, tc := range map[string]struct {
		change  func(*v1alpha1.NodeSetSpec)
		another bool
	}{
		"replicas":       {func(s *v1alpha1.NodeSetSpec) { s.Replicas = new(int32(5)) }, false},
		"maxPoweredUp":   {func(s *v1alpha1.NodeSetSpec) { s.MaxPoweredUp = new(int32(5)) }, false},
		"replicaWindows": {func(s *v1alpha1.NodeSetSpec) { s.ReplicaWindows = []v1alpha1.ReplicaWindow{{Start: "0 8 * * *"}} }, false},
		"lookAhead":      {func(s *v1alpha1.NodeSetSpec) { s.LookAhead = &v1alpha1.LookAhead{} }, false},
		"image":          {func(s *v1alpha1.NodeSetSpec) { s.Template.Spec.Containers[0].Image = "other" }, true},
		"annotation":     {func(s *v1alpha1.NodeSetSpec) { s.Template.Annotations = map[string]string{"again": "1"} }, true},
		"shape":          {func(s *v1alpha1.NodeSetSpec) { s.Shape.CPUs = 5 }, true},
		"offerings":      {func(s *v1alpha1.NodeSetSpec) { s.Offerings = []v1alpha1.Offering{{Name: "spot"}} }, true},
		"boot":           {func(s *v1alpha1.NodeSetSpec) { s.Boot = &v1alpha1.BootPolicy{Strategy: v1alpha1.Greedy} }, true},
		"backoff":        {func(s *v1alpha1.NodeSetSpec) { s.Backoff = &v1alpha1.BackoffPolicy{Initial: hours(1)} }, true},
		"nodeNames":      {func(s *v1alpha1.NodeSetSpec) { s.NodeNames = "cpu-[0-10]" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			changed := ns.DeepCopy()
			tc.change(&changed.Spec)
			assert.Equal(t, tc.another, specHash(&changed.Spec) != before)
		})
	}
}

func TestRollingUpdate(t *testing.T) {
	most := func(v intstr.IntOrString) *v1alpha1.RollingUpdate { return &v1alpha1.RollingUpdate{MaxUnavailable: &v} }
	for name, tc := range map[string]struct {
		strategy *v1alpha1.UpdateStrategy
		mode     v1alpha1.NodeSetMode
		want     *powersave.RollingUpdate
		problem  string
	}{
		"none":         {},
		"on delete":    {strategy: &v1alpha1.UpdateStrategy{Type: v1alpha1.UpdateOnDelete}},
		"without type": {strategy: &v1alpha1.UpdateStrategy{}},
		"by default":   {strategy: &v1alpha1.UpdateStrategy{Type: v1alpha1.UpdateRolling}, want: &powersave.RollingUpdate{MaxUnavailable: 25, Percent: true}},
		"number":       {strategy: &v1alpha1.UpdateStrategy{Type: v1alpha1.UpdateRolling, RollingUpdate: most(intstr.FromInt32(3))}, want: &powersave.RollingUpdate{MaxUnavailable: 3}},
		"percent": {
			strategy: &v1alpha1.UpdateStrategy{Type: v1alpha1.UpdateRolling, RollingUpdate: most(intstr.FromString("10%"))},
			want:     &powersave.RollingUpdate{MaxUnavailable: 10, Percent: true},
		},
		"nothing": {
			strategy: &v1alpha1.UpdateStrategy{Type: v1alpha1.UpdateRolling, RollingUpdate: most(intstr.FromInt32(0))},
			want:     &powersave.RollingUpdate{}, problem: "maxUnavailable is 0: must be 1 or more, or from 1% to 100%",
		},
		"too much": {
			strategy: &v1alpha1.UpdateStrategy{Type: v1alpha1.UpdateRolling, RollingUpdate: most(intstr.FromString("101%"))},
			want:     &powersave.RollingUpdate{MaxUnavailable: 101, Percent: true}, problem: "maxUnavailable is 101%: must be",
		},
		"a word": {
			strategy: &v1alpha1.UpdateStrategy{Type: v1alpha1.UpdateRolling, RollingUpdate: most(intstr.FromString("some%"))},
			problem:  "maxUnavailable is some%: must be",
		},
		"a number in quotes": {
			strategy: &v1alpha1.UpdateStrategy{Type: v1alpha1.UpdateRolling, RollingUpdate: most(intstr.FromString("3"))},
			want:     &powersave.RollingUpdate{MaxUnavailable: 3}, problem: "maxUnavailable is 3: must be",
		},
		"mode Dynamic": {
			strategy: &v1alpha1.UpdateStrategy{Type: v1alpha1.UpdateRolling}, mode: v1alpha1.ModeDynamic,
			want: &powersave.RollingUpdate{MaxUnavailable: 25, Percent: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNodeSet("cpu", "cpu-[0-9]")
			ns.Spec.UpdateStrategy = tc.strategy
			if tc.mode != "" {
				ns.Spec.Mode = tc.mode
			}
			got := Validate([]*v1alpha1.NodeSet{ns})[0]
			assert.Equal(t, tc.want, got.Rolling)
			if tc.problem == "" {
				assert.Empty(t, got.Problem)
				return
			}
			assert.Contains(t, got.Problem, tc.problem)
		})
	}
}

func TestScheduledUpdate(t *testing.T) {
	most := func(v intstr.IntOrString) *intstr.IntOrString { return &v }
	hours := metav1.Duration{Duration: 2 * time.Hour}
	for name, tc := range map[string]struct {
		scheduled *v1alpha1.ScheduledUpdate
		want      powersave.RollingUpdate
		next      []string // windows after 2026-11-30T00:00:00Z
		problem   string
	}{
		"once": {
			scheduled: &v1alpha1.ScheduledUpdate{Start: "2026-12-01T22:00:00+01:00", Duration: hours},
			want:      powersave.RollingUpdate{MaxUnavailable: 100, Percent: true}, next: []string{"2026-12-01T21:00:00Z", "0001-01-01T00:00:00Z"},
		},
		"again and again": {
			scheduled: &v1alpha1.ScheduledUpdate{Start: "0 2 * * SUN", TimeZone: "Europe/Berlin", Duration: hours, MaxUnavailable: most(intstr.FromInt32(3))},
			want:      powersave.RollingUpdate{MaxUnavailable: 3}, next: []string{"2026-12-06T01:00:00Z", "2026-12-13T01:00:00Z"},
		},
		"no window": {want: powersave.RollingUpdate{MaxUnavailable: 100, Percent: true}, problem: "spec.updateStrategy.scheduled is missing"},
		"nonsense": {
			scheduled: &v1alpha1.ScheduledUpdate{Start: "tomorrow", Duration: hours},
			want:      powersave.RollingUpdate{MaxUnavailable: 100, Percent: true}, problem: "use a time like 2026-12-01T22:00:00Z, or five fields of cron",
		},
		"a day that is not there": {
			scheduled: &v1alpha1.ScheduledUpdate{Start: "0 2 30 2 *", Duration: hours},
			want:      powersave.RollingUpdate{MaxUnavailable: 100, Percent: true}, problem: "there is no day like that of start",
		},
		"two zones": {
			scheduled: &v1alpha1.ScheduledUpdate{Start: "2026-12-01T22:00:00Z", TimeZone: "UTC", Duration: hours},
			want:      powersave.RollingUpdate{MaxUnavailable: 100, Percent: true}, problem: "timeZone: remove it",
		},
		"short": {
			scheduled: &v1alpha1.ScheduledUpdate{Start: "0 2 * * SUN", Duration: metav1.Duration{Duration: time.Second}},
			want:      powersave.RollingUpdate{MaxUnavailable: 100, Percent: true}, problem: "duration is 1s: must be 1m or more",
		},
		"nothing at once": {
			scheduled: &v1alpha1.ScheduledUpdate{Start: "0 2 * * SUN", Duration: hours, MaxUnavailable: most(intstr.FromString("0%"))},
			want:      powersave.RollingUpdate{Percent: true}, next: []string{"2026-12-06T02:00:00Z"}, problem: "scheduled.maxUnavailable is 0%: must be",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNodeSet("cpu", "cpu-[0-9]")
			ns.Spec.UpdateStrategy = &v1alpha1.UpdateStrategy{Type: v1alpha1.UpdateScheduled, Scheduled: tc.scheduled}
			set := Validate([]*v1alpha1.NodeSet{ns})[0]
			assert.Equal(t, tc.want, *set.Rolling)
			require.NotNil(t, set.Window, "else it would be at once")
			if tc.problem == "" {
				assert.Empty(t, set.Problem)
				assert.Equal(t, 2*time.Hour, set.Window.Duration)
			} else {
				assert.Contains(t, set.Problem, tc.problem)
			}
			at := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
			for _, want := range tc.next {
				at = set.Window.Schedule.Next(at)
				assert.Equal(t, want, at.UTC().Format(time.RFC3339))
			}
		})
	}
	ns := newNodeSet("cpu", "cpu-[0-9]")
	ns.Spec.UpdateStrategy = &v1alpha1.UpdateStrategy{Type: v1alpha1.UpdateRolling}
	assert.Nil(t, Validate([]*v1alpha1.NodeSet{ns})[0].Window)
	ns.Spec.Mode = v1alpha1.ModeDynamic
	ns.Spec.UpdateStrategy = &v1alpha1.UpdateStrategy{Type: v1alpha1.UpdateScheduled, Scheduled: &v1alpha1.ScheduledUpdate{Start: "0 2 * * SUN", Duration: hours}}
	assert.Contains(t, Validate([]*v1alpha1.NodeSet{ns})[0].Problem, "type Scheduled needs mode Cloud")
}

func TestRevisionsInStatus(t *testing.T) {
	c, _, tide := testClient(t)
	status := func(u *powersave.UpdateCounts) (v1alpha1.NodeSetStatus, *metav1.Condition) {
		require.NoError(t, c.UpdateStatus(t.Context(), powersave.NodeSetCounts{Name: "cpu", Nodes: 10, Update: u}))
		ns, err := tide.SlurmtideV1alpha1().NodeSets("slurm").Get(t.Context(), "cpu", metav1.GetOptions{})
		require.NoError(t, err)
		require.NoError(t, c.nodeSets.Update(ns))
		return ns.Status, meta.FindStatusCondition(ns.Status.Conditions, v1alpha1.ConditionUpdated)
	}
	s, updated := status(nil)
	assert.Nil(t, updated, "nothing is known yet")
	assert.Empty(t, s.UpdateRevision)

	s, updated = status(&powersave.UpdateCounts{Revision: "r2", Current: "r1", Updated: 2, Outdated: 3, Replacing: 1, Why: powersave.UpdateReplacing, Text: "1 of at most 1 nodes are out for it"})
	assert.Equal(t, []any{"r2", "r1", int32(2), int32(3), int32(1)}, []any{s.UpdateRevision, s.CurrentRevision, s.UpdatedNodes, s.OutdatedNodes, s.ReplacingNodes})
	assert.Equal(t, metav1.ConditionFalse, updated.Status)
	assert.Equal(t, "Replacing", updated.Reason)
	assert.Equal(t, "3 of 5 pods are not of revision r2: 1 of at most 1 nodes are out for it", updated.Message)

	_, updated = status(&powersave.UpdateCounts{Revision: "r2", Current: "r1", Updated: 2, Outdated: 3, Why: powersave.UpdateUnread, Text: "Slurm cannot be read"})
	assert.Equal(t, metav1.ConditionUnknown, updated.Status)
	assert.Equal(t, "NotRead", updated.Reason)

	const tail = "; not reserved in Slurm: "
	long := strings.Repeat("x", maxNote)
	for _, tc := range []struct{ text, refused, ends string }{
		{"soon", "by hand: scontrol", ": soon" + tail + "by hand: scontrol"},
		{long, "by hand: scontrol", "xx..." + tail + "by hand: scontrol"},
		{"soon", long, ": soon" + tail + `the reason, and what to do, are too long for here: see the log of the bridge, "the window of an update is not reserved in Slurm"`},
		{long, long[:700], "xx..." + tail + long[:700]},
	} {
		_, updated = status(&powersave.UpdateCounts{Revision: "r2", Current: "r1", Outdated: 3, Why: powersave.UpdateScheduled, Text: tc.text, Refused: tc.refused})
		assert.True(t, strings.HasSuffix(updated.Message, tc.ends), updated.Message)
		assert.LessOrEqual(t, len(updated.Message), maxNote)
	}

	s, updated = status(&powersave.UpdateCounts{Revision: "r2", Current: "r2"})
	assert.Equal(t, []any{"r2", "r2", int32(0), int32(0), int32(0)}, []any{s.UpdateRevision, s.CurrentRevision, s.UpdatedNodes, s.OutdatedNodes, s.ReplacingNodes})
	assert.Equal(t, metav1.ConditionTrue, updated.Status)
	assert.Equal(t, "UpToDate", updated.Reason)

	s, _ = status(nil)
	assert.Equal(t, "r2", s.UpdateRevision, "a bridge that has just begun knows no better")
}
