package measure

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// requests count those to one API.
type requests struct {
	calls *prometheus.CounterVec
	times *prometheus.HistogramVec
}

func newRequests(r prometheus.Registerer, api, help, timeHelp string) requests {
	q := requests{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slurmtide_" + api + "_requests_total", Help: help}, []string{"verb", "code"}),
		times: prometheus.NewHistogramVec(Times("slurmtide_"+api+"_request_seconds", timeHelp, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60), []string{"verb"}),
	}
	r.MustRegister(q.calls, q.times)
	return q
}

func (q requests) done(verb, code string, took time.Duration) {
	q.calls.WithLabelValues(verb, code).Inc()
	q.times.WithLabelValues(verb).Observe(took.Seconds())
}

// Slurmrestd counts the HTTP requests to slurmrestd.
type Slurmrestd struct{ requests }

// NewSlurmrestd registers the metrics with r.
func NewSlurmrestd(r prometheus.Registerer) Slurmrestd {
	return Slurmrestd{newRequests(r, "slurmrestd",
		"HTTP requests to slurmrestd, by what for (verb) and HTTP status; code error: no answer.",
		"Time of HTTP requests to slurmrestd by what for (verb), reading the answer included.")}
}

// Request is for slurmrest.Config.OnRequest: what for ("list nodes"), its HTTP status or "error", and how long it took. It may be called from any goroutine.
func (s Slurmrestd) Request(op, status string, took time.Duration) {
	s.done(strings.ReplaceAll(op, " ", "_"), status, took)
}

// Kubernetes counts the HTTP requests to the API server.
type Kubernetes struct{ requests }

// NewKubernetes registers the metrics with r.
func NewKubernetes(r prometheus.Registerer) Kubernetes {
	return Kubernetes{newRequests(r, "kubernetes",
		"HTTP requests to the API server of Kubernetes, by verb and HTTP status; code error: no answer. A watch counts when it begins.",
		"Time until the API server of Kubernetes began to answer an HTTP request, by verb.")}
}

// Transport is for rest.Config.Wrap.
func (k Kubernetes) Transport(next http.RoundTripper) http.RoundTripper { return counted{k, next} }

type counted struct {
	Kubernetes
	next http.RoundTripper
}

// WrappedRoundTripper lets client-go reach the connections (utilnet.RoundTripperWrapper).
func (c counted) WrappedRoundTripper() http.RoundTripper { return c.next }

// RoundTrip implements http.RoundTripper.
func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	answer, err := c.next.RoundTrip(r)
	code := "error"
	if err == nil {
		code = strconv.Itoa(answer.StatusCode)
	}
	c.done(verb(r), code, time.Since(began))
	return answer, err
}

// verb is what the API server calls it (RequestInfo of k8s.io/apiserver).
func verb(r *http.Request) string {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch { // what is left names a resource, perhaps an object of it, perhaps a part of that
	case path[0] == "api" && len(path) > 2:
		path = path[2:]
	case path[0] == "apis" && len(path) > 3:
		path = path[3:]
	default:
		path = nil
	}
	if len(path) > 2 && path[0] == "namespaces" {
		path = path[2:]
	}
	all := len(path) == 1
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		switch watch := r.URL.Query().Get("watch"); {
		case watch == "true" || watch == "1":
			return "watch"
		case all:
			return "list"
		}
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if all {
			return "deletecollection"
		}
		return "delete"
	}
	return "other"
}
