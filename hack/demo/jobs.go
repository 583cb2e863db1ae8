package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/hack/demo/printed"
	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// jobRun is one job of the demo, an array being one.
type jobRun struct {
	Name      string    `json:"name"`
	ID        uint32    `json:"id"`
	Nodes     []string  `json:"nodes"`
	Submitted time.Time `json:"submitted"` // sbatch or srun began
	Running   time.Time `json:"running"`   // its first command ran, by the node's clock; of an array the first task's
	AllRun    time.Time `json:"allRunning"`
	// SecondsToRunning is from Submitted to Running, SecondsToAllRunning to AllRun: the last task of an array, or of an srun.
	SecondsToRunning    float64 `json:"secondsToRunning"`
	SecondsToAllRunning float64 `json:"secondsToAllRunning"`

	began map[string]time.Time // the first task of each node
}

// ran notes that a task began at that time on the nodes.
func (r *jobRun) ran(began time.Time, nodes ...string) {
	if r.began == nil {
		r.began, r.Running, r.AllRun = map[string]time.Time{}, began, began
	}
	if began.Before(r.Running) {
		r.Running = began
	}
	if began.After(r.AllRun) {
		r.AllRun = began
	}
	r.SecondsToRunning, r.SecondsToAllRunning = r.Running.Sub(r.Submitted).Seconds(), r.AllRun.Sub(r.Submitted).Seconds()
	for _, n := range nodes {
		if known, ok := r.began[n]; !ok || began.Before(known) {
			r.began[n] = began
		}
	}
	r.Nodes = slices.Sorted(maps.Keys(r.began))
}

// Every script's first output is the time at which it began, which is the most honest RUNNING there is: squeue shows whole seconds.
const (
	twoNodesScript = `#!/bin/sh
date +%s.%N
srun --ntasks-per-node=1 hostname
# Keep the nodes until the other jobs have nodes, so that those come from zero, too.
sleep 8
`
	gpuScript = `#!/bin/sh
date +%s.%N
echo "$CUDA_VISIBLE_DEVICES"
hostname
`
	arrayScript = `#!/bin/sh
date +%s.%N
echo "$SLURM_ARRAY_TASK_ID"
hostname
sleep 1
`
	srunScript = `echo "$(date +%s.%N) $SLURM_JOB_ID $(hostname)"`
	arrayTasks = 8
)

// twoNodes submits a job that needs two nodes, alone, and returns when it runs. finish waits for its end and checks what it did.
func (d *demo) twoNodes(ctx context.Context) (detail string, err error) {
	run, err := d.sbatch(ctx, "two-nodes", twoNodesScript, "-N2", "--exclusive")
	if err != nil {
		return "", err
	}
	jobs, err := d.waitJob(ctx, run.ID, func(jobs []printed.Job) bool { return jobs[0].State() == "RUNNING" })
	if err != nil {
		return "", err
	}
	var lines []string
	// slurmctld says RUNNING a moment before the script writes.
	for len(lines) == 0 {
		if lines, err = d.output(ctx, jobs[0]); err != nil && !pause(ctx, 100*time.Millisecond) {
			return "", err
		}
	}
	began, err := printed.ParseMark(lines[0])
	if err != nil {
		return "", err
	}
	run.ran(began, jobs[0].NodeNames()...)
	d.addRun(run)
	return fmt.Sprintf("job %d RUNNING on %s %.2fs after sbatch", run.ID, jobs[0].Nodes, run.SecondsToRunning), nil
}

func (d *demo) finishTwoNodes(ctx context.Context) (string, error) {
	run := d.run("two-nodes")
	j, lines, err := d.outcome(ctx, run.ID)
	if err != nil {
		return "", err
	}
	if hosts := slices.Sorted(slices.Values(lines[1:])); len(run.Nodes) != 2 || !slices.Equal(hosts, run.Nodes) {
		return "", fmt.Errorf("job %d has nodes %v, but its srun ran on %v", run.ID, run.Nodes, hosts)
	}
	return fmt.Sprintf("job %d COMPLETED, its srun ran on %s", run.ID, j.Nodes), nil
}

func (d *demo) gpuJob(ctx context.Context) (string, error) {
	run, err := d.sbatch(ctx, "gpu", gpuScript, "-p", "gpu", "--gres=gpu:h100:2")
	if err != nil {
		return "", err
	}
	j, lines, err := d.outcome(ctx, run.ID)
	if err != nil {
		return "", err
	}
	if len(lines) != 3 || len(strings.Split(lines[1], ",")) != 2 || lines[2] != j.Nodes {
		return "", fmt.Errorf("job %d should see two GPUs on %s, it printed %q", run.ID, j.Nodes, lines)
	}
	var given int64
	d.world.read(func(f *facts) { given = f.Pods[j.Nodes].GPUs })
	if given != 2 {
		return "", fmt.Errorf("job %d needs two GPUs, but pod %s has a limit of %d nvidia.com/gpu", run.ID, j.Nodes, given)
	}
	began, err := printed.ParseMark(lines[0])
	if err != nil {
		return "", err
	}
	run.ran(began, j.NodeNames()...)
	d.addRun(run)
	return fmt.Sprintf("job %d COMPLETED on %s with CUDA_VISIBLE_DEVICES=%s, RUNNING %.2fs after sbatch", run.ID, j.Nodes, lines[1], run.SecondsToRunning), nil
}

func (d *demo) arrayJob(ctx context.Context) (string, error) {
	run, err := d.sbatch(ctx, "array", arrayScript, "-n1", fmt.Sprintf("--array=0-%d", arrayTasks-1))
	if err != nil {
		return "", err
	}
	read := map[uint32]bool{} // by the task's own job id
	for len(read) < arrayTasks {
		// Each output is read as soon as its task is done: where tasks start far apart, the first node is gone before the last task ends.
		unread := func(j printed.Job) bool { return j.Done() && !read[j.ID] }
		jobs, err := d.waitJob(ctx, run.ID, func(jobs []printed.Job) bool { return slices.ContainsFunc(jobs, unread) })
		if err != nil {
			return "", err
		}
		for _, j := range jobs {
			if !unread(j) {
				continue
			}
			lines, err := d.output(ctx, j)
			if err != nil {
				return "", err
			}
			if len(lines) != 3 || lines[1] != strconv.FormatUint(j.ArrayTask.Number, 10) || lines[2] != j.Nodes {
				return "", fmt.Errorf("task %s ran on %s, it printed %q", j.Label(), j.Nodes, lines)
			}
			began, err := printed.ParseMark(lines[0])
			if err != nil {
				return "", err
			}
			run.ran(began, j.NodeNames()...)
			read[j.ID] = true
		}
	}
	jobs, err := d.waitDone(ctx, run.ID)
	if err != nil {
		return "", err
	}
	if len(jobs) != arrayTasks {
		return "", fmt.Errorf("array %d has %d tasks, not %d", run.ID, len(jobs), arrayTasks)
	}
	d.addRun(run)
	return fmt.Sprintf("%d tasks of job %d COMPLETED on %d nodes, the first RUNNING %.2fs after sbatch, the last %.2fs",
		arrayTasks, run.ID, len(run.Nodes), run.SecondsToRunning, run.SecondsToAllRunning), nil
}

func (d *demo) srunJob(ctx context.Context) (string, error) {
	out, _, err := d.stack.Exec(ctx, stack.ContainerSlurmctld, "sh", "-c", `date +%s.%N; exec srun "$@"`, "srun",
		"--job-name=srun", "-N2", "--ntasks-per-node=1", "--exclusive", "sh", "-c", srunScript)
	if err != nil {
		return "", err
	}
	submitted, tasks, err := printed.ParseSrun(out)
	if err != nil {
		return "", err
	}
	run := jobRun{Name: "srun", ID: tasks[0].Job, Submitted: submitted}
	for _, t := range tasks {
		run.ran(t.Began, t.Node)
	}
	jobs, err := d.waitDone(ctx, run.ID)
	if err != nil {
		return "", err
	}
	if len(run.Nodes) != 2 || !slices.Equal(run.Nodes, jobs[0].NodeNames()) {
		return "", fmt.Errorf("job %d has nodes %s, but its tasks ran on %v", run.ID, jobs[0].Nodes, run.Nodes)
	}
	d.addRun(run)
	return fmt.Sprintf("job %d COMPLETED, its two tasks ran on %s, the first %.2fs after srun", run.ID, jobs[0].Nodes, run.SecondsToRunning), nil
}

// sbatch submits a script. The time is taken in the container, right before sbatch begins.
func (d *demo) sbatch(ctx context.Context, name, script string, args ...string) (jobRun, error) {
	command := append([]string{"sh", "-c", `date +%s.%N; exec sbatch --parsable "$@"`, "sbatch", "--job-name=" + name, "--output=" + outputFile("%j")}, args...)
	out, _, err := d.stack.ExecInput(ctx, strings.NewReader(script), stack.ContainerSlurmctld, command...)
	if err != nil {
		return jobRun{}, err
	}
	submitted, id, err := printed.ParseSbatch(out)
	return jobRun{Name: name, ID: id, Submitted: submitted}, err
}

// outputFile is in the pod of the job's first node: there is no shared file system.
func outputFile(job string) string { return "/tmp/demo-" + job + ".out" }

// output returns the lines the job has printed. It is an error when there are none.
func (d *demo) output(ctx context.Context, j printed.Job) ([]string, error) {
	out, _, err := d.stack.ExecPod(ctx, j.BatchHost, nil, v1alpha1.ContainerSlurmd, "cat", outputFile(strconv.FormatUint(uint64(j.ID), 10)))
	if err != nil {
		return nil, fmt.Errorf("reading the output of job %s: %w", j.Label(), err)
	}
	lines := printed.Lines(out)
	if len(lines) == 0 {
		return nil, fmt.Errorf("job %s has printed nothing", j.Label())
	}
	return lines, nil
}

// outcome waits for the job's end and returns the lines it has printed.
func (d *demo) outcome(ctx context.Context, id uint32) (printed.Job, []string, error) {
	jobs, err := d.waitDone(ctx, id)
	if err != nil {
		return printed.Job{}, nil, err
	}
	lines, err := d.output(ctx, jobs[0])
	return jobs[0], lines, err
}

// waitDone returns when the job, or every task of the array, has COMPLETED.
func (d *demo) waitDone(ctx context.Context, id uint32) ([]printed.Job, error) {
	return d.waitJob(ctx, id, func(jobs []printed.Job) bool {
		return !slices.ContainsFunc(jobs, func(j printed.Job) bool { return !j.Done() })
	})
}

// waitJob returns when scontrol shows the job, or the tasks of the array, as wanted.
func (d *demo) waitJob(ctx context.Context, id uint32, wanted func([]printed.Job) bool) ([]printed.Job, error) {
	var jobs []printed.Job
	err := d.world.wait(ctx, func(f *facts) (bool, error) {
		jobs = f.Slurm.Job(id)
		for _, j := range jobs {
			if j.Failed() {
				return false, fmt.Errorf("job %s failed: %s, reason %s", j.Label(), strings.Join(j.States, "+"), j.Reason)
			}
		}
		return len(jobs) > 0 && wanted(jobs), nil
	})
	if err != nil && ctx.Err() != nil {
		states := []string{"not seen"}
		if len(jobs) > 0 {
			states = jobs[0].States
		}
		return nil, fmt.Errorf("job %d is %s: %w", id, strings.Join(states, "+"), err)
	}
	return jobs, err
}
