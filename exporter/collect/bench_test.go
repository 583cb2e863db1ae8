package collect

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/exporter"
	"github.com/slurmtide/slurmtide/powersave"
)

// large is a cluster of 10,000 nodes with 100,000 jobs in 20 partitions.
type large struct{}

func (large) EachNode(_ context.Context, begin func() func(exporter.Node)) error {
	add := begin()
	states := []powersave.NodeState{powersave.NodeMixed | powersave.NodeCloud, powersave.NodeIdle | powersave.NodeCloud | powersave.NodePoweredDown, powersave.NodeAllocated, powersave.NodeDown}
	for i := range 10_000 {
		add(exporter.Node{
			Name: fmt.Sprintf("node-%05d", i), State: states[i%len(states)], Partitions: []string{"all", fmt.Sprintf("p%d", i%20)},
			CPUs: 128, AllocCPUs: int64(i % 128), Memory: 512_000, AllocMemory: 1000, FreeMemory: 2000, Load: 300, Gres: "gpu:h100:8(S:0-1)", GresUsed: fmt.Sprintf("gpu:h100:%d(IDX:0-7)", i%9),
		})
	}
	return nil
}

func (large) EachJob(_ context.Context, _ time.Time, begin func() func(exporter.Job)) (time.Time, error) {
	add := begin()
	words := []string{"Resources", "Priority", "Dependency", "QOSMaxCpuPerUserLimit", "JobHeldUser"}
	for i := range 100_000 {
		j := exporter.Job{
			ID: uint32(i + 1), Name: fmt.Sprintf("train-%d", i), QOS: "normal", Submit: time.Unix(int64(1_700_000_000+i), 0),
			State: powersave.JobPending, Reason: words[i%len(words)], Partitions: fmt.Sprintf("p%d,p%d", i%20, (i+1)%20), User: fmt.Sprintf("user%d", i%1000), Account: fmt.Sprintf("account%d", i%100),
			Eligible: time.Unix(int64(1_700_000_000+i), 0), TRES: fmt.Sprintf("cpu=%d,mem=%dG,node=1,billing=4,gres/gpu=1,gres/gpu:h100=1", i%64, i%100),
		}
		if i%3 == 0 {
			j.State, j.Partitions = powersave.JobRunning, fmt.Sprintf("p%d", i%20)
			j.Start, j.End, j.NodeList = j.Submit.Add(time.Minute), j.Submit.Add(time.Hour), fmt.Sprintf("node-[%05d-%05d]", i%9990, i%9990+i%10)
		}
		add(j)
	}
	return time.Unix(1, 0), nil
}

func (large) PartitionFacts(context.Context) ([]exporter.Partition, error) {
	var list []exporter.Partition
	for i := range 20 {
		list = append(list, exporter.Partition{Name: fmt.Sprintf("p%d", i), State: "UP", Nodes: 500, CPUs: 64_000})
	}
	return list, nil
}

func (large) Diag(context.Context) (exporter.Diag, error) {
	var d exporter.Diag
	for i := range 200 {
		d.RPCs = append(d.RPCs, exporter.RPC{Name: fmt.Sprintf("REQUEST_%d", i), Count: 1})
		d.Users = append(d.Users, exporter.RPC{Name: fmt.Sprintf("user%d", i), Count: 1})
	}
	return d, nil
}

// A read works out what the facts say, without slurmrestd and its JSON; a scrape is answered from that.
func BenchmarkScrape(b *testing.B) {
	for name, o := range map[string]exporter.Options{"few": {}, "nodes": {PerNode: true, PerUser: true}, "all": {PerNode: true, PerUser: true, PerJob: 20_000}} {
		b.Run("series="+name, func(b *testing.B) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			c := New(Config{Slurm: large{}, Options: o, Log: slog.New(slog.DiscardHandler)})
			registry := prometheus.NewRegistry()
			registry.MustRegister(c)
			start := time.Now()
			for _, p := range c.parts {
				c.step(b.Context(), p)
				require.Zero(b, p.failures, p.said)
			}
			read := time.Since(start)
			runtime.GC()
			runtime.ReadMemStats(&after)
			series := 0
			for _, p := range c.parts {
				series += len(p.metrics)
			}
			handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry})
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
				n, err := io.Copy(io.Discard, w.Body)
				if err != nil || n < 10_000 || w.Code != 200 {
					b.Fatal(w.Code, n, err)
				}
			}
			b.ReportMetric(float64(read.Microseconds())/1000, "read-ms")
			b.ReportMetric(float64(series), "series")
			b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/1e6, "kept-MB")
			runtime.KeepAlive(c)
		})
	}
}
