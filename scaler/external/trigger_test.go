package external

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/scaler"
)

type meta map[string]string

func TestTriggers(t *testing.T) {
	for name, tc := range map[string]struct {
		meta meta
		want trigger
	}{
		"a NodeSet":            {meta{"nodeSet": "cpu"}, trigger{nodeSet: "cpu", metric: metricNodes, target: 1}},
		"with KEDA's own keys": {meta{"nodeSet": "cpu", "scalerAddress": "x:9443", "enableTLS": "true", "unsafeSsl": "false"}, trigger{nodeSet: "cpu", metric: metricNodes, target: 1}},
		"from the environment": {meta{"nodeSetFromEnv": "cpu"}, trigger{nodeSet: "cpu", metric: metricNodes, target: 1}},
		"everything else": {
			meta{"cluster": "c", "nodeSet": "gpu", "metric": "gpus", "target": "8", "activationThreshold": "2.5", "includeRunning": "false"},
			trigger{cluster: "c", nodeSet: "gpu", metric: metricGPUs, target: 8, activation: 2.5, waiting: true},
		},
		"a partition": {meta{"partition": "p"}, trigger{partition: "p", metric: metricNodes, target: 1}},
		"nodes of others": {
			meta{"partition": "p", "cpus": "64", "sockets": "2", "coresPerSocket": "16", "threadsPerCore": "2", "memory": "256G", "gres": "gpu:h100:8", "features": "b, a", "maxNodes": "10"},
			trigger{partition: "p", maxNodes: 10, metric: metricNodes, target: 1, shape: &scaler.Shape{
				CPUs: 64, Sockets: 2, Cores: 16, Threads: 2, Memory: 256 * 1024, Gres: "gpu:h100:8", Features: []string{"a", "b"},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseTrigger(tc.meta)
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestMemory(t *testing.T) {
	for text, want := range map[string]uint64{"1000": 1000, "1000M": 1000, "2G": 2048, "2Gi": 2048, "2GB": 2048, "1T": 1 << 20, "512MiB": 512} {
		f := fields{values: meta{"memory": text}}
		assert.Equal(t, want, f.memory("memory"), text)
		assert.NoError(t, f.err, text)
	}
}

func TestTriggersRefused(t *testing.T) {
	shape := func(more meta) meta {
		m := meta{"partition": "p", "cpus": "8", "memory": "1000", "maxNodes": "4"}
		maps.Copy(m, more)
		for k, v := range m {
			if v == "-" {
				delete(m, k)
			}
		}
		return m
	}
	for want, m := range map[string]meta{
		`nodeset: there is no such key (did you mean nodeSet?); there are cluster, nodeSet, partition, cpus, sockets, coresPerSocket, threadsPerCore, memory, gres, features, maxNodes, metric, target, activationThreshold, includeRunning`: {"nodeset": "cpu"},
		`nodeSet: it is missing: give nodeSet, or partition with the shape of its nodes`:                            {"metric": "nodes"},
		`nodeSet: it is empty: remove it, or give it a value`:                                                       {"nodeSet": " "},
		`nodeSet: it is given twice, as nodeSet and as nodeSetFromEnv`:                                              {"nodeSet": "a", "nodeSetFromEnv": "b"},
		`partition: it goes without nodeSet: a NodeSet is enough, a partition is for nodes of others`:               {"nodeSet": "a", "partition": "p"},
		`cpus: it goes with partition only: the NodeSet a says itself what its nodes have`:                          {"nodeSet": "a", "cpus": "8"},
		`metric: "node" is none of nodes, gpus, cpus, jobs (did you mean nodes?)`:                                   {"nodeSet": "a", "metric": "node"},
		`target: it is missing: with metric gpus, say how many gpus one replica stands for`:                         {"nodeSet": "a", "metric": "gpus"},
		`target: 0 is not a number from 0.001 to 1000000000`:                                                        {"nodeSet": "a", "target": "0"},
		`target: 0.0009 is not a number from 0.001 to 1000000000`:                                                   {"nodeSet": "a", "target": "0.0009"}, // 0 in an HPA
		`target: 1e17 is not a number from 0.001 to 1000000000`:                                                     {"nodeSet": "a", "target": "1e17"},   // less than 0 in an HPA
		`target: "1e999" is not a number of 0 or more`:                                                              {"nodeSet": "a", "target": "1e999"},
		`features: "" is not the name of a feature: write them as on a NodeName line, for example avx512,ib`:        shape(meta{"features": "a,,b"}),
		`features: "a&b" is not the name of a feature: write them as on a NodeName line, for example avx512,ib`:     shape(meta{"features": "a&b"}),
		`caCert: it belongs into a TriggerAuthentication: KEDA does not read it here`:                               {"nodeSet": "a", "caCert": "x"},
		`nodeSet: it has 1025 bytes: 1024 are the most`:                                                             {"nodeSet": strings.Repeat("x", 1025)},
		`maxNodes: "100001" is not a whole number from 1 to 100000`:                                                 shape(meta{"maxNodes": "100001"}),
		`memory: "0" is not an amount of memory: write MiB, or a number with G or T, for example 262144 or 256G`:    shape(meta{"memory": "0"}),
		`target: "-1" is not a number of 0 or more`:                                                                 {"nodeSet": "a", "target": "-1"},
		`activationThreshold: "NaN" is not a number of 0 or more`:                                                   {"nodeSet": "a", "activationThreshold": "NaN"},
		`includeRunning: "yes" is neither true nor false`:                                                           {"nodeSet": "a", "includeRunning": "yes"},
		`memory: it is missing: the shape of nodes needs cpus, memory (MiB) and maxNodes`:                           shape(meta{"memory": "-"}),
		`cpus: "0" is not a whole number from 1 to 65535`:                                                           shape(meta{"cpus": "0"}),
		`maxNodes: "many" is not a whole number from 1 to 100000`:                                                   shape(meta{"maxNodes": "many"}),
		`memory: "1Q" is not an amount of memory: write MiB, or a number with G or T, for example 262144 or 256G`:   shape(meta{"memory": "1Q"}),
		`gres: gres "gpu:many:x:y" cannot be read`:                                                                  shape(meta{"gres": "gpu:many:x:y"}),
		`metric: gpus are to be counted, and gres has none`:                                                         shape(meta{"metric": "gpus", "target": "1", "gres": "shard:4"}),
		`sockets: sockets * coresPerSocket * threadsPerCore is not cpus (8): give all three so that it is, or none`: shape(meta{"sockets": "2"}),
	} {
		t.Run(want, func(t *testing.T) {
			_, err := parseTrigger(m)
			require.Error(t, err)
			assert.Equal(t, codes.InvalidArgument, status.Code(err))
			if m["gres"] == "gpu:many:x:y" { // the text is slurmconf's
				assert.Regexp(t, `^trigger metadata: gres: .*; write it as on a NodeName line, for example gpu:h100:8$`, status.Convert(err).Message())
				return
			}
			assert.Equal(t, "trigger metadata: "+want, status.Convert(err).Message())
		})
	}
}

// The product of the three is 8 in 32 bits.
func TestSocketsOverflow(t *testing.T) {
	_, err := parseTrigger(meta{"partition": "p", "cpus": "8", "memory": "1000", "maxNodes": "4", "sockets": "65026", "coresPerSocket": "100", "threadsPerCore": "1321"})
	require.ErrorContains(t, err, "sockets * coresPerSocket * threadsPerCore is not cpus (8)")
}

// With several mistakes the same one is told each time.
func TestMistakesAreOrdered(t *testing.T) {
	for range 50 {
		_, err := parseTrigger(meta{"nodeSet": "", "a": "1", "b": "2", "target": ""})
		require.ErrorContains(t, err, "trigger metadata: a: there is no such key")
	}
}

// Triggers that describe the same nodes share one NodeSet, whatever they count.
func TestExtra(t *testing.T) {
	a, err := parseTrigger(meta{"partition": "p", "cpus": "8", "memory": "1G", "maxNodes": "4", "features": "x,y", "gres": "gpu:2"})
	require.NoError(t, err)
	b, err := parseTrigger(meta{"partition": "p", "cpus": "8", "memory": "1024", "maxNodes": "4", "features": "y, x", "gres": "gpu:2", "metric": "gpus", "target": "2"})
	require.NoError(t, err)
	assert.Equal(t, a.extra(), b.extra())
	assert.Equal(t, "partition=p cpus=8 memory=1024 maxNodes=4 gres=gpu:2 features=x,y", a.extra().Name)
}

// The examples of the user guide say nothing that is refused, and what they say is what the guide means.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../docs/examples/keda/scaled*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var object struct {
			Spec struct {
				Max      int `json:"maxReplicaCount"`
				Triggers []struct {
					Type     string
					Metadata map[string]string
				}
			}
		}
		require.NoError(t, yaml.Unmarshal(text, &object), file)
		require.Len(t, object.Spec.Triggers, 1, file)
		trigger := object.Spec.Triggers[0]
		got, err := parseTrigger(trigger.Metadata)
		require.NoError(t, err, file)
		assert.Contains(t, []string{"external", "external-push"}, trigger.Type, file)
		assert.Equal(t, metricNodes, got.metric, file)
		assert.InDelta(t, 1, got.target, 0, file)
		if got.shape != nil {
			assert.Equal(t, object.Spec.Max, got.maxNodes, "%s: maxNodes is maxReplicaCount", file)
		}
	}
}
