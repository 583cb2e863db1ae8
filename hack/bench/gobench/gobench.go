// Package gobench reads what go test -bench prints.
package gobench

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// Results are values by benchmark, without the number of CPUs, and unit: one for each time it ran (-count).
type Results map[string]map[string][]float64

var benchName = regexp.MustCompile(`^(Benchmark\S*?)(-\d+)?$`)

// Read reads files of such output.
func Read(files ...string) (Results, error) {
	all := Results{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		all.parse(string(text))
	}
	return all, nil
}

func (r Results) parse(text string) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		name := benchName.FindStringSubmatch(fields[0])
		if name == nil {
			continue
		}
		if r[name[1]] == nil {
			r[name[1]] = map[string][]float64{}
		}
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				r[name[1]][fields[i+1]] = append(r[name[1]][fields[i+1]], v)
			}
		}
	}
}

// Mean is the mean of a benchmark's values; a limit must not be met because nothing was measured.
func (r Results) Mean(benchmark, unit string) (float64, error) {
	values := r[benchmark][unit]
	if len(values) == 0 {
		return 0, fmt.Errorf("there is no %s of %s", unit, benchmark)
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values)), nil
}
