package controlplane

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/internal/golden"
)

func page(registry *prometheus.Registry) string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// The page as Prometheus gets it.
func TestMetricsPage(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewMetrics(registry)
	leads := false
	ShowLeading(registry, "", func() bool { return leads })
	m.took("Controller", 20*time.Millisecond, false)
	m.took("Token", time.Millisecond, true)
	m.wrote("statefulsets")
	assert.Contains(t, page(registry), "\nslurmtide_controller_leading 0\n")
	leads = true
	golden.Compare(t, "testdata/metrics.golden.txt", page(registry))
}

// Daemons of several namespaces are told apart.
func TestLeadingInNamespace(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	ShowLeading(registry, "one", func() bool { return true })
	assert.Contains(t, page(registry), "\nslurmtide_controller_leading{works_in=\"one\"} 1\n")
}
