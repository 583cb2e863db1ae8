package scaler

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// Where a real slurmctld placed the jobs of made-up queues, written by test/integration's TestDemand (RECORD=...): the model puts them on
// as many nodes, and nearly all of them on the very same ones.
func TestRecorded(t *testing.T) {
	files, err := filepath.Glob("testdata/queues-*.json.gz")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			var queues []struct {
				Queue  int
				Only   []string // powered-down nodes that were left to slurmctld; none: all
				Before Snapshot
				Nodes  map[uint32][]string
			}
			file, err := os.Open(name)
			require.NoError(t, err)
			defer file.Close()
			unpacked, err := gzip.NewReader(file)
			require.NoError(t, err)
			require.NoError(t, json.NewDecoder(unpacked).Decode(&queues))
			as, within, jobs, same := 0, 0, 0, 0
			compared, chosen, alike := 0, 0, 0
			counted := 90 // percent
			if strings.Contains(name, "chosen") {
				counted = 80 // most of those were chosen because the estimate was wrong
			}
			for _, q := range queues {
				ranges := false
				for i := range q.Before.Jobs {
					if j := &q.Before.Jobs[i]; j.State == JobPending {
						j.Reason, j.Priority = "None", 1
						ranges = ranges || newNeed(j.Request, 0).spreads()
					}
				}
				placed := map[uint32][]string{}
				d := newDemand(testNow, &q.Before)
				d.rounds = false // what slurmctld takes when it may choose
				d.tell = func(id uint32, spots []spot) {
					var names []string
					for _, s := range spots {
						names = append(names, d.world.bins[s.bin].name)
					}
					placed[id] = append(placed[id], strings.Join(names, ","))
				}
				if len(q.Only) > 0 {
					only := nodeChoice{}
					w := newWorld(testNow, &q.Before)
					for _, name := range q.Only {
						only[w.byName[name]] = true
					}
					d.place(only, true)
					chosen++
					start, started := 0, 0
					for _, tasks := range placed {
						start += len(tasks)
					}
					for i := range d.report.Jobs {
						started += len(q.Nodes[d.report.Jobs[i].ID])
					}
					if start == started {
						alike++
					} else {
						t.Logf("queue %d with %d nodes: %d jobs started, reckoned %d", q.Queue, len(q.Only), started, start)
					}
					continue
				}
				r := d.reckon()
				if ranges { // slurmctld takes the larger number
					continue
				}
				compared++
				off := map[string]bool{}
				for _, n := range q.Before.Nodes {
					off[n.Name] = n.State == NodeOff
				}
				taken := map[string]bool{}
				story := ""
				for id, tasks := range q.Nodes {
					for i := range tasks {
						nodes, err := slurmconf.ParseHostlist(tasks[i])
						require.NoError(t, err)
						tasks[i] = strings.Join(nodes.Expand(), ",")
						for n := range nodes.All() {
							taken[n] = taken[n] || off[n]
						}
					}
					if placed[id] == nil {
						continue // ran before
					}
					slices.Sort(tasks)
					slices.Sort(placed[id])
					jobs++
					if slices.Equal(tasks, placed[id]) {
						same++
					} else {
						story += fmt.Sprintf("job %d is on %v, reckoned on %v\n", id, tasks, placed[id])
					}
				}
				fresh := 0
				for _, is := range taken {
					if is {
						fresh++
					}
				}
				far := max(fresh-r.New.Greedy, r.New.Greedy-fresh)
				if far == 0 {
					as++
				}
				if far <= 1 {
					within++
				}
				if story != "" {
					t.Logf("queue %d: slurmctld powered up %d, reckoned %+v\n%s", q.Queue, fresh, r.New, story)
				}
			}
			t.Logf("%d of %d queues take as many nodes as reckoned, %d at most one more or less; %d of %d jobs are on the same nodes", as, compared, within, same, jobs)
			t.Logf("on %d choices of nodes; as many jobs start as reckoned on %d", chosen, alike)
			assert.GreaterOrEqual(t, alike*100, chosen*90)
			assert.GreaterOrEqual(t, as*100, compared*counted)
			assert.GreaterOrEqual(t, within*100, compared*97)
			assert.GreaterOrEqual(t, same*100, jobs*85)
		})
	}
}
