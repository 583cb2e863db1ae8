package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

// Exit statuses of the programs. slurmctld only logs them.
const (
	exitAccepted = 0
	exitFailed   = 1 // the request could not be written
	exitUsage    = 2 // called without a hostlist, or with something that is none
)

// maxResumeFile bounds what is read of a resume file. 1,000 jobs need some 250 kB.
const maxResumeFile = 64 << 20

// Program is the body of resume, suspend and resume-fail: it writes one request and
// returns the exit status. args is os.Args; the hostlist is its last element, since
// Slurm 26.05 puts a PowerAction's own arguments before it.
func Program(kind Kind, args []string, env func(string) string, stderr io.Writer) int {
	started := time.Now()
	// The process is over before its garbage could matter.
	debug.SetGCPercent(-1)

	settings, warnings := LoadSettings(env)
	log := programLog(settings.LogFile, string(kind))
	for _, w := range warnings {
		log.Warn("settings", "error", w)
		fmt.Fprintf(stderr, "%s: warning: %v\n", kind, w)
	}
	fail := func(status int, err error) int {
		log.Error("request not accepted", "error", err, "args", shorten(strings.Join(args[min(1, len(args)):], " ")))
		fmt.Fprintf(stderr, "%s: request not accepted: %v\n", kind, err)
		return status
	}
	if len(args) < 2 {
		fmt.Fprintf(stderr, "usage: %s <hostlist>\nslurmctld runs this program; the request goes to spool %s\n", kind, settings.Spool)
		return fail(exitUsage, errors.New("no hostlist given"))
	}
	r := Request{Kind: kind, Started: started, Nodes: args[len(args)-1], SlurmConf: env("SLURM_CONF")}
	if kind == KindResume {
		times := readSlurmTimes(settings.SlurmConf)
		r.ResumeTimeout, r.SuspendTime, r.AllAtOnce = int(times.Resume.Seconds()), int(times.Suspend.Seconds()), times.AllAtOnce
	}
	if path := env("SLURM_RESUME_FILE"); path != "" && kind == KindResume {
		var err error
		if r.ResumeFile, err = readResumeFile(path); err != nil {
			r.ResumeFileError = err.Error()
		}
	}
	id, err := newWriter(settings.Spool).submit(&r)
	if errors.Is(err, errHostlist) {
		return fail(exitUsage, err)
	}
	if err != nil {
		return fail(exitFailed, err)
	}
	poked := "yes"
	if err := Poke(settings.Spool); err != nil {
		// The bridge finds the request when it looks; it need not be up now.
		poked = err.Error()
	}
	if r.ResumeFileError != "" {
		log.Warn("request goes without its resume file", "id", id, "error", r.ResumeFileError)
		fmt.Fprintf(stderr, "%s: warning: request %s goes without its resume file: %s\n", kind, id, r.ResumeFileError)
	}
	log.Info("request accepted", "id", id, "nodes", shorten(r.Nodes), "resume_file_bytes", len(r.ResumeFile), "poked", poked, "took", time.Since(started).Round(time.Microsecond))
	return exitAccepted
}

// readResumeFile reads the file at once: it disappears when slurmctld stops.
func readResumeFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("reading resume file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading resume file: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("reading resume file: %s is not a regular file", path)
	case info.Size() > maxResumeFile:
		return nil, fmt.Errorf("resume file %s has %d bytes, more than the %d allowed", path, info.Size(), maxResumeFile)
	}
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("reading resume file: %w", err)
	}
	return data, nil
}
