package inplace

import (
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/slurmconf"
)

const two = "SlurmctldHost=a(a.x)\nSlurmctldHost=b(b.x)\n"

// pair is a pod with slurmctld and one with its backup, which share a volume.
func pair(t *testing.T) (a, b *world) {
	a, b = newWorld(t), newWorld(t)
	a.State = t.TempDir()
	a.Host, b.Host = "a", "b"
	b.Wanted, b.Kept, b.State = a.Wanted, a.Kept, a.State
	return a, b
}

// beat writes who is in control, as slurmctld does.
func (w *world) beat(place uint64) {
	w.t.Helper()
	text := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(time.Now().Unix())), place)
	require.NoError(w.t, writeFile(filepath.Join(w.State, heartbeatFile), string(text), 0o600))
}

func TestBackupFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t)
		a.want(two)
		defer b.start()()
		wait(3 * time.Second)
		assert.Empty(t, b.reports(), "it waits for the one in control")
		defer a.start()()
		a.beat(0)
		wait(3 * time.Second)
		since := a.last().ControlSince
		require.NotEmpty(t, since)
		assert.Equal(t, Report{InForce: Hash(conf(two)), ControlSince: since}, a.last())
		assert.Equal(t, Report{InForce: Hash(conf(two))}, b.last())

		a.want(two + "next")
		wait(10 * time.Second)
		assert.Equal(t, two+"next", a.runs())
		assert.Equal(t, two+"next", b.runs())
		assert.Equal(t, Hash(conf(two+"next")), a.last().InForce)
		assert.Equal(t, Report{InForce: Hash(conf(two + "next"))}, b.last())
		assert.Equal(t, 1, a.checks())
		assert.Zero(t, b.checks(), "one trial is enough")
		assert.Equal(t, 1, b.slurm.rereads)
		assert.Zero(t, b.slurm.asked, "that would reach the one in control")

		a.want(two + "bad")
		wait(10 * time.Second)
		assert.Equal(t, Hash(conf(two+"bad")), a.last().Rejected)
		assert.Equal(t, two+"next", b.runs(), "what one refuses none has")
		assert.Equal(t, Report{InForce: Hash(conf(two + "next"))}, b.last())
	})
}

func TestBackupTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t)
		a.want(two)
		stop := a.start()
		a.beat(0)
		defer b.start()()
		wait(3 * time.Second)
		a.want(two + "next")
		wait(10 * time.Second)
		require.Equal(t, Hash(conf(two+"next")), b.last().InForce)

		stop()
		a.slurm.end()
		wait(10 * time.Second)
		b.beat(1)
		wait(3 * time.Second)
		assert.Equal(t, Hash(conf(two+"next")), b.last().InForce, "it has read it while it stood by")
		assert.NotEmpty(t, b.last().ControlSince)
		assert.Zero(t, b.slurm.asked)
		a.want(two + "third")
		wait(10 * time.Second)
		assert.Equal(t, two+"third", b.runs())
		assert.Equal(t, 1, b.checks(), "now it is the one that tries")

		// The first one comes back: it starts with what is in force, whatever is wanted.
		a.want(two + "bad")
		wait(10 * time.Second)
		tried := a.checks()
		defer a.newPod()()
		assert.Equal(t, tried, a.checks(), "that is for the one in control")
		assert.Equal(t, two+"third", a.runs())
		a.beat(0)
		wait(10 * time.Second)
		assert.Empty(t, b.last().ControlSince)
		assert.NotEmpty(t, a.last().ControlSince)
		assert.Equal(t, Hash(conf(two+"third")), a.last().InForce)
		assert.Equal(t, Hash(conf(two+"bad")), a.last().Rejected)
	})
}

// What ended the one in control is not tried by who takes over.
func TestBackupKnowsWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t)
		a.want(two)
		stop := a.start()
		a.beat(0)
		defer b.start()()
		wait(3 * time.Second)
		a.want(two + "fatal")
		wait(10 * time.Second)
		assert.Equal(t, two, b.runs())
		stop()
		b.beat(1)
		wait(10 * time.Second)
		assert.Equal(t, two, b.runs())
		assert.Equal(t, Hash(conf(two+"fatal")), b.last().Rejected)
		assert.Zero(t, b.checks())
	})
}

// A backup that is new has no line in what was last in force.
func TestBackupIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t)
		a.want("SlurmctldHost=a(a.x)\n")
		defer a.start()()
		wait(3 * time.Second)
		assert.Empty(t, a.last().ControlSince, "it has no backups")
		a.want(two)
		defer b.start()()
		assert.Equal(t, two, b.runs())
		wait(10 * time.Second)
		a.beat(0)
		wait(10 * time.Second)
		assert.Equal(t, Hash(conf(two)), a.last().InForce)
		assert.Equal(t, Report{InForce: Hash(conf(two))}, b.last())
	})
}

// The volume's files are written one by one: what is half written is not taken.
func TestBackupWaitsForAllFiles(t *testing.T) {
	a, b := pair(t)
	a.want(two)
	a.beat(0)
	require.NoError(t, b.Init(t.Context()))
	b.slurm.start()
	first := b.installed
	require.NoError(t, writeFiles(b.Kept, conf(two+"next"), 0o644, nil))
	require.NoError(t, b.follow(t.Context()))
	assert.Equal(t, first, b.installed)
	require.NoError(t, writeFiles(b.Kept, map[string]string{"slurm.conf": two + "next", "cgroup.conf": "more"}, 0o644, nil))
	require.NoError(t, b.follow(t.Context()))
	assert.Equal(t, first, b.installed)
	require.NoError(t, b.follow(t.Context()))
	assert.Equal(t, Hash(map[string]string{"slurm.conf": two + "next", "cgroup.conf": "more"}), b.installed)
}

// What it was told to read while it stood by it need not read again; its boot time says nothing of that.
func TestBackupHasRead(t *testing.T) {
	_, b := pair(t)
	b.beat(1)
	b.want(two)
	require.NoError(t, b.Init(t.Context()))
	b.slurm.start()
	require.NoError(t, b.mark(time.Now().Add(time.Minute)))
	b.rereadAt = b.readFrom
	require.NoError(t, b.look(t.Context()))
	assert.Equal(t, b.installed, b.report.InForce)
	assert.Zero(t, b.slurm.asked)
}

// The state is that of the one in control.
func TestBackupLeavesTheState(t *testing.T) {
	a, b := pair(t)
	a.beat(0)
	a.want(two)
	number := filepath.Join(a.State, clusterNameFile)
	require.NoError(t, os.WriteFile(number, []byte("c|42"), 0o600))
	files := conf(two + "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=h\n")
	for _, w := range []*world{b, a} {
		require.NoError(t, w.Init(t.Context()))
		require.NoError(t, w.put(files))
		text, err := os.ReadFile(number)
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"a": "c", "b": "c|42"}[w.Host], string(text))
	}
}

func TestInControl(t *testing.T) {
	w := newWorld(t)
	w.State = t.TempDir()
	place, err := inControl(w.State)
	require.NoError(t, err)
	assert.Equal(t, -1, place)
	w.beat(2)
	place, err = inControl(w.State)
	require.NoError(t, err)
	assert.Equal(t, 2, place)
	require.NoError(t, os.WriteFile(filepath.Join(w.State, heartbeatFile), []byte("half"), 0o600))
	_, err = inControl(w.State)
	require.ErrorContains(t, err, "heartbeat has 4 bytes, not 16")
}

func TestOwnHost(t *testing.T) {
	for text, want := range map[string]string{
		two + "A=1\n":                        "A=1\nSlurmctldHost=b(b.x)\n",
		"SlurmctldHost=c(c.x)\n":             "SlurmctldHost=c(c.x)\n",
		"SlurmctldHost=c\nSlurmctldHost=d\n": "SlurmctldHost=c\nSlurmctldHost=d\n",
	} {
		f, err := slurmconf.ParseFile("slurm.conf", []byte(text))
		require.NoError(t, err)
		require.NoError(t, ownHost(f, "b"))
		assert.Equal(t, want, f.String())
	}
}

// A process called slurmctld, and one that tries a configuration, whose parent this is.
func TestReread(t *testing.T) {
	dir := t.TempDir()
	sh, err := exec.LookPath("sh")
	require.NoError(t, err)
	text, err := os.ReadFile(sh)
	require.NoError(t, err)
	daemon := filepath.Join(dir, "slurmctld")
	require.NoError(t, os.WriteFile(daemon, text, 0o755))
	said := filepath.Join(dir, "said")
	require.NoError(t, os.WriteFile(said, nil, 0o600))
	script := filepath.Join(dir, "script")
	require.NoError(t, os.WriteFile(script, []byte(`trap "echo read >> $1" HUP; echo up >> $1; while :; do sleep 0.1; done`), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Between the two stands a shell, so that the daemon is nobody's trial. Whoever runs the tests may ignore SIGHUP, as nohup does.
	cmd := exec.CommandContext(ctx, sh, "-c", `env --default-signal=HUP "$0" "$1" "$2" & echo $! > "$2.pid"; wait`, daemon, script, said)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	trial := exec.CommandContext(ctx, daemon, "-c", "while :; do sleep 0.1; done")
	require.NoError(t, trial.Start())
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the daemon, too
		_, _ = cmd.Process.Wait()
		_, _ = trial.Process.Wait()
	})
	var pid string
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(said)
		number, _ := os.ReadFile(said + ".pid")
		pid = strings.TrimSpace(string(number))
		return err == nil && strings.Contains(string(text), "up") && pid != ""
	}, 10*time.Second, 20*time.Millisecond)
	// Of all processes of this machine only these two are looked at.
	proc := t.TempDir()
	for _, name := range []string{"stat", pid, strconv.Itoa(trial.Process.Pid)} {
		require.NoError(t, os.Symlink(filepath.Join("/proc", name), filepath.Join(proc, name)))
	}
	l := Local{Proc: proc}
	began, err := l.Started(t.Context())
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), began, time.Minute)
	require.NoError(t, l.Reread(t.Context()))
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(said)
		return err == nil && strings.Contains(string(text), "read")
	}, 10*time.Second, 20*time.Millisecond)
	p, err := l.daemon()
	require.NoError(t, err)
	require.NoError(t, exec.Command("kill", "-KILL", pid).Run())
	assert.NotZero(t, p.pid)
	require.Eventually(t, func() bool { return l.Reread(t.Context()) != nil }, 10*time.Second, 20*time.Millisecond, "none is left")
}
