package external

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/slurmtide/slurmtide/scaler"
	pb "github.com/slurmtide/slurmtide/scaler/external/externalscaler"
)

// A stream outlives a NodeSet that is not there yet, or away for a while: KEDA would wait up to a minute before it opened another.
func TestStreamWaitsForNodeSet(t *testing.T) {
	s := newSlurm(3)
	both := s.sets
	s.sets = both[1:]
	s.submit("cpu", 1)
	client := pb.NewExternalScalerClient(dial(t, serve(t, NewService(map[string]Source{"one": watcher(t, s)}), Options{}), nil))
	stream, err := client.StreamIsActive(t.Context(), ref(meta{"nodeSet": "cpu"}))
	require.NoError(t, err)
	_, err = client.IsActive(t.Context(), ref(meta{"nodeSet": "cpu"}))
	require.Equal(t, codes.NotFound, status.Code(err), "whoever asks is told")
	got := make(chan bool, 10)
	go func() {
		defer close(got)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			got <- r.Result
		}
	}()
	select {
	case r, ok := <-got:
		require.Fail(t, "the stream should be silent", "%v %v", r, ok)
	case <-time.After(500 * time.Millisecond):
	}
	s.mu.Lock()
	s.sets = both
	s.mu.Unlock()
	select {
	case r, ok := <-got:
		assert.True(t, ok && r)
	case <-time.After(5 * time.Second):
		require.Fail(t, "nothing was pushed")
	}
}

// A trigger that is changed counts anew at once; what it said before takes no jobs away from it.
func TestTriggerIsChanged(t *testing.T) {
	s := newSlurm(1)
	s.nodes = append(s.nodes, scaler.Node{Name: "x-0", Partitions: []string{"slinky"}, State: scaler.NodeUp, Shape: &scaler.Shape{CPUs: 4, Memory: 1000}, AllocCPUs: 4})
	s.submit("slinky", 7)
	service := NewService(map[string]Source{"one": watcher(t, s)})
	value := func(name, most string) (int64, error) {
		r := ref(meta{"partition": "slinky", "cpus": "4", "memory": "1000", "maxNodes": most})
		r.Name = name
		got, err := service.GetMetrics(t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: r})
		if err != nil {
			return 0, err
		}
		return got.MetricValues[0].MetricValue, nil
	}
	got, err := value("so", "5")
	require.NoError(t, err)
	assert.EqualValues(t, 5, got)

	_, err = value("so", "20")
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	assert.Regexp(t, `^trigger metadata: partition: the same ScaledObject has said otherwise of the nodes of partition slinky 0\.\ds ago: `+
		`"partition=slinky cpus=4 memory=1000 maxNodes=5", and not "partition=slinky cpus=4 memory=1000 maxNodes=20"; let all its triggers say the same\. After a change this passes within 2s$`, status.Convert(err).Message())
	time.Sleep(2100 * time.Millisecond)
	got, err = value("so", "20")
	require.NoError(t, err)
	assert.EqualValues(t, 8, got, "one in use, seven wanted")
}

// Streams end when the client goes: nothing stays behind.
func TestStreamsEndWithTheClient(t *testing.T) {
	clusters := map[string]Source{"one": watcher(t, newSlurm(1))}
	registry := prometheus.NewRegistry()
	client := pb.NewExternalScalerClient(dial(t, serve(t, NewService(clusters), Options{Metrics: NewMetrics(registry, clusters)}), nil))
	ctx, cancel := context.WithCancel(t.Context())
	active, err := client.StreamIsActive(ctx, ref(meta{"nodeSet": "cpu"}))
	require.NoError(t, err)
	_, err = active.Recv()
	require.NoError(t, err)
	silent, err := client.StreamIsActive(ctx, ref(meta{"nodeSet": "none"}))
	require.NoError(t, err)
	spec, err := client.StreamMetricSpec(ctx, ref(meta{"nodeSet": "cpu"}))
	require.NoError(t, err)
	_, err = spec.Recv()
	require.NoError(t, err)
	cancel()
	_, err = silent.Recv()
	require.Equal(t, codes.Canceled, status.Code(err))
	assert.Eventually(t, func() bool {
		all := gather(t, registry)
		return all[`slurmtide_scaler_requests_total{code="Canceled",method="StreamIsActive"}`] == 2 && all[`slurmtide_scaler_requests_total{code="Canceled",method="StreamMetricSpec"}`] == 1
	}, 5*time.Second, 20*time.Millisecond)
}

// Serve ends within seconds whatever is open: KEDA's streams in good order, others by force.
func TestShutdownWithOpenStreams(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	service := NewService(map[string]Source{"one": watcher(t, newSlurm(1))})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- service.Serve(ctx, listener, Options{Log: slog.New(slog.DiscardHandler)}) }()
	conn := dial(t, listener.Addr().String(), nil)
	client := pb.NewExternalScalerClient(conn)
	active, err := client.StreamIsActive(t.Context(), ref(meta{"nodeSet": "cpu"}))
	require.NoError(t, err)
	_, err = active.Recv()
	require.NoError(t, err)
	spec, err := client.StreamMetricSpec(t.Context(), ref(meta{"nodeSet": "cpu"}))
	require.NoError(t, err)
	_, err = spec.Recv()
	require.NoError(t, err)
	silent, err := client.StreamIsActive(t.Context(), ref(meta{"nodeSet": "none"}))
	require.NoError(t, err)
	watching, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = watching.Recv()
	require.NoError(t, err)
	start := time.Now()
	cancel()
	_, err = active.Recv()
	require.ErrorIs(t, err, io.EOF, "KEDA waits two seconds then, and not longer each time")
	_, err = spec.Recv()
	require.ErrorIs(t, err, io.EOF)
	_, err = silent.Recv()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, <-served)
	assert.Less(t, time.Since(start), stopWithin+2*time.Second)
}

// A stream pushes only when the figure passes the threshold, and again when it falls to it.
func TestStreamThreshold(t *testing.T) {
	s := newSlurm(10)
	client := pb.NewExternalScalerClient(dial(t, serve(t, NewService(map[string]Source{"one": watcher(t, s)}), Options{}), nil))
	stream, err := client.StreamIsActive(t.Context(), ref(meta{"nodeSet": "cpu", "activationThreshold": "2"}))
	require.NoError(t, err)
	got := make(chan bool, 10)
	go func() {
		defer close(got)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			got <- r.Result
		}
	}()
	next := func() (pushed, ok bool) {
		select {
		case pushed, ok = <-got:
		case <-time.After(time.Second):
		}
		return pushed, ok
	}
	pushed, ok := next()
	require.True(t, ok)
	require.False(t, pushed)
	s.submit("cpu", 2)
	pushed, _ = next()
	require.False(t, pushed, "two are not more than two")
	s.submit("cpu", 1)
	require.Eventually(t, func() bool { pushed, _ := next(); return pushed }, 5*time.Second, time.Millisecond)
	s.mu.Lock()
	s.jobs = s.jobs[:len(s.jobs)-1]
	s.at++
	s.mu.Unlock()
	require.Eventually(t, func() bool { pushed, ok := next(); return ok && !pushed }, 5*time.Second, time.Millisecond)
}
