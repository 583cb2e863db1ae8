//go:build integration && scale

package integration

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
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

// bounds are in percent: of queues in which a job that counts does not start on the estimate's nodes, and of trials with a node less in
// which all of them do. Of few queues one may.
func bounds(queues int) (short, enough int) {
	if queues >= 100 {
		return 3, 3
	}
	return 9, 9
}

var setOf = map[trial]string{lessCPU: "cpu", lessBig: "big"}

// Queues that are made up, put before a real slurmctld, many side by side: each has nodes and partitions of its own, and up to four copies of
// those. Nodes are powered down and never come up, but slurmctld allocates them to jobs all the same, and that is what demand is about.
// QUEUES says how many there are. RECORD names a file for what was seen, which package scaler's TestRecorded reads.
func TestDemand(t *testing.T) {
	queues := 12
	if text := os.Getenv("QUEUES"); text != "" {
		var err error
		queues, err = strconv.Atoi(text)
		require.NoError(t, err, "QUEUES")
	}
	forScaling(t, func(t *testing.T, version string) {
		var all tally
		for first := 0; first < queues; first += perBatch {
			count := min(perBatch, queues-first)
			t.Run(fmt.Sprintf("from %d", first), func(t *testing.T) {
				newDemandBench(t, version, first, count).run(&all)
			})
		}
		all.save(t, version)
		all.judge(t, queues)
	})
}

// tally sums up what the queues showed.
type tally struct {
	queues, ranges            int // ranges: with jobs that ask for a range of nodes
	asTaken, within1, within2 int // of the others, took as many nodes as reckoned, or at most one or two more or less
	counted, started          int // jobs, with the estimate's nodes
	short                     []string
	fewer, enough             int // tried with one node less, and all started all the same
	spare                     []string
	seen                      []recorded
}

// recorded is a queue, and where slurmctld placed it.
type recorded struct {
	Queue  int
	Before scaler.Snapshot
	Nodes  map[uint32][]string // by job, of an array by the array's: the nodes of each task that runs
}

// save writes what was seen.
func (a *tally) save(t *testing.T, version string) {
	name := os.Getenv("RECORD")
	if name == "" {
		return
	}
	file, err := os.Create(name + "-" + version + ".json.gz")
	require.NoError(t, err)
	defer file.Close()
	packed := gzip.NewWriter(file)
	require.NoError(t, json.NewEncoder(packed).Encode(a.seen))
	require.NoError(t, packed.Close())
}

// judge holds the tally against the bounds that docs/benchmarks.md states.
func (a *tally) judge(t *testing.T, queues int) {
	t.Logf("%d queues, %d with ranges of nodes: of the others slurmctld took as many nodes as reckoned for %d, up to one more or less for %d, up to two for %d",
		a.queues, a.ranges, a.asTaken, a.within1, a.within2)
	t.Logf("with the estimate's nodes %d of %d jobs started, all of them in %d queues; not in %v", a.started, a.counted, a.queues-len(a.short), a.short)
	t.Logf("one node less was tried %d times, and enough %d times: %v", a.fewer, a.enough, a.spare)
	require.Equal(t, queues, a.queues)
	assert.GreaterOrEqual(t, a.within2*100, (a.queues-a.ranges)*90)
	short, enough := bounds(queues)
	assert.LessOrEqual(t, len(a.short)*100, a.queues*short)
	assert.LessOrEqual(t, a.enough*100, a.fewer*enough)
	assert.Positive(t, a.fewer)
}

// demandBench is one slurmctld and the queues before it.
type demandBench struct {
	*cluster
	rest         *slurmrest.Client
	first, count int
	queues       []drawnQueue
	sel          scaler.Select
}

func copyName(queue int, what trial) string { return fmt.Sprintf("q%dt%d", queue, what) }

func newDemandBench(t *testing.T, version string, first, count int) *demandBench {
	b := &demandBench{first: first, count: count}
	// Held jobs are released while a reservation holds all nodes, and start in one pass over the queue when it is gone. Backfill keeps no
	// nodes for jobs that wait, for nothing that runs ends within a day.
	o := stack.Options{NoBridge: true, SuspendTime: 3600, ResumeTimeout: 3600, ExtraConf: []string{
		"SelectTypeParameters=CR_Core_Memory",
		"SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=1000000,bf_interval=2,default_queue_depth=100000,bf_max_job_test=100000,bf_continue",
	}}
	for i := range count {
		b.queues = append(b.queues, drawQueue(rand.New(rand.NewPCG(uint64(first+i), 7))))
		for what := range trial(trials) {
			c := copyName(first+i, what)
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
	b.cluster = deploy(t, fmt.Sprintf("demand%d", first), version, o)
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
		want.MaxNodeCount = count * trials * (12 + 6)
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
				firsts[copyName(b.first+i, what)] = q.first
			}
		}
		seconds[copyName(b.first+i, free)] = q.second
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
			if name != copyName(b.first+i, free) {
				continue
			}
			r := b.estimate(s)
			seconds[copyName(b.first+i, exact)] = b.queues[i].second
			for what, set := range setOf {
				if n := slices.IndexFunc(r.NodeSets, func(d scaler.NodeSetDemand) bool { return d.Name == set }); r.NodeSets[n].New.Greedy > 0 {
					seconds[copyName(b.first+i, what)] = b.queues[i].second
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
			name := copyName(b.first+i, what)
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
				if n.State == scaler.NodeOff && !may[n.Name] {
					barred = append(barred, n.Name)
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
		b.compare(all, b.first+i, b.queues[i], before, after, reports)
	}
}

// compare says what became of one queue.
func (b *demandBench) compare(all *tally, queue int, q drawnQueue, before, after map[string]*scaler.Snapshot, reports map[string]scaler.Report) {
	t := b.t
	name := copyName(queue, free)
	r := reports[name]
	fresh := b.taken(before[name], after[name])
	all.queues++
	ranges := strings.Contains(q.first+q.second, "-N 1-3") || strings.Contains(q.second, "-N 2-4")
	switch distance := max(fresh-r.New.Greedy, r.New.Greedy-fresh); {
	case ranges: // slurmctld takes the larger number
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
	seen := recorded{Queue: queue, Before: *before[name], Nodes: map[uint32][]string{}}
	for _, j := range after[name].Jobs {
		if id := cmp.Or(j.ArrayJobID, j.ID); j.State == scaler.JobRunning {
			seen.Nodes[id] = append(seen.Nodes[id], j.Nodes)
		}
	}
	all.seen = append(all.seen, seen)
	for what := exact; what < trials; what++ {
		name := copyName(queue, what)
		r := reports[name]
		set := slices.IndexFunc(r.NodeSets, func(d scaler.NodeSetDemand) bool { return d.Name == setOf[what] })
		if what != exact && r.NodeSets[set].New.Greedy == 0 || len(r.Jobs) == 0 {
			continue
		}
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
				all.short = append(all.short, fmt.Sprintf("%d (%d of %d)", queue, counted-missing, counted))
				verdict += fmt.Sprintf("\nwith the estimate's nodes %d jobs are missing\n", missing) + q.first + "--\n" + q.second + b.story(after[name], r)
			}
		default:
			all.fewer++
			if missing == 0 {
				all.enough++
				all.spare = append(all.spare, fmt.Sprintf("%d %s", queue, setOf[what]))
				verdict += fmt.Sprintf("\none %s less is enough\n", setOf[what]) + q.first + "--\n" + q.second + b.story(after[name], r)
			}
		}
	}
	t.Log(verdict)
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
