package spool

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startBridge runs a bridge as a process of its own and returns its lines.
func startBridge(t *testing.T, dir, behaviour string) (*os.Process, *bufio.Reader) {
	t.Helper()
	cmd := command(t, "bridge", nil, dir, behaviour)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	expectLine(t, lines, "listening")
	return cmd.Process, lines
}

func expectLine(t *testing.T, lines *bufio.Reader, want string) {
	t.Helper()
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, want+"\n", line)
}

// gateCommand prepares a start gate for job 7 with the environment of a PrologSlurmctld.
func gateCommand(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	return command(t, "start-gate", []string{"SLURMTIDE_SPOOL=" + dir, "SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=cpu-[0-1]", "SLURM_JOB_PARTITION=batch"}, args...)
}

const gateLine = "gate 7 cpu-[0-1] array=0_0 het=0+0 batch attempt=0"

// start starts cmd and returns what wait tells about its end.
func start(t *testing.T, cmd *exec.Cmd) (wait func() *os.ProcessState) {
	t.Helper()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return func() *os.ProcessState {
		_ = cmd.Wait()
		return cmd.ProcessState
	}
}

func programsLog(t *testing.T, dir string) string {
	t.Helper()
	log, err := os.ReadFile(layout{dir}.logFile())
	require.NoError(t, err)
	return string(log)
}

func TestStartGateSurvivesItsBridge(t *testing.T) {
	tests := map[string]struct {
		act     func(t *testing.T, bridge *os.Process)
		outcome string
	}{
		"killed":  {func(t *testing.T, b *os.Process) { require.NoError(t, b.Kill()) }, "asking bridge: the bridge went away"},
		"stopped": {func(t *testing.T, b *os.Process) { require.NoError(t, b.Signal(syscall.SIGTERM)) }, "asking bridge: |the bridge gave up: gone"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			bridge, lines := startBridge(t, dir, "wait")
			wait := start(t, gateCommand(t, dir))
			expectLine(t, lines, gateLine)
			test.act(t, bridge)
			assert.Equal(t, 0, wait().ExitCode())
			assert.Regexp(t, test.outcome, programsLog(t, dir))
		})
	}
}

func TestStartGateEndsByASignal(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			dir := newDir(t)
			_, lines := startBridge(t, dir, "wait")
			gate := gateCommand(t, dir)
			wait := start(t, gate)
			expectLine(t, lines, gateLine)
			require.NoError(t, gate.Process.Signal(sig))
			assert.Equal(t, 0, wait().ExitCode())
			assert.Contains(t, programsLog(t, dir), "signal: "+sig.String())
			expectLine(t, lines, "gate gone")
		})
	}
}

// slurmctld cancels a job's prolog with SIGKILL: the bridge must notice.
func TestBridgeNoticesAKilledGate(t *testing.T) {
	dir := newDir(t)
	_, lines := startBridge(t, dir, "wait")
	gate := gateCommand(t, dir)
	wait := start(t, gate)
	expectLine(t, lines, gateLine)
	require.NoError(t, gate.Process.Kill())
	wait()
	expectLine(t, lines, "gate gone")
}

func TestStartGateStopsInTime(t *testing.T) {
	tests := map[string]struct{ settings, slurm string }{
		"GateTimeout":         {"GateTimeout=200ms\n", ""},
		"PrologEpilogTimeout": {"", "PrologEpilogTimeout=2\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, etc := newDir(t), t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(etc, "slurmtide.conf"), []byte(test.settings), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(etc, "slurm.conf"), []byte(test.slurm), 0o600))
			startBridge(t, dir, "wait")
			gate := gateCommand(t, dir)
			gate.Env[0] = "SLURM_CONF=" + filepath.Join(etc, "slurm.conf")
			begin := time.Now()
			assert.Equal(t, 0, start(t, gate)().ExitCode())
			assert.GreaterOrEqual(t, time.Since(begin), 200*time.Millisecond)
			assert.Less(t, time.Since(begin), time.Minute)
			// The bridge's own clock may say so first.
			assert.Regexp(t, "deadline reached|gave up: gone", programsLog(t, dir))
		})
	}
}

func TestStartGateWithoutJob(t *testing.T) {
	dir := newDir(t)
	startBridge(t, dir, "wait")
	for env, want := range map[string]string{
		"SLURM_JOB_ID=":              "not called as PrologSlurmctld",
		"SLURM_JOB_ID=x":             "not called as PrologSlurmctld",
		"SLURM_JOB_NODELIST=(null)":  "SLURM_JOB_NODELIST: not a hostlist",
		"SLURM_JOB_NODELIST=a[1-2]]": "SLURM_JOB_NODELIST: not a hostlist",
	} {
		gate := gateCommand(t, dir)
		gate.Env = append(gate.Env, env)
		assert.Equal(t, 0, start(t, gate)().ExitCode())
		assert.Contains(t, programsLog(t, dir), want)
	}
}

func TestChainedProgram(t *testing.T) {
	site, err := exec.LookPath("site-prolog")
	require.NoError(t, err)

	t.Run("keeps files, environment and success", func(t *testing.T) {
		dir := newDir(t)
		startBridge(t, dir, "ready")
		gate := gateCommand(t, dir, "--", site, "ok", "two words")
		gate.Stdin = strings.NewReader("typed")
		var stdout, stderr strings.Builder
		gate.Stdout, gate.Stderr = &stdout, &stderr
		assert.Equal(t, 0, start(t, gate)().ExitCode())
		assert.Equal(t, "site prolog: args=[\"two words\"] stdin=\"typed\" job=7\n", stdout.String())
		assert.Equal(t, "site prolog: stderr\n", stderr.String())
	})
	t.Run("its failure ends the wait", func(t *testing.T) {
		dir := newDir(t)
		startBridge(t, dir, "wait")
		assert.Equal(t, 3, start(t, gateCommand(t, dir, "--", site, "exit3"))().ExitCode())
		assert.Contains(t, programsLog(t, dir), `outcome="the chained program failed" exit=3`)
	})
	t.Run("its death by a signal becomes ours", func(t *testing.T) {
		dir := newDir(t)
		status := start(t, gateCommand(t, dir, "--", site, "die"))().Sys().(syscall.WaitStatus)
		assert.True(t, status.Signaled())
		assert.Equal(t, syscall.SIGKILL, status.Signal())
	})
	t.Run("a program that dumps core", func(t *testing.T) {
		status := start(t, gateCommand(t, newDir(t), "--", "/bin/sh", "-c", "ulimit -c 0; kill -SEGV $$"))().Sys().(syscall.WaitStatus)
		assert.Equal(t, syscall.SIGSEGV, status.Signal())
	})
	t.Run("the wait goes on after its success", func(t *testing.T) {
		dir := newDir(t)
		bridge, lines := startBridge(t, dir, "wait")
		// The program reports its end through a pipe that the gate does not hold.
		gone := filepath.Join(t.TempDir(), "gone")
		require.NoError(t, syscall.Mkfifo(gone, 0o600))
		wait := start(t, gateCommand(t, dir, "--", "/bin/sh", "-c", "exec >"+gone))
		_, err := os.ReadFile(gone)
		require.NoError(t, err)
		expectLine(t, lines, gateLine)
		require.NoError(t, bridge.Kill())
		assert.Equal(t, 0, wait().ExitCode())
		assert.Contains(t, programsLog(t, dir), "the bridge went away")
	})
	t.Run("it is waited for when there is no bridge", func(t *testing.T) {
		dir := newDir(t)
		require.NoError(t, os.Mkdir(dir, 0o700))
		gate := gateCommand(t, dir, "--", site, "wait-hup")
		out, err := gate.StdoutPipe()
		require.NoError(t, err)
		lines := bufio.NewReader(out)
		wait := start(t, gate)
		expectLine(t, lines, `site prolog: args=[] stdin="" job=7`)
		expectLine(t, lines, "site prolog: waiting")
		require.NoError(t, gate.Process.Signal(syscall.SIGHUP))
		expectLine(t, lines, "site prolog: got hangup")
		assert.Equal(t, 9, wait().ExitCode())
	})
	t.Run("SIGTERM reaches it and ends the wait", func(t *testing.T) {
		dir := newDir(t)
		_, bridgeLines := startBridge(t, dir, "wait")
		gate := gateCommand(t, dir, "--", site, "wait-hup")
		out, err := gate.StdoutPipe()
		require.NoError(t, err)
		lines := bufio.NewReader(out)
		wait := start(t, gate)
		expectLine(t, bridgeLines, gateLine)
		expectLine(t, lines, `site prolog: args=[] stdin="" job=7`)
		expectLine(t, lines, "site prolog: waiting")
		require.NoError(t, gate.Process.Signal(syscall.SIGTERM))
		expectLine(t, lines, "site prolog: got terminated")
		assert.Equal(t, 9, wait().ExitCode())
	})
	t.Run("cannot be run", func(t *testing.T) {
		dir := newDir(t)
		require.NoError(t, os.Mkdir(dir, 0o700))
		gate := gateCommand(t, dir, "--", "/no/such/program")
		var stderr strings.Builder
		gate.Stderr = &stderr
		assert.Equal(t, 127, start(t, gate)().ExitCode())
		assert.Contains(t, stderr.String(), "start-gate: starting chained program: fork/exec /no/such/program: no such file or directory")
	})
	t.Run("from the settings", func(t *testing.T) {
		etc := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(etc, "slurmtide.conf"), []byte("GateChain="+site+" exit3\n"), 0o600))
		gate := gateCommand(t, newDir(t))
		gate.Env[0] = "SLURM_CONF=" + filepath.Join(etc, "slurm.conf")
		assert.Equal(t, 3, start(t, gate)().ExitCode())
	})
}
