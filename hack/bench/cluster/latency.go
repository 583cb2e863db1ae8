package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/exporter"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// latency is how long jobs of one kind and size take, in seconds.
type latency struct {
	Kind  string `json:"kind"` // batch, srun or array
	Nodes int    `json:"nodes"`
	Gate  bool   `json:"gate"`
	// FromZero is from submission until squeue shows the job, or all tasks of the array, RUNNING, no node being up.
	FromZero samples `json:"from_zero_s"`
	// Up is the same when the nodes are up and idle: what Slurm itself takes.
	Up samples `json:"up_s"`
	// Zero is from powering all nodes down, at once, until Slurm shows them powered down and no pod is left.
	Zero samples `json:"zero_s"`
	// What slurmctld did for each of the three; for the first two until the job ran.
	FromZeroLoad load `json:"from_zero_load"`
	UpLoad       load `json:"up_load"`
	ZeroLoad     load `json:"zero_load"`
}

// bare is how long pods like the bridge's take, created directly all at once: from the first create to the last one Running, in seconds.
type bare struct {
	Nodes   int     `json:"nodes"`
	Running samples `json:"running_s"`
}

// timeJob prints the nanoseconds from just before a job of some kind is submitted until it runs, looked at every 50 ms, where
// slurmctld runs, and then sdiag's page of that time. It begins at any moment of a second: slurmctld works by the second, and runs one after the other would always
// meet the same moment of its.
const timeJob = `
kind=%s n=%d
sleep "0.$(printf %%03d $((RANDOM %% 1000)))"
sdiag --reset >/dev/null
t0=$(date +%%s%%N)
case $kind in
batch) sbatch --quiet --job-name=timed --output=/dev/null -N$n --exclusive --wrap 'sleep 600' ;;
srun) srun --quiet --job-name=timed -N$n --exclusive sleep 600 </dev/null >/dev/null 2>&1 & ;;
array) sbatch --quiet --job-name=timed --output=/dev/null --array=1-$n -N1 --exclusive --wrap 'sleep 600' ;;
esac >/dev/null
want=1
[ $kind != array ] || want=$n
for ((i = 0; i < 4000; i++)); do
	runs=$(squeue -h -r -n timed -t RUNNING -o %%i | wc -l)
	[ $runs != $want ] || break
	sleep 0.05
done
t1=$(date +%%s%%N)
page=$(sdiag --json)
[ $runs = $want ] || { echo "$runs of $want jobs run: $(squeue -h -r -n timed)" >&2; exit 1; }
scancel -n timed
for ((i = 0; i < 600; i++)); do
	[ -n "$(squeue -h)" ] || break
	sleep 0.1
done
echo $((t1 - t0))
echo "$page"
`

// job runs a job on n nodes and returns the seconds until it ran, and what slurmctld did meanwhile.
func (b *bench) job(kind string, n int) (float64, exporter.Diag, error) {
	out, err := b.sh(fmt.Sprintf(timeJob, kind, n))
	if err != nil {
		return 0, exporter.Diag{}, fmt.Errorf("%s job of %d nodes: %w", kind, n, err)
	}
	return timed(out)
}

// timed reads nanoseconds and, below them, sdiag's page.
func timed(out string) (float64, exporter.Diag, error) {
	first, page, _ := strings.Cut(out, "\n")
	ns, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return 0, exporter.Diag{}, err
	}
	d, err := readDiag(page)
	return float64(ns) / 1e9, d, err
}

// zero powers all nodes of the partition down and waits until nothing is left of them. It returns the seconds that took.
func (b *bench) zero(partition string) (float64, error) { return b.zeroAfter("", partition) }

// zeroCounted is zero for all nodes, with what slurmctld did meanwhile.
func (b *bench) zeroCounted(s *samples, l *load, types bool) error {
	v, err := b.zeroAfter(resetDiag, "all")
	if err != nil {
		return err
	}
	s.add(v)
	d, err := b.diag()
	l.add(d, types)
	return err
}

// zeroAfter is zero, with a line of script before the nodes are powered down. slurmctld is asked only when the pods are gone, lest sdiag
// count that more than what it is to count.
func (b *bench) zeroAfter(script, partition string) (float64, error) {
	began := time.Now()
	_, err := b.sh("p=" + partition + `
up=$(sinfo -h -N -p $p -o '%N %T' | awk '$2 !~ /~$/ {print $1}' | sort -u | paste -sd,)
` + script + `[ -z "$up" ] || scontrol update nodename="$up" state=power_down`)
	if err != nil {
		return 0, err
	}
	err = b.eventually(fleetPatient, func() (bool, string, error) {
		left, err := b.kube.CoreV1().Pods(b.Options.Namespace).List(b.ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelNode})
		if err != nil {
			return false, "", err
		}
		return len(left.Items) == 0, fmt.Sprintf("%d slurmd pods are still there", len(left.Items)), nil
	})
	if err != nil {
		return 0, err
	}
	_, err = b.sh("p=" + partition + `
for ((i = 0; i < 3000; i++)); do
	sinfo -h -N -p $p -o %T | grep -qv '~$' || exit 0
	sleep 0.2
done
echo "nodes are not powered down: $(sinfo -h -p $p -o '%N %T')" >&2
exit 1`)
	return time.Since(began).Seconds(), err
}

// eventually looks five times a second until it is so, and says how it is when the time is over.
func (b *bench) eventually(limit time.Duration, look func() (bool, string, error)) error {
	for end := time.Now().Add(limit); ; time.Sleep(200 * time.Millisecond) {
		ok, how, err := look()
		switch {
		case err != nil || ok:
			return err
		case b.ctx.Err() != nil:
			return b.ctx.Err()
		case time.Now().After(end):
			return errors.New(how)
		}
	}
}

// timing says which jobs are timed how often, with one slurmctld.
type timing struct {
	kind  string
	nodes []int
	runs  int
}

// timings are what is timed of slurmctlds one after the other, with the start gate and without it. When in a second a slurmctld looks for
// nodes to resume is settled by when it started, and is good or bad luck for all its jobs.
var timings = map[bool][]timing{
	true: {{"batch", []int{1, 2, 10}, 5}, {"srun", []int{1, 2, 10}, 2}, {"array", []int{1, 2, 10}, 2},
		{"batch", []int{50, 100}, 1}, {"srun", []int{50, 100}, 1}, {"array", []int{50, 100}, 1}},
	// Half a minute each, at any size.
	false: {{"batch", []int{1, 2, 10}, 2}, {"batch", []int{50, 100}, 1}, {"srun", []int{1, 2, 10, 50, 100}, 1}, {"array", []int{1, 2, 10, 50, 100}, 1}},
}

// latencies gathers what several slurmctlds have done.
type latencies struct {
	rows   []*latency
	direct []*bare
}

func (l *latencies) row(kind string, nodes int, gate bool) *latency {
	for _, r := range l.rows {
		if r.Kind == kind && r.Nodes == nodes && r.Gate == gate {
			return r
		}
	}
	l.rows = append(l.rows, &latency{Kind: kind, Nodes: nodes, Gate: gate})
	return l.rows[len(l.rows)-1]
}

func (l *latencies) bare(nodes int) *bare {
	for _, d := range l.direct {
		if d.Nodes == nodes {
			return d
		}
	}
	l.direct = append(l.direct, &bare{Nodes: nodes})
	return l.direct[len(l.direct)-1]
}

// measure times what timings says with one slurmctld. Pods created directly are timed in turn with batch jobs of their number.
func (l *latencies) measure(b *bench, gate bool, sizes []int) error {
	// A slurmctld that has just started goes by the default batch_sched_delay until its first scheduling pass.
	if _, _, err := b.job("batch", 1); err != nil {
		return err
	}
	if _, err := b.zero("all"); err != nil {
		return err
	}
	for _, t := range timings[gate] {
		for _, n := range t.nodes {
			if !slices.Contains(sizes, n) {
				continue
			}
			for range t.runs {
				if err := l.once(b, t.kind, n, gate); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (l *latencies) once(b *bench, kind string, n int, gate bool) error {
	if gate && kind == "batch" {
		v, err := b.direct(b.set, n)
		if err != nil {
			return err
		}
		l.bare(n).Running.add(v.Running)
	}
	r := l.row(kind, n, gate)
	for _, into := range []struct {
		*samples
		*load
	}{{&r.FromZero, &r.FromZeroLoad}, {&r.Up, &r.UpLoad}} {
		v, d, err := b.job(kind, n)
		if err != nil {
			return err
		}
		into.samples.add(v)
		into.load.add(d, false)
	}
	return b.zeroCounted(&r.Zero, &r.ZeroLoad, false)
}
