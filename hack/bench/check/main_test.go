package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// written are files of five rounds in which everything takes factor times as long as the references.
func written(t *testing.T, rounds int, factor string) (cluster string, others []string) {
	t.Helper()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	list := func(v string) string { return "[" + strings.TrimSuffix(strings.Repeat(v+",", rounds), ",") + "]" }
	cluster = file("cluster.json", `{"check":{"ten_nodes_s":`+list(factor)+`,"ten_pods_s":`+list("1")+`,"fleet_created_s":`+list(factor)+`,"fleet_pods_created_s":`+list("1")+
		`,"kubernetes_requests_per_node":`+list(factor)+`,"slurm_calls_per_1000_nodes":`+list(factor)+`,"hostlist_ratio":{"expand":`+list(factor)+`}}}`)
	for range rounds {
		others = append(others, file("resume"+string(rune('a'+len(others)))+".json", `{"p50_ms":`+factor+`,"exec_p50_ms":1}`))
	}
	bench := strings.Repeat("BenchmarkReference-2 10 1 ns/op\nBenchmarkTenThousandNodes-2 10 9 ns/op "+factor+" plan-ms/op "+factor+" us/step\n"+
		"BenchmarkDemand/requests=20000-2 5 "+factor+" ns/op "+factor+" B/op\nBenchmarkDemand/requests=500-2 5 "+factor+" ns/op\nBenchmarkScrape/series=all-2 5 "+factor+" ns/op\n", rounds)
	return cluster, append(others, file("bench.txt", bench))
}

func TestCheck(t *testing.T) {
	base := filepath.Join(t.TempDir(), "baseline.json")
	cluster, others := written(t, 5, "2")
	_, err := run(cluster, "", base, "2 CPUs", others, os.Stdout)
	require.NoError(t, err)

	var out strings.Builder
	failed, err := run(cluster, base, "", "", others, &out)
	require.NoError(t, err)
	assert.Zero(t, failed, out.String())
	figures := strings.Count(out.String(), "\n") - 1
	assert.Equal(t, 12, figures, out.String())

	for factor, want := range map[string]int{"2.39": 0, "2.41": figures, "0.1": 0} {
		cluster, others := written(t, 5, factor)
		failed, err := run(cluster, base, "", "", others, &out)
		require.NoError(t, err)
		assert.Equal(t, want, failed, factor)
	}
	assert.Regexp(t, `expand / scontrol +2 +2\.4 +2\.41 +WORSE`, out.String())

	cluster, others = written(t, 4, "1")
	_, err = run(cluster, base, "", "", others, &out)
	require.EqualError(t, err, "10-node batch job from zero / 10 bare pods Running: 4 rounds, want 5")
	cluster, others = written(t, 5, "1")
	_, err = run(cluster, base, "", "", others[1:], &out)
	require.ErrorContains(t, err, "resume, 10,000 nodes / true: 4 rounds")
	_, err = run(cluster, base, "", "", others[:5], &out)
	require.ErrorContains(t, err, "plan of 10,000 nodes / reference: 0 rounds")
}

// A figure that is not measured any more, or has no limit yet, must not go unseen.
func TestCompareWantsTheSameFigures(t *testing.T) {
	var out strings.Builder
	a, b := figure{Name: "a", Mean: 1}, figure{Name: "b", Mean: 1}
	_, err := compare([]figure{a, b}, []figure{a}, &out)
	require.EqualError(t, err, `"b" of the baseline was not measured`)
	_, err = compare([]figure{a}, []figure{a, b}, &out)
	require.ErrorContains(t, err, `"b" is not in the baseline`)
}
