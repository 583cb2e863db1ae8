package external

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slurmtide/slurmtide/scaler"
	pb "github.com/slurmtide/slurmtide/scaler/external/externalscaler"
	"github.com/slurmtide/slurmtide/scaler/watch"
)

// Source has the newest figures of one cluster. watch.Watcher is one.
type Source interface {
	Latest() (watch.Figures, error)
	With(ctx context.Context, who string, set scaler.NodeSet) (watch.Figures, error)
	Changed() <-chan struct{}
}

// Service answers KEDA. It is safe for concurrent use.
type Service struct {
	pb.UnimplementedExternalScalerServer
	clusters map[string]Source
	names    []string // of clusters, ordered
	closed   chan struct{}
	close    sync.Once
}

// NewService answers for the clusters, by their names.
func NewService(clusters map[string]Source) *Service {
	s := &Service{clusters: clusters, closed: make(chan struct{})}
	for name := range clusters {
		s.names = append(s.names, name)
	}
	slices.Sort(s.names)
	return s
}

// Close ends the streams, in good order: KEDA opens them anew after two seconds.
func (s *Service) Close() { s.close.Do(func() { close(s.closed) }) }

// IsActive says whether the figure is above activationThreshold.
func (s *Service) IsActive(ctx context.Context, ref *pb.ScaledObjectRef) (*pb.IsActiveResponse, error) {
	t, source, err := s.open(ref)
	if err != nil {
		return nil, err
	}
	value, err := figure(ctx, source, &t)
	if err != nil {
		return nil, err
	}
	return &pb.IsActiveResponse{Result: value > t.activation}, nil
}

// StreamIsActive says so at once, and again whenever it changes. While there is no figure, because Slurm cannot be read or the NodeSet
// is yet to be made, it keeps silent: KEDA waits longer and longer, up to a minute and for as long as the trigger lives, before it opens
// a stream that failed, and learns of the error when it polls.
func (s *Service) StreamIsActive(ref *pb.ScaledObjectRef, stream grpc.ServerStreamingServer[pb.IsActiveResponse]) error {
	t, source, err := s.open(ref)
	if err != nil {
		return err
	}
	ctx := stream.Context()
	said, active := false, false
	for {
		changed := source.Changed()
		value, err := figure(ctx, source, &t)
		switch {
		case ctx.Err() != nil:
			return status.FromContextError(ctx.Err()).Err()
		case err != nil:
		case !said || active != (value > t.activation):
			said, active = true, value > t.activation
			if err := stream.Send(&pb.IsActiveResponse{Result: active}); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-s.closed:
			return nil
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// GetMetricSpec gives the metric's name and target. It never fails, not even for metadata that make no sense: without a metric KEDA
// makes no HPA and asks for no figure, and all that it shows on the ScaledObject is "no metric specs returned from scalers"
// (KEDA 2.21, hpa.go getScaledObjectMetricSpecs). What is wrong GetMetrics says, and that is shown.
func (s *Service) GetMetricSpec(_ context.Context, ref *pb.ScaledObjectRef) (*pb.GetMetricSpecResponse, error) {
	t, err := parseTrigger(ref.GetScalerMetadata())
	if err != nil {
		t = trigger{metric: metricNodes, target: 1}
	}
	return spec(&t), nil
}

// StreamMetricSpec gives the same at once; it does not change as long as the trigger does not.
func (s *Service) StreamMetricSpec(ref *pb.ScaledObjectRef, stream grpc.ServerStreamingServer[pb.GetMetricSpecResponse]) error {
	t, _, err := s.open(ref)
	if err != nil {
		return err
	}
	if err := stream.Send(spec(&t)); err != nil {
		return err
	}
	select {
	case <-s.closed:
		return nil
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	}
}

func spec(t *trigger) *pb.GetMetricSpecResponse {
	return &pb.GetMetricSpecResponse{MetricSpecs: []*pb.MetricSpec{{
		MetricName: t.metricName(), TargetSize: max(1, int64(math.Round(t.target))), TargetSizeFloat: t.target,
	}}}
}

// GetMetrics gives the figure.
func (s *Service) GetMetrics(ctx context.Context, r *pb.GetMetricsRequest) (*pb.GetMetricsResponse, error) {
	t, source, err := s.open(r.GetScaledObjectRef())
	if err != nil {
		return nil, err
	}
	if name := r.GetMetricName(); name != "" && name != t.metricName() {
		return nil, refuse(codes.NotFound, "there is no metric %q: the trigger's metric is %s", name, t.metricName())
	}
	value, err := figure(ctx, source, &t)
	if err != nil {
		return nil, err
	}
	return &pb.GetMetricsResponse{MetricValues: []*pb.MetricValue{{
		MetricName: t.metricName(), MetricValue: int64(math.Round(value)), MetricValueFloat: value,
	}}}, nil
}

// Figure works out the figure for a trigger's metadata, for whoever is not KEDA. Its errors are gRPC's.
func (s *Service) Figure(ctx context.Context, metadata map[string]string) (float64, error) {
	t, source, err := s.open(&pb.ScaledObjectRef{ScalerMetadata: metadata})
	if err != nil {
		return 0, err
	}
	return figure(ctx, source, &t)
}

// open reads the trigger and finds its cluster.
func (s *Service) open(ref *pb.ScaledObjectRef) (trigger, Source, error) {
	t, err := parseTrigger(ref.GetScalerMetadata())
	if err != nil {
		return trigger{}, nil, err
	}
	if ref.GetName() != "" {
		t.who = ref.GetNamespace() + "/" + ref.GetName()
	}
	if t.cluster == "" {
		if len(s.names) != 1 {
			return trigger{}, nil, invalid(keyCluster, "it is missing: there are %s", shorten(s.names))
		}
		return t, s.clusters[s.names[0]], nil
	}
	source, ok := s.clusters[t.cluster]
	if !ok {
		return trigger{}, nil, notFound(keyCluster, "there is no %q%s; there are %s", t.cluster, meant(t.cluster, s.names), shorten(s.names))
	}
	return t, source, nil
}

// maxText is the most bytes of an error's text: KEDA makes it an Event of the ScaledObject, with some words before it, and
// kube-apiserver takes no Event with a longer note than 1024.
const maxText = 900

// refuse makes an error of gRPC.
func refuse(code codes.Code, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if len(text) > maxText {
		cut := maxText - len("…")
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return status.Error(code, text)
}

func invalid(key, format string, args ...any) error {
	return refuse(codes.InvalidArgument, "trigger metadata: %s: %s", key, fmt.Sprintf(format, args...))
}

func notFound(key, format string, args ...any) error {
	return refuse(codes.NotFound, "trigger metadata: %s: %s", key, fmt.Sprintf(format, args...))
}

// figure finds what the trigger asks for in the newest figures.
func figure(ctx context.Context, source Source, t *trigger) (float64, error) {
	f, err := source.Latest()
	if err != nil {
		return 0, failure(err)
	}
	name := t.nodeSet
	switch sets, ok := f.InPartition(t.partition); {
	case name != "":
	case !ok:
		return 0, notFound(keyPartition, "Slurm has no partition %q%s", t.partition, meant(t.partition, partitions(f)))
	case t.shape != nil:
		set := t.extra()
		if f, err = source.With(ctx, t.who, set); err != nil {
			return 0, failure(err)
		}
		name = set.Name
	case len(sets) == 0:
		return 0, notFound(keyPartition, "partition %s has no NodeSet: give cpus, memory and maxNodes of the nodes that it can get", t.partition)
	case len(sets) > 1:
		return 0, invalid(keyPartition, "partition %s has several NodeSets, %s: give nodeSet", t.partition, strings.Join(sets, ", "))
	default:
		name = sets[0]
	}
	d, ok := f.NodeSet(name)
	if !ok {
		own := f.Own()
		return 0, notFound(keyNodeSet, "there is no NodeSet %q%s; there are %s. For nodes of another operator give partition, cpus, memory and maxNodes",
			name, meant(name, own), shorten(own))
	}
	if t.metric == metricGPUs && !d.HasGPUs {
		return 0, invalid(keyMetric, "gpus are to be counted, and the nodes of NodeSet %s have none", name)
	}
	return t.value(d), nil
}

// value picks the figure.
func (t *trigger) value(d watch.SetFigures) float64 {
	running := int64(1)
	if t.waiting {
		running = 0
	}
	switch t.metric {
	case metricGPUs:
		return float64(d.GPUs + running*d.Running.GPUs)
	case metricCPUs:
		return float64(d.CPUs + running*d.Running.CPUs)
	case metricJobs:
		return float64(d.Jobs + running*d.Running.Jobs)
	default:
		return float64(d.New.Greedy+d.Ready) + float64(running)*float64(d.InUse)
	}
}

// failure gives errors of a Source their code.
func failure(err error) error {
	var old *watch.NotReadError
	var conflict *watch.ConflictError
	switch {
	case errors.As(err, &old):
		return refuse(codes.Unavailable, "%v", err)
	case errors.As(err, &conflict):
		return invalid(keyPartition, "%v", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	default:
		return refuse(codes.ResourceExhausted, "%v", err)
	}
}

func partitions(f watch.Figures) []string {
	var names []string
	for _, p := range f.Snapshot.Partitions {
		names = append(names, p.Name)
	}
	return names
}

// shorten lists names, as many as people read.
func shorten(names []string) string {
	const most = 10
	if len(names) == 0 {
		return "none"
	}
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
