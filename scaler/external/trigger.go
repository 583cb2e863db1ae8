package external

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/slurmtide/slurmtide/internal/spelling"
	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// metric is what is counted.
type metric string

const (
	metricNodes metric = "nodes"
	metricGPUs  metric = "gpus"
	metricCPUs  metric = "cpus"
	metricJobs  metric = "jobs"
)

// trigger is a trigger's metadata, read.
type trigger struct {
	cluster    string // empty: the only one
	nodeSet    string
	partition  string
	shape      *scaler.Shape // with partition: nodes of somebody else
	maxNodes   int
	metric     metric
	target     float64
	activation float64
	waiting    bool   // running jobs do not count
	who        string // whose trigger it is, if KEDA tells
}

// Limits of what metadata may say.
const (
	minTarget = 0.001
	maxTarget = 1e9
	maxValue  = 1024 // bytes
)

// Keys of a trigger's metadata.
const (
	keyCluster    = "cluster"
	keyNodeSet    = "nodeSet"
	keyPartition  = "partition"
	keyCPUs       = "cpus"
	keySockets    = "sockets"
	keyCores      = "coresPerSocket"
	keyThreads    = "threadsPerCore"
	keyMemory     = "memory"
	keyGres       = "gres"
	keyFeatures   = "features"
	keyMaxNodes   = "maxNodes"
	keyMetric     = "metric"
	keyTarget     = "target"
	keyActivation = "activationThreshold"
	keyRunning    = "includeRunning"
)

// ours are the keys that mean something here, in the order of the documentation.
func ours() []string {
	return []string{keyCluster, keyNodeSet, keyPartition, keyCPUs, keySockets, keyCores, keyThreads, keyMemory, keyGres, keyFeatures, keyMaxNodes,
		keyMetric, keyTarget, keyActivation, keyRunning}
}

// shapeKeys need a partition.
func shapeKeys() []string {
	return []string{keyCPUs, keySockets, keyCores, keyThreads, keyMemory, keyGres, keyFeatures, keyMaxNodes}
}

// kedas are the keys that KEDA reads itself, and passes on.
func kedas() []string { return []string{"scalerAddress", "enableTLS", "unsafeSsl"} }

// authentications are those that KEDA reads from a TriggerAuthentication only.
func authentications() []string { return []string{"caCert", "tlsClientCert", "tlsClientKey"} }

// parseTrigger reads a trigger's metadata. Its errors are gRPC's, and name the key. What depends on Slurm is looked at later.
func parseTrigger(metadata map[string]string) (trigger, error) {
	values, err := known(metadata)
	if err != nil {
		return trigger{}, err
	}
	f := fields{values: values}
	t := trigger{
		cluster: values[keyCluster], nodeSet: values[keyNodeSet], partition: values[keyPartition],
		metric: metricNodes, target: f.float(keyTarget, 0), activation: f.float(keyActivation, 0), waiting: !f.bool(keyRunning, true),
	}
	if m, ok := values[keyMetric]; ok {
		t.metric = metric(m)
		all := []string{string(metricNodes), string(metricGPUs), string(metricCPUs), string(metricJobs)}
		if !slices.Contains(all, m) {
			return trigger{}, invalid(keyMetric, "%q is none of %s%s", m, strings.Join(all, ", "), meant(m, all))
		}
	}
	if f.err != nil {
		return trigger{}, f.err
	}
	if err := t.where(&f); err != nil {
		return trigger{}, err
	}
	_, given := values[keyTarget]
	switch {
	case given && (t.target < minTarget || t.target > maxTarget): // KEDA writes it into the HPA in thousandths
		return trigger{}, invalid(keyTarget, "%s is not a number from %v to %d", values[keyTarget], minTarget, int64(maxTarget))
	case given:
	case t.metric != metricNodes:
		return trigger{}, invalid(keyTarget, "it is missing: with metric %s, say how many %s one replica stands for", t.metric, t.metric)
	default:
		t.target = 1
	}
	return t, nil
}

// known turns unknown keys into errors. A key may come as KEDA passes it on from an environment variable: cpusFromEnv.
func known(metadata map[string]string) (map[string]string, error) {
	values := make(map[string]string, len(metadata))
	for _, key := range slices.Sorted(maps.Keys(metadata)) { // the same mistake is told each time
		plain, value := strings.TrimSuffix(key, "FromEnv"), strings.TrimSpace(metadata[key])
		switch {
		case slices.Contains(kedas(), plain):
			continue
		case slices.Contains(authentications(), plain):
			return nil, invalid(key, "it belongs into a TriggerAuthentication: KEDA does not read it here")
		case len(key) > maxValue || !slices.Contains(ours(), plain):
			return nil, invalid(key, "there is no such key%s; there are %s", meant(key, ours()), strings.Join(ours(), ", "))
		case value == "":
			return nil, invalid(key, "it is empty: remove it, or give it a value")
		case len(value) > maxValue:
			return nil, invalid(key, "it has %d bytes: %d are the most", len(value), maxValue)
		}
		if _, twice := values[plain]; twice {
			return nil, invalid(plain, "it is given twice, as %s and as %sFromEnv", plain, plain)
		}
		values[plain] = value
	}
	return values, nil
}

// meant is a word on what was probably meant. What is very long is no misspelling.
func meant(given string, names []string) string {
	if len(given) > 253 {
		return ""
	}
	if best := spelling.Nearest(given, names); best != "" {
		return fmt.Sprintf(" (did you mean %s?)", best)
	}
	return ""
}

// where reads which nodes the trigger is about.
func (t *trigger) where(f *fields) error {
	var shape []string
	for _, key := range shapeKeys() {
		if _, ok := f.values[key]; ok {
			shape = append(shape, key)
		}
	}
	switch {
	case t.nodeSet == "" && t.partition == "":
		return invalid(keyNodeSet, "it is missing: give nodeSet, or partition with the shape of its nodes")
	case t.nodeSet != "" && t.partition != "":
		return invalid(keyPartition, "it goes without nodeSet: a NodeSet is enough, a partition is for nodes of others")
	case t.nodeSet != "" && len(shape) > 0:
		return invalid(shape[0], "it goes with partition only: the NodeSet %s says itself what its nodes have", t.nodeSet)
	case len(shape) == 0:
		return nil
	}
	for _, key := range []string{keyCPUs, keyMemory, keyMaxNodes} {
		if _, ok := f.values[key]; !ok {
			return invalid(key, "it is missing: the shape of nodes needs cpus, memory (MiB) and maxNodes")
		}
	}
	s := &scaler.Shape{
		CPUs: f.number(keyCPUs, math.MaxUint16), Sockets: f.number(keySockets, math.MaxUint16), Cores: f.number(keyCores, math.MaxUint16),
		Threads: f.number(keyThreads, math.MaxUint16), Memory: f.memory(keyMemory), Gres: f.values[keyGres],
	}
	t.maxNodes = int(f.number(keyMaxNodes, 100_000))
	if f.err != nil {
		return f.err
	}
	if list, ok := f.values[keyFeatures]; ok {
		for feature := range strings.SplitSeq(list, ",") {
			feature = strings.TrimSpace(feature)
			if feature == "" || strings.ContainsAny(feature, " \t\n&|!*()[]{}=\"'") {
				return invalid(keyFeatures, "%q is not the name of a feature: write them as on a NodeName line, for example avx512,ib", feature)
			}
			s.Features = append(s.Features, feature)
		}
		slices.Sort(s.Features)
		s.Features = slices.Compact(s.Features)
	}
	if some := s.Sockets + s.Cores + s.Threads; some > 0 && uint64(s.Sockets)*uint64(s.Cores)*uint64(s.Threads) != uint64(s.CPUs) {
		return invalid(keySockets, "sockets * coresPerSocket * threadsPerCore is not cpus (%d): give all three so that it is, or none", s.CPUs)
	}
	gres, err := slurmconf.ParseGres(s.Gres)
	if err != nil {
		return invalid(keyGres, "%v; write it as on a NodeName line, for example gpu:h100:8", err)
	}
	if t.metric == metricGPUs && !slices.ContainsFunc(gres, func(g slurmconf.Gres) bool { return g.Name == "gpu" }) {
		return invalid(keyMetric, "gpus are to be counted, and gres has none")
	}
	t.shape = s
	return nil
}

// extra is the NodeSet of somebody else that the trigger describes. Triggers that say the same of it share it.
func (t *trigger) extra() scaler.NodeSet {
	s := t.shape
	name := fmt.Sprintf("partition=%s cpus=%d memory=%d maxNodes=%d", t.partition, s.CPUs, s.Memory, t.maxNodes)
	if s.Sockets > 0 {
		name += fmt.Sprintf(" sockets=%d:%d:%d", s.Sockets, s.Cores, s.Threads)
	}
	if s.Gres != "" {
		name += " gres=" + s.Gres
	}
	if len(s.Features) > 0 {
		name += " features=" + strings.Join(s.Features, ",")
	}
	return scaler.NodeSet{Name: name, Max: t.maxNodes, Shape: s, Partitions: []string{t.partition}}
}

// metricName is what the HPA will know the metric by, after KEDA has put the trigger's number before it.
func (t *trigger) metricName() string { return "slurm-" + string(t.metric) }

// fields reads values and keeps the first error.
type fields struct {
	values map[string]string
	err    error
}

func (f *fields) fail(key, format string, args ...any) {
	if f.err == nil {
		f.err = invalid(key, format, args...)
	}
}

func (f *fields) float(key string, missing float64) float64 {
	text, ok := f.values[key]
	if !ok {
		return missing
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		f.fail(key, "%q is not a number of 0 or more", text)
	}
	return v
}

func (f *fields) bool(key string, missing bool) bool {
	switch text, ok := f.values[key]; {
	case !ok:
		return missing
	case text == "true":
		return true
	case text != "false":
		f.fail(key, "%q is neither true nor false", text)
	}
	return false
}

// number reads a whole number from 1 on; 0 if the key is missing.
func (f *fields) number(key string, most uint32) uint32 {
	text, ok := f.values[key]
	if !ok {
		return 0
	}
	v, err := strconv.ParseUint(text, 10, 32)
	if err != nil || v == 0 || v > uint64(most) {
		f.fail(key, "%q is not a whole number from 1 to %d", text, most)
	}
	return uint32(v)
}

// memory reads MiB, or a number with one of Slurm's units: 256G is 262144.
func (f *fields) memory(key string) uint64 {
	text := f.values[key]
	number := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(text, "B"), "b"), "i")
	factor := uint64(1)
	if number != "" {
		switch number[len(number)-1] {
		case 'M', 'm':
			number = number[:len(number)-1]
		case 'G', 'g':
			number, factor = number[:len(number)-1], 1024
		case 'T', 't':
			number, factor = number[:len(number)-1], 1024*1024
		}
	}
	v, err := strconv.ParseUint(number, 10, 32)
	if err != nil || v == 0 {
		f.fail(key, "%q is not an amount of memory: write MiB, or a number with G or T, for example 262144 or 256G", text)
	}
	return v * factor
}
