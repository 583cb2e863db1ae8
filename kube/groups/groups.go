// Package groups is a client for those groups of Kubernetes' API that Slurmtide uses. client-go's own, for all of them, makes each daemon a third larger,
// in memory too: what reflection may call the linker keeps.
package groups

import (
	"errors"
	"fmt"

	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	eventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	policyv1 "k8s.io/client-go/kubernetes/typed/policy/v1"
	rbacv1 "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Interface is the part of kubernetes.Interface that is there.
type Interface interface {
	AppsV1() appsv1.AppsV1Interface
	AuthorizationV1() authorizationv1.AuthorizationV1Interface
	CoordinationV1() coordinationv1.CoordinationV1Interface
	CoreV1() corev1.CoreV1Interface
	EventsV1() eventsv1.EventsV1Interface
	PolicyV1() policyv1.PolicyV1Interface
	RbacV1() rbacv1.RbacV1Interface
}

type clients struct {
	apps          *appsv1.AppsV1Client
	authorization *authorizationv1.AuthorizationV1Client
	coordination  *coordinationv1.CoordinationV1Client
	core          *corev1.CoreV1Client
	events        *eventsv1.EventsV1Client
	policy        *policyv1.PolicyV1Client
	rbac          *rbacv1.RbacV1Client
}

func (c *clients) AppsV1() appsv1.AppsV1Interface                            { return c.apps }
func (c *clients) AuthorizationV1() authorizationv1.AuthorizationV1Interface { return c.authorization }
func (c *clients) CoordinationV1() coordinationv1.CoordinationV1Interface    { return c.coordination }
func (c *clients) CoreV1() corev1.CoreV1Interface                            { return c.core }
func (c *clients) EventsV1() eventsv1.EventsV1Interface                      { return c.events }
func (c *clients) PolicyV1() policyv1.PolicyV1Interface                      { return c.policy }
func (c *clients) RbacV1() rbacv1.RbacV1Interface                            { return c.rbac }

// New makes a client. Its groups share connections, and the requests per second that config allows.
func New(config *rest.Config) (Interface, error) {
	shared := rest.CopyConfig(config)
	if shared.UserAgent == "" {
		shared.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if shared.RateLimiter == nil && shared.QPS > 0 {
		if shared.Burst < 1 {
			return nil, fmt.Errorf("%v requests per second with a burst of %d: it must be 1 at least", shared.QPS, shared.Burst)
		}
		shared.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(shared.QPS, shared.Burst)
	}
	transport, err := rest.HTTPClientFor(shared)
	if err != nil {
		return nil, err
	}
	c, failed := &clients{}, [7]error{}
	c.apps, failed[0] = appsv1.NewForConfigAndClient(shared, transport)
	c.authorization, failed[1] = authorizationv1.NewForConfigAndClient(shared, transport)
	c.coordination, failed[2] = coordinationv1.NewForConfigAndClient(shared, transport)
	c.core, failed[3] = corev1.NewForConfigAndClient(shared, transport)
	c.events, failed[4] = eventsv1.NewForConfigAndClient(shared, transport)
	c.policy, failed[5] = policyv1.NewForConfigAndClient(shared, transport)
	c.rbac, failed[6] = rbacv1.NewForConfigAndClient(shared, transport)
	if err := errors.Join(failed[:]...); err != nil {
		return nil, err
	}
	return c, nil
}
