package pods

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/slurmtide/slurmtide/powersave"
)

// ErrorClass says what has to happen before the same call can succeed.
type ErrorClass string

// Classes of errors.
const (
	// Transient: nothing; later it may work. The call may have been carried out all the same.
	Transient ErrorClass = "transient"
	// Conflict: the pod that has the name must go first; see Error.Existing.
	Conflict ErrorClass = "conflict"
	// Quota: a ResourceQuota must be raised, or other pods go.
	Quota ErrorClass = "quota"
	// Limit: a LimitRange or ResourceQuota refuses the pod whatever others use: it or spec.template must be changed.
	Limit ErrorClass = "limit"
	// Forbidden: the RBAC rights or credentials of the bridge must be fixed.
	Forbidden ErrorClass = "forbidden"
	// Invalid: the NodeSet, the namespace or an admission policy must be changed.
	Invalid ErrorClass = "invalid"
)

// Error is what a call to Kubernetes failed with.
type Error struct {
	Class ErrorClass
	// Doing is the call, as in "creating pod cpu-0".
	Doing string
	// Hint says what to do; may be empty.
	Hint string
	// Existing is the pod that has the name already (Conflict of Create). It is nil when that pod
	// is not one of the cluster's: nobody should get the idea to delete it.
	Existing *powersave.Pod
	// Missing lists RBAC rights, each as "verb resource" (Forbidden; empty for bad credentials).
	Missing []string
	// RetryAfter is what the API server asked for; 0: it did not say.
	RetryAfter time.Duration
	Err        error

	elsewhere bool // Invalid is not the pod but the place for it
	ofJob     bool // Invalid is what one job asks for
}

// Error says what was done, what came of it and what to do.
func (e *Error) Error() string {
	text := e.Doing
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	return text
}

// Unwrap returns the API server's error.
func (e *Error) Unwrap() error { return e.Err }

// Permanent reports whether somebody has to change something first. A quota is not permanent: it
// has room again when other nodes are powered down.
func (e *Error) Permanent() bool {
	return e.Class == Forbidden || e.Class == Invalid || e.Class == Limit || e.Class == Conflict && e.Existing == nil
}

// Trouble is the class of the trouble with the pod that was to be created. What is wrong with the API server,
// the namespace, the bridge's rights or one node's name says nothing of other pods, and is none.
func (e *Error) Trouble() powersave.Trouble {
	switch {
	case e.Class == Quota, e.Class == Limit:
		return powersave.TroubleQuota
	case e.Class == Invalid && !e.elsewhere:
		return powersave.TroubleConfig
	}
	return powersave.TroubleNone
}

// Everywhere reports whether the call would fail for every other pod of the namespace as well, whatever its NodeSet says.
func (e *Error) Everywhere() bool { return e.Class == Forbidden || e.elsewhere }

// OfJob reports whether it is a job that asks for what cannot be had, and nothing is wrong with a NodeSet.
func (e *Error) OfJob() bool { return e.ofJob }

// ExistingPod returns Existing.
func (e *Error) ExistingPod() (powersave.Pod, bool) {
	if e.Existing == nil {
		return powersave.Pod{}, false
	}
	return *e.Existing, true
}

// IsTransient reports whether the call may work later without anybody doing anything.
func IsTransient(err error) bool { return hasClass(err, Transient) }

// IsConflict reports whether another pod has the name.
func IsConflict(err error) bool { return hasClass(err, Conflict) }

// IsQuota reports whether a quota is used up.
func IsQuota(err error) bool { return hasClass(err, Quota) }

// IsForbidden reports whether the bridge lacks a right.
func IsForbidden(err error) bool { return hasClass(err, Forbidden) }

// IsInvalid reports whether the object or the place for it is wrong.
func IsInvalid(err error) bool { return hasClass(err, Invalid) }

func hasClass(err error, class ErrorClass) bool {
	var e *Error
	return errors.As(err, &e) && e.Class == class
}

// classify wraps an error of client-go. right is the RBAC right the call needs.
func classify(err error, doing, right, namespace string) *Error {
	e := &Error{Class: Transient, Doing: doing, Err: err}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	switch {
	case apierrors.IsUnauthorized(err):
		e.Class = Forbidden
		e.Hint = "the API server does not accept the bridge's credentials: check the service account token or the kubeconfig"
	case apierrors.IsForbidden(err) && isRBAC(err) && rolesUnread.MatchString(err.Error()):
		e.Hint = "the API server has just started and has not read its roles yet"
	case apierrors.IsForbidden(err) && isRBAC(err):
		e.Class = Forbidden
		e.Missing = []string{right}
		e.Hint = fmt.Sprintf("the right %q is missing in namespace %s: add it to the Role of the bridge's service account", right, namespace)
	case apierrors.IsForbidden(err) && quotaMessage.MatchString(err.Error()):
		e.Class = Quota
		e.Hint = "raise the ResourceQuota of the namespace or make room in it"
	case apierrors.IsForbidden(err) && limitMessage.MatchString(err.Error()):
		e.Class = Limit
		e.Hint = "change the LimitRange or ResourceQuota of the namespace, or the resources in spec.template of the NodeSet"
	case apierrors.HasStatusCause(err, "NamespaceTerminating"):
		e.Class, e.elsewhere = Invalid, true
		e.Hint = "the namespace is being deleted"
	case apierrors.IsForbidden(err):
		// Pod Security, a policy webhook: the API server's text says which.
		e.Class = Invalid
		e.Hint = "an admission policy refuses the pod: change the policy or spec.template of the NodeSet"
		if strings.Contains(err.Error(), "error looking up service account") {
			e.Hint = "create the service account or change spec.template of the NodeSet"
		}
	case apierrors.IsNotFound(err):
		e.Class, e.elsewhere = Invalid, true
		e.Hint = "check that namespace " + namespace + " exists and that the chart slurmtide-crds is installed"
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsMethodNotSupported(err), apierrors.IsUnsupportedMediaType(err):
		e.Class = Invalid
		e.Hint = "correct spec.template of the NodeSet"
	case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook"):
		e.Hint = "an admission webhook does not answer: repair it, or let it be ignored when it fails"
	case isUnreachable(err):
		e.Hint = "the API server cannot be reached"
	}
	return e
}

// isRBAC tells the authorizer's 403 from those of admission plugins, which share reason and code.
// The authorizer's message is built by the API server's responsewriters.ForbiddenStatusError.
func isRBAC(err error) bool { return rbacMessage.MatchString(err.Error()) }

// rolesUnread matches refusals of an API server that answers before it has read its roles: it misses even those that it makes itself, and
// that every user has.
var rolesUnread = regexp.MustCompile(`RBAC: .*clusterrole\.rbac\.authorization\.k8s\.io "system:(discovery|basic-user|public-info-viewer)" not found`)

var rbacMessage = regexp.MustCompile(`cannot [a-z]+ (resource|path) "`)

// Messages of the admission plugins ResourceQuota and LimitRanger, which have no reason of their own.
var (
	quotaMessage = regexp.MustCompile(`exceeded quota: |status unknown for quota: `)
	limitMessage = regexp.MustCompile(`(minimum|maximum) \S+ usage per (Pod|Container) is |max limit to request ratio per (Pod|Container) is |failed quota: |insufficient quota to `)
)

func isUnreachable(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Reason != metav1.StatusReasonUnknown {
		return false
	}
	var netErr net.Error
	return errors.As(err, &netErr) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || errors.Is(err, context.DeadlineExceeded)
}
