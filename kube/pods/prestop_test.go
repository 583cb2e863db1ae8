package pods

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// proc is a directory like /proc.
func proc(t *testing.T, processes map[string][2]string) string {
	t.Helper()
	dir := t.TempDir()
	for pid, p := range processes {
		require.NoError(t, os.Mkdir(filepath.Join(dir, pid), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, pid, "comm"), []byte(p[0]+"\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, pid, "cmdline"), []byte(p[1]), 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "77"), 0o700)) // it has just ended
	require.NoError(t, os.WriteFile(filepath.Join(dir, "self"), nil, 0o600))
	return dir
}

// shells are those of the machine that images may have as /bin/sh.
func shells(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{"sh": {"/bin/sh"}}
	sh, err := filepath.EvalSymlinks("/bin/sh")
	require.NoError(t, err)
	for name, command := range map[string][]string{"dash": {"dash"}, "bash": {"bash", "--posix"}, "busybox": {"busybox", "sh"}} {
		if path, err := exec.LookPath(command[0]); err == nil && filepath.Base(sh) != name {
			found[name] = append([]string{path}, command[1:]...)
		}
	}
	return found
}

// scontrol is a program in dir that tells the state of node cpu-1.
func scontrol(t *testing.T, dir string) (says func(state string)) {
	return func(state string) {
		t.Helper()
		program := "#!/bin/sh\n[ \"$*\" = '--oneliner show node cpu-1' ] && echo NodeName=cpu-1 State=" + state + "+CLOUD\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "new"), []byte(program), 0o700))
		require.NoError(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "scontrol")))
	}
}

func TestLastJobs(t *testing.T) {
	others := map[string][2]string{
		"1": {"slurmd", "slurmd\x00-D\x00"}, "20": {"slurmstepd", "/usr/sbin/slurmstepd\x00infinity\x00"}, "21": {"slurmstepd", ""},
		"30": {"sh", "/bin/sh\x00-c\x00" + lastJobs + "\x00"}, "31": {"vi", "vi\x00slurmstepd: [7.batch]\x00"},
	}
	for shell, command := range shells(t) {
		run := func(t *testing.T, dir string, env ...string) (ended func() bool) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			t.Cleanup(cancel)
			for _, part := range []string{"sleep 1 ", "t % 10"} {
				require.Contains(t, lastJobs, part)
			}
			script := strings.NewReplacer("/proc", dir, "sleep 1 ", "sleep 0.2 ", "t % 10", "t % 2").Replace(lastJobs)
			hook := exec.CommandContext(ctx, command[0], append(command[1:], "-c", script, "cpu-1")...)
			hook.Env = env
			require.NoError(t, hook.Start())
			result := make(chan error, 1)
			go func() { result <- hook.Wait() }()
			return func() bool {
				select {
				case err := <-result:
					require.NoError(t, err)
					return true
				default:
					return false
				}
			}
		}
		t.Run(shell+", no job", func(t *testing.T) {
			t.Parallel()
			ended := run(t, proc(t, others), "PATH=/nowhere") // without sleep it fails if it waits
			require.Eventually(t, ended, 10*time.Second, time.Millisecond)
		})
		for _, state := range []string{"POWERING_DOWN", "POWERED_DOWN", "POWERING_UP"} {
			t.Run(shell+", "+state, func(t *testing.T) {
				t.Parallel()
				dir := proc(t, map[string][2]string{"40": {"slurmstepd", "slurmstepd: [7.batch]\x00"}})
				says := scontrol(t, dir)
				says("IDLE+DRAIN+POWER_DOWN")
				ended := run(t, dir, "PATH="+dir+":"+os.Getenv("PATH"))
				require.Never(t, ended, time.Second, 10*time.Millisecond, "Slurm uses the node")
				says("IDLE+" + state)
				require.Eventually(t, ended, 10*time.Second, 10*time.Millisecond)
			})
		}
		for _, state := range []string{"ALLOCATED", "MIXED"} {
			t.Run(shell+", no job shows, "+state, func(t *testing.T) {
				t.Parallel()
				dir := proc(t, others)
				says := scontrol(t, dir)
				says(state + "+DRAIN")
				ended := run(t, dir, "PATH="+dir+":"+os.Getenv("PATH"))
				require.Never(t, ended, 2*time.Second, 10*time.Millisecond, "Slurm has a job on the node")
				says("IDLE+COMPLETING+DRAIN")
				require.Eventually(t, ended, 10*time.Second, 10*time.Millisecond)
			})
		}
		t.Run(shell+", no job shows, IDLE", func(t *testing.T) {
			t.Parallel()
			dir := proc(t, others)
			scontrol(t, dir)("IDLE+DRAIN")
			require.Eventually(t, run(t, dir, "PATH="+dir+":"+os.Getenv("PATH")), 10*time.Second, time.Millisecond)
		})
		t.Run(shell+", no job shows, slurmctld away", func(t *testing.T) {
			t.Parallel()
			dir := proc(t, others)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "scontrol"), []byte("#!/bin/sh\nexec sleep 600\n"), 0o700))
			require.Eventually(t, run(t, dir, "PATH="+dir+":"+os.Getenv("PATH")), 20*time.Second, 10*time.Millisecond)
		})
		for name, cmdline := range map[string]string{
			"batch script":  "slurmstepd: [7.batch]\x00\x00\x00\x00",
			"step, extern":  "slurmstepd: [7.extern]\x00\x00",
			"just launched": "/usr/sbin/slurmstepd\x00",
		} {
			t.Run(shell+", "+name, func(t *testing.T) {
				t.Parallel()
				dir := proc(t, others)
				process := filepath.Join(dir, "40")
				require.NoError(t, os.Mkdir(process, 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(process, "comm"), []byte("slurmstepd\n"), 0o600))
				require.NoError(t, os.WriteFile(filepath.Join(process, "cmdline"), []byte(cmdline), 0o600))
				ended := run(t, dir)
				require.Never(t, ended, 700*time.Millisecond, 10*time.Millisecond, "a job runs")
				require.NoError(t, os.RemoveAll(process))
				began := time.Now()
				require.Eventually(t, ended, 10*time.Second, time.Millisecond)
				assert.Greater(t, time.Since(began), 190*time.Millisecond, "slurmctld may not know yet that the job has ended")
			})
		}
	}
}

func TestLetJobsEnd(t *testing.T) {
	own := &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}
	start := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}
	ns := newNodeSet("cpu", "cpu-[0-9]")
	slurmd(ns).Lifecycle = &corev1.Lifecycle{PostStart: start}
	pod, err := Build(ns, "cpu-1", 1, "r", PodOptions{Cluster: "tide"})
	require.NoError(t, err)
	assert.Equal(t, start, pod.Spec.Containers[0].Lifecycle.PostStart)
	assert.Equal(t, []string{"/bin/sh", "-c", lastJobs, "cpu-1"}, pod.Spec.Containers[0].Lifecycle.PreStop.Exec.Command)
	assert.EqualValues(t, DefaultGracePeriod, *pod.Spec.TerminationGracePeriodSeconds)

	slurmd(ns).Lifecycle.PreStop = own
	pod, err = Build(ns, "cpu-1", 1, "r", PodOptions{Cluster: "tide"})
	require.NoError(t, err)
	assert.Equal(t, own, pod.Spec.Containers[0].Lifecycle.PreStop, "the template's own stands")
}
