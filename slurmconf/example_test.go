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

func ExampleFile_AddWords() {
	file, err := slurmconf.ParseFile("slurm.conf", []byte("# ours\nSlurmctldParameters=enable_configless # see the wiki\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := file.AddWords("SlurmctldParameters", "power_save_interval=0"); err != nil {
		fmt.Println(err)
	}
	fmt.Print(file)
	// Output:
	// # ours
	// SlurmctldParameters=enable_configless,power_save_interval=0 # see the wiki
}

func ExampleConfig_Check() {
	config, err := slurmconf.ReadConfig("slurm.conf", func(string) ([]byte, error) {
		return []byte("ClusterName=c\nSlurmctldHost=h\nResumeTimout=300\nSuspendTimeout=060\n"), nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, problem := range config.Check(slurmconf.SlurmConf, slurmconf.Version{Major: 24, Minor: 11}) {
		fmt.Println(problem)
	}
	// Output:
	// slurm.conf:3:1: "ResumeTimout" is no key of slurm.conf in Slurm 24.11; is ResumeTimeout meant?
	// slurm.conf:4:16: Slurm reads SuspendTimeout=060 as 48; write 48
}
