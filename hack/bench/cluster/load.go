package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/slurmtide/slurmtide/exporter"
	"github.com/slurmtide/slurmtide/internal/slurmrest/answer"
)

// load is what slurmctld did while something was measured, by sdiag: the sum of all runs, in milliseconds. What the measurement itself asked
// is left out (see own).
type load struct {
	Runs     int            `json:"runs"`
	Requests float64        `json:"requests"`
	Time     float64        `json:"ms"` // for all requests
	Main     cycles         `json:"main_scheduler"`
	Backfill cycles         `json:"backfill"`
	Types    map[string]rpc `json:"types,omitempty"`
}

type cycles struct {
	Count float64 `json:"cycles"`
	Time  float64 `json:"ms"`
	Max   float64 `json:"longest_ms"`
}

type rpc struct {
	Count float64 `json:"requests"`
	Time  float64 `json:"ms"`
}

// own says whether requests of a type are those of the measurement: sdiag's, and squeue's, which lists all jobs and partitions, as the bridge
// does when it starts, and once a minute.
func own(request string) bool {
	return request == "REQUEST_JOB_INFO" || request == "REQUEST_PARTITION_INFO" || strings.HasPrefix(request, "REQUEST_STATS_")
}

// add counts a run; types are kept if wanted.
func (l *load) add(d exporter.Diag, types bool) {
	l.Runs++
	for _, r := range d.RPCs {
		if own(r.Name) {
			continue
		}
		l.Requests += r.Count
		l.Time += r.Time / 1000
		if types {
			if l.Types == nil {
				l.Types = map[string]rpc{}
			}
			t := l.Types[r.Name]
			l.Types[r.Name] = rpc{t.Count + r.Count, t.Time + r.Time/1000}
		}
	}
	l.Main.add(d.Main)
	l.Backfill.add(d.Backfill)
}

func (c *cycles) add(d exporter.Cycles) {
	c.Count += d.Count
	c.Time += d.Sum / 1000
	c.Max = max(c.Max, d.Max/1000)
}

const resetDiag = "sdiag --reset >/dev/null\n"

// diag is what slurmctld has counted since the reset.
func (b *bench) diag() (exporter.Diag, error) {
	page, err := b.sh("sdiag --json")
	if err != nil {
		return exporter.Diag{}, err
	}
	return readDiag(page)
}

func readDiag(page string) (exporter.Diag, error) {
	e, d, err := answer.DecodeDiag(strings.NewReader(page))
	switch {
	case err != nil:
		return d, fmt.Errorf("reading sdiag's page: %w", err)
	case len(e.Errors) > 0:
		return d, fmt.Errorf("sdiag: %v", e.Errors)
	case len(d.RPCs) == 0:
		return d, errors.New("sdiag tells of no request")
	}
	return d, nil
}
