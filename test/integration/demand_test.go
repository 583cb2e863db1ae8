//go:build integration && scale

package integration

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/internal/slurmrest"
	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// What a copy of a queue is for.
type trial int

const (
	free     trial = iota // slurmctld powers up what it likes
	exact                 // it may use the nodes of the estimate, and no others
	lessCPU               // and one of NodeSet cpu less
	lessBig               // or one of NodeSet big
	trials   = 4
	perBatch = 25
)

var setOf = map[trial]string{lessCPU: "cpu", lessBig: "big"}

// Queues that are made up, put before a real slurmctld, many side by side: each has nodes and partitions of its own, and up to four copies of
// those. Nodes are powered down and never come up, but slurmctld allocates them to jobs all the same, and that is what demand is about.
// QUEUES says how many there are, or, as a list with commas, which: "80," is that one. RECORD names a file for what was seen, which package
// scaler's TestRecorded reads.
func TestDemand(t *testing.T) {
	queues := whichQueues(t, cmp.Or(os.Getenv("QUEUES"), "12"))
	forScaling(t, func(t *testing.T, version string) {
		var all tally
		for batch := range slices.Chunk(queues, perBatch) {
			t.Run(fmt.Sprintf("from %d", batch[0]), func(t *testing.T) {
				newDemandBench(t, version, batch).run(&all)
			})
		}
		all.save(t, version)
		all.judge(t, len(queues))
	})
}

// whichQueues are the numbers of the queues to draw.
func whichQueues(t *testing.T, text string) []int {
	var numbers []int
	list, one := strings.CutSuffix(text, ",")
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		require.NoError(t, err, "QUEUES")
		numbers = append(numbers, n)
	}
	if len(numbers) > 1 || one {
		return numbers
	}
	all := make([]int, numbers[0])
	for i := range all {
		all[i] = i
	}
	return all
}

// demandBench is one slurmctld and the queues before it.
type demandBench struct {
	*cluster
	rest    *slurmrest.Client
	numbers []int
	queues  []drawnQueue // of those numbers
	sel     scaler.Select
	only    map[string][]string // by copy: the powered-down nodes that were left to it
}

func copyName(queue int, what trial) string { return fmt.Sprintf("q%dt%d", queue, what) }

func newDemandBench(t *testing.T, version string, numbers []int) *demandBench {
	b := &demandBench{numbers: numbers, only: map[string][]string{}}
	// Held jobs are released while a reservation holds all nodes, and start in one pass over the queue when it is gone. Backfill keeps no
	// nodes for jobs that wait, for nothing that runs ends within a day.
	o := stack.Options{NoBridge: true, SuspendTime: 3600, ResumeTimeout: 3600, ExtraConf: []string{
		"SelectTypeParameters=CR_Core_Memory",
		"SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=1000000,bf_interval=2,default_queue_depth=100000,bf_max_job_test=100000,bf_continue",
	}}
	for _, number := range numbers {
		b.queues = append(b.queues, drawQueue(rand.New(rand.NewPCG(uint64(number), 7))))
		for what := range trial(trials) {
			c := copyName(number, what)
			gpus, err := stack.FakeGPUs(c+"big-[0-5]", "h100", 4)
			require.NoError(t, err)
			o.GresLines = append(o.GresLines, gpus)
			o.NodeLines = append(o.NodeLines,
				"NodeName="+c+"cpu-[0-11] CPUs=8 Sockets=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=16000 Feature=cpu,avx Weight=1 State=CLOUD",
				"NodeName="+c+"big-[0-5] CPUs=16 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=64000 Gres=gpu:h100:4 Feature=big Weight=10 State=CLOUD")
			o.PartitionLines = append(o.PartitionLines, "PartitionName="+c+"cpu Nodes="+c+"cpu-[0-11]",
				"PartitionName="+c+"big Nodes="+c+"big-[0-5]", "PartitionName="+c+"any Nodes="+c+"cpu-[0-11],"+c+"big-[0-5]",
				"PartitionName="+c+"both Nodes="+c+"cpu-[0-11] OverSubscribe=YES:2")
		}
	}
	b.cluster = deploy(t, fmt.Sprintf("demand%d", numbers[0]), version, o)
	address, err := b.Forward(b.ctx, 6820)
	require.NoError(t, err)
	key, err := b.JWTKey(b.ctx)
	require.NoError(t, err)
	keyFile := filepath.Join(t.TempDir(), "jwt_hs256.key")
	require.NoError(t, os.WriteFile(keyFile, key, 0o600))
	b.rest, err = slurmrest.Dial(b.ctx, slurmrest.Config{Server: "http://" + address, Token: slurmrest.KeyFile{Path: keyFile, User: "slurm"}})
	require.NoError(t, err)
	t.Cleanup(b.rest.Close)
	var told bool
	b.sel, told, err = b.rest.Select(b.ctx)
	require.NoError(t, err)
	assert.Equal(t, version == "26.05", told)
	want := scaler.Select{OneNodeFirstFit: told}
	if told { // slurm.conf has none: slurmctld makes room for the nodes that it names, and for no more
		want.MaxNodeCount = len(numbers) * trials * (12 + 6)
	}
	assert.Equal(t, want, b.sel)
	return b
}

// copies splits what Slurm shows into the copies of the queues; the nodes of each are NodeSets cpu and big.
func (b *demandBench) copies() map[string]*scaler.Snapshot {
	s, err := b.rest.Queue(b.ctx)
	require.NoError(b.t, err)
	all := map[string]*scaler.Snapshot{}
	of := func(name string) *scaler.Snapshot {
		cut := strings.IndexAny(name, "bca") // big, cpu, any, both
		c, ok := all[name[:cut]]
		if !ok {
			c = &scaler.Snapshot{NodeSets: []scaler.NodeSet{{Name: "cpu"}, {Name: "big"}}, Options: scaler.Options{Select: b.sel}}
			all[name[:cut]] = c
		}
		return c
	}
	for _, n := range s.Nodes {
		n.NodeSet = "cpu"
		if strings.Contains(n.Name, "big") {
			n.NodeSet = "big"
		}
		c := of(n.Name)
		c.Nodes = append(c.Nodes, n)
	}
	for _, p := range s.Partitions {
		c := of(p.Name)
		c.Partitions = append(c.Partitions, p)
	}
	for _, j := range s.Jobs {
		where := j.Partitions
		if where == "" {
			where = j.Nodes
		}
		c := of(where)
		c.Jobs = append(c.Jobs, j)
	}
	return all
}

// submit runs scripts for some copies.
func (b *demandBench) submit(scripts map[string]string) {
	var all strings.Builder
	for _, c := range slices.Sorted(maps.Keys(scripts)) {
		all.WriteString(strings.ReplaceAll(scripts[c], "@", c))
	}
	if all.Len() == 0 {
		return
	}
	_, stderr, err := b.cluster.run(strings.NewReader(all.String()), stack.ContainerSlurmctld, "sh", "-e")
	require.NoError(b.t, err, stderr)
}

// release lets all jobs go that are held.
func (b *demandBench) release() {
	var ids []string
	for _, s := range b.copies() {
		for _, j := range s.Jobs {
			if j.State == scaler.JobPending {
				require.Equal(b.t, "JobHeldUser", j.Reason, "%+v", j)
				if j.HetJobID == 0 || j.HetJobID == j.ID { // with the first all components are released
					ids = append(ids, fmt.Sprint(j.ID))
				}
			}
		}
	}
	slices.SortFunc(ids, func(a, c string) int {
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(c)
		return x - y
	})
	for part := range slices.Chunk(ids, 200) {
		b.slurm("scontrol", "release", strings.Join(part, ","))
	}
}

// settle waits until nothing starts any more.
func (b *demandBench) settle() map[string]*scaler.Snapshot {
	var last map[string]*scaler.Snapshot
	started, since := -1, time.Now()
	b.within(5*time.Minute, time.Second, "jobs to start", func() (bool, string) {
		last = b.copies()
		now := 0
		for _, s := range last {
			for _, j := range s.Jobs {
				if j.State == scaler.JobRunning {
					now++
				}
			}
		}
		if now != started {
			started, since = now, time.Now()
		}
		return time.Since(since) > 15*time.Second, fmt.Sprint(now, " run")
	})
	return last
}

// estimate is what the model makes of a copy whose jobs are held.
func (b *demandBench) estimate(s *scaler.Snapshot) scaler.Report {
	for i := range s.Jobs {
		if j := &s.Jobs[i]; j.State == scaler.JobPending {
			require.Equal(b.t, "JobHeldUser", j.Reason)
			j.Reason, j.Priority = "None", 1
		}
	}
	r := scaler.Demand(time.Now(), *s)
	for _, j := range r.Jobs {
		require.Contains(b.t, []scaler.Why{scaler.WhyCapacity, scaler.WhyRoom, scaler.WhyFull}, j.Why, "%v", j)
	}
	return r
}

func (b *demandBench) run(all *tally) {
	t := b.t
	started := time.Now()
	step := func(what string) { t.Logf("%4.0f s: %s", time.Since(started).Seconds(), what) }
	firsts := map[string]string{}
	seconds := map[string]string{}
	for i, q := range b.queues {
		for what := range trial(trials) {
			if q.first != "" {
				firsts[copyName(b.numbers[i], what)] = q.first
			}
		}
		seconds[copyName(b.numbers[i], free)] = q.second
	}
	b.submit(firsts)
	b.release()
	if len(firsts) > 0 {
		b.settle()
		// What could not start would change the queue that comes now.
		var left []string
		for _, s := range b.copies() {
			for _, j := range s.Jobs {
				if j.State == scaler.JobPending && (j.HetJobID == 0 || j.HetJobID == j.ID) {
					left = append(left, fmt.Sprint(j.ID))
				}
			}
		}
		for part := range slices.Chunk(left, 200) {
			b.slurm(append([]string{"scancel", "--state=PENDING"}, part...)...)
		}
	}
	step("the first jobs run")

	b.submit(seconds)
	seconds = map[string]string{}
	for name, s := range b.copies() {
		for i := range b.queues {
			if name != copyName(b.numbers[i], free) {
				continue
			}
			r := b.estimate(s)
			seconds[copyName(b.numbers[i], exact)] = b.queues[i].second
			for what, set := range setOf {
				if n := slices.IndexFunc(r.NodeSets, func(d scaler.NodeSetDemand) bool { return d.Name == set }); r.NodeSets[n].New.Greedy > 0 {
					seconds[copyName(b.numbers[i], what)] = b.queues[i].second
				}
			}
		}
	}
	b.submit(seconds)
	step("the queue stands")

	before := b.copies()
	reports := map[string]scaler.Report{}
	var barred []string
	for i := range b.queues {
		for what := range trial(trials) {
			name := copyName(b.numbers[i], what)
			s := before[name]
			r := b.estimate(s)
			reports[name] = r
			if what == free {
				continue
			}
			may := map[string]bool{}
			for _, set := range r.NodeSets {
				require.Len(t, set.PowerUp, set.New.Greedy)
				nodes := set.PowerUp
				if set.Name == setOf[what] && len(nodes) > 0 {
					nodes = nodes[:len(nodes)-1]
				}
				for _, n := range nodes {
					may[n] = true
				}
			}
			for _, n := range s.Nodes {
				switch {
				case n.State == scaler.NodeOff && !may[n.Name]:
					barred = append(barred, n.Name)
				case n.State == scaler.NodeOff:
					b.only[name] = append(b.only[name], n.Name)
				}
			}
		}
	}
	b.slurm("scontrol", "update", "nodename="+strings.Join(barred, ","), "state=drain", "reason=test")
	b.slurm("scontrol", "create", "reservation", "reservationname=wait", "starttime=now", "duration=infinite", "users=root", "nodes=ALL", "flags=ignore_jobs,maint")
	b.release()
	b.slurm("scontrol", "delete", "reservationname=wait")
	step("released")
	after := b.settle()
	step("settled")
	for i := range b.queues {
		b.compare(all, b.numbers[i], b.queues[i], before, after, reports)
	}
}

// compare says what became of one queue.
func (b *demandBench) compare(all *tally, queue int, q drawnQueue, before, after map[string]*scaler.Snapshot, reports map[string]scaler.Report) {
	t := b.t
	name := copyName(queue, free)
	r := reports[name]
	fresh := b.taken(before[name], after[name])
	all.queues++
	of := &all.of[q.kind()]
	of.queues++
	switch distance := max(fresh-r.New.Greedy, r.New.Greedy-fresh); {
	case q.hasRanges(): // slurmctld takes the larger number
		all.ranges++
	case distance == 0:
		all.asTaken++
		fallthrough
	case distance == 1:
		all.within1++
		fallthrough
	case distance == 2:
		all.within2++
	}
	verdict := fmt.Sprintf("queue %d: slurmctld powered up %d, reckoned %+v", queue, fresh, r.New)
	if fresh != r.New.Greedy {
		verdict += "\n" + q.first + "--\n" + q.second + b.story(after[name], r)
	}
	assert.LessOrEqual(t, r.New.Lower, fresh, verdict)
	all.seen = append(all.seen, b.recorded(queue, free, before, after))
	for what := exact; what < trials; what++ {
		name := copyName(queue, what)
		r := reports[name]
		set := slices.IndexFunc(r.NodeSets, func(d scaler.NodeSetDemand) bool { return d.Name == setOf[what] })
		if what != exact && r.NodeSets[set].New.Greedy == 0 || len(r.Jobs) == 0 {
			continue
		}
		all.seen = append(all.seen, b.recorded(queue, what, before, after))
		missing := b.missing(r, after[name])
		switch what {
		case exact:
			counted := 0
			for _, j := range r.Jobs {
				counted += j.Counted
			}
			all.counted += counted
			all.started += counted - missing
			if missing > 0 {
				of.short = append(of.short, fmt.Sprintf("%d (%d of %d)", queue, counted-missing, counted))
				verdict += fmt.Sprintf("\nwith the estimate's nodes %d jobs are missing\n", missing) + q.first + "--\n" + q.second + b.story(after[name], r)
			}
		default:
			of.fewer++
			if missing == 0 {
				of.spare = append(of.spare, fmt.Sprintf("%d %s", queue, setOf[what]))
				verdict += fmt.Sprintf("\none %s less is enough\n", setOf[what]) + q.first + "--\n" + q.second + b.story(after[name], r)
			}
		}
	}
	t.Log(verdict)
}

func (b *demandBench) recorded(queue int, what trial, before, after map[string]*scaler.Snapshot) recorded {
	name := copyName(queue, what)
	r := recorded{Queue: queue, Only: b.only[name], Before: *before[name], Nodes: map[uint32][]string{}}
	for _, j := range after[name].Jobs {
		if id := cmp.Or(j.ArrayJobID, j.ID); j.State == scaler.JobRunning {
			r.Nodes[id] = append(r.Nodes[id], j.Nodes)
		}
	}
	return r
}

// taken is how many nodes have jobs now that were powered down before.
func (b *demandBench) taken(before, after *scaler.Snapshot) int {
	off := map[string]bool{}
	for _, n := range before.Nodes {
		off[n.Name] = n.State == scaler.NodeOff
	}
	nodes := map[string]bool{}
	for _, j := range after.Jobs {
		list, err := slurmconf.ParseHostlist(j.Nodes)
		require.NoError(b.t, err)
		for n := range list.All() {
			if off[n] {
				nodes[n] = true
			}
		}
	}
	return len(nodes)
}

// missing is how many jobs, or tasks of arrays, that count do not run.
func (b *demandBench) missing(r scaler.Report, after *scaler.Snapshot) int {
	run := map[uint32]int{}
	for _, j := range after.Jobs {
		if j.State != scaler.JobRunning {
			continue
		}
		if j.ArrayJobID != 0 {
			run[j.ArrayJobID]++
		} else {
			run[j.ID]++
		}
	}
	missing := 0
	for _, j := range r.Jobs {
		missing += max(0, j.Counted-run[j.ID])
	}
	return missing
}

// story is where Slurm put the jobs, and what was reckoned of each.
func (b *demandBench) story(s *scaler.Snapshot, r scaler.Report) string {
	var text strings.Builder
	for _, j := range s.Jobs {
		fmt.Fprintf(&text, "%d(%d): %s\n", j.ID, j.ArrayJobID, orWord(j.Nodes, j.Reason))
	}
	for _, j := range r.Jobs {
		fmt.Fprintf(&text, "reckoned: %v\n", j)
	}
	fmt.Fprintf(&text, "%+v\n", r.NodeSets)
	return text.String()
}

func orWord(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
