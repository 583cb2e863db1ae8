package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	names  []string // sorted
	usable int      // so many of their hosts are there, and not cordoned
}

// follow finds them. Whoever has a node keeps it as long as the template selects its host: a taint that comes later takes nobody's node away. Names that are
// not ours stay as they are.
func follow(set *v1alpha1.NodeSet, hosts []*corev1.Node, ours bool) (f following, err error) {
	listed, err := slurmconf.ParseHostlist(set.Spec.NodeNames)
	if err != nil {
		return f, err
	}
	template := &set.Spec.Template.Spec
	selects := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *template})
	if !ours {
		f.names = listed.Expand()
	}
	for _, host := range hosts {
		name, ok := pods.NodeOn(set.Spec.EachHost, host.Name)
		member := ok && listed.Contains(name)
		if ours && ok {
			if member = member || tolerates(template, host); member {
				if member, err = selects.Match(host); err != nil {
					return f, fmt.Errorf("spec.template.spec.affinity.nodeAffinity: %w", err)
				}
			}
			if member {
				f.names = append(f.names, name)
			}
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

// tolerates says that no taint keeps new pods off the host but those by which Kubernetes tells of its state.
func tolerates(template *corev1.PodSpec, host *corev1.Node) bool {
	return !slices.ContainsFunc(host.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(taint.Key, "node.kubernetes.io/") &&
			!slices.ContainsFunc(template.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), &taint, true) })
	})
}

// namesAreOurs says that nobody else has written spec.nodeNames, or that there are none. slim has left the managers of that field alone.
func namesAreOurs(set *v1alpha1.NodeSet) bool {
	theirs := func(m metav1.ManagedFieldsEntry) bool { return m.Manager != hostsManager }
	return set.Spec.NodeNames == "" || len(set.ManagedFields) > 0 && !slices.ContainsFunc(set.ManagedFields, theirs)
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
func (l *Loop) eachHost(ctx context.Context, set, next *v1alpha1.NodeSet, ours bool) (again time.Duration, err error) {
	each := set.Spec.EachHost
	if each == nil || !ours && !each.AlwaysOn {
		meta.RemoveStatusCondition(&next.Status.Conditions, v1alpha1.ConditionHostsFollowed)
		return 0, nil
	}
	is := metav1.Condition{Type: v1alpha1.ConditionHostsFollowed, Status: metav1.ConditionFalse}
	defer func() {
		if err == nil && is.Reason != "" {
			setCondition(&next.Status.Conditions, is, set.Generation)
		}
	}()
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
	f, err := follow(set, hosts, ours)
	switch {
	case err != nil:
		is.Reason, is.Message = "Invalid", err.Error()
		return 0, nil
	case len(f.names) == 0 && each.Domain != "":
		is.Reason, is.Message = "NoHosts", fmt.Sprintf("there is no host that spec.template selects and tolerates, of a name in the domain %s that a node can have", each.Domain)
	case len(f.names) == 0:
		is.Reason, is.Message = "NoHosts", "there is no host that spec.template selects and tolerates, of a name that a node can have: one without dots, or else in spec.eachHost.domain"
	default:
		is.Status, is.Reason = metav1.ConditionTrue, "Following"
		is.Message = fmt.Sprintf("nodes on %d hosts, of which %d are cordoned or gone", len(f.names), len(f.names)-f.usable)
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
		return 0, fmt.Errorf("writing spec.nodeNames and spec.replicas of NodeSet %s: %w", set.Name, err)
	}
	set.ResourceVersion, set.Generation = written.ResourceVersion, written.Generation
	next.ResourceVersion, next.Generation = written.ResourceVersion, written.Generation
	return 0, nil
}
