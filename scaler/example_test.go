package scaler_test

import (
	"fmt"
	"time"

	"github.com/slurmtide/slurmtide/scaler"
)

func ExampleDemand() {
	cpu := &scaler.Shape{CPUs: 8, Memory: 16_000}
	gpu := &scaler.Shape{CPUs: 32, Memory: 256_000, Gres: "gpu:h100:8"}
	task := scaler.Request{Partitions: "cpu", Tasks: 1, CPUs: 1, CPUsPerTask: 1, Memory: 1000}
	large := scaler.Request{Partitions: "gpu", Tasks: 1, CPUs: 1, CPUsPerTask: 1, Memory: 1000, TRESPerNode: "gres/gpu:h200:8"}
	report := scaler.Demand(time.Now(), scaler.Snapshot{
		Jobs: []scaler.Job{
			{ID: 11, Reason: "Resources", Priority: 10, ArrayJobID: 11, ArrayTasks: "0-19", Request: task},
			{ID: 12, Reason: "Resources", Priority: 10, Request: large},
			{ID: 13, Reason: "QOSMaxCpuPerUserLimit", Priority: 10, Request: task},
		},
		Partitions: []scaler.Partition{{Name: "cpu"}, {Name: "gpu"}},
		NodeSets: []scaler.NodeSet{ // without records in Slurm yet
			{Name: "cpu", Max: 50, Shape: cpu, Partitions: []string{"cpu"}},
			{Name: "gpu", Max: 4, Shape: gpu, Partitions: []string{"gpu"}},
		},
	})
	for _, set := range report.NodeSets {
		fmt.Println(set.Name, "needs", set.Nodes(), "nodes")
	}
	for _, job := range report.Jobs {
		fmt.Println(job)
	}
	// Output:
	// cpu needs 3 nodes
	// gpu needs 0 nodes
	// job 11: capacity (20 of 20 tasks count), powers up 3
	// job 12: impossible: needs gpu:h200:8, NodeSet gpu offers gpu:h100:8
	// job 13: limit: QOSMaxCpuPerUserLimit
}
