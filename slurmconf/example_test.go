package slurmconf_test

import (
	"fmt"

	"github.com/slurmtide/slurmtide/slurmconf"
)

func ExampleParseHostlist() {
	nodes, err := slurmconf.ParseHostlist("cpu[8-10],gpu[01-04]")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(nodes.Len(), nodes.Contains("gpu04"), nodes.Contains("gpu4"))
	for name := range nodes.Slice(0, 3).All() {
		fmt.Println(name)
	}
	// Output:
	// 7 true false
	// cpu8
	// cpu9
	// cpu10
}

func ExampleParseHostlist_error() {
	_, err := slurmconf.ParseHostlist("cpu[0-49],gpu[4-1]")
	fmt.Println(err)
	// Output: hostlist: "4-1" at position 15: the range runs backwards; write 1-4
}

func ExampleCompressHostlist() {
	fmt.Println(slurmconf.CompressHostlist([]string{"tux1", "tux2", "tux4", "login"}))
	// Output: tux[1-2,4],login
}

func ExampleParseResumeFile() {
	file, err := slurmconf.ParseResumeFile([]byte(`{
		"all_nodes_resume": "n[1-2]",
		"jobs": [{"job_id": 7, "nodes_alloc": "n[1-3]", "nodes_resume": "n[1-2]", "priority": "high"}]
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, job := range file.Jobs {
		fmt.Println(job.JobID, job.NodesResume, "of", job.NodesAlloc)
	}
	for _, problem := range file.Problems {
		fmt.Println(problem)
	}
	// Output:
	// 7 n[1-2] of n[1-3]
	// jobs[0] (job 7).priority: want a number from 0 to 4294967295, found "high"
}
