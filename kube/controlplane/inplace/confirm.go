package inplace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// Files of ours. Their names begin with a dot: neither slurmctld nor readFiles cares for them.
const (
	failedFile    = ".failed"    // in Kept
	installedFile = ".installed" // in Etc: when its files were put there
)

// failure is a configuration that was good on trial and ended the real slurmctld.
type failure struct{ hash, why string }

// confirm sees whether slurmctld has read what is installed. It has it read, or goes back to what was in force before, if not.
func (a *Agent) confirm(ctx context.Context, wanted map[string]string) error {
	boot, err := a.Slurm.BootTime(ctx)
	if boot.Before(a.rereadAt) {
		boot = a.rereadAt // while it stood by
	}
	switch {
	case err == nil && !boot.Before(a.readFrom):
		if a.stopped { // one that starts sends nothing to nodes and login pods
			a.stopped = false
			a.remember(ctx)
			if err := a.Slurm.Reconfigure(ctx); err != nil {
				return fmt.Errorf("having slurmctld send its configuration: %w", err)
			}
		}
		return a.confirmed(ctx)
	case err == nil:
		a.since = a.Now()
		return a.ask(ctx)
	}
	if back, err := a.goBack(ctx); back || err != nil {
		return err
	}
	if a.Now().Sub(a.since) < silentFor {
		return nil
	}
	a.report.InForce = ""
	// It cannot start, or cannot be reached. Its configuration is the likeliest reason.
	want := Hash(wanted)
	if a.hopeless(want) || want == a.installed && want == a.good {
		return nil
	}
	if want != a.installed && !a.ended { // it may be slow, with jobs on nodes that go
		installed, err := a.readEtc()
		if err != nil {
			return err
		}
		if a.keepsJobs(ctx, installed, wanted) {
			return nil
		}
	}
	if ok, err := a.check(ctx, wanted); !ok {
		return err
	}
	if want != a.installed {
		return a.install(wanted) // its container is started again and again, and will find it
	}
	return nil
}

// confirmed notes that slurmctld runs with what is installed.
func (a *Agent) confirmed(ctx context.Context) error {
	files, err := a.readEtc()
	if err != nil {
		return err
	}
	if err := writeFiles(a.Kept, files, 0o644, nil); err != nil {
		return fmt.Errorf("keeping the configuration that is in force: %w", err)
	}
	if a.report.InForce = a.installed; a.report.Rejected == "" {
		a.report.Error = ""
	}
	return a.lookAtNodes(ctx)
}

// ask makes a slurmctld that runs read what is installed.
func (a *Agent) ask(ctx context.Context) error {
	if a.Now().Before(a.askAt) {
		return nil
	}
	if a.Now().Before(a.readFrom) { // the clock was set back
		if err := a.mark(a.Now()); err != nil {
			return err
		}
	}
	// Boot times have whole seconds: in this one it may have read what was there before.
	if next := a.readFrom.Truncate(time.Second).Add(time.Second); !sleep(ctx, next.Sub(a.Now())) {
		return nil
	}
	a.remember(ctx)
	anew, err := a.listensElsewhere()
	if err != nil {
		return err
	}
	reread := a.Slurm.Reconfigure
	if a.stopped = anew; anew {
		a.Log.Info("slurmctld is started anew, since it is to listen at other addresses")
		reread = a.Slurm.Stop
	}
	if err := reread(ctx); err != nil {
		// It may be about to read them all the same, if it was only slow to say so: its boot time tells.
		a.askAt = a.Now().Add(askAgain)
		if a.report.Rejected == "" {
			a.report.Error = err.Error()
		}
		return fmt.Errorf("asking slurmctld to read its configuration: %w", err)
	}
	a.askAt = a.Now().Add(askEvery)
	return nil
}

// listensElsewhere tells whether what is installed has slurmctld listen at other addresses than what was last in force. When it reads its files anew it keeps
// the port that it has opened at its start (controller.c, _open_ports). Of several the one in control would go on as one that stands by.
func (a *Agent) listensElsewhere() (bool, error) {
	installed, err := a.readEtc()
	if err != nil {
		return false, err
	}
	kept, err := a.readKept()
	return len(kept) > 0 && len(controllersOf(installed)) < 2 && addresses(installed) != addresses(kept), err
}

// addresses are the words by which slurmctld opens its port, as it looks for them (slurm_protocol_api.c, read_config.c).
func addresses(files map[string]string) (by [3]bool) {
	config := read(files)
	words, _ := config.Get("CommunicationParameters")
	more, _ := config.Get("TopologyParam") // where the first one was before
	has := func(s slurmconf.Setting, word string) bool { return strings.Contains(strings.ToLower(s.Value), word) }
	const one = "noctldinaddrany"
	return [3]bool{has(words, one) || has(more, one), has(words, "enableipv6"), has(words, "disableipv4")}
}

// goBack puts what was last in force in place of what has ended slurmctld at its start, though it was good on trial: a NodeSet
// called like a node of slurmctld's state is found with that state only, a QOS with the database only.
func (a *Agent) goBack(ctx context.Context) (bool, error) {
	if a.Now().Before(a.endedAt) {
		return false, nil
	}
	a.endedAt = a.Now().Add(endedEvery)
	words, ended, err := a.Ended(ctx, a.readFrom, a.stopped)
	if err != nil {
		a.Log.Warn("asking whether slurmctld has ended", "error", err) // as long as that is not known nothing is taken back
		return false, nil
	}
	if a.ended = ended; !ended {
		if a.Now().Sub(a.since) > hangsAfter && a.report.Rejected == "" {
			a.report.Error = "slurmctld has not answered since it was put in place, and has not ended: its log says what it waits for; to go back, take the change back and delete the pod"
		}
		return false, nil
	}
	a.report.InForce = ""
	kept, err := readFiles(a.Kept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("reading the configuration that was in force: %w", err)
	}
	switch Hash(kept) {
	case Hash(nil): // it never ran
		if a.report.Rejected != a.installed {
			a.reject(a.installed, words)
		}
		return false, nil
	case a.installed: // it did once, so it is not the files
		return false, nil
	}
	failed := failure{a.installed, words + "; it was found good on trial, but slurmctld ended with it: it is not tried again until it is changed"}
	a.leaving = leaving{}
	if strings.Contains(words, oomKilled) { // another limit makes another pod
		failed.why += ", or slurmctld's pod is a new one"
		a.starved = failed
		a.reject(failed.hash, failed.why)
		return true, a.install(kept)
	}
	a.failed = failed
	a.reject(failed.hash, failed.why)
	return true, errors.Join(a.writeFailed(), a.install(kept))
}

// writeFailed remembers what failed, also for the next pod: every other try would end slurmctld again.
func (a *Agent) writeFailed() error {
	if err := os.MkdirAll(a.Kept, 0o755); err != nil {
		return err
	}
	return writeFile(filepath.Join(a.Kept, failedFile), a.failed.hash+"\n"+a.failed.why, 0o644)
}

func (a *Agent) readFailed() error {
	text, err := os.ReadFile(filepath.Join(a.Kept, failedFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading which configuration failed: %w", err)
	}
	a.failed.hash, a.failed.why, _ = strings.Cut(string(text), "\n")
	return nil
}

// install puts files where slurmctld reads them while it may run.
func (a *Agent) install(files map[string]string) error {
	if err := a.put(files); err != nil {
		return err
	}
	return a.mark(a.Now())
}

// put puts files, and the keys, where slurmctld reads them.
func (a *Agent) put(files map[string]string) error {
	keys, err := readVolume(a.Keys)
	if err != nil {
		return fmt.Errorf("reading the keys: %w", err)
	}
	backup, err := a.standsBy(files)
	if err != nil {
		return err
	}
	if !backup {
		if err := a.forgetNumber(files); err != nil {
			return fmt.Errorf("preparing slurmctld's state for another slurmdbd: %w", err)
		}
	}
	if err := os.Remove(filepath.Join(a.Etc, installedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("putting the configuration in place: %w", err)
	}
	if err := errors.Join(writeFiles(a.Etc, keys, 0o400, files), writeFiles(a.Etc, files, 0o644, keys)); err != nil {
		return fmt.Errorf("putting the configuration in place: %w", err)
	}
	if err := a.forgetSpread(Hash(files)); err != nil {
		return err
	}
	a.installed, a.since, a.askAt, a.endedAt, a.ended, a.stopped = Hash(files), a.Now(), time.Time{}, time.Time{}, false, false
	return nil
}

// mark notes since when what is installed is there.
func (a *Agent) mark(readFrom time.Time) error {
	a.readFrom = readFrom
	if err := writeFile(filepath.Join(a.Etc, installedFile), readFrom.Format(time.RFC3339Nano), 0o644); err != nil {
		return fmt.Errorf("noting when the configuration was put in place: %w", err)
	}
	return nil
}

// installedAt is the readFrom of what is installed, for one that was started anew. Without the mark that was cut short.
func (a *Agent) installedAt() time.Time {
	text, err := os.ReadFile(filepath.Join(a.Etc, installedFile))
	if err == nil {
		if at, err := time.Parse(time.RFC3339Nano, string(text)); err == nil {
			return at
		}
	}
	return a.Now()
}
