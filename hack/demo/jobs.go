package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

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
	jobs, err := d.waitJob(ctx, run.ID, func(jobs []job) bool { return jobs[0].state() == "RUNNING" })
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
	began, err := parseMark(lines[0])
	if err != nil {
		return "", err
	}
	run.ran(began, jobs[0].nodes()...)
	d.addRun(run)
	return fmt.Sprintf("job %d RUNNING on %s %.2fs after sbatch", run.ID, jobs[0].Nodes, run.SecondsToRunning), nil
}

func (d *demo) finishTwoNodes(ctx context.Context) (string, error) {
	run := d.run("two-nodes")
	jobs, err := d.waitDone(ctx, run.ID)
	if err != nil {
		return "", err
	}
	lines, err := d.output(ctx, jobs[0])
	if err != nil {
		return "", err
	}
	if hosts := slices.Sorted(slices.Values(lines[1:])); len(run.Nodes) != 2 || !slices.Equal(hosts, run.Nodes) {
		return "", fmt.Errorf("job %d has nodes %v, but its srun ran on %v", run.ID, run.Nodes, hosts)
	}
	return fmt.Sprintf("job %d COMPLETED, its srun ran on %s", run.ID, jobs[0].Nodes), nil
}

func (d *demo) gpuJob(ctx context.Context) (string, error) {
	run, err := d.sbatch(ctx, "gpu", gpuScript, "-p", "gpu", "--gres=gpu:h100:2")
	if err != nil {
		return "", err
	}
	jobs, err := d.waitDone(ctx, run.ID)
	if err != nil {
		return "", err
	}
	lines, err := d.output(ctx, jobs[0])
	if err != nil {
		return "", err
	}
	if len(lines) != 3 || len(strings.Split(lines[1], ",")) != 2 || lines[2] != jobs[0].Nodes {
		return "", fmt.Errorf("job %d should see two GPUs on %s, it printed %q", run.ID, jobs[0].Nodes, lines)
	}
	var given int64
	d.world.read(func(f *facts) { given = f.Pods[jobs[0].Nodes].GPUs })
	if given != 2 {
		return "", fmt.Errorf("job %d needs two GPUs, but pod %s has a limit of %d nvidia.com/gpu", run.ID, jobs[0].Nodes, given)
	}
	began, err := parseMark(lines[0])
	if err != nil {
		return "", err
	}
	run.ran(began, jobs[0].nodes()...)
	d.addRun(run)
	return fmt.Sprintf("job %d COMPLETED on %s with CUDA_VISIBLE_DEVICES=%s, RUNNING %.2fs after sbatch", run.ID, jobs[0].Nodes, lines[1], run.SecondsToRunning), nil
}

func (d *demo) arrayJob(ctx context.Context) (string, error) {
	run, err := d.sbatch(ctx, "array", arrayScript, "-n1", fmt.Sprintf("--array=0-%d", arrayTasks-1))
	if err != nil {
		return "", err
	}
	read := map[uint32]bool{} // by the task's own job id
	for len(read) < arrayTasks {
		// Each output is read as soon as its task is done: where tasks start far apart, the first node is gone before the last task ends.
		unread := func(j job) bool { return j.done() && !read[j.ID] }
		jobs, err := d.waitJob(ctx, run.ID, func(jobs []job) bool { return slices.ContainsFunc(jobs, unread) })
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
				return "", fmt.Errorf("task %s ran on %s, it printed %q", j.label(), j.Nodes, lines)
			}
			began, err := parseMark(lines[0])
			if err != nil {
				return "", err
			}
			run.ran(began, j.nodes()...)
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
	run, err := parseSrun(out)
	if err != nil {
		return "", err
	}
	jobs, err := d.waitDone(ctx, run.ID)
	if err != nil {
		return "", err
	}
	if len(run.Nodes) != 2 || !slices.Equal(run.Nodes, jobs[0].nodes()) {
		return "", fmt.Errorf("job %d has nodes %s, but its tasks ran on %v", run.ID, jobs[0].Nodes, run.Nodes)
	}
	d.addRun(run)
	return fmt.Sprintf("job %d COMPLETED, its two tasks ran on %s, the first %.2fs after srun", run.ID, jobs[0].Nodes, run.SecondsToRunning), nil
}

// parseSrun reads the time at which srun began and the lines that srunScript printed.
func parseSrun(out string) (jobRun, error) {
	lines := splitLines(out)
	if len(lines) != 3 {
		return jobRun{}, fmt.Errorf("srun should run two tasks, it printed %q", out)
	}
	submitted, err := parseMark(lines[0])
	if err != nil {
		return jobRun{}, err
	}
	run := jobRun{Name: "srun", Submitted: submitted}
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return jobRun{}, fmt.Errorf("a task of srun printed %q", line)
		}
		began, err := parseMark(fields[0])
		if err != nil {
			return jobRun{}, err
		}
		id, err := strconv.ParseUint(fields[1], 10, 32)
		if err != nil {
			return jobRun{}, fmt.Errorf("a task of srun printed %q, which has no job id: %w", line, err)
		}
		run.ID = uint32(id)
		run.ran(began, fields[2])
	}
	return run, nil
}

// sbatch submits a script. The time is taken in the container, right before sbatch begins.
func (d *demo) sbatch(ctx context.Context, name, script string, args ...string) (jobRun, error) {
	command := append([]string{"sh", "-c", `date +%s.%N; exec sbatch --parsable "$@"`, "sbatch", "--job-name=" + name, "--output=" + outputFile("%j")}, args...)
	out, _, err := d.stack.ExecInput(ctx, strings.NewReader(script), stack.ContainerSlurmctld, command...)
	if err != nil {
		return jobRun{}, err
	}
	return parseSbatch(name, out)
}

func parseSbatch(name, out string) (jobRun, error) {
	lines := splitLines(out)
	if len(lines) != 2 {
		return jobRun{}, fmt.Errorf("sbatch should print a job id, it printed %q", out)
	}
	submitted, err := parseMark(lines[0])
	if err != nil {
		return jobRun{}, err
	}
	id, err := strconv.ParseUint(lines[1], 10, 32)
	if err != nil {
		return jobRun{}, fmt.Errorf("sbatch should print a job id: %w", err)
	}
	return jobRun{Name: name, ID: uint32(id), Submitted: submitted}, nil
}

// parseMark reads what `date +%s.%N` prints.
func parseMark(text string) (time.Time, error) {
	whole, fraction, _ := strings.Cut(strings.TrimSpace(text), ".")
	sec, err := strconv.ParseUint(whole, 10, 40)
	nsec, err2 := strconv.ParseUint(fraction, 10, 32)
	if err != nil || err2 != nil || len(fraction) != 9 {
		return time.Time{}, fmt.Errorf("%q is not what `date +%%s.%%N` prints", text)
	}
	return time.Unix(int64(sec), int64(nsec)).UTC(), nil
}

// outputFile is in the pod of the job's first node: there is no shared file system.
func outputFile(job string) string { return "/tmp/demo-" + job + ".out" }

// output returns the lines the job has printed. It is an error when there are none.
func (d *demo) output(ctx context.Context, j job) ([]string, error) {
	out, _, err := d.stack.ExecPod(ctx, j.BatchHost, nil, v1alpha1.ContainerSlurmd, "cat", outputFile(strconv.FormatUint(uint64(j.ID), 10)))
	if err != nil {
		return nil, fmt.Errorf("reading the output of job %s: %w", j.label(), err)
	}
	lines := splitLines(out)
	if len(lines) == 0 {
		return nil, fmt.Errorf("job %s has printed nothing", j.label())
	}
	return lines, nil
}

// splitLines returns the complete lines of text.
func splitLines(text string) []string {
	end := strings.LastIndexByte(text, '\n')
	if end < 0 {
		return nil
	}
	return strings.Split(text[:end], "\n")
}

// waitDone returns when the job, or every task of the array, has COMPLETED.
func (d *demo) waitDone(ctx context.Context, id uint32) ([]job, error) {
	return d.waitJob(ctx, id, func(jobs []job) bool {
		return !slices.ContainsFunc(jobs, func(j job) bool { return !j.done() })
	})
}

// waitJob returns when scontrol shows the job, or the tasks of the array, as wanted.
func (d *demo) waitJob(ctx context.Context, id uint32, wanted func([]job) bool) ([]job, error) {
	var jobs []job
	err := d.world.wait(ctx, func(f *facts) (bool, error) {
		jobs = f.Slurm.job(id)
		for _, j := range jobs {
			if j.failed() {
				return false, fmt.Errorf("job %s failed: %s, reason %s", j.label(), strings.Join(j.States, "+"), j.Reason)
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
