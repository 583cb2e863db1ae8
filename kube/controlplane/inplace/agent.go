package inplace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

const (
	lookEvery  = 500 * time.Millisecond
	errorPause = 5 * time.Second
	// retryAfter is when a refused configuration is tried again: what it was refused for may lie outside of it.
	retryAfter = 2 * time.Minute
	// silentFor is how long slurmctld may be silent before its configuration is suspected.
	silentFor = 20 * time.Second
	// askEvery is how often a slurmctld that answers is asked to read its files. It answers on while it ends its threads before it reads them.
	askEvery = time.Minute
	// askAgain is the same after an error.
	askAgain = 15 * time.Second
	// hangsAfter is how long slurmctld may be silent before that is told.
	hangsAfter = time.Minute
	// endedEvery is how often it is looked whether one that is silent has ended.
	endedEvery = 3 * time.Second
)

// Rejected is slurmctld's refusal.
type Rejected struct{ Reason string }

func (r *Rejected) Error() string { return "slurmctld refuses the configuration: " + r.Reason }

// Slurm is what an Agent needs of it.
type Slurm interface {
	// Check lets a slurmctld read a configuration, away from the one that runs. The error is a *Rejected if it does not take it.
	Check(ctx context.Context, files map[string]string) error
	// Reconfigure asks the running one to read its files. After an error it may read them all the same.
	Reconfigure(ctx context.Context) error
	// Stop ends the running one, which Kubernetes starts again then.
	Stop(ctx context.Context) error
	// BootTime is the second in which the running one began to read its files last. It fails while it does not answer.
	BootTime(ctx context.Context) (time.Time, error)
	// Nodes are all that the running one knows.
	Nodes(ctx context.Context) ([]Node, error)
	// Started is when the one beside us began, though it may stand by. It fails if none runs.
	Started(ctx context.Context) (time.Time, error)
	// Reread has the one beside us, which stands by, read its files.
	Reread(ctx context.Context) error
}

// Agent carries configurations from one directory to another.
type Agent struct {
	Wanted string // what is asked for; the kubelet changes it
	Keys   string // files that lie beside the configuration and are nobody else's to read
	Etc    string // what slurmctld reads
	Kept   string // what was last in force; survives the pod
	State  string // slurmctld's own
	Host   string // slurmctld's name for itself
	Slurm  Slurm
	// Tell makes a report known.
	Tell func(context.Context, Report) error
	// Ended tells whether slurmctld has ended by itself since then, and what it said last. anew: one that began before does not count.
	Ended func(ctx context.Context, since time.Time, anew bool) (words string, ended bool, err error)
	// Dial sees whether somebody listens at host:port.
	Dial func(ctx context.Context, address string) error
	Log  *slog.Logger
	Now  func() time.Time

	report    Report
	told      bool
	tellAt    time.Time // when telling may be tried again
	failed    failure
	starved   failure   // the same for want of memory, which another pod may have
	ended     bool      // the slurmctld that is silent has ended by itself
	good      string    // hash of what passed its trial last
	installed string    // hash of what is in Etc
	readFrom  time.Time // who has booted before that has not read it
	stopped   bool      // slurmctld was ended to read it
	since     time.Time // how long slurmctld has been silent, or has had what is in Etc
	askAt     time.Time // when it may be asked again to read it
	endedAt   time.Time // when it may be looked again whether it has ended
	retry     time.Time
	spread    spread          // of what is in force
	up        map[string]bool // see spread
	seen      string          // hash of what Kept had when a backup looked last
	leaving   leaving         // nodes that are to go
	rereadAt  time.Time       // when a slurmctld that stood by was told to read its files
}

// Init fills the directory that slurmctld reads, before its start: with what is wanted, or, if that is refused, with what was last in force.
func (a *Agent) Init(ctx context.Context) error {
	wanted, err := readVolume(a.Wanted)
	if err != nil {
		return fmt.Errorf("reading the configuration that is wanted: %w", err)
	}
	kept, err := a.readKept()
	if err != nil {
		return err
	}
	// A backup starts with what the one in control has, unless it is new there.
	backup, err := a.standsBy(kept)
	if err != nil {
		return err
	}
	if backup && slices.Contains(controllersOf(kept), a.Host) {
		wanted = kept
	}
	if slices.Contains(controllersOf(kept), a.Host) && goneNodes(kept, wanted).Len() > 0 {
		if _, refused := errors.AsType[*Rejected](a.Slurm.Check(ctx, kept)); !refused { // as another version may
			a.Log.Info("slurmctld starts with the configuration that was last in force, which has nodes that are to go: there may be jobs on them")
			wanted = kept
		}
	}
	if len(kept) > 0 && Hash(kept) != Hash(wanted) {
		if err := a.readFailed(); err != nil {
			return err
		}
		var err error = &Rejected{a.failed.why}
		if Hash(wanted) != a.failed.hash {
			err = a.Slurm.Check(ctx, wanted)
		}
		if err == nil {
			var wait *Rejected
			if wait, err = a.unreachable(ctx, wanted); wait != nil {
				err = wait
			}
		}
		if err != nil {
			a.Log.Warn("slurmctld starts with the configuration that was last in force", "error", err)
			wanted = kept
		}
	}
	if err := a.put(wanted); err != nil {
		return err
	}
	return a.mark(a.Now().Truncate(time.Second)) // no slurmctld runs that could have booted in this second before
}

// Run watches until ctx is done.
func (a *Agent) Run(ctx context.Context) error {
	installed, err := a.readEtc()
	if err != nil {
		return err
	}
	a.installed, a.since, a.readFrom = Hash(installed), a.Now(), a.installedAt()
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
			a.Log.Info("configuration", "in_force", a.report.InForce, "rejected", a.report.Rejected, "error", a.report.Error, "behind", a.report.Behind, "nodes_error", a.report.NodesError)
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
	wanted, err := readVolume(a.Wanted)
	if err != nil {
		return fmt.Errorf("reading the configuration that is wanted: %w", err)
	}
	want := Hash(wanted)
	installed, err := a.readEtc()
	if err != nil {
		return err
	}
	if backup, err := a.standsBy(installed); backup || err != nil {
		if err != nil {
			return err
		}
		return a.follow(ctx)
	}
	if len(controllersOf(installed)) > 1 {
		if a.report.ControlSince == "" {
			a.report.ControlSince = a.Now().UTC().Format(time.RFC3339)
		}
		if err := a.readFailed(); err != nil { // it may have ended another one
			return err
		}
	}
	if a.report.InForce != a.installed {
		return a.confirm(ctx, wanted)
	}
	if want == a.installed {
		a.report.Rejected, a.report.Error, a.leaving = "", "", leaving{}
		return a.lookAtNodes(ctx)
	}
	for _, f := range []failure{a.failed, a.starved} {
		if want == f.hash && a.report.Rejected != want {
			a.reject(want, f.why)
		}
	}
	if a.hopeless(want) || a.leaving.waits(a.Now()) {
		return a.lookAtNodes(ctx)
	}
	if _, err := a.Slurm.BootTime(ctx); err != nil { // it may have ended; see confirm
		a.report.InForce, a.since = "", a.Now()
		return nil //nolint:nilerr // it says so by not being in force
	}
	if a.keepsJobs(ctx, installed, wanted) {
		return a.lookAtNodes(ctx)
	}
	if ok, err := a.check(ctx, wanted); !ok {
		return err
	}
	a.leaving.next = a.Now() // the trial took its time
	if a.keepsJobs(ctx, installed, wanted) {
		return a.lookAtNodes(ctx)
	}
	a.report.Rejected, a.report.Error = "", ""
	return a.install(wanted)
}

// hopeless tells that a configuration need not be tried, or not yet.
func (a *Agent) hopeless(want string) bool {
	return want == a.failed.hash || want == a.starved.hash || want == a.report.Rejected && a.Now().Before(a.retry)
}

// check tells whether slurmctld takes a configuration, and notes why if it does not.
func (a *Agent) check(ctx context.Context, files map[string]string) (bool, error) {
	if wait, err := a.unreachable(ctx, files); wait != nil || err != nil {
		if wait != nil {
			a.reject(Hash(files), wait.Reason)
			a.retry = a.Now().Add(errorPause) // it costs nothing
		}
		return false, err
	}
	err := a.Slurm.Check(ctx, files)
	if refused, ok := errors.AsType[*Rejected](err); ok {
		a.leaving = leaving{} // it is nothing that nodes could go with
		a.reject(Hash(files), refused.Reason)
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("trying the configuration: %w", err)
	}
	a.good = Hash(files)
	return true, nil
}

func (a *Agent) reject(want, why string) {
	a.report.Rejected, a.report.Error, a.retry = want, why, a.Now().Add(retryAfter)
}

// readEtc reads what slurmctld reads, without the keys.
func (a *Agent) readEtc() (map[string]string, error) {
	files, err := readFiles(a.Etc)
	if err != nil {
		return nil, fmt.Errorf("reading slurmctld's configuration: %w", err)
	}
	keys, err := readVolume(a.Keys)
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
