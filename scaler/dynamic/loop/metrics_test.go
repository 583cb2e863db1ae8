package loop

import (
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/scaler"
)

// The page as Prometheus gets it.
func TestMetricsPage(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	NewMetrics(registry).misses(scaler.MissesOf(scaler.Report{Jobs: []scaler.JobDemand{
		{ID: 1, Why: scaler.WhyImpossible, Detail: "needs 99 CPUs on a node, NodeSet dyn offers 2"}, {ID: 2, Why: scaler.WhyCapacity},
	}}))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	golden.Compare(t, "testdata/metrics.golden.txt", w.Body.String())
}
