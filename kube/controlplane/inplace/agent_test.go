package inplace

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slurm is a slurmctld that reads a directory. A slurm.conf with "bad" in it is refused, one with "fatal" in it is accepted on trial and ends it, with "hang" it waits.
type slurm struct {
	sync.Mutex
	etc     string
	runs    string // what it runs with; "" if it does not
	boot    time.Time
	ended   time.Time // when it ended by itself last
	began   time.Time // the one that did
	checks  int
	asked   int  // to read its files
	stopped int  // to start anew
	crashes bool // when it is to end
	deaf    bool // it says that it did not hear that, and reads nothing
	away    bool // it does not answer

	rereads int // by one that stands by

	nodes  []Node
	dumb   bool   // it tells of no nodes
	tried  func() // when a configuration is
	lost   bool   // nothing that it sends reaches them
	listed int    // how often they were asked for
}

func (s *slurm) start() {
	s.Lock()
	defer s.Unlock()
	text, err := os.ReadFile(filepath.Join(s.etc, "slurm.conf"))
	if err != nil {
		panic(err)
	}
	s.runs, s.boot = string(text), time.Now().Truncate(time.Second)
	s.away = strings.Contains(s.runs, "hang")
	if strings.Contains(s.runs, "bad") || strings.Contains(s.runs, "fatal") {
		s.runs, s.ended, s.began = "", time.Now().Truncate(time.Second), s.boot
	}
}

func (s *slurm) Ended(_ context.Context, since time.Time, anew bool) (string, bool, error) {
	s.Lock()
	defer s.Unlock()
	return "fatal: its last words", !s.ended.IsZero() && !s.ended.Before(since) && (!anew || !s.began.Before(since)), nil
}

// set changes how it behaves.
func (s *slurm) set(deaf, away bool) {
	s.Lock()
	defer s.Unlock()
	s.deaf, s.away = deaf, away
}

func (s *slurm) Check(_ context.Context, files map[string]string) error {
	s.Lock()
	defer s.Unlock()
	s.checks++
	if s.tried != nil {
		s.tried()
	}
	switch {
	case strings.Contains(files["slurm.conf"], "bad"):
		return &Rejected{"fatal: bad"}
	case strings.Contains(files["slurm.conf"], "full"):
		return errors.New("the disk is full")
	}
	return nil
}

func (s *slurm) Reconfigure(ctx context.Context) error {
	if _, err := s.BootTime(ctx); err != nil {
		return err
	}
	s.Lock()
	s.asked++
	deaf := s.deaf
	s.Unlock()
	if deaf {
		return errors.New("timed out")
	}
	s.start()
	s.Lock()
	defer s.Unlock()
	s.send()
	return nil
}

// Stop has Kubernetes start it again some seconds later.
func (s *slurm) Stop(context.Context) error {
	s.Lock()
	defer s.Unlock()
	s.stopped++
	s.runs = ""
	if s.crashes {
		s.ended, s.began = time.Now().Truncate(time.Second), s.boot
	}
	time.AfterFunc(3*time.Second, s.start)
	return nil
}

// end ends it.
func (s *slurm) end() {
	s.Lock()
	defer s.Unlock()
	s.runs = ""
}

func (s *slurm) BootTime(context.Context) (time.Time, error) {
	s.Lock()
	defer s.Unlock()
	if s.runs == "" || s.away {
		return time.Time{}, errors.New("connection refused")
	}
	return s.boot, nil
}

func (s *slurm) Started(ctx context.Context) (time.Time, error) { return s.BootTime(ctx) }

func (s *slurm) Reread(context.Context) error {
	s.Lock()
	defer s.Unlock()
	text, err := os.ReadFile(filepath.Join(s.etc, "slurm.conf"))
	s.runs, s.rereads = string(text), s.rereads+1 // it has no other boot time then
	return err
}

// world is a pod with the directories that an Agent has.
type world struct {
	*Agent
	t     *testing.T
	slurm *slurm
	told  []Report
	fail  atomic.Bool // telling fails
	fails atomic.Int32
}

func newWorld(t *testing.T) *world {
	dir := t.TempDir()
	w := &world{t: t, slurm: &slurm{etc: filepath.Join(dir, "etc")}}
	w.Agent = &Agent{
		Wanted: filepath.Join(dir, "wanted"), Keys: filepath.Join(dir, "keys"), Etc: w.slurm.etc, Kept: filepath.Join(dir, "kept"),
		Slurm: w.slurm, Ended: w.slurm.Ended, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Tell: func(_ context.Context, r Report) error {
			if w.fail.Load() {
				w.fails.Add(1)
				return errors.New("the API server is away")
			}
			w.slurm.Lock()
			defer w.slurm.Unlock()
			w.told = append(w.told, r)
			return nil
		},
	}
	require.NoError(t, writeFiles(w.Keys, map[string]string{"slurm.key": "k"}, 0o400, nil))
	return w
}

func conf(text string) map[string]string {
	return map[string]string{"slurm.conf": text, "cgroup.conf": "c"}
}

func (w *world) want(text string) {
	w.t.Helper()
	require.NoError(w.t, writeFiles(w.Wanted, conf(text), 0o644, nil))
}

// start does what the pod's containers do: init, slurmctld, run.
func (w *world) start() (stop func()) {
	w.t.Helper()
	require.NoError(w.t, w.Init(w.t.Context()))
	w.slurm.start()
	return w.run()
}

// newPod is another pod with the same volume for state.
func (w *world) newPod() (stop func()) {
	w.t.Helper()
	require.NoError(w.t, os.RemoveAll(w.Etc))
	w.restart()
	return w.start()
}

// restart forgets what the program knew.
func (w *world) restart() {
	old := w.Agent
	w.Agent = &Agent{Wanted: old.Wanted, Keys: old.Keys, Etc: old.Etc, Kept: old.Kept, Slurm: old.Slurm, Tell: old.Tell, Ended: old.Ended, Log: old.Log, Now: old.Now, Host: old.Host, State: old.State}
}

func (w *world) run() (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(w.t, <-done)
	}
}

func (w *world) last() Report {
	w.t.Helper()
	all := w.reports()
	require.NotEmpty(w.t, all)
	return all[len(all)-1]
}

// reports are all that were told.
func (w *world) reports() []Report {
	w.slurm.Lock()
	defer w.slurm.Unlock()
	return slices.Clone(w.told)
}

// seen is what slurmctld runs with, and how many it has tried.
func (w *world) seen() (runs string, checks int) {
	w.slurm.Lock()
	defer w.slurm.Unlock()
	return w.slurm.runs, w.slurm.checks
}

func (w *world) runs() string {
	runs, _ := w.seen()
	return runs
}

func (w *world) checks() int {
	_, checks := w.seen()
	return checks
}

func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want("one")
		defer w.start()()
		wait(time.Second)
		assert.Equal(t, []Report{{InForce: Hash(conf("one"))}}, w.reports())
		assert.Zero(t, w.checks(), "nothing ran before that could be harmed")

		w.want("two")
		wait(5 * time.Second)
		assert.Equal(t, "two", w.runs())
		assert.Equal(t, Report{InForce: Hash(conf("two"))}, w.last())
		assert.Equal(t, 1, w.checks())
		info, err := os.Stat(filepath.Join(w.Etc, "slurm.key"))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o400), info.Mode().Perm())
		wait(time.Hour)
		assert.Equal(t, 1, w.checks(), "at rest nothing is tried")
		assert.Len(t, w.reports(), 2, "nor told")
	})
}

// slurmctld keeps the port that it has, whatever it reads.
func TestStartedAnewForItsAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want("MessageTimeout=20")
		defer w.start()()
		wait(time.Second)
		for i, test := range []struct {
			text    string
			stopped int
		}{
			{"MessageTimeout=20\nCommunicationParameters=CheckGhalQuiesce", 0},
			{"MessageTimeout=20\nCommunicationParameters=CheckGhalQuiesce,NoCtldInAddrAny", 1},
			{"MessageTimeout=30\nCommunicationParameters=noctldinaddrany", 1},
			{"MessageTimeout=30\nCommunicationParameters=noctldinaddrany,EnableIPv6", 2},
			{"MessageTimeout=30\nTopologyParam=NoCtldInAddrAny\nCommunicationParameters=EnableIPv6", 2},
			{"MessageTimeout=30\nCommunicationParameters=EnableIPv6", 3},
			{"MessageTimeout=30\nCommunicationParameters=EnableIPv6,DisableIPv4", 4},
			{"MessageTimeout=30\nCommunicationParameters=crash", 5},
		} {
			w.slurm.Lock()
			w.slurm.crashes = strings.Contains(test.text, "crash") // which is not the new configuration's fault
			w.slurm.Unlock()
			w.want(test.text)
			wait(10 * time.Second)
			assert.Equal(t, test.text, w.runs())
			assert.Equal(t, Report{InForce: Hash(conf(test.text))}, w.last())
			w.slurm.Lock()
			assert.Equal(t, test.stopped, w.slurm.stopped, test.text)
			assert.Equal(t, i+1, w.slurm.asked, test.text) // one that has started is asked as well: it sends its configuration then
			w.slurm.Unlock()
		}
		// One that it ends with is taken back all the same.
		w.want("fatal\nCommunicationParameters=NoCtldInAddrAny")
		wait(30 * time.Second)
		assert.Equal(t, "MessageTimeout=30\nCommunicationParameters=crash", w.text())
		assert.Contains(t, w.last().Error, "its last words")
	})
}

// Of several slurmctlds none is ended: the one in control might go on as one that stands by.
func TestBackupsKeepTheirPorts(t *testing.T) {
	w := newWorld(t)
	for hosts, want := range map[string]bool{"SlurmctldHost=a(a.x)\n": true, two: false} {
		require.NoError(t, writeFiles(w.Kept, conf(hosts), 0o644, nil))
		require.NoError(t, writeFiles(w.Etc, conf(hosts+"CommunicationParameters=NoCtldInAddrAny\n"), 0o644, nil))
		anew, err := w.listensElsewhere()
		require.NoError(t, err)
		assert.Equal(t, want, anew, hosts)
	}
}

// text is the slurm.conf that slurmctld reads.
func (w *world) text() string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.Etc, "slurm.conf"))
	require.NoError(w.t, err)
	return string(text)
}

func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want("one")
		stop := w.start()
		wait(time.Second)
		w.want("bad")
		wait(5 * time.Second)
		assert.Equal(t, "one", w.runs())
		refused := Report{InForce: Hash(conf("one")), Rejected: Hash(conf("bad")), Error: "fatal: bad"}
		assert.Equal(t, refused, w.last())
		text, err := os.ReadFile(filepath.Join(w.Etc, "slurm.conf"))
		require.NoError(t, err)
		assert.Equal(t, "one", string(text), "a slurmctld that is started again must find the old one")
		before := w.checks()
		wait(retryAfter - 10*time.Second)
		assert.Equal(t, before, w.checks())
		wait(20 * time.Second)
		assert.Equal(t, before+1, w.checks(), "tried again")

		// A new pod starts with what was in force.
		stop()
		w.told = nil
		stop = w.newPod()
		wait(5 * time.Second)
		assert.Equal(t, "one", w.runs())
		assert.Equal(t, refused, w.last())

		// And takes what is good.
		w.want("three")
		wait(5 * time.Second)
		assert.Equal(t, "three", w.runs())
		assert.Equal(t, Report{InForce: Hash(conf("three"))}, w.last())
		w.want("bad")
		wait(5 * time.Second)
		w.want("three")
		wait(5 * time.Second)
		assert.Equal(t, Report{InForce: Hash(conf("three"))}, w.last(), "taken back")
		stop()
	})
}

// The very first configuration may be bad: nothing can stay in force.
func TestRefusedAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want("bad")
		defer w.start()()
		wait(time.Second)
		assert.Equal(t, Report{Rejected: Hash(conf("bad")), Error: "fatal: its last words"}, w.last())
		wait(silentFor)
		w.want("good")
		wait(2 * time.Second)
		w.slurm.start() // its container is started again
		wait(2 * time.Second)
		assert.Equal(t, Report{InForce: Hash(conf("good"))}, w.last())
	})
}

// What cannot be asked of Kubernetes shows on trial.
func TestRefusedAtFirstUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Ended = func(context.Context, time.Time, bool) (string, bool, error) {
			return "", false, errors.New("the API server is away")
		}
		w.want("bad")
		defer w.start()()
		wait(silentFor - time.Second)
		assert.Empty(t, w.reports())
		wait(5 * time.Second)
		assert.Equal(t, Report{Rejected: Hash(conf("bad")), Error: "fatal: bad"}, w.last())
	})
}

// A configuration may be good on trial and end the real one all the same.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want("one")
		stop := w.start()
		wait(time.Second)
		w.want("fatal")
		wait(2 * endedEvery)
		assert.Equal(t, Hash(conf("fatal")), w.last().Rejected)
		assert.Contains(t, w.last().Error, "fatal: its last words; it was found good on trial")
		w.slurm.start()
		wait(2 * time.Second)
		assert.Equal(t, "one", w.runs())
		assert.Equal(t, Hash(conf("one")), w.last().InForce)
		assert.Equal(t, Hash(conf("fatal")), w.last().Rejected)
		wait(10 * retryAfter)
		assert.Equal(t, "one", w.runs(), "it is not tried again")
		stop()

		stop = w.newPod()
		wait(10 * retryAfter)
		assert.Equal(t, "one", w.runs(), "nor in a new pod")
		assert.Equal(t, Hash(conf("one")), w.last().InForce)
		assert.Equal(t, Hash(conf("fatal")), w.last().Rejected)
		assert.Contains(t, w.last().Error, "its last words", "the new one says why, too")
		w.want("two")
		wait(10 * time.Second)
		assert.Equal(t, Report{InForce: Hash(conf("two"))}, w.last())
		stop()
	})
}

// Whether the memory is enough the pod decides, not the files: a new pod tries them.
func TestEndsForWantOfMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Ended = func(ctx context.Context, since time.Time, anew bool) (string, bool, error) {
			_, ended, err := w.slurm.Ended(ctx, since, anew)
			return "it was killed (" + oomKilled + ")", ended, err
		}
		w.want("one")
		stop := w.start()
		wait(time.Second)
		w.want("fatal")
		wait(2 * endedEvery)
		assert.Contains(t, w.last().Error, "until it is changed, or slurmctld's pod is a new one")
		w.slurm.start()
		wait(10 * retryAfter)
		assert.Equal(t, "one", w.runs(), "it is not tried again")
		assert.Equal(t, Hash(conf("fatal")), w.last().Rejected)
		stop()

		require.NoError(t, os.RemoveAll(w.Etc))
		w.restart()
		require.NoError(t, w.Init(t.Context()))
		text, err := os.ReadFile(filepath.Join(w.Etc, "slurm.conf"))
		require.NoError(t, err)
		assert.Equal(t, "fatal", string(text))
	})
}

// It may also come with a new pod, for which nothing was in force before.
func TestEndsAtTheStartOfANewPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want("one")
		stop := w.start()
		wait(time.Second)
		stop()
		w.want("fatal")
		stop = w.newPod()
		defer func() { stop() }()
		require.Empty(t, w.runs(), "its trial was good")
		wait(2 * time.Second)
		assert.Equal(t, Hash(conf("fatal")), w.last().Rejected)
		assert.Empty(t, w.last().InForce)
		w.slurm.start() // its container is started again
		wait(2 * time.Second)
		assert.Equal(t, "one", w.runs())
		assert.Equal(t, Hash(conf("one")), w.last().InForce)
		assert.Equal(t, Hash(conf("fatal")), w.last().Rejected)

		// What was in force may end it, too, if its state is spoilt. There is nothing to go back to.
		stop()
		w.want("one")
		require.NoError(t, writeFiles(w.Kept, conf("fatal"), 0o644, nil))
		w.want("fatal")
		require.NoError(t, os.Remove(filepath.Join(w.Kept, failedFile)))
		w.told = nil
		stop = w.newPod()
		wait(time.Minute)
		assert.Empty(t, w.reports(), "it is no refusal")
		w.want("two")
		wait(time.Minute)
		w.slurm.start()
		wait(2 * time.Second)
		assert.Equal(t, Report{InForce: Hash(conf("two"))}, w.last())
	})
}

// Only a slurmctld that was started since has read what was put in place.
func TestUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want("one")
		defer w.start()()
		wait(time.Second)

		// It is silent, the files are put in place, and it comes back as it was.
		w.slurm.set(true, true)
		w.want("two")
		wait(silentFor + 5*time.Second)
		text, err := os.ReadFile(filepath.Join(w.Etc, "slurm.conf"))
		require.NoError(t, err)
		require.Equal(t, "two", string(text))
		w.slurm.set(true, false)
		wait(2 * time.Minute)
		assert.Equal(t, "one", w.runs())
		assert.Empty(t, w.last().InForce)
		assert.Contains(t, w.last().Error, "timed out")
		w.slurm.Lock()
		assert.Less(t, w.slurm.asked, 15, "with pauses")
		w.slurm.Unlock()

		w.slurm.set(false, false)
		wait(time.Minute)
		assert.Equal(t, "two", w.runs(), "it was asked to read them")
		assert.Equal(t, Report{InForce: Hash(conf("two"))}, w.last())

		// One that only says that it did not hear may read them all the same.
		w.slurm.set(true, false)
		w.want("three")
		wait(10 * time.Second)
		assert.Equal(t, Hash(conf("two")), w.last().InForce)
		w.slurm.start()
		wait(10 * time.Second)
		assert.Equal(t, Report{InForce: Hash(conf("three"))}, w.last())
	})
}

// Without state and without slurmdbd, slurmctld waits and does not end.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want("one")
		defer w.start()()
		wait(time.Second)
		w.want("hang")
		wait(hangsAfter - 5*time.Second)
		assert.Empty(t, w.last().Error)
		wait(10 * time.Second)
		assert.Contains(t, w.last().Error, "slurmctld has not answered since it was put in place")
		assert.Empty(t, w.last().InForce)
		checks := w.checks()
		wait(10 * time.Minute)
		assert.Equal(t, checks, w.checks(), "what was good on trial is not tried again")
		w.slurm.set(false, false)
		wait(5 * time.Second)
		assert.Equal(t, Report{InForce: Hash(conf("hang"))}, w.last())
	})
}

// The program may be started anew while a change is under way.
func TestUnreadAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want("one")
		stop := w.start()
		wait(time.Second)
		w.slurm.set(true, false)
		w.want("two")
		wait(3 * time.Second)
		stop()
		w.restart()
		w.told = nil
		stop = w.run()
		defer func() { stop() }()
		wait(10 * time.Second)
		assert.Empty(t, w.last().InForce, "slurmctld has not read what lies there")
		w.slurm.set(false, false)
		wait(time.Minute)
		assert.Equal(t, "two", w.runs())
		assert.Equal(t, Report{InForce: Hash(conf("two"))}, w.last())

		// Cut short before it was noted when.
		stop()
		require.NoError(t, os.Remove(filepath.Join(w.Etc, installedFile)))
		w.slurm.Lock()
		w.slurm.runs = "one"
		w.slurm.Unlock()
		w.restart()
		stop = w.run()
		wait(3 * time.Second)
		assert.Equal(t, "two", w.runs())
	})
}

// A clock that is set back must not make slurmctld read its files for ever.
func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want("one")
		stop := w.start()
		wait(time.Second)
		stop()
		w.restart()
		require.NoError(t, w.mark(time.Now().Add(time.Hour)))
		stop = w.run()
		wait(5 * time.Minute)
		w.slurm.Lock()
		assert.Equal(t, 1, w.slurm.asked)
		w.slurm.Unlock()
		assert.Equal(t, Report{InForce: Hash(conf("one"))}, w.last())
		stop()
	})
}

func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fail.Store(true)
		w.want("one")
		defer w.start()()
		wait(time.Minute)
		assert.Empty(t, w.reports())
		assert.Less(t, w.fails.Load(), int32(15), "with pauses")
		w.fail.Store(false)
		wait(errorPause)
		assert.Equal(t, []Report{{InForce: Hash(conf("one"))}}, w.reports())

		// What is no refusal is no verdict.
		w.want("full")
		wait(time.Minute)
		assert.Equal(t, Report{InForce: Hash(conf("one"))}, w.last())
		assert.Less(t, w.checks(), 15, "with pauses")

		// slurmctld is away while a change comes.
		w.slurm.end()
		w.want("two")
		wait(silentFor + 10*time.Second)
		w.slurm.start()
		wait(2 * time.Second)
		assert.Equal(t, "two", w.runs())
		assert.Equal(t, Report{InForce: Hash(conf("two"))}, w.last())
	})
}

func TestHash(t *testing.T) {
	seen := map[string]bool{}
	for _, files := range []map[string]string{
		{}, {"a": "b"}, {"a": "c"}, {"ab": ""}, {"a": "b", "c": ""}, {"a": "", "b": ""}, {"a\x001\x00b": ""},
	} {
		seen[Hash(files)] = true
	}
	assert.Len(t, seen, 7)
}

func TestAlone(t *testing.T) {
	const dbd = "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=db\nAccountingStorageEnforce=limits\n"
	files := map[string]string{
		"slurm.conf": "ClusterName=C # keep\nSlurmctldPort=6817\nSlurmctldLogFile=/var/log/x\nSlurmctldParameters=enable_configless,reconfig_on_restart\n" +
			dbd + "SlurmctldPrimaryOnProg=/x\nInclude more.conf\n",
		"more.conf":  "MaxJobCount=5\nStateSaveLocation=/var/spool/slurmctld\nSlurmctldParameters=reconfig_on_restart\nInclude /tmp/d/c_%c.conf\nInclude absent.conf\n",
		"c_c.conf":   "SlurmctldPrimaryOffProg=/x\nInclude more.conf\n" + dbd + "SlurmctldPort=6817\n",
		"other.conf": dbd,
	}
	require.NoError(t, alone(files, "/tmp/d", "a", 4711))
	assert.Equal(t, map[string]string{
		"slurm.conf": "ClusterName=C # keep\nSlurmctldPort=4711\nSlurmctldParameters=enable_configless\n" +
			"AccountingStorageType=accounting_storage/none\nAccountingStorageHost=db\nInclude more.conf\n" +
			"StateSaveLocation=/tmp/d/state\nSlurmctldPidFile=/tmp/d/state/pid\nSlurmctldDebug=info\n",
		"more.conf":  "MaxJobCount=5\nInclude /tmp/d/c_%c.conf\nInclude absent.conf\n",
		"c_c.conf":   "Include more.conf\nAccountingStorageType=accounting_storage/none\nAccountingStorageHost=db\n",
		"other.conf": dbd,
	}, files)
	files = map[string]string{"slurm.conf": "nonsense\n"}
	require.NoError(t, alone(files, "/tmp/d", "a", 1), "slurmctld says it itself")
	assert.Contains(t, files["slurm.conf"], "nonsense\n")
}
