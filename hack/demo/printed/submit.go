package printed

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Task is one line of an srun whose tasks print the time, their job's id and their host: `date +%s.%N`, $SLURM_JOB_ID, `hostname`.
type Task struct {
	Began time.Time
	Job   uint32
	Node  string
}

// ParseSbatch reads the time at which sbatch began and what `sbatch --parsable` prints.
func ParseSbatch(out string) (submitted time.Time, id uint32, err error) {
	submitted, lines, err := submission("sbatch", out, 1)
	if err != nil {
		return time.Time{}, 0, err
	}
	id, err = jobID(lines[0])
	return submitted, id, err
}

// ParseSrun reads the time at which srun began and what its two tasks print.
func ParseSrun(out string) (submitted time.Time, tasks []Task, err error) {
	submitted, lines, err := submission("srun", out, 2)
	if err != nil {
		return time.Time{}, nil, err
	}
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return time.Time{}, nil, fmt.Errorf("a task of srun printed %q", line)
		}
		began, err := ParseMark(fields[0])
		if err != nil {
			return time.Time{}, nil, err
		}
		id, err := jobID(fields[1])
		if err != nil {
			return time.Time{}, nil, err
		}
		tasks = append(tasks, Task{began, id, fields[2]})
	}
	return submitted, tasks, nil
}

// submission reads a mark and as many lines as are wanted.
func submission(command, out string, want int) (time.Time, []string, error) {
	lines := Lines(out)
	if len(lines) != 1+want {
		return time.Time{}, nil, fmt.Errorf("%s should print %d lines after the time, it printed %q", command, want, out)
	}
	at, err := ParseMark(lines[0])
	return at, lines[1:], err
}

func jobID(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a job id", text)
	}
	return uint32(id), nil
}

// ParseMark reads what `date +%s.%N` prints.
func ParseMark(text string) (time.Time, error) {
	whole, fraction, _ := strings.Cut(strings.TrimSpace(text), ".")
	sec, err := strconv.ParseUint(whole, 10, 40)
	nsec, err2 := strconv.ParseUint(fraction, 10, 32)
	if err != nil || err2 != nil || len(fraction) != 9 {
		return time.Time{}, fmt.Errorf("%q is not what `date +%%s.%%N` prints", text)
	}
	return time.Unix(int64(sec), int64(nsec)).UTC(), nil
}

// Lines returns the complete lines of text.
func Lines(text string) []string {
	end := strings.LastIndexByte(text, '\n')
	if end < 0 {
		return nil
	}
	return strings.Split(text[:end], "\n")
}
