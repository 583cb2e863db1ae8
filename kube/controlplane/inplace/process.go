package inplace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is USER_HZ, which Linux shows to programs as 100 on all machines that Slurm runs on.
const ticksPerSecond = 100

// process is a slurmctld.
type process struct {
	pid    int
	parent int
	state  string // R, S, D, …
	ticks  int64  // processor time
	start  int64  // ticks after the machine's start
}

// processes are the slurmctlds that proc shows: the container's, or the pod's where its containers share their processes.
func processes(proc string) (list []process, err error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(proc, e.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		if p, ok := parseStat(string(text)); ok {
			p.pid = pid
			list = append(list, p)
		}
	}
	return list, nil
}

// parseStat reads /proc/<pid>/stat of a slurmctld: see proc(5).
func parseStat(text string) (p process, ok bool) {
	open, closed := strings.Index(text, "("), strings.LastIndex(text, ")")
	if open < 0 || closed < open || text[open+1:closed] != "slurmctld" {
		return process{}, false
	}
	fields := strings.Fields(text[closed+1:]) // from the third on
	if len(fields) < 20 || fields[0] == "Z" {
		return process{}, false
	}
	number := func(field int) int64 {
		n, err := strconv.ParseInt(fields[field-3], 10, 64)
		ok = ok && err == nil
		return n
	}
	ok = true
	p = process{state: fields[0], parent: int(number(4)), ticks: number(14) + number(15), start: number(22)}
	return p, ok
}

// started is when a process began, to the second.
func started(proc string, p process) (time.Time, error) {
	text, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return time.Time{}, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "btime "); ok {
			boot, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("reading when the machine started: %w", err)
			}
			return time.Unix(boot+p.start/ticksPerSecond, 0), nil
		}
	}
	return time.Time{}, errors.New("the kernel does not say when the machine started")
}
