package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// Right is one RBAC right, as it stands in a Role.
type Right struct {
	Group, Resource, Subresource string
	Verbs                        []string
	Names                        []string // of those objects alone; none: of all
}

// Rights returns all rights a Client needs in its namespace, for CheckAccess and for the chart's Role.
func Rights() []Right {
	return []Right{
		{Resource: "pods", Verbs: []string{"create", "delete", "get", "list", "patch", "watch"}},
		{Group: v1alpha1.GroupName, Resource: "nodesets", Verbs: []string{"list", "watch"}},
		{Group: v1alpha1.GroupName, Resource: "nodesets", Subresource: "status", Verbs: []string{"patch"}},
		{Group: "events.k8s.io", Resource: "events", Verbs: []string{"create", "patch"}},
		{Resource: eventResource, Verbs: []string{"list", "watch"}},                                            // Run works without, and then knows less of why a pod does not start
		{Group: "policy", Resource: "poddisruptionbudgets", Verbs: []string{"create", "get", "patch"}},         // the same
		{Group: "apps", Resource: "controllerrevisions", Verbs: []string{"create", "delete", "list", "patch"}}, // the same
		{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"create", "get", "update"}},         // without it the bridge carries out requests, but does not reconcile
	}
}

// RoomRights are those for NodeSets with spec.boot.provisioningRequest. CheckAccess asks for them when there is one.
func RoomRights() []Right {
	return []Right{
		{Resource: "podtemplates", Verbs: []string{"create", "delete"}},
		{Group: provisioningRequests.Group, Resource: provisioningRequests.Resource, Verbs: []string{"create", "delete", "get", "list"}},
	}
}

// ClusterRights are those outside the namespace. Without them Run works on, see Handler.HostsUnread and CheckHostMarks.
func ClusterRights() []Right {
	return []Right{
		{Resource: hostResource, Verbs: []string{"get", "list", "patch", "watch"}},
		{Group: "events.k8s.io", Resource: eventResource, Verbs: []string{"create", "patch"}}, // those about hosts lie in namespace default
	}
}

// CheckAccess asks the API server about every right in Rights (and RoomRights and ClaimRights, if they are needed) and returns one error that names all that
// are missing. A Transient error means that it could not be asked.
func (c *Client) CheckAccess(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	missing, err := c.MissingRights(ctx, c.known())
	if err != nil {
		return err
	}
	if len(missing) == 0 {
		return nil
	}
	return &Error{
		Class: Forbidden, Doing: "checking the bridge's rights", Missing: missing,
		Err:  errors.New("missing in namespace " + c.namespace + ": " + strings.Join(missing, ", ")),
		Hint: "add them to the Role of the bridge's service account",
	}
}

// MissingRights are the rights in the namespace that the bridge lacks, each as "verb resource": those of Rights, and those of RoomRights and ClaimRights that
// one of the NodeSets needs.
func (c *Client) MissingRights(ctx context.Context, sets []*v1alpha1.NodeSet) (missing []string, err error) {
	rights := Rights()
	if slices.ContainsFunc(sets, func(ns *v1alpha1.NodeSet) bool { return ns.Spec.Boot != nil && ns.Spec.Boot.ProvisioningRequest != nil }) {
		rights = append(rights, RoomRights()...)
	}
	if slices.ContainsFunc(sets, func(ns *v1alpha1.NodeSet) bool {
		return len(ns.Spec.VolumeClaimTemplates) > 0 && whenScaled(&ns.Spec) != v1alpha1.DeleteClaim
	}) {
		rights = append(rights, ClaimRights()...)
	}
	return c.allMissing(ctx, c.namespace, rights)
}

// MissingClusterRights are those of ClusterRights that the bridge lacks.
func (c *Client) MissingClusterRights(ctx context.Context) ([]string, error) {
	return c.allMissing(ctx, "", ClusterRights())
}

func (c *Client) allMissing(ctx context.Context, namespace string, rights []Right) (missing []string, err error) {
	for _, right := range rights {
		some, err := c.missing(ctx, namespace, right)
		if err != nil {
			return nil, err
		}
		missing = append(missing, some...)
	}
	return missing, nil
}

// known are the NodeSets that have been read.
func (c *Client) known() (sets []*v1alpha1.NodeSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodeSets == nil {
		return nil
	}
	for _, obj := range c.nodeSets.List() {
		if ns, ok := obj.(*v1alpha1.NodeSet); ok {
			sets = append(sets, ns)
		}
	}
	return sets
}

// Rules are the rights as a Role or ClusterRole gives them.
func Rules(rights []Right) (rules []rbacv1.PolicyRule) {
	for _, r := range rights {
		resource := r.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{resource}, ResourceNames: r.Names, Verbs: r.Verbs})
	}
	return rules
}

// missing returns the verbs of a right that the bridge lacks, each as "verb resource".
func (c *Client) missing(ctx context.Context, namespace string, right Right) (missing []string, err error) {
	for _, verb := range right.Verbs {
		review, err := c.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Group: right.Group, Resource: right.Resource, Subresource: right.Subresource,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, classify(err, "asking the API server for the bridge's rights", "create selfsubjectaccessreviews.authorization.k8s.io", c.namespace)
		}
		if !review.Status.Allowed {
			missing = append(missing, verb+" "+right.String())
		}
	}
	return missing, nil
}

// String is the resource the way kubectl auth can-i takes it.
func (r Right) String() string {
	name := r.Resource
	if r.Group != "" {
		name = fmt.Sprintf("%s.%s", r.Resource, r.Group)
	}
	if r.Subresource != "" {
		name += "/" + r.Subresource
	}
	return name
}
