package controlplane

import (
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/pods"
)

// Rights are those that a Loop needs in the namespaces that it works in. Beside them it has to be allowed to "bind" the bridges' ClusterRole, and
// its daemon needs to create and update leases: in a namespace of its own, or in the only one that it works in.
func Rights() []pods.Right {
	made := []string{"create", "get", "list", "patch", "watch"}
	return []pods.Right{
		{Group: v1alpha1.GroupName, Resource: "accountings", Verbs: []string{"list", "watch"}},
		{Group: v1alpha1.GroupName, Resource: "accountings", Subresource: "status", Verbs: []string{"update"}},
		{Group: v1alpha1.GroupName, Resource: "controllers", Verbs: []string{"list", "watch"}},
		{Group: v1alpha1.GroupName, Resource: "controllers", Subresource: "status", Verbs: []string{"update"}},
		{Group: v1alpha1.GroupName, Resource: "restapis", Verbs: []string{"list", "watch"}},
		{Group: v1alpha1.GroupName, Resource: "restapis", Subresource: "status", Verbs: []string{"update"}},
		{Group: v1alpha1.GroupName, Resource: "loginsets", Verbs: []string{"list", "watch"}},
		{Group: v1alpha1.GroupName, Resource: "loginsets", Subresource: "status", Verbs: []string{"update"}},
		{Group: v1alpha1.GroupName, Resource: "tokens", Verbs: []string{"list", "watch"}},
		{Group: v1alpha1.GroupName, Resource: "tokens", Subresource: "status", Verbs: []string{"update"}},
		{Group: v1alpha1.GroupName, Resource: "nodesets", Verbs: []string{"list", "patch", "watch"}},        // names that follow hosts
		{Group: v1alpha1.GroupName, Resource: "nodesets", Subresource: "status", Verbs: []string{"update"}}, // of those without a Controller, or that follow hosts
		{Resource: "configmaps", Verbs: made},
		{Resource: "services", Verbs: made},
		{Resource: "serviceaccounts", Verbs: made},
		{Resource: "secrets", Verbs: []string{"create", "get", "update"}}, // keys, tokens and slurmdbd.conf; the last two are updated
		{Resource: "pods", Verbs: []string{"list", "patch", "watch"}},
		{Resource: "pods", Subresource: "log", Verbs: []string{"get"}},                  // what slurmdbd says of its database
		{Resource: "persistentvolumeclaims", Verbs: []string{"create", "get", "patch"}}, // for backups, and to enlarge them
		{Group: "apps", Resource: "statefulsets", Verbs: made},
		{Group: "apps", Resource: "deployments", Verbs: made},
		{Group: "rbac.authorization.k8s.io", Resource: "rolebindings", Verbs: made},
		{Group: "events.k8s.io", Resource: "events", Verbs: []string{"create", "patch"}},
		{Resource: "events", Verbs: []string{"list"}},                                                                         // why a pod cannot be made
		{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"list", "watch"}, Names: []string{NamespaceLease}}, // to see which namespaces have a daemon of their own
	}
}

// HostRights are those of a Loop outside of namespaces, for NodeSets with spec.eachHost. Without them it works on, and their condition HostsFollowed says so.
func HostRights() []pods.Right {
	return []pods.Right{{Resource: "nodes", Verbs: []string{"list", "watch"}}}
}

// BridgeRights are those of the bridges' ClusterRole.
func BridgeRights() []pods.Right {
	return append(append(pods.Rights(), pods.RoomRights()...), pods.ClaimRights()...)
}
