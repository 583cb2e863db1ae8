package spool

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// prologTimeout returns the shortest of PrologEpilogTimeout and PrologTimeout (26.05) in
// a slurm.conf and the files it includes, or 0 when there is none. After that time
// slurmctld kills a PrologSlurmctld and counts it as failed. What cannot be read is
// passed over: this only makes a gate end earlier.
func prologTimeout(slurmConf string) time.Duration { return scanTimeout(slurmConf, 0) }

// maxIncludes is how deep included files are followed.
const maxIncludes = 4

func scanTimeout(path string, depth int) time.Duration {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	var shortest time.Duration
	take := func(d time.Duration) {
		if d > 0 && (shortest == 0 || d < shortest) {
			shortest = d
		}
	}
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
			take(scanTimeout(included, depth+1))
			continue
		}
		key, value, _ := strings.Cut(text, "=")
		key = strings.ToLower(strings.TrimSpace(key))
		if key != "prologepilogtimeout" && key != "prologtimeout" {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 16); err == nil {
			take(time.Duration(n) * time.Second)
		}
	}
	return shortest
}
