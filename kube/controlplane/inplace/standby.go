package inplace

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// heartbeatFile of slurmctld's state says which of several controllers is in control (slurmctld/heartbeat.c): two numbers of eight bytes, the
// time and the place of its SlurmctldHost line. It is the same in all versions, and no command says it.
const heartbeatFile = "heartbeat"

// controllersOf are the hosts of the SlurmctldHost lines, in their order.
func controllersOf(files map[string]string) (hosts []string) {
	f, _ := slurmconf.ParseFile("slurm.conf", []byte(files["slurm.conf"])) // what is wrong slurmctld says
	if f == nil {
		return nil
	}
	return controllersIn(f)
}

func controllersIn(f *slurmconf.File) (hosts []string) {
	for _, s := range f.Settings() {
		if strings.EqualFold(s.Key, "SlurmctldHost") {
			name, _, _ := strings.Cut(s.Value, "(")
			hosts = append(hosts, name)
		}
	}
	return hosts
}

// inControl is the place of the controller that was in control last, -1 if there was none yet.
func inControl(state string) (int, error) {
	var text []byte
	var err error
	for range 3 { // slurmctld unlinks it before it links the next one
		if text, err = os.ReadFile(filepath.Join(state, heartbeatFile)); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return -1, nil
	case err != nil:
		return 0, fmt.Errorf("reading which slurmctld is in control: %w", err)
	case len(text) < 16:
		return 0, fmt.Errorf("reading which slurmctld is in control: %s has %d bytes, not 16", heartbeatFile, len(text))
	}
	return int(int64(binary.BigEndian.Uint64(text[8:16]))), nil //nolint:gosec // a place in a list
}

// standsBy tells whether another slurmctld than ours is in control, of those that a configuration names.
func (a *Agent) standsBy(files map[string]string) (bool, error) {
	hosts := controllersOf(files)
	if len(hosts) < 2 {
		return false, nil
	}
	place, err := inControl(a.State)
	if err != nil {
		return false, err
	}
	return slices.Index(hosts, a.Host) != max(place, 0), nil
}

// follow has a slurmctld that stands by read what is in force in the one that is in control, without a trial of its own: that one's agent keeps it, on the
// volume that they share, only after it has come into force. So all read the same, and what one refuses none has.
func (a *Agent) follow(ctx context.Context) error {
	a.report.ControlSince, a.report.Rejected, a.report.Error = "", "", ""
	a.leaveNodes()
	kept, err := a.readKept()
	if err != nil {
		return err
	}
	hash := Hash(kept)
	if hash != a.installed {
		if !slices.Contains(controllersOf(kept), a.Host) {
			return nil // it is from before this backup; with it slurmctld would end
		}
		if hash != a.seen {
			a.seen = hash // it is written file by file
			return nil
		}
		a.report.InForce = ""
		return a.install(kept)
	}
	began, err := a.Slurm.Started(ctx)
	if err != nil {
		a.report.InForce = ""
		return nil //nolint:nilerr // it says so by not being in force
	}
	if !began.Before(a.readFrom) || !a.rereadAt.Before(a.readFrom) {
		a.report.InForce = a.installed
		return nil
	}
	a.report.InForce = ""
	if a.Now().Before(a.askAt) {
		return nil
	}
	a.askAt = a.Now().Add(askAgain)
	if err := a.Slurm.Reread(ctx); err != nil {
		return fmt.Errorf("having the slurmctld that stands by read its configuration: %w", err)
	}
	a.rereadAt = a.Now()
	return nil
}

func (a *Agent) readKept() (map[string]string, error) {
	kept, err := readFiles(a.Kept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the configuration that was in force: %w", err)
	}
	return kept, nil
}

// Started implements Slurm. It takes a pod whose containers share their processes.
func (l Local) Started(context.Context) (time.Time, error) {
	p, err := l.daemon()
	if err != nil {
		return time.Time{}, err
	}
	return started(l.proc(), p)
}

// Reread implements Slurm: by SIGHUP, as no RPC does that to one that stands by (backup.c, on_backup_msg). One that has just come into control reads all anew.
func (l Local) Reread(context.Context) error {
	p, err := l.daemon()
	if err != nil {
		return err
	}
	return syscall.Kill(p.pid, syscall.SIGHUP)
}

// daemon is the pod's slurmctld, and not one of ours that tries a configuration.
func (l Local) daemon() (process, error) {
	all, err := processes(l.proc())
	if err != nil {
		return process{}, err
	}
	all = slices.DeleteFunc(all, func(p process) bool { return p.parent == os.Getpid() })
	if len(all) == 0 {
		return process{}, errors.New("slurmctld does not run")
	}
	return slices.MinFunc(all, func(a, b process) int { return int(a.start - b.start) }), nil
}

func (l Local) proc() string {
	if l.Proc != "" {
		return l.Proc
	}
	return "/proc"
}

// ownHost leaves of several SlurmctldHost lines that of a host alone: a slurmctld that is tried would stand by otherwise.
func ownHost(f *slurmconf.File, host string) error {
	var own string
	count := 0
	for _, s := range f.Settings() {
		if !strings.EqualFold(s.Key, "SlurmctldHost") {
			continue
		}
		count++
		if name, _, _ := strings.Cut(s.Value, "("); name == host {
			own = s.Value
		}
	}
	if count < 2 || own == "" {
		return nil
	}
	f.Remove("SlurmctldHost")
	return f.Add("SlurmctldHost=" + own)
}
