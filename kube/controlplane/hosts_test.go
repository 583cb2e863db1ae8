package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	kubetesting "k8s.io/client-go/testing"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	tidefake "github.com/slurmtide/slurmtide/kube/generated/clientset/versioned/fake"
)

// host is one with the label slurm=yes.
func host(name string, change ...func(*corev1.Node)) *corev1.Node {
	h := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"slurm": "yes"}}}
	for _, one := range change {
		one(h)
	}
	return h
}

func cordoned(h *corev1.Node) {
	h.Spec.Unschedulable = true
	h.Spec.Taints = append(h.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
}

func unlabelled(h *corev1.Node) { h.Labels = nil }

func tainted(effect corev1.TaintEffect) func(*corev1.Node) {
	return func(h *corev1.Node) {
		h.Spec.Taints = append(h.Spec.Taints, corev1.Taint{Key: "example.com/kept", Effect: effect})
	}
}

// onHosts has a NodeSet run on each host with the label.
func onHosts(s *v1alpha1.NodeSet) {
	s.Spec.EachHost = &v1alpha1.EachHost{}
	s.Spec.Template.Spec.NodeSelector = map[string]string{"slurm": "yes"}
	s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: hostsManager, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:nodeNames":{}}}`)}}
}

func TestFollow(t *testing.T) {
	in := func(zones ...string) func(*v1alpha1.NodeSet) {
		return func(s *v1alpha1.NodeSet) {
			s.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: zones}}}},
			}}}
		}
	}
	zone := func(z string) func(*corev1.Node) { return func(h *corev1.Node) { h.Labels["zone"] = z } }
	domain := func(s *v1alpha1.NodeSet) { s.Spec.EachHost.Domain = "ec2.internal" }
	tolerant := func(s *v1alpha1.NodeSet) {
		s.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "example.com/kept", Operator: corev1.TolerationOpExists}}
	}
	for name, test := range map[string]struct {
		change func(*v1alpha1.NodeSet)
		listed string
		theirs bool
		hosts  []*corev1.Node
		names  []string
		usable int
	}{
		"no hosts":                       {},
		"hosts that match":               {hosts: []*corev1.Node{host("w-2"), host("w-1"), host("x", unlabelled)}, names: []string{"w-1", "w-2"}, usable: 2},
		"by affinity, too":               {change: in("west", "north"), hosts: []*corev1.Node{host("w-1", zone("west")), host("w-2", zone("east")), host("w-3")}, names: []string{"w-1"}, usable: 1},
		"names that no node can have":    {hosts: []*corev1.Node{host("w-1.example.com"), host("w_2")}},
		"those of a domain":              {change: domain, hosts: []*corev1.Node{host("w-1"), host("w-2.ec2.internal"), host("w-3.other.internal"), host("a.b.ec2.internal")}, names: []string{"w-2"}, usable: 1},
		"a taint keeps it off":           {hosts: []*corev1.Node{host("w-1", tainted(corev1.TaintEffectNoSchedule)), host("w-2", tainted(corev1.TaintEffectNoExecute)), host("w-3", tainted(corev1.TaintEffectPreferNoSchedule))}, names: []string{"w-3"}, usable: 1},
		"a taint that is tolerated":      {change: tolerant, hosts: []*corev1.Node{host("w-1", tainted(corev1.TaintEffectNoSchedule))}, names: []string{"w-1"}, usable: 1},
		"a taint that came later":        {listed: "w-[1-2]", hosts: []*corev1.Node{host("w-1", tainted(corev1.TaintEffectNoSchedule)), host("w-2")}, names: []string{"w-1", "w-2"}, usable: 2},
		"cordoned":                       {hosts: []*corev1.Node{host("w-1", cordoned), host("w-2")}, names: []string{"w-1", "w-2"}, usable: 1},
		"gone":                           {listed: "w-[1-2]", hosts: []*corev1.Node{host("w-2")}, names: []string{"w-2"}, usable: 1},
		"its label is gone":              {listed: "w-[1-2]", hosts: []*corev1.Node{host("w-1", unlabelled), host("w-2")}, names: []string{"w-2"}, usable: 1},
		"all are gone":                   {listed: "w-[1-2]"},
		"names of the user's":            {theirs: true, listed: "w-[1-3]", hosts: []*corev1.Node{host("w-1"), host("w-2", cordoned), host("w-4")}, names: []string{"w-1", "w-2", "w-3"}, usable: 1},
		"names of the user's, no labels": {theirs: true, listed: "w-1", hosts: []*corev1.Node{host("w-1", unlabelled)}, names: []string{"w-1"}, usable: 1},
	} {
		t.Run(name, func(t *testing.T) {
			set := nodeSet("hosts", test.listed, onHosts)
			if test.change != nil {
				test.change(set)
			}
			f, err := follow(set, test.hosts, nil, !test.theirs)
			require.NoError(t, err)
			assert.Equal(t, following{test.names, test.usable, nil}, f)
		})
	}
	bad := nodeSet("hosts", "", onHosts)
	in("a b")(bad)
	_, err := follow(bad, []*corev1.Node{host("w-1")}, nil, true)
	assert.ErrorContains(t, err, "spec.template.spec.affinity.nodeAffinity: ")
}

// A name is one NodeSet's: with two that select its host it comes to rest with one, which has it then, and the other one says so.
func TestFollowShared(t *testing.T) {
	made := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(after time.Duration, names string, change ...func(*v1alpha1.NodeSet)) *v1alpha1.NodeSet {
		set := nodeSet("other", names, onHosts)
		set.CreationTimestamp = metav1.NewTime(made.Add(after))
		for _, one := range change {
			one(set)
		}
		return set
	}
	elsewhere := func(s *v1alpha1.NodeSet) { s.Spec.Template.Spec.NodeSelector["slurm"] = "no" }
	fixed := func(s *v1alpha1.NodeSet) { s.Spec.EachHost, s.ManagedFields = nil, nil }
	given := func(s *v1alpha1.NodeSet) { s.ManagedFields[0].Manager = "kubectl" }
	domain := func(s *v1alpha1.NodeSet) { s.Spec.EachHost.Domain = "b" }
	bad := func(s *v1alpha1.NodeSet) { s.Spec.Template.Spec.NodeSelector["slurm"] = "a b" }
	going := func(s *v1alpha1.NodeSet) { s.DeletionTimestamp = new(metav1.NewTime(made)) }
	for name, test := range map[string]struct {
		listed string
		other  *v1alpha1.NodeSet
		want   []string // of w-1 and w-2
	}{
		"the older one's, new":             {"", at(-1, ""), nil},
		"this one's, new":                  {"", at(1, ""), []string{"w-1", "w-2"}},
		"of one age, by name":              {"", at(0, ""), []string{"w-1", "w-2"}},
		"the younger one has one":          {"", at(1, "w-1"), []string{"w-2"}},
		"the younger one has fixed ones":   {"", at(1, "w-[0-1]", fixed), []string{"w-2"}},
		"the older one has one, labels go": {"", at(-1, "w-1", elsewhere), []string{"w-2"}},
		"the older one wants one of ours":  {"w-1", at(-1, ""), []string{"w-1"}},
		"both have it, this one is older":  {"w-[1-2]", at(1, "w-1"), []string{"w-1", "w-2"}},
		"both have it, the other is older": {"w-[1-2]", at(-1, "w-1", fixed), []string{"w-2"}},
		"the older one has given names":    {"", at(-1, "x-1", given), []string{"w-1", "w-2"}},
		"the older one goes":               {"", at(-1, "w-1", going), []string{"w-2"}},
		"the older one's of a domain":      {"", at(-1, "", domain), []string{"w-1", "w-2"}},
		"the older one is wrong":           {"", at(-1, "", bad), []string{"w-1", "w-2"}},
		"the older one's are no hostlist":  {"", at(-1, "w-[", fixed), []string{"w-1", "w-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			set := nodeSet("hosts", test.listed, onHosts)
			set.CreationTimestamp = metav1.NewTime(made)
			f, err := follow(set, []*corev1.Node{host("w-1"), host("w-2")}, []*v1alpha1.NodeSet{test.other}, true)
			require.NoError(t, err)
			assert.Equal(t, test.want, f.names)
			assert.Equal(t, len(test.want), f.usable)
			assert.Len(t, f.left["other"], 2-len(test.want))
		})
	}
}

func TestNamesGiven(t *testing.T) {
	managers := func(names ...string) (all []metav1.ManagedFieldsEntry) {
		for _, name := range names {
			all = append(all, metav1.ManagedFieldsEntry{Manager: name})
		}
		return all
	}
	for name, test := range map[string]struct {
		names    string
		managers []metav1.ManagedFieldsEntry
		want     string
	}{
		"none":     {"", managers("helm"), ""},
		"ours":     {"w-1", managers(hostsManager), ""},
		"theirs":   {"w-1", managers("kubectl-edit"), "written by kubectl-edit: take it out"},
		"of both":  {"w-1", managers(hostsManager, "kubectl"), "written by kubectl: take it out"},
		"twice":    {"w-1", managers("velero", "helm", "velero"), "written by helm, velero: take it out"},
		"nobody's": {"w-1", nil, "spec.nodeNames is written already: take it out"},
		// Into that an API server folds the oldest of more than ten (capmanagers.go): nobody can tell whose they were.
		"ancient": {"w-1", managers("ancient-changes"), "written by ancient-changes: take it out"},
	} {
		set := nodeSet("hosts", test.names, nil)
		set.ManagedFields = test.managers
		got := namesGiven(set)
		if assert.Contains(t, got, test.want, name); test.want == "" {
			assert.Empty(t, got, name)
		}
	}
}

// hostsLoop runs a Loop in the bubble until the test ends.
func hostsLoop(t *testing.T, kube *fake.Clientset, sets ...*v1alpha1.NodeSet) *tidefake.Clientset {
	t.Helper()
	tide := strictAPI(t, sets...)
	runLoop(t, kube, tide)
	return tide
}

// strictAPI has NodeSets, and refuses writes as an API server does.
func strictAPI(t *testing.T, sets ...*v1alpha1.NodeSet) *tidefake.Clientset {
	t.Helper()
	tide := tidefake.NewSimpleClientset()
	for _, set := range sets {
		setCondition(&set.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "Valid"}, 1) // a bridge elsewhere
		require.NoError(t, tide.Tracker().Add(set))
	}
	// It refuses who has read another version, counts changes of the spec, and takes nothing but the status for the status.
	versions := 0
	live := func(a kubetesting.Action, name, version string) (*v1alpha1.NodeSet, error) {
		now, err := tide.Tracker().Get(a.GetResource(), a.GetNamespace(), name)
		set, ok := now.(*v1alpha1.NodeSet)
		if err == nil && (!ok || set.ResourceVersion != version) {
			err = apierrors.NewConflict(a.GetResource().GroupResource(), name, errors.New("it has changed"))
		}
		return set, err
	}
	store := func(a kubetesting.Action, set *v1alpha1.NodeSet) (bool, runtime.Object, error) {
		versions++
		set.ResourceVersion = strconv.Itoa(versions)
		return true, set, tide.Tracker().Update(a.GetResource(), set, set.Namespace)
	}
	tide.PrependReactor("update", "nodesets", func(a kubetesting.Action) (bool, runtime.Object, error) {
		update, ok := a.(kubetesting.UpdateAction)
		sent, is := update.GetObject().(*v1alpha1.NodeSet)
		if !ok || !is || a.GetSubresource() != "status" {
			return false, nil, nil
		}
		set, err := live(a, sent.Name, sent.ResourceVersion)
		if err != nil {
			return true, nil, err
		}
		set = set.DeepCopy()
		set.Status = sent.Status
		return store(a, set)
	})
	tide.PrependReactor("patch", "nodesets", func(a kubetesting.Action) (bool, runtime.Object, error) {
		patch, ok := a.(kubetesting.PatchAction)
		if !ok {
			return false, nil, nil
		}
		var sent metav1.PartialObjectMetadata
		if err := json.Unmarshal(patch.GetPatch(), &sent); err != nil {
			return true, nil, err
		}
		if _, err := live(a, patch.GetName(), sent.ResourceVersion); err != nil {
			return true, nil, err
		}
		_, patched, err := kubetesting.ObjectReaction(tide.Tracker())(a)
		set, ok := patched.(*v1alpha1.NodeSet)
		if err != nil || !ok {
			return true, nil, err
		}
		set.Generation++
		return store(a, set)
	})
	return tide
}

func runLoop(t *testing.T, kube *fake.Clientset, tide *tidefake.Clientset) {
	t.Helper()
	l := newLoop(kube, tide, dynamicfake.NewSimpleDynamicClient(scheme.Scheme), Options{Settings: settings, Workers: 1})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

func getHosts(t *testing.T, tide *tidefake.Clientset, name string) (set *v1alpha1.NodeSet, is metav1.Condition) {
	t.Helper()
	set, err := tide.SlurmtideV1alpha1().NodeSets("slurm").Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	if one := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionHostsFollowed); one != nil {
		is = *one
	}
	return set, is
}

// Names and replicas follow hosts, and nothing is written while those stay as they are.
func TestHostsAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset(host("w-1"), host("x", unlabelled))
		tide := hostsLoop(t, kube, nodeSet("hosts", "", func(s *v1alpha1.NodeSet) {
			onHosts(s)
			s.Spec.EachHost.AlwaysOn, s.Spec.Replicas = true, new(int32(0))
		}))
		nodes, before := kube.CoreV1().Nodes(), 0
		for _, step := range []struct {
			name     string
			do       func() error
			names    string
			replicas int32
			reason   string
			writes   int
		}{
			{"it begins", func() error { return nil }, "w-1", 1, "Following", 1},
			{"a host joins", func() error { _, err := nodes.Create(t.Context(), host("w-2"), metav1.CreateOptions{}); return err }, "w-[1-2]", 2, "Following", 1},
			{"a label comes", func() error { _, err := nodes.Update(t.Context(), host("x"), metav1.UpdateOptions{}); return err }, "w-[1-2],x", 3, "Following", 1},
			{"a cordon", func() error {
				_, err := nodes.Update(t.Context(), host("w-1", cordoned), metav1.UpdateOptions{})
				return err
			}, "w-[1-2],x", 2, "Following", 1},
			{"a heartbeat", func() error {
				_, err := nodes.UpdateStatus(t.Context(), host("w-1", cordoned, func(h *corev1.Node) { h.Status.Phase = corev1.NodeRunning }), metav1.UpdateOptions{})
				return err
			}, "w-[1-2],x", 2, "Following", 0},
			{"a host goes", func() error { return nodes.Delete(t.Context(), "w-2", metav1.DeleteOptions{}) }, "w-1,x", 1, "Following", 1},
			{"the others, too", func() error {
				_, err := nodes.Update(t.Context(), host("x", unlabelled), metav1.UpdateOptions{})
				require.NoError(t, err)
				return nodes.Delete(t.Context(), "w-1", metav1.DeleteOptions{})
			}, "", 0, "NoHosts", 2},
		} {
			require.NoError(t, step.do(), step.name)
			time.Sleep(3 * resyncEvery)
			set, is := getHosts(t, tide, "hosts")
			assert.Equal(t, step.names, set.Spec.NodeNames, step.name)
			assert.Equal(t, step.replicas, *set.Spec.Replicas, step.name)
			assert.Equal(t, step.reason, is.Reason, step.name)
			now, _ := strconv.Atoi(set.ResourceVersion)
			assert.LessOrEqual(t, now-before, 2*step.writes, step.name) // one of the spec, one of the status
			before = now
		}
	})
}

// Hosts are not read unless somebody wants it, and names that a user has written stay as they are.
func TestHostsAreNotRead(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.NodeSet)
		reason string
	}{
		"no eachHost": {func(s *v1alpha1.NodeSet) { s.ManagedFields = nil }, ""},
		"eachHost is gone": {func(s *v1alpha1.NodeSet) {
			setCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionHostsFollowed, Reason: "Following", Status: metav1.ConditionTrue}, 1)
		}, ""},
		"the user's names": {func(s *v1alpha1.NodeSet) { onHosts(s); s.ManagedFields[0].Manager = "kubectl" }, "NamesGiven"},
		"no longer ours": {func(s *v1alpha1.NodeSet) {
			onHosts(s)
			s.ManagedFields[0].Manager = "kubectl"
			setCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionHostsFollowed, Reason: "Following", Status: metav1.ConditionTrue}, 1)
		}, "NamesGiven"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kube := fake.NewClientset(host("w-1"))
				tide := hostsLoop(t, kube, nodeSet("hosts", "w-[5-6]", test.change))
				time.Sleep(3 * resyncEvery)
				set, is := getHosts(t, tide, "hosts")
				assert.Equal(t, "w-[5-6]", set.Spec.NodeNames)
				assert.Equal(t, test.reason, is.Reason)
				assert.NotEqual(t, metav1.ConditionTrue, is.Status)
				for _, action := range kube.Actions() {
					assert.NotEqual(t, "nodes", action.GetResource().Resource)
				}
			})
		})
	}
}

// With alwaysOn replicas follow the hosts of names that a user has written, which is told.
func TestHostsOfGivenNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tide := hostsLoop(t, fake.NewClientset(host("w-1"), host("w-2")), nodeSet("hosts", "w-[2-3]", func(s *v1alpha1.NodeSet) {
			onHosts(s)
			s.Spec.EachHost.AlwaysOn, s.ManagedFields[0].Manager = true, "kubectl"
		}))
		time.Sleep(3 * resyncEvery)
		set, is := getHosts(t, tide, "hosts")
		assert.Equal(t, "w-[2-3]", set.Spec.NodeNames)
		assert.Equal(t, int32(1), *set.Spec.Replicas)
		assert.Equal(t, "NamesGiven", is.Reason)
		assert.Contains(t, is.Message, "written by kubectl")
	})
}

// A host that two NodeSets select has a node of one, and of the other when its labels change, at once.
func TestHostsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zone := func(z string) func(*corev1.Node) { return func(h *corev1.Node) { h.Labels["zone"] = z } }
		kube := fake.NewClientset(host("w-1", zone("a")), host("w-2", zone("b")))
		in := func(z string, after time.Duration) func(*v1alpha1.NodeSet) {
			return func(s *v1alpha1.NodeSet) {
				onHosts(s)
				s.CreationTimestamp = metav1.NewTime(time.Now().Add(after))
				if z != "" {
					s.Spec.Template.Spec.NodeSelector["zone"] = z
				}
			}
		}
		tide := hostsLoop(t, kube, nodeSet("all", "", in("", 2*time.Second)), nodeSet("a", "", in("a", 0)), nodeSet("b", "", in("b", time.Second)))
		for _, step := range []struct {
			zone string // of w-1
			want map[string]string
			told string // by all
		}{
			{"a", map[string]string{"a": "w-1", "b": "w-2", "all": ""}, "; left to NodeSet a: w-1; left to NodeSet b: w-2"},
			{"b", map[string]string{"a": "", "b": "w-[1-2]", "all": ""}, "; left to NodeSet b: w-[1-2]"},
			{"a", map[string]string{"a": "w-1", "b": "w-2", "all": ""}, "; left to NodeSet a: w-1; left to NodeSet b: w-2"},
			{"c", map[string]string{"a": "", "b": "w-2", "all": "w-1"}, "nodes on 1 hosts, of which 0 are cordoned or gone; left to NodeSet b: w-2"},
			{"b", map[string]string{"a": "", "b": "w-2", "all": "w-1"}, "; left to NodeSet b: w-2"},
		} {
			_, err := kube.CoreV1().Nodes().Update(t.Context(), host("w-1", zone(step.zone)), metav1.UpdateOptions{})
			require.NoError(t, err)
			time.Sleep(2 * time.Second) // the turn of one of them may be within that: not of all
			got := map[string]string{}
			for name := range step.want {
				set, _ := getHosts(t, tide, name)
				got[name] = set.Spec.NodeNames
			}
			assert.Equal(t, step.want, got, step.zone)
			_, is := getHosts(t, tide, "all")
			assert.Contains(t, is.Message, step.told, step.zone)
		}
	})
}

// What an API server refuses for good is told, and mended by itself.
func TestHostsAreNotWritten(t *testing.T) {
	resource, kind := schema.GroupResource{Group: v1alpha1.GroupName, Resource: "nodesets"}, schema.GroupKind{Group: v1alpha1.GroupName, Kind: "NodeSet"}
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"too many names": {
			apierrors.NewInvalid(kind, "hosts", field.ErrorList{field.TooLong(field.NewPath("spec", "nodeNames"), "", 65536)}),
			[]string{"spec.nodeNames: Too long", "several NodeSets, by spec.template.spec.nodeSelector"},
		},
		"no right": {apierrors.NewForbidden(resource, "hosts", errors.New("cannot patch")), []string{"cannot patch", "to patch nodesets"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := nodeSet("hosts", "", onHosts)
				var refused atomic.Bool
				refused.Store(true)
				tide := strictAPI(t, set)
				tide.PrependReactor("patch", "nodesets", func(kubetesting.Action) (bool, runtime.Object, error) { return refused.Load(), nil, test.err })
				runLoop(t, fake.NewClientset(host("w-1")), tide)
				time.Sleep(3 * resyncEvery)
				_, is := getHosts(t, tide, "hosts")
				assert.Equal(t, "WriteFailed", is.Reason)
				assert.Equal(t, metav1.ConditionFalse, is.Status)
				for _, want := range test.want {
					assert.Contains(t, is.Message, want)
				}
				refused.Store(false)
				time.Sleep(2 * resyncEvery)
				set, is = getHosts(t, tide, "hosts")
				assert.Equal(t, "w-1", set.Spec.NodeNames)
				assert.Equal(t, "Following", is.Reason)
			})
		})
	}
}

// A bridge that has read the NodeSet before us writes the conditions without ours, or as it was: it is there again at once.
func TestHostsAreToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tide := hostsLoop(t, fake.NewClientset(host("w-1")), nodeSet("hosts", "", onHosts))
		time.Sleep(2 * resyncEvery)
		for name, change := range map[string]func(*v1alpha1.NodeSet){
			"gone": func(s *v1alpha1.NodeSet) {
				meta.RemoveStatusCondition(&s.Status.Conditions, v1alpha1.ConditionHostsFollowed)
			},
			"old": func(s *v1alpha1.NodeSet) {
				setCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionHostsFollowed, Status: metav1.ConditionFalse, Reason: "NoHosts"}, 1)
			},
		} {
			for range 3 { // its turn may come once
				set, _ := getHosts(t, tide, "hosts")
				change(set)
				_, err := tide.SlurmtideV1alpha1().NodeSets("slurm").UpdateStatus(t.Context(), set, metav1.UpdateOptions{})
				require.NoError(t, err)
				time.Sleep(2 * time.Second)
				_, is := getHosts(t, tide, "hosts")
				assert.Equal(t, "Following", is.Reason, name)
			}
		}
	})
}

// Without the right to read hosts the NodeSet says which one is missing; with it everything goes on by itself.
func TestHostsMayNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset(host("w-1"))
		var allowed atomic.Bool
		refuse := func(kubetesting.Action) error {
			if allowed.Load() {
				return nil
			}
			return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil)
		}
		kube.PrependReactor("list", "nodes", func(a kubetesting.Action) (bool, runtime.Object, error) {
			err := refuse(a)
			return err != nil, nil, err
		})
		kube.PrependWatchReactor("nodes", func(a kubetesting.Action) (bool, watch.Interface, error) {
			err := refuse(a)
			return err != nil, nil, err
		})
		tide := hostsLoop(t, kube, nodeSet("hosts", "", onHosts))
		time.Sleep(10 * time.Second)
		set, is := getHosts(t, tide, "hosts")
		assert.Equal(t, "Forbidden", is.Reason)
		assert.Empty(t, set.Spec.NodeNames)
		assert.Contains(t, is.Message, "may not list and watch nodes")
		assert.Contains(t, is.Message, "controller.hosts.enabled")
		allowed.Store(true)
		time.Sleep(3 * resyncEvery)
		set, is = getHosts(t, tide, "hosts")
		assert.Equal(t, "Following", is.Reason)
		assert.Equal(t, "w-1", set.Spec.NodeNames)
	})
}
