// Command scaler measures how fast the external scaler answers while 1,000 ScaledObjects poll it over gRPC, and the queue
// changes all the time. JSON on standard output.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/scaler/external"
	pb "github.com/slurmtide/slurmtide/scaler/external/externalscaler"
	"github.com/slurmtide/slurmtide/scaler/watch"
)

const (
	nodeSets    = 20
	nodesPerSet = 250
	jobs        = 20_000
)

type result struct {
	ScaledObjects int     `json:"scaled_objects"`
	Every         float64 `json:"poll_every_s"`
	Nodes         int     `json:"nodes"`
	Jobs          int     `json:"pending_jobs"`
	Requests      int     `json:"requests"`
	P50           float64 `json:"p50_ms"`
	P99           float64 `json:"p99_ms"`
	Max           float64 `json:"max_ms"`
	HealthP99     float64 `json:"health_p99_ms"` // of the health service over the same connection: what is not our doing
	Reckonings    int     `json:"reckonings"`
	Reckoning     float64 `json:"reckoning_max_ms"`
}

func main() {
	objects := flag.Int("objects", 1000, "ScaledObjects")
	every := flag.Duration("every", 2*time.Second, "how often each polls")
	length := flag.Duration("for", 20*time.Second, "how long")
	quiet := flag.Bool("quiet", false, "jobs do not change: nothing is reckoned meanwhile")
	flag.Parse()
	runtime.GOMAXPROCS(max(6, runtime.GOMAXPROCS(0))) // as the daemon does
	r, err := run(*objects, *every, *length, *quiet)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench scaler:", err)
		os.Exit(1)
	}
}

func run(objects int, every, length time.Duration, quiet bool) (result, error) {
	r := result{ScaledObjects: objects, Every: every.Seconds(), Nodes: nodeSets * nodesPerSet, Jobs: jobs}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	q := newQueue()
	q.quiet = quiet
	var mu sync.Mutex
	w := watch.New(watch.Config{Queue: q, NodeSets: q, Log: log, OnRead: func(what string, took time.Duration, _ error) {
		mu.Lock()
		defer mu.Unlock()
		if what == "demand" {
			r.Reckonings++
			r.Reckoning = max(r.Reckoning, millis(took))
		}
	}})
	service := external.NewService(map[string]external.Source{"tide": w})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return r, err
	}
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	running.Go(func() { _ = service.Serve(ctx, listener, external.Options{Log: log}) })
	defer running.Wait()
	defer cancel()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())) // KEDA has one, too
	if err != nil {
		return r, err
	}
	defer conn.Close()
	for {
		changed := w.Changed()
		if _, err := w.Latest(); err == nil {
			break
		}
		<-changed
	}
	client := pb.NewExternalScalerClient(conn)
	for i := range objects { // the first question about a node shape waits until it is reckoned
		if _, err := client.GetMetrics(ctx, &pb.GetMetricsRequest{ScaledObjectRef: ref(i)}); err != nil {
			return r, err
		}
	}
	times, health, err := poll(client, healthpb.NewHealthClient(conn), objects, every, length)
	if err != nil {
		return r, err
	}
	slices.Sort(times)
	slices.Sort(health)
	r.HealthP99 = millis(health[len(health)*99/100])
	r.Requests = len(times)
	r.P50, r.P99, r.Max = millis(times[len(times)/2]), millis(times[len(times)*99/100]), millis(times[len(times)-1])
	mu.Lock()
	defer mu.Unlock()
	return r, nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// poll asks as KEDA does: GetMetrics and then IsActive, of each ScaledObject at its own time.
func poll(client pb.ExternalScalerClient, checks healthpb.HealthClient, objects int, every, length time.Duration) (all, health []time.Duration, failed error) {
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var mu sync.Mutex
	var polling sync.WaitGroup
	for i := range objects {
		ref := ref(i)
		polling.Go(func() {
			var mine, others []time.Duration
			timer := time.NewTimer(rand.N(every))
			defer timer.Stop()
			for {
				select {
				case <-ctx.Done():
					mu.Lock()
					all, health = append(all, mine...), append(health, others...)
					mu.Unlock()
					return
				case <-timer.C:
					timer.Reset(every)
				}
				start := time.Now()
				_, err := client.GetMetrics(context.Background(), &pb.GetMetricsRequest{ScaledObjectRef: ref})
				mine = append(mine, time.Since(start))
				if err == nil {
					start = time.Now()
					_, err = client.IsActive(context.Background(), ref)
					mine = append(mine, time.Since(start))
				}
				if err == nil {
					start = time.Now()
					_, err = checks.Check(context.Background(), &healthpb.HealthCheckRequest{})
					others = append(others, time.Since(start))
				}
				if err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	polling.Wait()
	return all, health, failed
}

func ref(i int) *pb.ScaledObjectRef {
	return &pb.ScaledObjectRef{Name: fmt.Sprint(i), Namespace: "slurm", ScalerMetadata: metadata(i)}
}

// metadata are those of the ScaledObject: most of NodeSets, some of node shapes.
func metadata(i int) map[string]string {
	set := fmt.Sprintf("set%d", i%nodeSets)
	switch i % 10 {
	case 0:
		return map[string]string{"cluster": "tide", "partition": "others", "cpus": fmt.Sprint(8 + i%50/10), "memory": "64G", "maxNodes": "100"}
	case 1:
		return map[string]string{"cluster": "tide", "nodeSet": set, "metric": "cpus", "target": "64"}
	case 2:
		return map[string]string{"cluster": "tide", "partition": set}
	default:
		return map[string]string{"cluster": "tide", "nodeSet": set}
	}
}

// queue is a cluster of 5,000 nodes whose jobs change with every look, unless it is quiet.
type queue struct {
	jobs  []scaler.Job
	nodes []scaler.Node
	parts []scaler.Partition
	sets  []scaler.NodeSet
	quiet bool
}

func newQueue() *queue {
	random := rand.New(rand.NewPCG(1, 2))
	q := &queue{parts: []scaler.Partition{{Name: "others"}}}
	for i := range nodeSets {
		name := fmt.Sprintf("set%d", i)
		shape := &scaler.Shape{CPUs: 64, Sockets: 2, Cores: 16, Threads: 2, Memory: 256_000}
		q.sets, q.parts = append(q.sets, scaler.NodeSet{Name: name}), append(q.parts, scaler.Partition{Name: name})
		for k := range nodesPerSet {
			n := scaler.Node{Name: fmt.Sprintf("%s-%d", name, k), Partitions: []string{name}, Shape: shape, State: scaler.NodeOff}
			if k < 50 {
				n.State, n.AllocCPUs, n.AllocMemory = scaler.NodeUp, uint32(random.IntN(33))*2, uint64(random.IntN(200))*1000
			}
			q.nodes = append(q.nodes, n)
		}
	}
	for i := range jobs {
		k := uint32(i % 500)
		q.jobs = append(q.jobs, scaler.Job{ID: uint32(i + 1), Reason: "Priority", Priority: 5 + k%11, Request: scaler.Request{
			Partitions: fmt.Sprintf("set%d", k%nodeSets), MinNodes: 1 + k%4, MaxNodes: 1 + k%4, Tasks: 4 + k%29, CPUs: 4 + k%29, CPUsPerTask: 1, Memory: 1000 + uint64(k)}})
	}
	return q
}

func (q *queue) QueuePartitions(context.Context) ([]scaler.Partition, error) { return q.parts, nil }
func (q *queue) QueueNodes(context.Context) ([]scaler.Node, error)           { return q.nodes, nil }
func (q *queue) Changed() <-chan struct{}                                    { return nil }

// QueueJobs takes the time that a real answer of this size does, and something has always changed.
func (q *queue) QueueJobs(ctx context.Context, since time.Time) ([]scaler.Job, time.Time, error) {
	if q.quiet && !since.IsZero() {
		return nil, time.Time{}, nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(200 * time.Millisecond):
	}
	return q.jobs, time.Now(), ctx.Err()
}

func (q *queue) NodeSets() ([]scaler.NodeSet, func(string) string, error) {
	return q.sets, func(node string) string { set, _, _ := strings.Cut(node, "-"); return set }, nil
}
