package inplace

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

const (
	// checkFor is how long a slurmctld may take to read a configuration.
	checkFor = time.Minute
	// callFor is how long scontrol may take.
	callFor = 15 * time.Second
	// maxReason is the most that is said of a refusal, in bytes: it ends in a condition.
	maxReason = 2000
	slurmUser = "slurm"
	// checkPrefix begins the names of directories in which configurations are tried.
	checkPrefix = "slurmtide-check-"
	// slurmTime is how scontrol writes times.
	slurmTime = "2006-01-02T15:04:05"
)

// Local is the Slurm beside us.
type Local struct {
	Slurmctld, Scontrol string // programs
	Etc                 string // directory of the slurm.conf in force
	Keys                string // directory of the keys
	JWTKey              string // file name of that of auth/jwt, in Keys
	Host                string // slurmctld's name for itself
	Proc                string // /proc, or what a test has in its place
}

// Check starts a slurmctld with the files in a directory, on a port and with a state of its own, and ends it as soon as it has become primary: by
// then it has read them all. It takes part in nothing: see alone.
func (l Local) Check(ctx context.Context, files map[string]string) error {
	dir, err := os.MkdirTemp("", checkPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	port, err := freePort()
	if err != nil {
		return err
	}
	// Files that name others of their directory, Include /etc/slurm/more.conf, mean those that come with them.
	files = maps.Clone(files)
	for name, text := range files {
		files[name] = strings.ReplaceAll(text, l.Etc+"/", dir+"/")
	}
	if err := alone(files, dir, l.Host, port); err != nil {
		return &Rejected{err.Error()}
	}
	keys, err := readVolume(l.Keys)
	if err != nil {
		return fmt.Errorf("reading the keys: %w", err)
	}
	if err := errors.Join(writeFiles(dir, keys, 0o400, nil), writeFiles(dir, files, 0o644, keys), os.Mkdir(filepath.Join(dir, "state"), 0o700)); err != nil {
		return fmt.Errorf("preparing a directory to try the configuration in: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, checkFor)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.Slurmctld, "-D", "-f", filepath.Join(dir, "slurm.conf"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // slurmscriptd is a process of its own
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting slurmctld to try the configuration: %w", err)
	}
	var said []string
	good := false
	for lines := bufio.NewScanner(stderr); !good && lines.Scan(); {
		// Source: controller.c, main: the configuration has been read by then, in all versions.
		good = strings.Contains(lines.Text(), "Running as primary controller")
		if text, ok := complaint(lines.Text()); ok && !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	err = cmd.Wait()
	reap(cmd.Process.Pid)
	switch {
	case good:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil:
		said = append(said, fmt.Sprintf("it did not become primary within %v", checkFor))
	case len(said) == 0:
		said = []string{fmt.Sprintf("it ended without a word: %v", err)}
	}
	return &Rejected{strings.ReplaceAll(shorten(said), dir+"/", l.Etc+"/")}
}

// removeChecks removes what checks have left that ended with their container, keys among it: the directory lasts as long as the pod.
func removeChecks(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, checkPrefix+"*"))
	for _, one := range left {
		err = errors.Join(err, os.RemoveAll(one))
	}
	return err
}

// reap collects what is left of a group that was killed: as the first process of a container this one inherits slurmscriptd, and nobody else does.
func reap(group int) {
	for range 100 {
		if pid, err := syscall.Wait4(-group, nil, syscall.WNOHANG, nil); err != nil && !errors.Is(err, syscall.EINTR) {
			return // there is none
		} else if pid == 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// shorten keeps the last lines: the fatal one comes at the end, and what led to it just before.
func shorten(lines []string) string {
	for i := range lines {
		if text := strings.Join(lines[i:], "; "); len(text) <= maxReason {
			return text
		}
	}
	return strings.ToValidUTF8(lines[len(lines)-1][:maxReason], "")
}

// complaint is what slurmctld says in a line of its log that tells of an error.
func complaint(line string) (string, bool) {
	for _, level := range []string{"fatal: ", "error: "} {
		if _, text, ok := strings.Cut(line, level); ok {
			return level + text, true
		}
	}
	return "", false
}

// alone changes a slurm.conf, and what it includes, so that a slurmctld that reads it stays by itself: state, port and log of its own, no programs, and no
// slurmdbd, which would take it for the cluster's.
func alone(files map[string]string, dir, host string, port int) error {
	f, err := slurmconf.ParseFile("slurm.conf", []byte(files["slurm.conf"]))
	if f == nil {
		return err
	}
	records := slurmdbdOf(files) != ""
	// What else is wrong with its form slurmctld says itself.
	cluster, _ := f.Get("ClusterName")
	own := [][2]string{
		{"StateSaveLocation", filepath.Join(dir, "state")}, {"SlurmctldPidFile", filepath.Join(dir, "state", "pid")},
		{"SlurmctldPort", strconv.Itoa(port)}, {"SlurmctldDebug", "info"},
	}
	var errs []error
	for _, one := range own {
		errs = append(errs, f.Set(one[0], one[1]))
	}
	errs = append(errs, ownHost(f, host), withoutOthers(f, records))
	more := f.Includes()
	files["slurm.conf"] = f.String()
	seen := map[string]bool{"slurm.conf": true}
	for len(more) > 0 {
		name := strings.TrimPrefix(strings.ReplaceAll(more[0].Value, "%c", strings.ToLower(cluster.Value)), dir+"/")
		more = more[1:]
		text, there := files[name]
		if !there || seen[name] {
			continue
		}
		seen[name] = true
		f, err := slurmconf.ParseFile(name, []byte(text))
		if f == nil {
			return err
		}
		for _, one := range own {
			f.Remove(one[0])
		}
		errs = append(errs, withoutOthers(f, records))
		more = append(more, f.Includes()...)
		files[name] = f.String()
	}
	return errors.Join(errs...)
}

// withoutOthers takes out what would reach others, and if there are records, what only slurmdbd knows.
func withoutOthers(f *slurmconf.File, records bool) error {
	if records {
		withoutRecords(f)
	}
	for _, key := range []string{
		"SlurmctldLogFile", "SlurmctldSyslogDebug", "SlurmSchedLogFile", "SlurmctldPrimaryOnProg", "SlurmctldPrimaryOffProg",
		"AccountingStorageEnforce",
	} {
		f.Remove(key)
	}
	if s, ok := f.Get("AccountingStorageType"); ok && strings.HasSuffix(strings.ToLower(s.Value), "slurmdbd") {
		// One that it cannot reach would be waited for, without state (controller.c, _retry_init_db_conn).
		if err := f.Set("AccountingStorageType", "accounting_storage/none"); err != nil {
			return err
		}
	}
	return f.RemoveWords("SlurmctldParameters", "reconfig_on_restart")
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", ":0") //nolint:gosec // it is closed at once
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("looking for a free port: %v is none", l.Addr())
	}
	return addr.Port, nil
}

// Reconfigure implements Slurm.
func (l Local) Reconfigure(ctx context.Context) error {
	_, err := l.scontrol(ctx, "reconfigure")
	return err
}

// Stop implements Slurm. Nodes and their jobs are left alone.
func (l Local) Stop(ctx context.Context) error {
	_, err := l.scontrol(ctx, "shutdown", "slurmctld")
	return err
}

// BootTime implements Slurm.
func (l Local) BootTime(ctx context.Context) (time.Time, error) {
	out, err := l.scontrol(ctx, "show", "config")
	if err != nil {
		return time.Time{}, err
	}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(key) == "BOOT_TIME" {
			return timeOf(strings.TrimSpace(value))
		}
	}
	return time.Time{}, errors.New("scontrol show config tells no BOOT_TIME")
}

// scontrol runs it as SlurmUser, by a token: it knows no other way to another container's slurmctld.
func (l Local) scontrol(ctx context.Context, args ...string) (string, error) {
	key, err := os.ReadFile(filepath.Join(l.Keys, l.JWTKey))
	if err != nil {
		return "", fmt.Errorf("reading the key for tokens: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.Scontrol, args...)
	cmd.Env = append(os.Environ(), "SLURM_JWT="+token(key, slurmUser, time.Now()), "SLURM_CONF="+filepath.Join(l.Etc, "slurm.conf"), "TZ=UTC", "SLURM_TIME_FORMAT=standard")
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("scontrol %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// token is one that slurmctld's auth/jwt takes for a minute.
func token(key []byte, user string, now time.Time) string {
	part := func(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
	text := part([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + part(fmt.Appendf(nil, `{"iat":%d,"exp":%d,"sun":%q}`, now.Unix(), now.Add(time.Minute).Unix(), user))
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return text + "." + part(mac.Sum(nil))
}
