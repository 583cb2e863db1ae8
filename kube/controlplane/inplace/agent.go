package inplace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

const (
	lookEvery  = 500 * time.Millisecond
	errorPause = 5 * time.Second
	failedFile = ".failed" // in Kept; readFiles leaves it out
	// retryAfter is when a refused configuration is tried again: what it was refused for may lie outside of it.
	retryAfter = 2 * time.Minute
	// silentFor is how long slurmctld may take to answer at its start before its configuration is suspected.
	silentFor = 20 * time.Second
	// returnWithin is how long it may take to come back with a new configuration that was found good.
	returnWithin = time.Minute
)

// Rejected is slurmctld's refusal.
type Rejected struct{ Reason string }

func (r *Rejected) Error() string { return "slurmctld refuses the configuration: " + r.Reason }

// Slurm is what an Agent needs of it.
type Slurm interface {
	// Check lets a slurmctld read a configuration, away from the one that runs. The error is a *Rejected if it does not take it.
	Check(ctx context.Context, files map[string]string) error
	// Reconfigure makes the running one read its files.
	Reconfigure(ctx context.Context) error
	// BootTime is when the running one read its files last. It fails while it does not answer.
	BootTime(ctx context.Context) (time.Time, error)
}

// Agent carries configurations from one directory to another.
type Agent struct {
	Wanted string // what is asked for; the kubelet changes it
	Keys   string // files that lie beside the configuration and are nobody else's to read
	Etc    string // what slurmctld reads
	Kept   string // what was last in force; survives the pod
	Slurm  Slurm
	// Tell makes a report known.
	Tell func(context.Context, Report) error
	Log  *slog.Logger
	Now  func() time.Time

	report    Report
	told      bool
	tellAt    time.Time // when telling may be tried again
	failed    string    // hash of what ended slurmctld, though it was good on trial
	installed string    // hash of what is in Etc
	since     time.Time
	retry     time.Time
}

// Init fills the directory that slurmctld reads, before its start: with what is wanted, or, if that is refused, with what was last in force.
func (a *Agent) Init(ctx context.Context) error {
	wanted, err := readFiles(a.Wanted)
	if err != nil {
		return fmt.Errorf("reading the configuration that is wanted: %w", err)
	}
	kept, err := readFiles(a.Kept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the configuration that was in force: %w", err)
	}
	if len(kept) > 0 && Hash(kept) != Hash(wanted) {
		if err := a.readFailed(); err != nil {
			return err
		}
		err := errFailed
		if Hash(wanted) != a.failed {
			err = a.Slurm.Check(ctx, wanted)
		}
		if err != nil {
			a.Log.Warn("slurmctld starts with the configuration that was last in force", "error", err)
			wanted = kept
		}
	}
	return a.install(wanted)
}

// Run watches until ctx is done.
func (a *Agent) Run(ctx context.Context) error {
	installed, err := a.readEtc()
	if err != nil {
		return err
	}
	a.installed, a.since = Hash(installed), a.Now()
	if err := a.readFailed(); err != nil {
		return err
	}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		before := a.report
		if err := a.look(ctx); err != nil && ctx.Err() == nil {
			a.Log.Error("handling the configuration", "error", err)
			if !sleep(ctx, errorPause) {
				return nil
			}
		}
		if a.report != before {
			a.told = false
			a.Log.Info("configuration", "in_force", a.report.InForce, "rejected", a.report.Rejected, "error", a.report.Error)
		}
		if !a.told && a.report != (Report{}) && !a.Now().Before(a.tellAt) {
			if err := a.Tell(ctx, a.report); err != nil && ctx.Err() == nil {
				a.Log.Warn("telling what became of the configuration", "error", err)
				a.tellAt = a.Now().Add(errorPause)
			} else {
				a.told = true
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// look does what is to be done now.
func (a *Agent) look(ctx context.Context) error {
	wanted, err := readFiles(a.Wanted)
	if err != nil {
		return fmt.Errorf("reading the configuration that is wanted: %w", err)
	}
	want := Hash(wanted)
	if a.report.InForce != a.installed {
		return a.confirm(ctx, wanted)
	}
	if want == a.installed {
		a.report.Rejected, a.report.Error = "", ""
		return nil
	}
	if want == a.failed && a.report.Rejected != want {
		a.reject(want, errFailed.Error())
	}
	if want == a.failed || want == a.report.Rejected && a.Now().Before(a.retry) {
		return nil
	}
	before, err := a.Slurm.BootTime(ctx)
	if err != nil { // it may have ended; see confirm
		a.report.InForce, a.since = "", a.Now()
		return nil //nolint:nilerr // it says so by not being in force
	}
	if ok, err := a.check(ctx, wanted); !ok {
		return err
	}
	return a.change(ctx, wanted, before)
}

// check tells whether slurmctld takes a configuration, and notes why if it does not.
func (a *Agent) check(ctx context.Context, files map[string]string) (bool, error) {
	err := a.Slurm.Check(ctx, files)
	if refused, ok := errors.AsType[*Rejected](err); ok {
		a.reject(Hash(files), refused.Reason)
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("trying the configuration: %w", err)
	}
	return true, nil
}

// confirm sees whether slurmctld runs with what is installed.
func (a *Agent) confirm(ctx context.Context, wanted map[string]string) error {
	if _, err := a.Slurm.BootTime(ctx); err == nil {
		return a.confirmed()
	}
	want := Hash(wanted)
	if a.Now().Sub(a.since) < silentFor || want == a.failed || want == a.report.Rejected && a.Now().Before(a.retry) {
		return nil
	}
	// It cannot start, or cannot be reached. Its configuration is the likeliest reason.
	if ok, err := a.check(ctx, wanted); !ok {
		return err
	}
	a.since = a.Now()
	if want != a.installed {
		return a.install(wanted) // its container is started again and again, and will find it
	}
	return nil
}

// confirmed notes that slurmctld runs with what is installed.
func (a *Agent) confirmed() error {
	files, err := a.readEtc()
	if err != nil {
		return err
	}
	if err := writeFiles(a.Kept, files, 0o644, nil); err != nil {
		return fmt.Errorf("keeping the configuration that is in force: %w", err)
	}
	a.report.InForce = a.installed
	return nil
}

// change puts a configuration that was found good in force.
func (a *Agent) change(ctx context.Context, wanted map[string]string, before time.Time) error {
	// Boot times have whole seconds.
	if wait := before.Add(2 * time.Second).Sub(a.Now()); wait > 0 {
		if !sleep(ctx, wait) {
			return nil
		}
	}
	old, err := a.readEtc()
	if err != nil {
		return err
	}
	if err := a.install(wanted); err != nil {
		return err
	}
	err = a.Slurm.Reconfigure(ctx)
	for end := a.Now().Add(returnWithin); err == nil; {
		var boot time.Time
		if boot, err = a.Slurm.BootTime(ctx); err == nil && boot.After(before) {
			a.report = Report{}
			return a.confirmed()
		}
		if err = nil; a.Now().After(end) {
			err = errors.New("slurmctld did not come back with it, though one that was started with it to try did")
		} else if !sleep(ctx, lookEvery) {
			return nil
		}
	}
	a.reject(Hash(wanted), err.Error()+"; it is not tried again: change it")
	return errors.Join(a.install(old), a.noteFailed(Hash(wanted)))
}

// errFailed is all that is known after a restart.
var errFailed = errors.New("slurmctld did not come back when this was put in force; it is not tried again: change it")

// noteFailed remembers, also for the next pod, that a configuration that is good on trial ended the real slurmctld: every other try would end it again.
func (a *Agent) noteFailed(hash string) error {
	a.failed = hash
	if err := os.MkdirAll(a.Kept, 0o755); err != nil {
		return err
	}
	return writeFile(filepath.Join(a.Kept, failedFile), hash, 0o644)
}

func (a *Agent) readFailed() error {
	text, err := os.ReadFile(filepath.Join(a.Kept, failedFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading which configuration failed: %w", err)
	}
	a.failed = string(text)
	return nil
}

func (a *Agent) reject(want, why string) {
	a.report.Rejected, a.report.Error, a.retry = want, why, a.Now().Add(retryAfter)
}

// install puts files, and the keys, where slurmctld reads them.
func (a *Agent) install(files map[string]string) error {
	keys, err := readFiles(a.Keys)
	if err != nil {
		return fmt.Errorf("reading the keys: %w", err)
	}
	if err := errors.Join(writeFiles(a.Etc, keys, 0o400, files), writeFiles(a.Etc, files, 0o644, keys)); err != nil {
		return fmt.Errorf("putting the configuration in place: %w", err)
	}
	a.installed = Hash(files)
	return nil
}

// readEtc reads what slurmctld reads, without the keys.
func (a *Agent) readEtc() (map[string]string, error) {
	files, err := readFiles(a.Etc)
	if err != nil {
		return nil, fmt.Errorf("reading slurmctld's configuration: %w", err)
	}
	keys, err := readFiles(a.Keys)
	if err != nil {
		return nil, fmt.Errorf("reading the keys: %w", err)
	}
	for name := range keys {
		delete(files, name)
	}
	return files, nil
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
