package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/internal/slurmrest"
	"github.com/slurmtide/slurmtide/internal/slurmrest/answer"
	"github.com/slurmtide/slurmtide/scaler"
)

// queueCost is what reading a long queue costs slurmctld, and us.
type queueCost struct {
	Jobs       int                `json:"jobs"` // single ones, besides an array of ArrayTasks
	ArrayTasks int                `json:"array_tasks"`
	Nodes      int                `json:"nodes"`
	RPC        map[string]rpcTime `json:"slurmctld_rpcs"` // sdiag's own figures
	Read       samples            `json:"read_s"`         // partitions, nodes and jobs, from asking to the last byte decoded
	AnswerMiB  float64            `json:"jobs_answer_mib"`
	DecodeCPU  float64            `json:"decode_cpu_s"` // of the jobs' answer, best of three
	DecodeMiB  float64            `json:"decode_mib"`   // what stays of it
	DemandCPU  float64            `json:"demand_cpu_s"`
	DemandWall float64            `json:"demand_s"` // best of three
	DemandMiB  float64            `json:"demand_mib"`
}

type rpcTime struct {
	Calls   int     `json:"calls"`
	Average float64 `json:"average_ms"`
}

const (
	queueNodes = 5_000
	queueReads = 5
	arrayTasks = 100_000
)

// longQueue makes room for many jobs, and has nodes that nobody powers up.
func longQueue(o *stack.Options) {
	o.NoBridge = true
	o.NodeLines = append(o.NodeLines, fmt.Sprintf("NodeName=far-[0-%d] CPUs=64 Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=256000 Feature=far State=CLOUD", queueNodes-1))
	o.PartitionLines = append(o.PartitionLines, fmt.Sprintf("PartitionName=far Nodes=far-[0-%d]", queueNodes-1))
	o.ExtraConf = []string{"MaxJobCount=200000", "MaxArraySize=100001", "SchedulerParameters=defer,sched_interval=600,bf_interval=600", "SlurmctldDebug=error", "SelectTypeParameters=CR_Core_Memory"}
}

// queue fills slurmctld with held jobs, reads them and asks what that cost.
func (b *bench) queue(version string, jobs int) (queueCost, error) {
	c := queueCost{Jobs: jobs, ArrayTasks: arrayTasks, Nodes: queueNodes}
	address, err := b.Forward(b.ctx, 6820)
	if err != nil {
		return c, err
	}
	key, err := b.JWTKey(b.ctx)
	if err != nil {
		return c, err
	}
	dir, err := os.MkdirTemp("", "bench-queue")
	if err != nil {
		return c, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	token := slurmrest.KeyFile{Path: filepath.Join(dir, "key"), User: "slurm"}
	if err := os.WriteFile(token.Path, key, 0o600); err != nil {
		return c, err
	}
	if _, err := b.sh(fmt.Sprintf("sbatch --hold -p far --output=/dev/null --array=0-%d --mem=2000 --wrap true", arrayTasks-1)); err != nil {
		return c, err
	}
	if err := b.submitMany(address, version, token, jobs); err != nil {
		return c, err
	}
	seen := &keeper{}
	client, err := slurmrest.Dial(b.ctx, slurmrest.Config{Server: "http://" + address, Token: token, Timeout: 3 * time.Minute, Transport: seen})
	if err != nil {
		return c, err
	}
	defer client.Close()
	if _, err := b.sh("sdiag --reset"); err != nil {
		return c, err
	}
	var times []float64
	var snap scaler.Snapshot
	for range queueReads {
		start := time.Now()
		if snap, err = client.Queue(b.ctx); err != nil {
			return c, err
		}
		times = append(times, time.Since(start).Seconds())
	}
	c.Read = summarise(times)
	if len(snap.Jobs) != jobs+1 || len(snap.Nodes) < queueNodes {
		return c, fmt.Errorf("read %d jobs and %d nodes, want %d and %d", len(snap.Jobs), len(snap.Nodes), jobs+1, queueNodes)
	}
	d, err := b.diag()
	if err != nil {
		return c, err
	}
	c.RPC = map[string]rpcTime{}
	for _, r := range d.RPCs {
		switch r.Name {
		case "REQUEST_JOB_INFO", "REQUEST_NODE_INFO", "REQUEST_PARTITION_INFO":
			c.RPC[r.Name] = rpcTime{int(r.Count), r.Time / r.Count / 1000}
		}
	}
	if c.RPC["REQUEST_JOB_INFO"].Calls == 0 {
		return c, errors.New("sdiag tells nothing of REQUEST_JOB_INFO")
	}
	if err := c.decoding(seen.jobs); err != nil {
		return c, err
	}
	c.reckoning(snap)
	return c, nil
}

// submitMany submits held jobs, no two of them alike, through slurmrestd: sbatch would take longer to start than to submit.
func (b *bench) submitMany(address, version string, token slurmrest.KeyFile, jobs int) error {
	api := map[string]string{"24.11": "v0.0.42", "26.05": "v0.0.44"}[version]
	text, _, err := token.Token(b.ctx)
	if err != nil {
		return err
	}
	var next atomic.Int64
	var wait sync.WaitGroup
	errs := make([]error, 4)
	for w := range errs {
		wait.Go(func() {
			for errs[w] == nil {
				i := next.Add(1) - 1
				if i >= int64(jobs) {
					return
				}
				body := fmt.Sprintf(`{"script": "#!/bin/sh\ntrue\n", "job": {"name": "j%d", "partition": "far", "hold": true, "environment": ["A=B"], "current_working_directory": "/tmp",
					"standard_output": "/dev/null", "tasks": %d, "minimum_nodes": %d, "memory_per_node": {"set": true, "number": %d}}}`, i, 4+i%29, 1+i%4, 1000+i)
				errs[w] = post(b, "http://"+address+"/slurm/"+api+"/job/submit", text, body)
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

func post(b *bench, url, token, body string) error {
	r, err := http.NewRequestWithContext(b.ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-SLURM-USER-TOKEN", token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("submitting a job: %s: %.500s", resp.Status, said)
	}
	return err
}

// keeper keeps the last answer that lists jobs.
type keeper struct{ jobs []byte }

// RoundTrip is http.RoundTripper's.
func (k *keeper) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusOK && strings.Contains(r.URL.Path, "/jobs") {
		kept := &bytes.Buffer{}
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(resp.Body, kept), closer{resp.Body, func() { k.jobs = kept.Bytes() }}}
	}
	return resp, err
}

type closer struct {
	io.Closer
	then func()
}

func (c closer) Close() error {
	c.then()
	return c.Closer.Close()
}

// decoding measures our side of the jobs' answer.
func (c *queueCost) decoding(body []byte) error {
	c.AnswerMiB = float64(len(body)) / (1 << 20)
	for range 3 {
		before, cpu := heap(), cpuTime()
		q := answer.NewQueue()
		if _, err := answer.Decode(bytes.NewReader(body), "jobs", q.Read); err != nil {
			return err
		}
		took := cpuTime() - cpu
		if c.DecodeCPU == 0 || took.Seconds() < c.DecodeCPU {
			c.DecodeCPU = took.Seconds()
		}
		c.DecodeMiB = heap() - before
		runtime.KeepAlive(q)
	}
	return nil
}

// reckoning measures demand for what was read, as if nothing were held.
func (c *queueCost) reckoning(s scaler.Snapshot) {
	s.NodeSets = []scaler.NodeSet{{Name: "far"}}
	for i := range s.Nodes {
		if strings.HasPrefix(s.Nodes[i].Name, "far-") {
			s.Nodes[i].NodeSet = "far"
		}
	}
	for i := range s.Jobs {
		s.Jobs[i].Reason, s.Jobs[i].Priority = "Priority", 1
	}
	for range 3 {
		runtime.GC()
		var was, is runtime.MemStats
		runtime.ReadMemStats(&was)
		start, cpu := time.Now(), cpuTime()
		scaler.Demand(start, s)
		wall, took := time.Since(start).Seconds(), (cpuTime() - cpu).Seconds()
		runtime.ReadMemStats(&is)
		if c.DemandWall == 0 || wall < c.DemandWall {
			c.DemandWall, c.DemandCPU = wall, took
		}
		c.DemandMiB = float64(is.TotalAlloc-was.TotalAlloc) / (1 << 20)
	}
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
