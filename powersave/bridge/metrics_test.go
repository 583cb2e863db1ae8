package bridge

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
)

// samples returns the values of a metric by its labels ("class=capacity nodeset=cpu"); of a histogram, how many there are.
func samples(t *testing.T, registry *prometheus.Registry, metric string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, sample := range f.GetMetric() {
			var labels []string
			for _, l := range sample.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			values[strings.Join(labels, " ")] = sample.GetCounter().GetValue() + sample.GetGauge().GetValue() + float64(sample.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func TestReadsAreShown(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	gauges := func() map[string]float64 {
		values := samples(t, registry, "slurmtide_readable")
		values["at"] = samples(t, registry, "slurmtide_slurm_complete_read_timestamp_seconds")[""]
		return values
	}
	assert.Equal(t, map[string]float64{"api=slurm": 0, "api=kubernetes": 0, "at": 0}, gauges(), "from the start")
	m.reads(powersave.Reads{Slurm: true, SlurmAt: time.Unix(1000, 5e8), Kubernetes: true})
	assert.Equal(t, map[string]float64{"api=slurm": 1, "api=kubernetes": 1, "at": 1000.5}, gauges())
	m.reads(powersave.Reads{SlurmAt: time.Unix(1000, 5e8), Kubernetes: true})
	assert.Equal(t, map[string]float64{"api=slurm": 0, "api=kubernetes": 1, "at": 1000.5}, gauges())
}

// The page as Prometheus gets it, with every metric and every word that a label may be.
func TestMetricsPage(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewMetrics(registry)
	at := time.Unix(1000, 5e8)
	for _, kind := range []spool.Kind{spool.KindResume, spool.KindSuspend, spool.KindResumeFail} {
		m.request(kind, 10*time.Minute)
	}
	m.request(spool.KindSuspend, 0) // which knows none
	m.boot(powersave.Boot{NodeSet: "cpu", Times: powersave.Timeline{
		Requested: at, Accepted: at.Add(time.Second), Created: at.Add(2 * time.Second), Scheduled: at.Add(3 * time.Second), Running: at.Add(8 * time.Second), Registered: at.Add(9 * time.Second)}})
	for i, class := range []powersave.Trouble{
		powersave.TroubleCapacity, powersave.TroubleQuota, powersave.TroubleImage, powersave.TroubleConfig, powersave.TroubleCrash, powersave.TroubleLost, powersave.TroubleRefused, powersave.TroubleBootstrap,
	} {
		m.verdict(powersave.BootFailed{NodeSet: "cpu", Jobs: make([]uint32, i), Verdict: powersave.Verdict{Trouble: class}})
	}
	m.gate(9*time.Second, true)
	m.gate(time.Second, false)
	m.reads(powersave.Reads{Slurm: true, SlurmAt: at})
	m.hostMark(nil)
	m.HistoryLost(2)
	m.podCall("create", nil)
	m.podCall("delete", errors.New("no"))
	m.slurmCall("read", nil)
	m.slurmCall("update", errors.New("no"))
	m.leading(true)
	m.counts([]powersave.NodeSetCounts{{
		Name: "cpu", Nodes: 10, PoweredUp: 4, Booting: 1, Ready: 2, Failed: 1, Unknown: 3, Floor: &powersave.FloorCounts{Wanted: 3, Held: 2},
		Breakers: []powersave.BreakerRecord{
			{Key: powersave.BreakerKey{NodeSet: "cpu"}, State: powersave.BreakerOpen, Class: powersave.TroubleImage},
			{Key: powersave.BreakerKey{NodeSet: "cpu", Offering: "spot"}, State: powersave.BreakerHalfOpen, Class: powersave.TroubleCapacity},
			{Key: powersave.BreakerKey{NodeSet: "cpu", Offering: "plain"}, State: powersave.BreakerClosed, Class: powersave.TroubleQuota},
		},
	}}, 5, 6)
	m.underWay(powersave.InHand{Number: 5, Oldest: at}, powersave.InHand{Number: 1, Oldest: at.Add(time.Second)}, powersave.InHand{Number: 2, Oldest: at})

	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	golden.Compare(t, "testdata/metrics.golden.txt", w.Body.String())
}
