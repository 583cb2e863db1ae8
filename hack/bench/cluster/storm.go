package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/slurmtide/slurmtide/exporter"
)

// storm is what many jobs of one node each, submitted at once, take on fewer nodes.
type storm struct {
	Kind  string `json:"kind"` // one array of so many tasks, or so many jobs, each with an sbatch of its own
	Jobs  int    `json:"jobs"`
	Nodes int    `json:"nodes"`
	// FromZero is from submission until all have run, in seconds; Up the same when the nodes were up: what Slurm itself takes.
	FromZero samples `json:"from_zero_s"`
	Up       samples `json:"up_s"`
	// Submitted is from the first sbatch until the last one is done, from zero.
	Submitted samples `json:"submitted_s"`
	// Zero is from powering the nodes down until none is left.
	Zero         samples `json:"zero_s"`
	FromZeroLoad load    `json:"from_zero_load"`
	UpLoad       load    `json:"up_load"`
	ZeroLoad     load    `json:"zero_load"`
}

// ended prints the nanoseconds from just before many jobs, which do nothing, are submitted until all have completed, sdiag's page of that time,
// and before both the nanoseconds until all were submitted. Four at a time is about as fast as one pod can submit them. Jobs that have completed are
// forgotten after five minutes.
const ended = `
kind=%[1]s n=%[2]d
sdiag --reset >/dev/null
t0=$(date +%%s%%N)
job="--quiet --job-name=storm$t0 --output=/dev/null -N1 --exclusive --wrap true"
case $kind in
array) sbatch --array=1-$n $job ;;
jobs) yes -- "$job" | head -n $n | xargs -P 4 -L 1 sbatch ;;
esac >/dev/null
t1=$(date +%%s%%N)
for ((i = 0; i < 2400; i++)); do
	left=$(squeue -h | wc -l)
	[ $left != 0 ] || break
	sleep 0.5
done
t2=$(date +%%s%%N)
page=$(sdiag --json)
[ $left = 0 ] || { echo "$left lines are left in the queue: $(squeue -h | head -n 5)" >&2; exit 1; }
bad=$(scontrol -o show job | grep "JobName=storm$t0 " | grep -v JobState=COMPLETED || true)
[ -z "$bad" ] || { echo "not completed: $bad" | head -c 2000 >&2; exit 1; }
echo $((t1 - t0))
echo $((t2 - t0))
echo "$page"`

func (b *bench) jobStorm(jobs, runs int) ([]storm, error) {
	storms := []storm{{Kind: "array", Jobs: jobs, Nodes: poolSize}, {Kind: "jobs", Jobs: jobs, Nodes: poolSize}}
	for range runs {
		for i := range storms {
			if err := b.storm(&storms[i]); err != nil {
				return nil, fmt.Errorf("%s of %d: %w", storms[i].Kind, jobs, err)
			}
		}
	}
	return storms, nil
}

func (b *bench) storm(s *storm) error {
	submitted, took, d, err := b.ended(s)
	if err != nil {
		return err
	}
	s.Submitted.add(submitted)
	s.FromZero.add(took)
	s.FromZeroLoad.add(d, true)
	if _, took, d, err = b.ended(s); err != nil {
		return err
	}
	s.Up.add(took)
	s.UpLoad.add(d, true)
	return b.zeroCounted(&s.Zero, &s.ZeroLoad, true)
}

func (b *bench) ended(s *storm) (submitted, took float64, d exporter.Diag, err error) {
	out, err := b.sh(fmt.Sprintf(ended, s.Kind, s.Jobs))
	if err != nil {
		return 0, 0, d, err
	}
	first, rest, _ := strings.Cut(out, "\n")
	ns, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return 0, 0, d, err
	}
	took, d, err = timed(rest)
	if err == nil && d.Completed < float64(s.Jobs) { // also of those that are forgotten by now
		err = fmt.Errorf("%.0f of %d have completed, by sdiag", d.Completed, s.Jobs)
	}
	return float64(ns) / 1e9, took, d, err
}
