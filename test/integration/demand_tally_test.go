//go:build integration && scale

package integration

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/scaler"
)

// kind is what of a queue slurmctld decides by more than the queue.
type kind int

const (
	plain  kind = iota
	shares      // --oversubscribe, --exclusive=user
	wide        // ranges of nodes: it takes as many as there are, also those that a later job names; and several partitions: what finds no room in one goes to the next
	hets        // het jobs: backfill plans them by weights that nodes have from whatever job was looked at last, and starts them apart from that
	kinds
)

func (k kind) String() string {
	return [...]string{"plain", "shared nodes", "ranges and partitions", "het jobs"}[k]
}

// bounds are in percent: of queues in which a job that counts does not start on the estimate's nodes, and of trials with a node less in
// which all of them do. Of few queues one may.
func (k kind) bounds(queues int) (short, enough int) {
	switch {
	case queues < 100:
		return 9, 9
	case k == hets:
		return 15, 10
	}
	return 3, 3
}

func (q drawnQueue) hasRanges() bool {
	all := q.first + q.second
	return strings.Contains(all, "-N 1-3") || strings.Contains(all, "-N 2-4")
}

// kind of the queue: the last one that it has jobs of.
func (q drawnQueue) kind() kind {
	all := q.first + q.second
	switch {
	case strings.Contains(all, " : "):
		return hets
	case q.hasRanges() || strings.Contains(all, "-p @cpu,@big") || strings.Contains(all, "-p @big,@cpu"):
		return wide
	case strings.Contains(all, "-p @both") || strings.Contains(all, "--exclusive=user"):
		return shares
	}
	return plain
}

// tally sums up what the queues showed.
type tally struct {
	queues, ranges            int // ranges: with jobs that ask for a range of nodes
	asTaken, within1, within2 int // of the others, took as many nodes as reckoned, or at most one or two more or less
	counted, started          int // jobs, with the estimate's nodes
	of                        [kinds]kindTally
	seen                      []recorded
}

type kindTally struct {
	queues int
	short  []string // not all started with the estimate's nodes
	fewer  int      // tried with one node less
	spare  []string // and all started all the same
}

// recorded is a queue, and where slurmctld placed it.
type recorded struct {
	Queue  int
	Only   []string `json:",omitempty"` // powered-down nodes that were left to it; none: all
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
	t.Logf("with the estimate's nodes %d of %d jobs started", a.started, a.counted)
	require.Equal(t, queues, a.queues)
	near := 90
	if queues < 100 {
		near = 75
	}
	assert.GreaterOrEqual(t, a.within2*100, (a.queues-a.ranges)*near)
	fewer := 0
	for k, of := range a.of {
		t.Logf("%v: with the estimate's nodes all jobs started in %d of %d queues, not in %v; one node less was tried %d times, and enough %d times: %v",
			kind(k), of.queues-len(of.short), of.queues, of.short, of.fewer, len(of.spare), of.spare)
		short, enough := kind(k).bounds(queues)
		assert.LessOrEqual(t, len(of.short), allowed(of.queues, short), kind(k))
		assert.LessOrEqual(t, len(of.spare), allowed(of.fewer, enough), kind(k))
		fewer += of.fewer
	}
	assert.Positive(t, fewer)
}

// allowed is how many of those may be otherwise, one of a few.
func allowed(of, percent int) int { return max(1, (of*percent+99)/100) }
