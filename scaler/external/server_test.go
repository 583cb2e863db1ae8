package external

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/slurmtide/slurmtide/scaler"
	pb "github.com/slurmtide/slurmtide/scaler/external/externalscaler"
	"github.com/slurmtide/slurmtide/scaler/watch"
)

// slurm is a queue that can be filled, and that can fail.
type slurm struct {
	mu    sync.Mutex
	jobs  []scaler.Job
	nodes []scaler.Node
	sets  []scaler.NodeSet
	at    int64
	fails error
	asked int
}

func newSlurm(nodes int) *slurm {
	s := &slurm{at: 1000, sets: []scaler.NodeSet{{Name: "cpu"}, {Name: "gpu"}}}
	for i := range nodes {
		s.nodes = append(s.nodes, scaler.Node{Name: fmt.Sprintf("cpu-%d", i), Partitions: []string{"cpu", "all"}, State: scaler.NodeOff, Shape: &scaler.Shape{CPUs: 4, Memory: 1000}})
	}
	s.nodes = append(s.nodes, scaler.Node{Name: "gpu-0", Partitions: []string{"gpu", "all"}, State: scaler.NodeUp, Shape: &scaler.Shape{CPUs: 8, Memory: 8000, Gres: "gpu:4"}, AllocCPUs: 6, GresUsed: "gpu:3"})
	s.jobs = []scaler.Job{{ID: 1, State: scaler.JobRunning, Nodes: "gpu-0"}}
	return s
}

func (s *slurm) submit(partition string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at++
	for range n {
		s.jobs = append(s.jobs, scaler.Job{
			ID: uint32(len(s.jobs) + 1), Reason: "Resources", Priority: 1,
			Request: scaler.Request{Partitions: partition, Tasks: 1, CPUs: 4, CPUsPerTask: 4, Memory: 1000},
		})
	}
}

func (s *slurm) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

func (s *slurm) QueuePartitions(context.Context) ([]scaler.Partition, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return []scaler.Partition{{Name: "cpu"}, {Name: "gpu"}, {Name: "all"}, {Name: "slinky"}, {Name: "free"}, {Name: "card"}, {Name: "alien"}}, s.fails
}

func (s *slurm) QueueNodes(context.Context) ([]scaler.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return slices.Clone(s.nodes), s.fails
}

func (s *slurm) QueueJobs(_ context.Context, since time.Time) ([]scaler.Job, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if since.Unix() == s.at {
		return nil, time.Time{}, s.fails
	}
	return slices.Clone(s.jobs), time.Unix(s.at, 0), s.fails
}

// NodeSets and Changed make it the source of NodeSets, too.
func (s *slurm) NodeSets() ([]scaler.NodeSet, func(string) string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sets := slices.Clone(s.sets)
	return sets, func(n string) string {
		name, _, _ := strings.Cut(n, "-")
		if !slices.ContainsFunc(sets, func(set scaler.NodeSet) bool { return set.Name == name }) {
			return ""
		}
		return name
	}, nil
}

func (s *slurm) Changed() <-chan struct{} { return nil }

// watcher runs one for the time of the test.
func watcher(t testing.TB, s *slurm) *watch.Watcher {
	w := watch.New(watch.Config{Queue: s, NodeSets: s, MaxAge: 1500 * time.Millisecond, Every: 100 * time.Millisecond, NodesEvery: 300 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	require.Eventually(t, func() bool { _, err := w.Latest(); return err == nil }, 10*time.Second, 10*time.Millisecond)
	return w
}

// serve runs the service and returns its address.
func serve(t testing.TB, s *Service, o Options) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	go func() { defer close(done); assert.NoError(t, s.Serve(ctx, listener, o)) }()
	t.Cleanup(func() { cancel(); <-done })
	return listener.Addr().String()
}

func dial(t testing.TB, address string, creds credentials.TransportCredentials) *grpc.ClientConn {
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func ref(m meta) *pb.ScaledObjectRef {
	return &pb.ScaledObjectRef{Name: "so", Namespace: "slurm", ScalerMetadata: m}
}

func TestAnswers(t *testing.T) {
	s := newSlurm(10)
	s.submit("cpu", 3)
	client := pb.NewExternalScalerClient(dial(t, serve(t, NewService(map[string]Source{"one": watcher(t, s)}), Options{}), nil))
	slinky := func(more ...string) meta {
		m := meta{"partition": "slinky", "cpus": "4", "memory": "1000", "maxNodes": "5"}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	s.submit("slinky", 7)
	s.mu.Lock()
	s.sets = append(s.sets, scaler.NodeSet{Name: "free"})
	for i, state := range []scaler.NodeState{scaler.NodeUp, scaler.NodeOff, scaler.NodeOff} {
		s.nodes = append(s.nodes, scaler.Node{Name: fmt.Sprintf("free-%d", i), Partitions: []string{"free"}, State: state, Shape: &scaler.Shape{CPUs: 4, Memory: 1000}})
	}
	// A node with a job, and one that waits and fits beside it; the same of nodes of others, with one job more.
	cards := &scaler.Shape{CPUs: 8, Memory: 8000, Gres: "gpu:4"}
	s.sets = append(s.sets, scaler.NodeSet{Name: "card"})
	for i, name := range []string{"card", "alien"} {
		s.nodes = append(s.nodes, scaler.Node{Name: name + "-0", Partitions: []string{name}, State: scaler.NodeUp, Shape: cards, AllocCPUs: 6, AllocMemory: 1000, GresUsed: "gpu:3"})
		s.jobs = append(s.jobs, scaler.Job{ID: uint32(100 + i), State: scaler.JobRunning, Nodes: name + "-0"})
		for k := range 1 + i {
			s.jobs = append(s.jobs, scaler.Job{ID: uint32(110 + 10*i + k), Reason: "Resources", Priority: 1, Request: scaler.Request{
				Partitions: name, Tasks: 1, CPUs: 2, CPUsPerTask: 2, Memory: 1000, TRESPerJob: "gres/gpu:1",
			}})
		}
	}
	s.mu.Unlock()
	alien := func(more ...string) meta {
		m := meta{"partition": "alien", "cpus": "8", "memory": "8000", "gres": "gpu:4", "maxNodes": "3"}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	s.submit("free", 2)
	for name, tc := range map[string]struct {
		meta   meta
		name   string
		target float64
		value  float64
		active bool
	}{
		"nodes":                    {meta{"nodeSet": "cpu"}, "slurm-nodes", 1, 3, true},
		"of the named cluster":     {meta{"nodeSet": "cpu", "cluster": "one"}, "slurm-nodes", 1, 3, true},
		"by partition":             {meta{"partition": "cpu"}, "slurm-nodes", 1, 3, true},
		"below the threshold":      {meta{"nodeSet": "cpu", "activationThreshold": "3"}, "slurm-nodes", 1, 3, false},
		"cpus":                     {meta{"nodeSet": "cpu", "metric": "cpus", "target": "4"}, "slurm-cpus", 4, 12, true},
		"half a target":            {meta{"nodeSet": "cpu", "metric": "jobs", "target": "0.5"}, "slurm-jobs", 0.5, 3, true},
		"nodes in use":             {meta{"nodeSet": "gpu"}, "slurm-nodes", 1, 1, true},
		"without those in use":     {meta{"nodeSet": "gpu", "includeRunning": "false"}, "slurm-nodes", 1, 0, false},
		"a node up and free":       {meta{"nodeSet": "free"}, "slurm-nodes", 1, 2, true}, // and one that is to be powered up
		"the same, in use or not":  {meta{"nodeSet": "free", "includeRunning": "false"}, "slurm-nodes", 1, 2, true},
		"gpus in use":              {meta{"nodeSet": "gpu", "metric": "gpus", "target": "4"}, "slurm-gpus", 4, 3, true},
		"jobs running":             {meta{"nodeSet": "gpu", "metric": "jobs", "target": "1"}, "slurm-jobs", 1, 1, true},
		"nodes of others, at most": {slinky(), "slurm-nodes", 1, 5, true},
		"cpus of others":           {slinky("metric", "cpus", "target", "4"), "slurm-cpus", 4, 20, true},
		"jobs, running or not":     {meta{"nodeSet": "card", "metric": "jobs", "target": "1"}, "slurm-jobs", 1, 2, true},
		"cpus, running or not":     {meta{"nodeSet": "card", "metric": "cpus", "target": "8"}, "slurm-cpus", 8, 8, true},
		"gpus, running or not":     {meta{"nodeSet": "card", "metric": "gpus", "target": "4"}, "slurm-gpus", 4, 4, true},
		"jobs that wait":           {meta{"nodeSet": "card", "metric": "jobs", "target": "1", "includeRunning": "false"}, "slurm-jobs", 1, 1, true},
		"cpus of jobs that wait":   {meta{"nodeSet": "card", "metric": "cpus", "target": "8", "includeRunning": "false"}, "slurm-cpus", 8, 2, true},
		"gpus of jobs that wait":   {meta{"nodeSet": "card", "metric": "gpus", "target": "4", "includeRunning": "false"}, "slurm-gpus", 4, 1, true},
		"gpus of others":           {alien("metric", "gpus", "target", "4"), "slurm-gpus", 4, 5, true},
		"jobs of others":           {alien("metric", "jobs", "target", "1"), "slurm-jobs", 1, 3, true},
		"gpus that others wait":    {alien("metric", "gpus", "target", "4", "includeRunning", "false"), "slurm-gpus", 4, 2, true},
		"nodes of others with GPU": {alien(), "slurm-nodes", 1, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			spec, err := client.GetMetricSpec(ctx, ref(tc.meta))
			require.NoError(t, err)
			require.Len(t, spec.MetricSpecs, 1)
			assert.Equal(t, tc.name, spec.MetricSpecs[0].MetricName)
			assert.InDelta(t, tc.target, spec.MetricSpecs[0].TargetSizeFloat, 0)
			assert.Equal(t, max(1, int64(tc.target)), spec.MetricSpecs[0].TargetSize)
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				got, err := client.GetMetrics(ctx, &pb.GetMetricsRequest{ScaledObjectRef: ref(tc.meta), MetricName: tc.name})
				require.NoError(t, err)
				require.Len(t, got.MetricValues, 1)
				assert.Equal(t, tc.name, got.MetricValues[0].MetricName)
				assert.InDelta(t, tc.value, got.MetricValues[0].MetricValueFloat, 0)
				assert.Equal(t, int64(tc.value), got.MetricValues[0].MetricValue)
			}, 5*time.Second, 20*time.Millisecond)
			active, err := client.IsActive(ctx, ref(tc.meta))
			require.NoError(t, err)
			assert.Equal(t, tc.active, active.Result)
		})
	}
}

// What is wrong is said by the calls whose error KEDA shows on the ScaledObject. GetMetricSpec's it does not show.
func TestRefusals(t *testing.T) {
	w := watcher(t, newSlurm(3))
	client := pb.NewExternalScalerClient(dial(t, serve(t, NewService(map[string]Source{"one": w, "two": w}), Options{}), nil))
	for name, tc := range map[string]struct {
		meta meta
		code codes.Code
		want string
		ends bool // a stream, too: only another trigger could help
	}{
		"no cluster":        {meta{"nodeSet": "cpu"}, codes.InvalidArgument, "cluster: it is missing: there are one, two", true},
		"unknown cluster":   {meta{"cluster": "tow", "nodeSet": "cpu"}, codes.NotFound, `cluster: there is no "tow" (did you mean two?); there are one, two`, true},
		"unknown NodeSet":   {meta{"cluster": "one", "nodeSet": "cpus"}, codes.NotFound, `nodeSet: there is no NodeSet "cpus" (did you mean cpu?); there are cpu, gpu. For nodes of another operator give partition, cpus, memory and maxNodes`, false},
		"unknown partition": {meta{"cluster": "one", "partition": "slinkie"}, codes.NotFound, `partition: Slurm has no partition "slinkie" (did you mean slinky?)`, false},
		"the same, shape":   {meta{"cluster": "one", "partition": "x", "cpus": "1", "memory": "1", "maxNodes": "1"}, codes.NotFound, `partition: Slurm has no partition "x"`, false},
		"without a NodeSet": {meta{"cluster": "one", "partition": "slinky"}, codes.NotFound, "partition: partition slinky has no NodeSet: give cpus, memory and maxNodes of the nodes that it can get", false},
		"with several":      {meta{"cluster": "one", "partition": "all"}, codes.InvalidArgument, "partition: partition all has several NodeSets, cpu, gpu: give nodeSet", false},
		"GPUs of CPU nodes": {meta{"cluster": "one", "nodeSet": "cpu", "metric": "gpus", "target": "1"}, codes.InvalidArgument, "metric: gpus are to be counted, and the nodes of NodeSet cpu have none", false},
		"unknown key":       {meta{"cluster": "one", "nodeSet": "cpu", "Target": "1"}, codes.InvalidArgument, "Target: there is no such key (did you mean target?); there are " + strings.Join(ours(), ", "), true},
		"impossible value":  {meta{"cluster": "one", "nodeSet": "cpu", "target": "-3"}, codes.InvalidArgument, `target: "-3" is not a number of 0 or more`, true},
		"nothing given":     {nil, codes.InvalidArgument, "nodeSet: it is missing: give nodeSet, or partition with the shape of its nodes", true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			spec, err := client.GetMetricSpec(ctx, ref(tc.meta))
			require.NoError(t, err, "KEDA would make no HPA, and say nothing of why")
			require.Len(t, spec.MetricSpecs, 1)
			assert.Positive(t, spec.MetricSpecs[0].TargetSizeFloat)
			_, metrics := client.GetMetrics(ctx, &pb.GetMetricsRequest{ScaledObjectRef: ref(tc.meta), MetricName: spec.MetricSpecs[0].MetricName})
			_, active := client.IsActive(ctx, ref(tc.meta))
			errs := map[string]error{"GetMetrics": metrics, "IsActive": active}
			if tc.ends {
				stream, err := client.StreamIsActive(ctx, ref(tc.meta))
				require.NoError(t, err)
				_, errs["StreamIsActive"] = stream.Recv()
			}
			for call, err := range errs {
				assert.Equal(t, tc.code, status.Code(err), call)
				assert.Equal(t, "trigger metadata: "+tc.want, status.Convert(err).Message(), call)
			}
		})
	}
	_, err := client.GetMetrics(t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: ref(meta{"cluster": "one", "nodeSet": "cpu"}), MetricName: "slurm-gpus"})
	assert.Equal(t, codes.NotFound, status.Code(err))
	_, err = client.IsActive(t.Context(), ref(meta{"nodeSet": strings.Repeat("x", MaxMessage)}))
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Contains(t, err.Error(), "larger than max")
}

// Kubernetes takes no Event with a note of more than 1024 bytes, and KEDA shows errors as Events.
func TestErrorsFitIntoEvents(t *testing.T) {
	s := newSlurm(3)
	s.sets = nil
	for i := range 30 {
		s.sets = append(s.sets, scaler.NodeSet{Name: fmt.Sprintf("%02d-%s", i, strings.Repeat("ä", 100))})
	}
	s.submit("cpu", 1)
	service := NewService(map[string]Source{"one": watcher(t, s)})
	long := strings.Repeat("long", 200)
	for name, m := range map[string]meta{
		"NodeSets with long names": {"nodeSet": "none"},
		"a long name":              {"nodeSet": long},
		"a very long name":         {"nodeSet": strings.Repeat(long, 50)},
		"a long value":             {"nodeSet": "cpu", "target": long},
		"a long key":               {"nodeSet": "cpu", strings.Repeat(long, 50): "1"},
		"a long partition":         {"partition": long, "cpus": "1", "memory": "1", "maxNodes": "1"},
	} {
		start := time.Now()
		_, err := service.IsActive(t.Context(), ref(m))
		require.Error(t, err, name)
		assert.LessOrEqual(t, len(err.Error()), 1024-len("KEDAScalerFailed"), name)
		assert.True(t, utf8.ValidString(err.Error()), name)
		assert.Less(t, time.Since(start), time.Second, "%s: it takes no time to guess what was meant", name)
	}
}

// Each cluster has its own queue, and one that is away does not bear on the others.
func TestClusters(t *testing.T) {
	one, two := newSlurm(10), newSlurm(10)
	one.submit("cpu", 2)
	two.submit("cpu", 7)
	clusters := map[string]Source{"one": watcher(t, one), "two": watcher(t, two)}
	registry := prometheus.NewRegistry()
	metrics := NewMetrics(registry, clusters)
	service := NewService(clusters)
	client := pb.NewExternalScalerClient(dial(t, serve(t, service, Options{Metrics: metrics}), nil))
	value := func(cluster string) (int64, error) {
		got, err := client.GetMetrics(t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: ref(meta{"cluster": cluster, "nodeSet": "cpu"})})
		if err != nil {
			return 0, err
		}
		return got.MetricValues[0].MetricValue, nil
	}
	for cluster, want := range map[string]int64{"one": 2, "two": 7} {
		got, err := value(cluster)
		require.NoError(t, err)
		assert.Equal(t, want, got, cluster)
		assert.InDelta(t, want, gather(t, registry)[`slurmtide_scaler_nodes_needed{cluster="`+cluster+`",nodeset="cpu"}`], 0)
	}
	two.fail(errors.New("away"))
	require.Eventually(t, func() bool { _, err := value("two"); return status.Code(err) == codes.Unavailable }, 10*time.Second, 50*time.Millisecond)
	got, err := value("one")
	require.NoError(t, err)
	assert.EqualValues(t, 2, got)
	require.NoError(t, service.Ready())
	all := gather(t, registry)
	assert.InDelta(t, 1, all[`slurmtide_scaler_readable{cluster="one"}`], 0)
	assert.InDelta(t, 0, all[`slurmtide_scaler_readable{cluster="two"}`], 0)
}

// Answers are looked up: neither Slurm is asked for them nor anything reckoned.
func TestAnswersAreLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlurm(1000)
		s.submit("cpu", 500)
		reckoned := 0
		w := watch.New(watch.Config{Queue: s, NodeSets: s, Log: slog.New(slog.DiscardHandler), OnRead: func(what string, _ time.Duration, _ error) {
			if what == "demand" {
				reckoned++
			}
		}})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = w.Run(ctx) }()
		time.Sleep(time.Second)
		service := NewService(map[string]Source{"one": w})
		shape := meta{"partition": "slinky", "cpus": "4", "memory": "1000", "maxNodes": "5"}
		_, err := service.IsActive(ctx, ref(shape)) // reckons it
		require.NoError(t, err)
		synctest.Wait()
		asked, before := s.asked, reckoned
		for _, m := range []meta{{"nodeSet": "cpu"}, shape, {"partition": "cpu", "metric": "cpus", "target": "4"}} {
			request := &pb.GetMetricsRequest{ScaledObjectRef: ref(m)}
			allocs := testing.AllocsPerRun(1000, func() {
				_, err := service.GetMetrics(ctx, request)
				require.NoError(t, err)
			})
			assert.Less(t, allocs, 100.0, m)
		}
		assert.Equal(t, asked, s.asked)
		assert.Equal(t, before, reckoned)
		cancel()
		synctest.Wait()
	})
}

// A push comes within a second of the job, errors do not look like "inactive", and streams outlive a Slurm that is away.
func TestStreamIsActive(t *testing.T) {
	s := newSlurm(10)
	service := NewService(map[string]Source{"one": watcher(t, s)})
	client := pb.NewExternalScalerClient(dial(t, serve(t, service, Options{}), nil))
	stream, err := client.StreamIsActive(t.Context(), ref(meta{"nodeSet": "cpu"}))
	require.NoError(t, err)
	got := make(chan bool, 10)
	ended := make(chan error, 1)
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			got <- r.Result
		}
	}()
	assert.False(t, <-got)
	submitted := time.Now()
	s.submit("cpu", 1)
	assert.True(t, <-got)
	assert.Less(t, time.Since(submitted), time.Second)

	s.fail(errors.New("slurmctld is away"))
	require.Eventually(t, func() bool {
		_, err := client.IsActive(t.Context(), ref(meta{"nodeSet": "cpu"}))
		return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "slurmctld is away")
	}, 10*time.Second, 50*time.Millisecond)
	_, err = client.GetMetrics(t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: ref(meta{"nodeSet": "cpu"})})
	assert.Equal(t, codes.Unavailable, status.Code(err))
	_, err = client.GetMetricSpec(t.Context(), ref(meta{"nodeSet": "cpu"}))
	require.NoError(t, err, "it does not depend on Slurm")
	require.Error(t, service.Ready())
	s.mu.Lock()
	s.jobs, s.fails = nil, nil
	s.at++
	s.mu.Unlock()
	assert.False(t, <-got, "the stream is still the same")
	service.Close()
	assert.ErrorContains(t, <-ended, "EOF")
}

func TestStreamMetricSpec(t *testing.T) {
	client := pb.NewExternalScalerClient(dial(t, serve(t, NewService(map[string]Source{"one": watcher(t, newSlurm(1))}), Options{}), nil))
	stream, err := client.StreamMetricSpec(t.Context(), ref(meta{"nodeSet": "cpu", "metric": "cpus", "target": "4"}))
	require.NoError(t, err)
	got, err := stream.Recv()
	require.NoError(t, err)
	assert.Equal(t, "slurm-cpus", got.MetricSpecs[0].MetricName)
	assert.EqualValues(t, 4, got.MetricSpecs[0].TargetSize)
	assert.InDelta(t, 4, got.MetricSpecs[0].TargetSizeFloat, 0)
}

func TestHealthAndReflection(t *testing.T) {
	s := newSlurm(1)
	conn := dial(t, serve(t, NewService(map[string]Source{"one": watcher(t, s)}), Options{}), nil)
	state := func(service string) healthpb.HealthCheckResponse_ServingStatus {
		r, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		return r.Status
	}
	assert.Equal(t, healthpb.HealthCheckResponse_SERVING, state(""))
	assert.Equal(t, healthpb.HealthCheckResponse_SERVING, state("externalscaler.ExternalScaler"))
	s.fail(errors.New("away"))
	require.Eventually(t, func() bool { return state("externalscaler.ExternalScaler") == healthpb.HealthCheckResponse_NOT_SERVING }, 10*time.Second, 50*time.Millisecond)
	assert.Equal(t, healthpb.HealthCheckResponse_SERVING, state(""), "errors have to be answered, too")

	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}))
	list, err := stream.Recv()
	require.NoError(t, err)
	assert.Contains(t, list.String(), "externalscaler.ExternalScaler")
	require.NoError(t, stream.CloseSend())
}
