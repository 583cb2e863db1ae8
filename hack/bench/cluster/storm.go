package main

import (
	"fmt"
	"strconv"
)

// storm is what many jobs of one node each, submitted at once as an array, take on fewer nodes.
type storm struct {
	Jobs  int `json:"jobs"`
	Nodes int `json:"nodes"`
	// FromZero is from submission until all have run, in seconds; Up the same when the nodes were up: what Slurm itself takes.
	FromZero samples `json:"from_zero_s"`
	Up       samples `json:"up_s"`
}

// ended prints the nanoseconds from just before an array is submitted until all its tasks, which do nothing, have completed.
const ended = `
t0=$(date +%%s%%N)
id=$(sbatch --parsable --output=/dev/null --array=1-%[1]d -N1 --exclusive --wrap true)
for ((i = 0; i < 3000; i++)); do
	left=$(squeue -h | wc -l)
	[ $left != 0 ] || break
	sleep 0.2
done
t1=$(date +%%s%%N)
well=$(scontrol -o show job "$id" | grep -c JobState=COMPLETED)
[ $well = %[1]d ] || { echo "$well of %[1]d tasks have completed: $(squeue -h | head -n 5)" >&2; exit 1; }
echo $((t1 - t0))`

func (b *bench) jobStorm(jobs, runs int) (storm, error) {
	s := storm{Jobs: jobs, Nodes: poolSize}
	for range runs {
		for _, into := range []*samples{&s.FromZero, &s.Up} {
			out, err := b.sh(fmt.Sprintf(ended, jobs))
			if err != nil {
				return s, err
			}
			ns, err := strconv.ParseFloat(out, 64)
			if err != nil {
				return s, err
			}
			into.add(ns / 1e9)
		}
		if _, err := b.zero("all"); err != nil {
			return s, err
		}
	}
	return s, nil
}
