package loop

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/scaler/ahead"
)

// The page as Prometheus gets it.
func TestMetricsPage(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewMetrics(registry)
	m.plan([]ahead.Settings{{NodeSet: "cpu", Lead: 90 * time.Second}, {NodeSet: "gpu", Lead: time.Minute}}, ahead.Plan{
		Wishes: []ahead.Wish{{NodeSet: "cpu", Nodes: 5, Jobs: []ahead.Job{{Cut: 1}, {Cut: 2}}}},
	})
	m.outcome(ahead.Outcome{NodeSet: "cpu", Result: ahead.Hit, Nodes: 4})
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	golden.Compare(t, "testdata/metrics.golden.txt", w.Body.String())
}
