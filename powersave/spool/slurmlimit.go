package spool

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// slurmTimes are the times of a slurm.conf, and of the files it includes, that the programs need. 0: not there.
type slurmTimes struct {
	// Prolog is the shortest of PrologEpilogTimeout and PrologTimeout (26.05). After that time slurmctld kills a
	// PrologSlurmctld and counts it as failed.
	Prolog time.Duration
	// Resume is ResumeTimeout: after it slurmctld gives a boot up. A partition's own is not looked at.
	Resume time.Duration
	// Suspend is the shortest SuspendTime: slurm.conf's, a partition's or (26.05) a node's. Which of them counts for a node is
	// not looked at, since the longest of its partitions does (power_save.c).
	Suspend time.Duration
	// AllAtOnce is ResumeRate=0: slurmctld powers up all nodes that it has to at once. Without the line it is 300 a minute.
	AllAtOnce bool
}

// readSlurmTimes passes over what it cannot read: a gate ends earlier then, and the bridge leaves late boots to slurmctld.
func readSlurmTimes(slurmConf string) slurmTimes {
	var t slurmTimes
	t.scan(slurmConf, 0)
	return t
}

// maxIncludes is how deep included files are followed.
const maxIncludes = 4

func (t *slurmTimes) scan(path string, depth int) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "#")
		text = strings.TrimSpace(text)
		if len(text) > 8 && strings.EqualFold(text[:8], "include ") && depth < maxIncludes {
			included := strings.TrimSpace(text[8:])
			if !filepath.IsAbs(included) {
				included = filepath.Join(filepath.Dir(path), included)
			}
			t.scan(included, depth+1)
			continue
		}
		for _, word := range strings.Fields(text) { // it stands on lines of partitions and nodes, too
			if key, value, _ := strings.Cut(word, "="); strings.EqualFold(key, "SuspendTime") {
				t.suspend(value)
			}
		}
		key, value, _ := strings.Cut(text, "=")
		if strings.EqualFold(strings.TrimSpace(key), "SuspendTime") {
			t.suspend(strings.TrimSpace(value))
		}
		if strings.EqualFold(strings.TrimSpace(key), "ResumeRate") {
			t.AllAtOnce = strings.TrimSpace(value) == "0"
		}
		n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 16)
		if err != nil || n == 0 {
			continue
		}
		d := time.Duration(n) * time.Second
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "prologepilogtimeout", "prologtimeout":
			if t.Prolog == 0 || d < t.Prolog {
				t.Prolog = d
			}
		case "resumetimeout":
			t.Resume = d
		}
	}
}

// suspend takes in a SuspendTime, in seconds; -1 and INFINITE stand for never.
func (t *slurmTimes) suspend(value string) {
	n, err := strconv.ParseUint(value, 10, 31)
	if d := time.Duration(n) * time.Second; err == nil && n > 0 && (t.Suspend == 0 || d < t.Suspend) {
		t.Suspend = d
	}
}
