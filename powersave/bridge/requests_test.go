package bridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
)

// One ID leads from the arguments of a program through its log and the bridge's to the pod, and to whatever is done for it. What
// becomes of CreatePod.Request on the pod shows TestCreate of kube/pods.
func TestRequestIsFollowed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	resumeFile := filepath.Join(dir, "resume.json")
	require.NoError(t, os.WriteFile(resumeFile, []byte(jobFile), 0o600))
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // a program switches it off
	run := func(kind spool.Kind, nodes string) (id string) {
		env := map[string]string{"SLURMTIDE_SPOOL": dir, "SLURM_RESUME_FILE": resumeFile}
		require.Zero(t, spool.Program(kind, []string{string(kind), nodes}, func(name string) string { return env[name] }, io.Discard))
		log, err := os.ReadFile(filepath.Join(dir, "programs.log"))
		require.NoError(t, err)
		m := regexp.MustCompile(`program=` + string(kind) + ` pid=\d+ id=(\S+) nodes=` + regexp.QuoteMeta(nodes)).FindSubmatch(log)
		require.NotNil(t, m, string(log))
		return string(m[1])
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.jobs = map[uint32]powersave.SlurmJob{7: {ID: 7, State: powersave.JobRunning | powersave.JobConfiguring}}
		var log bytes.Buffer
		b, stop := w.startWith(t, dir, Config{Slurm: w, Kubernetes: w, Engine: powersave.Config{Alone: true}, Log: slog.New(slog.NewJSONHandler(&log, nil))})
		defer stop()
		pass(time.Second)
		// said returns what the log has with the ID, in order.
		said := func(id string) (messages []string) {
			synctest.Wait()
			for line := range strings.Lines(log.String()) {
				var entry struct {
					Msg      string
					Request  string
					Requests []string
				}
				require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
				if entry.Request == id || len(entry.Requests) == 1 && entry.Requests[0] == id {
					messages = append(messages, entry.Msg)
				}
			}
			return messages
		}

		w.set(booting, "cpu-0", "cpu-1")
		id := run(spool.KindResume, "cpu-[0-1]")
		b.Poked()
		pass(5 * time.Second)
		assert.Equal(t, []string{"request", "pod created", "pod created", "node registered", "node registered", "request finished"}, said(id))
		w.look(func() { assert.Equal(t, []string{id, id}, []string{w.pods["cpu-0"].Request, w.pods["cpu-1"].Request}) })

		w.set(leaving, "cpu-0", "cpu-1")
		id = run(spool.KindSuspend, "cpu-[0-1]")
		b.Poked()
		pass(5 * time.Second)
		assert.Equal(t, []string{"request", "pod deletion", "pod deletion", "nodes updated", "request finished"}, said(id))

		w.look(func() { w.stuck = "cpu-1" })
		w.set(booting, "cpu-0", "cpu-1")
		require.NoError(t, os.Remove(filepath.Join(dir, "programs.log")))
		id = run(spool.KindResume, "cpu-[0-1]")
		b.Poked()
		pass(20 * time.Second)
		assert.Subset(t, said(id), []string{"boot failed", "nodes updated", "job rests"})
	})
}

// What slurm.conf says comes to the engine with the request.
func TestTimesOfSlurmConf(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // a program switches it off
	for rate, want := range map[string]bool{"0": true, "300": false} {
		dir := t.TempDir()
		require.NoError(t, chmod700(dir))
		conf := filepath.Join(dir, "slurm.conf")
		require.NoError(t, os.WriteFile(conf, []byte("ResumeTimeout=300\nSuspendTime=60\nResumeRate="+rate+"\n"), 0o600))
		env := map[string]string{"SLURMTIDE_SPOOL": dir, "SLURM_CONF": conf}
		require.Zero(t, spool.Program(spool.KindResume, []string{"resume", "cpu-0"}, func(name string) string { return env[name] }, io.Discard))
		s, err := spool.Open(dir)
		require.NoError(t, err)
		all, _, err := s.Pending(func(string) bool { return false })
		require.NoError(t, err)
		require.Len(t, all, 1)
		r, err := decode(all[0], slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		assert.Equal(t, 5*time.Minute, r.ResumeTimeout)
		assert.Equal(t, time.Minute, r.SuspendTime)
		assert.Equal(t, want, r.AllAtOnce, rate)
	}
}

// refused is what a create fails with that an API server refuses.
type refused struct{ everywhere bool }

func (r refused) Error() string    { return "refused" }
func (r refused) Permanent() bool  { return true }
func (r refused) Everywhere() bool { return r.everywhere }

// The engine is told whether only this pod is refused, or all are that the bridge would make.
func TestCreateThatIsRefused(t *testing.T) {
	for _, everywhere := range []bool{false, true} {
		w := newWorld()
		w.createErr = fmt.Errorf("creating pod cpu-0: %w", refused{everywhere})
		got := New(Config{Kubernetes: w, Log: slog.New(slog.DiscardHandler)}).create(t.Context(), powersave.CreatePod{Node: "cpu-0", Generation: 5})
		assert.Equal(t, powersave.PodCreateFailed{Node: "cpu-0", Generation: 5, Permanent: true, Everywhere: everywhere, Err: "creating pod cpu-0: refused"}, got)
	}
}
