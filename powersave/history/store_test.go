package history

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMain makes this binary stand for processes that are killed, or live on a small disk.
func TestMain(m *testing.M) {
	helpers := map[string]func(dir string) error{"small-disk": smallDisk, "write-on": writeOn}
	if f := helpers[os.Getenv("HISTORY_TEST_HELPER")]; f != nil {
		if err := f(os.Getenv("HISTORY_TEST_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func helper(t *testing.T, name, dir string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = []string{"HISTORY_TEST_HELPER=" + name, "HISTORY_TEST_DIR=" + dir, "PATH=" + os.Getenv("PATH")}
	return cmd
}

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// entry i is of node i.
func entry(i int) Entry {
	return Entry{Time: noon.Add(time.Duration(i) * time.Millisecond), What: NodeRegistered, Node: fmt.Sprint("cpu-", i), Jobs: []uint32{7}}
}

func newStore(dir string) (*Store, *strings.Builder, *int) {
	var log strings.Builder
	lost := new(int)
	s := NewStore(dir, slog.New(slog.NewTextHandler(&log, nil)), func(n int) { *lost += n })
	s.keepFree = 0
	return s, &log, lost
}

func names(f Found) string {
	var out []string
	for _, e := range f.Entries {
		if e.What == EntriesLost {
			out = append(out, fmt.Sprint("lost ", e.Times))
			continue
		}
		out = append(out, strings.TrimPrefix(e.Node, "cpu-"))
	}
	return strings.Join(out, " ")
}

func readJob(t *testing.T, dir string, most int) Found {
	t.Helper()
	f, err := Read(dir, Subject{Job: 7}, most)
	require.NoError(t, err)
	return f
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	dir := t.TempDir()
	assert.Empty(t, readJob(t, dir, 10), "no history is no error")
	s, _, lost := newStore(dir)
	want := Entry{
		Time: noon, What: BootFailed, Node: "cpu-0", NodeSet: "cpu", Offering: "spot", Jobs: []uint32{7, 8}, Request: "r", PodUID: "u", Host: "h",
		Class: "capacity", Reason: "no <room> \n for \"it\"", Until: noon, Attempt: 2, Times: 3, Requested: noon,
	}
	s.Add(want, Entry{Time: noon, What: PodGone, Node: "cpu-1", Jobs: []uint32{9}})
	s.Flush()
	assert.Equal(t, []Entry{want}, readJob(t, dir, 10).Entries)
	info, err := os.Stat(filepath.Join(dir, fileName))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	assert.Zero(t, *lost)
	for name, s := range map[string]Subject{"node": {Node: "cpu-0"}, "NodeSet": {NodeSet: "cpu"}} {
		f, err := Read(dir, s, 10)
		require.NoError(t, err)
		assert.Len(t, f.Entries, 1, name)
	}
	(*Store)(nil).Add(want)
}

func TestNodesInHostlistsAreFound(t *testing.T) {
	dir := t.TempDir()
	s, _, _ := newStore(dir)
	s.Add(Entry{Time: noon, What: NodesUpdated, Nodes: "cpu-[0-9]"}, Entry{Time: noon, What: NodesUpdated, Nodes: "cpu-[10-12]"})
	s.Flush()
	f, err := Read(dir, Subject{Node: "cpu-7"}, 10)
	require.NoError(t, err)
	assert.Len(t, f.Entries, 1)
}

func TestTornLines(t *testing.T) {
	whole := func(i int) string {
		line, _ := lines([]Entry{entry(i)})
		return string(line)
	}
	for name, tt := range map[string]struct {
		file, want string
		broken     int
	}{
		"cut within":     {whole(1) + whole(2)[:30], "1 5", 1},
		"cut before end": {whole(1) + strings.TrimSuffix(whole(2), "\n"), "1 2 5", 0},
		"zeros":          {whole(1) + strings.Repeat("\x00", 4096), "1 5", 1},
		"not ours":       {"hello\n{}\n\n[1]\n" + whole(1), "1 5", 3},
		"far too long":   {whole(1) + strings.Repeat("x", 3<<20) + "\n" + whole(2), "1 2 5", 1},
		"empty":          {"", "5", 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, fileName), []byte(tt.file), 0o600))
			s, _, _ := newStore(dir)
			s.Add(entry(5))
			s.Flush()
			f := readJob(t, dir, 10)
			assert.Equal(t, tt.want, names(f))
			assert.Equal(t, tt.broken, f.Broken)
		})
	}
}

func TestTenThousandBootsAreBounded(t *testing.T) {
	dir := t.TempDir()
	s, _, lost := newStore(dir)
	s.max = 256 << 10
	for i := range 10_000 {
		for _, what := range []What{PodCreated, PodScheduled, ContainerStarted, NodeRegistered} {
			e := entry(i)
			e.What = what
			s.Add(e)
		}
		if i%100 == 99 {
			s.Flush()
		}
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		assert.LessOrEqual(t, info.Size(), s.max, e.Name())
		assert.Greater(t, info.Size(), s.max/4, e.Name())
	}
	f := readJob(t, dir, 1000)
	require.Len(t, f.Entries, 1000)
	assert.Equal(t, "cpu-9999", f.Entries[999].Node, "the newest stay")
	assert.Equal(t, "cpu-9750", f.Entries[0].Node, "none is missing between")
	assert.Positive(t, f.LeftOut)
	assert.Zero(t, *lost)
}

// TestAddNeverWaits has nobody write what is added.
func TestAddNeverWaits(t *testing.T) {
	dir := t.TempDir()
	s, _, lost := newStore(dir)
	for i := range maxQueue + 5 {
		s.Add(entry(i), entry(i))
	}
	assert.Len(t, s.queue, maxQueue)
	assert.Equal(t, maxQueue+10, *lost)
	s.Flush()
	f, err := Read(dir, Subject{Job: 7}, maxQueue+10)
	require.NoError(t, err)
	require.Len(t, f.Entries, maxQueue+1)
	assert.Equal(t, maxQueue+10, f.Entries[0].Times, "it says how many are missing")
	assert.Equal(t, maxQueue+10, *lost, "once")
}

func TestFileThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, log, lost := newStore(dir)
	for i := range 3 {
		s.Add(entry(i))
		s.Flush()
	}
	assert.Equal(t, 1, strings.Count(log.String(), "history cannot be written"), "said once")
	assert.Equal(t, 3, *lost)
	require.NoError(t, os.Mkdir(dir, 0o700))
	s.Add(entry(3))
	s.Flush()
	assert.Equal(t, "lost 3 3", names(readJob(t, dir, 10)))
	assert.Contains(t, log.String(), "history can be written again")

	// Somebody moves it away, or makes it something else.
	require.NoError(t, os.Rename(filepath.Join(dir, fileName), filepath.Join(dir, "mine")))
	s.Add(entry(4))
	s.Flush()
	assert.Equal(t, "4", names(readJob(t, dir, 10)))
	require.NoError(t, os.Remove(filepath.Join(dir, fileName)))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, fileName), 0o600))
	s.Add(entry(5))
	s.Flush()
	assert.Contains(t, log.String(), "it is not a regular file; move it away")
	assert.Equal(t, 4, *lost)
}

func TestRoomIsLeftForRequests(t *testing.T) {
	dir := t.TempDir()
	s, log, lost := newStore(dir)
	s.keepFree = 1 << 62
	s.Add(entry(1))
	s.Flush()
	assert.Empty(t, readJob(t, dir, 10).Entries)
	assert.Equal(t, 1, *lost)
	assert.Contains(t, log.String(), "which are for requests")
}

// TestReadersSeeEachEntryOnce reads while the file is rotated again and again.
func TestReadersSeeEachEntryOnce(t *testing.T) {
	dir := t.TempDir()
	s, _, _ := newStore(dir)
	s.max = 8 << 10
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				s.Add(entry(i))
				s.Flush()
			}
		}
	})
	for range 300 {
		f := readJob(t, dir, 1000)
		for i := 1; i < len(f.Entries); i++ {
			require.Equal(t, time.Millisecond, f.Entries[i].Time.Sub(f.Entries[i-1].Time), "between %s and %s", f.Entries[i-1].Node, f.Entries[i].Node)
		}
		require.Zero(t, f.Broken)
	}
	close(stop)
	wg.Wait()
}

// TestRotatedBetweenTwoLooks finds the same file under both names.
func TestRotatedBetweenTwoLooks(t *testing.T) {
	dir := t.TempDir()
	s, _, _ := newStore(dir)
	s.Add(entry(1))
	s.Flush()
	path := filepath.Join(dir, fileName)
	require.NoError(t, os.Link(path, path+".1"))
	_, err := Read(dir, Subject{Job: 7}, 10)
	require.ErrorContains(t, err, "it is being rotated all the time", "nothing is told twice")
	require.NoError(t, os.Remove(path))
	assert.Equal(t, "1", names(readJob(t, dir, 10)))
}

func writeOn(dir string) error {
	s := NewStore(dir, slog.New(slog.DiscardHandler), nil)
	s.keepFree, s.max = 0, 64<<10
	for i := 0; ; i++ {
		s.Add(entry(i), entry(i+1), entry(i+2))
		s.Flush()
	}
}

func TestKilledWhileItWrites(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		cmd := helper(t, "write-on", dir)
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool {
			info, err := os.Stat(filepath.Join(dir, fileName))
			return err == nil && info.Size() > 0
		}, 20*time.Second, time.Millisecond)
		time.Sleep(time.Duration(i) * 7 * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		f := readJob(t, dir, 10_000)
		assert.NotEmpty(t, f.Entries)
		assert.LessOrEqual(t, f.Broken, i+1, "one line at most for each that was killed")
	}
	s, _, _ := newStore(dir)
	s.Add(Entry{Time: noon, What: PodGone, Node: "cpu-x", Jobs: []uint32{7}})
	s.Flush()
	f := readJob(t, dir, 1)
	assert.Equal(t, "x", names(f), "a new one goes on behind what is torn")
}

func TestFullDisk(t *testing.T) {
	cmd := helper(t, "small-disk", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "no space left on device")
	assert.Contains(t, string(out), "history can be written again")
}

// smallDisk runs in a mount namespace of its own, which ends with it.
func smallDisk(dir string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		return fmt.Errorf("mounting a small file system (needs root or user namespaces): %w", err)
	}
	var log bytes.Buffer
	lost := 0
	s := NewStore(dir, slog.New(slog.NewTextHandler(io.MultiWriter(&log, os.Stdout), nil)), func(n int) { lost += n })
	s.keepFree = 0
	const all = 2000
	for i := range all {
		s.Add(entry(i))
		s.Flush()
	}
	found, err := Read(dir, Subject{Job: 7}, all)
	if err != nil {
		return err
	}
	if len(found.Entries)+lost != all || lost == 0 || found.Broken != 0 {
		return fmt.Errorf("%d entries kept, %d lost, %d broken; want %d in all, and none broken", len(found.Entries), lost, found.Broken, all)
	}
	if n := bytes.Count(log.Bytes(), []byte("cannot be written")); n != 1 {
		return fmt.Errorf("said %d times", n)
	}
	// Somebody makes room, and later cuts the file.
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=256k"); err != nil {
		return err
	}
	want := fmt.Sprintf("lost %d %d", lost, all)
	for range 2 {
		s.Add(entry(all))
		s.Flush()
		if found, err = Read(dir, Subject{Job: 7}, all); err != nil {
			return err
		}
		if got := names(found); !strings.HasSuffix(got, want) {
			return fmt.Errorf("%s instead of %s", got, want)
		}
		if want == fmt.Sprint(all) {
			return nil
		}
		if found.Broken != 0 {
			return fmt.Errorf("%d broken", found.Broken)
		}
		want = fmt.Sprint(all)
		if err := os.Truncate(filepath.Join(dir, fileName), 1000); err != nil {
			return err
		}
	}
	return errors.New("not reached")
}
