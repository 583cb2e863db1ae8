package spool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newDir returns the name of a spool that does not exist yet.
func newDir(t *testing.T) string { return filepath.Join(t.TempDir(), "spool") }

func pending(t *testing.T, dir string) []Request {
	t.Helper()
	s, err := Open(dir)
	require.NoError(t, err)
	reqs, corrupt, err := s.Pending(nil)
	require.NoError(t, err)
	require.Empty(t, corrupt)
	return reqs
}

func TestSubmitRoundTrip(t *testing.T) {
	started := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	tests := map[string]Request{
		"resume":            {Kind: KindResume, Nodes: "cpu-[0-9]", ResumeFile: json.RawMessage("{ \"jobs\" : [ ] ,\n\"x\":\"\\u00e9<>&\" }")},
		"suspend":           {Kind: KindSuspend, Nodes: "cpu-[0-9],gpu1"},
		"resume-fail":       {Kind: KindResumeFail, Nodes: "gpu1"},
		"file left out":     {Kind: KindResume, Nodes: "a", ResumeFileError: `reading "x": gone`},
		"path to escape":    {Kind: KindResume, Nodes: "a", SlurmConf: "/etc/\"nodes\":\"\"/\\slurm.conf\n<&>"},
		"many nodes":        {Kind: KindResume, Nodes: strings.Repeat("n[1-2],", 15_000) + "z"},
		"large resume file": {Kind: KindResume, Nodes: "a", ResumeFile: json.RawMessage(`{"all_nodes_resume":"` + strings.Repeat("cpu-12345,", 300_000) + `"}`)},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			want.Started = started
			id, err := Submit(dir, want)
			require.NoError(t, err)
			want.ID, want.Version = id, Version
			assert.Equal(t, []Request{want}, pending(t, dir))
		})
	}
}

func TestSubmitDropsABadResumeFile(t *testing.T) {
	tests := map[string]struct{ file, message string }{
		"empty":     {"", "resume file is empty"},
		"blank":     {" \n", "resume file is empty"},
		"array":     {"[1]", `does not hold a JSON object: it begins with "[1]"`},
		"cut short": {`{"jobs":[`, "not valid JSON at byte 9 of 9"},
		"garbage":   {`{"jobs":]}`, "not valid JSON at byte 8 of 10"},
		"two":       {`{}{}`, "not valid JSON at byte 2 of 4"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			_, err := Submit(dir, Request{Kind: KindResume, Nodes: "a", ResumeFile: json.RawMessage(test.file)})
			require.NoError(t, err)
			got := pending(t, dir)
			require.Len(t, got, 1)
			assert.Nil(t, got[0].ResumeFile)
			assert.Contains(t, got[0].ResumeFileError, test.message)
		})
	}
}

func TestSubmitRefusesUnknownKinds(t *testing.T) {
	_, err := Submit(newDir(t), Request{Kind: "reboot", Nodes: "a"})
	assert.ErrorContains(t, err, `unknown kind of request "reboot"`)
}

func TestSubmitMakesPrivateFiles(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	dir := newDir(t)
	_, err := Submit(dir, Request{Kind: KindResume, Nodes: "a"})
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := e.Info()
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o077, "%s has mode %v", path, info.Mode())
		return nil
	}))
}

func TestSubmitRefusesTheDirectory(t *testing.T) {
	tests := map[string]struct {
		make    func(t *testing.T, dir string)
		message string
	}{
		"writable by all": {func(t *testing.T, dir string) {
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.Chmod(dir, 0o777))
		}, "has mode 0777, so others could write to it; run: chmod 0700"},
		"writable by group": {func(t *testing.T, dir string) {
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.Chmod(dir, 0o770))
		}, "mode 0770"},
		"requests writable by all": {func(t *testing.T, dir string) {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "requests"), 0o700))
			require.NoError(t, os.Chmod(filepath.Join(dir, "requests"), 0o777))
		}, "requests has mode 0777"},
		"a file": {func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(dir, nil, 0o600))
		}, "is not a directory"},
		"in a file": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Dir(dir)))
			require.NoError(t, os.WriteFile(filepath.Dir(dir), nil, 0o600))
		}, "not a directory"},
		"newer": {func(t *testing.T, dir string) {
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "version"), []byte("2\n"), 0o600))
		}, "has version 2, this program knows versions up to 1"},
		"no number": {func(t *testing.T, dir string) {
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "version"), []byte("new"), 0o600))
		}, `holds "new" instead of a version number`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			test.make(t, dir)
			_, err := Submit(dir, Request{Kind: KindResume, Nodes: "a"})
			require.ErrorContains(t, err, test.message)
			_, err = Open(dir)
			assert.ErrorContains(t, err, test.message)
		})
	}
	t.Run("no name", func(t *testing.T) {
		_, err := Submit("", Request{Kind: KindResume, Nodes: "a"})
		assert.ErrorContains(t, err, "no spool directory given")
	})
	t.Run("of somebody else", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, 0o700))
		assert.ErrorContains(t, checkDir(dir, os.Geteuid()+1), fmt.Sprintf("belongs to uid %d, but this runs as uid %d", os.Geteuid(), os.Geteuid()+1))
	})
}

func TestIDsKeepTheOrderOfAcceptance(t *testing.T) {
	dir := newDir(t)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	w := newWriter(dir)
	var want []string
	for _, step := range []time.Duration{0, time.Second, -time.Hour, 0, time.Nanosecond, 2 * time.Hour, -time.Hour, -100 * 365 * 24 * time.Hour} {
		now = now.Add(step)
		w.now = func() time.Time { return now }
		id, err := w.submit(&Request{Kind: KindResume, Nodes: "a"})
		require.NoError(t, err)
		assert.True(t, validID(id), id)
		want = append(want, id)
	}
	assert.True(t, slices.IsSorted(want), want)
	var got []string
	for _, r := range pending(t, dir) {
		got = append(got, r.ID)
	}
	assert.Equal(t, want, got)
}

func TestSequenceIsRebuiltFromTheRequests(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "torn": "17000", "garbage": "a b c\n", "binary": "\x00\x00\x00"} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(newDir(t))
			w.now = func() time.Time { return time.Unix(2000, 0) }
			first, err := w.submit(&Request{Kind: KindResume, Nodes: "a"})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(w.sequenceFile(), []byte(content), 0o600))
			w.now = func() time.Time { return time.Unix(1000, 0) }
			second, err := w.submit(&Request{Kind: KindResume, Nodes: "b"})
			require.NoError(t, err)
			assert.Less(t, first, second)
			seq, err := w.lock(0)
			require.NoError(t, err)
			defer seq.unlock()
			assert.EqualValues(t, 2, seq.count)
		})
	}
}

func TestAStuckLockDoesNotStopRequests(t *testing.T) {
	w := newWriter(newDir(t))
	first, err := w.submit(&Request{Kind: KindResume, Nodes: "a"})
	require.NoError(t, err)
	held, err := w.lock(0)
	require.NoError(t, err)
	defer held.unlock()
	w.lockWait = 0
	second, err := w.submit(&Request{Kind: KindResume, Nodes: "b"})
	require.NoError(t, err)
	assert.Less(t, first, second)
	assert.Len(t, listed(t, w.layout), 2)
}

// listed returns the names in requests/, temporary files included.
func listed(t *testing.T, l layout) []string {
	t.Helper()
	entries, err := os.ReadDir(l.requests())
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestLimits(t *testing.T) {
	t.Run("number", func(t *testing.T) {
		w := newWriter(newDir(t))
		w.maxRequests = 2
		for range 2 {
			_, err := w.submit(&Request{Kind: KindResume, Nodes: "a"})
			require.NoError(t, err)
		}
		_, err := w.submit(&Request{Kind: KindResume, Nodes: "a"})
		require.ErrorIs(t, err, ErrFull)
		require.ErrorContains(t, err, "2 requests with")
		require.ErrorContains(t, err, "is the bridge running?")
		assert.Len(t, listed(t, w.layout), 2, "nothing is left of the refused request")

		// Removed behind our back, without the count: it heals.
		require.NoError(t, os.Remove(filepath.Join(w.requests(), listed(t, w.layout)[0])))
		_, err = w.submit(&Request{Kind: KindResume, Nodes: "a"})
		assert.NoError(t, err)
	})
	t.Run("bytes", func(t *testing.T) {
		w := newWriter(newDir(t))
		w.maxBytes = 1000
		_, err := w.submit(&Request{Kind: KindResume, Nodes: strings.Repeat("a", 1000)})
		require.ErrorIs(t, err, ErrFull)
		id, err := w.submit(&Request{Kind: KindResume, Nodes: strings.Repeat("a", 600)})
		require.NoError(t, err)
		_, err = w.submit(&Request{Kind: KindResume, Nodes: strings.Repeat("a", 600)})
		require.ErrorIs(t, err, ErrFull)
		s, err := Open(w.dir)
		require.NoError(t, err)
		require.NoError(t, s.Done(id))
		_, err = w.submit(&Request{Kind: KindResume, Nodes: strings.Repeat("a", 600)})
		assert.NoError(t, err)
	})
}

// submitSteps are the places where a program may be stopped.
var submitSteps = []string{"create", "write", "sync", "lock", "write sequence", "rename", "sync directory"}

func TestSubmitFailsCleanlyAtEachStep(t *testing.T) {
	for _, step := range submitSteps {
		t.Run(step, func(t *testing.T) {
			w := newWriter(newDir(t))
			reached := map[string]bool{}
			w.step = func(name string) error {
				reached[name] = true
				if name == step {
					return syscall.ENOSPC
				}
				return nil
			}
			_, err := w.submit(&Request{Kind: KindResume, Nodes: "a", ResumeFile: json.RawMessage(`{}`)})
			require.ErrorIs(t, err, syscall.ENOSPC)
			require.True(t, reached[step])
			if step == "sync directory" {
				assert.Len(t, listed(t, w.layout), 1, "renamed already")
			} else {
				assert.Empty(t, listed(t, w.layout))
			}
			// The next one goes through.
			w.step = nil
			_, err = w.submit(&Request{Kind: KindResume, Nodes: "b"})
			assert.NoError(t, err)
		})
	}
}

func TestSubmitKilledAtEachStep(t *testing.T) {
	for _, step := range submitSteps {
		t.Run(step, func(t *testing.T) {
			dir := newDir(t)
			before, err := Submit(dir, Request{Kind: KindResume, Nodes: "before"})
			require.NoError(t, err)

			err = command(t, "crash-submit", nil, dir, step, "killed").Run()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())

			after, err := Submit(dir, Request{Kind: KindResume, Nodes: "after"})
			require.NoError(t, err)
			got := pending(t, dir)
			var nodes []string
			for _, r := range got {
				nodes = append(nodes, r.Nodes)
			}
			if step == "sync directory" {
				assert.Equal(t, []string{"before", "killed", "after"}, nodes, "it was visible and must be whole")
				assert.JSONEq(t, `{"jobs":[]}`, string(got[1].ResumeFile))
			} else {
				assert.Equal(t, []string{"before", "after"}, nodes)
			}
			assert.Equal(t, before, got[0].ID)
			assert.Equal(t, after, got[len(got)-1].ID)

			// What the killed one left behind goes when the bridge starts an hour later.
			s, err := Open(dir)
			require.NoError(t, err)
			require.NoError(t, s.sweep(time.Now().Add(time.Minute)))
			assert.Len(t, listed(t, s.layout), len(got))
		})
	}
}

func TestHundredProcessesAtOnce(t *testing.T) {
	dir := newDir(t)
	file := filepath.Join(t.TempDir(), "resume.json")
	content := `{"all_nodes_resume":"` + strings.Repeat("n", 100_000) + `"}`
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	env := []string{"SLURMTIDE_SPOOL=" + dir, "SLURM_RESUME_FILE=" + file}
	const copies = 100

	// A bridge reads all the while: it must never see half a request, nor one out of order.
	s, err := Open(dir)
	require.NoError(t, err)
	stop, seen := make(chan struct{}), make(chan []string)
	go func() {
		var ids []string
		for {
			reqs, corrupt, err := s.Pending(nil)
			assert.NoError(t, err)
			assert.Empty(t, corrupt)
			for _, r := range reqs {
				assert.Len(t, r.ResumeFile, len(content))
				assert.NoError(t, s.Done(r.ID))
				ids = append(ids, r.ID+" "+r.Nodes)
			}
			if len(reqs) > 0 {
				continue
			}
			select {
			case <-stop:
				seen <- ids
				return
			default:
			}
		}
	}()
	var wg sync.WaitGroup
	for i := range copies {
		cmd := command(t, "resume", env, fmt.Sprintf("cpu-%d", i))
		wg.Go(func() {
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s", out)
		})
	}
	wg.Wait()
	close(stop)
	ids := <-seen
	assert.True(t, slices.IsSorted(ids), "the bridge saw a request after one with a larger ID")
	nodes := map[string]bool{}
	for _, id := range ids {
		nodes[strings.Fields(id)[1]] = true
	}
	assert.Len(t, nodes, copies)

	st, err := s.Stats()
	require.NoError(t, err)
	assert.Equal(t, Stats{}, st)
	seq, err := s.lock(0)
	require.NoError(t, err)
	defer seq.unlock()
	assert.Zero(t, seq.count)
	assert.Zero(t, seq.bytes)
	log, err := os.ReadFile(s.logFile())
	require.NoError(t, err)
	assert.Equal(t, copies, bytes.Count(log, []byte("\n")), "one whole line each")
	assert.Equal(t, copies, bytes.Count(log, []byte("request accepted")))
}

func TestFullDisk(t *testing.T) {
	cmd := command(t, "small-disk", []string{"PATH=" + os.Getenv("PATH")}, t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "no space left on device")
}

// smallDisk runs in a mount namespace of its own, which ends with it: small-disk <dir>.
func smallDisk(args []string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := syscall.Mount("tmpfs", args[0], "tmpfs", 0, "size=128k,mode=0700"); err != nil {
		return fmt.Errorf("mounting a small file system (needs root or user namespaces): %w", err)
	}
	dir, file := filepath.Join(args[0], "spool"), filepath.Join(args[0], "resume.json")
	os.Setenv("SLURMTIDE_SPOOL", dir)
	submit := func(resumeFile string) (int, string) {
		var stderr strings.Builder
		env := map[string]string{"SLURMTIDE_SPOOL": dir, "SLURM_RESUME_FILE": resumeFile, "SLURM_CONF": file}
		status := Program(KindResume, []string{"resume", "cpu-[0-9]"}, func(k string) string { return env[k] }, &stderr)
		return status, stderr.String()
	}
	large := fmt.Sprintf("/proc/self/fd/%d", largeFile())
	status, stderr := submit(large)
	fmt.Println(stderr)
	if status != exitFailed {
		return fmt.Errorf("a request that does not fit: exit status %d, want %d", status, exitFailed)
	}
	if !strings.Contains(stderr, "resume: request not accepted: writing request to "+dir) {
		return errors.New("the message does not say what was written where")
	}
	entries, err := os.ReadDir(filepath.Join(dir, "requests"))
	if err != nil || len(entries) != 0 {
		return fmt.Errorf("left behind: %v, %w", entries, err)
	}
	if status, stderr := submit(""); status != exitAccepted {
		return fmt.Errorf("a request that fits: exit status %d: %s", status, stderr)
	}
	return nil
}

// largeFile returns a descriptor of a resume file larger than the small disk, which lies outside it.
func largeFile() uintptr {
	f, err := os.CreateTemp("/dev/shm", "slurmtide-test-")
	if err != nil {
		panic(err)
	}
	os.Remove(f.Name())
	fmt.Fprintf(f, `{"x":"%s"}`, strings.Repeat("x", 1<<20))
	return f.Fd()
}
