package external

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/scaler"
	pb "github.com/slurmtide/slurmtide/scaler/external/externalscaler"
	"github.com/slurmtide/slurmtide/scaler/watch"
)

func TestMetrics(t *testing.T) {
	s := newSlurm(3)
	s.submit("cpu", 2)
	s.submit("cpu", 1)
	s.jobs[len(s.jobs)-1].Memory = 4000 // no node has as much
	s.jobs[len(s.jobs)-1].ArrayTasks = "1,3,5..."
	// In this order they take three nodes; two would do for whoever chose another.
	s.sets = append(s.sets, scaler.NodeSet{Name: "card"})
	for i := range 4 {
		s.nodes = append(s.nodes, scaler.Node{Name: fmt.Sprintf("card-%d", i), Partitions: []string{"card"}, State: scaler.NodeOff, Shape: &scaler.Shape{CPUs: 6, Memory: 6000}})
	}
	for i, cpus := range []uint32{3, 2, 2, 2, 3} {
		s.submit("card", 1)
		j := &s.jobs[len(s.jobs)-1]
		j.CPUs, j.CPUsPerTask, j.Memory, j.Priority = cpus, cpus, 100, uint32(100-i)
	}
	clusters := map[string]Source{"one": watcher(t, s)}
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry, clusters)
	m.Read("one")("jobs", time.Millisecond, nil)
	m.Read("one")("jobs", time.Millisecond, errors.New("no"))
	client := pb.NewExternalScalerClient(dial(t, serve(t, NewService(clusters), Options{Metrics: m}), nil))
	_, err := client.IsActive(t.Context(), ref(meta{"nodeSet": "cpu"}))
	require.NoError(t, err)
	_, err = client.IsActive(t.Context(), ref(nil))
	require.Error(t, err)
	got := gather(t, registry)
	for name, want := range map[string]float64{
		`slurmtide_scaler_nodes_needed{cluster="one",nodeset="cpu"}`:                                               2,
		`slurmtide_scaler_nodes_needed{cluster="one",nodeset="gpu"}`:                                               1,
		`slurmtide_scaler_nodes_to_power_up{cluster="one",estimate="lower",nodeset="cpu"}`:                         2,
		`slurmtide_scaler_nodes_to_power_up{cluster="one",estimate="lower",nodeset="card"}`:                        2,
		`slurmtide_scaler_nodes_to_power_up{cluster="one",estimate="greedy",nodeset="card"}`:                       3,
		`slurmtide_scaler_nodes{cluster="one",nodeset="gpu",state="in_use"}`:                                       1,
		`slurmtide_scaler_nodes{cluster="one",nodeset="cpu",state="off"}`:                                          3,
		`slurmtide_scaler_pending_demand{cluster="one",nodeset="cpu",resource="cpus"}`:                             8,
		`slurmtide_scaler_running{cluster="one",nodeset="gpu",resource="gpus"}`:                                    3,
		`slurmtide_scaler_pending_jobs{cluster="one",why="capacity"}`:                                              7,
		`slurmtide_scaler_cut_arrays{cluster="one"}`:                                                               1,
		`slurmtide_scaler_pending_jobs{cluster="one",why="impossible"}`:                                            1,
		`slurmtide_scaler_impossible_jobs{cluster="one",miss="needs 4000 MiB on a node, NodeSet cpu offers 1000"}`: 1,
		`slurmtide_scaler_read_failures_total{cluster="one",what="jobs"}`:                                          1,
		`slurmtide_scaler_readable{cluster="one"}`:                                                                 1,
		`slurmtide_scaler_requests_total{code="InvalidArgument",method="IsActive"}`:                                1,
		`slurmtide_scaler_requests_total{code="OK",method="IsActive"}`:                                             1,
	} {
		value, ok := got[name]
		assert.True(t, ok, name)
		assert.InDelta(t, want, value, 0, name)
	}
	assert.InDelta(t, float64(time.Now().Unix()), got[`slurmtide_scaler_read_timestamp_seconds{cluster="one"}`], 30)
	s.fail(errors.New("away"))
	assert.Eventually(t, func() bool {
		now := gather(t, registry)
		_, figures := now[`slurmtide_scaler_nodes_needed{cluster="one",nodeset="cpu"}`]
		return now[`slurmtide_scaler_readable{cluster="one"}`] == 0 && !figures
	}, 10*time.Second, 50*time.Millisecond, "no figures, and not 0")
}

// The page as Prometheus gets it, with every metric and every word that a label may be, but those of requests to the two APIs.
func TestMetricsPage(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	synctest.Test(t, func(t *testing.T) {
		s := newSlurm(5)
		s.submit("cpu", 1)
		for partition, reasons := range map[string][]string{
			"cpu": {
				"JobHeldUser", "Dependency", "BeginTime", "JobArrayTaskLimit", "Licenses", "Reservation", "PartitionDown", "MaxPoweredUpNodes", "Cleaning", "MpiPortsBusy", "InvalidQOS", "?",
			},
			"free": {"Resources"},
		} {
			for _, reason := range reasons {
				s.submit(partition, 1)
				s.jobs[len(s.jobs)-1].Reason = reason
			}
		}
		begins := &s.jobs[len(s.jobs)-1]
		for i := range s.jobs {
			if s.jobs[i].Reason == "BeginTime" {
				begins = &s.jobs[i]
			}
		}
		begins.Begin = time.Now().Add(time.Hour)
		s.submit("cpu", 1)
		s.jobs[len(s.jobs)-1].Memory = 4000 // no node has as much
		clusters := map[string]Source{"one": watcher(t, s)}
		m := NewMetrics(registry, clusters)
		for _, cluster := range []string{"one", "away"} {
			read := m.Read(cluster)
			for _, what := range append([]string{"unchanged", "demand"}, watch.Reads...) {
				read(what, 20*time.Millisecond, nil)
			}
			read("nodes", time.Second, errors.New("no"))
		}
		clusters["away"] = watch.New(watch.Config{Queue: s, NodeSets: s, Log: slog.New(slog.DiscardHandler)}) // which has read nothing
		o := Options{Metrics: m, Log: slog.New(slog.DiscardHandler)}
		for _, method := range pb.ExternalScaler_ServiceDesc.Methods {
			o.done("/"+pb.ExternalScaler_ServiceDesc.ServiceName+"/"+method.MethodName, time.Now(), nil)
		}
		o.done("/"+pb.ExternalScaler_ServiceDesc.ServiceName+"/StreamIsActive", time.Time{}, nil)
		o.done("/grpc.health.v1.Health/Check", time.Now(), nil)
		w := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		golden.Compare(t, "testdata/metrics.golden.txt", w.Body.String())
	})
}

// gather returns counters and gauges by name and labels.
func gather(t *testing.T, r *prometheus.Registry) map[string]float64 {
	families, err := r.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			all[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return all
}
