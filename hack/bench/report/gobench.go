package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// goBench is the output of go test -bench: values by benchmark, without the number of CPUs, and unit.
type goBench map[string]map[string]float64

var benchName = regexp.MustCompile(`^(Benchmark\S*?)(-\d+)?$`)

func readGoBench(file string) (goBench, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseGoBench(string(text)), nil
}

func parseGoBench(text string) goBench {
	all := goBench{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		name := benchName.FindStringSubmatch(fields[0])
		if name == nil {
			continue
		}
		values := map[string]float64{}
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				values[fields[i+1]] = v
			}
		}
		all[name[1]] = values
	}
	return all
}

// value is one of them; a limit must not be met because nothing was measured.
func (g goBench) value(benchmark, unit string) (float64, error) {
	v, ok := g[benchmark][unit]
	if !ok {
		return 0, fmt.Errorf("there is no %s of %s", unit, benchmark)
	}
	return v, nil
}
