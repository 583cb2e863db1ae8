package controlplane

import (
	"context"
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
			f, err := follow(set, test.hosts, !test.theirs)
			require.NoError(t, err)
			assert.Equal(t, following{test.names, test.usable}, f)
		})
	}
	bad := nodeSet("hosts", "", onHosts)
	in("a b")(bad)
	_, err := follow(bad, []*corev1.Node{host("w-1")}, true)
	assert.ErrorContains(t, err, "spec.template.spec.affinity.nodeAffinity: ")
}

func TestNamesAreOurs(t *testing.T) {
	managers := func(names ...string) (all []metav1.ManagedFieldsEntry) {
		for _, name := range names {
			all = append(all, metav1.ManagedFieldsEntry{Manager: name})
		}
		return all
	}
	for name, test := range map[string]struct {
		names    string
		managers []metav1.ManagedFieldsEntry
		want     bool
	}{
		"none":     {"", managers("helm"), true},
		"ours":     {"w-1", managers(hostsManager), true},
		"theirs":   {"w-1", managers("kubectl-edit"), false},
		"of both":  {"w-1", managers(hostsManager, "kubectl"), false},
		"nobody's": {"w-1", nil, false},
	} {
		set := nodeSet("hosts", test.names, nil)
		set.ManagedFields = test.managers
		assert.Equal(t, test.want, namesAreOurs(set), name)
	}
}

// hostsLoop runs a Loop in the bubble until the test ends.
func hostsLoop(t *testing.T, kube *fake.Clientset, set *v1alpha1.NodeSet) *tidefake.Clientset {
	t.Helper()
	setCondition(&set.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "Valid"}, 1) // a bridge elsewhere
	tide := tidefake.NewSimpleClientset(set)
	tide.PrependReactor("update", "nodesets", func(a kubetesting.Action) (bool, runtime.Object, error) { // as an API server does: of the status subresource nothing but the status counts
		update, ok := a.(kubetesting.UpdateAction)
		sent, is := update.GetObject().(*v1alpha1.NodeSet)
		if !ok || !is || a.GetSubresource() != "status" {
			return false, nil, nil
		}
		live, err := tide.Tracker().Get(a.GetResource(), sent.Namespace, sent.Name)
		if err != nil {
			return true, nil, err
		}
		next, _ := live.DeepCopyObject().(*v1alpha1.NodeSet)
		next.Status = sent.Status
		return true, next, tide.Tracker().Update(a.GetResource(), next, next.Namespace)
	})
	l := newLoop(kube, tide, dynamicfake.NewSimpleDynamicClient(scheme.Scheme), Options{Settings: settings, Workers: 1})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return tide
}

func getHosts(t *testing.T, tide *tidefake.Clientset) (set *v1alpha1.NodeSet, reason string) {
	t.Helper()
	set, err := tide.SlurmtideV1alpha1().NodeSets("slurm").Get(t.Context(), "hosts", metav1.GetOptions{})
	require.NoError(t, err)
	if one := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionHostsFollowed); one != nil {
		reason = one.Reason
	}
	return set, reason
}

// Names and replicas follow hosts, and nothing is written while those stay as they are.
func TestHostsAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset(host("w-1"), host("x", unlabelled))
		tide := hostsLoop(t, kube, nodeSet("hosts", "", func(s *v1alpha1.NodeSet) {
			onHosts(s)
			s.Spec.EachHost.AlwaysOn, s.Spec.Replicas = true, new(int32(0))
		}))
		nodes := kube.CoreV1().Nodes()
		for _, step := range []struct {
			name     string
			do       func() error
			names    string
			replicas int32
			reason   string
			writes   int // of the spec
		}{
			{"it begins", func() error { return nil }, "w-1", 1, "Following", 2}, // the second from a cache that is behind: an API server refuses it
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
			tide.ClearActions()
			require.NoError(t, step.do(), step.name)
			time.Sleep(3 * resyncEvery)
			set, reason := getHosts(t, tide)
			assert.Equal(t, step.names, set.Spec.NodeNames, step.name)
			assert.Equal(t, step.replicas, *set.Spec.Replicas, step.name)
			assert.Equal(t, step.reason, reason, step.name)
			var specs, statuses int
			for _, action := range tide.Actions() {
				switch {
				case action.GetResource().Resource != "nodesets":
				case action.GetVerb() == "patch" && action.GetSubresource() == "":
					specs++
				case action.GetVerb() == "update":
					statuses++
				}
			}
			assert.LessOrEqual(t, specs, step.writes, step.name)
			assert.LessOrEqual(t, statuses, step.writes, step.name)
		}
	})
}

// Hosts are not read unless somebody wants it, and names that a user has written stay as they are.
func TestHostsAreNotRead(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.NodeSet){
		"no eachHost":      func(s *v1alpha1.NodeSet) { s.ManagedFields = nil },
		"the user's names": func(s *v1alpha1.NodeSet) { onHosts(s); s.ManagedFields[0].Manager = "kubectl" },
		"no longer ours": func(s *v1alpha1.NodeSet) {
			onHosts(s)
			s.ManagedFields[0].Manager = "kubectl"
			setCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionHostsFollowed, Reason: "Following", Status: metav1.ConditionTrue}, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kube := fake.NewClientset(host("w-1"))
				tide := hostsLoop(t, kube, nodeSet("hosts", "w-[5-6]", change))
				time.Sleep(3 * resyncEvery)
				set, reason := getHosts(t, tide)
				assert.Equal(t, "w-[5-6]", set.Spec.NodeNames)
				assert.Empty(t, reason)
				for _, action := range kube.Actions() {
					assert.NotEqual(t, "nodes", action.GetResource().Resource)
				}
			})
		})
	}
}

// Without the right to read hosts the NodeSet says which one is missing; with it everything goes on by itself.
func TestHostsMayNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset(host("w-1"))
		allowed := false
		refuse := func(kubetesting.Action) error {
			if allowed {
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
		set, reason := getHosts(t, tide)
		assert.Equal(t, "Forbidden", reason)
		assert.Empty(t, set.Spec.NodeNames)
		assert.Contains(t, meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionHostsFollowed).Message, "may not list and watch nodes")
		assert.Contains(t, meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionHostsFollowed).Message, "controller.hosts.enabled")
		allowed = true
		time.Sleep(3 * resyncEvery)
		set, reason = getHosts(t, tide)
		assert.Equal(t, "Following", reason)
		assert.Equal(t, "w-1", set.Spec.NodeNames)
	})
}
