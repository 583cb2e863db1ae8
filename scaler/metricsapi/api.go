// Package metricsapi serves the figures of scaler/external as the API external.metrics.k8s.io/v1beta1, which a plain
// HorizontalPodAutoscaler reads, without KEDA. A Kubernetes cluster has one server of it, and with KEDA that is KEDA's.
//
// It is an API server behind kube-apiserver's aggregation layer: whom kube-apiserver vouches for is let in (Front), and what
// he may read the Authorizer says.
package metricsapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Group and version of the API.
const (
	Group   = "external.metrics.k8s.io"
	Version = "v1beta1"
)

const root = "/apis/" + Group + "/" + Version

// Figures works out a metric; metadata are those of a KEDA trigger. external.Service is one. Its errors are gRPC's.
type Figures interface {
	Figure(ctx context.Context, metadata map[string]string) (float64, error)
	Ready() error
}

// User is who asks.
type User struct {
	Name   string
	Groups []string
}

// Authorizer says who may read. Its errors mean that it cannot tell.
type Authorizer interface {
	Allowed(ctx context.Context, u User, namespace, metric string) (bool, error)
}

// Front tells whom kube-apiserver vouches for.
type Front interface {
	// Authenticate fails if nobody does. Errors are told to the client.
	Authenticate(*http.Request) (User, error)
}

// metrics are their names, as KEDA knows them too, and what they count.
func metrics() map[string]string {
	return map[string]string{"slurm-nodes": "nodes", "slurm-gpus": "gpus", "slurm-cpus": "cpus", "slurm-jobs": "jobs"}
}

// The types of the API, as k8s.io/metrics has them.
type (
	valueList struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []value `json:"items"`
	}
	value struct {
		MetricName   string            `json:"metricName"`
		MetricLabels map[string]string `json:"metricLabels"`
		Timestamp    metav1.Time       `json:"timestamp"`
		Value        resource.Quantity `json:"value"`
	}
)

// Handler serves the API.
type Handler struct {
	Figures    Figures
	Front      Front
	Authorizer Authorizer
	Log        *slog.Logger
	Now        func() time.Time

	mux *http.ServeMux
}

// New makes the handler.
func New(figures Figures, front Front, authorizer Authorizer, log *slog.Logger) *Handler {
	h := &Handler{Figures: figures, Front: front, Authorizer: authorizer, Log: log, Now: time.Now, mux: http.NewServeMux()}
	h.mux.HandleFunc("GET /livez", h.alive)
	h.mux.HandleFunc("GET /readyz", h.alive)
	h.mux.Handle("GET /apis", h.known(h.groups))
	h.mux.Handle("GET /apis/"+Group, h.known(h.group))
	h.mux.Handle("GET "+root, h.known(h.resources))
	h.mux.Handle("GET "+root+"/namespaces/{namespace}/{metric}", h.known(h.metric))
	h.mux.Handle("/", h.known(func(w http.ResponseWriter, r *http.Request, _ User) {
		h.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %s is not served here", r.Method, r.URL.Path))
	}))
	return h
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

func (h *Handler) alive(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }

// known lets only those in for whom kube-apiserver vouches.
func (h *Handler) known(next func(http.ResponseWriter, *http.Request, User)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := h.Front.Authenticate(r)
		if err != nil {
			h.Log.Warn("request for external metrics refused", "client", r.RemoteAddr, "error", err)
			h.fail(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, err.Error())
			return
		}
		next(w, r, user)
	})
}

func apiGroup() metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: Group + "/" + Version, Version: Version}
	return metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: Group,
		Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v,
	}
}

func (h *Handler) groups(w http.ResponseWriter, _ *http.Request, _ User) {
	h.write(w, http.StatusOK, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{apiGroup()}})
}

func (h *Handler) group(w http.ResponseWriter, _ *http.Request, _ User) {
	h.write(w, http.StatusOK, apiGroup())
}

func (h *Handler) resources(w http.ResponseWriter, _ *http.Request, _ User) {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: Group + "/" + Version}
	for _, name := range slices.Sorted(maps.Keys(metrics())) {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name, Namespaced: true, Kind: "ExternalMetricValueList", Verbs: metav1.Verbs{"get"}})
	}
	h.write(w, http.StatusOK, list)
}

// metric answers for one metric; the label selector says what a KEDA trigger's metadata would.
func (h *Handler) metric(w http.ResponseWriter, r *http.Request, user User) {
	namespace, name := r.PathValue("namespace"), r.PathValue("metric")
	allowed, err := h.Authorizer.Allowed(r.Context(), user, namespace, name)
	if err != nil {
		h.Log.Error("asking whether somebody may read external metrics", "user", user.Name, "error", err)
		h.fail(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "cannot tell whether you may read this: "+err.Error())
		return
	}
	if !allowed {
		h.fail(w, http.StatusForbidden, metav1.StatusReasonForbidden,
			fmt.Sprintf("%s may not list %s.%s in namespace %s: give the user a Role with the verb list", user.Name, name, Group, namespace))
		return
	}
	counts, ok := metrics()[name]
	if !ok {
		h.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound,
			fmt.Sprintf("there is no metric %q: there are %s", name, strings.Join(slices.Sorted(maps.Keys(metrics())), ", ")))
		return
	}
	selected, err := readSelector(r.URL.Query().Get("labelSelector"))
	if err != nil {
		h.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	metadata := maps.Clone(selected)
	metadata["metric"], metadata["target"] = counts, "1" // the target is the HPA's
	v, err := h.Figures.Figure(r.Context(), metadata)
	if err != nil {
		code, reason := httpStatus(err)
		h.fail(w, code, reason, status.Convert(err).Message())
		return
	}
	h.write(w, http.StatusOK, valueList{
		TypeMeta: metav1.TypeMeta{Kind: "ExternalMetricValueList", APIVersion: Group + "/" + Version},
		Items: []value{{
			MetricName: name, MetricLabels: selected, Timestamp: metav1.NewTime(h.Now()),
			Value: *resource.NewMilliQuantity(int64(math.Round(v*1000)), resource.DecimalSI),
		}},
	})
}

// readSelector takes "nodeSet=cpu,cluster=tide" for metadata. What else selectors can say makes no sense here.
func readSelector(text string) (map[string]string, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("reading the label selector: %w", err)
	}
	all, _ := selector.Requirements()
	selected := map[string]string{}
	for _, r := range all {
		equals := r.Operator() == selection.Equals || r.Operator() == selection.DoubleEquals || r.Operator() == selection.In
		if !equals || r.Values().Len() != 1 {
			return nil, fmt.Errorf("label selector: %s: only key=value makes sense here, for example nodeSet=cpu", r.String())
		}
		if r.Key() == "metric" || r.Key() == "target" || r.Key() == "activationThreshold" {
			return nil, errors.New("label selector: " + r.Key() + ": the metric's name says what is counted, and the target is the HPA's own")
		}
		selected[r.Key()], _ = r.Values().PopAny()
	}
	return selected, nil
}

func httpStatus(err error) (int, metav1.StatusReason) {
	switch status.Code(err) {
	case codes.InvalidArgument:
		return http.StatusBadRequest, metav1.StatusReasonBadRequest
	case codes.NotFound:
		return http.StatusNotFound, metav1.StatusReasonNotFound
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests
	default:
		return http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
	}
}

func (h *Handler) fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	h.write(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

func (h *Handler) write(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		h.Log.Debug("writing an answer", "error", err)
	}
}
