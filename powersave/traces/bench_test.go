package traces

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/powersave/spool"
)

// BenchmarkBoot is what the loop pays for a boot, of which a request has 1,000.
func BenchmarkBoot(b *testing.B) {
	taken := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer taken.Close()
	dropped := 0
	t, err := New(b.Context(), Config{Endpoint: taken.URL, Log: slog.New(slog.DiscardHandler), Dropped: func(n int) { dropped += n }})
	require.NoError(b, err)
	each, id := 0, ""
	b.ReportAllocs()
	for b.Loop() {
		if each%1000 == 0 {
			t.Finished(noon, id)
			id = fmt.Sprint("request ", each)
			t.Add(history.Entry{What: history.RequestAccepted, Time: ms(20), Kind: string(spool.KindResume), Request: id, Requested: noon, Nodes: "cpu-[0-999]"})
		}
		node := fmt.Sprint("cpu-", each%1000)
		for i, what := range []history.What{history.PodCreated, history.PodScheduled, history.ContainerStarted, history.NodeRegistered} {
			t.Add(history.Entry{What: what, Time: ms(30 + i), Node: node, NodeSet: "cpu", Request: id, PodUID: "uid", Host: "host-a", Asked: ms(25)})
		}
		each++
	}
	ended, cancel := context.WithCancel(b.Context())
	cancel()
	require.NoError(b, t.Run(ended))
	b.ReportMetric(float64(dropped)/float64(b.N), "dropped/op")
}
