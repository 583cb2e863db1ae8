package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/pods"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// NodeSets with spec.eachHost have a node on each host that their template allows. Its names stand in spec.nodeNames, so that all who read those need not know
// of hosts. Who writes names there keeps them: ours are told by the field manager. It is no server-side apply, which would take spec.replicas away again with alwaysOn,
// and cannot take it without force: by its default, 0, it belongs to whoever made the NodeSet.

// hostsManager is who writes what follows hosts.
const hostsManager = "slurmtide-controller-hosts"

// hostsReadWithin is when to look whether hosts have been read.
const hostsReadWithin = time.Second

// following are the nodes of a NodeSet with spec.eachHost.
type following struct {
	names  []string            // sorted
	usable int                 // so many of their hosts are there, and not cordoned
	left   map[string][]string // names that others keep, by their NodeSet
}

// follow finds them. Whoever has a node keeps it as long as the template selects its host: a taint that comes later takes nobody's node away. Names that are
// not ours stay as they are. others are the other NodeSets of the cluster: a name stands in one alone, or the bridge refuses the younger one.
func follow(set *v1alpha1.NodeSet, hosts []*corev1.Node, others []*v1alpha1.NodeSet, ours bool) (f following, err error) {
	c, err := newChooser(set)
	if err != nil {
		return f, err
	}
	if !ours {
		f.names = c.listed.Expand()
	}
	rivals := rivalsOf(set, others)
	for _, host := range hosts {
		name, ok := pods.NodeOn(set.Spec.EachHost, host.Name)
		member := ok && c.listed.Contains(name)
		if ours {
			if name, member, err = c.chooses(host); err != nil {
				return f, err
			}
		}
		if member && ours {
			if other := rivals.keeper(name, host, c.listed.Contains(name)); other != "" {
				if f.left == nil {
					f.left = map[string][]string{}
				}
				f.left[other] = append(f.left[other], name)
				continue
			}
			f.names = append(f.names, name)
		}
		if member && !host.Spec.Unschedulable {
			f.usable++
		}
	}
	if ours {
		slices.Sort(f.names)
	}
	return f, nil
}

// chooser is what a NodeSet with spec.eachHost chooses hosts by.
type chooser struct {
	set     *v1alpha1.NodeSet
	listed  slurmconf.Hostlist
	selects nodeaffinity.RequiredNodeAffinity
}

func newChooser(set *v1alpha1.NodeSet) (c chooser, err error) {
	c.set, c.selects = set, nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: set.Spec.Template.Spec})
	c.listed, err = slurmconf.ParseHostlist(set.Spec.NodeNames)
	return c, err
}

// chooses says whether a host has a node of the NodeSet, as far as the NodeSet has a say, and which.
func (c chooser) chooses(host *corev1.Node) (node string, member bool, err error) {
	node, ok := pods.NodeOn(c.set.Spec.EachHost, host.Name)
	if !ok || !c.listed.Contains(node) && !tolerates(&c.set.Spec.Template.Spec, host) {
		return node, false, nil
	}
	if member, err = c.selects.Match(host); err != nil {
		return node, false, fmt.Errorf("spec.template.spec.affinity.nodeAffinity: %w", err)
	}
	return node, member, nil
}

// tolerates says that no taint keeps new pods off the host but those by which Kubernetes tells of its state.
func tolerates(template *corev1.PodSpec, host *corev1.Node) bool {
	_, repelled := scheduling.FindMatchingUntoleratedTaint(klog.Background(), host.Spec.Taints, template.Tolerations, func(taint *corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(taint.Key, "node.kubernetes.io/")
	}, true)
	return !repelled
}

// namesGiven says that somebody else has written spec.nodeNames; "" if nobody has. slim has left the managers of that field alone.
func namesGiven(set *v1alpha1.NodeSet) string {
	var theirs []string
	for _, m := range set.ManagedFields {
		if m.Manager != hostsManager {
			theirs = append(theirs, m.Manager)
		}
	}
	slices.Sort(theirs)
	switch {
	case set.Spec.NodeNames == "" || len(set.ManagedFields) > 0 && len(theirs) == 0:
		return ""
	case len(theirs) == 0:
		return "spec.nodeNames is written already: take it out, and nodes follow hosts"
	}
	return "spec.nodeNames is written by " + strings.Join(slices.Compact(theirs), ", ") + ": take it out, and nodes follow hosts"
}

// namers are the managers of spec.nodeNames.
func namers(all []metav1.ManagedFieldsEntry) (some []metav1.ManagedFieldsEntry) {
	for _, m := range all {
		if m.FieldsV1 != nil && strings.Contains(m.FieldsV1.GetRawString(), `"f:nodeNames"`) {
			some = append(some, metav1.ManagedFieldsEntry{Manager: m.Manager})
		}
	}
	return some
}

// eachHost has a NodeSet's names, and replicas, follow hosts, and tells of it in a condition of next. set and next get the resourceVersion of what it writes.
// given is what namesGiven says of set.
func (l *Loop) eachHost(ctx context.Context, set, next *v1alpha1.NodeSet, given string) (again time.Duration, err error) {
	each, ours := set.Spec.EachHost, given == ""
	if each == nil {
		meta.RemoveStatusCondition(&next.Status.Conditions, v1alpha1.ConditionHostsFollowed)
		return 0, nil
	}
	is := metav1.Condition{Type: v1alpha1.ConditionHostsFollowed, Status: metav1.ConditionFalse}
	defer func() {
		if is.Reason != "" && (err == nil || lasting(err)) {
			setCondition(&next.Status.Conditions, is, set.Generation)
		}
	}()
	if !ours {
		is.Reason, is.Message = "NamesGiven", given
		if !each.AlwaysOn {
			return 0, nil
		}
	}
	l.readHosts()
	switch {
	case l.unread.is():
		is.Reason, is.Message = "Forbidden", "slurmtide controller may not list and watch nodes, which spec.eachHost follows: bind the ClusterRole slurmtide-controller-hosts of docs/examples/controller.yaml to its "+
			"service account (controller.hosts.enabled of the chart slurmtide), or write spec.nodeNames, and spec.replicas, yourself, without alwaysOn"
		return 0, nil
	case !l.hosts.HasSynced():
		return hostsReadWithin, nil
	}
	var hosts []*corev1.Node
	for _, obj := range l.hosts.GetStore().List() {
		if host, ok := obj.(*corev1.Node); ok {
			hosts = append(hosts, host)
		}
	}
	f, err := follow(set, hosts, l.besides(set), ours)
	switch {
	case err != nil:
		is.Reason, is.Message = "Invalid", err.Error()
		return 0, nil
	case !ours:
	case len(f.names) == 0 && each.Domain != "":
		is.Reason, is.Message = "NoHosts", fmt.Sprintf("there is no host that spec.template selects and tolerates, of a name in the domain %s that a node can have", each.Domain)
	case len(f.names) == 0:
		is.Reason, is.Message = "NoHosts", "there is no host that spec.template selects and tolerates, of a name that a node can have: one without dots, or else in spec.eachHost.domain"
	default:
		is.Status, is.Reason = metav1.ConditionTrue, "Following"
		is.Message = fmt.Sprintf("nodes on %d hosts, of which %d are cordoned or gone", len(f.names), len(f.names)-f.usable)
	}
	for _, other := range slices.Sorted(maps.Keys(f.left)) {
		is.Message += fmt.Sprintf("; left to NodeSet %s: %s", other, shorten(slurmconf.CompressHostlist(f.left[other]), 200))
	}
	spec := map[string]any{}
	if names := slurmconf.CompressHostlist(f.names); ours && names != set.Spec.NodeNames {
		if spec["nodeNames"] = names; names == "" {
			spec["nodeNames"] = nil
		}
	}
	if r := set.Spec.Replicas; each.AlwaysOn && (r == nil || int(*r) != f.usable) {
		spec["replicas"] = f.usable
	}
	if len(spec) == 0 {
		return 0, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": set.UID, "resourceVersion": set.ResourceVersion}, "spec": spec})
	if err != nil {
		return 0, err
	}
	l.o.Metrics.wrote("nodesets")
	written, err := l.tide.SlurmtideV1alpha1().NodeSets(set.Namespace).Patch(ctx, set.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: hostsManager})
	if err != nil {
		err = fmt.Errorf("writing spec.nodeNames and spec.replicas of NodeSet %s: %w", set.Name, err)
		is.Status, is.Reason, is.Message = metav1.ConditionFalse, "WriteFailed", err.Error()+": "+writeHelp(err)
		return 0, err
	}
	set.ResourceVersion, set.Generation = written.ResourceVersion, written.Generation
	next.ResourceVersion, next.Generation = written.ResourceVersion, written.Generation
	return 0, nil
}

// writeHelp is what to do when an API server refuses what follows hosts.
func writeHelp(err error) string {
	if apierrors.IsForbidden(err) {
		return "allow the service account of slurmtide controller to patch nodesets, as the ClusterRole slurmtide-controller of docs/examples/controller.yaml does"
	}
	return "if the names are too many (65536 characters), share out the hosts among several NodeSets, by spec.template.spec.nodeSelector"
}
