package main

import (
	"slices"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/controlplane"
	"github.com/slurmtide/slurmtide/kube/pods"
)

// Names of roles, as in docs/examples and in the charts.
const (
	controllerRole = "slurmtide-controller"
	hostsRole      = "slurmtide-controller-hosts"
	bridgeRole     = "slurmtide-bridge"
	scalerRole     = "slurmtide-scaler"
)

// suites are the rights that each suite of hack/integration.sh is to use. Each right is of one suite: TestSuites holds them to the manifests. The verb "bind" is left out,
// for which there is no request: the API server asks for it when a RoleBinding is made.
var suites = map[string]rights{
	"charts": {scalerRole: of([]pods.Right{{Group: v1alpha1.GroupName, Resource: "nodesets", Verbs: []string{"list", "watch"}}})},
	"control-plane": {
		bridgeRole:     of(pods.ClaimRights()),
		controllerRole: of(controlplane.Rights(), []pods.Right{{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"create", "get", "update"}}}),
		hostsRole:      of(controlplane.HostRights()),
	},
	"integration": {bridgeRole: of(pods.Rights(), pods.RoomRights(), pods.ClusterRights())},
}

// rights are "verb resource.group/subresource", by the name of the role that gives them. A Role and a ClusterRole of one name are one.
type rights map[string]map[string]bool

func of(lists ...[]pods.Right) map[string]bool {
	all := map[string]bool{}
	for _, right := range slices.Concat(lists...) {
		for _, verb := range right.Verbs {
			all[verb+" "+right.String()] = true
		}
	}
	return all
}

func (r rights) add(role, verb string, on pods.Right) {
	if r[role] == nil {
		r[role] = map[string]bool{}
	}
	r[role][verb+" "+on.String()] = true
}
