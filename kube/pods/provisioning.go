package pods

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// provisioningRequests is the cluster autoscaler's API. Its Go module would bring much else, so the
// few fields that are needed stand here.
var provisioningRequests = schema.GroupVersionResource{Group: "autoscaling.x-k8s.io", Version: "v1", Resource: "provisioningrequests"}

const (
	provisioningKind    = "ProvisioningRequest"
	provisioningMissing = "the API server has no ProvisioningRequests (autoscaling.x-k8s.io/v1): install the CRD of the cluster autoscaler or remove spec.boot.provisioningRequest"
	// maxPodSets is what the API accepts in one request.
	maxPodSets = 32
	// Reasons of Provisioned. With the first it is False, and the autoscaler tries again later; with the other it is True, and does
	// not mean all pods.
	noCapacity      = "CapacityIsNotFound"
	partialCapacity = "PartialCapacityIsFound"
)

type provisioningSpec struct {
	PodSets               []provisioningPodSet                      `json:"podSets"`
	ProvisioningClassName string                                    `json:"provisioningClassName"`
	Parameters            map[string]v1alpha1.ProvisioningParameter `json:"parameters,omitempty"`
}

type provisioningPodSet struct {
	PodTemplateRef struct {
		Name string `json:"name"`
	} `json:"podTemplateRef"`
	Count int32 `json:"count"`
}

type provisioningRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              provisioningSpec `json:"spec"`
	Status            struct {
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status,omitzero"`
}

// Rooms asks the cluster autoscaler for room, with a ProvisioningRequest for each job.
type Rooms struct {
	client  *Client
	dynamic dynamic.Interface
}

// NewRooms returns a Rooms beside c. It makes no request yet.
func NewRooms(cfg *rest.Config, c *Client) (*Rooms, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = DefaultQPS, DefaultBurst
	d, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client for ProvisioningRequests: %w", err)
	}
	return &Rooms{client: c, dynamic: d}, nil
}

// Ask creates the ProvisioningRequest and a PodTemplate for each of its sets, and returns its name. It may be
// repeated: what exists already for the job and attempt counts as created.
func (r *Rooms) Ask(ctx context.Context, q powersave.RoomRequest) (name string, err error) {
	c := r.client
	name = roomName(c.opts.Cluster, q.Job, q.Attempt)
	doing := "creating ProvisioningRequest " + name
	request, templates, err := r.build(name, q)
	if err != nil {
		e := &Error{Class: Invalid, Err: err}
		errors.As(err, &e) // a NodeSet that is not known may be so only for now
		e.Doing = doing
		return "", e
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	// Templates first: an autoscaler that finds a request without them calls it broken.
	for _, t := range templates {
		_, err := c.kube.CoreV1().PodTemplates(c.namespace).Create(ctx, t, metav1.CreateOptions{FieldManager: fieldManager})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return "", classify(err, "creating PodTemplate "+t.Name, "create podtemplates", c.namespace)
		}
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(request)
	if err != nil {
		return "", fmt.Errorf("%s: %w", doing, err)
	}
	_, err = r.requests().Create(ctx, &unstructured.Unstructured{Object: fields}, metav1.CreateOptions{FieldManager: fieldManager})
	switch {
	case err == nil:
		return name, nil
	case !apierrors.IsAlreadyExists(err):
		failed := classifyRoom(err, doing, "create", c.namespace)
		if failed.Permanent() { // it has not been made, and nobody will drop it
			return "", errors.Join(failed, r.dropTemplates(ctx, name))
		}
		return "", failed
	}
	existing, err := r.requests().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && existing.GetDeletionTimestamp() != nil:
		return "", &Error{Class: Transient, Doing: doing, Err: errors.New("one of that name is going away")}
	case err != nil:
		return "", classifyRoom(err, "reading ProvisioningRequest "+name, "get", c.namespace)
	case existing.GetLabels()[v1alpha1.LabelCluster] != c.opts.Cluster:
		return "", &Error{Class: Conflict, Doing: doing, Err: fmt.Errorf("one of that name exists and does not belong to Slurm cluster %s (label %s)", c.opts.Cluster, v1alpha1.LabelCluster)}
	}
	return name, nil
}

// List returns what has become of every request of the cluster.
func (r *Rooms) List(ctx context.Context) ([]powersave.Room, error) {
	const doing = "listing ProvisioningRequests"
	c := r.client
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	list, err := r.requests().List(ctx, metav1.ListOptions{LabelSelector: labels.Set{v1alpha1.LabelCluster: c.opts.Cluster}.String()})
	if err != nil {
		return nil, classifyRoom(err, doing, "list", c.namespace)
	}
	rooms := make([]powersave.Room, 0, len(list.Items))
	for i := range list.Items {
		var request provisioningRequest
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &request); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", doing, list.Items[i].GetName(), err)
		}
		if request.DeletionTimestamp == nil {
			rooms = append(rooms, roomOf(&request))
		}
	}
	return rooms, nil
}

// Drop deletes a request and its templates. Hosts that were made for it stay as long as pods use them. It may be
// repeated.
func (r *Rooms) Drop(ctx context.Context, name string) error {
	c := r.client
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	obj, err := r.requests().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return r.dropTemplates(ctx, name)
	}
	if err != nil {
		return classifyRoom(err, "reading ProvisioningRequest "+name, "get", c.namespace)
	}
	doing := "deleting ProvisioningRequest " + name
	if obj.GetLabels()[v1alpha1.LabelCluster] != c.opts.Cluster {
		return &Error{Class: Conflict, Doing: doing, Err: fmt.Errorf("it does not belong to Slurm cluster %s (label %s)", c.opts.Cluster, v1alpha1.LabelCluster)}
	}
	var request provisioningRequest
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &request); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	// The request last: it names its templates, and a call that was cut short is repeated.
	for _, set := range request.Spec.PodSets {
		template := set.PodTemplateRef.Name
		err := c.kube.CoreV1().PodTemplates(c.namespace).Delete(ctx, template, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return classify(err, "deleting PodTemplate "+template, "delete podtemplates", c.namespace)
		}
	}
	uid := obj.GetUID()
	err = r.requests().Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return classifyRoom(err, doing, "delete", c.namespace)
	}
	return nil
}

// dropTemplates deletes the templates of a request that does not exist.
func (r *Rooms) dropTemplates(ctx context.Context, name string) error {
	for i := range maxPodSets {
		template := templateName(name, i)
		err := r.client.kube.CoreV1().PodTemplates(r.client.namespace).Delete(ctx, template, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return classify(err, "deleting PodTemplate "+template, "delete podtemplates", r.client.namespace)
		}
	}
	return nil
}

func templateName(request string, i int) string { return fmt.Sprintf("%s-%d", request, i) }

func (r *Rooms) requests() dynamic.ResourceInterface {
	return r.dynamic.Resource(provisioningRequests).Namespace(r.client.namespace)
}

// build makes the request and its templates.
func (r *Rooms) build(name string, q powersave.RoomRequest) (*provisioningRequest, []*corev1.PodTemplate, error) {
	c := r.client
	if q.Job == 0 || len(q.Sets) == 0 {
		return nil, nil, errors.New("a request needs a job and its pods")
	}
	if len(q.Sets) > maxPodSets {
		return nil, nil, &Error{Class: Invalid, ofJob: true, Err: fmt.Errorf("job %d has pods of %d kinds: one request takes %d", q.Job, len(q.Sets), maxPodSets)}
	}
	request := &provisioningRequest{TypeMeta: metav1.TypeMeta{APIVersion: provisioningRequests.GroupVersion().String(), Kind: provisioningKind}}
	var templates []*corev1.PodTemplate
	var first string // the NodeSet that says how to ask
	for i, set := range q.Sets {
		ns, missing := c.nodeSet(set.NodeSet)
		if missing != nil {
			return nil, nil, missing
		}
		if ns.Spec.Boot == nil || ns.Spec.Boot.ProvisioningRequest == nil {
			return nil, nil, fmt.Errorf("NodeSet %s has no spec.boot.provisioningRequest", ns.Name)
		}
		policy := ns.Spec.Boot.ProvisioningRequest
		about := metav1.ObjectMeta{
			Name: name, Namespace: c.namespace, OwnerReferences: []metav1.OwnerReference{ownerReference(ns)},
			Labels:      map[string]string{v1alpha1.LabelCluster: c.opts.Cluster, v1alpha1.LabelJob: strconv.FormatUint(uint64(q.Job), 10)},
			Annotations: map[string]string{v1alpha1.AnnotationGeneration: strconv.FormatInt(q.Attempt, 10)},
		}
		if i == 0 {
			first = ns.Name
			request.ObjectMeta = *about.DeepCopy()
			request.Spec.ProvisioningClassName, request.Spec.Parameters = policy.ClassName, policy.Parameters
		} else if policy.ClassName != request.Spec.ProvisioningClassName {
			return nil, nil, &Error{Class: Invalid, ofJob: true, Err: fmt.Errorf("job %d has nodes of the NodeSets %s and %s, whose spec.boot.provisioningRequest.className differ: make them equal", q.Job, first, ns.Name)}
		}
		o := c.opts.PodOptions
		o.Offering, o.Job, o.KeepOff = set.Offering, q.Job, c.badHosts()
		pod, err := build(ns, "node", q.Attempt, name, o)
		if err != nil {
			return nil, nil, err
		}
		about.Name = templateName(name, i)
		// What tells the pods of a job apart is nothing to the autoscaler.
		pod.Spec.Hostname = ""
		delete(pod.Labels, v1alpha1.LabelNode)
		templates = append(templates, &corev1.PodTemplate{
			ObjectMeta: about,
			Template:   corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec},
		})
		podSet := provisioningPodSet{Count: int32(set.Pods)}
		podSet.PodTemplateRef.Name = about.Name
		request.Spec.PodSets = append(request.Spec.PodSets, podSet)
	}
	return request, templates, nil
}

// roomName is a DNS name; a Slurm cluster's may have underscores.
func roomName(cluster string, job uint32, attempt int64) string {
	return fmt.Sprintf("%s-job-%d-%d", strings.ReplaceAll(cluster, "_", "-"), job, attempt)
}

// roomOf reads the conditions. The later ones of a request's life outrank the earlier, for all of them stay True.
func roomOf(request *provisioningRequest) powersave.Room {
	job, _ := strconv.ParseUint(request.Labels[v1alpha1.LabelJob], 10, 32)
	attempt, _ := strconv.ParseInt(request.Annotations[v1alpha1.AnnotationGeneration], 10, 64)
	room := powersave.Room{Name: request.Name, Job: uint32(job), Attempt: attempt, State: powersave.RoomPending, Created: request.CreationTimestamp.Time}
	for _, s := range []struct {
		condition string
		state     powersave.RoomState
	}{
		{"CapacityRevoked", powersave.RoomRevoked},
		{"BookingExpired", powersave.RoomExpired},
		{"Failed", powersave.RoomFailed},
		{"Provisioned", powersave.RoomProvisioned},
		{"Accepted", powersave.RoomAccepted},
	} {
		c := meta.FindStatusCondition(request.Status.Conditions, s.condition)
		if c != nil && c.Status == metav1.ConditionTrue && c.Reason != partialCapacity {
			room.State, room.Message = s.state, c.Message
			break
		}
	}
	if room.State == powersave.RoomPending || room.State == powersave.RoomAccepted {
		if c := meta.FindStatusCondition(request.Status.Conditions, "Provisioned"); c != nil {
			room.Message = c.Message // why there is no room yet
			room.Refused = c.Reason == noCapacity || c.Reason == partialCapacity
		}
	}
	return room
}

// classifyRoom is classify for an API that many clusters do not have.
func classifyRoom(err error, doing, verb, namespace string) *Error {
	e := classify(err, doing, verb+" "+provisioningRequests.GroupResource().String(), namespace)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		e.Class, e.Hint, e.elsewhere = Invalid, provisioningMissing, true
	case apierrors.IsInvalid(err):
		e.Hint = "correct spec.boot.provisioningRequest of the NodeSet"
	}
	return e
}
