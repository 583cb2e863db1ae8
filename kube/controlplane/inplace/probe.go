package inplace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

const (
	// answerWithin is how long slurmctld may take to answer a probe. The probe's own limit in the pod is longer.
	answerWithin = 5 * time.Second
	// busyFrom is the part of a core that a silent slurmctld needs to count as busy; one whose threads wait for each other needs less for its timers.
	busyFrom = 0.01
	// workFile has what Busy saw last.
	workFile = "work"
)

// errNoHTTP says that somebody listens and does not speak HTTP.
var errNoHTTP = errors.New("slurmctld does not answer by HTTP")

// Probe tells how the slurmctld of this container is. Only the container itself knows its Slurm's version: an image's name says nothing.
type Probe struct {
	// Version is Slurm's, "slurm 26.05.3".
	Version func(context.Context) (string, error)
	// Get asks slurmctld for a path. The error is errNoHTTP if it answers otherwise.
	Get func(ctx context.Context, path string) (status int, err error)
	// Ping asks it by an RPC.
	Ping func(context.Context) error
	// Busy tells whether slurmctld has worked since it was asked last.
	Busy func() (bool, error)
}

// Ready is nil if slurmctld answers: as the one in control, or, if standby is enough, as a backup.
func (p Probe) Ready(ctx context.Context, standby bool) error {
	if standby {
		return p.answers(ctx, "/livez")
	}
	return p.answers(ctx, "/readyz")
}

// Live is nil unless slurmctld is dead. One that reads its state, at its start or for a new configuration, answers nobody for as long as that takes, and
// ended in the middle it would begin anew: silence counts only while it does not work either.
func (p Probe) Live(ctx context.Context) error {
	busy, err := p.Busy() // also when it answers: the next one compares
	if silent := p.answers(ctx, "/livez"); silent != nil && err == nil && !busy {
		return silent
	}
	return nil
}

// answers asks by HTTP from Slurm 25.11 on. To an older slurmctld that would be an RPC of a gigabyte, and an error in its log every few seconds. It can be turned
// off (CommunicationParameters=disable_http), so what is no HTTP is asked by RPC, too.
func (p Probe) answers(ctx context.Context, path string) error {
	version, err := p.Version(ctx)
	if err != nil {
		return err
	}
	if !speaksHTTP(version) {
		return p.Ping(ctx)
	}
	status, err := p.Get(ctx, path)
	switch {
	case errors.Is(err, errNoHTTP):
		return p.Ping(ctx)
	case err != nil:
		return err
	case status/100 != 2:
		return fmt.Errorf("slurmctld answers %s with status %d", path, status)
	}
	return nil
}

// speaksHTTP tells it by "slurm 25.11.0". What cannot be read is taken for a newer one.
func speaksHTTP(version string) bool {
	v, err := slurmconf.ParseVersion(version)
	return err != nil || v.Major > 25 || v.Major == 25 && v.Minor >= 11
}

// localProbe asks the slurmctld that reads the slurm.conf in etc, at the address of its host, which the kubelet has in /etc/hosts: that is the only one on which
// slurmctld listens with CommunicationParameters=NoCtldInAddrAny. scratch is a directory that lasts as long as the container, or longer.
func localProbe(scontrol, etc, host, scratch string, now func() time.Time) Probe {
	port := func() (string, error) {
		f, err := confOf(etc)
		if err != nil {
			return "", err
		}
		s, ok := f.Get("SlurmctldPort")
		if !ok {
			return "6817", nil
		}
		return s.Value, nil
	}
	return Probe{
		Version: func(ctx context.Context) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, answerWithin)
			defer cancel()
			out, err := exec.CommandContext(ctx, scontrol, "-V").Output()
			if err != nil {
				return "", fmt.Errorf("asking for Slurm's version: %w", err)
			}
			return string(out), nil
		},
		Get: func(ctx context.Context, path string) (int, error) {
			where, err := port()
			if err != nil {
				return 0, err
			}
			return get(ctx, net.JoinHostPort(host, where), path)
		},
		Ping: func(ctx context.Context) error { return ping(ctx, scontrol, etc, host, scratch) },
		Busy: func() (bool, error) { return worked("/proc", filepath.Join(scratch, workFile), now()) },
	}
}

func confOf(etc string) (*slurmconf.File, error) {
	text, err := os.ReadFile(filepath.Join(etc, "slurm.conf"))
	if err != nil {
		return nil, err
	}
	f, err := slurmconf.ParseFile("slurm.conf", text)
	if f == nil {
		return nil, err
	}
	return f, nil // what else is wrong slurmctld says
}

func get(ctx context.Context, address, path string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, err
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		// Who hangs up, with or without a reset, has been reached.
		if call, ok := errors.AsType[*net.OpError](err); ok && call.Op == "dial" || ctx.Err() != nil {
			return 0, fmt.Errorf("asking slurmctld for %s: %w", path, err)
		}
		return 0, errNoHTTP
	}
	return response.StatusCode, response.Body.Close()
}

// ping asks this host's slurmctld alone. By the whole slurm.conf scontrol would ask all controllers one after the other, and wait for one that is gone.
func ping(ctx context.Context, scontrol, etc, host, scratch string) error {
	f, err := confOf(etc)
	if err != nil {
		return err
	}
	secret, err := os.ReadFile(filepath.Join(etc, "slurm.key"))
	if err != nil {
		return err
	}
	if !slices.Contains(controllersIn(f), host) {
		return fmt.Errorf("slurm.conf has no SlurmctldHost %s", host)
	}
	lines := []string{"SlurmctldHost=" + host} // no Service on the way
	for _, key := range []string{"ClusterName", "SlurmctldPort", "SlurmUser", "AuthType", "CredType"} {
		if s, ok := f.Get(key); ok {
			lines = append(lines, key+"="+s.Value)
		}
	}
	files := map[string]string{"slurm.conf": strings.Join(lines, "\n") + "\n", "slurm.key": string(secret)}
	if have, err := readFiles(scratch); err != nil || have["slurm.conf"] != files["slurm.conf"] || have["slurm.key"] != files["slurm.key"] {
		if err := writeFiles(scratch, files, 0o400, map[string]string{workFile: ""}); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, scontrol, "ping")
	cmd.Env = append(os.Environ(), "SLURM_CONF="+filepath.Join(scratch, "slurm.conf"))
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("scontrol ping: %w", err)
	}
	if !strings.Contains(string(out), "is UP") { // it ends with 0 also when slurmctld is down
		return fmt.Errorf("scontrol ping: %s", strings.TrimSpace(string(out)))
	}
	return nil
}

// worked tells whether the slurmctlds that proc shows have used the processor, or wait for a disk, since it was asked last: file has what it saw then.
func worked(proc, file string, now time.Time) (bool, error) {
	all, err := processes(proc)
	if err != nil {
		return false, err
	}
	ticks, waits := int64(0), false
	for _, p := range all {
		ticks += p.ticks
		waits = waits || p.state == "D"
	}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	var before, at int64
	known, _ := fmt.Sscan(string(text), &before, &at) // nothing the first time
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), writeFile(file, fmt.Sprintln(ticks, now.UnixMilli()), 0o600)); err != nil {
		return false, err
	}
	if known < 2 || waits || ticks < before { // there is nothing to compare with
		return true, nil
	}
	elapsed := float64(now.UnixMilli()-at) / 1000
	return float64(ticks-before)/ticksPerSecond >= busyFrom*elapsed, nil
}
